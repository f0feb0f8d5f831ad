from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from tests.unit.cli.calling import TASK, Caller, asked, event, task, ticket
from tests.unit.client.served import Reply, Request, Served, lines

from handoff.cli import wait


class Agentd:
    """A peer with one task whose events are a list."""

    def __init__(self, served: Served, state: str = "running") -> None:
        self.served = served
        self.events: list[dict[str, Any]] = []
        self.later: list[dict[str, Any]] = []
        self.tickets: list[dict[str, Any]] = []
        self.state = state
        self.end = False
        served.on("GET", f"/api/tasks/{TASK[:4]}", self.show)
        served.on("GET", f"/api/tasks/{TASK}", self.show)
        served.on("GET", f"/api/tasks/{TASK}/events", self.page)
        served.on("GET", f"/api/tasks/{TASK}/stream", self.stream)

    def show(self, _: Request) -> Any:
        return {
            "task": task(state=self.state),
            "pending_tickets": self.tickets,
            "recent_events": self.events[-100:],
            "turns": [],
        }

    def _after(self, found: list[dict[str, Any]], request: Request) -> list[dict[str, Any]]:
        after = int(request.one("from_seq") or 0)
        waking = request.one("wakes") == "1"
        return [e for e in found if e["seq"] > after and (e["wakes"] or not waking)]

    def page(self, request: Request) -> Any:
        return self._after(self.events, request)[: int(request.one("limit") or 1000)]

    def stream(self, request: Request) -> Reply:
        found = self._after([*self.events, *self.later], request)
        tail = [{"end": {"state": self.state}}] if self.end else []
        hello = {"hello": {"state": self.state, "last_seq": 0}}
        chunks = lines(hello, *[{"event": e} for e in found], *tail)
        return Reply(chunks=chunks, cut=not self.end)


@pytest.fixture
def agentd(served: Served) -> Agentd:
    return Agentd(served)


def cursor(served: Served) -> int:
    path = pathlib.Path(served.folder, "cursors", served.instance, TASK)
    return int(path.read_text()) if path.exists() else 0


def test_one_event_as_one_line_then_the_next(agentd: Agentd, call: Caller, served: Served) -> None:
    agentd.events = [event(1), asked(2), asked(3, "g2")]
    agentd.tickets = [ticket("g1"), ticket("g2")]
    first = call("wait", "1f3a")
    assert (first.code, first.json["seq"], first.err) == (0, 2, "")
    assert cursor(served) == 2
    assert call("wait", "1f3a").json["seq"] == 3


def test_a_request_that_was_settled_meanwhile_is_passed_over(agentd: Agentd, call: Caller) -> None:
    agentd.events = [asked(2), asked(3, "g2")]
    agentd.tickets = [ticket("g2")]
    assert call("wait", "1f3a").json["payload"]["ref"] == "g2"


def test_the_end_of_a_turn_that_another_turn_followed_is_passed_over(
    agentd: Agentd, call: Caller
) -> None:
    agentd.events = [event(2, "completed", turn=1), event(3, "continued")]
    agentd.later = [event(4, "completed", turn=2)]
    assert call("wait", "1f3a").json["payload"]["turn"] == 2


@pytest.mark.parametrize(("state", "kind"), [("completed", "archived"), ("failed", "failed")])
def test_a_task_that_is_over_ends_at_once(
    agentd: Agentd, call: Caller, state: str, kind: str
) -> None:
    agentd.state, agentd.end = state, True
    agentd.events = [asked(1), event(2, "completed"), event(3, kind)]
    done = call("wait", "1f3a")
    assert (done.code, done.json["type"]) == (0, kind)
    again = call("wait", "1f3a")
    assert (again.code, again.json["type"]) == (0, kind)


def test_follow_of_a_task_that_is_over_ends_with_what_is_left(agentd: Agentd, call: Caller) -> None:
    agentd.state, agentd.end = "completed", True
    agentd.events = [asked(1), event(2, "completed"), event(3, "archived")]
    done = call("wait", "1f3a", "--follow")
    assert done.code == 0
    assert [line["type"] for line in done.lines] == [
        "permission_request",
        "completed",
        "archived",
        "backlog_summary",
    ]
    assert call("wait", "1f3a", "--follow").raw == b""


