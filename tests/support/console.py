"""The installed ``handoff`` command, as a user runs it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tests.support.home import Home

#: the console script of the environment that runs the tests
HANDOFF = os.path.join(os.path.dirname(sys.executable), "handoff")


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    args: tuple[str, ...]
    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """Standard output as one JSON value a line."""
        return [json.loads(line) for line in self.out.splitlines() if line]

    def ok(self) -> Ran:
        """This, after making sure that it ended well."""
        shown = f"handoff {' '.join(self.args)}: {self.code}\n{self.out}\n{self.err}"
        assert self.code == 0, shown
        return self


class Cli:
    """Runs ``handoff`` with a private home, in a folder of choice."""

    def __init__(self, home: Home, cwd: pathlib.Path | None = None) -> None:
        self.home = home
        self.cwd = cwd or home.path

    def within(self, cwd: pathlib.Path) -> Cli:
        """The same, from another folder."""
        return Cli(self.home, cwd)

    def __call__(
        self,
        *args: str,
        timeout: float = 30.0,
        stdin: str | None = None,
        env: dict[str, str] | None = None,
    ) -> Ran:
        """Run it to its end; a non-zero exit is data, not an exception."""
        done = subprocess.run(
            [HANDOFF, *args],
            cwd=self.cwd,
            env={**self.home.env, **(env or {})},
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout,
        )
        return Ran(args, done.returncode, done.stdout, done.stderr)

    def start(self, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start it and do not wait; the caller ends it. Output through pipes."""
        return subprocess.Popen(
            [HANDOFF, *args],
            cwd=self.cwd,
            env={**self.home.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
