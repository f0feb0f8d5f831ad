"""Messages of a WebSocket that are one binary frame, without the library: sans-I/O.

Nearly all that a link carries are such frames (RFC 6455 section 5.2: FIN, opcode 2), some of
256 KiB. They are read into their place, instead of being copied four times on the way to it.
Whatever else arrives (texts, pings, closes, messages in several frames, what is no frame) is
passed on as it came, from the first byte of a frame on.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from typing import cast

try:  # as websockets does it
    from websockets.speedups import apply_mask
except ImportError:  # pragma: no cover - where it was built without its C part
    from websockets.utils import apply_mask

__all__ = ["Deframer", "framed", "scratch"]

#: bytes that are taken before it is known what they are: those of a TLS record
SCRATCH = 16 * 1024
_BINARY, _MASKED = 0x82, 0x80
#: FIN with a text, a close, a ping, a pong: what the library gets whole
_OTHERS = frozenset({0x81, 0x88, 0x89, 0x8A})
_NOTHING = memoryview(b"")
_LOCAL = threading.local()


def scratch() -> memoryview:
    """A place for bytes that are used before the loop goes on; one a thread."""
    found: memoryview | None = getattr(_LOCAL, "view", None)
    if found is None:
        found = _LOCAL.view = memoryview(bytearray(SCRATCH))
    return found


def framed(message: bytes, masked: bool) -> bytes:
    """A message as one binary frame."""
    size = len(message)
    bit = _MASKED if masked else 0
    if size < 126:
        head = bytes((_BINARY, bit | size))
    elif size < 65536:
        head = struct.pack(">BBH", _BINARY, bit | 126, size)
    else:
        head = struct.pack(">BBQ", _BINARY, bit | 127, size)
    if not masked:
        return b"".join((head, message))
    mask = os.urandom(4)
    return b"".join((head, mask, apply_mask(message, mask)))


class Deframer:
    """Takes bytes where it says, and gives messages.

    It begins where a frame does. masked: whether frames must be, as they are towards a
    server. message: told of each message. other: told of all other bytes, in their order.
    ``limit``: bytes of the largest message; ``straight``: False to pass on messages, too, from
    the next one on.
    """

    __slots__ = (
        *("_have", "_left", "_lost", "_mask", "_masked", "_message", "_other", "_part"),
        *("_rest", "_view", "limit", "straight"),
    )

    def __init__(
        self, masked: bool, message: Callable[[bytes], None], other: Callable[[bytes], None]
    ) -> None:
        self._masked = masked
        self._message = message
        self._other = other
        self.limit = 0
        self.straight = True
        #: nothing here tells any more where a frame begins
        self._lost = False
        #: the beginning of a frame's head
        self._rest = b""
        #: bytes of a frame for ``other`` that are still to come
        self._left = 0
        #: a message under way, where it is put, and how much of it is there
        self._part: bytearray | None = None
        self._view = _NOTHING
        self._have = 0
        self._mask = b""

    def room(self) -> memoryview:
        """Where to put the next bytes; good until :meth:`filled`."""
        return scratch() if self._part is None else self._view[self._have :]

    def filled(self, count: int) -> None:
        """So many bytes were put there."""
        if self._part is None:
            self._split(scratch()[:count])
            return
        self._have += count
        if self._have == len(self._part):
            part, self._part, self._view = self._part, None, _NOTHING
            self._give(part)

    def _split(self, view: memoryview) -> None:
        if self._rest:
            view = memoryview(self._rest + bytes(view))
            self._rest = b""
        at, end = 0, len(view)
        while at < end:
            if self._left or self._lost:
                stop = end if self._lost else min(end, at + self._left)
                self._left -= 0 if self._lost else stop - at
                self._other(bytes(view[at:stop]))
                at = stop
            else:
                at = self._frame(view, at, end)

    def _frame(self, view: memoryview, at: int, end: int) -> int:
        """Take the frame that begins there, if it is a message. Returns where to go on."""
        first, second = view[at], view[at + 1] if at + 1 < end else 0
        extended = {126: 2, 127: 8}.get(second & 0x7F, 0)
        start = at + 2 + extended + (4 if self._masked else 0)
        if start > end:
            self._rest = bytes(view[at:])
            return end
        size = (
            int.from_bytes(view[at + 2 : at + 2 + extended], "big") if extended else second & 0x7F
        )
        masked = second >= _MASKED
        if masked is not self._masked or size > self.limit or first not in (_BINARY, *_OTHERS):
            self._lost = True  # several frames make a message, or the library ends this
            return at
        if first != _BINARY or not self.straight:
            self._left = start - at + size
            return at
        self._mask = bytes(view[start - 4 : start]) if masked else b""
        stop = start + size
        if stop <= end:
            self._give(view[start:stop])
            return stop
        self._part = bytearray(size)
        self._view = memoryview(self._part)
        self._have = end - start
        self._view[: self._have] = view[start:end]
        return end

    def _give(self, data: bytearray | memoryview) -> None:
        if self._masked:
            self._message(apply_mask(data, self._mask))
        else:
            # what was put in its place is nobody else's, and stays as it is
            self._message(bytes(data) if isinstance(data, memoryview) else cast("bytes", data))
