"""Start the new session's program in the foreground, and wait for it.

The program is started without a shell, with everything closed but the three standard
descriptors and one pipe that holds the nonce. A start that fails is proved to have failed:
the child reports what ``exec`` said through a pipe that a success closes.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from handoff.errors import LaunchFailed
from handoff.sessions import owner
from handoff.sessions.environment import ATTEMPT, NONCE_FD, NONCE_INODE
from handoff.sessions.owner import Owner

__all__ = ["RECIPES", "Child", "Launch", "Shield", "child_argv", "executable", "names"]

#: ``{name}`` is filled in; an argument list of a model is left out if none was frozen
RECIPES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "hermes-0.22": (
        ("-p", "{profile}", "--in", "{workspace}"),
        ("-m", "{model}", "--provider", "{provider}"),
        ("chat", "--source", "handoff", "-q", "{prompt}"),
    ),
    # its plain chat answers the first prompt and ends
    "hermes-0.19": (
        ("-p", "{profile}"),
        ("-m", "{model}", "--provider", "{provider}"),
        ("chat", "--tui", "--source", "handoff", "-q", "{prompt}"),
    ),
    "claude": ((), ("--model", "{model}"), ("{prompt}",)),
    # A setting given here, even one that it does not know, makes Codex run the session in
    # this process and not in the server that its terminals share: what that one starts has
    # neither our variables nor our process above it, and so could not show whose it is.
    "codex": (("--config", "handoff=1", "-C", "{workspace}"), ("-m", "{model}"), ("{prompt}",)),
    "opencode": (("{workspace}",), ("-m", "{provider}/{model}"), ("--prompt", "{prompt}")),
}


@dataclass(frozen=True, slots=True)
class Launch:
    """What is started: absolute argv, where, and with which environment (scrubbed)."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]


def executable(path: str) -> dict[str, Any]:
    """The program as it is recorded: ``path``, ``inode``, ``mtime_ns``.

    Raises:
        LaunchFailed: it is not absolute, or not a file that may be run.
    """
    if not os.path.isabs(path) or not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise LaunchFailed(f"{path} is not a program", remedy=f"ls -l {path}", path=path)
    found = os.stat(path)
    return {"path": path, "inode": found.st_ino, "mtime_ns": found.st_mtime_ns}


def child_argv(recipe: str, program: str, frozen: Mapping[str, Any], prompt: str) -> list[str]:
    """The child's arguments: the frozen names and the opening prompt, nothing else.

    The model is passed only if it was chosen or observed; a shell, a flag that skips
    permissions or another set of tools never is.
    """
    before, model, after = RECIPES[recipe]
    route = frozen["route"]
    values = {
        "profile": frozen["profile"],
        "workspace": frozen["workspace_resolved"],
        "model": route["model"],
        "provider": route["provider"],
        "prompt": prompt,
    }
    parts = [*before, *(model if route["model"] else ()), *after]
    return [program, *(part.format(**values) for part in parts)]


class Shield:
    """While it is up, no signal ends this process between an intent and its outcome.

    SIGINT and SIGQUIT go to the child by the terminal itself and are let pass; SIGTERM and
    SIGHUP are remembered and passed on to the child. Handlers, not SIG_IGN: that one would
    be inherited by the child.
    """

    _PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
    _LET_PASS = (signal.SIGINT, signal.SIGQUIT)

    def __init__(self) -> None:
        self.received: list[int] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (*self._PASSED_ON, *self._LET_PASS):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number in self._PASSED_ON:
            self.received.append(number)
            if self._child is not None:
                self._child.send_signal(number)

    def cover(self, child: subprocess.Popen[bytes]) -> None:
        """Pass on to this child what came already, and what will come."""
        self._child = child
        for number in list(self.received):
            child.send_signal(number)


class Child:
    """A started program."""

    def __init__(self, process: subprocess.Popen[bytes], who: Owner | None) -> None:
        self._process, self.owner = process, who

    @classmethod
    def start(cls, launch: Launch, attempt_id: str, nonce: str, shield: Shield) -> Child:
        """Start it.

        Raises:
            LaunchFailed: proved: nothing was started.
        """
        reader, writer = os.pipe()
        try:
            os.write(writer, nonce.encode())
            os.close(writer)
            pipe = os.fstat(reader)
            env = {
                **launch.env,
                "PWD": launch.cwd,  # some agents believe it more than where they are
                ATTEMPT: attempt_id,
                NONCE_FD: str(reader),
                NONCE_INODE: f"{pipe.st_dev}:{pipe.st_ino}",
            }
            process = subprocess.Popen(
                launch.argv, cwd=launch.cwd, env=env, close_fds=True, pass_fds=(reader,)
            )
        except (OSError, ValueError) as error:
            raise LaunchFailed(
                f"{launch.argv[0]} could not be started: {error}", remedy=f"ls -l {launch.argv[0]}"
            ) from error
        finally:
            os.close(reader)
        shield.cover(process)
        try:
            who = owner.me(pid=process.pid)
        except OSError:
            who = None  # it runs all the same; it just can't be named
        return cls(process, who)

    def wait(self) -> tuple[int | None, int | None]:
        """Wait for its end: (exit code, None) or (None, signal)."""
        code = self._process.wait()
        return (code, None) if code >= 0 else (None, -code)


def names(pairs: Sequence[tuple[str, str]], limit: int = 1500) -> list[list[str]]:
    """Names of variables in lists that fit an event each (limit: bytes of a list)."""
    lists: list[list[str]] = [[]]
    size = 0
    for name, _reason in pairs:
        shown = name.encode("utf-8", "backslashreplace").decode()[:200]
        size += len(shown) + 4
        if size > limit and lists[-1]:
            lists.append([])
            size = len(shown) + 4
        lists[-1].append(shown)
    return [part for part in lists if part]
