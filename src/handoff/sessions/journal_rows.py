"""The journal's rows inside one transaction: read, checked, appended. No transaction begins
or ends here, and nothing here decides who may do what."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from handoff import lifecycle
from handoff.errors import (
    AlreadyReserved,
    AttemptConflict,
    BadTransition,
    JournalCorrupt,
    NotAllowed,
    OpeningUncertain,
    UnknownAttempt,
    UsageError,
)
from handoff.sessions import history as past
from handoff.sessions.history import Event, History
from handoff.sessions.owner import Liveness, Owner

#: bytes of one event's payload
MAX_PAYLOAD = 2048
#: what a retry of the same intent may find changed: the world, not the intent
LOOKED_AT = ("preflight_sha256", "source_last_message")

_COLUMNS = "number, attempt_id, seq, kind, at, actor, payload, prev, hash"


def unknown(attempt_id: str) -> UnknownAttempt:
    """The error for an id that this profile does not know."""
    return UnknownAttempt(
        f"this profile has no attempt '{attempt_id}'",
        remedy="open it with the profile and HERMES_HOME that prepared it",
        attempt_id=attempt_id,
    )


def frozen(db: sqlite3.Connection, attempt_id: str) -> dict[str, Any]:
    """What was frozen, checked against its digest."""
    row = db.execute(
        "SELECT frozen, digest, ref FROM attempts WHERE attempt_id = ?", (attempt_id,)
    ).fetchone()
    if row is None:
        raise unknown(attempt_id)
    value = parsed(row[0], attempt_id)
    same = (past.digest(value), value.get("attempt_id"), value.get("ref"))
    if same != (row[1], attempt_id, row[2]):
        raise JournalCorrupt(f"attempt {attempt_id} was changed", attempt_id=attempt_id)
    return value


def has(db: sqlite3.Connection, attempt_id: str) -> bool:
    """Whether there is such an attempt."""
    found = db.execute("SELECT 1 FROM attempts WHERE attempt_id = ?", (attempt_id,)).fetchone()
    return found is not None


def events(db: sqlite3.Connection, attempt_id: str) -> list[Event]:
    """The attempt's events, each checked against its own hash."""
    found = []
    for row in db.execute(
        f"SELECT {_COLUMNS} FROM events WHERE attempt_id = ? ORDER BY seq",  # noqa: S608
        (attempt_id,),
    ):
        found.append(_event(row))
    return found


def facts(db: sqlite3.Connection, attempt_id: str) -> History:
    """The attempt's events, folded."""
    return past.fold(events(db, attempt_id))


def _event(row: tuple[Any, ...]) -> Event:
    number, attempt, seq, kind, at, actor, text, prev, mark = row
    if past.link(prev, number, (attempt, seq, kind, at, actor, text)) != mark:
        raise JournalCorrupt(f"event {number} of the opening journal was changed", number=number)
    payload = parsed(text, attempt)
    return Event(number, attempt, seq, kind, at, actor, payload, prev, mark)


