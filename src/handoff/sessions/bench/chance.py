"""Reproducible chance: a stream of numbers from a seed, the same everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


class Chance:
    """Numbers from SHA-256 over seed and count. Args: ``seed`` and ``name``, which keeps
    the parts of a suite apart, so that one more case in one changes no other."""

    def __init__(self, seed: int, name: str) -> None:
        self._head = f"{seed}/{name}/"
        self._count = 0

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1."""
        self._count += 1
        raw = hashlib.sha256(f"{self._head}{self._count}".encode()).digest()
        return int.from_bytes(raw[:8], "big") % limit

    def pick(self, options: Sequence[_T]) -> _T:
        """One of the options."""
        return options[self.below(len(options))]

    def text(self, alphabet: str, length: int) -> str:
        """Signs of an alphabet."""
        return "".join(self.pick(alphabet) for _ in range(length))
