"""JSON objects, a line each, over a socket: taken in the turn of the loop in which they come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

__all__ = ["JsonLines"]


class JsonLines(asyncio.Protocol):
    """One connection.

    heard: told of each object, in order. lost: told once, when the connection has ended, or
    something came that is no object or longer than ``limit`` bytes.
    """

    def __init__(
        self, heard: Callable[[dict[str, Any]], None], lost: Callable[[], None], limit: int
    ) -> None:
        self._heard = heard
        self._lost = lost
        self._limit = limit
        self._buffer = bytearray()
        self._transport: Any = None
        self._full = False
        self._room: list[asyncio.Future[None]] = []

    # what asyncio calls

    def connection_made(self, transport: Any) -> None:
        """It is there."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Lines, whole or in parts."""
        self._buffer += data
        if b"\n" not in data:
            if len(self._buffer) > self._limit:
                self._transport.abort()
            return
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                self._transport.abort()
                return
            self._heard(message)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It is gone."""
        self.resume_writing()
        self._lost()

    def pause_writing(self) -> None:
        """The other side does not read."""
        self._full = True

    def resume_writing(self) -> None:
        """It reads again."""
        self._full = False
        room, self._room = self._room, []
        for one in room:
            if not one.done():
                one.set_result(None)

    # what its owner calls

    def send(self, message: dict[str, Any]) -> None:
        """Write an object; nothing happens to it once the connection is gone."""
        self._transport.write(json.dumps(message).encode() + b"\n")

    async def room(self) -> None:
        """Until the other side has read enough, or is gone."""
        if self._full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            await waiter

    def close(self) -> None:
        """Let it go, once what was sent is written."""
        self._transport.close()
