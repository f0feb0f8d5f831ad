"""Tickets: one answer, three facts, the right kind."""

from __future__ import annotations

import json

import pytest
from tests.unit.agentd.harness import CLAIM, Box

from handoff.agentd import tickets, turns
from handoff.errors import TicketSettled, UsageError, WrongKind
from handoff.executors.contract import AskClosed, Choice, Question, QuestionAsked, TurnEnded


def reply(box: Box, ref: str, body: dict[str, object]) -> None:
    ticket = tickets.find(box.core, ref)
    assert ticket is not None
    decision, reason, answers = tickets.parse_answer(ticket, body)
    box.step(
        lambda core: tickets.answer(core, core.tickets[ticket.id], decision, reason, answers, "me")
    )


def ask(box: Box, *questions: Question) -> None:
    driver = box.core.driver
    driver.pending.append("a1")  # type: ignore[union-attr]
    box.step(lambda core: tickets.open_question(core, QuestionAsked("a1", questions)))


def test_the_three_facts_come_one_by_one(box: Box) -> None:
    box.start()
    box.ask_permission("p1")
    assert box.core.task.state == "waiting_answer"
    reply(box, "g1", {"decision": "allow"})
    assert box.ticket("g1")["state"] == "answered"
    assert box.ticket("g1")["delivered_at"] is None
    box.deliver_all()
    assert box.ticket("g1")["state"] == "delivered"
    box.step(lambda core: tickets.closed(core, AskClosed("p1", "acknowledged")))
    assert box.ticket("g1")["state"] == "acknowledged"
    assert box.core.task.state == "running"


def test_with_two_open_tickets_one_answer_leaves_the_task_waiting(box: Box) -> None:
    box.start()
    box.ask_permission("p1")
    box.ask_permission("p2", "other")
    reply(box, "g1", {"decision": "allow"})
    assert box.core.task.state == "waiting_answer"
    reply(box, "g2", {"decision": "deny", "reason": "no"})
    assert box.core.task.state == "running"


def test_a_second_answer_is_refused_and_changes_nothing(box: Box) -> None:
    box.start()
    box.ask_permission("p1")
    reply(box, "g1", {"decision": "deny"})
    before = box.types()
    with pytest.raises(TicketSettled):
        reply(box, "g1", {"decision": "allow"})
    assert box.types() == before
    assert box.ticket("g1")["decision"] == "deny"


@pytest.mark.parametrize("body", [{"answer": "yes"}, {"answer": "allow it"}, {"answers": [["x"]]}])
def test_prose_is_not_a_permission(box: Box, body: dict[str, object]) -> None:
    box.start()
    box.ask_permission("p1")
    with pytest.raises(WrongKind):
        reply(box, "g1", body)
    assert box.ticket("g1")["state"] == "open"


def test_a_permission_is_not_an_answer(box: Box) -> None:
    box.start()
    ask(box, Question("color?", choices=(Choice("red"),)))
    with pytest.raises(WrongKind):
        reply(box, "q1", {"decision": "allow"})
    with pytest.raises(UsageError):
        reply(box, "q1", {"answer": "  "})
    reply(box, "q1", {"answer": "red"})
    assert box.inputs[-1][2] == b"Answer a1\n"


def test_two_questions_need_two_answers(box: Box) -> None:
    box.start()
    ask(box, Question("a?"), Question("b?"))
    with pytest.raises(UsageError):
        reply(box, "q1", {"answers": [["x"]]})
    reply(box, "q1", {"answers": [["x"], ["y", "z"]]})
    assert json.loads(str(box.ticket("q1")["answer"])) == [["x"], ["y", "z"]]


@pytest.mark.parametrize(
    ("answer", "decision", "reason"),
    [("allow", "allow", ""), ("deny", "deny", ""), ("deny: too risky", "deny", "too risky")],
)
def test_the_first_protocols_answers_are_understood(
    box: Box, answer: str, decision: str, reason: str
) -> None:
    box.start()
    box.ask_permission("p1")
    reply(box, "g1", {"answer": answer})
    row = box.ticket("g1")
    assert (row["decision"], row["reason"]) == (decision, reason)


def test_a_rules_pass_leaves_an_event_and_waits_for_nobody(box: Box) -> None:
    box.start()
    box.ask_permission("p1", allow=True)
    assert box.core.task.state == "running"
    assert box.types()[-1] == "permission_allowed"
    assert box.inputs[-1][2] == b"Allow p1\n"


def test_a_repeated_request_makes_no_second_ticket(box: Box) -> None:
    box.start()
    box.ask_permission("p1")
    box.ask_permission("p1")
    assert box.types().count("permission_request") == 1


def test_a_withdrawn_request_takes_no_answer(box: Box) -> None:
    box.start()
    box.ask_permission("p1")
    box.step(lambda core: tickets.closed(core, AskClosed("p1", "withdrawn", "cancelled")))
    assert box.core.task.state == "running"
    assert box.ticket("g1")["state"] == "withdrawn"
    assert box.types()[-1] == "tickets_voided"


def test_an_undelivered_answer_to_a_dead_executor_wakes(box: Box) -> None:
    box.start()
    box.ask_permission("p1")
    reply(box, "g1", {"decision": "allow"})
    box.step(lambda core: turns.run_exited(core, -9))
    assert "delivery_failed" in box.types()


def test_a_reason_that_the_protocol_can_not_carry_is_the_next_prompt(box: Box) -> None:
    box.start()
    box.ask_permission("p1")
    reply(box, "g1", {"decision": "deny", "reason": "use git clean"})
    box.end_turn(TurnEnded(text="I was not allowed to."))
    assert box.types()[-1] == "deny_guidance_relayed"
    assert b"use git clean" in box.inputs[-1][2]
    box.end_turn(TurnEnded(text=CLAIM))
    box.verify()
    assert box.types()[-1] == "completed"


def test_a_reason_that_came_too_late_is_told(box: Box) -> None:
    box.start()
    box.ask_permission("p1")
    reply(box, "g1", {"decision": "deny", "reason": "use git clean"})
    box.end_turn(TurnEnded(text=CLAIM))
    assert "deny_guidance_dropped" in box.types()


def test_stopping_leaves_no_open_ticket(box: Box) -> None:
    box.start()
    box.ask_permission("p1")
    box.step(lambda core: turns.stop(core, "me"))
    assert box.ticket("g1")["state"] == "void"
    assert not box.core.tickets
