"""The one place from which processes of a run are signalled.

A signal goes to a process, never to a group, and only to one whose start stamp was seen to
be right while its pid could not change hands (on Linux: through its pidfd). This process,
its ancestors and the first process are out of reach, whoever asks. Standard library only:
the shim uses it too.
"""

from __future__ import annotations

import errno
import os
import signal
import sys

from handoff.process import facts


def ancestors() -> set[int]:
    """The pids of this process and the chain of its parents, the first process included."""
    chain, pid = {1, os.getpid()}, os.getpid()
    while (found := facts.fact(pid)) is not None and found.ppid > 0 and found.ppid not in chain:
        pid = found.ppid
        chain.add(pid)
    return chain


def send_signal(pid: int, started: int, number: int) -> bool:
    """Signal exactly that process. Returns False if it is not there any more, or not ours.

    Nothing is sent to pids below 2: they would mean the first process or whole groups.
    """
    if pid <= 1 or started <= 0 or pid in ancestors():
        return False
    fd = _hold(pid)
    if fd is None:
        return False
    try:
        if not facts.living(pid, started):
            return False
        if fd < 0:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(fd, number)  # type: ignore[attr-defined,unused-ignore]
    except (ProcessLookupError, PermissionError):  # it ended, or is another user's
        return False
    finally:
        if fd >= 0:
            os.close(fd)
    return True


def _hold(pid: int) -> int | None:
    """A descriptor of the process; -1 where the system has none; None if it is gone."""
    if sys.platform != "linux":
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        # before Linux 5.3, or forbidden by a container's filter
        return -1 if error.errno in {errno.ENOSYS, errno.EPERM, errno.EINVAL} else None
