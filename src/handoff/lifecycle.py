"""The state machines, as data.

Rule 1: every state of a task, a turn, a ticket, an executor run, an outbox row and an attempt
to open a session changes through :func:`advance`, and through nothing else.
Rule 2: this module knows nothing of storage, executors or people. It says what may follow
what; it does not do anything.

Theory of operation
-------------------
There are eight machines.

*Task* is what the coordinator sees. ``pending`` lasts until an executor has taken the
plan: the workspace is being made, or the task stands in the machine's queue. ``running``
and ``waiting_answer`` are one condition of the executor seen from outside: which of the
two holds is *derived* from whether an open ticket exists, so two open tickets can't
disagree with the state. ``waiting_review`` is where every turn comes to rest, also a
failed one. ``completed`` and ``failed`` are terminal, and nothing leads out of them.

*Turn* is one run of the executor from a prompt until it rests. After the executor has
said its last word, ``verifying`` looks at git and runs the verify commands; only then is
anything claimed.

*Ticket* keeps three facts apart: it was answered, the answer was delivered to the
executor's input, the executor showed that it has taken it. ``void`` and ``withdrawn`` end
a ticket that nobody can answer any more; ``withdrawn`` is the executor's doing.

*Run* is one executor process under its shim.

*Effect* is a row of the outbox: something that has to be carried out after the commit that
asked for it, and again after a crash until it is done.

*Attempt* is the frozen intent to open one new session from a handoff record. Its rows never
lead back to ``requested``: at most one launch is ever intended. Nothing that a model says
leads further than ``acknowledged``, and no state means that the work went on.

*Delivery* is a handoff record on its way to a task, or to another store: no opening. One that
stays ``intended`` was cut off, and what came of it is not known.

*Link* is one connection between a brain and a node, seen from either end: each message of
the handshake has one place, calls belong to ``open``, and nothing leads back from
``closing``. What outlives a link (calls and their results) is no state of it.

An illegal transition raises :class:`~handoff.errors.BadTransition` and changes nothing.
The diagrams in ``docs/lifecycle.md`` are printed from these tables.
"""

from __future__ import annotations

from handoff.errors import BadTransition

Table = dict[str, dict[str, str]]

#: state -> {what happens: next state}
TASK: Table = {
    "pending": {
        "executor_took_plan": "running",
        "start_failed": "failed",
        "stopped": "failed",
    },
    "running": {
        "ticket_opened": "waiting_answer",
        "turn_rested": "waiting_review",
        "stopped": "failed",
    },
    "waiting_answer": {
        "ticket_opened": "waiting_answer",
        "last_ticket_settled": "running",
        "turn_rested": "waiting_review",
        "stopped": "failed",
    },
    "waiting_review": {
        "continued": "running",
        "accepted": "completed",
        "stopped": "failed",
    },
    "completed": {},
    "failed": {},
}

TURN: Table = {
    "starting": {
        "executor_took_prompt": "working",
        "executor_rested": "verifying",
        "ended": "ended",
    },
    "working": {
        "executor_rested": "verifying",
        "guidance_sent": "working",
        "question_left": "asking",
        "ended": "ended",
    },
    "asking": {"answer_sent": "working", "ended": "ended"},
    "verifying": {"question_left": "asking", "guidance_sent": "working", "ended": "ended"},
    "ended": {},
}

TICKET: Table = {
    "open": {
        "answered": "answered",
        "voided": "void",
        "withdrawn": "withdrawn",
    },
    "answered": {
        "delivered": "delivered",
        "acknowledged": "acknowledged",
        "voided": "void",
        "withdrawn": "withdrawn",
    },
    "delivered": {
        "acknowledged": "acknowledged",
        "voided": "void",
        "withdrawn": "withdrawn",
    },
    "acknowledged": {},
    "void": {},
    "withdrawn": {},
}

RUN: Table = {
    "intended": {"started": "alive", "start_failed": "ended", "ended": "ended"},
    "alive": {"ending": "ending", "ended": "ended"},
    "ending": {"ended": "ended"},
    "ended": {},
}

EFFECT: Table = {
    "due": {"done": "done", "given_up": "given_up"},
    "done": {},
    "given_up": {},
}

