"""The two ends of a stream of bytes within a call, and who sends next.

A receiver grants credit: the offset up to which the sender may go. A sender keeps what it
may not send yet, tells its producer to pause above :data:`HIGH_WATER` and to go on below
:data:`LOW_WATER`, and takes its turn among the link's streams piece by piece.
"""

from __future__ import annotations

from collections import deque

from handoff.wire.node.frames import Piece, Refused

__all__ = [
    "FIRST_WINDOW",
    "HIGH_WATER",
    "LOW_WATER",
    "MOST_WINDOW",
    "WINDOW",
    "Receiving",
    "Sending",
    "Turns",
]

#: bytes of a stream into a call (stdin, an upload) that need no credit
FIRST_WINDOW = 64 * 1024
#: what a receiver grants by default beyond what was consumed
WINDOW = 1024 * 1024
#: the most that a receiver may grant
MOST_WINDOW = 64 * 1024 * 1024
#: bytes waiting to be sent above which a producer should pause, and below which go on
HIGH_WATER = 1024 * 1024
LOW_WATER = 256 * 1024


class Sending:
    """A stream that this side sends."""

    __slots__ = (
        *("_parts", "_taken", "ended", "full", "id", "listed"),
        *("offset", "over", "pending", "stream", "upto"),
    )

    def __init__(self, number: int, stream: str, offset: int, upto: int) -> None:
        self.id = number
        self.stream = stream
        #: of the next byte to send
        self.offset = offset
        self.upto = upto
        #: bytes that wait here
        self.pending = 0
        #: the producer has said its last
        self.ended = False
        #: the last piece is out, or the receiver wants no more
        self.over = False
        #: above high water, until below low water
        self.full = False
        #: stands in the queue of turns
        self.listed = False
        self._parts: deque[bytes | memoryview] = deque()
        self._taken = 0

    @property
    def ready(self) -> bool:
        """Whether it could send something now."""
        if self.over:
            return False
        if self.pending:
            return self.upto > self.offset
        return self.ended

    def add(self, data: bytes | memoryview) -> None:
        """Take in what the producer made."""
        if len(data) and not self.over:
            self._parts.append(data)
            self.pending += len(data)
            self.full = self.full or self.pending > HIGH_WATER

    def take(self, most: int) -> Piece:
        """The next piece, of at most ``most`` bytes."""
        room = min(most, self.upto - self.offset, self.pending)
        got: list[bytes | memoryview] = []
        left = room
        while left > 0:
            part = self._parts[0]
            size = len(part) - self._taken
            if size <= left:
                got.append(memoryview(part)[self._taken :] if self._taken else part)
                self._parts.popleft()
                self._taken = 0
                left -= size
            else:
                got.append(memoryview(part)[self._taken : self._taken + left])
                self._taken += left
                left = 0
        data = got[0] if len(got) == 1 else b"".join(got)
        at = self.offset
        self.offset += room
        self.pending -= room
        end = self.ended and not self.pending
        self.over = self.over or end
        return Piece(self.id, self.stream, at, data, end)

    def drained(self) -> bool:
        """Whether the producer, told to pause, may go on now (True once)."""
        if self.full and self.pending <= LOW_WATER:
            self.full = False
            return True
        return False

    def stop(self) -> None:
        """Nobody wants the rest."""
        self.over = True
        self.pending = 0
        self._parts.clear()
        self._taken = 0


class Receiving:
    """A stream that the other side sends."""

    __slots__ = ("consumed", "ended", "id", "offset", "stream", "upto", "window")

    def __init__(self, number: int, stream: str, offset: int, upto: int, window: int) -> None:
        self.id = number
        self.stream = stream
        #: of the next byte that should come
        self.offset = offset
        self.consumed = offset
        self.upto = upto
        self.window = window
        self.ended = False

    def take(self, piece: Piece) -> None:
        """Check a piece against what was received and granted.

        Raises:
            Refused: ``bad_stream``.
        """
        size = len(piece.data)
        if self.ended:
            raise Refused("bad_stream", f"{self.stream} had ended")
        if piece.offset != self.offset:
            raise Refused("bad_stream", f"{self.stream} at {piece.offset}, not {self.offset}")
        if self.offset + size > self.upto:
            raise Refused("bad_stream", f"{self.stream} has no credit for that much")
        self.offset += size
        self.ended = piece.end

    def consume(self, size: int) -> int:
        """The consumer is done with ``size`` bytes: the credit to grant, or 0 for none yet."""
        self.consumed = min(self.offset, self.consumed + size)
        due = self.consumed + self.window
        if self.ended or due - self.upto < self.window // 2:
            return 0
        self.upto = due
        return due


class Turns:
    """Streams that have something to send, in the order of their turns."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: list[Sending] = []

    def __bool__(self) -> bool:
        return bool(self._queue)

    def enter(self, stream: Sending) -> None:
        """Put it in line, if it has something and does not stand there."""
        if not stream.listed and stream.ready:
            stream.listed = True
            self._queue.append(stream)

    def next(self) -> Sending | None:
        """Whose turn it is; it has left the line and must be entered again."""
        while self._queue:
            stream = self._queue.pop(0)
            stream.listed = False
            if stream.ready:
                return stream
        return None
