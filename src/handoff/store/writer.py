"""The thread that writes: functions in, one commit for as many as wait, outcomes out."""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from handoff.crashpoints import reach
from handoff.errors import StorageError
from handoff.store.connection import AUTOCHECKPOINT_PAGES, storage_error, typed_error

if TYPE_CHECKING:
    from handoff.clock import Clock

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


class Call:
    """One function that waits for the writer, and then its outcome.

    With ``loop``: the outcome goes to ``future``. Without: ``done`` is set.
    """

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


def _settle_all(calls: list[Call]) -> None:
    for call in calls:
        call.settle()


class Writer:
    """Owns the connection that writes, from when it is made until :meth:`stop` returned.

    Attributes:
        on_commit: see :class:`handoff.store.engine.Store`.
        writes, refused, groups, failed, largest, busy_s: see
            :class:`handoff.store.engine.Stats`.
    """

    def __init__(self, path: Path, conn: sqlite3.Connection, schema: int, clock: Clock) -> None:
        self.on_commit: Callable[[str], None] | None = None
        self.writes = self.refused = self.groups = self.failed = self.largest = 0
        self.busy_s = 0.0
        self._path = path
        self._conn = conn
        self._schema = schema
        self._clock = clock
        self._file = identity(path)
        self._dirty = False  # a commit failed and may still stand in the WAL
        self._guarded = False  # a caller's function runs: no transaction statements
        self._queue: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # nothing is queued after stopping has begun
        self._stopped = False
        conn.set_authorizer(self._authorize)
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Functions in the queue now."""
        return self._queue.qsize()

    def submit(self, call: Call) -> None:
        """Hand a function over.

        Raises:
            StorageError: the store is closed, or this is the writer's own thread.
        """
        if threading.current_thread() is self._thread:
            raise StorageError("a write was asked for inside a write")
        with self._gate:
            if self._stopped:
                raise StorageError(f"{self._path} is closed")
            self._queue.put(call)

    def stop(self) -> None:
        """Commit what was handed over, copy the WAL into the database, close it."""
        with self._gate:
            if not self._stopped:
                self._stopped = True
                self._queue.put(None)
        self._thread.join()
        try:
            self._conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        except sqlite3.Error:
            pass  # the WAL holds everything; the next open reads it
        self._conn.close()

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
                self._stopped = True
            self._refuse_rest()

    def _refuse_rest(self) -> None:
        rest: list[Call] = []
        while not self._queue.empty():
            call = self._queue.get()
            if call is not None:
                call.error = StorageError(f"the writer of {self._path} has ended")
                rest.append(call)
        self._answer(rest)

    def _group(self, first: Call) -> bool:
        """Run and commit one group that begins with ``first``; True if the end was asked for."""
        started = self._clock.monotonic()
        calls: list[Call] = []
        last = committing = False
        try:
            conn = self._ready()
            conn.execute(_BEGIN)
            call: Call | None = first
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
            committing = True
            conn.execute(_COMMIT)
            refused = sum(1 for c in calls if c.error is not None)
            self.groups += 1
            self.refused += refused
            self.writes += len(calls) - refused
            self.largest = max(self.largest, len(calls))
        except BaseException as exc:  # whatever it is, somebody waits for an answer
            self.failed += 1
            calls = calls or [first]
            self._give_up(calls, exc, committing=committing)
        else:
            reach("store.after_commit")
            self._tell("after_commit")
        self.busy_s += self._clock.monotonic() - started
        self._answer(calls)
        return last

    def _run_one(self, conn: sqlite3.Connection, call: Call) -> None:
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
            call.error = _presentable(exc, self._path)
            if not conn.in_transaction:
                raise  # SQLite gave up the whole transaction: the group is lost
            conn.execute(_UNDO)
        if not conn.in_transaction:
            raise StorageError("a write ended the transaction that it was part of")
        conn.execute(_RELEASE)

    def _tell(self, moment: str) -> None:
        if self.on_commit is not None:
            self.on_commit(moment)

    def _give_up(self, calls: list[Call], exc: BaseException, *, committing: bool) -> None:
        """Take the group back and give each of its calls an error of its own."""
        self._dirty = self._dirty or committing
        try:
            self._clean()
        except sqlite3.Error:
            pass  # tried again before the next group; the callers get the first error
        for call in calls:
            if call.error is None:  # else it was refused before, for a reason of its own
                call.error = typed_error(exc, self._path)
                call.error.__cause__ = exc
                if self._dirty:
                    call.error.details["unknown"] = True

    def _erase(self, conn: sqlite3.Connection) -> None:
        """Make sure that a commit which failed is gone for good.

        If it failed in its last step, the sync, it stands whole in the WAL: nobody sees it,
        but a process that has to recover would take it for committed. An empty commit
        overwrites it, and without a sync it needs no more than a write that succeeds.
        """
        conn.execute("PRAGMA wal_autocheckpoint = 0").close()
        conn.execute("PRAGMA synchronous = OFF").close()
        try:
            conn.execute(_BEGIN)
            conn.execute(f"PRAGMA user_version = {self._schema}")
            conn.execute(_COMMIT)
            self._dirty = False
        finally:
            if conn.in_transaction:
                conn.execute(_ROLLBACK)
            conn.execute("PRAGMA synchronous = FULL").close()
            conn.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}").close()

    def _answer(self, calls: list[Call]) -> None:
        """Hand out the outcomes: one wake-up an event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Call]] = {}
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
        """The connection, with nothing left on it of a group that failed.

        Raises:
            sqlite3.Error: that is not possible yet.
            StorageError: the database file is no longer the one that was opened; a write
                to it would be acknowledged and never seen again.
        """
        if identity(self._path) != self._file:
            raise StorageError(
                f"{self._path} was removed or replaced while in use; put it back, or restart agentd"
            )
        self._clean()
        return self._conn

    def _clean(self) -> None:
        if self._conn.in_transaction:
            self._conn.execute(_ROLLBACK)
        if self._dirty:
            self._erase(self._conn)

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


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file, None if it is gone."""
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return None
    return facts.st_dev, facts.st_ino
