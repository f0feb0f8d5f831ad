"""Who holds a reservation, and whether that process still lives.

A pid alone names nobody: it is used again. A process is (host, boot, pid, start stamp); the
boot id holds the pid namespace too, because a pid of another container means another
process. Where life or death can't be proved the answer is None, and whoever asks has to
treat that as alive. Nothing here sends a signal, also not signal 0.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

__all__ = ["Liveness", "Owner", "alive", "boot_id", "chain", "host_id", "me", "start_stamp"]

LINUX = sys.platform == "linux"
#: states of a process that has ended and only waits to be collected
_ENDED = "ZX"


@dataclass(frozen=True, slots=True)
class Owner:
    """One process, named so that no other one is ever meant.

    ``started`` is the kernel's start stamp (Linux: clock ticks since boot; macOS:
    microseconds since 1970), ``token`` the digest of a secret that only it knows.
    """

    pid: int
    started: int
    boot: str
    host: str
    token: str = ""

    def to_json(self) -> dict[str, object]:
        """As a JSON object with the fields' names."""
        return asdict(self)


#: True: it lives. False: it is proved dead. None: that can't be told from here.
Liveness = Callable[[Owner], "bool | None"]


def host_id() -> str:
    """A text that names this machine across boots."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text and text != "uninitialized":
            return text
    return socket.gethostname()


def boot_id() -> str:
    """A text that changes with each boot, and differs between pid namespaces."""
    if LINUX:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() + " " + os.readlink("/proc/self/ns/pid")
    return _darwin_boot()


def _stat(pid: int) -> tuple[int, int, str] | None:
    """(parent, start stamp, state letter), zombies included; None if there is none."""
    if not LINUX:
        return _darwin_stat(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            raw = file.read(2048)
    except (FileNotFoundError, ProcessLookupError):
        return None
    # "pid (comm) state ppid ...": comm may hold blanks and parentheses
    fields = raw[raw.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return int(fields[1]), int(fields[19]), fields[0].decode()


def start_stamp(pid: int) -> int | None:
    """The start stamp of a process that runs now; None if there is none."""
    found = _stat(pid)
    return None if found is None or found[2] in _ENDED else found[1]


def me(token: str = "", pid: int = 0) -> Owner:
    """The calling process, or the child with that pid, as an owner.

    Raises:
        OSError: the kernel does not tell, so that nothing may be reserved.
    """
    pid = pid or os.getpid()
    found = _stat(pid)
    if found is None:
        raise ProcessLookupError(f"the kernel does not tell when process {pid} was started")
    return Owner(pid, found[1], boot_id(), host_id(), token)


def alive(owner: Owner) -> bool | None:
    """Whether exactly that process lives: True, False (proved), or None (can't be told)."""
    if owner.host != host_id():
        return None
    here = boot_id()
    if owner.boot != here:
        # another boot of this machine: proved dead. Another pid namespace: out of sight.
        return False if owner.boot.split(" ")[0] != here.split(" ")[0] else None
    try:
        found = _stat(owner.pid)
    except OSError:
        return None
    return found is not None and found[1] == owner.started and found[2] not in _ENDED


def chain(pid: int = 0) -> list[tuple[int, int]]:
    """(pid, start stamp) of a process (0: this one) and of its parents, nearest first."""
    found: list[tuple[int, int]] = []
    pid = pid or os.getpid()
    while pid > 0 and len(found) < 4096:  # longer than any real chain
        one = _stat(pid)
        if one is None:
            break
        found.append((pid, one[1]))
        pid = one[0]
    return found


def _darwin_boot() -> str:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_size_t(64)
    buffer = ctypes.create_string_buffer(64)
    if libc.sysctlbyname(b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel does not tell kern.bootsessionuuid")
    return buffer.value.decode("ascii")


def _darwin_stat(pid: int) -> tuple[int, int, str] | None:
    import ctypes

    # <sys/proc_info.h>: PROC_PIDTBSDINFO (3) fills struct proc_bsdinfo, 136 bytes:
    # flags, status, xstatus, pid, ppid at 0 to 20; the start's seconds and micros at 120
    buffer = ctypes.create_string_buffer(136)
    if ctypes.CDLL(None).proc_pidinfo(pid, 3, ctypes.c_uint64(0), buffer, 136) < 136:
        return None
    _flags, status, _xstatus, _pid, ppid = struct.unpack_from("=5I", buffer.raw, 0)
    seconds, micros = struct.unpack_from("=2Q", buffer.raw, 120)
    return ppid, seconds * 1_000_000 + micros, "Z" if status == 5 else "R"  # 5: SZOMB
