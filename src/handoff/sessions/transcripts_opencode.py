"""opencode's sessions: one SQLite store, ``<data>/opencode/opencode.db``.

Seen in 1.18: tables ``session``, ``message`` and ``part``, with JSON in ``data``. A message has
a role; what it says is in its parts: ``text`` (``synthetic``: the program's own), ``tool`` with
its state, and others. A session with ``parent_id`` is a sub-agent's, and no continuation.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from handoff.errors import NotFound, StorageError
from handoff.sessions.host_store import Message, Session, connect
from handoff.sessions.transcripts import calls_of

__all__ = ["OpencodeStore", "opened"]

_COLUMNS = {
    "session": {"id", "directory", "title", "time_created", "time_updated"},
    "message": {"id", "session_id", "time_created", "data"},
    "part": {"id", "message_id", "data"},
}


@contextmanager
def opened(env: Mapping[str, str]) -> Iterator[OpencodeStore]:
    """The sessions of the user whose environment this is.

    Raises:
        NotFound: there is no store of this form.
        StorageError: it can't be read.
    """
    data = env.get("XDG_DATA_HOME", "")
    if not os.path.isabs(data):
        data = os.path.join(env.get("HOME", ""), ".local", "share")
    path = os.path.join(data, "opencode", "opencode.db")
    if not os.path.isabs(path) or not os.path.isfile(path):
        raise NotFound(f"opencode keeps no sessions in {path}", remedy=f"ls {path}", path=path)
    with contextlib.ExitStack() as stack:
        try:
            db = stack.enter_context(contextlib.closing(connect(path, stack)))
            db.execute("PRAGMA query_only = ON")
            db.execute("PRAGMA trusted_schema = OFF")
            yield OpencodeStore(db, path)
        except (sqlite3.Error, OSError) as error:
            raise StorageError(
                f"the session store {path} can't be read: {error}",
                remedy=f"ls -l {path}",
                path=path,
            ) from error


class OpencodeStore:
    """An open store."""

    def __init__(self, db: sqlite3.Connection, path: str) -> None:
        self._db = db
        for table, needed in _COLUMNS.items():
            rows = db.execute("SELECT name FROM pragma_table_info(?)", (table,))
            missing = needed - {str(row[0]) for row in rows}
            if missing:
                raise StorageError(
                    f"{path} is no session store of a form that is known: {table} lacks "
                    + ", ".join(sorted(missing)),
                    path=path,
                )

    def session(self, session_id: str) -> Session | None:
        """A session by its exact id."""
        row = self._db.execute(
            "SELECT id, directory, title, time_created,"
            " (SELECT count(*) FROM message WHERE session_id = session.id)"
            " FROM session WHERE id = ?",
            (session_id,),
        ).fetchone()
        if row is None:
            return None
        model, provider = self._route(session_id)
        started = row[3] if isinstance(row[3], int) else 0
        return Session(
            str(row[0]), "", model, provider, str(row[1]), "", started, 0, row[4], str(row[2])
        )

    def _route(self, session_id: str) -> tuple[str, str]:
        """Model and provider of the last answer."""
        rows = self._db.execute(
            "SELECT data FROM message WHERE session_id = ? ORDER BY time_created DESC, id DESC",
            (session_id,),
        )
        for (data,) in rows:
            value = _object(data)
            if value.get("role") == "assistant" and isinstance(value.get("modelID"), str):
                return value["modelID"], str(value.get("providerID", ""))
        return "", ""

    def family(self, session_id: str) -> list[str]:
        """The session alone: it keeps all of its messages, also those that were compacted."""
        return [session_id]

    def messages(
        self, sessions: list[str], *, role: str = "", last: int = 0, message_id: str = ""
    ) -> Iterator[Message]:
        """The messages of these sessions in their order. ``last``: only so many."""
        picked = [
            message
            for one in reversed(sessions)
            for message in self._all(one)
            if (not role or message.role == role) and message_id in ("", message.id)
        ]
        yield from picked[-last:] if last else picked

    def _all(self, session_id: str) -> Iterator[Message]:
        rows = self._db.execute(
            "SELECT id, time_created, data FROM message WHERE session_id = ?"
            " ORDER BY time_created, id",
            (session_id,),
        ).fetchall()
        for key, at, data in rows:
            parts = [
                (str(row[0]), _object(row[1]))
                for row in self._db.execute(
                    "SELECT id, data FROM part WHERE message_id = ? ORDER BY id", (key,)
                )
            ]
            yield from _messages(session_id, str(key), at, _object(data), parts)

    def last_message(self, session_id: str) -> str:
        """The id of its last message, or ""."""
        last = ""
        for message in self._all(session_id):
            last = message.id
        return last

    def idle_since(self, before: int, limit: int) -> list[Session]:
        """The sessions that were last changed before that time (ms), youngest first."""
        return self._some("time_updated < ? ORDER BY time_updated DESC", before, limit)

    def started_since(self, since: int, limit: int) -> list[Session]:
        """The sessions that were started at that time (ms) or later, youngest first."""
        return self._some("time_created >= ? ORDER BY time_created DESC", since, limit)

    def _some(self, where: str, value: int, limit: int) -> list[Session]:
        sql = f"SELECT id FROM session WHERE {where} LIMIT ?"  # noqa: S608
        ids = [str(row[0]) for row in self._db.execute(sql, (value, limit)).fetchall()]
        return [found for one in ids if (found := self.session(one)) is not None]


def _messages(
    session_id: str, key: str, at: int, data: Mapping[str, Any], parts: list[tuple[str, Any]]
) -> Iterator[Message]:
    """A message as its text, and each tool's result as one of its own."""
    at = at if isinstance(at, int) else 0
    role = "assistant" if data.get("role") == "assistant" else "user"
    said: list[str] = []
    told: list[str] = []
    called: list[tuple[str, object]] = []
    results: list[tuple[str, str, str]] = []
    for part_id, part in parts:
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            own = part.get("synthetic") is True or data.get("summary") is True
            (told if own else said).append(part["text"])
        elif part.get("type") == "tool":
            name = str(part.get("tool", ""))
            state = part.get("state")
            called.append((name, state.get("input") if isinstance(state, Mapping) else None))
            if isinstance(state, Mapping):
                text = state.get("output", state.get("error"))
                if isinstance(text, str):
                    results.append((part_id, name, text))
    if said or called:
        yield Message(key, session_id, role, "\n".join(said), at, "", calls_of(called))
    if told:
        own_id = f"{key}#1" if said or called else key
        yield Message(own_id, session_id, "system", "\n".join(told), at)
    for part_id, name, text in results:
        yield Message(part_id, session_id, "tool", text, at, name)


def _object(data: object) -> dict[str, Any]:
    try:
        value = json.loads(data) if isinstance(data, str | bytes) else None
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {}
