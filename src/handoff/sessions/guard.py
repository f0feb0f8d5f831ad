"""Secrets out of what a record holds, before any byte of it leaves memory.

A :class:`Guard` is what the store asks for; :class:`RedactorGuard` gives it by the one
redactor of Handoff. Ids can't be redacted, as other items name them: one that looks like a
secret is refused.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from handoff.errors import IntegrityFailed, StateInvalid
from handoff.redaction import Redactor
from handoff.sessions import private

KEY = "redaction.key"
RULESET = "handoff-redaction/1"

#: values that are digests, numbers or one of few words, by their field's name
_PLAIN = frozenset(
    [
        "schema",
        "kind",
        "basis",
        "status",
        "role",
        "result",
        "blob",
        "commit",
        "sha256",
        "at",
        "dirty_digest",
        "parent_ref",
        "anchor_sha256",
        "head",
    ]
)
#: names that other items refer to
_NAMES = frozenset(("supersedes", "blocks", "inherited_ids"))


class Guarded(NamedTuple):
    """A value without secrets, how many of which kind were found, and where (pointers)."""

    value: Any
    counts: dict[str, int]
    pointers: list[str]


class Guard(Protocol):
    """What keeps secrets out of a store."""

    @property
    def ruleset(self) -> str:
        """Names the rules, so that a change of them can be told."""
        ...

    def text(self, text: str) -> str:
        """The text without its secrets."""
        ...

    def value(self, value: Any) -> Guarded:
        """A JSON value without the secrets in its texts.

        Raises:
            StateInvalid: an id looks like a secret; names the place.
        """
        ...


class RedactorGuard:
    """A guard by a :class:`~handoff.redaction.Redactor`. ``key``: secret, and the same for
    as long as equal secrets shall have equal marks. ``known``: secrets by name."""

    ruleset = RULESET

    def __init__(self, key: bytes, known: Mapping[str, str] | None = None) -> None:
        self._redactor = Redactor(key, known)

    def text(self, text: str) -> str:
        """The text without its secrets."""
        return self._redactor.redact(text)

    def value(self, value: Any) -> Guarded:
        """A JSON value without the secrets in its texts.

        Raises:
            StateInvalid: an id looks like a secret.
        """
        counts: Counter[str] = Counter()
        pointers: list[str] = []
        faults: list[dict[str, str]] = []

        def walk(node: Any, pointer: str, key: str) -> Any:
            if isinstance(node, str):
                if key in _PLAIN:
                    return node
                clean = self._redactor.redact(node)
                if clean == node:
                    return node
                if key in _NAMES or (key == "id" and "/evidence/" not in pointer):
                    faults.append(
                        {"pointer": pointer, "code": "secret", "message": "looks like a secret"}
                    )
                counts.update(self._redactor.count(node))
                pointers.append(pointer)
                return clean
            if isinstance(node, dict):
                return {
                    name: walk(inner, f"{pointer}/{name}", name) for name, inner in node.items()
                }
            if isinstance(node, list):
                return [walk(inner, f"{pointer}/{at}", key) for at, inner in enumerate(node)]
            return node

        clean = walk(value, "", "")
        if faults:
            raise StateInvalid(
                f"the state can't be taken: {faults[0]['pointer']}: an id looks like a secret",
                remedy="give the items other ids",
                faults=faults,
                count=len(faults),
            )
        return Guarded(clean, dict(sorted(counts.items())), pointers)


def profile_key(root: str) -> bytes:
    """The key of a profile's marks: 32 random bytes, made at the first call, private.

    Raises:
        StorageError: it can't be read or made, or is not what was made.
    """
    try:
        return _read_key(root)
    except FileNotFoundError:
        private.make(root)
        with private.locked(root, "records.lock"), private.folder(root) as fd:
            private.put(fd, KEY, os.urandom(32), root)
        return _read_key(root)


def _read_key(root: str) -> bytes:
    with private.folder(root) as fd:
        data = private.read(fd, KEY, 32, root)
    if len(data) != 32:
        raise IntegrityFailed(f"{os.path.join(root, KEY)} has not 32 bytes", remedy="")
    return data
