"""The executor's output on its way to the journal, with its bounds.

Standard output is never dropped: if too much is unacknowledged, or the disk takes no more,
it is simply not read, and the executor waits at its pipe. Standard error is diagnostics: a
flood of it is cut, and a marker tells how many bytes went missing. Standard library only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from handoff.process.journal import Writer

#: one read, and so one record, in bytes; the size of a pipe on Linux
CHUNK = 1 << 16
#: unacknowledged journal bytes above which standard output is not read
MAX_BACKLOG = 256 << 20
#: standard error that is kept: bytes a second, and unacknowledged in all
STDERR_RATE = 1 << 20
STDERR_UNACKED = 16 << 20
#: unacknowledged standard error is counted in portions of this size
_PORTION = 256 << 10


def read_some(fd: int) -> bytes | None:
    """Up to :data:`CHUNK` bytes; b"" at the end; None if nothing is there now."""
    try:
        return os.read(fd, CHUNK)
    except BlockingIOError:
        return None
    except OSError:  # EIO of a closed terminal and the like: there is no more to read
        return b""


class Stderr:
    """Standard error into the journal, cut where it floods."""

    def __init__(
        self, journal: Writer, rate: int = STDERR_RATE, unacked: int = STDERR_UNACKED
    ) -> None:
        self._journal = journal
        self._rate = rate
        self._max_unacked = unacked
        self._allowance = float(rate)
        self._last = 0.0
        self._portions: list[list[int]] = []
        self._unacked = 0
        self._cut = 0

    def take(self, data: bytes, now: float, at_ms: int) -> None:
        """Keep data as far as the bounds allow. now: monotonic seconds."""
        self._allowance = min(float(self._rate), self._allowance + (now - self._last) * self._rate)
        self._last = now
        self._forget_acked()
        room = min(int(self._allowance), self._max_unacked - self._unacked)
        if room < len(data) and (self._cut or room <= 0):
            # once cut, wait for room for a whole chunk: one marker, not a hundred
            self._cut += len(data)
            return
        kept = data[:room]
        self.mark(at_ms)
        self._append(kept, at_ms)
        self._allowance -= len(kept)
        self._cut += len(data) - len(kept)

    def mark(self, at_ms: int) -> None:
        """Tell what was cut so far, if anything was."""
        if self._cut:
            self._append(b"\n[handoff: %d bytes of stderr were cut here]\n" % self._cut, at_ms)
            self._cut = 0

    def _append(self, data: bytes, at_ms: int) -> None:
        end = self._journal.append("stderr", at_ms, data)
        self._unacked += len(data)
        if self._portions and self._portions[-1][1] < _PORTION:
            self._portions[-1][0] = end
            self._portions[-1][1] += len(data)
        else:
            self._portions.append([end, len(data)])

    def _forget_acked(self) -> None:
        while self._portions and self._portions[0][0] <= self._journal.acked:
            self._unacked -= self._portions.pop(0)[1]
