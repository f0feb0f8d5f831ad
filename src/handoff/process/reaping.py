"""Collecting our own ended children, without a thread and without polling on Linux.

A child is watched through its pidfd. Where there is none (macOS) it is looked at with
growing pauses. Children whose event loop is gone are collected by :func:`collect`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

#: what a program that we start gets back to its default: Python ignores some of them
ALL_SIGNALS = tuple(
    number
    for number in signal.valid_signals()
    if number not in {signal.SIGKILL, signal.SIGSTOP} and number < 32
)

#: no exit code: the child has ended and was not collected
_UNCOLLECTED = 1 << 20
#: pid -> who wants to know, and the pidfd (-1: none)
_unreaped: dict[int, tuple[asyncio.Future[int], int]] = {}


def ended_uncollected(pid: int) -> asyncio.Future[int]:
    """A future that is done when our child pid has ended. :func:`collected` must follow.

    Until then the kernel keeps the pid (Linux), so that nothing else can be met under it.
    """
    fd = _pidfd(pid)
    if fd < 0:
        return watch(pid)
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def died() -> None:
        loop.remove_reader(fd)
        os.close(fd)
        if not ended.done():
            ended.set_result(_UNCOLLECTED)

    loop.add_reader(fd, died)
    return ended


def collected(pid: int, ended: asyncio.Future[int]) -> int | None:
    """Collect a child of :func:`ended_uncollected`: its exit code, None if it lives still."""
    if ended.done() and ended.result() != _UNCOLLECTED:
        return ended.result()
    got, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if got else None


def watch(pid: int) -> asyncio.Future[int]:
    """A future of the exit code (negative: signal) of our child pid, which it collects."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    fd = _pidfd(pid)
    _unreaped[pid] = ended, fd
    if fd < 0:
        _look_again(loop, pid, 0.002)
        return ended
    loop.add_reader(fd, _try, pid)
    return ended


def _pidfd(pid: int) -> int:
    """A descriptor of our child, -1 where the system has none."""
    if sys.platform == "linux":
        try:
            return os.pidfd_open(pid)
        except OSError:  # before Linux 5.3, or forbidden by a container's filter
            pass
    return -1


def _look_again(loop: asyncio.AbstractEventLoop, pid: int, pause_s: float) -> None:
    if pid in _unreaped and not _try(pid):
        loop.call_later(pause_s, _look_again, loop, pid, min(1.0, pause_s * 1.5))


def _try(pid: int) -> bool:
    """Collect pid if it has ended."""
    try:
        got, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # somebody else of this process collected it
        got, status = pid, 0
    if got == 0:
        return False
    ended, fd = _unreaped.pop(pid)
    loop = ended.get_loop()
    if fd >= 0:
        if not loop.is_closed():
            loop.remove_reader(fd)
        os.close(fd)
    if not loop.is_closed() and not ended.done():
        ended.set_result(os.waitstatus_to_exitcode(status))
    return True


def collect() -> None:
    """Collect every ended child that is still known."""
    for pid in list(_unreaped):
        _try(pid)


def kill(pid: int) -> None:
    """SIGKILL to a child of ours that was not collected yet; else nothing."""
    if pid > 1 and pid in _unreaped and not _try(pid):
        os.kill(pid, signal.SIGKILL)
