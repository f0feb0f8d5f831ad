"""The same facts on macOS, from ``libproc`` and ``sysctl``. See :mod:`handoff.process.facts`."""

from __future__ import annotations

import ctypes
import struct

# <sys/proc_info.h>: PROC_PIDTBSDINFO fills struct proc_bsdinfo, 136 bytes.
_PROC_ALL_PIDS = 1
_PROC_PIDTBSDINFO = 3
_BSDINFO_SIZE = 136
# <sys/sysctl.h>
_CTL_KERN = 1
_KERN_PROCARGS2 = 49
_SZOMB = 5  # <sys/proc.h>

_libc = ctypes.CDLL(None, use_errno=True)


def boot_id() -> str:
    """The boot session's UUID."""
    size = ctypes.c_size_t(64)
    buffer = ctypes.create_string_buffer(64)
    if _libc.sysctlbyname(b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel does not tell kern.bootsessionuuid")
    return buffer.value.decode("ascii")


def fact(pid: int) -> tuple[int, int, int, str, int] | None:
    """pid, ppid, start stamp (microseconds since 1970), state letter, session id."""
    buffer = ctypes.create_string_buffer(_BSDINFO_SIZE)
    got = _libc.proc_pidinfo(pid, _PROC_PIDTBSDINFO, ctypes.c_uint64(0), buffer, _BSDINFO_SIZE)
    if got < _BSDINFO_SIZE:
        return None
    # pbi_flags, pbi_status, pbi_xstatus, pbi_pid, pbi_ppid at 0..20; the start at 120, 128
    _flags, status, _xstatus, _pid, ppid = struct.unpack_from("=5I", buffer.raw, 0)
    seconds, micros = struct.unpack_from("=2Q", buffer.raw, 120)
    session = _libc.getsid(pid)
    return pid, ppid, seconds * 1_000_000 + micros, "Z" if status == _SZOMB else "R", session


def all_pids() -> list[int]:
    """Every pid that is visible now."""
    room = _libc.proc_listpids(_PROC_ALL_PIDS, 0, None, 0) + 4 * 64
    buffer = (ctypes.c_int32 * (room // 4))()
    got = _libc.proc_listpids(_PROC_ALL_PIDS, 0, buffer, room)
    return [pid for pid in buffer[: got // 4] if pid > 0]


def _arguments(pid: int) -> tuple[list[bytes], list[bytes]]:
    """The arguments and the environment, both empty where they may not be read."""
    mib = (ctypes.c_int * 3)(_CTL_KERN, _KERN_PROCARGS2, pid)
    size = ctypes.c_size_t(0)
    if _libc.sysctl(mib, 3, None, ctypes.byref(size), None, 0) != 0:
        return [], []
    buffer = ctypes.create_string_buffer(size.value)
    if _libc.sysctl(mib, 3, buffer, ctypes.byref(size), None, 0) != 0:
        return [], []
    raw = buffer.raw[: size.value]
    if len(raw) < 4:
        return [], []
    (count,) = struct.unpack_from("=i", raw, 0)
    # argc, the executable's path, padding zeros, argv, environment
    rest = raw[4:]
    rest = rest[rest.find(b"\0") :].lstrip(b"\0")
    words = rest.split(b"\0")
    return words[:count], words[count:]


def command_of(pid: int) -> str:
    """The command line on one line."""
    text = b" ".join(_arguments(pid)[0]).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def has_mark(pid: int, mark: bytes) -> bool:
    """Whether the start environment of pid holds exactly mark."""
    return mark in _arguments(pid)[1]
