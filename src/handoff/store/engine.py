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
thread goes on: as soon as the disk has room again, writes succeed again.

A function must not begin, commit or roll back by itself: it gets ``not authorized``.

A *read* is a function of a connection that can only read; all that it reads is of one
moment. Readers never wait for the writer, nor it for them.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from handoff.crashpoints import reach
from handoff.errors import StorageError
from handoff.store import migrate
from handoff.store.connection import connect, connect_read_only, create_file, storage_error

if TYPE_CHECKING:
    from handoff.clock import Clock

T = TypeVar("T")

#: functions in one transaction at most: bounds what a failed commit takes back
GROUP_MAX = 512

#: seconds after which a group is committed even if more waits: bounds the wait of its first
GROUP_SECONDS = 0.02

# Our own statements carry a comment: SQLite asks the authorizer when a statement is
# prepared, and ours must not be found in the statement cache by a function's "COMMIT".
_BEGIN = "BEGIN IMMEDIATE /* group */"
_COMMIT = "COMMIT /* group */"
_ROLLBACK = "ROLLBACK /* group */"
_SAVEPOINT = "SAVEPOINT one /* group */"
_RELEASE = "RELEASE one /* group */"
_UNDO = "ROLLBACK TO one /* group */"


class Stats(NamedTuple):
    """Figures since the store was opened.

    ``writes`` functions committed; ``refused`` functions that raised or whose caller was
    cancelled before they ran; ``groups`` transactions committed; ``failed_groups`` transactions lost; ``largest_group``
    functions; ``waiting`` functions now in the queue; ``busy_s`` seconds the writer spent
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


class _Call:
    """One function that waits for the writer, and then its outcome."""

    __slots__ = ("done", "error", "fn", "future", "loop", "value")

    def __init__(
        self,
        fn: Callable[[sqlite3.Connection], object],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.fn = fn
        self.loop = loop
        self.future: asyncio.Future[object] | None = loop.create_future() if loop else None
        self.done = None if loop else threading.Event()
        self.value: object = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Hand the outcome to a coroutine; in its loop's thread."""
        assert self.future is not None
        if self.future.done():  # cancelled while it waited
            return
        if self.error is None:
            self.future.set_result(self.value)
        else:
            self.future.set_exception(self.error)


