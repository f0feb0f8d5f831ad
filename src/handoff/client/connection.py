"""HTTP/1.1 over one connection: sending a request, reading its answer piece by piece.

It exists because the start of the command line is measured in milliseconds: the standard
client costs more to import than a whole call takes. It never uses a proxy, never follows
a redirect, opens one connection per request, and has a time limit for each phase:
connecting, waiting for the answer to begin, and silence inside a streamed answer.

Obligations of the caller: read a streamed :class:`Response` to its end or ``close()`` it.
"""

from __future__ import annotations

import _socket
import json
import os
import time

from handoff.errors import (
    HandoffError,
    PathTooLong,
    ProtocolViolation,
    Unreachable,
    from_json,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from handoff.client.endpoint import Endpoint

#: seconds to connect: the peer is this machine, or the near end of a tunnel
CONNECT_S = 5.0
#: seconds until an answer begins; the slowest plain call (reply) waits 10 s at agentd
ANSWER_S = 60.0
#: seconds of silence in a stream; agentd sends a heartbeat every 20 s
IDLE_S = 65.0

_CHUNK = 65536
_MAX_HEAD = 65536
#: a JSON answer beyond this is not one of ours
_MAX_JSON = 256 * 1024 * 1024


class Lost(Exception):
    """The request was sent, but the answer did not arrive (whole). Stays in this package:
    callers see Unreachable or OutcomeUnknown."""


class Wire:
    """A connected socket with a read buffer."""

    def __init__(self, sock: _socket.socket) -> None:
        self.sock = sock
        self.buffer = bytearray()

    def fill(self, limit_s: float) -> bool:
        """Read some more; False at the end of the stream.

        Raises:
            TimeoutError: nothing came within limit_s seconds.
            Lost: the connection broke.
        """
        self.sock.settimeout(max(limit_s, 0.001))
        try:
            data = self.sock.recv(_CHUNK)
        except TimeoutError:
            raise
        except OSError as error:
            raise Lost(str(error)) from error
        self.buffer += data
        return bool(data)

    def line(self, limit_s: float, most: int = _MAX_HEAD) -> bytes:
        """One line without its end."""
        start = 0
        while True:
            at = self.buffer.find(b"\n", start)
            if at >= 0:
                line = bytes(self.buffer[:at])
                del self.buffer[: at + 1]
                return line.rstrip(b"\r")
            start = len(self.buffer)
            if start > most:
                raise ProtocolViolation("agentd sent a header line that is too long")
            if not self.fill(limit_s):
                raise Lost("the connection was closed")

    def some(self, most: int, limit_s: float) -> bytes:
        """At least one and at most ``most`` bytes; b"" at the end of the stream."""
        if not self.buffer and not self.fill(limit_s):
            return b""
        piece = bytes(self.buffer[:most])
        del self.buffer[:most]
        return piece

    def close(self) -> None:
        """Close the socket."""
        self.sock.close()


class Response:
    """An answer: ``status``, ``headers`` (lower-case names) and a body to be read once.

    ``idle_s``: silence after which reading raises TimeoutError; may be set at any time.
    """

    def __init__(self, wire: Wire, status: int, headers: dict[str, str], idle_s: float) -> None:
        self.wire = wire
        self.status = status
        self.headers = headers
        self.idle_s = idle_s
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length")
        self._left: int | None = int(length) if length is not None and length.isdigit() else None
        self._done = status in (204, 304)

    def piece(self) -> bytes:
        """The next bytes of the body; b"" at its end.

        Raises:
            Lost: the connection ended inside the body.
            TimeoutError: nothing came for ``idle_s`` seconds.
        """
        if self._done:
            return b""
        if self._chunked:
            return self._chunk_piece()
        if self._left is None:
            data = self.wire.some(_CHUNK, self.idle_s)
            self._done = not data
            return data
        if self._left == 0:
            self._done = True
            return b""
        data = self.wire.some(min(self._left, _CHUNK), self.idle_s)
        if not data:
            raise Lost("the answer was cut off")
        self._left -= len(data)
        return data

    def _chunk_piece(self) -> bytes:
        if not self._left:
            if self._left == 0:  # the line end after a chunk's data
                self.wire.line(self.idle_s)
            size = self.wire.line(self.idle_s).split(b";")[0].strip()
            try:
                self._left = int(size, 16)
            except ValueError:
                raise ProtocolViolation("agentd sent a chunk without a size") from None
            if self._left == 0:
                while self.wire.line(self.idle_s):
                    pass
                self._done = True
                return b""
        data = self.wire.some(min(self._left, _CHUNK), self.idle_s)
        if not data:
            raise Lost("the answer was cut off")
        self._left -= len(data)
        return data

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives."""
        while piece := self.piece():
            yield piece

    def lines(self) -> Iterator[bytes]:
        """The body line by line, without line ends; a last line without end is Lost."""
        rest = bytearray()
        while piece := self.piece():
            start = len(rest)
            rest += piece
            if rest.find(b"\n", start) < 0:
                continue
            *whole, tail = rest.split(b"\n")
            for line in whole:
                if line:
                    yield bytes(line)
            rest = tail
        if rest.strip():
            raise Lost("the stream was cut off inside a line")

    def body(self) -> bytes:
        """The whole body."""
        out = bytearray()
        while piece := self.piece():
            out += piece
            if len(out) > _MAX_JSON:
                raise ProtocolViolation("agentd's answer is too large")
        return bytes(out)

    def json(self) -> Any:
        """The whole body as a JSON value.

        Raises:
            ProtocolViolation: it is not JSON.
        """
        raw = self.body()
        try:
            return json.loads(raw)
        except ValueError:
            raise ProtocolViolation(
                f"the answer is not JSON (HTTP {self.status}); is that agentd?"
            ) from None

    def close(self) -> None:
        """Give the connection up."""
        self.wire.close()


def quote(text: str) -> str:
    """Percent-encode text (also surrogate-escaped bytes of file names) for a URL part."""
    safe = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(b) if b in safe else f"%{b:02X}" for b in raw)


def query_text(query: dict[str, Any] | None) -> str:
    """``?a=1&b=2``; None values are left out, lists repeat their key, True is 1."""
    parts: list[str] = []
    for key, value in (query or {}).items():
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is None or one is False:
                continue
            parts.append(f"{key}={quote('1' if one is True else str(one))}")
    return "?" + "&".join(parts) if parts else ""


def connect(endpoint: Endpoint) -> Wire:
    """A connection to agentd.

    Raises:
        Unreachable: nothing listens there.
        PathTooLong: the socket's path does not fit the operating system's limit.
    """
    sock: _socket.socket | None = None
    try:
        if endpoint.socket_path:
            # The usual case takes the module below `socket`, which saves 2 of 15 ms.
            sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
            sock.settimeout(CONNECT_S)
            sock.connect(endpoint.socket_path)
        else:
            sock = _connect_tcp(endpoint)
    except OSError as error:
        if sock is not None:
            sock.close()
        length = len(os.fsencode(endpoint.socket_path))
        if "path too long" in str(error).lower():
            raise PathTooLong(
                f"the socket path has {length} bytes, more than this system allows",
                remedy="restart agentd: it then picks a shorter place by itself",
                path=endpoint.socket_path,
            ) from None
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unreachable(
            f"agentd does not answer at {endpoint.where()}: {why}",
            remedy=endpoint.remedy,
            where=endpoint.where(),
        ) from error
    return Wire(sock)


def _connect_tcp(endpoint: Endpoint) -> _socket.socket:
    import socket

    plain = socket.create_connection((endpoint.host, endpoint.port), timeout=CONNECT_S)
    if not endpoint.tls:
        return plain
    import ssl

    try:
        return ssl.create_default_context().wrap_socket(plain, server_hostname=endpoint.host)
    except OSError:
        plain.close()
        raise


def exchange(
    endpoint: Endpoint,
    method: str,
    target: str,
    *,
    body: bytes | None = None,
    key: str = "",
    answer_s: float = ANSWER_S,
) -> Response:
    """Send one request and read the head of its answer.

    Raises:
        Unreachable: not connected, so surely not carried out.
        Lost, TimeoutError: sent, but no answer (yet).
        ProtocolViolation: the peer does not speak HTTP/1.1.
    """
    wire = connect(endpoint)
    try:
        head = [
            f"{method} {target} HTTP/1.1",
            f"Host: {endpoint.host_header()}",
            "Connection: close",
        ]
        if endpoint.token:
            head.append(f"Authorization: Bearer {endpoint.token}")
        if key:
            head.append(f"Handoff-Request: {key}")
        if body is not None:
            head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        wire.sock.settimeout(answer_s)
        try:
            wire.sock.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + (body or b""))
        except (BrokenPipeError, ConnectionResetError):
            pass  # agentd may have answered before it read everything: look
        deadline = time.monotonic() + answer_s
        status, headers = _read_head(wire, deadline)
        while 100 <= status < 200:
            status, headers = _read_head(wire, deadline)
        return Response(wire, status, headers, IDLE_S)
    except TimeoutError:
        wire.close()
        raise
    except OSError as error:
        wire.close()
        raise Lost(str(error)) from error
    except BaseException:
        wire.close()
        raise


def _read_head(wire: Wire, deadline: float) -> tuple[int, dict[str, str]]:
    first = wire.line(deadline - time.monotonic()).decode("latin-1").split(" ", 2)
    if len(first) < 2 or not first[0].startswith("HTTP/1.") or not first[1].isdigit():
        raise ProtocolViolation("what answers there does not speak HTTP/1.1; is that agentd?")
    headers: dict[str, str] = {}
    while line := wire.line(deadline - time.monotonic()):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(first[1]), headers


def error_of(response: Response) -> HandoffError:
    """The typed error of an answer with a status of 400 or more."""
    try:
        raw = response.body()
        body = json.loads(raw)
    except (Lost, TimeoutError, ValueError):
        body = None
    if not isinstance(body, dict):
        text = f"agentd answered {response.status}"
        body = {"error": text}
    return from_json(body, response.status)
