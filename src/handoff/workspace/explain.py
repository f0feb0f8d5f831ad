"""From git's words to a typed error with a remedy. Standard library only."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Sequence

from handoff.errors import (
    DubiousOwnership,
    GitError,
    NotARepository,
    RepositoryLocked,
    StorageError,
    StorageFull,
    TimedOut,
)

#: lines of a list (of files in the way) that an error quotes
LINES_QUOTED = 5

_CREDENTIAL = re.compile(r"(\w://)[^/@\s]+@")


def is_dubious(code: int, err: str) -> bool:
    """Whether git refused because the repository belongs to somebody else."""
    return code == 128 and ("dubious ownership" in err or "unsafe repository" in err)


def without_credentials(text: str) -> str:
    """The text with user names and passwords in addresses left out."""
    return _CREDENTIAL.sub(r"\1", text)


def explain(args: Sequence[str], cwd: str, code: int, err: str) -> GitError | StorageFull:
    """The typed error for a call that ended with ``code`` and wrote ``err``."""
    err = without_credentials(err)
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    said = next(
        (x for x in lines if x.startswith(("fatal:", "error:"))), lines[-1] if lines else ""
    )
    said = re.sub(r"^(fatal|error): ", "", said)
    if said.endswith(":"):
        at = next(n for n, line in enumerate(lines) if line.endswith(said))
        said = " ".join([said, ", ".join(lines[at + 1 : at + 1 + LINES_QUOTED])])
    verb = _verb(args)
    moved = re.search(r"not a git repository: (.+)", err)
    if moved:
        return NotARepository(
            f"{cwd} belongs to a repository that is not there any more ({moved[1]})",
            remedy=f"where the repository is now: git worktree repair {shell_quote(cwd)}",
            folder=cwd,
        )
    if "not a git repository" in err:
        return NotARepository(
            f"{cwd} is not in a git repository",
            remedy="run it from within a repository, or make one with: git init",
            folder=cwd,
        )
    if is_dubious(128, err):
        return _dubious(cwd, err)
    locked = re.search(r"'([^']+\.lock)': File exists", err)
    if locked:
        return RepositoryLocked(
            f"git's lock file {locked[1]} is in the way",
            remedy="wait for the git command that holds it; if none runs, "
            f"remove it: rm {shell_quote(locked[1])}",
            lock=locked[1],
        )
    if "No space left on device" in err or "Disk quota exceeded" in err:
        return StorageFull(
            f"git {verb}: the disk is full ({cwd})",
            remedy="free some space and try again",
            folder=cwd,
        )
    remedy = ""
    if re.search(r"Permission denied|Read-only|unable to create|cannot lock ref", err):
        said += _why_not_writable(cwd)
        remedy = f"make {cwd} writable for the user that runs agentd"
    if code < 0:
        said = said or f"ended by signal {-code}"
    return GitError(
        f"git {verb}: {said or f'exit code {code}'}",
        remedy=remedy,
        exit_code=code,
        stderr=err[-2000:],
    )


def _why_not_writable(folder: str) -> str:
    """What git leaves out of "unable to create"."""
    try:
        read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
    except OSError:
        return ""
    return " (the file system is read-only)" if read_only else ""


def storage_error(error: OSError, what: str) -> StorageError:
    """The typed error for a file operation of ours that failed."""
    where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
    cause = f"{what}: {error.strerror or error}" + (f" ({where})" if where else "")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageFull(cause, remedy="free some space and try again")
    return StorageError(cause, remedy="look at the folder's owner and permissions")


def _verb(args: Sequence[str]) -> str:
    """The git command among the arguments."""
    plain = [a for a in args if not a.startswith("-") and "=" not in a]
    return plain[0] if plain else ""


def _dubious(cwd: str, err: str) -> DubiousOwnership:
    match = re.search(r"repository (?:at )?\(?'([^']+)'", err)
    folder = match[1] if match else cwd
    owner = owner_of(folder)
    return DubiousOwnership(
        f"{folder} belongs to {owner}, and agentd runs as {user_name(os.geteuid())}: "
        "git refuses to work there",
        remedy=f"run agentd as {owner}, or, if you trust it, "
        f"git config --global --add safe.directory {shell_quote(folder)}",
        folder=folder,
        owner=owner,
    )


def owner_of(path: str) -> str:
    """The name (or number) of the user that a path belongs to, or "an unknown user"."""
    try:
        return user_name(os.stat(path).st_uid)
    except OSError:
        return "an unknown user"


def user_name(uid: int) -> str:
    """The name of a user, or "user N"."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def shell_quote(text: str) -> str:
    """The text as one word of a POSIX shell, on one line whatever it holds."""
    if re.fullmatch(r"[\w@%+=:,./-]+", text, re.ASCII):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "'\"'\"'") + "'"
    escaped = "".join(_ansi_c(c) for c in text)
    return f"$'{escaped}'"


def _ansi_c(char: str) -> str:
    if char in "'\\":
        return "\\" + char
    if char.isprintable():
        return char
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))


def timed_out(args: Sequence[str], seconds: float) -> TimedOut:
    """The error for a call whose limit passed."""
    verb = _verb(args)
    return TimedOut(
        f"git {verb} did not end within {seconds:g} s and was ended",
        remedy="look whether the disk or the network hangs, then try again",
        seconds=seconds,
    )
