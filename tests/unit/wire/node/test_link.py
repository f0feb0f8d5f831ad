"""An open session: calls, streams, credit, turns, time, and what is odd."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from typing import Any

import pytest
from tests.support.nodelink import BY_TOKEN, KEYED, TOKEN, Wires, brain_link

from handoff.clock import FakeClock
from handoff.errors import BadRequest, FileMissing, TooLarge, Unreachable
from handoff.wire.node import events as ev
from handoff.wire.node.calls import (
    CallFailed,
    Exec,
    ExecResult,
    FileInfo,
    GetFacts,
    Listing,
    Read,
    ReadResult,
    Stat,
    Write,
    WriteResult,
)
from handoff.wire.node.frames import Piece
from handoff.wire.node.link import MALFORMED_LIMIT
from handoff.wire.node.messages import (
    Ack,
    Ask,
    Bye,
    CallMessage,
    Cancel,
    Credit,
    Message,
    Ping,
    ResultMessage,
    Told,
)
from handoff.wire.node.options import NodeOptions
from handoff.wire.node.streams import FIRST_WINDOW, HIGH_WATER

KIB = 1024
UNSEALED = dataclasses.replace(KEYED, seal=False)


@pytest.fixture
def wires() -> Wires:
    return Wires().pump()


def run(wires: Wires, call: Any, key: str = "key-0001", **more: Any) -> int:
    number = wires.brain.call(call, key=key, **more)
    wires.pump()
    return number


def collected(wires: Wires, stream: str = "stdout") -> bytes:
    return b"".join(e.data for e in wires.brain_saw(ev.StreamPiece) if e.stream == stream)


def flow(wires: Wires, most: int = 10_000) -> None:
    """Pump, using up whatever arrives at the brain, until nothing moves."""
    used = 0
    for _ in range(most):
        wires.pump()
        fresh = wires.brain_saw(ev.StreamPiece)[used:]
        if not fresh:
            return
        used += len(fresh)
        for piece in fresh:
            wires.brain.consume(piece.id, piece.stream, len(piece.data))
    raise AssertionError("does not come to rest")


# -- calls -------------------------------------------------------------------------------


def test_a_call_goes_over_whole(wires: Wires) -> None:
    call = Exec(argv=("ls", "\udcff"), env={"A": "ä"}, timeout_ms=5)
    number = run(wires, call, by="chat:7", deadline_ms=9_000)
    (asked,) = wires.node_saw(ev.CallAsked)
    assert asked == ev.CallAsked(number, "key-0001", call, "chat:7", 9_000)
    wires.node.finish(number, ExecResult("error", 7), repeated=True)
    wires.pump()
    (ended,) = wires.brain_saw(ev.CallEnded)
    assert ended == ev.CallEnded(number, "key-0001", ExecResult("error", 7), True, {})
    assert wires.brain.under_way == 0


def test_answers_come_in_any_order(wires: Wires) -> None:
    numbers = [run(wires, Stat(f"/{n}"), key="") for n in range(5)]
    for number in reversed(numbers):
        wires.node.finish(number, FileInfo(str(number)))
    wires.pump()
    assert [e.id for e in wires.brain_saw(ev.CallEnded)] == numbers[::-1]


def test_a_call_is_answered_once(wires: Wires) -> None:
    number = run(wires, Stat("/x"), key="")
    wires.node.finish(number, FileInfo("x"))
    wires.node.finish(number, FileInfo("y"))
    wires.node.finish(99, FileInfo("z"))
    wires.pump()
    assert len(wires.brain_saw(ev.CallEnded)) == 1


def test_what_changes_something_needs_a_key(wires: Wires) -> None:
    for key in ("", "short", "x" * 65):
        with pytest.raises(BadRequest):
            wires.brain.call(Exec(command="true"), key=key)
    with pytest.raises(BadRequest):
        wires.brain.call(Stat(""), key="")
    assert wires.brain.call(GetFacts()) == 1


def test_no_call_on_a_link_that_is_not_open() -> None:
    link = brain_link(FakeClock())
    with pytest.raises(Unreachable):
        link.call(GetFacts())
    with pytest.raises(Unreachable):
        link.ask(GetFacts(), key="key-0001")


def test_a_call_that_does_not_fit_is_refused_before_it_is_sent(wires: Wires) -> None:
    with pytest.raises(TooLarge):
        wires.brain.call(Exec(argv=("x" * 127_000,) * 9), key="key-0001")
    assert run(wires, Write("/x", data=bytes(256 * KIB))) == 1
    assert len(wires.node_saw(ev.CallAsked)) == 1


def test_an_answer_that_does_not_fit_becomes_a_failure(wires: Wires) -> None:
    number = run(wires, Stat("/x"), key="")
    entries = tuple(FileInfo("x" * 4000) for _ in range(600))
    wires.node.finish(number, Listing(entries))
    wires.pump()
    (ended,) = wires.brain_saw(ev.CallEnded)
    assert ended.result.code == "too_large"


def test_the_largest_answers_that_may_be_do_fit(wires: Wires) -> None:
    from handoff.wire.node.calls import Output

    for fill in (b'"', b"\0", b"\xff", b"\n", "ä".encode(), b"a"):
        number = run(wires, Exec(command="x"))
        half = (fill * (128 * KIB))[: 128 * KIB]
        output = Output(1 << 40, half, half)
        wires.node.finish(number, ExecResult("ok", 0, stdout=output, stderr=output))
        wires.pump()
        assert wires.brain_saw(ev.CallEnded)[-1].result.stdout == output
    number = run(wires, Read("/x"), key="")
    wires.node.finish(number, ReadResult(data=b"\xff\0" * (128 * KIB)))
    wires.pump()
    assert len(wires.brain_saw(ev.CallEnded)[-1].result.data) == 256 * KIB


def test_an_unusable_call_is_answered_and_not_asked() -> None:
    """What a brain of another version may send."""
    wires = Wires().pump()
    for number, (op, args, key) in enumerate(
        [
            ("fly", {}, "key-0001"),
            ("exec", {}, "key-0001"),
            ("exec", {"command": "true"}, ""),
            ("exec", {"command": "true"}, "?"),
            ("stat", {"path": 3}, ""),
        ],
        1,
    ):
        say(wires, CallMessage(number, op, key, args))
        answer = wires.node.next_frame()
        assert answer is not None
        found, _ = opener(wires).read(answer)
        assert isinstance(found, ResultMessage)
        assert (found.id, found.ok, found.value["code"]) == (number, False, "bad_request")
        assert found.value["retry_safe"] is True
    assert not wires.node.events()


def test_a_call_that_can_not_be_read_is_answered() -> None:
    wires = Wires().pump()
    for number, body in enumerate(
        (
            '{"type":"call","id":%d,"op":7}',
            '{"type":"call","id":%d,"op":"stat","key":[]}',
            '{"type":"call","id":%d,"op":"stat","args":{"path":"\\ud800"}}',
        ),
        1,
    ):
        say(wires, body % number)  # type: ignore[arg-type]
        answer = wires.node.next_frame()
        assert answer is not None
        found, _ = opener(wires).read(answer)
        assert (found.id, found.ok, found.value["code"]) == (number, False, "bad_request")
        say(wires, body % number)  # type: ignore[arg-type]
        assert wires.node.next_frame() is None


def opener(wires: Wires) -> Any:
    """What reads the node's frames, without telling the brain."""
    return wires.brain._out.frames


