"""Reading a Hermes-like session store: SQLite, opened read-only, never written.

A store that no process holds open is read as unchanging (``immutable``), so that not even
a side file is made beside it. One with a write-ahead log is read through a copy in memory
of what SQLite shows a reader; where that would make files, the copy is of the main file.
Columns come and go between versions: only those that are there are asked for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from handoff.errors import NotFound, StorageError
from handoff.sessions.host_rows import Row, conversation

#: bytes of a store that is copied to be read beside its log
COPY_LIMIT = 2 * 1024**3
#: rows that are read in one query
_AT_ONCE = 500
#: sessions that compression made of one another, at most
ANCESTORS = 64


class Message(NamedTuple):
    """One message. ``role``: user, assistant, tool, system. ``at``: milliseconds, or 0.
    ``tool``: the tool's name. ``calls``: names of the tools that it calls."""

    id: str
    session_id: str
    role: str
    text: str
    at: int
    tool: str = ""
    calls: str = ""


class Session(NamedTuple):
    """One session. ``ended``: milliseconds, or 0. ``parent``: whose continuation it is."""

    id: str
    parent: str
    model: str
    provider: str
    cwd: str
    source: str
    started: int
    ended: int
    messages: int
    title: str


class SessionStore(Protocol):
    """A host's sessions, read only, whatever it keeps them in."""

    def session(self, session_id: str) -> Session | None:
        """A session by its exact id."""
        ...

    def family(self, session_id: str) -> list[str]:
        """The session and those that it continues, itself first."""
        ...

    def messages(
        self, sessions: list[str], *, role: str = "", last: int = 0, message_id: str = ""
    ) -> Iterator[Message]:
        """The messages of these sessions in their order. ``last``: only so many."""
        ...

    def last_message(self, session_id: str) -> str:
        """The id of its last message, or ""."""
        ...

    def idle_since(self, before: int, limit: int) -> list[Session]:
        """The sessions whose last message is older than that time (ms), youngest first."""
        ...

    def started_since(self, since: int, limit: int) -> list[Session]:
        """The sessions that were started at that time (ms) or later, youngest first."""
        ...


#: opens a host's sessions for one look. Raises NotFound (there are none), StorageError
Opener = Callable[[], AbstractContextManager[SessionStore]]


def look(sessions: str | Opener) -> AbstractContextManager[SessionStore]:
    """The sessions behind a path (a Hermes-like store) or an opener."""
    return opened(sessions) if isinstance(sessions, str) else sessions()


@contextlib.contextmanager
def opened(path: str) -> Iterator[HostStore]:
    """The store at ``path`` as it is now.

    Raises:
        NotFound: there is none.
        StorageError: it can't be read, or is no session store.
    """
    if not os.path.isfile(path):
        raise NotFound(
            f"there is no session store {path}", remedy=f"ls -l {os.path.dirname(path)}", path=path
        )
    with contextlib.ExitStack() as stack:
        try:
            db = stack.enter_context(contextlib.closing(connect(path, stack)))
            db.execute("PRAGMA query_only = ON")
            db.execute("PRAGMA trusted_schema = OFF")
            store = HostStore(db, path)
        except (sqlite3.Error, OSError) as error:
            raise _unreadable(path, error) from error
        try:
            yield store
        except sqlite3.Error as error:
            raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> StorageError:
    return StorageError(
        f"the session store {path} can't be read: {error}", remedy=f"ls -l {path}", path=path
    )


def connect(path: str, stack: contextlib.ExitStack) -> sqlite3.Connection:
    """A reading connection to a store that another program owns. ``stack`` cleans up what is
    needed beside it. Raises StorageError, and what SQLite and the system raise."""
    log = path + "-wal"
    if os.path.exists(log) and os.path.getsize(log) > 0:
        # A reader of a write-ahead log writes into its index; so the files are read aside.
        size = os.path.getsize(path) + os.path.getsize(log)
        if size > COPY_LIMIT:
            raise StorageError(f"the session store has {size} bytes", limit=COPY_LIMIT)
        aside = stack.enter_context(tempfile.TemporaryDirectory(prefix="handoff-"))
        copy = os.path.join(aside, "state.db")
        for _ in range(5):
            before = _marks(path)
            shutil.copyfile(path, copy)
            shutil.copyfile(log, copy + "-wal")
            if _marks(path) == before:
                break
        else:
            raise StorageError(
                f"the session store {path} is being written without pause", remedy="try again"
            )
        return sqlite3.connect(copy, isolation_level=None)
    # With the log's format but no log nobody is writing, and a reader would make files;
    # with the older format a reader makes none, and its lock keeps writers from under it.
    with open(path, "rb") as file:
        logged = file.read(20)[18:20] == b"\x02\x02"
    still = "&immutable=1" if logged else ""
    from urllib.parse import quote  # which takes as long to import as all of this module

    uri = f"file:{quote(os.path.abspath(path))}?mode=ro{still}"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def _marks(path: str) -> list[tuple[int, int, int]]:
    found = []
    for name in (path, path + "-wal"):
        try:
            info = os.stat(name)
            found.append((info.st_ino, info.st_size, info.st_mtime_ns))
        except FileNotFoundError:
            found.append((0, 0, 0))
    return found


