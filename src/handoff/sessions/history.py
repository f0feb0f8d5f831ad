"""What the events of one attempt say: pure, no file, clock or randomness.

An attempt has no stored state. Its state is the fold of its events through the table
``attempt`` of :mod:`handoff.lifecycle`; :func:`fold` refuses a history that the table does
not allow. Notes are events that say something and move nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from handoff import lifecycle
from handoff.errors import BadTransition, JournalCorrupt, UsageError

__all__ = [
    "ENDED",
    "EXPLAIN",
    "FIRST",
    "GENESIS",
    "NOTES",
    "Event",
    "History",
    "allowed_next",
    "canonical",
    "digest",
    "fold",
    "link",
]

#: the event that begins every history
FIRST = "attempt_prepared"
#: events that change no state: legal at any time after the first
NOTES = frozenset({"anomaly", "child_started", "page_served", "prompt_submitted", "environment"})
#: what the first event of a journal is chained to
GENESIS = "0" * 64

#: the states of an attempt that has ended, and whose place another one may take
ENDED = frozenset({"launch_failed", "closed", "abandoned"})

EXPLAIN = {
    "prepared": "The attempt is frozen; nothing was started.",
    "reserved": "One opener holds the right to start the new session; nothing was started yet.",
    "requested": "The start was written down and then tried; no new session has shown itself.",
    "session_identified": "The new session has shown itself; it has not read all of the handoff.",
    "handoff_read": "The new session was given every page; it has not acknowledged.",
    "acknowledged": "The new session has echoed the constraints and what has changed.",
    "user_confirmed": "A person has confirmed the new session.",
    "launch_failed": "Nothing was started, and that is proved.",
    "closed": "The program of the new session has ended; that is no success.",
    "abandoned": "A person has given the attempt up.",
    "superseded": "Another attempt has taken the place of this one.",
}
UNCERTAIN = (
    "The start was written down, its opener is gone, and no new session has shown itself: "
    "it may exist."
)


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the journal. ``number`` counts over all attempts, ``seq`` over one."""

    number: int
    attempt: str
    seq: int
    kind: str
    at: int
    actor: str
    payload: dict[str, Any]
    prev: str
    hash: str


@dataclass(slots=True)
class History:
    """The facts that the events of one attempt add up to."""

    state: str = ""
    requested: bool = False
    session_identified: bool = False
    handoff_read: bool = False
    acknowledged: bool = False
    user_confirmed: bool = False
    session: str = ""
    identified_by: str = ""
    child: dict[str, Any] | None = None
    child_exit: dict[str, Any] | None = None
    submitted: bool = False
    surface: str = ""
    pages: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    required: dict[str, list[str]] = field(default_factory=dict)
    read_digest: str = ""
    ack: dict[str, Any] | None = None
    anomalies: list[dict[str, Any]] = field(default_factory=list)
    launches: int = 0


def canonical(value: object) -> bytes:
    """The one byte form of a JSON value that has no fractions: sorted keys, no blanks.

    Raises:
        UsageError: it holds text that is no Unicode (a path of other bytes, for instance).
    """
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("a name or text is not valid UTF-8") from error


def digest(value: object) -> str:
    """SHA-256 of the canonical form, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def link(prev: str, number: int, row: tuple[str, int, str, int, str, str]) -> str:
    """The hash of an event: of the one before it, and of everything that this one says.

    row: attempt, seq, kind, at, actor, the payload's text.
    """
    return digest([prev, number, *row])


def fold(events: list[Event]) -> History:
    """The state and the facts after those events of one attempt, in their order.

    Raises:
        JournalCorrupt: the table does not allow that order, so it was not written by us.
    """
    history = History()
    for position, event in enumerate(events, 1):
        if event.seq != position or (position == 1) != (event.kind == FIRST):
            raise JournalCorrupt(
                f"event {event.seq} of attempt {event.attempt} is out of order",
                attempt_id=event.attempt,
            )
        _step(history, event)
    return history


def _step(history: History, event: Event) -> None:
    if event.kind == FIRST:
        history.state = "prepared"
    elif event.kind not in NOTES:
        try:
            history.state = lifecycle.advance("attempt", history.state, event.kind)
        except BadTransition as error:
            raise JournalCorrupt(
                f"attempt {event.attempt} has a history that can't be: {error}",
                attempt_id=event.attempt,
            ) from error
    _note(history, event.kind, event.payload)


def _note(history: History, kind: str, payload: dict[str, Any]) -> None:
    if kind == "launch_intent":
        history.requested, history.launches = True, history.launches + 1
    elif kind == "reservation_taken":
        history.surface = payload["surface"]
    elif kind in ("session_seen", "adopted"):
        history.session_identified = True
        history.session, history.identified_by = payload["session_id"], payload["by"]
    elif kind == "page_served":
        key = (payload["session_id"], payload["pages_sha256"])
        history.pages.setdefault(key, set()).add(payload["page"])
        history.required[payload["pages_sha256"]] = list(payload["required"])
    elif kind == "pages_complete":
        history.handoff_read, history.read_digest = True, payload["pages_sha256"]
    elif kind == "ack_recorded":
        history.acknowledged, history.ack = True, payload
    elif kind == "user_confirmed":
        history.user_confirmed = True
    elif kind == "child_started":
        history.child = payload
    elif kind == "child_exited":
        history.child_exit = payload
    elif kind == "prompt_submitted":
        history.submitted = True
    elif kind == "anomaly":
        history.anomalies.append(payload)


def allowed_next(history: History, owner_alive: bool | None) -> list[str]:
    """What may be done next, in the order of what is usual.

    owner_alive: as :func:`handoff.sessions.owner.alive` says of the reservation's holder;
    None also where it can't be told, which allows no more than True does.
    """
    state, dead = history.state, owner_alive is False
    if state == "prepared":
        return ["open", "abandon"]
    if state == "reserved":
        return ["open", "abandon"] if dead else ["wait"]
    if state == "requested":
        return ["inspect", "adopt", "abandon"] if dead else ["wait"]
    if state in ENDED:
        return ["prepare_new"]
    if state == "superseded":
        return []
    steps = {"session_identified": "read", "handoff_read": "ack", "acknowledged": "confirm"}
    first = [steps[state]] if state in steps else []
    return [*first, *(["inspect"] if dead else []), "abandon"]
