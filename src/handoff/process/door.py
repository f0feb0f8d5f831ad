"""The shim's Unix socket: who may come in, and JSON lines in both directions.

Nothing here blocks and nothing here knows what the messages mean. Standard library only,
and of that ``_socket`` rather than ``socket``, whose import costs a megabyte.
"""

from __future__ import annotations

import _socket
import json
import os
import struct
import sys

from handoff.process import facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: the longest request line: one executor input of 16 MiB, escaped at its worst (6 x)
MAX_LINE = 100 << 20
#: a client that reads nothing may hold this much of our memory before it is dropped
MAX_UNREAD = 64 << 20
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2  # <sys/un.h> of macOS
_EVERY = 1 << 16


class Link:
    """One connected client."""

    def __init__(self, sock: _socket.socket) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.closed = False
        #: the journal grew since this client was last told
        self.owed = False
        self._inbox = bytearray()
        self.outbox = bytearray()

    def receive(self) -> list[dict[str, Any]]:
        """The requests that came. Closes itself at the end, or at a line that is none."""
        try:
            chunk = self.sock.recv(_EVERY)
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return []
        self._inbox += chunk
        if b"\n" not in chunk:
            if len(self._inbox) > MAX_LINE:
                self.close()
            return []
        *lines, rest = bytes(self._inbox).split(b"\n")
        self._inbox = bytearray(rest)
        requests: list[dict[str, Any]] = []
        for line in lines:
            try:
                request = json.loads(line)
            except (ValueError, RecursionError):  # also of a line that is nothing but depth
                request = None
            if not isinstance(request, dict):
                self.close()
                return requests
            requests.append(request)
        return requests

    def say(self, message: dict[str, Any], *, now: bool = True) -> None:
        """Queue a message and send what the socket takes; now: False leaves it for the next
        message, or for :meth:`flush`."""
        if self.closed:
            return
        self.outbox += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(self.outbox) > MAX_UNREAD:
            self.close()
        elif now:
            self.flush()

    def flush(self) -> None:
        """Send what the socket takes now."""
        while self.outbox and not self.closed:
            try:
                sent = self.sock.send(self.outbox[:_EVERY])
            except BlockingIOError:
                return
            except OSError:
                self.close()
                return
            del self.outbox[:sent]

    def close(self) -> None:
        """Let the client go; the holder forgets it at its next turn."""
        if not self.closed:
            self.closed = True
            self.sock.close()


class Door:
    """The listening socket ``s`` in the current folder (the run's own, mode 0700)."""

    def __init__(self, name: str = "s") -> None:
        self._name = name
        self._sock = self._listen()
        self.fd = self._sock.fileno()

    def _listen(self) -> _socket.socket:
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        os.set_inheritable(sock.fileno(), False)
        sock.setblocking(False)
        # relative to our current folder, so that its length never meets sun_path's limit
        sock.bind(self._name)
        os.chmod(self._name, 0o600)
        sock.listen(64)
        return sock

    def lost(self) -> bool:
        """Whether somebody removed the socket's name."""
        return not os.path.exists(self._name)

    def reopen(self) -> None:
        """Make the name again. Raises OSError if the folder is gone as well."""
        fresh = self._listen()
        self._sock.close()
        self._sock = fresh
        self.fd = fresh.fileno()

    def accept(self) -> tuple[Link | None, str]:
        """A client that may come in, or (None, why not). why is "" if nobody waited."""
        try:
            fd, _ = self._sock._accept()  # type: ignore[attr-defined]
        except OSError:  # it went away again, or no descriptor is free: it may try again
            return None, ""
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
        os.set_inheritable(fd, False)
        sock.setblocking(False)
        why = refusal(sock)
        if why:
            refused = Link(sock)
            refused.say({"refused": why})
            refused.close()
            return None, why
        return Link(sock), ""

    def close(self) -> None:
        """Stop listening and take the name away."""
        self._sock.close()
        try:
            os.unlink(self._name)
        except OSError:  # somebody was faster; nothing is left to do
            pass


def refusal(sock: _socket.socket) -> str:
    """Why the peer may not come in, or "".

    Only our own user may, and nothing that runs inside the executor's own tree: an
    executor must not feed itself the answers that it waits for.
    """
    uid, pid = _peer(sock)
    if uid != os.getuid():
        return f"a process of user {uid} tried to reach the executor's input"
    if pid > 0 and facts.in_tree_of(pid, os.getpid()):
        return f"process {pid} of the executor's own tree tried to reach its input"
    return ""


def _peer(sock: _socket.socket) -> tuple[int, int]:
    """The other side's uid, and its pid (0 if unknown)."""
    if sys.platform == "linux":
        raw = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        pid, uid, _gid = struct.unpack("=iII", raw)
        return uid, pid
    # struct xucred: version u32, uid u32, then groups
    raw = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, 76)
    _version, uid = struct.unpack_from("=II", raw)
    pid = struct.unpack("=i", sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID, 4))[0]
    return uid, pid
