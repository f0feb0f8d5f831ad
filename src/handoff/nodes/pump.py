"""A link machine on a real WebSocket: what arrives goes in, what it gives goes out.

What arrives is taken, and what is to be sent is written, in the same turn of the event loop;
a task of its own sees to what is due by the clock and to the end. A frame is taken from the
link only when the transport has room, so that what is urgent is never behind what was handed
out early.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
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
    """What a pump needs of a connection: see :mod:`handoff.nodes.websocket`."""

    protocol: Any
    full: bool

    def listen(
        self, on_message: Callable[[str | bytes], None], on_room: Callable[[], None]
    ) -> None:
        """Hand over what arrives, and tell when there is room again."""
        ...

    async def recv(self, decode: bool | None = None) -> str | bytes:
        """The next message that is not handed over."""
        ...

    def send_now(self, message: str | bytes) -> None:
        """Write a message, without waiting."""
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
        #: an asyncio.Event keeps a queue of those who wait; here only one ever does, and a
        #: brain has a thousand links
        self._awake = False
        self._waiter: asyncio.Future[None] | None = None
        #: until when the task sleeps
        self._due = 0.0
        #: somebody of this class is at work below us on the stack, and will go on
        self._busy = False
        self._buffer = ReadBuffer(getattr(socket, "transport", None))
        self._room(link.max_frame)

    def poke(self) -> None:
        """Something was asked of the link: send it, as far as the transport has room."""
        if self._busy:
            return
        self._busy = True
        try:
            self._send()
        except Exception as error:
            self._broke(error)
        finally:
            self._busy = False
        due = self.link.wake_at()
        if due is None or due < self._due or self.link.closing is not None:
            self._wake()

    async def run(self) -> Close:
        """Until the link is over. Returns how."""
        self._socket.listen(self._take, self.poke)
        reader = asyncio.create_task(self._read())
        try:
            await self._keep()
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
        """What is not handed over, and the connection's end."""
        try:
            while True:
                self._take(await self._socket.recv())
        except ConnectionClosed as closed:
            frame = closed.rcvd
            code, text = (frame.code, frame.reason) if frame is not None else (1006, "")
            self.link.lost(code, text)
        except OSError as error:
            self.link.lost(1006, str(error))
        except Exception as error:
            self._broke(error)
        self.poke()

    def _take(self, frame: str | bytes) -> None:
        try:
            self._buffer.heard(len(frame), self._clock.monotonic())
            self.link.receive(frame)
        except Exception as error:
            self._broke(error)
        self.poke()

    def _send(self) -> None:
        """Tell what happened and send what waits, until there is neither, or no room. The
        last word of a link that ends goes out in any case."""
        link, socket = self.link, self._socket
        self._tell()
        while link.closing is not None or not socket.full:
            frame = link.next_frame()
            if frame is not None:
                socket.send_now(frame)
            if not self._tell() and frame is None:
                return

    async def _keep(self) -> None:
        link = self.link
        while True:
            self._awake = False
            link.tick()
            if link.state == "open":
                self._buffer.rest(self._clock.monotonic())
            self.poke()
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
        self._due = math.inf if due is None else due
        if self._awake:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None
        if due is not None:
            timer = loop.call_later(max(0.0, due - self._clock.monotonic()), self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        self._awake = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _tell(self) -> bool:
        """Tell what happened. Returns whether anything had."""
        told = False
        while events := self.link.events():
            told = True
            for event in events:
                if isinstance(event, Opened):
                    self._room(self.link.max_frame)
                try:
                    self._on_event(event)
                except Exception as error:
                    self._broke(error)
        return told

    def _broke(self, error: Exception) -> None:
        """Something of ours went wrong: this link ends, and everybody who waits on it is told
        so; the others go on."""
        log.error("a link broke", exc_info=error)
        self.link.lost(INTERNAL, "internal error")
        self._wake()

    def _room(self, size: int) -> None:
        """The largest message that is taken now: little before the other side is known."""
        protocol = self._socket.protocol
        for name in ("max_message_size", "max_size"):  # websockets 16 renamed it
            if hasattr(protocol, name):
                setattr(protocol, name, size)
