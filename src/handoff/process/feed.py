"""Numbered input on its way to the executor: each number once, in order, without blocking.

Standard library only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    #: told once with "" when the number was written, or with why it never will be
    Waiter = Callable[[str], None]

#: input that waits for a slow executor may take this much of the shim's memory
MAX_WAITING = 64 << 20


class Feed:
    """The executor's standard input.

    wrote: called with each number at the moment its last byte was taken by the pipe,
    before anything the executor answers can be read.
    """

    def __init__(self, fd: int, wrote: Callable[[int], None]) -> None:
        self.fd = fd
        self.written = 0
        self._wrote = wrote
        self._queue: list[tuple[int, memoryview, list[Waiter]]] = []
        self._done_of_first = 0
        self._bytes = 0

    @property
    def waiting(self) -> bool:
        """Whether something waits for the pipe to take more."""
        return bool(self._queue) and self.fd >= 0

    def offer(self, number: int, data: bytes, waiter: Waiter) -> None:
        """Take input ``number`` unless it was taken before.

        waiter is told "" once it is written, else one of ``gap`` (numbers are missing
        before it), ``gone`` (nobody reads any more), ``busy`` (too much waits already).
        """
        last = self._queue[-1][0] if self._queue else self.written
        if number <= self.written:
            waiter("")
        elif number <= last:
            self._queue[number - last - 1][2].append(waiter)
        elif number != last + 1:
            waiter("gap")
        elif self.fd < 0:
            waiter("gone")
        elif self._queue and self._bytes + len(data) > MAX_WAITING:
            waiter("busy")
        else:
            self._queue.append((number, memoryview(data), [waiter]))
            self._bytes += len(data)
            self.push()

    def push(self) -> None:
        """Write as much as the pipe takes."""
        while self._queue and self.fd >= 0:
            number, data, waiters = self._queue[0]
            try:
                while self._done_of_first < len(data):
                    self._done_of_first += os.write(self.fd, data[self._done_of_first :])
            except BlockingIOError:
                return
            except OSError:  # EPIPE: the executor closed its input, or is gone
                self.close()
                return
            del self._queue[0]
            self._done_of_first = 0
            self._bytes -= len(data)
            self.written = number
            self._wrote(number)
            for waiter in waiters:
                waiter("")

    def close(self) -> None:
        """End of input for the executor; what was not written never will be."""
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        dropped, self._queue = self._queue, []
        self._bytes = self._done_of_first = 0
        for _, _, waiters in dropped:
            for waiter in waiters:
                waiter("gone")
