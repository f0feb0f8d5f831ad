"""JSON-RPC as lines: bytes cut into lines, lines into values, values into lines.

Strict where a lenient reader would guess (a key twice, NaN, a number of a thousand digits),
and bounded: no line makes this hold more than :data:`MAX_LINE` bytes.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

__all__ = ["MAX_LINE", "Splitter", "TooLong", "decode", "encode"]

#: bytes of one message; a state has at most 256 KiB, its JSON in a call at most 4 MiB
MAX_LINE = 8 * 1024 * 1024
#: of a whole number: far beyond what counts anything, far below what costs time
_MAX_DIGITS = 100


class TooLong(ValueError):
    """A line of more than :data:`MAX_LINE` bytes stood here."""


class Splitter:
    """Cuts a stream into lines, wherever its pieces were cut. A line that is too long is
    handed out as None, once, and the rest of it is dropped."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._dropping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that end within data, without their newlines."""
        lines: list[bytes | None] = []
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._add(piece, lines)
            if not self._dropping:
                lines.append(b"".join(self._parts))
            self._parts, self._size, self._dropping = [], 0, False
        self._add(rest, lines)
        return lines

    def finish(self) -> list[bytes | None]:
        """The stream has ended: its last line, if that had no newline."""
        return [b"".join(self._parts)] if self._size else []

    def _add(self, piece: bytes, lines: list[bytes | None]) -> None:
        if self._dropping or not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            lines.append(None)
            self._parts, self._size, self._dropping = [], 0, True


def decode(line: bytes) -> Any:
    """The JSON value of a line.

    Raises:
        ValueError: it is not JSON in UTF-8, or not such as anybody means.
    """
    try:
        return json.loads(
            line.decode("utf-8"),
            object_pairs_hook=_once,
            parse_constant=_no_number,
            parse_int=_whole,
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_number(_text: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _whole(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("a number is too long")
    return int(text)


def encode(message: Any) -> bytes:
    """A JSON value as one line, newline included. What some readers take for the end of a
    line (U+0085, U+2028, U+2029) is escaped, and so is half of a surrogate pair."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    for sign in ("\x85", "\u2028", "\u2029"):
        if sign in text:
            text = text.replace(sign, f"\\u{ord(sign):04x}")
    try:
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
