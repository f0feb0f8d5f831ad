"""The rows of a brain's nodes, and the rules of their table."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from handoff.errors import BadRequest, NodeExists, UnknownNode
from handoff.link.keys import fingerprint

__all__ = ["ImportedToken", "NodeRecord"]

#: who is meant by it is every node
EVERY = "all"


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """``kind``: ``key``, ``token`` or ``token_kept``. ``last_ms``: last seen, 0 for never.
    ``facts``: what the node said about itself when it was last seen."""

    name: str
    kind: str
    fingerprint: str
    require: str
    tags: tuple[str, ...]
    origin: str
    created_ms: int
    revoked_ms: int
    last_ms: int
    facts: dict[str, Any]

    @property
    def revoked(self) -> bool:
        """Whether its credential is void."""
        return self.revoked_ms > 0


@dataclass(frozen=True, slots=True)
class ImportedToken:
    """One record of another store: the digest of a permanent token (SHA-256, hex)."""

    name: str
    token_sha256: str = field(repr=False)
    created_ms: int
    last_ms: int = 0
    revoked: bool = False


def insert(db: sqlite3.Connection, **values: Any) -> None:
    columns = ", ".join(values)
    marks = ", ".join("?" * len(values))
    query = f"INSERT INTO node ({columns}) VALUES ({marks})"  # noqa: S608  # our own names
    db.execute(query, tuple(values.values()))


def check_free(db: sqlite3.Connection, name: str, was: str = "") -> None:
    check_unlike(db, name, was)
    row = db.execute("SELECT revoked_ms FROM node WHERE name = ?", (name,)).fetchone()
    if row is not None and row["revoked_ms"] is None:
        raise NodeExists(
            f"a node '{name}' is known already",
            remedy="replace it with --replace, or revoke it first",
            name=name,
        )


def check_unlike(db: sqlite3.Connection, name: str, but: str = "") -> None:
    """A new name is none that a person, or a model, would take for another one. but: the name
    that its node has now."""
    if name.lower() == EVERY:
        raise BadRequest(f"'{EVERY}' means every node: none can be called so", field="name")
    row = db.execute(
        "SELECT name FROM node WHERE name = ? COLLATE NOCASE AND name NOT IN (?, ?)"
        " AND revoked_ms IS NULL",
        (name, name, but),
    ).fetchone()
    if row is not None:
        raise NodeExists(
            f"a node '{row['name']}' is known already, and '{name}' differs from it in case only",
            remedy="choose another name, or revoke that one first",
            name=row["name"],
        )


def make_room(db: sqlite3.Connection, name: str, *, replace: bool, was: str = "") -> None:
    """was: the name until now of the node that is to be called so."""
    if replace:
        check_unlike(db, name, was)
    else:
        check_free(db, name, was)
    db.execute("DELETE FROM node WHERE name = ?", (name,))


def find(db: sqlite3.Connection, name: str, key: bytes) -> sqlite3.Row | None:
    """The node that calls itself so. With a key: the node of that key, of several the one of
    that name, or the only one that is not revoked."""
    query = "SELECT * FROM node WHERE name = ?"
    named: sqlite3.Row | None = db.execute(query, (name,)).fetchone()
    if not key or (named is not None and named["public_key"] == key):
        return named
    found = db.execute("SELECT * FROM node WHERE public_key = ?", (key,)).fetchall()
    if len(found) > 1:
        found = [row for row in found if row["revoked_ms"] is None]
    return found[0] if len(found) == 1 else named


def tags_text(tags: Sequence[str]) -> str:
    for tag in tags:
        if not tag or len(tag) > 64 or not all(c.isalnum() or c in "._:=-" for c in tag):
            raise BadRequest(f"'{tag[:64]}' can't be a tag", field="tags")
    return json.dumps(sorted(set(tags)))


def unknown(db: sqlite3.Connection, name: str, more: str = "") -> UnknownNode:
    """The error for a name that no node has, with those that are near it."""
    import difflib

    rows = db.execute("SELECT name FROM node ORDER BY name LIMIT 10000")
    known = [str(row["name"]) for row in rows]
    lower = {one.lower(): one for one in reversed(known)}
    near = difflib.get_close_matches(name.lower()[:64], list(lower), n=3, cutoff=0.5)
    shown = " or ".join(f"'{lower[one]}'" for one in near if lower[one] != name)
    hint = f"; did you mean {shown}?" if shown else ""
    cause = f"there is no node '{name[:64]}'" + (f" {more}" if more else "") + hint
    return UnknownNode(cause, remedy="handoff nodes list", name=name[:64], known=known[:100])


def required(row: sqlite3.Row) -> str:
    """What the node's sessions must be. A token is kept so that it need not be sent: where one
    that was sent would do, whoever can change a hello would be sent it."""
    return row["require"] or ("e2e" if row["token_sealed"] else "")


def record_of(row: sqlite3.Row) -> NodeRecord:
    key = row["public_key"]
    kind = "key" if key else ("token_kept" if row["token_sealed"] else "token")
    return NodeRecord(
        name=row["name"],
        kind=kind,
        fingerprint=fingerprint(key) if key else "",
        require=required(row),
        tags=tuple(json.loads(row["tags"])),
        origin=row["origin"],
        created_ms=row["created_ms"],
        revoked_ms=row["revoked_ms"] or 0,
        last_ms=row["last_ms"] or 0,
        facts=json.loads(row["facts"] or "{}"),
    )
