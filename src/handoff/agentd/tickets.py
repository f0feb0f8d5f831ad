"""Tickets: how they open, how they are answered, and how they end.

Three facts about an answer are kept apart: it was recorded (``answered_at``), its bytes
were written to the executor (``delivered_at``), and the executor showed that it took it
(``acknowledged_at``).
"""

from __future__ import annotations

import json

import msgspec

from handoff import lifecycle
from handoff.agentd.core import AGENTD, EXECUTOR, Core, clip
from handoff.errors import NotAllowed, TicketSettled, UsageError, WrongKind
from handoff.executors.contract import (
    Allow,
    Answer,
    AskClosed,
    Deny,
    PermissionAsked,
    Question,
    QuestionAsked,
)
from handoff.gate.contract import Examined
from handoff.gate.excerpt import excerpt, excerpt_of
from handoff.ids import short
from handoff.store.records import TicketRow

#: characters of a permission's text in its event; the ticket keeps every byte
PERMISSION_EXCERPT = 600
#: characters of a question in its event
QUESTION_EXCERPT = 8000


def _new(core: Core, kind: str, ask_id: str, request: dict[str, object], letter: str) -> TicketRow:
    """A ticket with the next short reference of its letter: ``g`` and ``q`` wait for the
    coordinator, ``p`` was passed by a rule or a grant."""
    made = json.loads(core.task.tickets_made)
    made[letter] = int(made.get(letter, 0)) + 1
    core.task.tickets_made = json.dumps(made)
    core.change.task_changed = True
    run_id = core.run.id if core.run else ""
    ref = f"{letter}{made[letter]}"
    return TicketRow(
        id=f"{core.task.id}:{ref}",
        ref=ref,
        task_id=core.task.id,
        turn=core.must_turn().number,
        run_id=run_id,
        ask_id=ask_id,
        kind=kind,
        state="open",
        request=json.dumps(request, ensure_ascii=False),
        created_at=core.clock.now_ms(),
    )


def show_command(core: Core, ticket: TicketRow) -> str:
    """The command that shows a ticket in full."""
    return f"handoff show {short(core.task.id)} --ticket {ticket.ref}"


# -- gate --------------------------------------------------------------------------------


def open_gate(
    core: Core, asked: PermissionAsked, examined: Examined, granted_by: str | None
) -> None:
    """A permission request has arrived and was examined.

    ``granted_by``: the reference of the ticket whose human grant covers this one, or None.
    """
    if _known(core, asked.id) is not None:
        return
    passes = examined.verdict.decision == "allow" or granted_by is not None
    request = _gate_request(core, asked, examined)
    ticket = _new(core, "gate", asked.id, request, "p" if passes else "g")
    ticket.marks = msgspec.json.encode(examined.files).decode()
    ticket.fingerprint = examined.fingerprint
    ticket.reusable = int(examined.reusable)
    facts = _gate_facts(core, ticket, asked, examined)
    if examined.verdict.decision == "allow":
        _pass(core, ticket, "policy", examined.verdict.why)
        core.event("permission_allowed", {**facts, "why": examined.verdict.why}, "policy")
        return
    if granted_by is not None:
        _pass(core, ticket, "grant", f"same request as {granted_by}")
        core.event(
            "permission_reuse",
            {**facts, "prior_ticket": granted_by, "fingerprint": examined.fingerprint[:8]},
            "policy",
        )
        return
    core.touch_ticket(ticket)
    core.frame(
        "ticket",
        {
            "id": ticket.id,
            "ref": ticket.ref,
            "kind": "gate",
            "text": facts["permission"],
            "tool": asked.tool,
        },
    )
    core.event("permission_request", {**facts, "why": examined.verdict.why}, EXECUTOR)
    core.settle_waiting()
    core.set_phase("waiting", f"ticket {ticket.ref}")


def _gate_request(core: Core, asked: PermissionAsked, examined: Examined) -> dict[str, object]:
    """What the ticket keeps: every byte of the request."""
    return {
        "kind": "gate",
        "permission": examined.text,
        "tool": asked.tool,
        "action": asked.kind,
        "title": asked.title,
        "command": examined.command,
        "cwd": asked.cwd or core.task.work_dir,
        "paths": msgspec.to_builtins(examined.targets),
        "diff": examined.diff,
        "reason": asked.reason,
        "parent": asked.parent,
    }


