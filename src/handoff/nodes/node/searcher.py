"""The search: ``python -I -S searcher.py``, looks for an expression in files it is handed.

An expression may take for ever over a short line, and nothing within a process can stop
that. So it runs in one of its own, which its parent ends; and which the kernel ends, should
the parent be gone.

On standard input, a Unix socket, one JSON object a line: first ``{pattern, ignore_case,
cpu_s, memory}`` (``pattern`` in base64), answered ``{}`` or ``{"bad": why}``. Then
``{room, bytes}``, each with a file's descriptor, answered ``{hits: [[line, base64], ...],
more}``, ``{"skipped": true}`` for what is no text, or ``{"bad": why}``. Standard library only.
"""

from __future__ import annotations

import array
import io
import json
import os
import re
import resource
import socket
from binascii import a2b_base64, b2a_base64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: bytes of a line that are shown
LINE = 4096
#: bytes at a file's start that tell whether it is text
LOOK = 8192


def main() -> int:
    """Serve one search until the other end is closed. Returns the exit code."""
    sock = socket.socket(fileno=os.dup(0))
    order, _ = receive(sock)
    if order is None:
        return 0
    resource.setrlimit(resource.RLIMIT_CPU, (order["cpu_s"], order["cpu_s"]))
    try:
        resource.setrlimit(resource.RLIMIT_AS, (order["memory"], order["memory"]))
    except (OSError, ValueError):  # macOS has no such limit
        pass
    try:
        flags = re.IGNORECASE if order["ignore_case"] else 0
        wanted = re.compile(a2b_base64(order["pattern"]), flags)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        send(sock, {"bad": str(error) or type(error).__name__})
        return 0
    send(sock, {})
    while True:
        order, fd = receive(sock)
        if order is None or fd < 0:
            return 0
        try:
            answer = look(wanted, fd, order["room"], order["bytes"])
        except (MemoryError, RecursionError) as error:
            answer = {"bad": f"it needs too much memory ({type(error).__name__})"}
        except OSError:
            answer = {"skipped": True}
        finally:
            os.close(fd)
        send(sock, answer)


def look(wanted: re.Pattern[bytes], fd: int, room: int, most: int) -> dict[str, Any]:
    """The lines of a file that fit, at most ``room`` of them."""
    parts = []
    while most > 0 and (data := os.read(fd, min(most, 1 << 20))):
        parts.append(data)
        most -= len(data)
    whole = b"".join(parts)
    if b"\0" in whole[:LOOK]:
        return {"skipped": True}
    hits: list[tuple[int, str]] = []
    for number, line in enumerate(io.BytesIO(whole), 1):
        line = line.removesuffix(b"\n")
        if wanted.search(line):
            if len(hits) >= room:
                return {"hits": hits, "more": True}
            shown = line.removesuffix(b"\r")[:LINE]
            hits.append((number, b2a_base64(shown, newline=False).decode()))
    return {"hits": hits, "more": False}


def receive(sock: socket.socket) -> tuple[dict[str, Any] | None, int]:
    """The next order and its descriptor, -1 without one; (None, -1) at the end."""
    came, fd = b"", -1
    while not came.endswith(b"\n"):
        data, ancillary, _, _ = sock.recvmsg(1 << 16, socket.CMSG_SPACE(4))
        for _, _, held in ancillary:
            fd = array.array("i", held)[0]
        if not data:
            return None, -1
        came += data
    return json.loads(came), fd


def send(sock: socket.socket, answer: dict[str, Any]) -> None:
    """One answer."""
    sock.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    os._exit(main())
