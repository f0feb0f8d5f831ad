"""One SQLite file of calls and what came of them: what a brain's and a node's have in common.

A call is a row of ``calls``: ``key``, ``at_ms``, ``args``, ``state`` (``done`` at last), ``ok``
and ``answer``. Nothing is synced for each call: the process may die at any moment and loses
nothing; of the machine's death the boot id tells, see :mod:`handoff.nodes.brain.journal`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

from handoff.errors import SchemaTooNew, StorageError, StorageFull

__all__ = ["KEPT_MS", "CallFile"]

#: calls that are remembered however old they seem
ALWAYS = 1_000
KEPT_MS = 14 * 24 * 3600 * 1000
#: characters of one stored answer
LIMIT = 1 << 20


class CallFile:
    """One file, used by one process.

    Raises (all methods):
        StorageFull, StorageError: the file can't be read or written.
    """

    #: the whole schema, which sets ``user_version``, and that version
    schema: ClassVar[str]
    version: ClassVar[int] = 1
    #: answered calls that are remembered
    kept: ClassVar[int]
    #: what helps against a file that is damaged, and against one of a newer version
    remedy: ClassVar[str]
    upgrade: ClassVar[str]

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        with self._typed():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > self.version:
            raise SchemaTooNew(
                f"{self._path} was written by a newer version", remedy=self.upgrade, path=self._path
            )
        if not version:
            self._db.executescript("BEGIN;" + self.schema + "COMMIT;")

    def end(self, key: str, *, ok: bool, answer: dict[str, Any]) -> None:
        """What came of a call. An answer that is too large is kept without its content."""
        text = json.dumps(answer, separators=(",", ":"))
        if len(text) > LIMIT:
            short = {name: value for name, value in answer.items() if name != "data"}
            text = json.dumps({**short, "note": "the content was too large to be kept"})
        with self._lock, self._typed():
            self._db.execute(
                "UPDATE calls SET state='done', ok=?, answer=? WHERE key=?", (int(ok), text, key)
            )

    def drop(self, key: str) -> None:
        """Forget a call of which nothing was done, so that its key may be used again."""
        with self._lock, self._typed():
            self._db.execute("DELETE FROM calls WHERE key=?", (key,))

    def prune(self, now_ms: int) -> int:
        """Forget the oldest answered calls beyond what is kept. Returns how many.

        Age alone forgets nothing: a clock that jumps makes what was done a minute ago look
        old, and a call that is forgotten would run again if somebody asked for it.
        """
        with self._lock, self._typed():
            return self._db.execute(
                "DELETE FROM calls WHERE state='done' AND ("
                " (at_ms < ? AND key NOT IN (SELECT key FROM calls ORDER BY at_ms DESC LIMIT ?))"
                " OR key NOT IN (SELECT key FROM calls ORDER BY at_ms DESC LIMIT ?))",
                (now_ms - KEPT_MS, ALWAYS, self.kept),
            ).rowcount

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            if "full" in text or "disk I/O" in text:
                raise StorageFull(
                    f"{self._path}: {text}", remedy="df -h -i", path=self._path
                ) from error
            raise StorageError(
                f"{self._path}: {text}", remedy=self.remedy, path=self._path
            ) from error
        except OSError as error:
            raise StorageError(
                f"{self._path}: {error.strerror}", remedy=f"ls -l {self._path}", path=self._path
            ) from error
