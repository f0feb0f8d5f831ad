from __future__ import annotations

import copy
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from handoff import lifecycle
from handoff.errors import BadTransition

EVENTS = {
    machine: sorted({event for out in table.values() for event in out})
    for machine, table in lifecycle.MACHINES.items()
}
PRODUCT = [
    (machine, state, event)
    for machine, table in lifecycle.MACHINES.items()
    for state, event in itertools.product(table, EVENTS[machine])
]

#: every legal step, written out a second time: a slip in a table shows here
LEGAL = {
    ("task", "pending", "executor_took_plan"): "running",
    ("task", "pending", "start_failed"): "failed",
    ("task", "pending", "stopped"): "failed",
    ("task", "running", "ticket_opened"): "waiting_answer",
    ("task", "running", "turn_rested"): "waiting_review",
    ("task", "running", "stopped"): "failed",
    ("task", "waiting_answer", "ticket_opened"): "waiting_answer",
    ("task", "waiting_answer", "last_ticket_settled"): "running",
    ("task", "waiting_answer", "turn_rested"): "waiting_review",
    ("task", "waiting_answer", "stopped"): "failed",
    ("task", "waiting_review", "continued"): "running",
    ("task", "waiting_review", "accepted"): "completed",
    ("task", "waiting_review", "stopped"): "failed",
    ("turn", "starting", "executor_took_prompt"): "working",
    ("turn", "starting", "executor_rested"): "verifying",
    ("turn", "starting", "ended"): "ended",
    ("turn", "working", "executor_rested"): "verifying",
    ("turn", "working", "guidance_sent"): "working",
    ("turn", "working", "question_left"): "asking",
    ("turn", "working", "ended"): "ended",
    ("turn", "asking", "answer_sent"): "working",
    ("turn", "asking", "ended"): "ended",
    ("turn", "verifying", "question_left"): "asking",
    ("turn", "verifying", "guidance_sent"): "working",
    ("turn", "verifying", "ended"): "ended",
    ("ticket", "open", "answered"): "answered",
    ("ticket", "open", "voided"): "void",
    ("ticket", "open", "withdrawn"): "withdrawn",
    ("ticket", "answered", "delivered"): "delivered",
    ("ticket", "answered", "acknowledged"): "acknowledged",
    ("ticket", "answered", "voided"): "void",
    ("ticket", "answered", "withdrawn"): "withdrawn",
    ("ticket", "delivered", "acknowledged"): "acknowledged",
    ("ticket", "delivered", "voided"): "void",
    ("ticket", "delivered", "withdrawn"): "withdrawn",
    ("run", "intended", "started"): "alive",
    ("run", "intended", "start_failed"): "ended",
    ("run", "intended", "ended"): "ended",
    ("run", "alive", "ending"): "ending",
    ("run", "alive", "ended"): "ended",
    ("run", "ending", "ended"): "ended",
    ("effect", "due", "done"): "done",
    ("effect", "due", "given_up"): "given_up",
    ("attempt", "prepared", "reservation_taken"): "reserved",
    ("attempt", "prepared", "abandoned"): "abandoned",
    ("attempt", "reserved", "launch_intent"): "requested",
    ("attempt", "reserved", "reservation_released"): "prepared",
    ("attempt", "reserved", "reservation_reclaimed"): "prepared",
    ("attempt", "reserved", "abandoned"): "abandoned",
    ("attempt", "requested", "spawn_failed"): "launch_failed",
    ("attempt", "requested", "session_seen"): "session_identified",
    ("attempt", "requested", "adopted"): "session_identified",
    ("attempt", "requested", "user_confirmed"): "user_confirmed",
    ("attempt", "requested", "child_exited"): "closed",
    ("attempt", "requested", "declared_lost"): "abandoned",
    ("attempt", "session_identified", "pages_complete"): "handoff_read",
    ("attempt", "session_identified", "user_confirmed"): "user_confirmed",
    ("attempt", "session_identified", "child_exited"): "closed",
    ("attempt", "session_identified", "abandoned"): "abandoned",
    ("attempt", "handoff_read", "ack_recorded"): "acknowledged",
    ("attempt", "handoff_read", "user_confirmed"): "user_confirmed",
    ("attempt", "handoff_read", "child_exited"): "closed",
    ("attempt", "handoff_read", "abandoned"): "abandoned",
    ("attempt", "acknowledged", "user_confirmed"): "user_confirmed",
    ("attempt", "acknowledged", "child_exited"): "closed",
    ("attempt", "acknowledged", "abandoned"): "abandoned",
    ("attempt", "user_confirmed", "session_seen"): "user_confirmed",
    ("attempt", "user_confirmed", "adopted"): "user_confirmed",
    ("attempt", "user_confirmed", "pages_complete"): "user_confirmed",
    ("attempt", "user_confirmed", "ack_recorded"): "user_confirmed",
    ("attempt", "user_confirmed", "child_exited"): "closed",
    ("attempt", "user_confirmed", "abandoned"): "abandoned",
    ("attempt", "launch_failed", "superseded"): "superseded",
    ("attempt", "closed", "superseded"): "superseded",
    ("attempt", "abandoned", "superseded"): "superseded",
    ("delivery", "intended", "delivered"): "delivered",
    ("delivery", "intended", "delivery_failed"): "failed",
    ("link", "opened", "hello"): "greeted",
    ("link", "opened", "pair"): "pairing",
    ("link", "opened", "close"): "closing",
    ("link", "opened", "lost"): "closed",
    ("link", "greeted", "hello_ack"): "authenticating",
    ("link", "greeted", "close"): "closing",
    ("link", "greeted", "lost"): "closed",
    ("link", "authenticating", "auth_ok"): "open",
    ("link", "authenticating", "close"): "closing",
    ("link", "authenticating", "lost"): "closed",
    ("link", "pairing", "close"): "closing",
    ("link", "pairing", "lost"): "closed",
    ("link", "open", "close"): "closing",
    ("link", "open", "lost"): "closed",
    ("link", "closing", "lost"): "closed",
}