def say(wires: Wires, item: Message | Piece, *, to_brain: bool = False) -> None:
    """A frame of one side's that its machine would not make."""
    link, other = (wires.node, wires.brain) if to_brain else (wires.brain, wires.node)
    frame = link._out.frames.write(item)
    if link._out.pace:
        link._out.pace.sent(len(frame), False, wires.clock.monotonic())
    other.receive(frame)


def test_numbers_of_calls_are_used_once(wires: Wires) -> None:
    number = run(wires, Stat("/x"), key="")
    for again in (number, 0, -1, 2**32):
        say(wires, CallMessage(again, "stat", "", {"path": "/y"}))
        say(wires, Ask(again, "key-0001"))
    wires.pump()
    assert len(wires.node_saw(ev.CallAsked)) == 1
    assert not wires.node_saw(ev.StateAsked)
    assert len(wires.node_saw(ev.Oddity)) == 8


def test_answers_to_nothing_are_odd_and_harmless(wires: Wires) -> None:
    for message in (
        ResultMessage(9, True),
        Told(9, "key-0001", "done"),
        Ack(1 << 40),
        Credit(9, "stdout", 5),
    ):
        say(wires, message, to_brain=True)
    wires.pump()
    assert wires.brain.state == "open"
    assert len(wires.brain_saw(ev.Oddity)) == 3