class _Reader:
    """A thread's read-only connection; closed with its thread or with the store."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self.conn = conn
        self.lock = threading.RLock()  # held while in use: close() waits for it

    def close(self) -> None:
        with self.lock:
            self.conn.close()

    def __del__(self) -> None:
        self.conn.close()


def _settle_all(calls: list[_Call]) -> None:
    for call in calls:
        call.settle()


class Store:
    """The database of one machine. Made by :meth:`open`; safe to use from any thread.

    Attributes:
        path: the database file.
        on_commit: called in the writer thread with ``"before_commit"`` and
            ``"after_commit"`` (before anybody learns of it) of every group, for fault
            tests. An exception from the first fails the group; the second must not raise.
    """

    def __init__(self, path: Path, conn: sqlite3.Connection, schema: int, clock: Clock) -> None:
        self.path = path
        self.on_commit: Callable[[str], None] | None = None
        self._clock = clock
        self._schema = schema
        self._conn: sqlite3.Connection | None = conn
        self._file = _identity(path)
        self._guarded = False  # a caller's function runs: no transaction statements
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # nothing is queued after closing has begun
        self._closed = False
        self._opening = threading.Lock()  # no reader is opened after closing has begun
        self._local = threading.local()
        self._readers: weakref.WeakSet[_Reader] = weakref.WeakSet()
        self._pool: ThreadPoolExecutor | None = None
        self._writes = self._refused = self._groups = self._failed = self._largest = 0
        self._busy_s = 0.0
        conn.set_authorizer(self._authorize)
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

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
            raise _typed(exc, path) from exc
        try:
            schema = migrate.apply(conn, clock.now_ms, known)
        except BaseException as exc:
            conn.close()
            if isinstance(exc, sqlite3.Error):
                raise _typed(exc, path) from exc
            raise
        return cls(path, conn, schema, clock)

    def close(self) -> None:
        """Commit what was handed over, copy the WAL into the database, close everything.

        Later calls do nothing. Must not be called from inside a write or a read.
        """
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        if self._pool is not None:
            self._pool.shutdown()
        with self._opening:
            readers = list(self._readers)
        for reader in readers:
            reader.close()
        if self._conn is not None:
            try:
                self._conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
            except sqlite3.Error:
                pass  # the WAL holds everything; the next open reads it
            self._conn.close()
            self._conn = None

    # -- writing -------------------------------------------------------------------------

    async def write(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``fn`` in the writer thread; returns its result once it is durable.

        A call that is cancelled while it waits is applied wholly or not at all.

        Raises:
            StorageError: (or StorageFull) the group could not be committed: nothing of
                ``fn`` was applied.
            Exception: whatever ``fn`` raised; what it did was taken back.
        """
        call = _Call(fn, asyncio.get_running_loop())
        assert call.future is not None
        self._submit(call)
        return cast("T", await call.future)

    def write_sync(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """As :meth:`write`, for threads that run no event loop."""
        call = _Call(fn, None)
        assert call.done is not None
        self._submit(call)
        call.done.wait()
        if call.error is not None:
            raise call.error
        return cast("T", call.value)

    def _submit(self, call: _Call) -> None:
        if threading.current_thread() is self._thread:
            raise StorageError("a write was asked for inside a write")
        with self._gate:
            self._check_open()
            self._queue.put(call)

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"{self.path} is closed")

    # -- reading -------------------------------------------------------------------------

    def reader(self) -> sqlite3.Connection:
        """The read-only connection of the calling thread, for use before the store is closed.

        Read a cursor to its end or drop it: while one is half read, the thread's later
        queries see the moment at which it began.

        Raises:
            StorageError: the store is closed, or the file can't be opened.
        """
        return self._reader().conn

    def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``fn`` in this thread on one consistent snapshot; returns its result.

        Raises:
            StorageError: the store is closed, or the file can't be read.
            Exception: whatever ``fn`` raised.
        """
        reader = self._reader()
        with reader.lock:
            self._check_open()
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
        with self._gate:
            self._check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(2, thread_name_prefix="store-reader")
            future = self._pool.submit(self.read, fn)
        return await asyncio.wrap_future(future)

    def _reader(self) -> _Reader:
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            with self._opening:
                self._check_open()
                try:
                    reader = _Reader(connect_read_only(self.path))
                except sqlite3.Error as exc:
                    raise _typed(exc, self.path) from exc
                self._readers.add(reader)
            self._local.reader = reader
        return reader

    # -- upkeep --------------------------------------------------------------------------

    def backup(self, target: Path) -> None:
        """Write a consistent copy to ``target`` (mode 0600) while others go on writing.

        Raises:
            StorageError: the target exists or can't be written.
        """
        self._check_open()
        if target.exists():
            raise StorageError(f"{target} exists already")
        try:
            create_file(target)
            with closing(connect_read_only(self.path)) as source:
                with closing(sqlite3.connect(target, isolation_level=None)) as copy:
                    source.backup(copy)  # in one step: one snapshot
        except (OSError, sqlite3.Error) as exc:
            target.unlink(missing_ok=True)
            raise _typed(exc, target) from exc

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
            writes=self._writes,
            refused=self._refused,
            groups=self._groups,
            failed_groups=self._failed,
            largest_group=self._largest,
            waiting=self._queue.qsize(),
            busy_s=self._busy_s,
            database_bytes=_size(self.path),
            wal_bytes=_size(self.path.with_name(self.path.name + "-wal")),
            schema=self._schema,
        )

    # -- the writer thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            stopping = False
            while not stopping:
                call = self._queue.get()
                if call is None:
                    return
                stopping = self._group(call)
        finally:  # also if the thread dies of something unforeseen: nobody may wait for ever
            with self._gate:
                self._closed = True
            self._refuse_rest()

    def _refuse_rest(self) -> None:
        rest: list[_Call] = []
        while not self._queue.empty():
            call = self._queue.get()
            if call is not None:
                call.error = StorageError(f"the writer of {self.path} has ended")
                rest.append(call)
        self._answer(rest)

    def _group(self, first: _Call) -> bool:
        """Run and commit one group that begins with ``first``; True if the end was asked for."""
        started = self._clock.monotonic()
        calls: list[_Call] = []
        last = False
        try:
            conn = self._ready()
            conn.execute(_BEGIN)
            call: _Call | None = first
            while call is not None:
                calls.append(call)
                self._run_one(conn, call)
                if len(calls) >= GROUP_MAX or self._clock.monotonic() - started > GROUP_SECONDS:
                    break
                try:
                    call = self._queue.get_nowait()
                except queue.Empty:
                    break
                last = call is None
            reach("store.before_commit")
            self._tell("before_commit")
            conn.execute(_COMMIT)
            refused = sum(1 for c in calls if c.error is not None)
            self._groups += 1
            self._refused += refused
            self._writes += len(calls) - refused
            self._largest = max(self._largest, len(calls))
        except BaseException as exc:  # whatever it is, somebody waits for an answer
            self._failed += 1
            calls = calls or [first]
            self._give_up(calls, exc)
        else:
            reach("store.after_commit")
            self._tell("after_commit")
        self._busy_s += self._clock.monotonic() - started
        self._answer(calls)
        return last

    def _run_one(self, conn: sqlite3.Connection, call: _Call) -> None:
        """Run one function in its savepoint; its exception becomes its outcome."""
        if call.future is not None and call.future.cancelled():
            call.error = asyncio.CancelledError()
            return
        conn.execute(_SAVEPOINT)
        try:
            self._guarded = True
            try:
                call.value = call.fn(conn)
            finally:
                self._guarded = False
        except BaseException as exc:
            call.error = _presentable(exc, self.path)
            if not conn.in_transaction:
                raise  # SQLite gave up the whole transaction: the group is lost
            conn.execute(_UNDO)
        if not conn.in_transaction:
            raise StorageError("a write ended the transaction that it was part of")
        conn.execute(_RELEASE)

    def _tell(self, moment: str) -> None:
        if self.on_commit is not None:
            self.on_commit(moment)

    def _give_up(self, calls: list[_Call], exc: BaseException) -> None:
        """Take the group back and give each of its calls an error of its own."""
        try:
            if self._conn is not None and self._conn.in_transaction:
                self._conn.execute(_ROLLBACK)
            if self._conn is not None and isinstance(exc, sqlite3.OperationalError):
                # A commit that failed while it was synced may stand whole in the WAL, where
                # nobody sees it but a process that has to recover. Empty the WAL if we can;
                # if not, the next commit overwrites it.
                self._conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        except sqlite3.Error:
            # not even that: closing the connection drops what was not committed
            if self._conn is not None:
                self._conn.close()
            self._conn = None
        for call in calls:
            if call.error is None:  # else it was refused before, for a reason of its own
                call.error = _typed(exc, self.path)
                call.error.__cause__ = exc

    def _answer(self, calls: list[_Call]) -> None:
        """Hand out the outcomes: one wake-up an event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
        for call in calls:
            if call.loop is not None:
                by_loop.setdefault(call.loop, []).append(call)
            elif call.done is not None:
                call.done.set()
        for loop, group in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle_all, group)
            except RuntimeError:
                pass  # that loop is closed: nobody waits there any more

    def _ready(self) -> sqlite3.Connection:
        """The connection, reopened if it was lost.

        Raises:
            StorageError: the database file is no longer the one that was opened; a write
                to it would be acknowledged and never seen again.
        """
        if _identity(self.path) != self._file:
            raise StorageError(
                f"{self.path} was removed or replaced while in use; put it back, or restart agentd"
            )
        if self._conn is None:
            self._conn = connect(self.path)
            self._conn.set_authorizer(self._authorize)
        return self._conn

    def _authorize(self, action: int, *_: str | None) -> int:
        if self._guarded and action in {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT}:
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


def _presentable(exc: BaseException, path: Path) -> BaseException:
    """What the caller of a function gets for what the function raised."""
    if isinstance(exc, StopIteration):  # a future refuses it, a coroutine can't raise it
        error: BaseException | None = RuntimeError("a write raised StopIteration")
    else:
        error = storage_error(exc, path)
    if error is None:
        return exc
    error.__cause__ = exc
    return error


def _typed(exc: BaseException, path: Path) -> StorageError:
    """The storage error for what ended a whole operation, each time a fresh one."""
    if isinstance(exc, StorageError):
        return type(exc)(exc.cause, remedy=exc.remedy, **exc.details)
    return storage_error(exc, path) or StorageError(f"{path}: {exc}")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return None
    return facts.st_dev, facts.st_ino


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
