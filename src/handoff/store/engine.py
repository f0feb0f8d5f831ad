"""The store: one SQLite database, one thread that writes, as many readers as there are threads.

Theory of operation
-------------------
A *write* is a function of a connection. The writer thread takes the functions in the order
in which they were handed over, runs each in a savepoint of one shared transaction, and
commits when nothing more waits or the group is large enough. Only after the commit is any
result handed out, so a result in hand means that it is on the medium (``synchronous=FULL``).
One sync of the disk is shared by the group: with a hundred producers this is worth a factor
of five to ten.

A function that raises loses its own savepoint and nothing else; its caller gets the
exception. If the commit fails, or SQLite had to give up the transaction, every function of
the group gets a :class:`~handoff.errors.StorageError` and none of them was applied. The
thread goes on: as soon as the disk has room again, writes succeed again. (A disk so sick
that not even the failed commit could be overwritten leaves it open whether the next start
finds it: the error's details then hold ``unknown``.)

A function must not begin, commit or roll back by itself: it gets ``not authorized``.

A *read* is a function of a connection that can only read; all that it reads is of one
moment. Readers never wait for the writer, nor it for them.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from handoff.errors import StorageError
from handoff.store import migrate
from handoff.store.connection import (
    connect,
    connect_read_only,
    create_file,
    storage_error,
    typed_error,
)
from handoff.store.readers import Readers
from handoff.store.writer import Call, Writer

if TYPE_CHECKING:
    from handoff.clock import Clock

T = TypeVar("T")


class Stats(NamedTuple):
    """Figures since the store was opened.

    ``writes`` functions committed; ``refused`` functions that raised or whose caller was
    cancelled before they ran; ``groups`` transactions committed; ``failed_groups``
    transactions lost; ``largest_group`` functions; ``waiting`` functions now in the queue; ``busy_s`` seconds the writer spent
    in groups; ``database_bytes`` and ``wal_bytes`` on disk; ``schema`` version.
    """

    writes: int
    refused: int
    groups: int
    failed_groups: int
    largest_group: int
    waiting: int
    busy_s: float
    database_bytes: int
    wal_bytes: int
    schema: int


class Store:
    """The database of one machine. Made by :meth:`open`; safe to use from any thread.

    Attributes:
        path: the database file.
    """

    def __init__(self, path: Path, conn: sqlite3.Connection, schema: int, clock: Clock) -> None:
        self.path = path
        self._schema = schema
        self._writer = Writer(path, conn, schema, clock)
        self._readers = Readers(path)
        self._pool: ThreadPoolExecutor | None = None
        self._closing = threading.Lock()
        self._closed = False

    @property
    def on_commit(self) -> Callable[[str], None] | None:
        """Called in the writer thread with ``"before_commit"`` and ``"after_commit"``
        (before anybody learns of it) of every group, for fault tests. An exception from the
        first fails the group; the second must not raise."""
        return self._writer.on_commit

    @on_commit.setter
    def on_commit(self, hook: Callable[[str], None] | None) -> None:
        self._writer.on_commit = hook

    # -- opening and closing -------------------------------------------------------------

    @classmethod
    def open(cls, path: Path, *, clock: Clock, migrations: Path = migrate.MIGRATIONS) -> Store:
        """Open the database, making it and its folder (private to the owner) if needed, and
        bring its schema up to date.

        Raises:
            SchemaTooNew: a newer Handoff wrote it.
            StorageFull: no space left.
            StorageError: it can't be read or written, is damaged, or is another program's.
        """
        known = migrate.load(migrations)
        try:
            create_file(path)
            conn = connect(path)
        except (OSError, sqlite3.Error) as exc:
            raise typed_error(exc, path) from exc
        try:
            schema = migrate.apply(conn, clock.now_ms, known)
        except BaseException as exc:
            conn.close()
            if isinstance(exc, sqlite3.Error):
                raise typed_error(exc, path) from exc
            raise
        return cls(path, conn, schema, clock)

    def close(self) -> None:
        """Commit what was handed over, copy the WAL into the database, close everything.

        Later calls do nothing. Must not be called from inside a write or a read.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
        if self._pool is not None:
            self._pool.shutdown()
        self._readers.close()
        self._writer.stop()

    # -- writing -------------------------------------------------------------------------

    async def write(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``fn`` in the writer thread; returns its result once it is durable.

        A call that is cancelled while it waits is applied wholly or not at all.

        Raises:
            StorageError: (or StorageFull) the group could not be committed: nothing of
                ``fn`` was applied.
            Exception: whatever ``fn`` raised; what it did was taken back.
        """
        call = Call(fn, asyncio.get_running_loop())
        assert call.future is not None
        self._writer.submit(call)
        return cast("T", await call.future)

    def write_sync(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """As :meth:`write`, for threads that run no event loop."""
        call = Call(fn, None)
        assert call.done is not None
        self._writer.submit(call)
        call.done.wait()
        if call.error is not None:
            raise call.error
        return cast("T", call.value)

    # -- reading -------------------------------------------------------------------------

    def reader(self) -> sqlite3.Connection:
        """The read-only connection of the calling thread, for use before the store is closed.

        Read a cursor to its end or drop it: while one is half read, the thread's later
        queries see the moment at which it began.

        Raises:
            StorageError: the store is closed, or the file can't be opened.
        """
        return self._readers.mine().conn

    def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``fn`` in this thread on one consistent snapshot; returns its result.

        Raises:
            StorageError: the store is closed, or the file can't be read.
            Exception: whatever ``fn`` raised.
        """
        reader = self._readers.mine()
        with reader.lock:
            self._readers.check_open()
            conn = reader.conn
            if conn.in_transaction:  # a read inside a read: the same snapshot
                return fn(conn)
            try:
                conn.execute("BEGIN")
                try:
                    return fn(conn)
                finally:
                    if conn.in_transaction:
                        conn.execute("COMMIT")
            except sqlite3.Error as exc:
                typed = storage_error(exc, self.path)
                if typed is None:
                    raise
                raise typed from exc

    async def read_async(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """As :meth:`read`, in a thread of its own: for reads of more than a few rows."""
        with self._closing:
            self._readers.check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(2, thread_name_prefix="store-reader")
            future = self._pool.submit(self.read, fn)
        return await asyncio.wrap_future(future)

    # -- upkeep --------------------------------------------------------------------------

    def backup(self, target: Path) -> None:
        """Write a consistent copy to ``target`` (mode 0600) while others go on writing.

        Raises:
            StorageError: the target exists or can't be written.
        """
        self._readers.check_open()
        if target.exists():
            raise StorageError(f"{target} exists already")
        try:
            create_file(target)
            with closing(connect_read_only(self.path)) as source:
                with closing(sqlite3.connect(target, isolation_level=None)) as copy:
                    source.backup(copy)  # in one step: one snapshot
        except (OSError, sqlite3.Error) as exc:
            target.unlink(missing_ok=True)
            raise typed_error(exc, target) from exc

    def check(self) -> list[str]:
        """What SQLite finds wrong with the whole database; empty if nothing. Reads all of it."""

        def look(conn: sqlite3.Connection) -> list[str]:
            found = [str(row[0]) for row in conn.execute("PRAGMA integrity_check(20)")]
            found = [] if found == ["ok"] else found
            for row in conn.execute("PRAGMA foreign_key_check").fetchmany(20):
                found.append(f"row {row[1]} of '{row[0]}' has no '{row[2]}'")
            return found

        return self.read(look)

    def stats(self) -> Stats:
        """Figures for ``status`` and the benchmarks."""
        return Stats(
            writes=self._writer.writes,
            refused=self._writer.refused,
            groups=self._writer.groups,
            failed_groups=self._writer.failed,
            largest_group=self._writer.largest,
            waiting=self._writer.waiting,
            busy_s=self._writer.busy_s,
            database_bytes=_size(self.path),
            wal_bytes=_size(self.path.with_name(self.path.name + "-wal")),
            schema=self._schema,
        )


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
