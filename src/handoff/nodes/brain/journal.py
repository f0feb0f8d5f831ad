"""What a brain asked of its nodes, kept so that nothing is asked twice.

A call is written down before it is sent, with the installation and boot of the node that it
goes to. Whoever asks again with the key gets the stored answer; a call whose link was lost
is asked about when the node is back. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from handoff.errors import RequestConflict, SchemaTooNew, StorageError, StorageFull
from handoff.link.files import make_folder

__all__ = ["BrainJournal", "Sent"]

KEPT = 50_000
ALWAYS = 1_000
KEPT_MS = 14 * 24 * 3600 * 1000
LIMIT = 1 << 20
_VERSION = 1
_SCHEMA = """
CREATE TABLE calls (
  key TEXT PRIMARY KEY, node TEXT NOT NULL, op TEXT NOT NULL, digest TEXT NOT NULL,
  args TEXT NOT NULL, by TEXT NOT NULL, at_ms INTEGER NOT NULL,
  instance TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('sent', 'done')),
  ok INTEGER, answer TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX calls_open ON calls (node, state);
CREATE INDEX calls_age ON calls (at_ms);
PRAGMA user_version = 1;
"""


class Sent(NamedTuple):
    """A call that is known. ``state``: ``sent`` or ``done``. ``instance``: the node's
    installation and boot at the time."""

    key: str
    node: str
    op: str
    digest: str
    args: dict[str, Any]
    by: str
    at_ms: int
    instance: str
    state: str
    ok: bool
    answer: dict[str, Any]


_COLUMNS = "key, node, op, digest, args, by, at_ms, instance, state, ok, answer"


class BrainJournal:
    """One file of one brain.

    Raises (all methods):
        StorageFull, StorageError: the file can't be read or written.
    """

    def __init__(self, path: str) -> None:
        import os

        self._path = path
        self._lock = threading.Lock()
        make_folder(os.path.dirname(path))
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
        # a brain that loses this with its machine can't say that a call was not made: the
        # caller's key is then new here, and the node is the one that knows
        self._db.execute("PRAGMA synchronous=NORMAL")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise SchemaTooNew(f"{self._path} is of a newer version", remedy="upgrade handoffd")
        if not version:
            self._db.executescript("BEGIN;" + _SCHEMA + "COMMIT;")

    def begin(
        self,
        key: str,
        node: str,
        op: str,
        digest: str,
        args: dict[str, Any],
        by: str,
        now_ms: int,
        instance: str,
    ) -> Sent | None:
        """Note a call that is about to be sent. None: it is new. Otherwise what is known.

        Raises:
            RequestConflict: the key was used for another call, or for another node.
        """
        with self._lock, self._typed():
            new = self._db.execute(
                "INSERT INTO calls (key, node, op, digest, args, by, at_ms, instance, state)"
                " VALUES (?,?,?,?,?,?,?,?,'sent') ON CONFLICT (key) DO NOTHING",
                (key, node, op, digest, json.dumps(args), by, now_ms, instance),
            )
            if new.rowcount:
                return None
            found = self._find(key)
            assert found is not None
        if (found.digest, found.node) != (digest, node):
            raise RequestConflict(
                f"the key {key} was used for another call", remedy="use a new key", key=key
            )
        return found

    def move(self, key: str, instance: str) -> None:
        """The call is sent anew: the node had never seen it."""
        with self._lock, self._typed():
            self._db.execute("UPDATE calls SET instance=? WHERE key=?", (instance, key))

    def rename(self, node: str, to: str) -> None:
        """A node has another name."""
        with self._lock, self._typed():
            self._db.execute("UPDATE calls SET node=? WHERE node=?", (to, node))

    def end(self, key: str, *, ok: bool, answer: dict[str, Any]) -> None:
        """What came of it."""
        text = json.dumps(answer, separators=(",", ":"))
        if len(text) > LIMIT:
            short = {name: value for name, value in answer.items() if name != "data"}
            text = json.dumps({**short, "note": "the content was too large to be kept"})
        with self._lock, self._typed():
            self._db.execute(
                "UPDATE calls SET state='done', ok=?, answer=? WHERE key=?", (int(ok), text, key)
            )

    def drop(self, key: str) -> None:
        """Forget a call of which nothing was done."""
        with self._lock, self._typed():
            self._db.execute("DELETE FROM calls WHERE key=?", (key,))

    def find(self, key: str) -> Sent | None:
        """What is known of a call."""
        with self._lock, self._typed():
            return self._find(key)

    def open_calls(self, node: str) -> list[Sent]:
        """The calls to a node that have no answer, the oldest first."""
        with self._lock, self._typed():
            rows = self._db.execute(
                f"SELECT {_COLUMNS} FROM calls WHERE node=? AND state='sent'"  # noqa: S608
                " ORDER BY at_ms, key",
                (node,),
            ).fetchall()
        return [_sent(row) for row in rows]

    def prune(self, now_ms: int) -> int:
        """Forget the oldest answered calls beyond what is kept. Returns how many. Age alone
        forgets nothing: clocks jump."""
        with self._lock, self._typed():
            return self._db.execute(
                "DELETE FROM calls WHERE state='done' AND ("
                " (at_ms < ? AND key NOT IN (SELECT key FROM calls ORDER BY at_ms DESC LIMIT ?))"
                " OR key NOT IN (SELECT key FROM calls ORDER BY at_ms DESC LIMIT ?))",
                (now_ms - KEPT_MS, ALWAYS, KEPT),
            ).rowcount

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._db.close()

    def _find(self, key: str) -> Sent | None:
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM calls WHERE key=?",  # noqa: S608
            (key,),
        ).fetchone()
        return None if row is None else _sent(row)

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            text = str(error)
            cls = StorageFull if "full" in text or "disk I/O" in text else StorageError
            raise cls(f"{self._path}: {text}", remedy="df -h -i", path=self._path) from error
        except OSError as error:
            raise StorageError(f"{self._path}: {error.strerror}", path=self._path) from error


def _sent(row: tuple[Any, ...]) -> Sent:
    key, node, op, digest, args, by, at_ms, instance, state, ok, answer = row
    told = json.loads(answer) if answer else {}
    return Sent(key, node, op, digest, json.loads(args), by, at_ms, instance, state, bool(ok), told)
