"""Connections to the brain's Unix socket: requests one after the other, and a call's streams.

No task waits on a connection: what arrives is acted on in the same turn of the loop, and an
answer is written when there is one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

from handoff.errors import BadRequest, HandoffError, ProtocolViolation
from handoff.nodes.brain.asking import Asking, Waiting
from handoff.nodes.brain.core import Brain
from handoff.nodes.brain.framing import HEADER, data_frame, json_frame, length, parse
from handoff.nodes.brain.requests import failure, number, peer_uid, text
from handoff.wire.node import calls
from handoff.wire.node.calls import Result

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Local", "Owner"]

#: frames of a call's input that may wait
QUEUE = 8
#: bytes for a client that does not read, before its call's streams wait
UNREAD = 256 * 1024

log = logging.getLogger("handoff.nodes")


class Owner(Protocol):
    """Whoever listens."""

    brain: Brain

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request other than a call. Raises HandoffError."""
        ...

    def opened(self, client: Local) -> None:
        """A client has connected."""
        ...

    def asks(self, client: Local) -> None:
        """A client has asked something."""
        ...

    def rests(self, client: Local) -> None:
        """A client has got its answer, and may ask more."""
        ...

    def closed(self, client: Local) -> None:
        """A client is gone."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something."""
        ...


class Local(asyncio.Protocol):
    """One connection."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: Any = None
        self._buffer = bytearray()
        self._call: _Call | None = None
        self._paused = False
        #: no frames are taken for now
        self._still = False
        self._room: asyncio.Future[None] | None = None
        self._full = False

    # what asyncio calls

    def connection_made(self, transport: Any) -> None:
        """Only this user's own processes may come in."""
        self._transport = transport
        sock: socket.socket = transport.get_extra_info("socket")
        if peer_uid(sock) not in {os.geteuid(), 0}:
            transport.abort()
            return
        transport.set_write_buffer_limits(UNREAD)
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """A call goes on: whoever asks again with its key gets the answer."""
        self._full = False
        self.resume_writing()
        if self._call is not None:
            self._call.lost()
        self._owner.closed(self)

    def pause_writing(self) -> None:
        """The client does not read: what else it asks waits until it does."""
        self._full = True
        self._flow()

    def resume_writing(self) -> None:
        """It reads again."""
        self._full = False
        if self._room is not None:
            self._room.set_result(None)
            self._room = None
        self._flow()

    def data_received(self, data: bytes) -> None:
        """Frames, whole or in parts."""
        self._buffer += data
        self._frames()

    def _frames(self) -> None:
        buffer = self._buffer
        try:
            while not self._still and len(buffer) >= HEADER:
                size = HEADER + length(bytes(buffer[:HEADER]))
                if len(buffer) < size:
                    return
                with memoryview(buffer) as view:
                    body = bytes(view[HEADER:size])
                kind = bytes(buffer[:1])
                del buffer[:size]
                self._frame(parse(kind, body))
        except HandoffError as error:
            self.answer(failure(error))
            self.close()

    def _frame(self, frame: dict[str, Any] | tuple[str, bytes]) -> None:
        if self._call is not None:
            self._call.frame(frame)
        elif isinstance(frame, tuple):
            raise ProtocolViolation("a request is an object")
        elif "op" in frame or not frame.keys() & {"cancel", "end"}:  # these came too late
            self._request(frame)

    def _request(self, request: dict[str, Any]) -> None:
        self._owner.asks(self)
        try:
            if request.get("op") == "call":
                self._call = _Call(self._owner, self, request)
                self._call.start()
            else:
                self.answer({"ok": True, **self._owner.answer(request)})
        except HandoffError as error:
            self.answer(failure(error))
        except Exception as error:  # an answer that never comes would be taken for a crash
            self.answer(broke(request.get("op"), error))

    # what its call does

    def write(self, frame: bytes) -> Awaitable[None] | None:
        """Send something. Returns what to wait for before more is sent, if anything.

        Raises:
            ConnectionError: the client is gone.
        """
        if self._transport.is_closing():
            raise ConnectionError("the client is gone")
        self._transport.write(frame)
        if not self._full:
            return None
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        return self._room

    def answer(self, answer: dict[str, Any]) -> None:
        """The end of a request. After a call that took input the connection closes: some of
        it may still be on its way."""
        fed = self._call is not None and self._call.feeds
        self._call = None
        if not self._transport.is_closing():
            self._transport.write(json_frame(answer))
            if fed:
                self._transport.close()
            else:
                self._owner.rests(self)
                self._flow()

    def hold(self, paused: bool) -> None:
        """Take no more frames, or go on."""
        self._paused = paused
        self._flow()

    def _flow(self) -> None:
        still = self._paused or (self._full and self._call is None)
        if still == self._still or self._transport.is_closing():
            return
        self._still = still
        if still:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._frames)

    def close(self) -> None:
        """Let it go."""
        self._transport.close()


