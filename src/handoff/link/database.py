"""The SQLite file of a brain's nodes: opened, made, and changed in one transaction a call."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from importlib import resources

from handoff.errors import SchemaTooNew, StorageError, StorageFull
from handoff.link.files import make_folder

__all__ = ["Database"]

SCHEMA_VERSION = 1
#: seconds for which one process waits for another's change, which takes milliseconds
WAIT_S = 15.0


class Database:
    """One file, any number of processes and threads. Each write is one immediate
    transaction: what was read in it can't change before it commits.

    Raises:
        StorageError: the file can't be opened.
        SchemaTooNew: a newer Handoff wrote it.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self._lock = threading.Lock()
        make_folder(os.path.dirname(self.path))
        with self._typed(), self._alone():
            # SQLite gives its -wal and -shm files the mode of the database file.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(
                self.path, timeout=WAIT_S, isolation_level=None, check_same_thread=False
            )
            self._db.row_factory = sqlite3.Row
            self._prepare()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view."""
        with self._lock, self._typed():
            self._db.execute("BEGIN")
            try:
                yield self._db
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One change, whole or not at all."""
        with self._lock, self._typed():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                if self._db.in_transaction:  # a full disk has rolled back already
                    self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Making the file, and its journal mode, is one process's business at a time."""
        lock = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            self._db.close()
            raise SchemaTooNew(
                f"{self.path} was written by a newer Handoff (schema {version})",
                remedy="install that version again",
                path=self.path,
            )
        if version == 0:
            script = resources.files("handoff.link").joinpath("schema.sql").read_text("utf-8")
            self._db.executescript(
                f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {SCHEMA_VERSION};\nCOMMIT;"
            )

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            said = str(error)
            if "full" in said:
                raise StorageFull(
                    f"no space left to write {self.path}", remedy="df -h", path=self.path
                ) from error
            raise StorageError(f"{self.path} can't be used: {said}", path=self.path) from error
        except OSError as error:
            said = error.strerror or str(error)
            raise StorageError(f"{self.path} can't be used: {said}", path=self.path) from error
