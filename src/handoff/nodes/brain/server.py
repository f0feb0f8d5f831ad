"""The port that nodes dial: one WebSocket route, small until a node is known.

Everything else is refused with a status of its own. A stranger has ten seconds a step,
frames of a few KiB, and a few connections an address.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http
import logging
import os
import socket
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from handoff.errors import ConfigError, HandoffError, NodeExists, PairingRefused, PortInUse
from handoff.link.ciphers import CIPHERS
from handoff.link.tls import small_read_buffers
from handoff.nodes.brain.arrivals import Arrivals, listening
from handoff.nodes.brain.core import Brain
from handoff.nodes.brain.session import Session
from handoff.nodes.pump import WRITE_LIMIT, Pump
from handoff.nodes.websocket import ServerSocket
from handoff.wire.node.brain import BrainLink
from handoff.wire.node.events import Event, PairAsked
from handoff.wire.node.options import BrainOptions

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["PATH", "NodePort"]

PATH = "/ws/nodes"
#: connections of one address, and of all, that are not known yet
STRANGERS = 64
ALL_STRANGERS = 512
#: bytes of a frame before a node is known
FIRST_FRAME = 16 * 1024

log = logging.getLogger("handoff.nodes.port")


def _worth_it(record: logging.LogRecord) -> bool:
    """Whoever hangs up before the library's refusal is out makes it log a fault of its own,
    with all frames: nothing that a stranger should be able to fill a log with. What breaks on
    a node's link is told by the pump."""
    return record.getMessage() != "unexpected internal error"


log.addFilter(_worth_it)


class _Visit:
    """A connection, a stranger's until its node is known."""

    __slots__ = ("_fd", "_peer", "_port", "_stranger", "session")

    session: Session

    def __init__(self, port: NodePort, peer: str, fd: int) -> None:
        self._port = port
        self._peer = peer
        self._fd = fd
        self._stranger = True
        port.stranger(peer, 1)

    def happened(self, event: Event) -> None:
        self._port.happened(self.session, event)
        if self._stranger and self.session.connected_ms:
            self._port.arrivals.known(self._fd)
            self.known()

    def known(self) -> None:
        if self._stranger:
            self._stranger = False
            self._port.stranger(self._peer, -1)


class NodePort:
    """The listening side.

    options: how nodes are greeted. context: TLS, or None for a tunnel's inner end.
    """

    def __init__(
        self, brain: Brain, options: BrainOptions, clock: Clock, context: ssl.SSLContext | None
    ) -> None:
        self._brain = brain
        self._options = options
        self._clock = clock
        self._context = context
        self._strangers: Counter[str] = Counter()
        self.arrivals = Arrivals()
        self._servers: list[Server] = []

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen. port 0 takes a free one. Returns the address.

        Raises:
            PortInUse: another program listens there.
            ConfigError: the address can't be had.
        """
        if self._context is not None:
            small_read_buffers()
        try:
            sockets = await listening(host, port, self.arrivals)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"{host}:{port} is in use by another program: end it, or choose another port",
                    remedy=f"handoff nodes serve --port {port + 1 if port < 65535 else 0}",
                    port=port,
                ) from error
            raise ConfigError(
                f"{host}:{port} can't be listened on: {error.strerror}",
                remedy="choose another with --host and --port",
            ) from error
        name = sockets[0].getsockname()
        for sock in sockets:
            self._servers.append(await self._on(sock))
        return name[0], name[1]

    async def _on(self, sock: socket.socket) -> Server:
        return await serve(
            self._serve,
            sock=sock,
            ssl=self._context,
            compression=None,
            create_connection=ServerSocket,
            process_request=self._request,
            server_header=None,
            open_timeout=10,
            ping_interval=None,
            close_timeout=2,
            max_size=FIRST_FRAME,
            write_limit=WRITE_LIMIT,
            logger=log,
        )

    async def close(self) -> None:
        """Take no more nodes, and end the links."""
        if not self._servers:
            return
        for server in self._servers:
            server.close(close_connections=False)
        await self._brain.close()
        for server in self._servers:
            server.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.gather(*(server.wait_closed() for server in self._servers))

    def _request(self, connection: ServerConnection, request: Request) -> Response | None:
        path = request.path.partition("?")[0]
        if path != PATH:
            return _answer(http.HTTPStatus.NOT_FOUND, f"nodes connect to {PATH}")
        peer = _peer(connection)
        if self._strangers[peer] >= STRANGERS or sum(self._strangers.values()) >= ALL_STRANGERS:
            return _answer(http.HTTPStatus.TOO_MANY_REQUESTS, "too many connections at once")
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        assert isinstance(connection, ServerSocket)
        peer = _peer(connection)
        _forget(connection)
        link = BrainLink(self._options, self._clock, CIPHERS, os.urandom)
        fd = connection.transport.get_extra_info("socket").fileno()
        visit = _Visit(self, peer, fd)
        pump = Pump(connection, link, visit.happened, self._clock)
        visit.session = Session(link, peer, pump.poke, self._brain.ended)
        try:
            await pump.run()
        finally:
            visit.known()

    def happened(self, session: Session, event: Event) -> None:
        """Something happened on a connection."""
        try:
            if isinstance(event, PairAsked):
                self._pair(session, event)
            else:
                self._brain.happened(session, event)
        except HandoffError:
            session.link.refuse("not_now", "the brain can't write its own data")

    def stranger(self, peer: str, more: int) -> None:
        """So many more connections of an address that are not known yet."""
        self._strangers[peer] += more
        if self._strangers[peer] <= 0:
            del self._strangers[peer]

    def _pair(self, session: Session, event: PairAsked) -> None:
        try:
            answer = self._brain.pair(session, event.pair)
        except PairingRefused as error:
            session.link.refuse("pairing_refused", error.cause)
        except NodeExists as error:
            session.link.refuse("pairing_refused", error.cause)
        else:
            session.link.pair_ok(answer)


def _forget(connection: ServerConnection) -> None:
    """Let go of what was said before the first frame, which the connection keeps, and its
    parser too. Nobody asks for it again, and a thousand of them are megabytes."""
    if connection.request is not None:
        connection.request.headers.clear()
    connection.request = connection.response = None


def _answer(status: http.HTTPStatus, text: str) -> Response:
    body = f"{text}\n".encode()
    headers = Headers(
        [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
    )
    return Response(status.value, status.phrase, headers, body)


def _peer(connection: Any) -> str:
    address = connection.remote_address
    return str(address[0]) if isinstance(address, tuple) else "local"
