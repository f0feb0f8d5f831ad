"""A home directory of its own for everything that a test starts."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

GITCONFIG = """\
[user]
\tname = Ada Tester
\temail = ada@example.invalid
[init]
\tdefaultBranch = main
[commit]
\tgpgsign = false
"""

#: what could reach from the user's environment into a test
FOREIGN = (
    "GIT_",
    "HANDOFF_",
    "XDG_",
    "CLAUDE",
    "ANTHROPIC_",
    "OPENAI_",
    "OPENCODE_",
    "GEMINI_",
    "XAI_",
    "GROK_",
)
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
#: switches of the suite itself
KEPT = ("HANDOFF_LIVE", "HANDOFF_TEST_PROCESSES", "HANDOFF_TEST_REPEAT")


def clean_environment(home: pathlib.Path) -> dict[str, str]:
    """The environment of a new user whose home that is: no git, agent, proxy or Handoff
    setting of whoever runs the tests."""
    env = {
        key: value
        for key, value in os.environ.items()
        if key in KEPT
        or not (key.startswith(FOREIGN) or key.lower() in PROXIES or key in ("EDITOR", "VISUAL"))
    }
    env.update(
        HOME=str(home),
        GIT_CONFIG_NOSYSTEM="1",
        GIT_TERMINAL_PROMPT="0",
        LC_ALL="C.UTF-8",
        TZ="UTC",
        NO_COLOR="1",
    )
    return env


@dataclass(frozen=True)
class Home:
    """A home with a git identity and nothing else. ``env``: a whole environment for child
    processes. ``mark``: the environment entry by which leftovers are found."""

    path: pathlib.Path
    env: dict[str, str]

    @property
    def mark(self) -> str:
        """The entry that every process started below this home carries."""
        return f"HOME={self.path}"

    def git(self, *args: str, cwd: pathlib.Path) -> str:
        """Run git as this user; its output without the last newline."""
        done = subprocess.run(
            ["git", *args], cwd=cwd, env=self.env, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, f"git {' '.join(args)}: {done.stderr}"
        return done.stdout.rstrip("\n")


@contextmanager
def make_home() -> Iterator[Home]:
    """A fresh home. Its path is short, so that sockets below it have room."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="ho-")).resolve()
    try:
        (path / ".gitconfig").write_text(GITCONFIG)
        yield Home(path, clean_environment(path))
    finally:
        shutil.rmtree(path, onerror=_make_writable)


def _make_writable(function: object, path: str, _error: object) -> None:
    """Read-only trees are part of some tests: open them up and try once more."""
    parent = os.path.dirname(path)
    os.chmod(parent, 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
