"""What others on this machine ask the brain: over a Unix socket, for its own user alone.

One request a connection: an object with ``op``, then for a call its streams, then the
answer ``{"ok": true, …}`` or ``{"ok": false, "error", "code", "remedy", "details"}``::

    call {target, call: {op, args}, key, by, wait_s, return_s, stream, feed}
         in: D frames of the call's stream, {"end": true}, {"cancel": true}
         out: D frames, then {"ok", "value"}
    cancel {key}                       nodes {}                 status {}
    code {name, address, replace, ttl_s}        token {name, keep, replace, tags}
    revoke {name}  remove {name}  rename {name, to}  rotate {name}
    tags {name, tags}  require {name, require}   stop {}
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from handoff.errors import BadRequest, HandoffError, ProtocolViolation
from handoff.nodes.brain.core import Brain
from handoff.nodes.brain.framing import HEADER, data_frame, json_frame, length, parse
from handoff.wire.node import calls

if TYPE_CHECKING:
    from handoff.nodes.brain.main import Serving

__all__ = ["ControlSocket"]

SOCKET = "brain.sock"
#: frames of a call's input that may wait
QUEUE = 8

log = logging.getLogger("handoff.nodes")


class ControlSocket:
    """Listens in the brain's folder."""

    def __init__(self, brain: Brain, serving: Serving) -> None:
        self._brain = brain
        self._serving = serving
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self, folder: str) -> None:
        """Make the socket; an old one of a brain that was killed is replaced.

        Raises:
            OSError: the folder can't be written.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(SOCKET, dir_fd=fd)
            # the address is short whatever the folder is called
            place = f"/proc/self/fd/{fd}" if sys.platform == "linux" else folder
            sock.bind(os.path.join(place, SOCKET))
            os.chmod(SOCKET, 0o600, dir_fd=fd)
        finally:
            os.close(fd)
        self._server = await asyncio.start_unix_server(self._accept, sock=sock)

    async def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if peer_uid(writer.get_extra_info("socket")) not in {os.geteuid(), 0}:
                return
            request = await read_frame(reader)
            if isinstance(request, tuple):
                raise ProtocolViolation("a request is an object")
            answer = await self._answer(request, reader, writer)
            writer.write(json_frame(answer))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except HandoffError as error:
            with contextlib.suppress(ConnectionError):
                writer.write(json_frame(failure(error)))
                await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> dict[str, Any]:
        op = request.get("op")
        try:
            if op == "call":
                return await _Call(self._brain, request, reader, writer).run()
            if op == "cancel":
                return {"ok": True, "done": await self._brain.cancel(text(request, "key"))}
            plain: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
                "nodes": self._nodes,
                "status": self._status,
                "code": self._code,
                "token": self._token,
                "revoke": self._revoke,
                "remove": self._remove,
                "rename": self._rename,
                "rotate": self._rotate,
                "tags": self._tags,
                "require": self._require,
                "stop": self._stop,
            }
            work = plain.get(str(op))
            if work is None:
                raise BadRequest(f"there is no request '{str(op)[:40]}'", field="op")
            return {"ok": True, **work(request)}
        except HandoffError as error:
            return failure(error)
        except ConnectionError:
            raise
        except Exception as error:  # an answer that never comes would be taken for a crash
            log.exception("a request broke: %s", str(op)[:40])
            return failure(HandoffError(f"the brain broke at this: {type(error).__name__}"))

    def _nodes(self, _: dict[str, Any]) -> dict[str, Any]:
        linked = {one.name: asdict(one) for one in self._brain.connected()}
        found = []
        for record in self._brain.store.nodes():
            state = "connected" if record.name in linked else "disconnected"
            if not record.last_ms and record.name not in linked:
                state = "never_seen"
            if record.revoked:
                state = "revoked"
            found.append({**asdict(record), "state": state, "link": linked.get(record.name)})
        return {"nodes": found, "count": len(found)}

    def _status(self, _: dict[str, Any]) -> dict[str, Any]:
        return self._serving.status()

    def _code(self, request: dict[str, Any]) -> dict[str, Any]:
        address = text(request, "address", "") or self._serving.address
        code = self._brain.store.new_code(
            address,
            self._brain.key.public,
            text(request, "name", ""),
            replace=request.get("replace") is True,
            ttl_s=number(request, "ttl_s", 600),
        )
        self._brain.audit.row("pair", node=code.name, status="code", actor=request.get("by"))
        return {
            "code": code.text(),
            "id": code.id,
            "address": address,
            "name": code.name,
            "fingerprint": self._brain.key.fingerprint,
            "ttl_s": number(request, "ttl_s", 600),
        }

    def _token(self, request: dict[str, Any]) -> dict[str, Any]:
        name = text(request, "name")
        token = self._brain.store.add_token(
            name,
            keep=request.get("keep") is True,
            replace=request.get("replace") is True,
            tags=texts(request, "tags"),
        )
        self._brain.audit.row("pair", node=name, status="token", actor=request.get("by"))
        return {"token": token, "name": name, "address": self._serving.address}

    def _revoke(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"changed": self._brain.revoke(text(request, "name"))}

    def _remove(self, request: dict[str, Any]) -> dict[str, Any]:
        name = text(request, "name")
        self._brain.revoke(name)
        self._brain.store.remove(name)
        self._brain.audit.row("remove", node=name, status="ok")
        return {}

    def _rename(self, request: dict[str, Any]) -> dict[str, Any]:
        name, to = text(request, "name"), text(request, "to")
        self._brain.rename(name, to)
        return {"name": to}

    def _rotate(self, request: dict[str, Any]) -> dict[str, Any]:
        name = text(request, "name")
        token = self._brain.store.rotate_token(name)
        session = self._brain.sessions.get(name)
        if session is not None:
            session.close("revoked", "its token was rotated")
        self._brain.audit.row("rotate", node=name, status="ok")
        return {"token": token, "name": name}

    def _tags(self, request: dict[str, Any]) -> dict[str, Any]:
        self._brain.store.set_tags(text(request, "name"), texts(request, "tags"))
        return {}

    def _require(self, request: dict[str, Any]) -> dict[str, Any]:
        name, require = text(request, "name"), text(request, "require", "")
        self._brain.store.set_require(name, require)
        self._brain.audit.row("require", node=name, target=require, status="ok")
        return {}

    def _stop(self, _: dict[str, Any]) -> dict[str, Any]:
        self._serving.stop()
        return {}


class _Call:
    """One call of one client."""

    def __init__(
        self,
        brain: Brain,
        request: dict[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._brain = brain
        self._reader = reader
        self._writer = writer
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
        self._stream = request.get("stream") is True
        self._feeds = request.get("feed") is True
        self._input: asyncio.Queue[bytes] = asyncio.Queue(QUEUE)
        self._gone = False

    async def run(self) -> dict[str, Any]:
        """The answer."""
        listening = asyncio.create_task(self._listen())
        try:
            ok, answer = await self._brain.call(
                self._target,
                self._call,
                key=self._key,
                by=self._by,
                pieces=self._piece if self._stream else None,
                feed=self._input.get if self._feeds else None,
                wait_s=self._wait_s,
                return_s=self._return_s,
            )
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
        return {"ok": ok, "value": calls.to_json(answer)}

    async def _piece(self, stream: str, data: bytes) -> None:
        if self._gone:
            raise ConnectionError("the client is gone")
        self._writer.write(data_frame(stream, data))
        await self._writer.drain()

    async def _listen(self) -> None:
        """What the client sends meanwhile. When it goes away the call goes on: whoever asks
        again with its key gets the answer."""
        try:
            while True:
                frame = await read_frame(self._reader)
                if isinstance(frame, tuple):
                    if frame[1]:
                        await self._input.put(frame[1])
                elif frame.get("end"):
                    await self._input.put(b"")
                elif frame.get("cancel"):
                    await self._brain.cancel(self._key)
        except (ConnectionError, asyncio.IncompleteReadError, HandoffError):
            self._gone = True
            if self._feeds:
                await self._input.put(b"")


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any] | tuple[str, bytes]:
    """The next frame.

    Raises:
        asyncio.IncompleteReadError: the other end is gone.
        ProtocolViolation: it is none.
    """
    header = await reader.readexactly(HEADER)
    return parse(header[:1], await reader.readexactly(length(header)))


def failure(error: HandoffError) -> dict[str, Any]:
    """An error as an answer."""
    return {
        "ok": False,
        "error": error.cause,
        "code": error.code,
        "remedy": error.remedy,
        "details": json.loads(json.dumps(error.details, default=str)),
    }


def text(request: dict[str, Any], name: str, default: str | None = None) -> str:
    """A text of a request. Raises BadRequest."""
    found = request.get(name, default)
    if not isinstance(found, str):
        raise BadRequest(f"'{name}' must be a text", field=name)
    return found


def texts(request: dict[str, Any], name: str) -> list[str]:
    """A list of texts. Raises BadRequest."""
    found = request.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise BadRequest(f"'{name}' must be a list of texts", field=name)
    return found


def number(request: dict[str, Any], name: str, default: int) -> Any:
    """A number, at least 0. Raises BadRequest."""
    found = request.get(name, default)
    good = isinstance(found, int | float) and not isinstance(found, bool)
    if not good or not math.isfinite(found) or not 0 <= found < 2**53:
        raise BadRequest(f"'{name}' must be a number from 0", field=name)
    return found


def peer_uid(sock: Any) -> int:
    """Whose process is at the other end; -1 if the system does not say."""
    if sys.platform == "linux":
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", raw)[1])
    with contextlib.suppress(OSError, AttributeError):  # LOCAL_PEERCRED of macOS
        raw = sock.getsockopt(0, 1, 76)
        return int(struct.unpack_from("I", raw, 4)[0])
    return -1
