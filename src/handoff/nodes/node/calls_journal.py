"""Which calls a node has taken, and what came of them: kept on disk before anything runs.

A key that was seen is never carried out again: its stored answer is given, or it is said
to run, or to have an outcome that nobody knows. The file is written so that it survives
the death of the process; whoever asks after the death of the machine compares the boot
(``hello`` names it), because a call that this boot has not seen may have run before it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from handoff.errors import RequestConflict
from handoff.nodes.callfile import KEPT_MS, CallFile

__all__ = ["CALLS", "CallsJournal", "Seen"]

#: in a node's folder
CALLS = "calls.sqlite3"

_SCHEMA = """
CREATE TABLE calls (
  key TEXT PRIMARY KEY, digest TEXT NOT NULL, op TEXT NOT NULL, at_ms INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'done')),
  args TEXT NOT NULL DEFAULT '{}', ok INTEGER, answer TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX calls_age ON calls (at_ms);
CREATE TABLE asks (
  id TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, shown TEXT NOT NULL, at_ms INTEGER NOT NULL,
  verdict TEXT CHECK (verdict IN ('allow', 'deny')), used_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE uploads (
  name TEXT PRIMARY KEY, path BLOB NOT NULL, at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
"""


class Seen(NamedTuple):
    """A call that is known. ``state``: running or done; ``ok`` and ``answer`` once it is done:
    the JSON of a result, or of a CallFailed. ``args``: the call's, without content."""

    key: str
    digest: str
    op: str
    at_ms: int
    state: str
    ok: bool
    answer: dict[str, Any]
    args: dict[str, Any]


class CallsJournal(CallFile):
    """One file, used by the node's process alone."""

    schema = _SCHEMA
    kept = 20_000
    remedy = "hermes-node doctor"
    upgrade = "upgrade hermes-node on this machine"

    def begin(
        self, key: str, digest: str, op: str, now_ms: int, args: Mapping[str, Any] | None = None
    ) -> Seen | None:
        """Take a call. None: it is new, and noted as running. Otherwise what is known of it.

        Raises:
            RequestConflict: the key was used for another call.
        """
        with self._lock, self._typed():
            new = self._db.execute(
                "INSERT INTO calls (key, digest, op, at_ms, state, args)"
                " VALUES (?,?,?,?,'running',?) ON CONFLICT (key) DO NOTHING",
                (key, digest, op, now_ms, json.dumps(args or {})),
            )
            if new.rowcount:
                return None
            found = self._find(key)
            assert found is not None
        if found.digest != digest:
            raise RequestConflict(
                f"the key {key} was used for another call", remedy="use a new key", key=key
            )
        return found

    def find(self, key: str) -> Seen | None:
        """What is known of a call."""
        with self._lock, self._typed():
            return self._find(key)

    def running(self) -> list[Seen]:
        """The calls whose end was not noted, the oldest first."""
        with self._lock, self._typed():
            rows = self._db.execute(
                "SELECT key, digest, op, at_ms, state, ok, answer, args FROM calls"
                " WHERE state='running' ORDER BY at_ms, key"
            ).fetchall()
        return [_seen(row) for row in rows]

    def prune(self, now_ms: int) -> int:
        """Forget the oldest finished calls beyond what is kept, and requests for a person's
        word that are as old. Returns how many calls."""
        with self._lock, self._typed():
            self._db.execute(
                "DELETE FROM asks WHERE at_ms < ? AND coalesce(verdict, '') != 'deny'",
                (now_ms - KEPT_MS,),
            )
        return super().prune(now_ms)

    def ask(self, digest: str, new_id: str, shown: str, now_ms: int) -> tuple[str, str]:
        """Whether a person at the node has ruled on exactly this call: (id, verdict), verdict
        "" while nobody has. An allowance is good for one call, and is used up by this one."""
        with self._lock, self._typed():
            row = self._db.execute(
                "SELECT id, verdict FROM asks WHERE digest=? AND used_ms IS NULL", (digest,)
            ).fetchone()
            if row is None:
                self._db.execute("DELETE FROM asks WHERE digest=?", (digest,))
                self._db.execute(
                    "INSERT INTO asks (id, digest, shown, at_ms) VALUES (?,?,?,?)",
                    (new_id, digest, shown, now_ms),
                )
                return new_id, ""
            if row[1] == "allow":
                self._db.execute("UPDATE asks SET used_ms=? WHERE id=?", (now_ms, row[0]))
            return row[0], row[1] or ""

    def asks(self) -> list[dict[str, Any]]:
        """What waits for a person at the node, the oldest first."""
        with self._lock, self._typed():
            rows = self._db.execute(
                "SELECT id, shown, at_ms FROM asks WHERE verdict IS NULL ORDER BY at_ms, id"
            ).fetchall()
        return [{"id": one[0], "shown": one[1], "at_ms": one[2]} for one in rows]

    def rule(self, ask_id: str, verdict: str) -> bool:
        """A person's ruling. False: nothing of that id waits."""
        with self._lock, self._typed():
            done = self._db.execute(
                "UPDATE asks SET verdict=? WHERE id=? AND verdict IS NULL", (verdict, ask_id)
            )
            return done.rowcount == 1

    def uploading(self, name: str, path: str, now_ms: int) -> None:
        """An upload began, or goes on."""
        with self._lock, self._typed():
            self._db.execute(
                "INSERT INTO uploads (name, path, at_ms) VALUES (?,?,?)"
                " ON CONFLICT (name) DO UPDATE SET path=excluded.path",
                (name, os.fsencode(path), now_ms),
            )

    def upload(self, name: str) -> str | None:
        """Where an upload that is not over goes to."""
        with self._lock, self._typed():
            row = self._db.execute("SELECT path FROM uploads WHERE name=?", (name,)).fetchone()
        return None if row is None else os.fsdecode(row[0])

    def uploaded(self, name: str) -> None:
        """It is over."""
        with self._lock, self._typed():
            self._db.execute("DELETE FROM uploads WHERE name=?", (name,))

    def uploads(self, before_ms: int) -> list[tuple[str, str]]:
        """Name and path of those that began before then."""
        with self._lock, self._typed():
            rows = self._db.execute(
                "SELECT name, path FROM uploads WHERE at_ms < ? ORDER BY at_ms", (before_ms,)
            ).fetchall()
        return [(row[0], os.fsdecode(row[1])) for row in rows]

    def _find(self, key: str) -> Seen | None:
        row = self._db.execute(
            "SELECT key, digest, op, at_ms, state, ok, answer, args FROM calls WHERE key=?", (key,)
        ).fetchone()
        return None if row is None else _seen(row)


def _seen(row: tuple[Any, ...]) -> Seen:
    answer = json.loads(row[6]) if row[6] else {}
    return Seen(row[0], row[1], row[2], row[3], row[4], bool(row[5]), answer, json.loads(row[7]))
