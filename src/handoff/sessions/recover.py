"""What a person sees of an attempt that did not end as it should, and what can be chosen.

Nothing is chosen here, and nothing is started or ended.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from typing import Any

from handoff.errors import ActorRefused
from handoff.sessions import owner
from handoff.sessions.environment import ATTEMPT
from handoff.sessions.journal import Actor
from handoff.sessions.journal_view import JournalView
from handoff.sessions.owner import Owner
from handoff.sessions.terminal import MEND, Terminal

__all__ = ["AGENT_MARKS", "inspect", "person", "user"]

#: set in what an agent starts: whoever has one of these is no person at a terminal
AGENT_MARKS = (
    ATTEMPT,
    "HERMES_SESSION_ID",
    "HERMES_SINGLE_QUERY_SESSION",
    "CLAUDECODE",
    "CLAUDE_CODE_SESSION_ID",
    "CODEX_THREAD_ID",
    "OPENCODE",
    "AGENT_SESSION_ID",
    "AI_AGENT",
)
#: what a person may choose, by what the journal allows
_CHOICES = {
    "adopt": "--adopt SESSION",
    "abandon": "--abandon",
    "inspect": "--show-prompt",
    "prepare_new": "prepare a new attempt that supersedes this one",
    "open": "open it",
    "wait": "wait for its opener to end",
    "confirm": "confirm",
    "read": "let the new session read on",
    "ack": "let the new session acknowledge",
}


def inspect(
    journal: JournalView, attempt_id: str, candidates: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Everything that is known, and exactly the choices that the state allows.

    candidates: sessions that the host's store holds and that may be the one, each with
    ``session_id`` and what else a person recognises it by.

    Raises:
        UnknownAttempt, JournalCorrupt: as the journal says.
    """
    events = journal.events(attempt_id)
    status = journal.status(attempt_id)
    child = journal.history(attempt_id).child
    gone = status["reservation"] is not None and status["reservation"]["owner_alive"] is False
    return {
        "attempt_id": attempt_id,
        "status": status,
        "events": [
            {"seq": e.seq, "kind": e.kind, "at": e.at, "actor": e.actor, "payload": e.payload}
            for e in events
        ],
        "candidates": [dict(c) for c in candidates],
        "child": None if child is None else {**child, "alive": owner.alive(Owner(**child))},
        "choices": [_CHOICES[name] for name in status["allowed_next"]],
        "mend_terminal": MEND if gone else "",
        "chosen": None,
    }


def person(
    journal: JournalView, env: Mapping[str, str], terminal: Terminal, attempt_id: str = ""
) -> Actor:
    """The person at this terminal, as an actor.

    This keeps a model's tool calls out; it is no proof against a program that acts a person.

    Raises:
        NotATerminal: there is none.
        ActorRefused: this runs inside an agent's session.
    """
    terminal.require()
    marks = [name for name in AGENT_MARKS if env.get(name)]
    if marks:
        raise ActorRefused(
            f"this runs inside an agent's session ({', '.join(marks)} is set)",
            remedy="run it yourself in a terminal of your own",
        )
    if attempt_id:
        child = journal.history(attempt_id).child
        here = child is not None and child["boot"] == owner.boot_id()
        if child and here and (child["pid"], child["started"]) in owner.chain():
            raise ActorRefused(f"this runs inside the session that {attempt_id} opened")
    return Actor("person", user())


def user() -> str:
    """The name of this process's user; its number where it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
