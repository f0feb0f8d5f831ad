"""The PATH that executors get: what agentd inherited is rarely what the user has.

A service starts with a bare PATH, while the user's shell adds version managers and tools.
Order, duplicates dropped: the inherited PATH; what the login shell has; ``path_dirs`` of the
configuration; known folders that exist; the node folders of version managers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from handoff.process.programs import check_program, find_program

__all__ = ["PathEnv", "check_program", "complete", "find_program", "login_shell_path"]

#: seconds that the login shell gets: people do slow things in their start files
SHELL_S = 3.0
#: what a shell may print before we stop listening, in bytes
_SHELL_BYTES = 1 << 20
_BEGIN, _END = "<<handoff-path:", ":handoff-path>>"

_IN_HOME = (
    ".opencode/bin",
    ".grok/bin",
    ".claude/local",
    ".local/bin",
    "bin",
    ".bun/bin",
    ".npm-global/bin",
    ".cargo/bin",
    "go/bin",
    ".volta/bin",
    ".asdf/shims",
    ".local/share/mise/shims",
)
_ABSOLUTE = (
    "/opt/homebrew/bin",
    "/opt/homebrew/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/snap/bin",
)
#: version managers: a folder of versions, and where in a version its programs are
_VERSIONED = (
    (".nvm/versions/node", "bin"),
    (".local/share/fnm/node-versions", "installation/bin"),
    (".local/share/mise/installs/node", "bin"),
    (".asdf/installs/nodejs", "bin"),
    (".volta/tools/image/node", "bin"),
)


class PathEnv(msgspec.Struct, frozen=True):
    """A completed PATH. ``path``: as for the environment. ``sources``: folder -> where it
    came from (``inherited``, ``shell``, ``path_dirs``, ``known``, ``node``). ``warnings``:
    for people, one line each."""

    path: str
    sources: dict[str, str]
    warnings: tuple[str, ...] = ()


async def complete(
    environ: Mapping[str, str],
    path_dirs: Iterable[str] = (),
    *,
    shell: bool = True,
    timeout_s: float = SHELL_S,
) -> PathEnv:
    """The PATH for executors. environ: agentd's own (HOME, SHELL and PATH are used).

    shell: ask the login shell too. Nothing raises: what can't be had becomes a warning.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    warnings: list[str] = []
    sources: dict[str, str] = {}

    def add(folders: Iterable[str], source: str) -> None:
        for folder in folders:
            if folder.startswith("/"):  # a relative entry would mean each worktree's own
                sources.setdefault(folder.rstrip("/") or "/", source)

    add(environ.get("PATH", "").split(":"), "inherited")
    if shell:
        found, warning = await login_shell_path(environ, timeout_s)
        add(found.split(":"), "shell")
        warnings += [warning] if warning else []
    for folder in path_dirs:
        expanded = os.path.join(home, folder[2:]) if folder.startswith("~/") else folder
        if not os.path.isabs(expanded) or not os.path.isdir(expanded):
            warnings.append(f"path_dirs: {folder} is not a folder")
            continue
        add([expanded], "path_dirs")
    known = [*(os.path.join(home, folder) for folder in _IN_HOME), *_ABSOLUTE]
    add((folder for folder in known if os.path.isdir(folder)), "known")
    add(_node_folders(home), "node")
    return PathEnv(":".join(sources), sources, tuple(warnings))


def _node_folders(home: str) -> list[str]:
    """The newest version's folder of each version manager."""
    folders = []
    for versions, programs in _VERSIONED:
        base = Path(home, versions)
        try:
            names = os.listdir(base)
        except OSError:  # that manager is not installed
            continue
        for name in sorted(names, key=_version, reverse=True):
            folder = base / name / programs
            if folder.is_dir():
                folders.append(str(folder))
                break
    return folders


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", name)[:4])


async def login_shell_path(
    environ: Mapping[str, str], timeout_s: float = SHELL_S
) -> tuple[str, str]:
    """PATH as the user's login shell has it: (PATH or "", warning or "").

    The shell is started as a login and interactive one, since people set PATH in the start
    files of either. What those files print is told apart by markers. The shell has a
    session of its own, no input, and all of it is killed afterwards.
    """
    shell = environ.get("SHELL", "")
    if not shell:
        return "", ""
    if not os.access(shell, os.X_OK):
        return "", f"SHELL: {shell} can't be executed, its PATH is not used"
    from handoff.process.command import run_command

    fish = os.path.basename(shell) == "fish"  # there PATH is a list
    value = "(string join : $PATH)" if fish else '"$PATH"'
    script = f"command printf '%s%s%s' '{_BEGIN}' {value} '{_END}'"
    home = environ.get("HOME", "/")
    result = await run_command(
        [shell, "-l", "-i", "-c", script],
        cwd=home if os.path.isdir(home) else "/",
        env={**environ, "TERM": "dumb"},
        timeout_s=timeout_s,
        limit_bytes=_SHELL_BYTES,
        grace_s=0.0,
    )
    text = result.tail_out.decode("utf-8", "surrogateescape")
    begin = text.rfind(_BEGIN)
    end = text.find(_END, begin)
    if begin >= 0 and end >= 0:
        return text[begin + len(_BEGIN) : end], ""
    if result.timed_out:
        return "", f"{shell} did not start within {timeout_s:g} s, its PATH is not used"
    how = f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}"
    return "", f"{shell} told no PATH ({how}), it is not used"
