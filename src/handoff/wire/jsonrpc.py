"""JSON-RPC 2.0 as lines, without I/O: what a line is, and how to write one.

:func:`classify` never raises: whatever a peer writes is a value. :class:`LineSplitter`
cuts a byte stream into lines and bounds what one line may hold in memory.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

#: bytes of one line, newline not counted; longer lines are a fault of the peer
MAX_LINE = 32 * 1024 * 1024

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800

#: an id as JSON-RPC allows it; null is used only to answer what could not be read
Id = int | str

_SAMPLE = 200
_ENCODER = msgspec.json.Encoder()
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Request(msgspec.Struct, frozen=True):
    """The peer wants an answer."""

    id: Id
    method: str
    params: dict[str, Any]


class Notification(msgspec.Struct, frozen=True):
    """The peer tells something."""

    method: str
    params: dict[str, Any]


class Result(msgspec.Struct, frozen=True):
    """The peer's answer to a request of ours."""

    id: Id
    result: Any


class RpcError(msgspec.Struct, frozen=True):
    """The peer's refusal of a request of ours. ``id`` None: it could not read which."""

    id: Id | None
    code: int
    message: str
    data: Any = None


class Junk(msgspec.Struct, frozen=True):
    """A line that is no message. ``what``: ``not JSON``, ``not a message`` or
    ``too long``; ``sample``: its first 200 characters, control characters replaced."""

    what: str
    sample: str = ""


class Blank(msgspec.Struct, frozen=True):
    """An empty line: nothing."""


Message = Request | Notification | Result | RpcError | Junk | Blank


def classify(line: bytes) -> Message:
    """What one line (without its newline) is. Never raises."""
    if len(line) > MAX_LINE:
        return Junk("too long", sample(line))
    stripped = line.strip()
    if not stripped:
        return Blank()
    try:
        value = loads(stripped)
    except ValueError:
        return Junk("not JSON", sample(stripped))
    return _message(value) or Junk("not a message", sample(stripped))


def loads(data: bytes) -> Any:
    """JSON text as Python values, with text that can be encoded again.

    A stream that is cut inside a character outside the basic plane leaves half of a
    surrogate pair in an otherwise sound message; each such half becomes U+FFFD.

    Raises:
        ValueError: it is not JSON, or nested deeper than anybody means.
    """
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    try:
        return _sound(json.loads(data.decode("utf-8-sig", "replace"), parse_constant=_no_number))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def sample(line: bytes) -> str:
    """The first 200 characters of a line, safe to show."""
    text = line[: 4 * _SAMPLE].decode("utf-8", "replace")[:_SAMPLE]
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def request(number: int, method: str, params: Any) -> bytes:
    """A request as a line."""
    return line_of({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def notification(method: str, params: Any) -> bytes:
    """A notification as a line."""
    return line_of({"jsonrpc": "2.0", "method": method, "params": params})


def result(number: Id, value: Any) -> bytes:
    """The answer to a request of the peer's, as a line."""
    return line_of({"jsonrpc": "2.0", "id": number, "result": value})


def error(number: Id | None, code: int, message: str) -> bytes:
    """The refusal of a request of the peer's, as a line."""
    body = {"code": code, "message": message}
    return line_of({"jsonrpc": "2.0", "id": number, "error": body})


def line_of(message: Any) -> bytes:
    """Any JSON value as one line, newline included."""
    try:
        return _ENCODER.encode(message) + b"\n"
    except UnicodeEncodeError:
        return _ENCODER.encode(_sound(message)) + b"\n"


class LineSplitter:
    """Cuts a stream into lines, wherever its pieces were cut.

    A line longer than :data:`MAX_LINE` is handed out as soon as it is too long, cut to
    ``MAX_LINE + 1`` bytes (so that :func:`classify` calls it ``too long``), and the rest of
    it is dropped: memory is bounded whatever the peer writes.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._dropping = False

    @property
    def pending(self) -> int:
        """Bytes of the unfinished line that are held."""
        return self._size

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end within data, without their newlines."""
        lines: list[bytes] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece, lines)
            if not self._dropping:
                lines.append(b"".join(self._parts))
            self._parts, self._size, self._dropping = [], 0, False
        self._add(rest, lines)
        return lines

    def finish(self) -> list[bytes]:
        """The stream has ended: the unfinished last line, if there is one."""
        rest = [] if self._dropping or not self._size else [b"".join(self._parts)]
        self._parts, self._size, self._dropping = [], 0, False
        return rest

    def _add(self, piece: bytes, lines: list[bytes]) -> None:
        if self._dropping or not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            lines.append(b"".join(self._parts)[: self._limit + 1])
            self._parts, self._size, self._dropping = [], 0, True


def _message(value: Any) -> Message | None:
    if not isinstance(value, dict):
        return None
    number, method, params = value.get("id"), value.get("method"), value.get("params")
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, (int, str)) or isinstance(number, bool):
        number = None
    if isinstance(method, str):
        params = params if isinstance(params, dict) else {}
        return Notification(method, params) if number is None else Request(number, method, params)
    if method is not None:
        return None
    fault = value.get("error")
    if isinstance(fault, dict):
        code = fault.get("code")
        return RpcError(
            number,
            code if isinstance(code, int) else INTERNAL_ERROR,
            str(fault.get("message") or "error without a message"),
            fault.get("data"),
        )
    if "result" in value and number is not None:
        return Result(number, value["result"])
    return None


def _sound(value: Any) -> Any:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, dict):
        return {_sound(key): _sound(item) for key, item in value.items()}
    return value


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