class HostStore:
    """An open store."""

    def __init__(self, db: sqlite3.Connection, path: str) -> None:
        self._db, self._path = db, path
        self._known: dict[str, list[Row]] = {}
        self._sessions = self._columns("sessions", {"id"})
        self._messages = self._columns("messages", {"id", "session_id", "role", "content"})

    def _columns(self, table: str, needed: set[str]) -> set[str]:
        rows = self._db.execute("SELECT name FROM pragma_table_info(?)", (table,))
        found = {str(row[0]) for row in rows}
        if not needed <= found:
            raise StorageError(
                f"{self._path} is no session store: {table} lacks "
                + ", ".join(sorted(needed - found)),
                path=self._path,
            )
        return found

    def _pick(self, have: set[str], *names: str) -> str:
        """The first of these columns that is there, or NULL."""
        return next((name for name in names if name in have), "NULL")

    def session(self, session_id: str) -> Session | None:
        """A session by its exact id."""
        found = self._some_sessions("id = ?", (session_id,), 1)
        return found[0] if found else None

    def idle_since(self, before: int, limit: int) -> list[Session]:
        """The sessions whose last message is older than that time, youngest first."""
        at = self._pick(self._messages, "timestamp")
        rows = self._db.execute(
            f"SELECT session_id, max({at}) AS last FROM messages GROUP BY session_id"  # noqa: S608
            " ORDER BY last DESC"
        ).fetchall()
        ids = [str(row[0]) for row in rows if 0 < _ms(row[1]) < before][:limit]
        return [found for one in ids if (found := self.session(one)) is not None]

    def started_since(self, since: int, limit: int) -> list[Session]:
        """The sessions that were started at that time or later, youngest first."""
        at = self._pick(self._sessions, "started_at")
        rows = self._db.execute(f"SELECT id, {at} AS at FROM sessions ORDER BY at DESC")  # noqa: S608
        ids = [str(row[0]) for row in rows.fetchall() if _ms(row[1]) >= since][:limit]
        return [found for one in ids if (found := self.session(one)) is not None]

    def _some_sessions(self, where: str, values: tuple[Any, ...], limit: int) -> list[Session]:
        have = self._sessions
        columns = ", ".join(
            [
                "id",
                self._pick(have, "parent_session_id"),
                self._pick(have, "model"),
                self._pick(have, "billing_provider"),
                self._pick(have, "cwd"),
                self._pick(have, "source"),
                self._pick(have, "started_at"),
                self._pick(have, "ended_at"),
                self._pick(have, "message_count"),
                self._pick(have, "title"),
            ]
        )
        rows = self._db.execute(
            f"SELECT {columns} FROM sessions WHERE {where} LIMIT ?",  # noqa: S608
            (*values, limit),
        )
        return [
            Session(
                id=_text(row[0]),
                parent=_text(row[1]),
                model=_text(row[2]),
                provider=_text(row[3]),
                cwd=_text(row[4]),
                source=_text(row[5]),
                started=_ms(row[6]),
                ended=_ms(row[7]),
                messages=row[8] if isinstance(row[8], int) else 0,
                title=_text(row[9]),
            )
            for row in rows
        ]

    def family(self, session_id: str) -> list[str]:
        """The session and those it continues by compression, itself first."""
        found = [session_id]
        while len(found) < ANCESTORS:
            one = self.session(found[-1])
            if one is None or not one.parent or one.parent in found:
                break
            found.append(one.parent)
        return found

    def messages(
        self, sessions: list[str], *, role: str = "", last: int = 0, message_id: str = ""
    ) -> Iterator[Message]:
        """The messages of these sessions in their order, each once, without those that the
        user took back. ``last``: only so many."""
        rows = [row for one in reversed(sessions) for row in self._rows(one)]
        if role:
            rows = [row for row in rows if row.role == role]
        if message_id:
            rows = [row for row in rows if _text(row.name) == message_id][:1]
        if last:
            rows = rows[-last:]
        for at in range(0, len(rows), _AT_ONCE):
            yield from self._contents(rows[at : at + _AT_ONCE])

    def _rows(self, session_id: str) -> list[Row]:
        if session_id not in self._known:
            self._known[session_id] = conversation(self._db, self._messages, session_id)
        return self._known[session_id]

    def _contents(self, rows: list[Row]) -> Iterator[Message]:
        have = self._messages
        picked = [self._pick(have, one) for one in ("timestamp", "tool_name", "tool_calls")]
        marks = ", ".join("?" * len(rows))
        found = self._db.execute(
            f"SELECT id, content, {', '.join(picked)} FROM messages WHERE id IN ({marks})",  # noqa: S608
            [row.id for row in rows],
        )
        by_id = {one[0]: one for one in found}
        for row in rows:
            if row.id not in by_id:
                continue  # removed by its owner just now
            _id, content, at, tool, calls = by_id[row.id]
            yield Message(
                _text(row.name),
                row.session,
                _text(row.role),
                _content(content),
                _ms(at),
                _text(tool),
                _text(calls),
            )

    def last_message(self, session_id: str) -> str:
        """The id of the session's last message, or ""."""
        rows = self._rows(session_id)
        return _text(rows[-1].name) if rows else ""


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _content(value: object) -> str:
    """A message's text; of content in parts, the texts of its parts."""
    text = _text(value)
    marker = "\0json:"
    text = text.removeprefix(marker)
    if not text.startswith("["):
        return text
    import json

    try:
        parts = json.loads(text)
    except ValueError:
        return text
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        return text
    return "\n".join(str(part.get("text", "")) for part in parts if part.get("text"))


def _ms(value: object) -> int:
    """A time of the host (seconds, or milliseconds) in milliseconds; 0 for none."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if value > 1e11 else int(value * 1000)
