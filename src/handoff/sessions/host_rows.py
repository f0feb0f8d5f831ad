"""Which rows of a Hermes session store are its conversation, each of them once.

The store keeps more than was said. A turn that the user took back stays, neither ``active``
nor ``compacted``. Compressing a session in place marks what was summed up ``compacted`` and
writes the kept messages anew, with other row ids: those are the same messages. What the host
itself says into the conversation stands there as the user's.
"""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

__all__ = ["MACHINE", "Row", "conversation"]

#: how texts begin that the host wrote where the user's words stand
MACHINE = (
    "[CONTEXT COMPACTION",
    "[CONTEXT SUMMARY]:",
    "[PRIOR CONTEXT",
    "[Runtime note:",
    "[System note:",
    "[SYSTEM]",
    "[System: The active model for this chat has changed to ",
)
#: whether a summed-up message says the same as that row
SAME = (
    "SELECT 1 FROM messages a JOIN messages b ON b.session_id = a.session_id AND b.compacted = 1"
    " AND b.role = a.role AND b.content IS a.content WHERE a.id = ? AND a.session_id = ? LIMIT 1"
)
SAME_CALLS = SAME.replace(" WHERE", " AND b.tool_calls IS a.tool_calls WHERE")
#: s within which the copies that a compression stamps anew have its own time
STAMPED = 1.0


class Row(NamedTuple):
    """One message. ``id``: of its row. ``name``: of the first row that it ever had, by which
    it is known. ``role``: ``system`` for what the host wrote."""

    id: Any
    name: Any
    session: str
    role: str


class _Raw(NamedTuple):
    id: Any
    role: str
    at: Any
    active: Any
    compacted: Any
    uid: Any
    head: Any

    @property
    def of_machine(self) -> bool:
        """Whether its text begins as the host's own texts do."""
        return isinstance(self.head, str) and self.head.startswith(MACHINE)

    @property
    def of_summary(self) -> bool:
        """Whether it is what a compression summed up."""
        return isinstance(self.head, str) and self.head.startswith(MACHINE[:2])


def conversation(db: sqlite3.Connection, columns: set[str], session: str) -> list[Row]:
    """The messages of one session in their order. ``columns``: those that the table has."""
    picked = [
        name if name in columns else "NULL"
        for name in ("timestamp", "active", "compacted", "message_uid")
    ]
    sql = f"SELECT id, role, {', '.join(picked)}, substr(content, 1, 64)"
    found = db.execute(f"{sql} FROM messages WHERE session_id = ? ORDER BY id", (session,))
    raw = [_Raw._make(row) for row in found]
    first: dict[Any, Any] = {}
    for row in raw:
        if row.uid is not None:
            first.setdefault(row.uid, row.id)
    copied = _Copies(db, session, raw, "tool_calls" in columns)
    rows: list[Row] = []
    seen: set[Any] = set()
    for row in raw:
        if row.active == 0 and row.compacted != 1:
            continue  # taken back, or written anew further on
        name = row.id if row.uid is None else first[row.uid]
        if name in seen or (row.uid is None and copied.has(row)):
            continue
        seen.add(name)
        machine = row.role == "user" and row.of_machine
        rows.append(Row(row.id, name, session, "system" if machine else row.role))
    return rows


class _Copies:
    """The rows that a compression wrote anew, in a store that names no message."""

    def __init__(self, db: sqlite3.Connection, session: str, raw: list[_Raw], calls: bool) -> None:
        self._db, self._session = db, session
        self._calls = calls
        self._before = {(row.role, row.at) for row in raw if row.compacted == 1}
        self._times = [
            row.at for row in raw if row.compacted != 1 and row.of_summary and _number(row.at)
        ]

    def has(self, row: _Raw) -> bool:
        """Whether that row holds a message that an earlier one holds, too."""
        if row.compacted == 1 or not self._before:
            return False
        if row.at is not None and (row.role, row.at) in self._before:
            return True
        if not _number(row.at) or all(abs(row.at - one) > STAMPED for one in self._times):
            return False
        same = SAME_CALLS if self._calls else SAME
        return self._db.execute(same, (row.id, self._session)).fetchone() is not None


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
