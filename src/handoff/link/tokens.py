"""The nodes that a brain knows: their keys, their tokens, their pairing codes.

A paired node has its public key here. A Go node has a permanent token: shown once, and only
its digest is kept, unless its sessions are to be sealed, for which the brain needs the token
itself; then it is kept encrypted under a key in a file beside the database.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from handoff.errors import BadRequest, NodeExists, PairingRefused, StorageError
from handoff.link.ciphers import CIPHERS
from handoff.link.database import Database
from handoff.link.files import read_private, write_new
from handoff.link.keys import MachineKey
from handoff.link.pairing import (
    ATTEMPTS,
    TTL_S,
    PairingCode,
    brain_proof,
    check_name,
    check_time,
    new_code,
    node_proof,
    stored_secret,
)
from handoff.link.records import (
    ImportedToken,
    NodeRecord,
    check_free,
    check_unlike,
    find,
    insert,
    make_room,
    record_of,
    required,
    tags_text,
    unknown,
)
from handoff.wire.node.events import Credential
from handoff.wire.node.messages import Pair, PairOk
from handoff.wire.node.sealing import b64url, from_b64url

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["ImportedToken", "NodeRecord", "NodeStore"]

#: codes that wait at the same time; older ones give way
CODES = 100
_REQUIRE = frozenset({"", "e2e", "e2e2"})
_NONCE = 12


class NodeStore:
    """A brain's nodes in one SQLite file. Any number of processes may use it at once.

    Args:
        path: the file; its folder is made, 0700.
        clock: wall time.

    Raises:
        StorageError: it can't be opened.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self._clock = clock
        self._database = Database(path)
        self._key_path = f"{self._database.path}.key"

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    # -- credentials ----------------------------------------------------------------------

    def add_token(
        self, name: str, *, keep: bool = False, replace: bool = False, tags: Sequence[str] = ()
    ) -> str:
        """Give a Go node a permanent token; the token, which is not to be had again.

        Args:
            name: the node's.
            keep: keep the token, encrypted: the node is taken in sealed sessions only.
            replace: a node of that name loses its credential.
            tags: labels for selecting nodes.

        Raises:
            BadRequest: the name can't be one.
            NodeExists: there is one, not revoked, and ``replace`` is false.
        """
        name = check_name(name)
        token = secrets.token_urlsafe(32)
        sealed = self._seal(name, token) if keep else None
        digest = hashlib.sha256(token.encode()).hexdigest()
        with self._database.writing() as db:
            make_room(db, name, replace=replace)
            insert(
                db,
                name=name,
                token_sha256=digest,
                token_sealed=sealed,
                tags=tags_text(tags),
                origin="token",
                created_ms=self._clock.now_ms(),
            )
        return token

    def add_key(self, name: str, public_key: bytes, *, replace: bool = False) -> None:
        """Know a node by its ed25519 key.

        Raises:
            BadRequest: the name or the key can't be one.
            NodeExists: there is one, not revoked, and ``replace`` is false.
        """
        name = check_name(name)
        if len(public_key) != 32:
            raise BadRequest("a public key has 32 bytes", field="key")
        with self._database.writing() as db:
            make_room(db, name, replace=replace)
            self._insert_key(db, name, public_key)

    def rotate_token(self, name: str) -> str:
        """A new token in place of the old one, kept as the old one was.

        Raises:
            UnknownNode: there is no node of that name with a token.
        """
        token = secrets.token_urlsafe(32)
        digest = hashlib.sha256(token.encode()).hexdigest()
        sealed = self._seal(name, token)
        with self._database.writing() as db:
            changed = db.execute(
                "UPDATE node SET token_sha256 = ?, revoked_ms = NULL,"
                " token_sealed = CASE WHEN token_sealed IS NULL THEN NULL ELSE ? END"
                " WHERE name = ? AND token_sha256 IS NOT NULL",
                (digest, sealed, name),
            ).rowcount
            if not changed:
                raise unknown(db, name, "that has a token")
        return token

    def credential(self, name: str, key: bytes = b"") -> Credential | None:
        """What a link needs to know a node, None if there is none.

        Args:
            name: what it calls itself.
            key: the public key that it says is its own, if any. A node is known by it, also
                where it is called otherwise here than it calls itself.
        """
        with self._database.reading() as db:
            row = find(db, name, key)
        if row is None:
            return None
        name = row["name"]
        token = self._open(name, row["token_sealed"]) if row["token_sealed"] else ""
        return Credential(
            name=name,
            key=row["public_key"] or b"",
            token=token,
            token_sha256=row["token_sha256"] or "",
            revoked=row["revoked_ms"] is not None,
            require=required(row),
        )

    # -- the list -------------------------------------------------------------------------

    def nodes(self) -> list[NodeRecord]:
        """All nodes by name, revoked ones too."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT node.*, seen.last_ms, seen.facts FROM node LEFT JOIN seen USING (name)"
                " ORDER BY name"
            ).fetchall()
        return [record_of(row) for row in rows]

    def node(self, name: str) -> NodeRecord:
        """One node.

        Raises:
            UnknownNode: there is none; details hold all names.
        """
        for record in self.nodes():
            if record.name == name:
                return record
        with self._database.reading() as db:
            raise unknown(db, name)

    def revoke(self, name: str) -> bool:
        """Make its credential void, and the codes that were made for it; False if it was.

        Raises:
            UnknownNode: there is no such node.
        """
        with self._database.writing() as db:
            row = db.execute("SELECT revoked_ms FROM node WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise unknown(db, name)
            db.execute("DELETE FROM code WHERE name = ?", (name,))
            if row["revoked_ms"] is not None:
                return False
            now = self._clock.now_ms()
            db.execute("UPDATE node SET revoked_ms = ? WHERE name = ?", (now, name))
        return True

    def remove(self, name: str) -> None:
        """Forget a node altogether, and the codes that were made for it.

        Raises:
            UnknownNode: there is no such node.
        """
        with self._database.writing() as db:
            if not db.execute("DELETE FROM node WHERE name = ?", (name,)).rowcount:
                raise unknown(db, name)
            db.execute("DELETE FROM code WHERE name = ?", (name,))

    def rename(self, name: str, to: str) -> None:
        """Another name for the same credential. A node with a token must greet with it from
        now on; one with a key is known by that.

        Raises:
            BadRequest: the new name can't be one.
            UnknownNode: there is no such node.
            NodeExists: there is one of the new name.
        """
        to = check_name(to)
        with self._database.writing() as db:
            row = db.execute("SELECT token_sealed FROM node WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise unknown(db, name)
            if to == name:
                return
            make_room(db, to, replace=False, was=name)
            sealed = row["token_sealed"]
            if sealed:
                sealed = self._seal(to, self._open(name, sealed))
            db.execute(
                "UPDATE node SET name = ?, token_sealed = ? WHERE name = ?", (to, sealed, name)
            )

    def set_tags(self, name: str, tags: Sequence[str]) -> None:
        """Replace a node's tags.

        Raises:
            BadRequest: one can't be a tag.
            UnknownNode: there is no such node.
        """
        self._update(name, "tags", tags_text(tags))

    def set_require(self, name: str, require: str) -> None:
        """Take a node only in sealed sessions: ``e2e``, ``e2e2``, or ``""`` for any.

        Raises:
            BadRequest: it is none of these.
            UnknownNode: there is no such node.
        """
        if require not in _REQUIRE:
            raise BadRequest("'require' must be e2e, e2e2 or empty", field="require")
        self._update(name, "require", require)

    def seen(self, name: str, facts: Mapping[str, Any] | None = None) -> None:
        """The node was here just now; a node that is gone is no error."""
        with self._database.writing() as db:
            if db.execute("SELECT 1 FROM node WHERE name = ?", (name,)).fetchone():
                db.execute(
                    "INSERT INTO seen (name, last_ms, facts) VALUES (?, ?, ?)"
                    " ON CONFLICT (name) DO UPDATE SET last_ms = excluded.last_ms,"
                    " facts = CASE ? WHEN 1 THEN excluded.facts ELSE facts END",
                    (name, self._clock.now_ms(), json.dumps(facts or {}), int(facts is not None)),
                )

    # -- pairing --------------------------------------------------------------------------

    def new_code(
        self,
        address: str,
        brain_key: bytes,
        name: str = "",
        *,
        replace: bool = False,
        ttl_s: int = TTL_S,
        attempts: int = ATTEMPTS,
    ) -> PairingCode:
        """A pairing code to show, once.

        Raises:
            BadRequest: the address, the name or the time can't be one.
            NodeExists: a node of that name is known, and ``replace`` is false.
        """
        check_time(ttl_s)
        code = new_code(address, brain_key, name)
        now = self._clock.now_ms()
        with self._database.writing() as db:
            if code.name and not replace:
                check_free(db, code.name)
            db.execute("DELETE FROM code WHERE expires_ms <= ?", (now,))
            db.execute(
                "DELETE FROM code WHERE id NOT IN"
                " (SELECT id FROM code ORDER BY expires_ms DESC LIMIT ?)",
                (CODES - 1,),
            )
            db.execute(
                "INSERT INTO code (id, stored, name, replaces, expires_ms, attempts)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    *(code.id, stored_secret(code.secret), code.name, int(replace)),
                    *(now + ttl_s * 1000, attempts),
                ),
            )
        return code

    def redeem(self, pair: Pair, brain_key: MachineKey) -> PairOk:
        """Take a pairing code and know the node's key from now on; the answer to send.

        A wrong proof uses up one attempt; the last one uses up the code. A right one uses
        it up too.

        Raises:
            PairingRefused: no such code, too late, or not proven.
            NodeExists: the name is taken.
        """
        refused: PairingRefused | None = None
        with self._database.writing() as db:
            try:
                name, node_key, stored = self._proven(db, pair, brain_key.public)
            except PairingRefused as error:
                refused = error  # committed: the attempt counts
            else:
                db.execute("DELETE FROM code WHERE id = ?", (pair.code,))
                self._insert_key(db, name, node_key)
        if refused is not None:
            raise refused
        proof = brain_proof(stored, pair.code, node_key, name, brain_key.public)
        return PairOk(node_name=name, key=b64url(brain_key.public), proof=b64url(proof))

    def _proven(
        self, db: sqlite3.Connection, pair: Pair, brain_key: bytes
    ) -> tuple[str, bytes, bytes]:
        row = db.execute("SELECT * FROM code WHERE id = ?", (pair.code,)).fetchone()
        remedy = "ask for a new pairing code on the brain"
        if row is None or row["expires_ms"] <= self._clock.now_ms():
            raise PairingRefused("the pairing code is unknown, used or expired", remedy=remedy)
        try:
            node_key, proof = from_b64url(pair.key, 32), from_b64url(pair.proof, 32)
            name = check_name(pair.node_name or row["name"])
        except (ValueError, BadRequest) as error:
            raise PairingRefused(f"the pairing message can't be used: {error}") from error
        stored = row["stored"]
        right = node_proof(stored, pair.code, node_key, name, brain_key)
        if not hmac.compare_digest(right, proof):
            db.execute("UPDATE code SET attempts = attempts - 1 WHERE id = ?", (pair.code,))
            db.execute("DELETE FROM code WHERE attempts <= 0")
            raise PairingRefused("the pairing code was not proven", remedy=remedy)
        if row["name"] and row["name"] != name:
            raise PairingRefused(f"the pairing code is for the node '{row['name']}'")
        try:
            make_room(db, name, replace=bool(row["replaces"]))
        except BadRequest as error:
            raise PairingRefused(error.cause, remedy="choose another name") from error
        return name, node_key, stored

    # -- another store --------------------------------------------------------------------

    def import_tokens(
        self, tokens: Iterable[ImportedToken]
    ) -> tuple[list[str], list[str], list[str]]:
        """Take over permanent tokens: the names added, those that were there before, and why
        others can't be names here."""
        added: list[str] = []
        there: list[str] = []
        refused: list[str] = []
        with self._database.writing() as db:
            for token in tokens:
                try:
                    name = check_name(token.name)
                    if db.execute("SELECT 1 FROM node WHERE name = ?", (name,)).fetchone():
                        there.append(name)
                        continue
                    check_unlike(db, name)
                except (BadRequest, NodeExists) as error:
                    refused.append(f"{token.name[:64]!a}: {error.cause}")
                    continue
                insert(
                    db,
                    name=name,
                    token_sha256=token.token_sha256,
                    origin="import",
                    created_ms=token.created_ms,
                    revoked_ms=self._clock.now_ms() if token.revoked else None,
                )
                if token.last_ms:
                    db.execute(
                        "INSERT INTO seen (name, last_ms) VALUES (?, ?)", (name, token.last_ms)
                    )
                added.append(name)
        return added, there, refused

    # -- inside ---------------------------------------------------------------------------

    def _insert_key(self, db: sqlite3.Connection, name: str, public_key: bytes) -> None:
        now = self._clock.now_ms()
        insert(db, name=name, public_key=public_key, origin="pair", created_ms=now)

    def _update(self, name: str, column: str, value: str) -> None:
        with self._database.writing() as db:
            query = f"UPDATE node SET {column} = ? WHERE name = ?"  # noqa: S608  # our own names
            if not db.execute(query, (value, name)).rowcount:
                raise unknown(db, name)

    def _store_key(self) -> bytes:
        write_new(self._key_path, secrets.token_bytes(32))
        key = read_private(self._key_path)
        if len(key) != 32:
            raise StorageError(f"{self._key_path} holds no key", path=self._key_path)
        return key

    def _seal(self, name: str, token: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE)
        aead = CIPHERS.aead(self._store_key())
        return nonce + aead.encrypt(nonce, token.encode(), name.encode())

    def _open(self, name: str, sealed: bytes) -> str:
        if not os.path.exists(self._key_path):
            raise StorageError(
                f"{self._key_path} is missing: kept tokens can't be read",
                remedy="put the file back, or give the node a new token",
                path=self._key_path,
            )
        aead = CIPHERS.aead(self._store_key())
        try:
            return aead.decrypt(sealed[:_NONCE], sealed[_NONCE:], name.encode()).decode()
        except Exception as error:  # the library's own class: another key, or damage
            raise StorageError(
                f"the kept token of '{name}' does not open with {self._key_path}",
                remedy="give the node a new token",
            ) from error
