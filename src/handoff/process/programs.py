"""Whether a program could be started, before it is: found, executable, interpreter there."""

from __future__ import annotations

import os

from handoff.errors import ExecutorMissing
from handoff.process.spawn import shebang

__all__ = ["check_program", "find_program", "interpreter_missing"]


def find_program(name: str, path: str) -> str:
    """The absolute path that a shell with that PATH would run. name: bare, or a path.

    Relative entries of PATH count for nothing: they would mean each worktree's own.

    Raises:
        ExecutorMissing: it is not there, or may not be executed.
    """
    if "/" in name:
        found = os.path.abspath(os.path.expanduser(name))
        if not os.path.isfile(found):
            raise ExecutorMissing(f"there is no program {found}", program=name)
        if not os.access(found, os.X_OK):
            raise ExecutorMissing(
                f"{found} may not be executed", remedy=f"chmod +x {_quoted(found)}", program=name
            )
        return found
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder, name)
        if folder.startswith("/") and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return os.path.abspath(candidate)
    raise ExecutorMissing(
        f"'{name}' is not installed, or not in PATH", remedy="handoff doctor", program=name
    )


def check_program(program: str, path: str) -> None:
    """Raise if program's interpreter chain is not there. program: absolute path.

    A script is started by what its first line names; with ``#!/usr/bin/env NAME`` NAME is
    looked for in path. Scripts may stand in such lines too, as far as the kernel follows.

    Raises:
        ExecutorMissing: names the interpreter that is missing.
    """
    missing = interpreter_missing(program, path)
    if missing:
        raise ExecutorMissing(
            f"{program} is there, but its interpreter '{missing}' is not found",
            remedy=f"add the folder that holds '{os.path.basename(missing)}' to path_dirs "
            "in the configuration file, and restart agentd",
            program=program,
            interpreter=missing,
        )


def interpreter_missing(program: str, path: str) -> str:
    """The name of the first interpreter that can't be found, or ""."""
    for _ in range(5):  # the kernel's own limit for scripts that interpret scripts
        line = shebang(os.path.realpath(program))
        if not line:
            return ""
        wanted = line[0]
        if os.path.basename(wanted) == "env" and len(line) > 1 and os.path.exists(wanted):
            wanted, path = _asked_of_env(line[1], path)
            if not wanted:
                return ""
        if "/" in wanted:
            if not os.access(wanted, os.X_OK):
                return wanted
            program = wanted
            continue
        try:
            program = find_program(wanted, path)
        except ExecutorMissing:
            return wanted
    return ""


def _asked_of_env(argument: str, path: str) -> tuple[str, str]:
    """The program that ``env`` would look for, and the PATH it would use."""
    words = argument.split()
    while words:
        word = words.pop(0)
        if word == "-S" or word == "--split-string":
            continue
        if word.startswith("-S"):
            words.insert(0, word[2:])
        elif word.startswith("PATH="):
            path = word[5:]
        elif word.startswith("-") or "=" in word:
            continue
        else:
            return word, path
    return "", path


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
