"""Starting the brain of a folder, and starting it anew when this program is a newer one.
Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from handoff import __version__
from handoff.errors import HandoffError, LaunchFailed, from_json
from handoff.link.files import locked

if TYPE_CHECKING:
    import subprocess

__all__ = ["end_brain", "held", "launch", "newer_than", "said_version"]

#: what a running brain says of itself, in its folder
INFO = "brain.json"
#: seconds for a brain to say how it began
START_S = 20.0


def launch(
    argv: Sequence[str],
    folder: str,
    env: Mapping[str, str] | None,
    answers: Callable[[], bool],
    seconds: float = START_S,
) -> None:
    """Start the brain of a folder. argv: how, without the folder. answers: whether it serves.

    Raises:
        LaunchFailed: it can't be started, or says nothing in that time; it is ended then.
        HandoffError: why it can't serve, in its own words.
    """
    import signal
    import subprocess

    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, "brain.log")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            [*argv, folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd="/",
            env=dict(env) if env is not None else None,
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchFailed(f"the brain can't be started: {error}") from error
    finally:
        os.close(log)
    until = time.monotonic() + seconds
    line = _first_line(child, until)
    if line is None:
        # its group is ours to end, and the number is not used again before it is collected
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()  # it was a parent for a moment; the brain is nobody's child
    if line is None:
        raise LaunchFailed(
            f"the brain did not start within {seconds:g} s", remedy=f"tail {path}", log=path
        )
    try:
        said = json.loads(line) if line else {}
    except ValueError:
        said = {}
    if "failed" in said:
        raise from_json(said["failed"])
    if not said:
        raise LaunchFailed("the brain ended as it started", remedy=f"tail {path}", log=path)
    while not answers():
        if time.monotonic() > until:
            raise LaunchFailed(
                f"the brain did not answer within {seconds:g} s", remedy=f"tail {path}", log=path
            )
        if "taken" in said and not held(folder):  # the one before it was just ending
            return launch(argv, folder, env, answers, max(1.0, until - time.monotonic()))
        time.sleep(0.01)
    return None


def _first_line(child: subprocess.Popen[bytes], until: float) -> bytes | None:
    """What it says first; b"" if it ends without a word, None if the time is up."""
    import select

    assert child.stdout is not None
    came = b""
    with child.stdout as pipe:
        poll = select.poll()
        poll.register(pipe, select.POLLIN | select.POLLHUP)
        while not came.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return None
            data = os.read(pipe.fileno(), 65536)
            if not data:
                return came if came.endswith(b"\n") else b""
            came += data
    return came


def said_version(folder: str) -> tuple[str, bool]:
    """The version of the brain that serves a folder, "" if it does not say; and whether it
    was started by a client, and so may be started anew by one."""
    try:
        with open(os.path.join(folder, INFO), encoding="utf-8") as file:
            found = json.load(file)
        return str(found.get("version", "")), found.get("spawned") is True
    except (OSError, ValueError, AttributeError):
        return __version__, False  # nobody says anything: that is not another version


def newer_than(version: str) -> bool:
    """Whether this program is newer than that version."""
    return _numbers(__version__) > _numbers(version)


def _numbers(version: str) -> list[int]:
    found = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        found.append(int(digits or 0))
    return found


def held(folder: str) -> bool:
    """Whether a process has the brain's lock."""
    return locked(os.path.join(folder, INFO))


def end_brain(ask: Callable[..., dict[str, Any]], folder: str, *, idle: bool = True) -> str:
    """Ask a brain to end. idle: only if it has nothing to do. Returns "" once it has ended, or
    why it goes on."""
    try:
        ask("stop", if_idle=idle)
    except HandoffError as error:
        return error.cause
    until = time.monotonic() + START_S
    while held(folder):
        if time.monotonic() > until:
            return "it does not end"
        time.sleep(0.01)
    return ""