def test_follow_prints_every_waking_event_once_across_lost_connections(
    agentd: Agentd, call: Caller, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    told = [event(n, "question", ref=f"q{n}", question="?") for n in range(1, 9)]
    agentd.events = told[:1]
    agentd.tickets = [ticket("q1", id=None)]
    cuts = iter([2, 5])

    def stream(request: Request) -> Reply:
        upto = next(cuts, None)
        found = [e for e in told if e["seq"] > int(request.one("from_seq") or 0)]
        if upto is None:
            return Reply(chunks=lines(*[{"event": e} for e in found], {"end": {}}))
        part = [e for e in found if e["seq"] <= upto]
        return Reply(chunks=lines(*[{"event": e} for e in part]), cut=True)

    served.on("GET", f"/api/tasks/{TASK}/stream", stream)
    done = call("wait", "1f3a", "--follow")
    assert done.code == 0
    assert [line.get("seq") for line in done.lines if "seq" in line] == list(range(1, 9))
    assert cursor(served) == 8
    assert "connection lost" in done.err


def test_one_summary_only_where_there_is_something_to_sum_up(agentd: Agentd, call: Caller) -> None:
    agentd.end = True
    agentd.events = [event(1), event(2)]
    assert call("wait", "1f3a", "--follow").raw == b""
    agentd.events = [event(1), asked(2)]
    agentd.tickets = [ticket("g1")]
    assert [line["type"] for line in call("wait", "1f3a", "--follow").lines] == [
        "permission_request"
    ]
    owed = call("wait", "1f3a", "--follow").lines
    assert [line["type"] for line in owed] == ["backlog_summary"]
    assert (owed[0]["missed"], owed[0]["actionable"][0]["ref"]) == (0, "g1")
    agentd.events += [asked(3, "g2"), asked(4, "g3"), event(5, "completed")]
    agentd.tickets = [ticket("g3")]
    missed = call("wait", "1f3a", "--follow").lines[-1]
    assert {k: missed[k] for k in ("from_seq", "to_seq", "missed", "stale")} == {
        "from_seq": 2,
        "to_seq": 5,
        "missed": 3,
        "stale": 1,
    }


def test_the_cursor_is_saved_only_after_the_line_was_flushed(
    agentd: Agentd, call: Caller, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    agentd.events = [asked(2)]
    agentd.tickets = [ticket("g1")]

    def broken(*_: object) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr("handoff.cli.context.Context.emit", broken)
        patch.setattr("os.dup2", lambda *_: None)
        assert call("wait", "1f3a").code == 141
    assert cursor(served) == 0
    assert call("wait", "1f3a").json["seq"] == 2


@pytest.mark.parametrize(
    ("kind", "code"), [("completed", 0), ("turn_failed", 1), ("failed", 1), ("archived", 0)]
)
def test_until_done_ends_with_the_turn(agentd: Agentd, call: Caller, kind: str, code: int) -> None:
    agentd.events = [event(1, "dispatched")]
    agentd.later = [asked(2), event(3, kind), event(4, "question")]
    done = call("wait", "1f3a", "--until-done")
    assert (done.code, [line["type"] for line in done.lines]) == (
        code,
        ["permission_request", kind],
    )


def test_until_done_of_a_turn_that_rests_already(agentd: Agentd, call: Caller) -> None:
    agentd.state = "waiting_review"
    agentd.events = [asked(1), event(2, "turn_failed"), event(3, "stalled_note")]
    for _ in range(2):
        done = call("wait", "1f3a", "--until-done")
        assert (done.code, done.lines[-1]["type"]) in {(1, "turn_failed"), (1, "backlog_summary")}
        assert any(line["type"] == "turn_failed" for line in done.lines)


def test_until_done_does_not_take_an_old_turns_end_for_this_ones(
    agentd: Agentd, call: Caller
) -> None:
    agentd.events = [event(1, "completed", turn=1), event(2, "continued")]
    agentd.later = [event(3, "turn_failed", turn=2)]
    done = call("wait", "1f3a", "--until-done")
    assert (done.code, done.lines[-1]["payload"]["turn"]) == (1, 2)


def test_timeout_is_124_and_names_a_command(agentd: Agentd, call: Caller, served: Served) -> None:
    def silent(_: Request) -> Reply:
        return Reply(chunks=lines({"hello": {}}), cut=True)

    served.on("GET", f"/api/tasks/{TASK}/stream", silent)
    late = call("wait", "1f3a", "--timeout", "0.2s", "--json")
    assert late.code == 124
    assert json.loads(late.err.splitlines()[-1])["code"] == "timed_out"
    assert call("wait", "1f3a", "--timeout", "0").code == 2
    assert call("wait", "1f3a", "--timeout", "-1").code == 2


def test_a_second_wait_says_what_is_still_open(agentd: Agentd, call: Caller) -> None:
    agentd.events = [asked(1)]
    agentd.tickets = [ticket("g1")]
    call("wait", "1f3a")
    agentd.later = [event(2, "completed")]
    again = call("wait", "1f3a")
    assert again.json["type"] == "completed"
    assert "still open: g1" in again.err


def test_on_a_terminal_it_is_readable_and_ends_with_commands(
    agentd: Agentd, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    agentd.events = [
        asked(1, permission="echo \x1b[2J\u202egnp", short=True, characters=900, lines=40)
    ]
    agentd.tickets = [ticket("g1")]
    shown = call("wait", "1f3a", tty=True).out
    assert "\x1b" not in shown
    assert "echo ⟨U+001B⟩[2J⟨U+202E⟩gnp" in shown
    assert "900 characters, 40 lines" in shown, "without the ticket, what the event says"
    assert "handoff show 1f3a0000 --ticket g1" in shown
    assert "handoff reply 1f3a0000 --ticket g1 --approve" in shown


def test_unknown_task_is_4_and_a_short_prefix_2(call: Caller, served: Served) -> None:
    served.on(
        "GET", "/api/tasks/dead", Reply({"error": "no task", "code": "unknown_task"}, status=404)
    )
    assert call("wait", "dead").code == 4
    assert call("wait", "1f").code == 2
    assert call("wait", "not-an-id").code == 2
    assert [request.path for request in served.seen] == ["/api/tasks/dead"]


def test_resting_events_are_those_of_the_wire() -> None:
    from handoff.wire.agentd import RESTING_EVENTS

    assert set(wait.RESTING) == RESTING_EVENTS
