"""How much may be on its way, so that what is urgent never waits behind what is large.

Whatever was handed to the transport can't be overtaken any more. So a sender keeps no more
bytes unacknowledged than the path carries in its own delay and a tenth of a second: it marks
some frames, learns from their acks how fast bytes arrive and how long the empty path takes,
and bounds what is under way by the product, in the manner of BBR (Cardwell et al., ACM Queue
14(5), 2016). A path's delay shows only while nothing stands in its queue; so every ten
seconds of hard use the sender lets the queue run empty for one mark.
"""

from __future__ import annotations

from typing import NamedTuple

from handoff.wire.node.frames import PIECE_LIMIT

__all__ = ["LEAST", "MOST", "START", "Pace"]

#: bytes on their way: at the start, at least, at most
START = 128 * 1024
LEAST = 32 * 1024
MOST = 8 * 1024 * 1024
#: seconds that a byte may stand in a queue, for the sake of a path without gaps
QUEUE_S = 0.1
#: seconds after which the empty path's delay is measured again
PROBE_S = 10.0


class _Mark(NamedTuple):
    """A frame that asks for an ack. ``sent``: bytes up to its end. ``acked``: bytes that
    had arrived when it left. ``probe``: it left while the queue was let run empty, and
    ``clean``: after it had."""

    sent: int
    at: float
    acked: int
    probe: bool
    clean: bool


class Pace:
    """The bound of one direction of one link. Counts whole frames, in bytes."""

    __slots__ = (
        *("_acked", "_least", "_least_at", "_marked", "_marks", "_probing", "_rate"),
        *("_sent", "_was_full", "bound"),
    )

    def __init__(self) -> None:
        self.bound = START
        self._sent = 0
        self._acked = 0
        self._marked = 0
        self._marks: list[_Mark] = []
        #: bytes a second, and seconds; -1 before the first ack
        self._rate = 0.0
        self._least = -1.0
        self._least_at = 0.0
        self._probing = False
        self._was_full = False

    @property
    def _limit(self) -> int:
        return LEAST if self._probing else self.bound

    @property
    def open(self) -> bool:
        """Whether something large may be sent now."""
        # Without a mark under way no ack would come: then the next frame carries one.
        if self._sent - self._acked < self._limit or not self._marks:
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
        return self._sent + size - self._marked >= self._limit // 4

    def sent(self, size: int, ack: bool, now: float) -> None:
        """A frame of ``size`` bytes was handed out."""
        before = self._sent - self._acked
        self._sent += size
        if ack:
            self._marked = self._sent
            clean = self._probing and before <= LEAST
            self._marks.append(_Mark(self._sent, now, self._acked, self._probing, clean))

    def acked(self, size: int, now: float) -> bool:
        """The other side has ``size`` bytes in all; False if that can't be."""
        if not self._acked <= size <= self._sent:
            return False
        self._acked = size
        mark = None
        while self._marks and self._marks[0].sent <= size:
            mark = self._marks.pop(0)
        if mark is not None:
            self._measure(mark, size, now)
        return True

    def _measure(self, mark: _Mark, size: int, now: float) -> None:
        rtt = max(1e-6, now - mark.at)
        if self._least < 0 or rtt <= self._least or mark.clean:
            self._least, self._least_at = rtt, now
            self._probing = False
        rate = (size - mark.acked) / rtt
        if rate > self._rate:
            self._rate = rate
        elif self._was_full and not mark.probe:
            # A long queue is no chance: the path has become slow.
            weight = 1.0 if rtt - self._least > 5 * QUEUE_S else 0.3
            self._rate += (rate - self._rate) * weight
        if self._was_full:
            wanted = int(self._rate * (self._least + QUEUE_S))
            self.bound = max(LEAST, min(wanted, self.bound * 2, MOST))
            self._probing = self._probing or now - self._least_at > PROBE_S
        self._was_full = False