def test_an_answer_of_the_wrong_shape_is_a_failure(wires: Wires) -> None:
    for value in ({"path": 3}, {}, {"kind": []}):
        number = run(wires, Stat("/x"), key="")
        say(wires, ResultMessage(number, True, value), to_brain=True)
        wires.pump()
        result = wires.brain_saw(ev.CallEnded)[-1].result
        assert isinstance(result, CallFailed)
        assert result.code == "protocol_violation"


def test_an_answer_that_can_not_be_read_is_a_failure_and_not_a_silence(wires: Wires) -> None:
    for body in (
        '{"type":"result","id":%d,"ok":"yes"}',
        '{"type":"result","id":%d,"ok":true,"value":[]}',
        '{"type":"result","id":%d,"ok":false,"value":{"code":"x","error":"\\ud800"}}',
    ):
        number = run(wires, Stat("/x"), key="")
        say(wires, body % number, to_brain=True)  # type: ignore[arg-type]
        wires.pump()
        ended = wires.brain_saw(ev.CallEnded)[-1]
        assert ended.id == number
        assert ended.result.code == "protocol_violation"
    say(wires, '{"type":"result","id":99,"ok":"yes"}', to_brain=True)  # type: ignore[arg-type]
    say(wires, '{"type":"result","id":[],"ok":"yes"}', to_brain=True)  # type: ignore[arg-type]
    wires.pump()
    assert len(wires.brain_saw(ev.CallEnded)) == 3
    assert wires.brain.under_way == 0


def test_names_that_are_not_utf8_arrive_in_errors_too(wires: Wires) -> None:
    number = run(wires, Stat("/x\udcff"), key="")
    error = FileMissing(
        "there is no /x\udcff", remedy="ls /x\udcff", path="/x\udcff", seen=["\ud800"]
    )
    wires.node.finish(number, CallFailed.of(error))
    wires.node.notice("x", {"\udcfe": {"a": ("\udcfe",)}})
    wires.pump()
    (ended,) = wires.brain_saw(ev.CallEnded)
    assert ended.result.error == "there is no /x\\xff"
    assert ended.result.details == {"path": "/x\\xff", "seen": ["\\ud800"]}
    assert wires.brain_saw(ev.Noticed)[0].body == {"\\xfe": {"a": ["\\xfe"]}}


def test_too_many_calls_at_once_are_refused() -> None:
    wires = Wires().pump()
    for _ in range(1001):
        wires.brain.call(GetFacts())
    wires.pump()
    assert len(wires.node_saw(ev.CallAsked)) == 1000
    (ended,) = wires.brain_saw(ev.CallEnded)
    assert ended.result.retry_safe


def test_cancel_signal_forget_and_notice(wires: Wires) -> None:
    number = run(wires, Exec(command="sleep 9"))
    assert wires.brain.cancel(number, "the caller left")
    assert wires.brain.signal(number, 10)
    wires.brain.forget(("key-0000",))
    wires.node.notice("job_done", {"job": "j1"})
    wires.pump()
    assert wires.node_saw(ev.CancelAsked) == [ev.CancelAsked(number, "the caller left")]
    assert wires.node_saw(ev.SignalAsked) == [ev.SignalAsked(number, 10)]
    assert wires.node_saw(ev.Forgotten) == [ev.Forgotten(("key-0000",))]
    assert wires.brain_saw(ev.Noticed) == [ev.Noticed("job_done", {"job": "j1"})]
    wires.node.finish(number, ExecResult("cancelled", ended_by="cancel"))
    wires.pump()
    assert not wires.brain.cancel(number)
    say(wires, Cancel(number))
    assert wires.node.events() == []


# -- streams -----------------------------------------------------------------------------


