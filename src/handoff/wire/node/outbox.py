"""What waits to be sent on a link, and what goes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from handoff.wire.node.frames import BinaryFrames, Frame, Piece, TextFrames
from handoff.wire.node.messages import Ack, Message
from handoff.wire.node.pacing import Pace
from handoff.wire.node.streams import Sending, Turns

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["Outbox", "Ready"]

#: bytes of a call or result from which it waits for its turn as streams do
LARGE = 32 * 1024


class Ready(NamedTuple):
    """A frame of the handshake: it goes out as it is."""

    frame: Frame


class Outbox:
    """Three classes: control first, then calls and results in their order, then streams in
    turns. What is large waits while too much is under way."""

    __slots__ = ("_clock", "bodies", "control", "frames", "pace", "turns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.frames: TextFrames | BinaryFrames = TextFrames()
        # Lists: of a thousand links nearly all wait for nothing, and an empty deque has 700
        # bytes. Few things wait at a time, so that taking the first one costs nothing.
        self.control: list[Message | Ready] = []
        #: calls and results, as JSON
        self.bodies: list[str] = []
        self.turns = Turns()
        self.pace: Pace | None = None

    def __bool__(self) -> bool:
        return bool(self.control or self.bodies or self.turns)

    def open(self, frames: TextFrames | BinaryFrames) -> None:
        """From here on frames are those of the session."""
        self.frames = frames
        self.pace = Pace() if frames.counted else None

    def next(self, is_open: bool) -> tuple[Frame | None, Sending | None]:
        """The next frame, and the stream that it is a piece of."""
        if self.control:
            item = self.control.pop(0)
            return (item.frame if isinstance(item, Ready) else self._write(item, 64)), None
        if not is_open:
            return None, None
        pace = self.pace
        may = pace is None or pace.open
        if self.bodies and (may or len(self.bodies[0]) < LARGE):
            body = self.bodies.pop(0)
            return self._write(body, len(body)), None
        sending = self.turns.next() if may else None
        if sending is None:
            return None, None
        piece = sending.take(pace.piece if pace else LARGE)
        frame = self._write(piece, len(piece.data))
        self.turns.enter(sending)
        return frame, sending

    def ack(self, arrived: int) -> None:
        """Tell how much has arrived; a later count takes the place of one that waits."""
        if self.control and isinstance(self.control[-1], Ack):
            self.control.pop()
        self.control.append(Ack(arrived))

    def waits(self, kind: type[Message]) -> bool:
        """Whether a control message of that kind waits."""
        return any(isinstance(item, kind) for item in self.control)

    def drop(self, *, control: bool = False) -> None:
        """Nothing more goes out but the handshake's frames, or with ``control`` nothing."""
        self.control = [item for item in self.control if isinstance(item, Ready) and not control]
        self.bodies.clear()
        self.turns = Turns()

    def _write(self, item: Message | Piece | str, size: int) -> Frame:
        pace = self.pace
        if pace is None:
            return self.frames.write(item)
        ack = pace.wants_ack(size)
        frame = self.frames.write(item, ack)
        pace.sent(len(frame), ack, self._clock.monotonic())
        return frame