class _Call:
    """One call of one client."""

    def __init__(self, owner: Owner, local: Local, request: dict[str, Any]) -> None:
        self._owner = owner
        self._local = local
        self._target = text(request, "target")
        told = request.get("call")
        if not isinstance(told, dict):
            raise BadRequest("'call' must be an object", field="call")
        args = told.get("args", {})
        if not isinstance(args, dict):
            raise BadRequest("'args' must be an object", field="args")
        self._call = calls.call_from_json(text(told, "op"), args)
        self._key = text(request, "key", "")
        by = request.get("by", {})
        self._by = json.dumps(by) if by else ""
        self._wait_s = number(request, "wait_s", 0)
        self._return_s = number(request, "return_s", 30)
        self._pieces = self._piece if request.get("stream") is True else None
        self.feeds = request.get("feed") is True
        self._input: deque[bytes] = deque()
        self._whole = self._cut = False
        self._news: asyncio.Future[None] | None = None
        #: what goes on until there is an answer, one or the other
        self._slow: asyncio.Task[None] | None = None
        self._waits: tuple[Asking, Waiting] | None = None

    def start(self) -> None:
        """Ask the node. Raises HandoffError."""
        begun = self._owner.brain.begin(
            self._target,
            self._call,
            key=self._key,
            by=self._by,
            pieces=self._pieces,
            feed=self._next if self.feeds else None,
        )
        if begun is None:
            self._slow = self._owner.spawn(self._slowly())
        elif isinstance(begun, tuple):
            self._told(*begun)
        else:
            self._waits = begun, Waiting(begun, self._return_s, self._told)

    def frame(self, frame: dict[str, Any] | tuple[str, bytes]) -> None:
        """What the client sends meanwhile."""
        if isinstance(frame, tuple):
            if frame[1]:
                self._take(frame[1])
        elif frame.get("end"):
            self._whole = True
            self._take(b"")
        elif frame.get("cancel"):
            self._owner.brain.cancel(self._key)

    def lost(self) -> None:
        """The client is gone. What was not sent yet is not sent, and what only reads ends. A
        command's input ends; what else takes input is not done with half of it."""
        if self._slow is not None:
            self._slow.cancel()
        if self._waits is not None:
            asking, waiting = self._waits
            waiting.leave()
            self._owner.brain.left(asking)
        if self.feeds:
            self._cut = self._call.op != "exec"
            self._take(b"")

    async def _slowly(self) -> None:
        """A call whose node is away, or that was made before."""
        try:
            told = await self._owner.brain.call(
                self._target,
                self._call,
                key=self._key,
                by=self._by,
                pieces=self._pieces,
                feed=self._next if self.feeds else None,
                wait_s=self._wait_s,
                return_s=self._return_s,
            )
        except HandoffError as error:
            self._local.answer(failure(error))
        except Exception as error:
            self._local.answer(broke("call", error))
        else:
            self._told(*told)

    def _told(self, ok: bool, answer: Result) -> None:
        self._local.answer({"ok": ok, "value": calls.to_json(answer)})

    def _piece(self, stream: str, data: bytes) -> Awaitable[None] | None:
        return self._local.write(data_frame(stream, data))

    def _take(self, data: bytes) -> None:
        self._input.append(data)
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
        self._local.hold(len(self._input) >= QUEUE)

    async def _next(self) -> bytes:
        while not self._input:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        data = self._input.popleft()
        if not data and self._cut and not self._whole:
            self._owner.brain.cancel(self._key)  # it overtakes the end of the input
        self._local.hold(len(self._input) >= QUEUE)
        return data


def broke(op: object, error: Exception) -> dict[str, Any]:
    """The answer when a request broke something of ours."""
    log.error("a request broke: %s", str(op)[:40], exc_info=error)
    return failure(HandoffError(f"the brain broke at this: {type(error).__name__}"))