def _gate_facts(
    core: Core, ticket: TicketRow, asked: PermissionAsked, examined: Examined
) -> dict[str, object]:
    """What the events say of it: an excerpt, and how to see the whole."""
    view = excerpt_of(examined, PERMISSION_EXCERPT)
    facts: dict[str, object] = {
        "ticket_id": ticket.id,
        "ref": ticket.ref,
        "kind": "gate",
        "permission": view.text,
        "short": view.short,
        "characters": view.characters,
        "lines": view.lines,
        "tool": asked.tool,
        "action": asked.kind,
        "paths": [t.resolved or t.given for t in examined.targets][:20],
        "full": show_command(core, ticket),
    }
    problems = [f"{t.given}: {t.problem}" for t in examined.targets if t.problem]
    if problems:
        facts["problems"] = problems[:20]
    return facts


def _pass(core: Core, ticket: TicketRow, source: str, why: str) -> None:
    ticket.decision = "allow"
    ticket.source = source
    ticket.reason = why
    ticket.answered_by = source
    ticket.answer = json.dumps("allow")
    _mark_answered(core, ticket)
    core.command(lambda driver: driver.command(Allow(ticket.ask_id)), ticket.id)
    ticket.input_number = core.must_run().inputs_made


def _known(core: Core, ask_id: str) -> TicketRow | None:
    run_id = core.run.id if core.run else ""
    for ticket in core.tickets.values():
        if ask_id and ticket.ask_id == ask_id and ticket.run_id == run_id:
            return ticket
    return None


# -- ask ---------------------------------------------------------------------------------


def open_question(core: Core, asked: QuestionAsked) -> None:
    """The executor asks inside its turn."""
    if _known(core, asked.id) is not None:
        return
    _open_ask(core, asked.id, asked.questions)


def open_left_question(core: Core, text: str) -> None:
    """The executor ended its turn with a question: the answer will be its next prompt."""
    _open_ask(core, "", (Question(text=text),))


def _open_ask(core: Core, ask_id: str, questions: tuple[Question, ...]) -> None:
    text = "\n\n".join(_question_text(q) for q in questions)
    request: dict[str, object] = {
        "kind": "ask",
        "question": text,
        "questions": msgspec.to_builtins(questions),
    }
    ticket = core.touch_ticket(_new(core, "ask", ask_id, request, "q"))
    view = excerpt(text, QUESTION_EXCERPT)
    core.frame("ticket", {"id": ticket.id, "ref": ticket.ref, "kind": "ask", "text": view.text})
    core.event(
        "question",
        {
            "ticket_id": ticket.id,
            "ref": ticket.ref,
            "kind": "ask",
            "question": view.text,
            "short": view.short,
            "characters": view.characters,
            "lines": view.lines,
            "questions": msgspec.to_builtins(questions) if not view.short else [],
            "full": show_command(core, ticket),
        },
        EXECUTOR,
    )
    core.settle_waiting()
    core.set_phase("waiting", f"ticket {ticket.ref}")


def _question_text(question: Question) -> str:
    lines = [question.text]
    for choice in question.choices:
        more = f": {choice.description}" if choice.description else ""
        lines.append(f"  - {choice.label}{more}")
    return "\n".join(lines)


# -- answers -----------------------------------------------------------------------------


def find(core: Core, wanted: str) -> TicketRow | None:
    """The unsettled ticket with that id or short reference."""
    for ticket in core.tickets.values():
        if wanted in (ticket.id, ticket.ref):
            return ticket
    return None


