"""How much may be on its way, so that what is urgent never waits behind what is large.

Whatever was handed to the transport can't be overtaken any more. So a sender keeps no more
bytes unacknowledged than the path can carry in a moment: it marks some frames, measures how
long until the other side says that they arrived, and halves or doubles its bound by the
time that they stood in a queue (the measured time less the shortest one seen), in the
manner of RFC 6817 (LEDBAT).
"""

from __future__ import annotations

from collections import deque

from handoff.wire.node.frames import PIECE_LIMIT

__all__ = ["Pace"]

#: bytes on their way: at the start, at least, at most
START = 256 * 1024
LEAST = 32 * 1024
MOST = 8 * 1024 * 1024
#: seconds in a queue below which the bound grows, and above which it shrinks
SHORT = 0.05
LONG = 0.2


class Pace:
    """The bound of one direction of one link. Counts whole frames, in bytes."""

    __slots__ = ("_acked", "_least_rtt", "_marked", "_marks", "_sent", "_was_full", "bound")

    def __init__(self) -> None:
        self.bound = START
        self._sent = 0
        self._acked = 0
        self._marked = 0
        self._marks: deque[tuple[int, float]] = deque()
        self._least_rtt = -1.0
        self._was_full = False

    @property
    def open(self) -> bool:
        """Whether something large may be sent now."""
        # Without a mark under way no ack would come: then the next frame carries one.
        if self._sent - self._acked < self.bound or not self._marks:
            return True
        self._was_full = True
        return False

    @property
    def piece(self) -> int:
        """Bytes of a stream to send at once."""
        return max(8 * 1024, min(PIECE_LIMIT, self.bound // 4))

    @property
    def on_the_way(self) -> int:
        """Bytes that were sent and not acknowledged, as far as is known."""
        return self._sent - self._acked

    def wants_ack(self, size: int) -> bool:
        """Whether the frame of about that size, about to be sent, should ask for an ack."""
        return self._sent + size - self._marked >= self.bound // 4

    def sent(self, size: int, ack: bool, now: float) -> None:
        """A frame of ``size`` bytes was handed out."""
        self._sent += size
        if ack:
            self._marked = self._sent
            self._marks.append((self._sent, now))

    def acked(self, size: int, now: float) -> bool:
        """The other side has ``size`` bytes in all; False if that can't be."""
        if not self._acked <= size <= self._sent:
            return False
        self._acked = size
        since = None
        while self._marks and self._marks[0][0] <= size:
            since = self._marks.popleft()[1]
        if since is not None:
            self._measure(max(0.0, now - since))
        return True

    def _measure(self, rtt: float) -> None:
        if self._least_rtt < 0 or rtt < self._least_rtt:
            self._least_rtt = rtt
        else:
            # a path that became longer for good is believed after about a hundred acks
            self._least_rtt += (min(rtt, LONG) - self._least_rtt) * 0.01
        queued = rtt - self._least_rtt
        if queued < SHORT and self._was_full:
            self.bound = min(MOST, self.bound * 2)
        elif queued > LONG:
            self.bound = max(LEAST, self.bound // 2)
        self._was_full = False