@pytest.mark.parametrize("node", [KEYED, UNSEALED])
def test_both_streams_arrive_whole_and_before_the_result(node: NodeOptions) -> None:
    wires = Wires(node=node).pump()
    number = run(wires, Exec(command="x", stream=True))
    out = bytes(range(256)) * 40 * KIB  # 10 MiB: more than window, piece and pace
    wires.node.send(number, "stdout", out)
    wires.node.send(number, "stderr", b"oh")
    wires.node.finish(number, ExecResult("ok", 0))
    flow(wires)
    assert collected(wires) == out
    assert collected(wires, "stderr") == b"oh"
    ended = wires.brain_events.index(wires.brain_saw(ev.CallEnded)[0])
    assert wires.brain_saw(ev.CallEnded)[0].sent == {"stdout": len(out), "stderr": 2}
    assert ended == len(wires.brain_events) - 1
    ends = [e.stream for e in wires.brain_saw(ev.StreamPiece) if e.end]
    assert sorted(ends) == ["stderr", "stdout"]


def test_streams_go_as_json_where_binary_frames_are_not_agreed() -> None:
    wires = _without_frames2()
    number = run(wires, Exec(command="x", stream=True))
    wires.node.send(number, "stdout", b"\xff" * 200 * KIB)
    wires.node.finish(number, ExecResult("ok", 0))
    flow(wires)
    assert collected(wires) == b"\xff" * 200 * KIB
    assert all(isinstance(frame, str) for _, frame in wires.frames)


def _without_frames2() -> Wires:
    wires = Wires(BY_TOKEN, NodeOptions("lab", token=TOKEN, seal=False))
    plain = wires.node.next_frame
    said = []

    def next_frame() -> Any:
        frame = plain()
        if not said and isinstance(frame, str):
            body = json.loads(frame)
            body["capabilities"].remove("frames2")
            said.append(frame)
            frame = json.dumps(body)
        return frame

    wires.node.next_frame = next_frame  # type: ignore[method-assign]
    wires.pump()
    assert wires.node.features is not None
    assert wires.node.features.calls2
    assert not wires.node.features.frames2
    return wires


def test_nothing_goes_beyond_the_credit(wires: Wires) -> None:
    number = run(wires, Exec(command="x", stream=True), window=100_000)
    assert wires.node.send(number, "stdout", bytes(300_000)) is True
    wires.pump()
    assert len(collected(wires)) == 100_000
    assert wires.node.pending(number, "stdout") == 200_000
    wires.brain.consume(number, "stdout", 40_000)
    wires.pump()
    assert len(collected(wires)) == 100_000  # not worth a message yet
    wires.brain.consume(number, "stdout", 20_000)
    wires.pump()
    assert len(collected(wires)) == 160_000
    wires.brain.consume(number, "stdout", 10**9)  # never more than what came
    wires.pump()
    assert len(collected(wires)) == 260_000


def test_a_producer_is_told_to_pause_and_to_go_on(wires: Wires) -> None:
    number = run(wires, Exec(command="x", stream=True), window=HIGH_WATER)
    assert wires.node.send(number, "stdout", bytes(HIGH_WATER)) is True
    assert wires.node.send(number, "stdout", b"x") is False
    assert wires.node.send(number, "stdout", b"x") is False
    wires.pump()
    assert wires.node_saw(ev.Drained) == [ev.Drained(number, "stdout")]
    assert wires.node.send(number, "stdout", b"x") is True


def test_input_flows_the_other_way_with_the_first_window_free(wires: Wires) -> None:
    number = run(wires, Exec(command="cat", stdin="stream"))
    wires.brain.send(number, "stdin", bytes(FIRST_WINDOW + 10))
    wires.brain.end(number, "stdin")
    wires.pump()
    got = sum(len(e.data) for e in wires.node_saw(ev.StreamPiece))
    assert got == FIRST_WINDOW
    wires.node.consume(number, "stdin", FIRST_WINDOW)
    wires.pump()
    pieces = wires.node_saw(ev.StreamPiece)
    assert sum(len(e.data) for e in pieces) == FIRST_WINDOW + 10
    assert pieces[-1].end
    assert wires.brain.send(number, "stdin", b"late") is True  # dropped: it has ended
    wires.node.finish(number, ExecResult("ok", 0))
    wires.pump()
    assert len(wires.brain_saw(ev.CallEnded)) == 1


