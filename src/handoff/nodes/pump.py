"""A link machine on a real WebSocket: what arrives goes in, what it gives goes out.

One reader and one writer on one event loop. The writer takes a frame only when the
transport has room, so that what is urgent is never behind what was handed out early.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from websockets.exceptions import ConnectionClosed

from handoff.link.tls import ReadBuffer
from handoff.wire.node.closing import Close
from handoff.wire.node.events import Event, Opened
from handoff.wire.node.link import Link

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["WRITE_LIMIT", "Pump"]

#: bytes that the transport may hold before the writer waits
WRITE_LIMIT = 64 * 1024
#: seconds that the other side has to answer our close
CLOSE_S = 2.0
#: RFC 6455 section 7.4.1: an unexpected condition
INTERNAL = 1011

log = logging.getLogger("handoff.nodes")


class Socket(Protocol):
    """What a pump needs of a WebSocket connection of ``websockets``."""

    protocol: Any

    async def recv(self, decode: bool | None = None) -> str | bytes:
        """The next message."""
        ...

    async def send(self, message: str | bytes) -> None:
        """Send a message; waits while the transport is full."""
        ...

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection."""
        ...


class Pump:
    """Moves frames between a socket and a link until either ends.

    on_event: told of each event, in order, on the loop.
    """

    def __init__(
        self, socket: Socket, link: Link, on_event: Callable[[Event], None], clock: Clock
    ) -> None:
        self._socket = socket
        self.link = link
        self._on_event = on_event
        self._clock = clock
        self._awake = asyncio.Event()
        self._buffer = ReadBuffer(getattr(socket, "transport", None))
        self._room(link.max_frame)

    def poke(self) -> None:
        """Something was asked of the link: look for what is to be sent."""
        self._awake.set()

    async def run(self) -> Close:
        """Until the link is over. Returns how."""
        reader = asyncio.create_task(self._read())
        try:
            await self._write()
        except Exception as error:
            self._broke(error)
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._socket.close(), CLOSE_S)
            self.link.lost()
            self._tell()
        assert self.link.closing is not None
        return self.link.closing

    async def _read(self) -> None:
        try:
            while True:
                frame = await self._socket.recv()
                self._buffer.heard(len(frame), self._clock.monotonic())
                self.link.receive(frame)
                self._tell()
                self.poke()
        except ConnectionClosed as closed:
            frame_ = closed.rcvd
            code, text = (frame_.code, frame_.reason) if frame_ is not None else (1006, "")
            self.link.lost(code, text)
        except OSError as error:
            self.link.lost(1006, str(error))
        except Exception as error:
            self._broke(error)
        self._tell()
        self.poke()

    async def _write(self) -> None:
        link = self.link
        while True:
            self._awake.clear()
            link.tick()
            if link.state == "open":
                self._buffer.rest(self._clock.monotonic())
            self._tell()
            frame = link.next_frame()
            while frame is not None:
                with contextlib.suppress(ConnectionClosed):
                    await self._socket.send(frame)
                self._tell()
                frame = link.next_frame()
            self._tell()
            if link.state == "closed":
                return
            if link.closing is not None:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(
                        self._socket.close(link.closing.code, link.closing.text), CLOSE_S
                    )
                return
            await self._sleep()

    async def _sleep(self) -> None:
        due = self.link.wake_at()
        if due is None:
            await self._awake.wait()
            return
        left = max(0.0, due - self._clock.monotonic())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._awake.wait(), left)

    def _tell(self) -> None:
        while events := self.link.events():
            for event in events:
                if isinstance(event, Opened):
                    self._room(self.link.max_frame)
                try:
                    self._on_event(event)
                except Exception as error:
                    self._broke(error)

    def _broke(self, error: Exception) -> None:
        """Something of ours went wrong: this link ends, and everybody who waits on it is told
        so; the others go on."""
        log.error("a link broke", exc_info=error)
        self.link.lost(INTERNAL, "internal error")
        self.poke()

    def _room(self, size: int) -> None:
        """The largest message that is taken now: little before the other side is known."""
        protocol = self._socket.protocol
        for name in ("max_message_size", "max_size"):  # websockets 16 renamed it
            if hasattr(protocol, name):
                setattr(protocol, name, size)
