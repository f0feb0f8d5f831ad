"""Read-only connections, one a thread."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from pathlib import Path

from handoff.errors import StorageError
from handoff.store.connection import connect_read_only, typed_error


class Reader:
    """A thread's connection; closed with its thread or with the store."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self.conn = conn
        self.lock = threading.RLock()  # held while in use: close() waits for it

    def close(self) -> None:
        """Close it once nobody reads."""
        with self.lock:
            self.conn.close()

    def __del__(self) -> None:
        self.conn.close()


class Readers:
    """The connections of all threads that have read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._local = threading.local()
        self._all: weakref.WeakSet[Reader] = weakref.WeakSet()
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    def mine(self) -> Reader:
        """The calling thread's.

        Raises:
            StorageError: the store is closed, or the file can't be opened.
        """
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            with self._lock:
                self.check_open()
                try:
                    reader = Reader(connect_read_only(self._path))
                except sqlite3.Error as exc:
                    raise typed_error(exc, self._path) from exc
                self._all.add(reader)
            self._local.reader = reader
        return reader

    def check_open(self) -> None:
        """Raise StorageError after :meth:`close`."""
        if self._closed:
            raise StorageError(f"{self._path} is closed")

    def close(self) -> None:
        """Close all of them, each as soon as its read is over; no more are opened."""
        with self._lock:
            self._closed = True
            every = list(self._all)
        for reader in every:
            reader.close()