def test_an_empty_stream_ends(wires: Wires) -> None:
    number = run(wires, Write("/x", stream=True, size=0))
    wires.brain.end(number, "data")
    wires.pump()
    assert wires.node_saw(ev.StreamPiece) == [ev.StreamPiece(number, "data", b"", True)]
    wires.node.finish(number, WriteResult())
    wires.pump()
    assert len(wires.brain_saw(ev.CallEnded)) == 1


def test_a_stream_that_nobody_wants_is_stopped_and_the_result_still_comes(wires: Wires) -> None:
    number = run(wires, Exec(command="x", stream=True), window=10)
    wires.node.send(number, "stdout", bytes(1000))
    wires.pump()
    wires.brain.stop_stream(number, "stdout")
    wires.pump()
    assert wires.node_saw(ev.StreamStopped) == [ev.StreamStopped(number, "stdout")]
    wires.node.send(number, "stdout", bytes(5_000_000))
    assert wires.node.pending(number, "stdout") == 0
    wires.node.finish(number, ExecResult("ok", 0))
    wires.pump()
    assert wires.brain_saw(ev.CallEnded)[0].result.status == "ok"


def test_a_result_before_its_bytes_is_a_failure_not_a_success(wires: Wires) -> None:
    number = run(wires, Read("/x", stream=True), key="")
    value = {"size": 9}
    say(wires, ResultMessage(number, True, value, {"data": 9}), to_brain=True)
    wires.pump()
    result = wires.brain_saw(ev.CallEnded)[0].result
    assert isinstance(result, CallFailed)
    assert result.code == "protocol_violation"


@pytest.mark.parametrize(
    "piece",
    [
        Piece(1, "stdout", 5, b"x"),
        Piece(1, "stdout", 0, b"x" * 101),
    ],
)
def test_a_stream_out_of_step_or_credit_ends_the_link(wires: Wires, piece: Piece) -> None:
    run(wires, Exec(command="x", stream=True), window=100)
    say(wires, piece, to_brain=True)
    assert wires.brain.closing is not None
    assert wires.brain.closing.reason == "bad_stream"


def test_pieces_of_calls_that_are_over_are_ignored(wires: Wires) -> None:
    number = run(wires, Exec(command="x", stream=True))
    for piece in (Piece(99, "stdout", 0, b"x"), Piece(number, "data", 0, b"x")):
        say(wires, piece, to_brain=True)
    assert wires.brain.state == "open"
    assert not wires.brain_saw(ev.StreamPiece)


def test_two_streams_share_and_a_small_one_does_not_wait(wires: Wires) -> None:
    big = run(wires, Read("/big", stream=True), key="")
    small = run(wires, Read("/small", stream=True), key="key-0002")
    wires.node.send(big, "data", bytes(4_000_000))
    wires.node.send(small, "data", b"quick")
    wires.node.end(small, "data")
    wires.pump()
    pieces = wires.brain_saw(ev.StreamPiece)
    at = next(i for i, e in enumerate(pieces) if e.id == small)
    assert at <= 1


def test_control_is_never_behind_data(wires: Wires) -> None:
    number = run(wires, Read("/big", stream=True), key="")
    wires.node.send(number, "data", bytes(50_000_000))
    handed = 0
    # a transport that takes frames but delivers none
    while (frame := wires.node.next_frame()) is not None:
        handed += len(frame)
    assert handed <= 512 * KIB
    wires.clock.advance(30)
    wires.node.tick()
    ping = wires.node.next_frame()
    assert isinstance(ping, bytes)
    assert len(ping) < 200
    assert wires.node.next_frame() is None


def test_large_answers_wait_their_turn_and_small_ones_do_not(wires: Wires) -> None:
    numbers = [run(wires, Read(f"/{n}"), key="") for n in range(8)]
    for number in numbers:
        wires.node.finish(number, ReadResult(data=b"\xff" * 250 * KIB))
    handed = 0
    while (frame := wires.node.next_frame()) is not None:
        handed += len(frame)
    assert handed < 1024 * KIB
    assert wires.node.busy


# -- after a lost link -------------------------------------------------------------------


def relink(old: Wires) -> Wires:
    old.brain.lost(1006)
    old.node.lost(1006)
    return Wires(clock=old.clock).pump()


