"""What a brain asked of its nodes, kept so that nothing is asked twice.

A call is written down before it is sent, with the installation and boot of the node that it
goes to. Whoever asks again with the key gets the stored answer; a call whose link was lost
is asked about when the node is back. Standard library only.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from handoff.errors import RequestConflict
from handoff.link.files import make_folder
from handoff.nodes.callfile import CallFile

__all__ = ["BrainJournal", "Sent"]

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


class BrainJournal(CallFile):
    """One file of one brain. It is not synced for each call: a brain that loses one with its
    machine can't say that it was not made; the caller's key is then new here, and the node is
    the one that knows."""

    schema = _SCHEMA
    kept = 50_000
    remedy = "handoff nodes doctor"
    upgrade = "upgrade Handoff on this machine"

    def __init__(self, path: str) -> None:
        make_folder(os.path.dirname(path))
        super().__init__(path)

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

    def _find(self, key: str) -> Sent | None:
        row = self._db.execute(
            f"SELECT {_COLUMNS} FROM calls WHERE key=?",  # noqa: S608
            (key,),
        ).fetchone()
        return None if row is None else _sent(row)


def _sent(row: tuple[Any, ...]) -> Sent:
    key, node, op, digest, args, by, at_ms, instance, state, ok, answer = row
    told = json.loads(answer) if answer else {}
    return Sent(key, node, op, digest, json.loads(args), by, at_ms, instance, state, bool(ok), told)
