"""From journal records to whole lines, with a position that can be committed.

The position after any number of lines is a record's offset and how many bytes of that
record's data are taken: reading on from there gives exactly the bytes that follow, so a
restart neither loses nor repeats one. Sans-I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

#: characters of the executor's standard error that are kept for explanations
STDERR_TAIL = 4000
# Bytes of it that are looked through for secrets: far more than is kept, so that one which
# began long before the kept part is still seen whole.
_LOOKED_AT = 4 * STDERR_TAIL


class Position(NamedTuple):
    """Go on at the record at ``offset``, leaving out ``skip`` bytes of its data."""

    offset: int
    skip: int = 0


class LineReader:
    """Assembles lines from records of standard output.

    Args:
        start: the position from which records are fed.
        limit: longest line in bytes. A longer one is dropped up to its newline, and
            :attr:`oversized` tells how long it was at least.
    """

    def __init__(self, start: Position, limit: int) -> None:
        self._limit = limit
        self._skip_at = start
        self._parts: list[bytes] = []
        self._held = 0
        self._dropping = False
        self.oversized = 0
        self.position = start
        #: the standard error that stands between the lines
        self.errors = ErrorTail()

    def feed(self, offset: int, end: int, data: bytes) -> list[bytes]:
        """The lines that this record completes, without their newlines.

        :attr:`position` is then the place after the last of them.
        """
        skip = self._skip_at.skip if offset == self._skip_at.offset else 0
        view = data[skip:]
        lines: list[bytes] = []
        taken = 0
        while True:
            newline = view.find(b"\n", taken)
            if newline < 0:
                break
            self._hold(view[taken:newline])
            taken = newline + 1
            if not self._dropping:
                lines.append(b"".join(self._parts))
            self._reset()
        if taken:
            self.position = Position(offset, skip + taken)
        self._hold(view[taken:])
        if not self._held and not self._dropping:
            self.position = Position(end)
        return lines

    def passed(self, end: int) -> None:
        """A record of another kind was taken; it moves the position unless a line is open."""
        if not self._held and not self._dropping:
            self.position = Position(end)

    @property
    def open_bytes(self) -> int:
        """Bytes of the line that has begun and not ended."""
        return self._held

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._dropping:
            return
        if self._held > self._limit:
            self.oversized = max(self.oversized, self._held)
            self._dropping = True
            self._parts.clear()
            return
        if piece:
            self._parts.append(piece)

    def _reset(self) -> None:
        if self._dropping:
            self.oversized = max(self.oversized, self._held)
        self._parts.clear()
        self._held = 0
        self._dropping = False


class ErrorTail:
    """The end of standard error, whose records are cut anywhere: secrets are looked for in
    the bytes together, so that none passes in two halves. Only what a stop of agentd cuts is
    looked through in two parts."""

    def __init__(self) -> None:
        self._raw = b""

    def feed(self, data: bytes, kept: str, redact: Callable[[str], str]) -> str:
        """The new end, at most :data:`STDERR_TAIL` characters. ``kept``: the last one, for
        which the bytes are not known any more if this is the first record."""
        raw = (self._raw or kept.encode("utf-8", "replace")) + data
        if len(raw) > 2 * _LOOKED_AT:
            raw = raw[-_LOOKED_AT:]
            raw = raw[raw.find(b"\n") + 1 :]
        self._raw = raw
        return redact(raw.decode(errors="replace"))[-STDERR_TAIL:]