def parsed(text: str, attempt_id: str) -> dict[str, Any]:
    """A JSON object of the journal's. Raises JournalCorrupt."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise JournalCorrupt(f"attempt {attempt_id} can't be read: {error}") from error
    if not isinstance(value, dict):
        raise JournalCorrupt(f"attempt {attempt_id} holds something else than it should")
    return value


def append(
    db: sqlite3.Connection,
    now: int,
    attempt_id: str,
    kind: str,
    actor: str,
    payload: dict[str, Any],
) -> None:
    """Add one event, if the table allows it now.

    Raises:
        BadTransition: it does not.
        UsageError: the payload is over :data:`MAX_PAYLOAD`.
    """
    text = past.canonical(payload).decode()
    if len(text.encode()) > MAX_PAYLOAD:
        raise UsageError(f"an event '{kind}' may hold {MAX_PAYLOAD} bytes", limit=MAX_PAYLOAD)
    before = events(db, attempt_id)
    if kind not in past.NOTES and kind != past.FIRST:
        lifecycle.advance("attempt", past.fold(before).state, kind)
    number, prev = db.execute("SELECT number, hash FROM head").fetchone()
    row = (attempt_id, len(before) + 1, kind, now, actor, text)
    mark = past.link(prev, number + 1, row)
    db.execute(
        f"INSERT INTO events ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (number + 1, *row, prev, mark),
    )
    db.execute("UPDATE head SET number = ?, hash = ?", (number + 1, mark))


def last_of(db: sqlite3.Connection, attempt_id: str) -> str:
    """The attempt itself, or the last one of those that took its place one after another."""
    seen = [attempt_id]
    while True:
        by = [one.payload.get("by") for one in events(db, seen[-1]) if one.kind == "superseded"]
        if not by:
            return seen[-1]
        # Who supersedes is made later: no journal of ours goes in a circle.
        if not isinstance(by[-1], str) or by[-1] in seen or not has(db, by[-1]):
            raise JournalCorrupt(
                f"what has taken the place of attempt {attempt_id} is not known",
                attempt_id=attempt_id,
            )
        seen.append(by[-1])


def supersedable(db: sqlite3.Connection, old: str, ref: str) -> None:
    """Check that an attempt of that record may take the place of this one.

    Raises:
        AttemptConflict: it is of another record.
        BadTransition: it has not ended, or another one has taken its place already.
    """
    if frozen(db, old)["ref"] != ref:
        raise AttemptConflict(
            f"attempt {old} is of another record", remedy=f"status {old}", fields=["ref"]
        )
    last = last_of(db, old)
    state = facts(db, last).state
    if last == old and state in past.ENDED:
        return
    why = f"is superseded already, at last by {last}" if last != old else f"is '{state}'"
    raise BadTransition(
        f"attempt {old} {why}: only what has ended, and was not superseded, can be",
        remedy=f"prepare it with --supersedes {last}" if state in past.ENDED else f"status {last}",
        attempt_id=old,
        last=last,
        state=state,
    )


def reservation(db: sqlite3.Connection, attempt_id: str) -> tuple[int, str, Owner] | None:
    """(since when, id, owner) of the attempt's reservation, if one is held."""
    row = db.execute(
        "SELECT at, id, owner FROM reservations WHERE attempt_id = ?", (attempt_id,)
    ).fetchone()
    return None if row is None else (row[0], row[1], _owner(row[2], attempt_id))


def reservations(db: sqlite3.Connection, ref: str) -> list[tuple[str, Owner]]:
    """(attempt, owner) of all reservations of a record."""
    rows = db.execute(
        "SELECT attempt_id, owner FROM reservations WHERE ref = ? ORDER BY at", (ref,)
    ).fetchall()
    return [(row[0], _owner(row[1], row[0])) for row in rows]


def _owner(text: str, attempt_id: str) -> Owner:
    value = parsed(text, attempt_id)
    try:
        return Owner(**value)
    except TypeError as error:
        raise JournalCorrupt(f"the reservation of attempt {attempt_id} is damaged") from error


def refusal(db: sqlite3.Connection, attempt_id: str, alive: Liveness) -> NotAllowed:
    """Why that attempt can't be opened, with what is known and what may be done."""
    history, held = facts(db, attempt_id), reservation(db, attempt_id)
    living = alive(held[2]) if held else None
    known = {
        "attempt_id": attempt_id,
        "state": history.state,
        "owner": shown(held[2]) if held else None,
        "owner_alive": living,
        "allowed_next": past.allowed_next(history, living),
    }
    if history.state == "requested" and living is False:
        return OpeningUncertain(
            f"attempt {attempt_id}: {past.UNCERTAIN}", remedy=f"recover {attempt_id}", **known
        )
    return AlreadyReserved(
        f"attempt {attempt_id} is '{history.state}': {past.EXPLAIN[history.state]}",
        remedy="prepare a new attempt" if held is None else f"status {attempt_id}",
        **known,
    )


def end(db: sqlite3.Connection, attempt_id: str) -> None:
    """Give the attempt's reservation back."""
    db.execute("DELETE FROM reservations WHERE attempt_id = ?", (attempt_id,))