def test_what_has_no_result_is_listed_when_the_link_ends(wires: Wires) -> None:
    one = run(wires, Exec(command="x", stream=True), key="key-0001")
    two = run(wires, Stat("/x"), key="")
    wires.node.send(one, "stdout", b"abc")
    wires.pump()
    wires.brain.lost(1006)
    (ended,) = wires.brain.events()
    assert isinstance(ended, ev.Ended)
    assert ended.close.reason == "lost"
    assert ended.calls == (
        ev.Outstanding(one, "key-0001", "exec", False, {"stdout": 3, "stderr": 0}),
        ev.Outstanding(two, "", "stat", True, {}),
    )
    wires.brain.lost(1006)
    assert wires.brain.events() == []
    assert wires.brain.next_frame() is None


def test_a_running_call_goes_on_where_it_was(wires: Wires) -> None:
    call = Exec(command="x", stream=True, stdin="stream")
    number = run(wires, call, key="key-0001")
    wires.brain.send(number, "stdin", b"12345")
    wires.node.send(number, "stdout", b"abcdef")
    wires.pump()
    assert collected(wires) == b"abcdef"
    new = relink(wires)
    number = new.brain.ask(call, key="key-0001", received={"stdout": 6, "stderr": 0})
    new.pump()
    assert new.node_saw(ev.StateAsked) == [
        ev.StateAsked(number, "key-0001", {"stdout": 6, "stderr": 0})
    ]
    new.node.tell(number, call, "running", {"stdin": 3})
    new.pump()
    assert new.brain_saw(ev.CallTold) == [ev.CallTold(number, "key-0001", "running", {"stdin": 3})]
    new.brain.send(number, "stdin", b"45")
    new.brain.end(number, "stdin")
    new.node.send(number, "stdout", b"ghi")
    new.pump()
    assert [(e.data, e.end) for e in new.node_saw(ev.StreamPiece)] == [(b"45", True)]
    new.node.finish(number, ExecResult("ok", 0))
    new.pump()
    assert collected(new) == b"ghi"
    (ended,) = new.brain_saw(ev.CallEnded)
    assert (ended.key, ended.result.status, ended.sent["stdout"]) == ("key-0001", "ok", 9)


def test_a_call_that_is_done_gives_its_stored_result(wires: Wires) -> None:
    call = Exec(command="x")
    run(wires, call, key="key-0001")
    new = relink(wires)
    number = new.brain.ask(call, key="key-0001")
    new.pump()
    new.node.tell(number, call, "done")
    new.node.finish(number, ExecResult("error", 3), repeated=True)
    new.pump()
    (ended,) = new.brain_saw(ev.CallEnded)
    assert (ended.result.exit_code, ended.repeated) == (3, True)


@pytest.mark.parametrize("state", ["never_seen", "unknown_outcome"])
def test_a_call_that_nobody_knows_ends_there(wires: Wires, state: str) -> None:
    number = wires.brain.ask(Exec(command="x"), key="key-0001")
    wires.pump()
    wires.node.tell(number, None, state)
    wires.pump()
    assert wires.brain_saw(ev.CallTold)[0].state == state
    assert wires.brain.under_way == 0
    wires.node.tell(number, None, state)
    wires.node.finish(number, ExecResult("ok", 0))
    wires.pump()
    assert not wires.brain_saw(ev.CallEnded)


def test_a_state_that_is_not_known_is_odd(wires: Wires) -> None:
    number = wires.brain.ask(Exec(command="x"), key="key-0001")
    say(wires, Told(number, "key-0002", "done"), to_brain=True)
    wires.pump()
    assert not wires.brain_saw(ev.CallTold)
    assert wires.brain.under_way == 1
    # nobody waits for what a word without a meaning may promise
    say(wires, Told(number, "key-0001", "perhaps"), to_brain=True)
    wires.pump()
    assert wires.brain_saw(ev.CallTold)[0].state == "unknown_outcome"
    assert wires.brain.under_way == 0


# -- time --------------------------------------------------------------------------------


def test_an_idle_link_stays_and_measures_itself(wires: Wires) -> None:
    for _ in range(100):
        wires.clock.advance(30)
        wires.node.tick()
        wires.brain.tick()
        wires.pump()
    assert wires.brain.state == wires.node.state == "open"
    assert wires.node.rtt_ms == 0.0