ATTEMPT: Table = {
    "prepared": {"reservation_taken": "reserved", "abandoned": "abandoned"},
    "reserved": {
        "launch_intent": "requested",
        "reservation_released": "prepared",
        "reservation_reclaimed": "prepared",
        "abandoned": "abandoned",
    },
    "requested": {
        "spawn_failed": "launch_failed",
        "session_seen": "session_identified",
        "adopted": "session_identified",
        "user_confirmed": "user_confirmed",
        "child_exited": "closed",
        "declared_lost": "abandoned",
    },
    "session_identified": {
        "pages_complete": "handoff_read",
        "user_confirmed": "user_confirmed",
        "child_exited": "closed",
        "abandoned": "abandoned",
    },
    "handoff_read": {
        "ack_recorded": "acknowledged",
        "user_confirmed": "user_confirmed",
        "child_exited": "closed",
        "abandoned": "abandoned",
    },
    "acknowledged": {
        "user_confirmed": "user_confirmed",
        "child_exited": "closed",
        "abandoned": "abandoned",
    },
    # What the session shows after a person has confirmed adds facts, and changes nothing.
    "user_confirmed": {
        "session_seen": "user_confirmed",
        "adopted": "user_confirmed",
        "pages_complete": "user_confirmed",
        "ack_recorded": "user_confirmed",
        "child_exited": "closed",
        "abandoned": "abandoned",
    },
    "launch_failed": {"superseded": "superseded"},
    "closed": {"superseded": "superseded"},
    "abandoned": {"superseded": "superseded"},
    "superseded": {},
}

DELIVERY: Table = {
    "intended": {"delivered": "delivered", "delivery_failed": "failed"},
    "delivered": {},
    "failed": {},
}

LINK: Table = {
    "opened": {
        "hello": "greeted",
        "pair": "pairing",
        "close": "closing",
        "lost": "closed",
    },
    "greeted": {"hello_ack": "authenticating", "close": "closing", "lost": "closed"},
    "authenticating": {"auth_ok": "open", "close": "closing", "lost": "closed"},
    "pairing": {"close": "closing", "lost": "closed"},
    "open": {"close": "closing", "lost": "closed"},
    "closing": {"lost": "closed"},
    "closed": {},
}

MACHINES: dict[str, Table] = {
    "task": TASK,
    "turn": TURN,
    "ticket": TICKET,
    "run": RUN,
    "effect": EFFECT,
    "attempt": ATTEMPT,
    "delivery": DELIVERY,
    "link": LINK,
}

TASK_TERMINAL = frozenset(state for state, out in TASK.items() if not out)
#: an attempt that holds its record: no other one is opened beside it unasked
ATTEMPT_LIVE = frozenset(
    {"reserved", "requested", "session_identified", "handoff_read"}
    | {"acknowledged", "user_confirmed"}
)
TICKET_OPEN = frozenset({"open"})
TICKET_SETTLED = frozenset({"acknowledged", "void", "withdrawn"})


def advance(machine: str, state: str, event: str) -> str:
    """The state that follows.

    Raises:
        BadTransition: the table has no such row. Nothing was changed.
    """
    try:
        return MACHINES[machine][state][event]
    except KeyError:
        allowed = ", ".join(sorted(MACHINES[machine].get(state, {}))) or "nothing"
        article = "an" if machine[0] in "aeiou" else "a"
        raise BadTransition(
            f"{article} {machine} in state '{state}' can't take '{event}' (it can take: {allowed})",
            machine=machine,
            state=state,
            event=event,
        ) from None


def can(machine: str, state: str, event: str) -> bool:
    """Whether :func:`advance` would succeed."""
    return event in MACHINES[machine].get(state, {})


def terminal(state: str) -> bool:
    """Whether a task in that state is over."""
    return state in TASK_TERMINAL


def mermaid(machine: str) -> str:
    """The machine as a mermaid state diagram, one arrow a row."""
    lines = ["stateDiagram-v2"]
    for state, out in MACHINES[machine].items():
        lines += [f"    {state} --> {after}: {event}" for event, after in out.items()]
        if not out:
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines)
