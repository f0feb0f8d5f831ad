"""A server that behaves as that of hermes-node-plugin v0.1.2 does: strict about what a node
may say before it is let in, 16 MiB a frame, WebSocket pings, 100 messages a second.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import deque
from typing import Any, Self

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

HELLO = {
    "type": (str, 32), "protocol_version": (str, 32), "node_name": (str, 64), "ts": (str, 32),
    "node_version": (str, 32), "platform": (str, 32), "arch": (str, 32),
    "capabilities": (list, 16),
}  # fmt: skip
AUTH = {"type": (str, 32), "node_name": (str, 64), "token": (str, 64), "ts": (str, 32)}
RESULTS = ("exec_result", "read_result", "write_result", "error")


def fits(value: Any, shape: dict[str, tuple[type, int]], needed: tuple[str, ...]) -> bool:
    """Whether it has these keys and no other."""
    if not isinstance(value, dict) or set(value) - set(shape) or set(needed) - set(value):
        return False
    for name, one in value.items():
        kind, most = shape[name]
        if not isinstance(one, kind) or len(one) > most:
            return False
    if "node_name" in value and not value["node_name"].strip():
        return False
    return all(isinstance(one, str) and len(one) <= 32 for one in value.get("capabilities", []))


class PluginServer:
    """``async with PluginServer({"lab": token}) as server``; ``call`` asks a node."""

    def __init__(self, tokens: dict[str, str], *, limit: int = 100, wait: float = 10) -> None:
        self.tokens = tokens
        self.limit, self.wait = limit, wait
        self.nodes: dict[str, ServerConnection] = {}
        self.frames: list[dict[str, Any]] = []
        self.closed: list[int | None] = []
        self._waiters: dict[tuple[str, str], asyncio.Future[dict[str, Any]]] = {}

    async def __aenter__(self) -> Self:
        self._server: Server = await serve(
            self._handle, "127.0.0.1", 0, max_size=16 * 1024 * 1024, ping_interval=2,
            ping_timeout=2, process_request=self._route,
        )  # fmt: skip
        port = next(iter(self._server.sockets)).getsockname()[1]
        self.url = f"ws://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @staticmethod
    def _route(connection: ServerConnection, request: Any) -> Any:
        return None if request.path == "/ws/nodes" else connection.respond(403, "")

    async def call(self, name: str, message: dict[str, Any], within: float = 30) -> dict[str, Any]:
        """What the node answers."""
        number = str(uuid.uuid4())
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[(name, number)] = waiter
        await self.nodes[name].send(json.dumps({**message, "id": number, "ts": "T"}))
        return dict(await asyncio.wait_for(waiter, within))

    async def _handle(self, socket: ServerConnection) -> None:
        try:
            name = await self._greet(socket)
            if name is not None:
                await self._open(socket, name)
        except ConnectionClosed:
            pass
        finally:
            self.closed.append(socket.close_code)

    async def _refuse(
        self, socket: ServerConnection, code: int, kind: str = "", reason: str = "", **more: Any
    ) -> None:
        if kind:
            await socket.send(json.dumps({"type": kind, "reason": reason, "code": code, **more}))
        await socket.close(code)

    async def _greet(self, socket: ServerConnection) -> str | None:
        try:
            hello = self._json(await asyncio.wait_for(socket.recv(), self.wait))
        except TimeoutError:
            await self._refuse(socket, 4005, "hello_err", "handshake_timeout")
            return None
        if hello is not None and not (isinstance(hello, dict) and hello.get("type") == "hello"):
            await self._refuse(socket, 4003, "hello_err", "expected_hello")
            return None
        if not fits(hello, HELLO, ("type", "protocol_version", "node_name")):
            await self._refuse(socket, 4003)
            return None
        assert hello is not None
        if hello["protocol_version"].partition(".")[0] != "0":
            await self._refuse(socket, 4002, "hello_err", "unsupported_protocol_version",
                               server_max_version="0.1.0")  # fmt: skip
            return None
        session = str(uuid.uuid4())
        ack = {"type": "hello_ack", "protocol_version": hello["protocol_version"],
               "session_id": session, "server_time": "2026-09-01T08:00:00.021Z"}  # fmt: skip
        await socket.send(json.dumps(ack))
        try:
            auth = self._json(await asyncio.wait_for(socket.recv(), self.wait))
        except TimeoutError:
            await self._refuse(socket, 4005, "auth_err", "handshake_timeout")
            return None
        if not fits(auth, AUTH, ("type", "node_name", "token")) or auth["type"] != "auth":
            await self._refuse(socket, 4003)
            return None
        name = str(hello["node_name"])
        if auth["node_name"] != name:
            await self._refuse(socket, 4001, "auth_err", "unknown_node")
            return None
        if self.tokens.get(name) != auth["token"]:
            await self._refuse(socket, 4001, "auth_err", "invalid_token")
            return None
        await socket.send(json.dumps({"type": "auth_ok", "session_id": session}))
        return name

    def _json(self, text: str | bytes) -> Any:
        try:
            value = json.loads(text) if isinstance(text, str) else None
        except ValueError:
            return None
        if isinstance(value, dict):
            self.frames.append(value)
        return value

    async def _open(self, socket: ServerConnection, name: str) -> None:
        if name in self.nodes:
            await self.nodes[name].close(1000)
        self.nodes[name] = socket
        times: deque[float] = deque()
        try:
            async for text in socket:
                now = time.monotonic()
                while times and now - times[0] > 1:
                    times.popleft()
                times.append(now)
                if len(times) > self.limit:
                    await socket.send(json.dumps(
                        {"type": "rate_limit", "reason": "rate_limit_exceeded", "code": 4004,
                         "node_name": name, "limit_per_second": self.limit}))  # fmt: skip
                    await socket.close(4004)
                    return
                value = self._json(text)
                assert isinstance(value, dict), "it would drop the connection"
                if value.get("type") == "ping":
                    await socket.send(json.dumps({"type": "pong", "echo_ts": value.get("ts")}))
                waiter = self._waiters.pop((name, str(value.get("id"))), None)
                if waiter is not None and value["type"] in RESULTS and not waiter.done():
                    waiter.set_result(value)
        finally:
            if self.nodes.get(name) is socket:
                del self.nodes[name]