def parse_answer(ticket: TicketRow, body: dict[str, object]) -> tuple[str, str, list[list[str]]]:
    """What a reply says, for the kind of its ticket: (decision, reason, answers).

    Accepted for a gate: ``decision`` (``allow``/``deny``) with ``reason``, or ``answer``
    being exactly ``allow``, ``deny`` or ``deny: why``. Accepted for an ask: ``answers``
    (a list of answers a question) or ``answer`` text for a single question.

    Raises:
        WrongKind: the answer does not fit the kind. Nothing was recorded.
        UsageError: it is empty or malformed.
    """
    decision, answer, answers = (body.get(k) for k in ("decision", "answer", "answers"))
    if ticket.kind == "gate":
        reason = body.get("reason") or ""
        if not isinstance(reason, str):
            raise UsageError("'reason' must be text")
        return _parse_gate(ticket, decision, answer, answers, reason)
    if decision is not None:
        raise WrongKind(
            f"ticket {ticket.ref} is a question: it takes an answer, not a permission",
            remedy=f"handoff reply {short(ticket.task_id)} --ticket {ticket.ref} --answer TEXT",
        )
    count = len(json.loads(ticket.request)["questions"])
    if isinstance(answer, str) and answers is None:
        answers = [[answer]] + [[] for _ in range(count - 1)]
    if not isinstance(answers, list) or not all(
        isinstance(one, list) and all(isinstance(a, str) for a in one) for one in answers
    ):
        raise UsageError("'answers' is a list of lists of text, one list a question")
    if not any(a.strip() for one in answers for a in one):
        raise UsageError("the answer is empty", remedy="give --answer TEXT")
    if len(answers) != count:
        raise UsageError(f"ticket {ticket.ref} has {count} questions, {len(answers)} answers came")
    return "", "", answers


def _parse_gate(
    ticket: TicketRow, decision: object, answer: object, answers: object, reason: str
) -> tuple[str, str, list[list[str]]]:
    if decision is None and answers is None and isinstance(answer, str):
        text = answer.strip()
        if text in ("allow", "deny"):
            decision = text
        elif text.startswith("deny:"):
            decision, reason = "deny", text.removeprefix("deny:").strip()
    if decision not in ("allow", "deny"):
        raise WrongKind(
            f"ticket {ticket.ref} is a permission: it is approved or denied, not answered",
            remedy=f"handoff reply {short(ticket.task_id)} --ticket {ticket.ref} --approve",
        )
    return str(decision), reason.strip(), []


def check_open(ticket: TicketRow) -> None:
    """Raises:
    TicketSettled: it does not wait for an answer (any more).
    """
    if ticket.state not in lifecycle.TICKET_OPEN:
        told = f": {ticket.void_reason}" if ticket.void_reason else ""
        raise TicketSettled(
            f"ticket {ticket.ref} is {ticket.state} already{told}",
            remedy=f"handoff show {short(ticket.task_id)}",
            state=ticket.state,
            answered_by=ticket.answered_by,
        )


def answer(
    core: Core,
    ticket: TicketRow,
    decision: str,
    reason: str,
    answers: list[list[str]],
    actor: str,
) -> None:
    """Record the coordinator's answer and queue its delivery.

    Raises:
        TicketSettled: the ticket does not wait any more.
        NotAllowed: the driver can't take it (the request is not pending in the executor).
    """
    check_open(ticket)
    if ticket.kind == "gate":
        _deliver_gate(core, ticket, decision, reason)
    else:
        _deliver_answers(core, ticket, answers)
    ticket.decision = decision
    ticket.reason = reason
    ticket.source = "coordinator"
    ticket.answered_by = actor
    ticket.answer = json.dumps(decision if ticket.kind == "gate" else answers)
    _mark_answered(core, ticket)
    facts: dict[str, object] = {"ticket_id": ticket.id, "ref": ticket.ref, "kind": ticket.kind}
    if ticket.kind == "gate":
        facts |= {"decision": decision, "reason": clip(reason)}
    else:
        facts["answer"] = clip("; ".join(", ".join(one) for one in answers))
    core.event("ticket_answered", facts, actor)
    core.frame("answer", {**facts, "actor": actor})
    core.settle_waiting()
    if not core.open_tickets():
        core.set_phase("model")


