"""WebSocket connections of ``websockets`` that hand over and take messages without a task.

The library's own ``recv`` and ``send`` wake a task for each message, which costs more than
the message. Here a whole message is handed on from within the read that brought it, and one
is written at once; binary messages don't go through the library at all
(:mod:`handoff.nodes.deframing`). What is rare stays the library's business: the handshakes,
texts, messages in several frames, pings, and the close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from handoff.nodes.deframing import Deframer, framed, scratch

if TYPE_CHECKING:
    _Base = Connection
else:
    _Base = object

__all__ = ["ClientSocket", "ServerSocket"]

_STARTS = frozenset({Opcode.TEXT, Opcode.BINARY})


class _Straight(_Base):
    """Before :meth:`listen` it is an ordinary connection, and ``recv`` has what arrived."""

    _on_message: Callable[[str | bytes], None] | None = None
    _on_room: Callable[[], None] | None = None
    #: messages that go through ``recv`` and were not taken there yet; later ones wait for them
    _behind = 0
    _deframer: Deframer | None = None
    #: the last bytes of the handshake were the last that came
    _clean = False
    #: frames towards a server are masked
    _server = False
    full = False
    """Whether the transport holds as much as it may: send no more until told of room."""

    def listen(
        self, on_message: Callable[[str | bytes], None], on_room: Callable[[], None]
    ) -> None:
        """Hand each message to ``on_message`` from now on, unless ``recv`` has to give one
        first: keep a task in it. on_room: called when the transport has room again."""
        self._on_message, self._on_room = on_message, on_room

    def send_now(self, message: str | bytes) -> None:
        """Write a message; nothing if the connection is closing. Never waits: see ``full``."""
        if self.protocol.state is not State.OPEN:
            return
        if isinstance(message, str):
            self.protocol.send_text(message.encode())
            self.send_data()
        else:
            self.transport.write(framed(message, not self._server))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Called by the transport: where to put what arrives."""
        return scratch() if self._deframer is None else self._deframer.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the transport."""
        protocol = self.protocol
        if self._deframer is None:
            if not self._clean or protocol.state is State.CONNECTING:
                data = bytes(scratch()[:nbytes])
                self._clean = protocol.state is State.CONNECTING and data.endswith(b"\r\n\r\n")
                self.data_received(data)
                return
            self._deframer = Deframer(self._server, self._message, self.data_received)
        deframer = self._deframer
        deframer.limit = _limit(protocol)
        deframer.straight = (
            self._on_message is not None and not self._behind and protocol.state is State.OPEN
        )
        deframer.filled(nbytes)

    def _message(self, message: bytes) -> None:
        assert self._on_message is not None
        self._on_message(message)
        if self._deframer is not None and self.protocol.state is not State.OPEN:
            self._deframer.straight = False

    async def recv(self, decode: bool | None = None) -> Any:
        """The next message that was not handed over."""
        message = await super().recv(decode)
        self._behind -= 1
        return message

    def process_event(self, event: Any) -> None:
        """Called by the library for each frame, and for what the handshake brings."""
        if isinstance(event, Frame) and event.opcode in _STARTS:
            if self._on_message is not None and event.fin and not self._behind:
                message = _whole(event)
                if message is not None:
                    self._on_message(message)
                    return
            self._behind += 1
        if self._on_message is not None:  # the handshake is over
            Connection.process_event(self, event)
        else:
            super().process_event(event)

    def pause_writing(self) -> None:
        """Called by the transport."""
        super().pause_writing()
        self.full = True

    def resume_writing(self) -> None:
        """Called by the transport."""
        super().resume_writing()
        self.full = False
        if self._on_room is not None:
            self._on_room()


def _limit(protocol: Any) -> int:
    for name in ("max_message_size", "max_size"):  # websockets 16 renamed it
        if hasattr(protocol, name):
            return int(getattr(protocol, name))
    raise AttributeError("websockets names its limit otherwise")


def _whole(frame: Frame) -> str | bytes | None:
    """A frame's message; None for a text that is none, which the library refuses."""
    if frame.opcode is not Opcode.TEXT:
        return frame.data  # type: ignore[return-value]
    try:
        return str(frame.data, "utf-8")
    except UnicodeDecodeError:
        return None


class ClientSocket(_Straight, ClientConnection, asyncio.BufferedProtocol):
    """The dialling side: give it to ``connect`` as ``create_connection``."""


class ServerSocket(_Straight, ServerConnection, asyncio.BufferedProtocol):
    """The listening side: give it to ``serve`` as ``create_connection``."""

    _server = True
