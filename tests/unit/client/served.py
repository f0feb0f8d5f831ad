"""A peer on a real Unix socket whose answers a test writes, byte for byte if need be."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def one(self, name: str) -> str | None:
        return self.query.get(name, [None])[0]


@dataclass
class Reply:
    """``chunks``: sent chunked. ``raw``: sent as it is, instead of everything else.
    ``cut``: close without the chunked end. ``wait``: held until that event is set."""

    value: Any = None
    status: int = 200
    chunks: Iterable[bytes] | None = None
    raw: bytes | None = None
    cut: bool = False
    wait: threading.Event | None = None


Handler = Callable[[Request], "Reply | Any"]


@dataclass
class Served:
    """``on(method, path, handler)``; ``seen`` holds every request."""

    folder: str = ""
    seen: list[Request] = field(default_factory=list)
    instance: str = "11111111-1111-4111-8111-111111111111"
    _routes: dict[tuple[str, str], Handler] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    _open: list[socket.socket] = field(default_factory=list)
    _listener: socket.socket | None = None

    def __post_init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="hf-")  # short: a socket path has a limit
        self.start()

    @property
    def socket_path(self) -> str:
        return os.path.join(self.folder, "s")

    @property
    def config(self) -> str:
        return os.path.join(self.folder, "config.yaml")

    def on(self, method: str, path: str, handler: Handler | Any) -> None:
        self._routes[method, path] = handler if callable(handler) else lambda _: handler

    def start(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.socket_path)
        self._listener.listen(64)
        with open(os.path.join(self.folder, "agentd.json"), "w") as file:
            json.dump(
                {"socket": self.socket_path, "instance": self.instance, "pid": os.getpid()}, file
            )
        self._spawn(self._accept, self._listener)

    def stop(self) -> None:
        """As if it were killed: the socket file stays, nobody listens."""
        assert self._listener is not None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._open:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()
        self._threads.clear()

    def restart(self) -> None:
        os.unlink(self.socket_path)
        self.start()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def _spawn(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            self._open.append(link)
            self._spawn(self._serve, link)

    def _serve(self, link: socket.socket) -> None:
        with link:
            try:
                request = _read(link)
                if request is not None:
                    self.seen.append(request)
                    self._answer(link, request)
            except OSError:
                pass  # the client has left, or we were stopped

    def _answer(self, link: socket.socket, request: Request) -> None:
        handler = self._routes.get((request.method, request.path))
        reply: Any = Reply({"error": f"no route {request.path}", "code": "not_found"}, 404)
        if handler is not None:
            reply = handler(request)
        if not isinstance(reply, Reply):
            reply = Reply(reply)
        if reply.wait is not None:
            reply.wait.wait(10)
        if reply.raw is not None:
            link.sendall(reply.raw)
            return
        head = f"HTTP/1.1 {reply.status} X\r\nContent-Type: application/json\r\n"
        if reply.chunks is None:
            body = json.dumps(reply.value).encode() + b"\n"
            link.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            return
        link.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        for chunk in reply.chunks:
            if chunk:
                link.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if not reply.cut:
            link.sendall(b"0\r\n\r\n")


def _read(link: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = link.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in rest)}
    while len(body) < int(headers.get("content-length", "0")):
        body += link.recv(65536)
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    parsed = urllib.parse.parse_qs(query, errors="surrogateescape", keep_blank_values=True)
    return Request(method, path, parsed, headers, body)


def lines(*items: Any) -> list[bytes]:
    """NDJSON, one chunk a line."""
    return [json.dumps(item).encode() + b"\n" for item in items]
