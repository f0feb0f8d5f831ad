"""The HTTP door: who may come in, and how an error goes out."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from handoff.agentd import peers
from handoff.agentd.peers import Peer
from handoff.errors import (
    ActorRefused,
    HandoffError,
    NotFound,
    TooLarge,
    Unauthorized,
    UsageError,
)

if TYPE_CHECKING:
    from handoff.agentd.machine import Machine

log = logging.getLogger("handoff.http")

#: bytes of a request body; a plan of 4 MiB in base64 with room around it
BODY_LIMIT = 8 * 1024 * 1024
#: bytes of JSON that are decoded without a thread
INLINE_LIMIT = 256 * 1024

Handler = Callable[[Request], Awaitable[Response]]


class Json(JSONResponse):
    """JSON as UTF-8. Names of files may be bytes that are no text: then all of the answer
    is ASCII, and those bytes are escaped."""

    def render(self, content: Any) -> bytes:
        """The body."""
        try:
            return super().render(content)
        except UnicodeEncodeError:
            return json.dumps(content, separators=(",", ":")).encode("ascii")


class PeerProtocol(H11Protocol):
    """HTTP/1.1 that knows the process at the other end of a Unix socket.

    It is told to the application as the client's address: ``("pid:123", uid)``.
    """

    def connection_made(self, transport: Any) -> None:
        """A connection was accepted."""
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_UNIX:
            peer = peers.of_unix_socket(sock)
            self.client = (f"pid:{peer.pid}", peer.uid)
            self.server = ("unix", None)


def peer_of(scope: Any) -> Peer:
    """Who calls, as far as the connection tells."""
    host, port = scope.get("client") or ("", 0)
    if str(host).startswith("pid:"):
        return Peer(int(str(host)[4:]), int(port))
    return Peer(0, -1)


class Door:
    """ASGI middleware: lets in the owner on the Unix socket and holders of the token on
    TCP, and turns typed errors into answers."""

    def __init__(self, app: Any, token: str, uid: int) -> None:
        self.app = app
        self.token = token
        self.uid = uid

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Check, then pass on."""
        if scope["type"] not in ("http", "websocket") or self._may(scope):
            await self.app(scope, receive, send)
            return
        error = Unauthorized("the token is missing or wrong", remedy="see 'token' in config.yaml")
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": error.cause})
            return
        await JSONResponse(error.to_json(), error.http)(scope, receive, send)

    def _may(self, scope: Any) -> bool:
        peer = peer_of(scope)
        if peer.uid >= 0:
            return peer.uid in (self.uid, 0)
        server = scope.get("server")
        if server is not None and server[1] is None:  # the Unix socket: 0600
            return True
        return self._token_fits(scope) and _local_name(scope)

    def _token_fits(self, scope: Any) -> bool:
        if not self.token:
            return False
        for name, value in scope["headers"]:
            if name == b"authorization":
                given = value.removeprefix(b"Bearer ")
                return hmac.compare_digest(given, self.token.encode())
        return False


def _local_name(scope: Any) -> bool:
    """Whether the Host header names this machine: a web page whose name was pointed here
    (DNS rebinding) does not."""
    for name, value in scope["headers"]:
        if name == b"host":
            host = value.decode("latin-1").rsplit(":", 1)[0].strip("[]").lower()
            return host in ("localhost", "::1") or host.startswith("127.")
    return True


def guard(machine: Machine, request: Request, task_id: str | None) -> str:
    """The actor's name for a call that changes something.

    Raises:
        ActorRefused: the caller runs inside a task. The task it runs in learns of it.
    """
    peer = peer_of(request.scope)
    shims = machine.shims()
    if peer.uid >= 0:
        run_id = peers.run_of(peer.pid, shims)
    else:
        client, server = request.scope.get("client"), request.scope.get("server")
        ports = (int(client[1]), int(server[1])) if client and server else (0, 0)
        run_id = peers.run_of_tcp(*ports, shims)
    if run_id is None:
        return peer.actor
    machine.report_refused(run_id, f"{request.method} {request.url.path}", peer.pid)
    raise ActorRefused(
        "this process runs inside a task: it may not act as its coordinator",
        remedy="ask the coordinator, by a question at the end of the turn",
        task_id=task_id,
    )


async def body_of(request: Request) -> bytes:
    """The request's body.

    Raises:
        TooLarge: over :data:`BODY_LIMIT`.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_LIMIT:
            raise TooLarge(f"the request is larger than {BODY_LIMIT >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


async def json_of(request: Request) -> dict[str, object]:
    """The request's body as a JSON object; {} if it is empty.

    Raises:
        UsageError: it is something else.
    """
    raw = await body_of(request)
    if not raw.strip():
        return {}
    value = await asyncio.to_thread(_decode, raw) if len(raw) > INLINE_LIMIT else _decode(raw)
    if not isinstance(value, dict):
        raise UsageError("the request's body is not a JSON object")
    return value


def _decode(raw: bytes) -> object:
    try:
        value = json.loads(raw, parse_constant=_no_number)
        if b"\\u" in raw:
            # Half of a surrogate pair is no text: nothing could keep it or pass it on.
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError("the request's body holds half of a surrogate pair") from None
    except RecursionError:
        raise UsageError("the request's body is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"the request's body is not JSON: {error}") from error
    return value


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is not a number of JSON")


def text_of(body: dict[str, object], name: str) -> str | None:
    """A text of a body, None if it is not there (or null).

    Raises:
        UsageError: it is something else.
    """
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"'{name}' must be text")
    return value


def flag_of(body: dict[str, object], name: str) -> bool:
    """A switch of a body, off if it is not there (or null).

    Raises:
        UsageError: it is something else.
    """
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise UsageError(f"'{name}' must be true or false")
    return bool(value)


def without_nul(text: str, name: str) -> str:
    """The text, which goes to the system as a path or an argument.

    Raises:
        UsageError: it holds a NUL, which neither can.
    """
    if "\0" in text:
        raise UsageError(f"'{name}' holds a NUL character")
    return text


async def on_error(request: Request, error: Exception) -> Response:
    """A typed error as its answer."""
    assert isinstance(error, HandoffError)
    if error.http >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    return Json(_plain(error.to_json()), error.http)


async def on_no_route(request: Request, error: Exception) -> Response:
    """A path or method that this version does not have, said as every error is."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    typed: HandoffError = NotFound(f"there is no '{path}' here", remedy="handoff version")
    if error.status_code != typed.http:
        typed = UsageError(f"'{path}' does not take {request.method}")
    return Json(typed.to_json(), error.status_code, headers=error.headers)


async def on_hang_up(_request: Request, _error: Exception) -> Response:
    """The caller went before its request was whole: nobody reads this answer."""
    return Response(status_code=400)


async def on_fault(request: Request, error: Exception) -> Response:
    """A fault of ours as an answer; the log has the traceback."""
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    typed = HandoffError(
        f"agentd hit a fault of its own: {type(error).__name__}",
        remedy="see agentd.log in the data directory",
    )
    return JSONResponse(typed.to_json(), typed.http)


def _plain(value: dict[str, object]) -> Any:
    return json.loads(json.dumps(value, default=str))