def test_a_brain_that_is_gone_is_noticed(wires: Wires) -> None:
    for at in (30.0, 60.0):
        wires.clock.advance(30)
        assert wires.node.wake_at() == at
        wires.node.tick()
    wires.clock.advance(14.9)
    wires.node.tick()
    assert wires.node.state == "open"
    wires.clock.advance(0.2)
    wires.node.tick()
    assert wires.node.closing is not None
    assert wires.node.closing.reason == "stale"
    assert not wires.node.closing.final
    assert wires.node.wake_at() is None


def test_a_node_that_is_gone_is_noticed(wires: Wires) -> None:
    assert wires.brain.wake_at() == 30.0
    wires.clock.advance(30)
    wires.brain.tick()
    assert wires.brain.next_frame() is not None  # asked once
    assert wires.brain.wake_at() == 60.0
    wires.clock.advance(30)
    wires.brain.tick()
    assert wires.brain.closing is not None
    assert (wires.brain.closing.code, wires.brain.closing.reason) == (1000, "stale")


def test_anything_that_arrives_is_a_sign_of_life(wires: Wires) -> None:
    for _ in range(10):
        wires.clock.advance(50)
        wires.node.notice("x", {})
        wires.pump()
        wires.brain.tick()
    assert wires.brain.state == "open"


def test_pings_do_not_pile_up_where_nothing_can_be_sent(wires: Wires) -> None:
    for _ in range(2):
        wires.clock.advance(30)
        wires.node.tick()
    assert isinstance(wires.node.next_frame(), bytes)
    assert wires.node.next_frame() is None
    for _ in range(50):
        say(wires, Ping("T"), to_brain=True)
    assert isinstance(wires.brain.next_frame(), bytes)
    assert wires.brain.next_frame() is None


def test_jumps_of_the_wall_clock_do_nothing(wires: Wires) -> None:
    wires.clock.set_back(86_400)
    wires.node.tick()
    wires.brain.tick()
    wires.pump()
    assert wires.brain.state == wires.node.state == "open"


# -- the end -----------------------------------------------------------------------------


def test_both_sides_learn_why(wires: Wires) -> None:
    run(wires, Exec(command="x"))
    wires.brain.close("revoked", "by an administrator")
    wires.pump()
    assert wires.brain.closing is not None
    assert wires.node.closing is not None
    assert (wires.node.closing.code, wires.node.closing.reason) == (4006, "revoked")
    assert wires.node.closing.final
    assert not wires.node.closing.ours
    assert "by an administrator" in wires.node.closing.detail
    assert len(wires.brain_saw(ev.Ended)) == len(wires.node_saw(ev.Ended)) == 1
    assert len(wires.brain_saw(ev.Ended)[0].calls) == 1
    assert wires.brain.closing.text == "revoked: by an administrator"
    wires.brain.lost(4006, "x")
    wires.node.lost(4006, "x")
    assert wires.brain.state == wires.node.state == "closed"
    assert wires.brain.events() == wires.node.events() == []


def test_a_brain_may_say_when_to_come_back(wires: Wires) -> None:
    wires.brain.close("shutting_down", retry_ms=1500)
    wires.pump()
    assert wires.node.closing is not None
    assert wires.node.closing.retry_ms == 1500
    assert not wires.node.closing.final


def test_the_close_frame_alone_says_it_too() -> None:
    for code, text, reason, final in (
        (4006, "revoked: x", "revoked", True),
        (4006, "", "revoked", True),
        (4001, "", "invalid_token", True),
        (1012, "", "shutting_down", False),
        (1000, "", "done", False),
        (1006, "", "lost", False),
        (4999, "strange", "lost", False),
        (1000, "name_in_use: since noon", "name_in_use", True),
    ):
        wires = Wires().pump()
        wires.node.lost(code, text)
        (ended,) = wires.node.events()
        assert isinstance(ended, ev.Ended)
        assert (ended.close.code, ended.close.reason, ended.close.final) == (code, reason, final)


