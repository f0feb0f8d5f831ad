"""The one place that runs git. Standard library only.

Rule 1: no call prompts, waits for ever, or outlives its caller's patience: each has a time
limit and a process group of its own, which is ended whole.
Rule 2: no call runs a program that a configuration names. Hooks, filters, external diffs,
text converters, merge drivers, file-system monitors, pagers, editors, credential helpers,
signing programs and transports are switched off; an executor can write the repository's
configuration, and this code runs outside its sandbox.
Rule 3: the bytes do not depend on the user's taste. The user's and the system's
configuration are not read (but for ``safe.directory``), and what a repository's own could
change in our output is pinned.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Sequence

from handoff.errors import GitError, GitTooOld
from handoff.workspace import child
from handoff.workspace.child import Result, program
from handoff.workspace.explain import explain, is_dubious
from handoff.workspace.pinned import (
    FETCH,
    READ,
    USER,
    WRITE,
    WRITE_LAZY,
    Access,
    environment,
)

__all__ = [
    "FETCH",
    "READ",
    "USER",
    "WRITE",
    "WRITE_LAZY",
    "Access",
    "Result",
    "ask",
    "filter_names",
    "program",
    "require_version",
    "run",
    "silenced_programs",
    "stream",
    "user_setting",
    "version",
]

#: the first git with ``merge-tree --write-tree``; it also has ``worktree list -z``
MINIMUM = (2, 38)

#: seconds; reads of a healthy repository take milliseconds, a cold huge one some seconds
READ_LIMIT = 60.0
#: seconds for calls that write a whole worktree
WRITE_LIMIT = 300.0
#: seconds for calls that talk to another machine
NETWORK_LIMIT = 120.0
#: bytes that one call may return at once; larger answers are streamed
OUTPUT_LIMIT = 64 * 1024 * 1024

#: newer git takes the attributes of a bare repository from HEAD; this is the empty tree
_NO_ATTRIBUTES = ("attr.tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904")
#: a file that is not there, in place of the index, which may name attributes too
_NO_INDEX = "handoff-no-index"

_checked: set[tuple[str, int]] = set()


def version() -> tuple[int, int]:
    """Major and minor number of the git on PATH."""
    text = run(["version"], os.sep).text
    match = re.search(r"(\d+)\.(\d+)", text)
    if match is None:
        raise GitError(f"'git version' said '{text[:80]}'", remedy="install git 2.38 or newer")
    return int(match[1]), int(match[2])


def require_version() -> None:
    """Make sure, once for each git program, that it is new enough.

    Raises:
        GitMissing: none on PATH.
        GitTooOld: it is older than :data:`MINIMUM`.
    """
    path = program()
    key = (path, os.stat(path).st_mtime_ns)
    if key in _checked:
        return
    have = version()
    if have < MINIMUM:
        raise GitTooOld(
            f"git {have[0]}.{have[1]} at {path} is older than {MINIMUM[0]}.{MINIMUM[1]}",
            remedy=f"install git {MINIMUM[0]}.{MINIMUM[1]} or newer",
            path=path,
        )
    _checked.add(key)


def run(
    args: Sequence[str],
    cwd: str,
    *,
    access: Access = READ,
    ok: Sequence[int] | None = (0,),
    limit: float | None = None,
    stdin: bytes = b"",
    content: bool = False,
    literal: bool = False,
    max_bytes: int = OUTPUT_LIMIT,
    keep_fds: Sequence[int] = (),
    objects_only: bool = False,
) -> Result:
    """Run ``git <args>`` in ``cwd`` and wait for it.

    ``ok``: exit codes that are an answer; None accepts all. ``limit``: seconds, by default
    what suits ``access``. ``content``: the call looks at file contents in a worktree, so
    the filters and merge drivers of the repository are looked up and switched off.
    ``literal``: a path means itself. ``keep_fds``: descriptors that git inherits (a lock
    that lives as long as it does). ``objects_only``: ``cwd`` is git's common folder, and
    no index or worktree is looked at, not even for attributes.

    Raises:
        GitError: or one of its kinds, with git's own words.
        TimedOut: the limit passed; the whole process group was ended.
        TooLarge: more output than ``max_bytes``.
    """
    settings = [_NO_ATTRIBUTES] if objects_only else []
    if content or access.network:
        settings += silenced_programs(cwd, access)
    seconds = limit if limit is not None else _default_limit(access)

    def once() -> Result:
        env = environment(access, settings, literal=literal)
        if objects_only:
            env["GIT_INDEX_FILE"] = os.path.join(cwd, _NO_INDEX)
        proc = child.start(
            ["--bare", *args] if objects_only else args, cwd, env, stdin=stdin, keep_fds=keep_fds
        )
        return child.collect(proc, args, seconds, max_bytes)

    result = once()
    if is_dubious(result.code, result.err):
        trusted = _trusted_directories()
        if trusted:
            settings += trusted
            result = once()
    if ok is not None and result.code not in ok:
        raise explain(args, cwd, result.code, result.err)
    return result


def ask(args: Sequence[str], cwd: str, *, ok: Sequence[int] = (0, 1)) -> str:
    """The text that a reading call gives, or "" where it exits with another code of
    ``ok`` (1: there is no such thing)."""
    result = run(args, cwd, ok=ok)
    return result.text if result.code == 0 else ""


def stream(
    args: Sequence[str],
    cwd: str,
    *,
    idle_limit: float = READ_LIMIT,
    content: bool = False,
    literal: bool = False,
    ok: Sequence[int] = (0,),
    stdin: bytes = b"",
    objects_only: bool = False,
) -> Generator[bytes, None, None]:
    """The output of a reading call in chunks of at most 64 KiB, as git writes it.

    ``idle_limit``: seconds without a byte; time the consumer takes does not count. Closing
    the iterator ends git. Nothing is started before the first chunk is asked for.

    Raises:
        GitError, TimedOut: as :func:`run`, possibly after the first chunks.
    """
    settings = silenced_programs(cwd, READ) if content else []
    if _differs_in_owner(cwd):
        settings += _trusted_directories()
    if objects_only:
        settings.append(_NO_ATTRIBUTES)
    env = environment(READ, settings, literal=literal)
    if objects_only:
        env["GIT_INDEX_FILE"] = os.path.join(cwd, _NO_INDEX)
    proc = child.start(["--bare", *args] if objects_only else args, cwd, env, stdin=stdin)
    yield from child.chunks(proc, args, cwd, idle_limit, ok)


def silenced_programs(cwd: str, access: Access = READ) -> list[tuple[str, str]]:
    """Settings that turn every configured filter and merge driver of the repository into
    a pass-through, and the remotes' programs into git's own. They have to be named one by
    one: git knows no wildcard.

    Files then hold what the repository holds (a Git LFS pointer, an encrypted blob), and
    a look at them compares with just that.
    """
    pattern = r"^(filter|merge|remote)\..*\.[a-z]*$"
    args = ["config", "-z", "--name-only", "--get-regexp", pattern]
    settings: dict[str, str] = {}
    reading = USER if access.user_config else READ
    for key in run(args, cwd, access=reading, ok=(0, 1)).records:
        section, _, rest = key.partition(".")
        name, _, variable = rest.rpartition(".")
        if not name:
            continue
        if section == "filter":
            for purpose in ("smudge", "clean", "process"):
                settings[f"filter.{name}.{purpose}"] = ""
            settings[f"filter.{name}.required"] = "false"
        elif section == "remote" and variable == "uploadpack":
            settings[key] = "git-upload-pack"
        elif section == "merge" and variable == "driver":
            # Not a program of theirs: it leaves the merge as a conflict.
            settings[key] = "false"
    return list(settings.items())


def filter_names(cwd: str) -> list[str]:
    """Names of the filters that the user's and the repository's settings define."""
    pattern = r"^filter\..*\.(smudge|clean|process)$"
    args = ["config", "-z", "--name-only", "--get-regexp", pattern]
    found = run(args, cwd, access=USER, ok=(0, 1))
    return sorted({key.partition(".")[2].rpartition(".")[0] for key in found.records})


def user_setting(key: str, cwd: str, kind: str = "") -> str:
    """A value as the user's own git sees it, or "". ``kind``: "path", "bool", ..."""
    typed = [f"--type={kind}"] if kind else []
    # "git config" with a scope would not see our settings, but without one ours win.
    args = ["config", *typed, "--show-origin", "-z", "--get-all", key]
    found = run(args, cwd, access=USER, ok=(0, 1)).records
    values = [
        value
        for origin, value in zip(found[::2], found[1::2], strict=True)
        if origin != "command line:"
    ]
    return values[-1] if values else ""


def _trusted_directories() -> list[tuple[str, str]]:
    """``safe.directory`` of the user's and the system's settings, which are the only ones
    that git itself obeys."""
    values: list[str] = []
    for scope in ("--system", "--global"):
        args = ["config", scope, "-z", "--path", "--get-all", "safe.directory"]
        proc = child.start(args, os.sep, environment(USER))
        result = child.collect(proc, args, READ_LIMIT, OUTPUT_LIMIT)
        if result.code == 0:
            values += result.records
    return [("safe.directory", value) for value in values]


def _differs_in_owner(cwd: str) -> bool:
    """Whether the repository, or what leads to it, may belong to another user."""
    folder = os.path.realpath(cwd)
    uid = os.geteuid()
    while True:
        marker = os.path.join(folder, ".git")
        for name in (folder, marker):
            with contextlib.suppress(OSError):
                if os.stat(name).st_uid != uid:
                    return True
        parent = os.path.dirname(folder)
        if os.path.lexists(marker) or folder == parent:
            return False
        folder = parent


def _default_limit(access: Access) -> float:
    if access.network and access.user_config:
        return NETWORK_LIMIT
    return WRITE_LIMIT if access.write else READ_LIMIT
