"""Frames on a brain's local socket: one byte of kind, four of length, the payload.

``J``: a JSON object. ``D``: bytes of a stream, behind one byte with the length of its name
and the name. Standard library only; both ends use it.
"""

from __future__ import annotations

import json
from typing import Any

from handoff.errors import ProtocolViolation

__all__ = ["LIMIT", "data_frame", "json_frame", "parse"]

#: bytes of one frame
LIMIT = 32 << 20
HEADER = 5


def json_frame(value: dict[str, Any]) -> bytes:
    """An object as a frame."""
    body = _ENCODER.encode(value).encode()
    return b"J" + len(body).to_bytes(4, "big") + body


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def data_frame(stream: str, data: bytes) -> bytes:
    """Bytes of a stream as a frame."""
    name = stream.encode()
    size = 1 + len(name) + len(data)
    return b"D" + size.to_bytes(4, "big") + bytes((len(name),)) + name + data


def length(header: bytes) -> int:
    """How many bytes follow a header.

    Raises:
        ProtocolViolation: it is no header.
    """
    size = int.from_bytes(header[1:], "big")
    if header[:1] not in {b"J", b"D"} or size > LIMIT:
        raise ProtocolViolation("the other end of the brain's socket speaks something else")
    return size


def parse(kind: bytes, body: bytes) -> dict[str, Any] | tuple[str, bytes]:
    """A frame's content: an object, or a stream's name and bytes.

    Raises:
        ProtocolViolation: it is none.
    """
    try:
        if kind == b"D":
            size = body[0]
            return body[1 : 1 + size].decode(), body[1 + size :]
        value = json.loads(body)
    except (ValueError, IndexError, RecursionError) as error:
        raise ProtocolViolation("a frame on the brain's socket can't be read") from error
    if not isinstance(value, dict):
        raise ProtocolViolation("a frame on the brain's socket is no object")
    return value