def verify(db: sqlite3.Connection) -> dict[str, Any]:
    """Check the pages of the file, the whole chain, each history, each frozen attempt.

    Raises:
        JournalCorrupt: with the first thing found.
    """
    said = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if said != "ok":
        raise JournalCorrupt(f"the opening journal is damaged: {said}")
    prev, number, by_attempt = past.GENESIS, 0, dict[str, list[Event]]()
    for row in db.execute(f"SELECT {_COLUMNS} FROM events ORDER BY number"):  # noqa: S608
        event = _event(row)
        number += 1
        if event.number != number or event.prev != prev:
            raise JournalCorrupt(f"event {number} of the opening journal is missing or moved")
        prev = event.hash
        by_attempt.setdefault(event.attempt, []).append(event)
    head = db.execute("SELECT number, hash FROM head").fetchone()
    if head is None or tuple(head) != (number, prev):
        raise JournalCorrupt("the last events of the opening journal are missing")
    known = [str(row[0]) for row in db.execute("SELECT attempt_id FROM attempts")]
    if set(known) != set(by_attempt):
        raise JournalCorrupt("an attempt of the opening journal is missing, or has no history")
    for attempt_id, its in by_attempt.items():
        if its[0].payload.get("digest") != past.digest(frozen(db, attempt_id)):
            raise JournalCorrupt(f"attempt {attempt_id} was changed", attempt_id=attempt_id)
        _reserved_as_told(db, attempt_id, past.fold(its))
    return {"events": number, "attempts": len(known), "head": prev}


def _reserved_as_told(db: sqlite3.Connection, attempt_id: str, history: History) -> None:
    held = reservation(db, attempt_id) is not None
    if held != (history.state in lifecycle.ATTEMPT_LIVE):
        raise JournalCorrupt(
            f"attempt {attempt_id} is '{history.state}', which its reservation contradicts",
            attempt_id=attempt_id,
        )


def shown(owner: Owner) -> dict[str, Any]:
    """An owner without its token."""
    return {key: value for key, value in asdict(owner).items() if key != "token"}


def refuse_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Check that a retry freezes the same.

    Raises:
        AttemptConflict: details name the fields, not their values.
    """
    differing = [
        key
        for key in sorted(old)
        if key not in LOOKED_AT and _intent(key, old[key]) != _intent(key, new[key])
    ]
    if differing:
        raise AttemptConflict(
            f"attempt '{old['attempt_id']}' was frozen with another {', '.join(differing)}",
            remedy="prepare again with a new attempt id",
            fields=differing,
        )


def _intent(key: str, value: Any) -> Any:
    if key == "route" and isinstance(value, dict):
        return {k: v for k, v in value.items() if k != "observed_at"}
    return value


def proof(
    its: list[Event], history: History, nonce: str, chain: Sequence[tuple[int, int]], boot: str
) -> str:
    """How a caller proves to be the launched session: ``nonce``, ``descent``, or "" (not)."""
    wanted = next((e.payload.get("nonce_sha256", "") for e in its if e.kind == "launch_intent"), "")
    given = hashlib.sha256(nonce.encode("utf-8", "surrogatepass")).hexdigest()
    if nonce and wanted and hmac.compare_digest(given, wanted):
        return "nonce"
    child = history.child
    if child and child["boot"] == boot and (child["pid"], child["started"]) in set(chain):
        return "descent"
    return ""


def not_the_one(
    attempt: dict[str, Any], history: History, session_id: str, profile: str, by: str
) -> str:
    """Why that session is not the destination; "" if it is."""
    if not session_id:
        return "no_session_id"
    if session_id == attempt["source_session"]:
        return "source_session"
    if profile != attempt["profile"]:
        return "other_profile"
    if history.session:
        return "third_session"
    if not by:
        return "no_proof"
    return "" if lifecycle.can("attempt", history.state, "session_seen") else "late_session"


def exit_shown(history: History, living: bool | None) -> dict[str, Any] | str | None:
    """The child's exit: its code and signal, "unknown", or None while it runs."""
    if history.child_exit is not None:
        return history.child_exit
    launched = history.requested and history.state in lifecycle.ATTEMPT_LIVE
    return "unknown" if launched and living is False else None


def prompt_shown(history: History) -> str:
    """Whether the opening prompt went out: with the launch, submitted, or uncertain."""
    if not history.requested:
        return "not_sent"
    if history.surface != "desktop" or history.submitted or history.handoff_read:
        return "sent"
    return "prompt_uncertain"
