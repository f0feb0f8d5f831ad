"""Processes of a page's test, in user and process namespaces of their own.

Inside, nothing but they themselves can be seen, signalled or reaped; with the first of them
all the others end. The home folder alone is no such fence. Where the machine gives no
namespaces the test does not run: there is no other way, and Hermes' Desktop application
itself is never started.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess

import pytest

PREFIX = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")


def fenced(argv: list[str]) -> list[str]:
    """The command behind the fence; where the machine gives none, the test is skipped."""
    works = shutil.which(PREFIX[0]) is not None and not _fails(sees_only_itself())
    if not works:
        message = "this machine gives no user and process namespaces: a page is not tested here"
        pytest.skip(message)
    return [*PREFIX, *argv]


def sees_only_itself() -> list[str]:
    """A command that succeeds if it is the first process that there is."""
    return [
        *PREFIX,
        "sh",
        "-c",
        'test "$$" = 1 && test ! -e /proc/' + str(os.getpid()) + "/environ",
    ]


def _fails(argv: list[str]) -> bool:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    return done.returncode != 0


def end(process: subprocess.Popen[bytes]) -> None:
    """End what was started with :func:`fenced`, and with it everything inside."""
    inside = children(process.pid)
    if process.poll() is None:
        for pid in inside:  # the first process inside: a signal from outside reaches it
            os.kill(pid, signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait(20)


def children(pid: int) -> list[int]:
    """The children of a process of ours that still runs."""
    if pid <= 1:
        return []
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(one) for one in text.split() if int(one) > 1]


def namespace(pid: int) -> str:
    """In which process namespace it is."""
    return os.readlink(f"/proc/{pid}/ns/pid")