@pytest.mark.parametrize(("machine", "state", "event"), PRODUCT)
def test_each_state_takes_exactly_its_own_events(machine: str, state: str, event: str) -> None:
    expected = LEGAL.get((machine, state, event))
    before = copy.deepcopy(lifecycle.MACHINES)
    if expected is None:
        assert not lifecycle.can(machine, state, event)
        with pytest.raises(BadTransition) as caught:
            lifecycle.advance(machine, state, event)
        assert caught.value.details == {"machine": machine, "state": state, "event": event}
        assert state in str(caught.value)
        assert event in str(caught.value)
    else:
        assert lifecycle.can(machine, state, event)
        assert lifecycle.advance(machine, state, event) == expected
    assert before == lifecycle.MACHINES


def test_no_legal_step_is_missing_from_the_tables() -> None:
    in_tables = {
        (machine, state, event)
        for machine, table in lifecycle.MACHINES.items()
        for state, out in table.items()
        for event in out
    }
    assert in_tables == set(LEGAL)


@pytest.mark.parametrize("machine", lifecycle.MACHINES)
def test_tables_are_closed_and_every_state_is_reached_from_the_first(machine: str) -> None:
    table = lifecycle.MACHINES[machine]
    assert {after for out in table.values() for after in out.values()} <= set(table)
    first = next(iter(table))
    reached = {first}
    while True:
        more = {after for state in reached for after in table[state].values()} - reached
        if not more:
            break
        reached |= more
    assert reached == set(table)


@pytest.mark.parametrize("machine", lifecycle.MACHINES)
def test_from_every_state_an_end_can_be_reached(machine: str) -> None:
    table = lifecycle.MACHINES[machine]
    ends = {state for state, out in table.items() if not out}
    assert ends
    can_end = set(ends)
    while True:
        more = {s for s, out in table.items() if set(out.values()) & can_end} - can_end
        if not more:
            break
        can_end |= more
    assert can_end == set(table)


@given(st.text(), st.text())
def test_unknown_states_and_events_are_typed_errors(state: str, event: str) -> None:
    if (("task", state, event)) in LEGAL:
        return
    with pytest.raises(BadTransition):
        lifecycle.advance("task", state, event)
    assert not lifecycle.can("task", state, event)


def test_the_sets_agree_with_the_tables() -> None:
    assert {"completed", "failed"} == lifecycle.TASK_TERMINAL
    assert all(lifecycle.terminal(s) == (s in lifecycle.TASK_TERMINAL) for s in lifecycle.TASK)
    assert {s for s, out in lifecycle.TICKET.items() if not out} == lifecycle.TICKET_SETTLED
    assert {"open"} == lifecycle.TICKET_OPEN


@pytest.mark.parametrize("machine", lifecycle.MACHINES)
def test_the_diagram_has_one_arrow_a_step(machine: str) -> None:
    lines = lifecycle.mermaid(machine).splitlines()
    table = lifecycle.MACHINES[machine]
    assert lines[0] == "stateDiagram-v2"
    steps = {
        f"    {state} --> {after}: {event}"
        for state, out in table.items()
        for event, after in out.items()
    }
    ends = {f"    {state} --> [*]" for state, out in table.items() if not out}
    assert len(lines) == len(set(lines))
    assert set(lines[1:]) == steps | ends


class TaskWithTickets(RuleBasedStateMachine):
    """A task and its tickets, moved only through the tables: whatever happens in whatever
    order, waiting_answer and an open ticket are the same fact."""

    def __init__(self) -> None:
        super().__init__()
        self.task = "pending"
        self.tickets: list[str] = []
        self.was_terminal: str | None = None

    def _open(self) -> int:
        return sum(state in lifecycle.TICKET_OPEN for state in self.tickets)

    def _settle_task(self) -> None:
        if self.task == "waiting_answer" and not self._open():
            self.task = lifecycle.advance("task", self.task, "last_ticket_settled")

    @rule(event=st.sampled_from(EVENTS["task"]))
    def task_event(self, event: str) -> None:
        if event == "last_ticket_settled":
            return  # derived, see _settle_task
        before = self.task
        if not lifecycle.can("task", self.task, event):
            with pytest.raises(BadTransition):
                lifecycle.advance("task", self.task, event)
            assert self.task == before
            return
        self.task = lifecycle.advance("task", self.task, event)
        if event == "ticket_opened":
            self.tickets.append("open")
        if event in ("turn_rested", "stopped"):
            self.tickets = ["void" if s in lifecycle.TICKET_OPEN else s for s in self.tickets]
        if lifecycle.terminal(self.task):
            self.was_terminal = self.task

    @precondition(lambda self: self.tickets)
    @rule(which=st.integers(min_value=0), event=st.sampled_from(EVENTS["ticket"]))
    def ticket_event(self, which: int, event: str) -> None:
        index = which % len(self.tickets)
        state = self.tickets[index]
        if lifecycle.can("ticket", state, event):
            self.tickets[index] = lifecycle.advance("ticket", state, event)
            self._settle_task()
        else:
            with pytest.raises(BadTransition):
                lifecycle.advance("ticket", state, event)

    @invariant()
    def waiting_is_having_an_open_ticket(self) -> None:
        assert (self.task == "waiting_answer") == bool(self._open())

    @invariant()
    def nothing_leads_out_of_an_end(self) -> None:
        if self.was_terminal:
            assert self.task == self.was_terminal


TestTaskWithTickets = TaskWithTickets.TestCase
