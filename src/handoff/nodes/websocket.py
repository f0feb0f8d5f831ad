"""WebSocket connections of ``websockets`` that hand over and take messages without a task.

The library's own ``recv`` and ``send`` wake a task for each message, which costs more than
the message. Here a whole message is handed on from within the read that brought it, and one
is written at once. What is rare stays the library's business: the handshakes, messages in
several frames, pings, and the close.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import State

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
        else:
            self.protocol.send_binary(message)
        self.send_data()

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


def _whole(frame: Frame) -> str | bytes | None:
    """A frame's message; None for a text that is none, which the library refuses."""
    if frame.opcode is not Opcode.TEXT:
        return frame.data  # type: ignore[return-value]
    try:
        return str(frame.data, "utf-8")
    except UnicodeDecodeError:
        return None


class ClientSocket(_Straight, ClientConnection):
    """The dialling side: give it to ``connect`` as ``create_connection``."""


class ServerSocket(_Straight, ServerConnection):
    """The listening side: give it to ``serve`` as ``create_connection``."""
