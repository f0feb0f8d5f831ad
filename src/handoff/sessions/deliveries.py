"""Where a record went without an opening: to an executor as a task.

A part of the opening journal, append-only and hash-chained like the attempts, and no attempt:
nothing is reserved, launched or identified by it. It is written down before it is done, so
that one that was cut off between is seen, as one of which the outcome is not known.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from handoff import lifecycle
from handoff.errors import BadTransition, JournalCorrupt, NotFound, UsageError
from handoff.sessions import history as past
from handoff.sessions import journal_file as file
from handoff.sessions.journal_rows import MAX_PAYLOAD, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.sessions.journal import Actor
    from handoff.sessions.journal_view import JournalView

__all__ = ["EXPLAIN", "FIRST", "intend", "listed", "settle", "verify"]

#: the event that begins every delivery
FIRST = "delivery_intended"
EXPLAIN = {
    "intended": "It was written down and then tried; what came of it is not known.",
    "delivered": "The record was given; that says nothing of what became of it there.",
    "failed": "Nothing was given, and that is known.",
}
_COLUMNS = "number, delivery_id, ref, kind, at, actor, payload, prev, hash"


def intend(
    journal: JournalView, delivery_id: str, ref: str, to: Mapping[str, str], actor: Actor
) -> None:
    """Write down what comes next. Only after this has returned may it come.

    ``to``: ``kind`` (``task``) and ``target``, the name of the task's machine, "" for this
    one.

    Raises:
        UsageError: the id is used already, or too much is said.
        StorageError: it could not be written.
    """
    with file.writing(journal.root) as db:
        if _events(db, delivery_id):
            raise UsageError(f"delivery '{delivery_id}' was begun already")
        _append(db, journal.clock.now_ms(), delivery_id, ref, FIRST, str(actor), dict(to))
        journal.reach("journal.deliver")
    journal.reach("journal.delivering")


def settle(
    journal: JournalView, delivery_id: str, kind: str, payload: Mapping[str, str], actor: Actor
) -> None:
    """Write down what came of it: ``delivered`` (``task``), or ``delivery_failed`` (``why``).

    Raises:
        NotFound: there is no such delivery.
        BadTransition: it was settled already.
        StorageError: it could not be written.
    """
    said = {key: journal.redact(value)[:512] for key, value in payload.items()}
    with file.writing(journal.root) as db:
        before = _events(db, delivery_id)
        if not before:
            raise NotFound(f"there is no delivery '{delivery_id}'")
        lifecycle.advance("delivery", _state(before), kind)
        now, ref = journal.clock.now_ms(), before[0]["ref"]
        _append(db, now, delivery_id, ref, kind, str(actor), said)
        journal.reach("journal.settle")
    journal.reach("journal.settled")


def listed(journal: JournalView, ref: str = "") -> list[dict[str, Any]]:
    """The deliveries (of one record), oldest first: ``delivery_id``, ``ref``, ``to`` (its kind
    and names), ``state``, ``at``, ``actor``, ``came_of_it`` (``task``, ``ref`` or ``why``),
    ``explain``. None where nothing was written yet.

    Raises:
        JournalCorrupt, SchemaTooNew, StorageError: it can't be read.
    """
    if not file.exists(journal.root):
        return []
    with file.reading(journal.root) as db:
        if not file.knows_deliveries(db):
            return []
        where = "WHERE ? IN ('', ref)"
        rows = db.execute(f"SELECT {_COLUMNS} FROM deliveries {where} ORDER BY number", (ref,))  # noqa: S608
        found: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            found.setdefault(row[1], []).append(_event(row))
    return [_told(events) for events in found.values()]


def _told(events: list[dict[str, Any]]) -> dict[str, Any]:
    first, state = events[0], _state(events)
    return {
        "delivery_id": first["delivery_id"],
        "ref": first["ref"],
        "to": first["payload"],
        "state": state,
        "at": first["at"],
        "actor": first["actor"],
        "came_of_it": events[-1]["payload"] if len(events) > 1 else {},
        "explain": EXPLAIN[state],
    }


def _state(events: list[dict[str, Any]]) -> str:
    state = "intended"
    for event in events[1:]:
        try:
            state = lifecycle.advance("delivery", state, event["kind"])
        except BadTransition as error:
            name = event["delivery_id"]
            raise JournalCorrupt(f"delivery {name} has a history that can't be") from error
    return state


def _events(db: sqlite3.Connection, delivery_id: str) -> list[dict[str, Any]]:
    query = f"SELECT {_COLUMNS} FROM deliveries WHERE delivery_id = ? ORDER BY number"  # noqa: S608
    return [_event(row) for row in db.execute(query, (delivery_id,))]


def _event(row: tuple[Any, ...]) -> dict[str, Any]:
    number, delivery, ref, kind, at, actor, text, prev, mark = row
    if past.link(prev, number, (delivery, 0, kind, at, actor, f"{ref}\n{text}")) != mark:
        raise JournalCorrupt(f"delivery {number} of the opening journal was changed", number=number)
    return {
        "number": number,
        "delivery_id": delivery,
        "ref": ref,
        "kind": kind,
        "at": at,
        "actor": actor,
        "payload": parsed(text, f"delivery {delivery}"),
        "prev": prev,
        "hash": mark,
    }


def _append(
    db: sqlite3.Connection,
    now: int,
    delivery_id: str,
    ref: str,
    kind: str,
    actor: str,
    payload: Mapping[str, str],
) -> None:
    text = past.canonical(dict(payload)).decode()
    if len(text.encode()) > MAX_PAYLOAD:
        raise UsageError(f"a delivery may say {MAX_PAYLOAD} bytes", limit=MAX_PAYLOAD)
    number, prev = db.execute("SELECT number, hash FROM delivery_head").fetchone()
    mark = past.link(prev, number + 1, (delivery_id, 0, kind, now, actor, f"{ref}\n{text}"))
    db.execute(
        f"INSERT INTO deliveries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (number + 1, delivery_id, ref, kind, now, actor, text, prev, mark),
    )
    db.execute("UPDATE delivery_head SET number = ?, hash = ?", (number + 1, mark))


def verify(db: sqlite3.Connection) -> int:
    """Check the whole chain and each delivery; how many there are.

    Raises:
        JournalCorrupt: with the first thing found.
    """
    if not file.knows_deliveries(db):
        return 0
    prev, number, found = past.GENESIS, 0, dict[str, list[dict[str, Any]]]()
    for row in db.execute(f"SELECT {_COLUMNS} FROM deliveries ORDER BY number"):  # noqa: S608
        event = _event(row)
        number += 1
        if event["number"] != number or event["prev"] != prev:
            raise JournalCorrupt(f"delivery {number} of the opening journal is missing or moved")
        prev = event["hash"]
        found.setdefault(event["delivery_id"], []).append(event)
    head = db.execute("SELECT number, hash FROM delivery_head").fetchone()
    if head is None or tuple(head) != (number, prev):
        raise JournalCorrupt("the last deliveries of the opening journal are missing")
    for name, events in found.items():
        if events[0]["kind"] != FIRST or len({one["ref"] for one in events}) != 1:
            raise JournalCorrupt(f"delivery {name} has a history that can't be")
        _state(events)
    return len(found)
