"""What a request on the brain's Unix socket holds, checked, and how an error is answered."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import struct
import sys
from typing import Any

from handoff.errors import BadRequest, HandoffError

__all__ = ["failure", "number", "peer_uid", "text", "texts"]


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
