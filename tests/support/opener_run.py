"""Start openers as real processes, under a pseudo-terminal, with a program that is no host."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from typing import Any

from handoff.clock import SystemClock
from handoff.sessions.journal import Journal
from tests.support.openings import PERSON, SOURCE, frozen
from tests.support.waiting import until

PROGRAM = pathlib.Path(__file__).with_name("opener_program.py")
#: what a full-screen program may leave behind
WRECK = r"stty raw -echo; printf '\033[?1049h\033[?25l\033[?1000h\033[?2004h'"
#: how the program behaves: a shell script that has written down that it was started
BEHAVIOURS = {
    "end": "exit 0",
    "fail": "exit 3",
    "wreck-0": f"{WRECK}; exit 0",
    "wreck-9": f"{WRECK}; kill -9 $$",
    "wreck-15": f"{WRECK}; kill -15 $$",
    "hang": 'echo ready >>"$HERE/ready"; read -r answer',
    "int": 'trap \'echo int >>"$HERE/int"; exit 7\' INT; echo ready >>"$HERE/ready"; '
    "while :; do read -r answer || exit 9; done",
    "dump": 'env >"$HERE/env"; printf "%s\\n" "$@" >"$HERE/args"; pwd >"$HERE/cwd"; '
    'cat "/dev/fd/$HANDOFF_NONCE_FD" >"$HERE/nonce"; ls -l /proc/$$/fd >"$HERE/fds" 2>&1; exit 0',
}


class Place:
    """A journal with one prepared attempt, a workspace, and a program in a folder."""

    def __init__(self, folder: pathlib.Path, behave: str = "end") -> None:
        self.folder = folder
        self.root = folder / "handoff"
        self.workspace = folder / "w"
        self.workspace.mkdir()
        self.program = folder / "program"
        self.behave(behave)
        self.journal = Journal(str(self.root), clock=SystemClock(), redact=lambda text: text)
        self.prepare("attempt-0001")

    def behave(self, name: str) -> None:
        body = f'#!/bin/sh\nHERE={self.folder}\necho $$ >>"$HERE/launches"\n{BEHAVIOURS[name]}\n'
        self.program.write_text(body)
        self.program.chmod(0o755)

    def prepare(self, attempt_id: str, **other: Any) -> None:
        self.journal.prepare(frozen(attempt_id, str(self.workspace), **other), SOURCE)

    def launches(self) -> list[int]:
        with contextlib.suppress(FileNotFoundError):
            return [int(line) for line in (self.folder / "launches").read_text().split()]
        return []

    def argv(self, attempt_id: str, *more: str) -> list[str]:
        return [
            sys.executable,
            str(PROGRAM),
            str(self.root),
            attempt_id,
            str(self.workspace),
            str(self.program),
            *more,
        ]

    def give_up(self, attempt_id: str) -> None:
        self.journal.abandon(attempt_id, "looked", PERSON)


class Run:
    """One opener under a terminal of its own."""

    def __init__(
        self, place: Place, attempt_id: str = "attempt-0001", *more: str, **env: str
    ) -> None:
        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.output = b""
        self.process = subprocess.Popen(
            place.argv(attempt_id, *more),
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
            start_new_session=True,
        )

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> tuple[int, dict[str, Any]]:
        """Wait; (exit code, the outcome or {} if it was killed)."""
        _, error = self.process.communicate(timeout=50)
        lines = error.decode().strip().splitlines()
        outcome = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
        assert outcome or self.process.returncode == -signal.SIGKILL, error.decode()
        return self.process.returncode, outcome

    def shown(self) -> bytes:
        """What stands on the terminal so far."""
        os.set_blocking(self.master, False)
        with contextlib.suppress(BlockingIOError, OSError):
            while chunk := os.read(self.master, 65536):
                self.output += chunk
        return self.output

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        os.close(self.slave)
        os.close(self.master)


@contextlib.contextmanager
def running(place: Place, *more: str, **env: str) -> Iterator[Run]:
    """An opener; it and what it started are gone afterwards."""
    run = Run(place, *(more or ("attempt-0001",)), **env)
    try:
        yield run
    finally:
        run.close()
        # the terminal has hung up, which ends what read from it
        until(lambda: not any(map(_lives, place.launches())), "the program has ended")


def _lives(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def outcome_of(place: Place, attempt_id: str = "attempt-0001", **env: str) -> tuple[int, Any]:
    """Run an opener to its end."""
    with running(place, attempt_id, **env) as run:
        return run.end()


def settings(fd: int) -> Mapping[str, Any]:
    """A terminal's settings, comparable."""
    return dict(enumerate(termios.tcgetattr(fd)))