def test_words_of_the_other_side_are_safe_to_show(wires: Wires) -> None:
    say(wires, Bye("\x1b[31mred", 1000, "\x1b]0;x\x07" + "y" * 9000, -5), to_brain=True)
    close = wires.brain.closing
    assert close is not None
    assert close.reason == "\ufffd[31mred"
    assert close.detail.isprintable()
    assert len(close.detail) <= 300
    assert close.retry_ms == 0
    wires.node.lost(1000, "done: \x1b[2J")
    assert wires.node.closing is not None
    assert wires.node.closing.detail == "\ufffd[2J"


def test_a_closing_link_sends_its_reason_and_nothing_else(wires: Wires) -> None:
    number = run(wires, Read("/x", stream=True), key="")
    wires.node.send(number, "data", bytes(1_000_000))
    wires.node.close("node_stopping")
    frames = []
    while (frame := wires.node.next_frame()) is not None:
        frames.append(frame)
    assert len(frames) == 1
    assert wires.node.send(number, "data", b"x") is True
    wires.node.finish(number, ReadResult())
    wires.node.close("done")
    assert wires.node.next_frame() is None


# -- what is odd -------------------------------------------------------------------------


@pytest.mark.parametrize("node", [KEYED, UNSEALED])
def test_malformed_messages_do_not_drop_other_calls(node: NodeOptions) -> None:
    wires = Wires(node=node).pump()
    number = run(wires, Exec(command="x"))
    for body in (
        "[1]",
        "3",
        "null",
        "{}",
        "nonsense",
        '{"type":7}',
        '{"type":"result"}',
        '{"type":"zzz","id":[]}',
        '{"type":"hello"}',
        '{"type":"exec_result","id":"x"}',
    ):
        say(wires, body, to_brain=True)  # type: ignore[arg-type]
        say(wires, body)  # type: ignore[arg-type]
    wires.pump()
    assert len(wires.brain_saw(ev.Oddity)) == 10
    wires.node.finish(number, ExecResult("ok", 0))
    wires.pump()
    assert wires.brain_saw(ev.CallEnded)[0].result.status == "ok"


def test_a_flood_of_them_ends_the_link(wires: Wires) -> None:
    for _ in range(MALFORMED_LIMIT + 1):
        say(wires, "nonsense", to_brain=True)  # type: ignore[arg-type]
    assert wires.brain.closing is not None
    assert wires.brain.closing.reason == "malformed_frame"


def test_text_frames_in_a_session_of_binary_ones() -> None:
    sealed = Wires().pump()
    sealed.brain.receive('{"type":"ping"}')
    assert sealed.brain.closing is not None
    assert sealed.brain.closing.reason == "plaintext_after_key"
    plain = Wires(node=UNSEALED).pump()
    plain.brain.receive('{"type":"ping"}')
    assert plain.brain.state == "open"


def test_a_frame_that_is_too_large_ends_the_link(wires: Wires) -> None:
    assert wires.brain.max_frame < 3_000_000
    wires.brain.receive(bytes(wires.brain.max_frame + 1))
    assert wires.brain.closing is not None
    assert wires.brain.closing.code == 1009


def test_an_open_link_is_small() -> None:
    """A brain may hold a thousand nodes: 50 KiB each is for transport and all."""
    clock = FakeClock()
    Wires(clock=clock).pump()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        held = []
        for _ in range(50):
            wires = Wires(clock=clock).pump()
            number = run(wires, Exec(command="x"))
            wires.node.finish(number, ExecResult("ok", 0))
            wires.pump()
            wires.brain.events()
            held.append(wires.brain)
            del wires
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(held) < 10 * KIB


def test_a_brain_measures_its_nodes_too(wires: Wires) -> None:
    assert wires.brain.rtt_ms == 0.0
    old = Wires(BY_TOKEN, NodeOptions("lab", token=TOKEN, plugin=True)).pump()
    assert old.brain.rtt_ms == -1.0
    assert old.brain.wake_at() == 60.0


def test_who_asks_fits_into_the_message_or_is_refused_before(wires: Wires) -> None:
    """A node that can't read a call says nothing of it: it must not leave."""
    number = run(wires, Exec(command="true"), by="x" * 1024)
    (asked,) = wires.node_saw(ev.CallAsked)
    assert (asked.id, len(asked.by)) == (number, 1024)
    with pytest.raises(BadRequest):
        wires.brain.call(Exec(command="true"), key="key-0002", by="x" * 1025)
