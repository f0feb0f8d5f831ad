"""Bytes that belong to a call, whatever carries them."""

from __future__ import annotations

from typing import Protocol

__all__ = ["NoStreams", "Streams", "Withdrawn"]


class Withdrawn(ConnectionError):
    """Whoever asked has ended the call before its input was whole."""


class Streams(Protocol):
    """The streams of one call, as the node sees them."""

    async def send(self, name: str, offset: int, data: bytes) -> None:
        """Send bytes of a stream that the call gives. Waits until the other side has room.

        offset: of the first byte; a gap says that bytes were not kept.

        Raises:
            ConnectionError: the link is gone. What follows is read by range later.
        """
        ...

    async def receive(self) -> bytes:
        """The next bytes of the stream that the call takes; empty at its end.

        Raises:
            Withdrawn: the call was cancelled before the end came.
            ConnectionError: the link is gone before it.
        """
        ...

    def more(self) -> list[bytes]:
        """What else of that stream is here already, to be used in one go."""
        ...


class NoStreams:
    """For calls without any."""

    async def send(self, name: str, offset: int, data: bytes) -> None:
        """Nobody listens."""

    async def receive(self) -> bytes:
        """Nothing comes."""
        return b""

    def more(self) -> list[bytes]:
        """Nothing does."""
        return []
