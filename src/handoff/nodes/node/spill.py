"""What a command writes, kept on disk within a limit and read by its own offsets.

One file a stream: the first half of the limit holds the stream's start, the rest goes
round and holds its end. Every byte is counted, kept or not, so that offsets are always
those of the command's output. Standard library only: the keeper writes, the node reads.
"""

from __future__ import annotations

import errno
import os

__all__ = ["HEAD", "Spill", "read_spill"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Piece(NamedTuple):
        """Bytes from ``offset`` on. A larger offset than the one asked for means that what
        lies between was not kept."""

        offset: int
        data: bytes
else:
    from collections import namedtuple

    Piece = namedtuple("Piece", "offset data")  # noqa: PYI024

#: the share of the limit that the stream's start may take: 1 / HEAD
HEAD = 2
#: bytes of the smallest limit
LEAST = 8192


class Spill:
    """The writer. ``total``: bytes that the command wrote. ``lost``: bytes of them that the
    disk did not take; they are counted, and a reader finds zeros in their place."""

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self.limit = max(LEAST, limit)
        self._head = self.limit // HEAD
        self._fd = -1
        #: bytes beyond which nothing is taken from the command for now; -1 for no such bound
        self.upto = -1
        self.total = 0
        self.lost = 0
        self.error = ""

    def write(self, data: bytes) -> None:
        """Count them, and keep what fits. Never raises: a full disk must not stop a command."""
        view = memoryview(data)
        tail = self.limit - self._head
        if len(view) > self._head + tail:
            # what would be overwritten in the same call
            keep = self._head - min(self.total, self._head)
            self._put(self.total, view[:keep])
            skip = len(view) - tail
            self.total += max(keep, skip)
            view = view[max(keep, skip) :]
        while view:
            if self.total < self._head:
                at, room = self.total, self._head - self.total
            else:
                turn = (self.total - self._head) % tail
                at, room = self._head + turn, tail - turn
            self._put(at, view[:room])
            self.total += len(view[:room])
            view = view[room:]

    def _put(self, at: int, view: memoryview) -> None:
        if not view:
            return
        try:
            if self._fd < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._fd = os.open(self._path, flags, 0o600)
            done = 0
            while done < len(view):
                done += os.pwrite(self._fd, view[done:], at + done)
        except OSError as error:
            self.lost += len(view)
            self.error = errno.errorcode.get(error.errno or 0, "EIO")

    def close(self) -> None:
        """Nothing more comes."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_spill(path: str, limit: int, total: int, offset: int, count: int) -> Piece:
    """Up to ``count`` bytes of a stream from ``offset`` on, or from the next one that was kept.

    limit, total: of the writer. Nothing at the end. May be called while the command writes:
    bytes that are overwritten during the call are then found out by the caller, whose next
    ``total`` says what is kept.

    Raises:
        OSError: the file can't be read.
    """
    limit = max(LEAST, limit)
    head = limit // HEAD
    tail = limit - head
    first = max(head, total - tail)  # of what the round part holds
    if offset >= head and offset < first:
        offset = first
    if offset >= total or count <= 0:
        return Piece(min(offset, total), b"")
    if offset < head:
        at, room = offset, head - offset
    else:
        turn = (offset - head) % tail
        at, room = head + turn, tail - turn
    wanted = min(count, room, total - offset)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:  # nothing of it reached the disk
        return Piece(offset, bytes(wanted))
    try:
        data = os.pread(fd, wanted, at)
    finally:
        os.close(fd)
    return Piece(offset, data + bytes(wanted - len(data)))
