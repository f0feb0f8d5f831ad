"""Who calls: the process at the other end of a connection.

The control socket is open to its owner only. But an executor runs as that owner too, so
the owner's name is not enough: a process inside a task's tree may read, and may not act
as coordinator. On the Unix socket the kernel tells its pid; on loopback TCP the pid is
found by the socket, searched for in the trees of running tasks only.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
import sys
from collections.abc import Iterable
from typing import NamedTuple

from handoff.process import facts

MARK = "HANDOFF_RUN"


class Peer(NamedTuple):
    """``pid`` 0: not known. ``uid`` -1: not known (loopback TCP)."""

    pid: int
    uid: int

    @property
    def actor(self) -> str:
        """The name under which events record what this peer asks for."""
        if self.uid < 0:
            return "coordinator:tcp"
        try:
            return f"coordinator:{pwd.getpwuid(self.uid).pw_name}"
        except KeyError:
            return f"coordinator:uid{self.uid}"


def of_unix_socket(sock: socket.socket) -> Peer:
    """The process that connected to a Unix socket, as the kernel tells."""
    if sys.platform == "linux":
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", raw)
        return Peer(pid, uid)
    # macOS: LOCAL_PEERPID (2) and LOCAL_PEERCRED (1) at level SOL_LOCAL (0), <sys/un.h>
    pid = struct.unpack("i", sock.getsockopt(0, 2, 4))[0]
    _, uid = struct.unpack("2I", sock.getsockopt(0, 1, 76)[:8])
    return Peer(pid, uid)


def run_of(pid: int, shims: dict[int, str]) -> str | None:
    """The run in whose tree a process is, or None.

    Args:
        pid: the process.
        shims: pid of each live shim -> its run id.
    """
    if pid <= 0:
        return None
    current = pid
    for _ in range(4096):  # longer than any real chain of parents
        if current in shims:
            return shims[current]
        found = facts.fact(current)
        if found is None or found.ppid <= 0:
            break
        current = found.ppid
    for run_id in shims.values():
        if facts.has_mark(pid, f"{MARK}={run_id}".encode()):
            return run_id
    return None


def run_of_tcp(port: int, server_port: int, shims: dict[int, str]) -> str | None:
    """The run in whose tree the process is that holds the client's end of a loopback
    connection from ``port`` to ``server_port``, or None. Linux only."""
    if not shims or sys.platform != "linux":
        return None
    wanted = _inodes(port, server_port)
    if not wanted:
        return None
    for shim_pid, run_id in shims.items():
        for found in facts.descendants(shim_pid):
            if _holds(found.pid, wanted):
                return run_id
    return None


def _inodes(port: int, server_port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as stream:
                rows = stream.readlines()[1:]
        except OSError:
            continue
        for row in rows:
            parts = row.split()
            here, there = (int(parts[i].rsplit(":", 1)[1], 16) for i in (1, 2))
            if here == port and there == server_port:
                found.add(f"socket:[{parts[9]}]")
    return found


def _holds(pid: int, wanted: Iterable[str]) -> bool:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"/proc/{pid}/fd/{name}") in wanted:
                return True
        except OSError:
            continue
    return False