def _deliver_gate(core: Core, ticket: TicketRow, decision: str, reason: str) -> None:
    if not core.run_alive or core.driver is None:
        raise NotAllowed("the executor that asked is not running any more", remedy="handoff show")
    wanted = Allow(ticket.ask_id) if decision == "allow" else Deny(ticket.ask_id, reason)
    core.command(lambda driver: driver.command(wanted), ticket.id)
    ticket.input_number = core.must_run().inputs_made
    if decision == "deny" and reason and not core.driver.carries_reason:
        turn = core.touch_turn()
        kept = [*json.loads(turn.guidance), {"ref": ticket.ref, "reason": reason}]
        turn.guidance = json.dumps(kept, ensure_ascii=False)


def _deliver_answers(core: Core, ticket: TicketRow, answers: list[list[str]]) -> None:
    from handoff.agentd import turns

    if not ticket.ask_id:
        core.move_turn("answer_sent")
        turns.send_prompt(core, "\n".join(a for one in answers for a in one), ticket.id)
        return
    if not core.run_alive:
        raise NotAllowed("the executor that asked is not running any more", remedy="handoff show")
    wanted = Answer(ticket.ask_id, tuple(tuple(one) for one in answers))
    core.command(lambda driver: driver.command(wanted), ticket.id)
    ticket.input_number = core.must_run().inputs_made


def _mark_answered(core: Core, ticket: TicketRow) -> None:
    ticket.state = lifecycle.advance("ticket", ticket.state, "answered")
    ticket.answered_at = core.clock.now_ms()
    core.touch_ticket(ticket)


def delivered(core: Core, ticket_id: str) -> None:
    """The shim wrote the answer to the executor."""
    ticket = core.tickets.get(ticket_id)
    if ticket is None or ticket.state != "answered":
        return
    ticket.state = lifecycle.advance("ticket", ticket.state, "delivered")
    ticket.delivered_at = core.clock.now_ms()
    core.touch_ticket(ticket)


def acknowledged(core: Core, ticket: TicketRow) -> None:
    """The executor showed that it has the answer."""
    if ticket.state not in ("answered", "delivered"):
        return
    now = core.clock.now_ms()
    ticket.state = lifecycle.advance("ticket", ticket.state, "acknowledged")
    ticket.delivered_at = ticket.delivered_at or now
    ticket.acknowledged_at = now
    core.touch_ticket(ticket)
    if ticket.source == "coordinator":
        core.event("ticket_acknowledged", {"ticket_id": ticket.id, "ref": ticket.ref}, EXECUTOR)


def acknowledge_left_questions(core: Core) -> None:
    """The executor works on the prompt that carried the answer to a left question."""
    for ticket in list(core.tickets.values()):
        if not ticket.ask_id and ticket.state == "delivered":
            acknowledged(core, ticket)


def closed(core: Core, output: AskClosed) -> None:
    """The executor has the answer, or does not wait for one any more."""
    ticket = _known(core, output.id)
    if ticket is None:
        return
    if output.how == "acknowledged":
        acknowledged(core, ticket)
    else:
        _end(core, [ticket], "withdrawn", output.why or "the executor does not wait any more")
    core.settle_waiting()


def void_all(core: Core, why: str) -> None:
    """Every unsettled ticket of the task loses its meaning."""
    _end(core, list(core.tickets.values()), "voided", why)


def void_run(core: Core, run_id: str, why: str) -> None:
    """The process that asked is gone: nobody waits for those answers any more."""
    gone = [t for t in core.tickets.values() if t.run_id == run_id and t.ask_id]
    _end(core, gone, "withdrawn", why)
    core.settle_waiting()


def _end(core: Core, tickets: list[TicketRow], event: str, why: str) -> None:
    opened = []
    for ticket in tickets:
        undelivered = ticket.state == "answered" and ticket.source == "coordinator"
        if ticket.state in lifecycle.TICKET_OPEN:
            opened.append(ticket.ref)
        ticket.state = lifecycle.advance("ticket", ticket.state, event)
        ticket.void_reason = why
        core.touch_ticket(ticket)
        if undelivered:
            core.event(
                "delivery_failed",
                {
                    "ticket_id": ticket.id,
                    "ref": ticket.ref,
                    "reason": clip(why, 500),
                    "hint": f"handoff show {short(core.task.id)}",
                },
            )
    if opened:
        core.event(
            "tickets_voided", {"voided": len(opened), "refs": opened, "reason": clip(why)}, AGENTD
        )
