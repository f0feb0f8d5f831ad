"""Secrets out of what a record holds, before any byte of it leaves memory.

A :class:`Guard` is what the store asks for; :class:`RedactorGuard` gives it by the one
redactor of Handoff.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from handoff.errors import IntegrityFailed
from handoff.sessions import private
from handoff.sessions.redact import SessionRedactor

KEY = "redaction.key"
RULESET = "handoff-redaction/1"

#: what needs no look: a digest, a number, one of few words, in a field of that name
_PLAIN = frozenset(("blob", "sha256", "head", "dirty_digest", "kind", "role", "status"))
_PLAIN_VALUE = re.compile(r"[0-9a-f]{7,64}\Z|[a-z_]{0,24}\Z|[A-Z? !]{1,2}\Z")


class Guarded(NamedTuple):
    """A value without secrets, how many of which kind were found, and where (pointers)."""

    value: Any
    counts: dict[str, int]
    pointers: list[str]


class Guard(Protocol):
    """What keeps secrets out of a store. ``ruleset`` names the rules, so that a change of
    them can be told."""

    ruleset: str

    def text(self, text: str) -> str:
        """The text without its secrets."""
        ...

    def state(self, state: dict[str, Any]) -> Guarded:
        """A checked state without secrets, checked again.

        Raises:
            StateInvalid: an id looks like a secret; names the place.
        """
        ...

    def value(self, value: Any) -> Guarded:
        """Another JSON value without the secrets in its texts."""
        ...

    def strict(self) -> Guard:
        """The same for what leaves the machine."""
        ...


class RedactorGuard:
    """A guard by a :class:`~handoff.sessions.redact.SessionRedactor`. ``key``: secret, and
    the same for as long as equal secrets shall have equal marks. ``known``: secrets by name.
    ``mode``: ``standard``, or ``strict`` for what leaves the machine."""

    def __init__(
        self, key: bytes, known: Mapping[str, str] | None = None, mode: str = "standard"
    ) -> None:
        self._key, self._known = key, known
        self._redactor = SessionRedactor(key, mode, known=known)
        self.ruleset = f"{RULESET}/{mode}"

    def strict(self) -> RedactorGuard:
        """The same for what leaves the machine."""
        return RedactorGuard(self._key, self._known, "strict")

    def text(self, text: str) -> str:
        """The text without its secrets."""
        return self._redactor.text(text)

    def state(self, state: dict[str, Any]) -> Guarded:
        """A checked state without secrets, checked again."""
        found = self._redactor.state(state)
        return Guarded(found.value, found.counts, list(found.pointers))

    def value(self, value: Any) -> Guarded:
        """A JSON value without the secrets in its texts; digests are left alone."""
        counts: Counter[str] = Counter()
        pointers: list[str] = []

        def walk(node: Any, pointer: str, key: str) -> Any:
            if isinstance(node, str):
                if key in _PLAIN and _PLAIN_VALUE.match(node):
                    return node
                found = self._redactor.value(node)
                if found.findings:
                    counts.update(found.counts)
                    pointers.append(pointer)
                return found.value
            if isinstance(node, dict):
                return {
                    self.text(name): walk(inner, f"{pointer}/{name}", name)
                    for name, inner in node.items()
                }
            if isinstance(node, list):
                return [walk(inner, f"{pointer}/{at}", key) for at, inner in enumerate(node)]
            return node

        clean = walk(value, "", "")
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
