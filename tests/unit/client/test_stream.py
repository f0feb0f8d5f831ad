from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.served import Reply, Request, Served, lines
from tests.unit.client.test_http import Time

from handoff.client.endpoint import discover
from handoff.client.http import Client
from handoff.client.stream import Events, Frames
from handoff.errors import TimedOut, Unauthorized, UnknownTask, Unreachable

TASK = "1f3a0000-0000-4000-8000-000000000000"
PATH = f"/api/tasks/{TASK}/stream"


def event(seq: int, kind: str = "progress") -> dict[str, Any]:
    return {"event": {"seq": seq, "type": kind, "wakes": False, "payload": {}}}


def events(served: Served, time: Time, said: list[str] | None = None, seq: int = 0) -> Events:
    said = [] if said is None else said
    peer = Client(lambda: discover(served.config), sleep=time.sleep, monotonic=time.monotonic)
    return Events(
        peer,
        TASK,
        seq,
        wakes=False,
        summary=True,
        notify=said.append,
        sleep=time.sleep,
        monotonic=time.monotonic,
    )


def log(total: int, cuts: list[int], wrong: Callable[[int], int] = lambda seq: seq) -> Any:
    """A peer that has events 1..total and drops the connection after cuts[i] events."""
    lengths = iter(cuts)

    def answer(request: Request) -> Reply:
        after = wrong(int(request.one("from_seq") or 0))
        most = next(lengths, None)
        found = [event(seq) for seq in range(after + 1, total + 1)]
        if most is None:
            return Reply(chunks=lines({"hello": {}}, *found, {"end": {"state": "completed"}}))
        return Reply(chunks=lines({"hello": {}}, *found[:most]), cut=True)

    return answer


def seqs(found: Events) -> list[int]:
    return [item["event"]["seq"] for item in found if "event" in item]


@given(st.integers(0, 12), st.lists(st.integers(0, 5), max_size=5), st.integers(0, 3))
def test_nothing_is_missed_and_nothing_comes_twice(total: int, cuts: list[int], start: int) -> None:
    served = Served()
    try:
        served.on("GET", PATH, log(total, cuts))
        assert seqs(events(served, Time(), seq=start)) == list(range(start + 1, total + 1))
    finally:
        served.close()


def test_what_a_peer_repeats_is_dropped(served: Served) -> None:
    served.on("GET", PATH, log(6, [2, 3], wrong=lambda seq: max(0, seq - 2)))
    assert seqs(events(served, Time())) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("local", "slept"),
    [(True, [1, 2, 2, 2, 2, 2, 2, 2, 2]), (False, [1, 2, 4, 8, 16, 32, 60, 60, 60])],
)
def test_backoff_doubles_to_its_bound_and_says_so_once(
    served: Served, monkeypatch: pytest.MonkeyPatch, local: bool, slept: list[float]
) -> None:
    if not local:
        monkeypatch.setattr("handoff.client.stream.BACKOFF_LOCAL_S", 60.0)
    said: list[str] = []
    time = Time()
    served.on("GET", PATH, log(1, [0] * 9))
    assert seqs(events(served, time, said)) == [1]
    assert time.slept == slept
    assert [line.split(" (")[0] for line in said[:2]] == ["connection lost", "connected again"]


def test_backoff_starts_again_after_a_connection_that_lived(served: Served) -> None:
    time = Time()
    lives = iter([1.0, 1.0, 6.0, 1.0])

    def answer(_: Request) -> Reply:
        lived = next(lives, None)
        if lived is None:
            return Reply(chunks=lines({"end": {}}))
        time.now += lived
        return Reply(chunks=lines({"hello": {}}), cut=True)

    served.on("GET", PATH, answer)
    assert seqs(events(served, time)) == []
    assert time.slept == [1, 2, 1, 2]


def test_a_restart_in_the_middle_is_survived(served: Served) -> None:
    time = Time()
    served.on("GET", PATH, log(4, [2]))

    def between() -> None:
        if len(time.slept) == 1:
            served.stop()
        if len(time.slept) == 3:
            served.restart()

    time.between = between
    assert seqs(events(served, time)) == [1, 2, 3, 4]
    assert time.slept[:3] == [1, 2, 2]


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(404, "unknown_task", UnknownTask), (401, "unauthorized", Unauthorized)],
)
@pytest.mark.parametrize("after", [0, 1])
def test_what_waiting_cant_mend_is_raised_at_once(
    served: Served, status: int, code: str, expected: type[Exception], after: int
) -> None:
    first = itertools.chain([Reply(chunks=lines({"hello": {}}), cut=True)] * after)
    served.on(
        "GET", PATH, lambda _: next(first, Reply({"error": "no", "code": code}, status=status))
    )
    time = Time()
    with pytest.raises(expected):
        seqs(events(served, time))
    assert len(time.slept) == after


def test_a_server_error_later_is_waited_out_but_not_at_first(served: Served) -> None:
    broken = Reply({"error": "starting", "code": "unreachable"}, status=503)
    answers = iter([Reply(chunks=lines(event(1)), cut=True), broken, broken])
    served.on("GET", PATH, lambda r: next(answers, None) or log(3, [])(r))
    assert seqs(events(served, Time())) == [1, 2, 3]
    served.on("GET", PATH, broken)
    with pytest.raises(Unreachable):
        seqs(events(served, Time()))


def test_deadline_holds_through_lost_connections(served: Served) -> None:
    time = Time()
    served.on("GET", PATH, log(1, [0] * 100))
    found = events(served, time)
    found.deadline = 10.0
    with pytest.raises(TimedOut):
        seqs(found)
    assert time.now == pytest.approx(10.0, abs=0.01)


def test_the_consumer_may_move_the_deadline(served: Served) -> None:
    time = Time()

    def answer(request: Request) -> Reply:
        time.now += 3
        after = int(request.one("from_seq") or 0)
        return Reply(chunks=lines(event(after + 1)), cut=True)

    served.on("GET", PATH, answer)
    found = events(served, time)
    found.deadline = 4.0
    got = 0
    for _ in found:
        got += 1
        found.deadline = time.now + 8
        if got == 4:
            break
    assert got == 4


def test_frames_begin_with_their_tail_and_go_on_at_their_number(served: Served) -> None:
    path = f"/api/tasks/{TASK}/frames"

    def answer(request: Request) -> Reply:
        after = int(request.one("from") or 0)
        found = [{"frame": {"n": n}} for n in range(1, 8) if n > after]
        if request.one("tail"):
            found = found[-int(request.one("tail") or 0) :]
            return Reply(chunks=lines(*found[:2]), cut=True)
        return Reply(chunks=lines({"frame": {"n": after}}, *found, {"end": {}}))

    served.on("GET", path, answer)
    time = Time()
    peer = Client(lambda: discover(served.config), sleep=time.sleep, monotonic=time.monotonic)
    found = Frames(peer, TASK, follow=True, tail=4, sleep=time.sleep, monotonic=time.monotonic)
    assert [item["frame"]["n"] for item in found if "frame" in item] == [4, 5, 6, 7]
    assert [request.query for request in served.seen] == [
        {"from": ["0"], "tail": ["4"], "follow": ["1"]},
        {"from": ["5"], "follow": ["1"]},
    ]
