"""How a workspace stands at a moment: git's position, changed files, named files, rules.

Everything is computed here, nothing is believed. What can't be found out is in
``unavailable`` with its reason; it is never taken for clean. Paths are relative to the
workspace.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from typing import Any

from handoff.errors import HandoffError
from handoff.sessions import canonical
from handoff.sessions.workspace import Binding
from handoff.workspace import git

#: seconds for one call of git, and for all of them
CALL_LIMIT, LIMIT = 1.5, 6.0
#: changed files that are named; named files that are looked at; bytes of one
CHANGED, FILES, FILE_LIMIT = 512, 512, 8 * 1024 * 1024
RULES = ("AGENTS.md", "CLAUDE.md", "HERMES.md", ".hermes.md", ".cursorrules")
RULE_LIMIT = 64 * 1024
_UP = 32


def snapshot(binding: Binding, paths: Iterable[str] = ()) -> dict[str, Any]:
    """The facts: ``git`` {branch, head, changed, changed_total, dirty_digest} where there is
    a repository, ``files`` [{path, blob: an id, "missing", or "unavailable: why"}], ``rules``
    [{path, sha256}], ``unavailable`` {what: why}. ``changed``: [{status, path, blob}]."""
    unavailable: dict[str, str] = {}
    facts: dict[str, Any] = {}
    if binding.kind == "git":
        facts["git"] = _git(binding, unavailable)
    named = sorted(set(paths))
    facts["files"] = [{"path": path, "blob": blob_of(binding.path, path)} for path in named[:FILES]]
    if len(named) > FILES:
        unavailable["files"] = f"{len(named) - FILES} more files are named than are looked at"
    facts["rules"] = [
        {"path": path, "sha256": digest} for path, digest in _rules(binding.path).items()
    ]
    facts["unavailable"] = unavailable
    return facts


def _git(binding: Binding, unavailable: dict[str, str]) -> dict[str, Any]:
    until = time.monotonic() + LIMIT
    facts: dict[str, Any] = {"branch": binding.branch, "head": binding.head}
    try:
        result = git.run(
            ("status", "--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames"),
            binding.path,
            content=True,
            limit=CALL_LIMIT,
        )
    except HandoffError as error:
        unavailable["changed"] = error.cause
        return facts
    changed = []
    records = result.records
    top = _top(binding)
    for record in records[:CHANGED]:
        if time.monotonic() > until:
            unavailable["changed"] = f"not all files could be read within {LIMIT:.0f} s"
            break
        # Git tells paths from the top of the worktree, which may be above.
        changed.append(
            {
                "status": record[:2].strip(),
                "path": shown(record[3:]),
                "blob": blob_of(top, record[3:]),
            }
        )
    changed.sort(key=lambda one: one["path"])
    facts["changed"] = changed
    facts["changed_total"] = len(records)
    facts["dirty_digest"] = canonical.digest("handoff-dirty/1", canonical.dumps(changed))
    return facts


def _top(binding: Binding) -> str:
    try:
        found = git.run(("rev-parse", "--show-toplevel"), binding.path, limit=CALL_LIMIT)
    except HandoffError:
        return binding.path
    return found.text or binding.path


def shown(path: str) -> str:
    """A path as JSON can hold it; bytes that are no UTF-8 as their numbers."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def blob_of(top: str, path: str) -> str:
    """Git's id of a file's bytes as they lie there; "missing"; "unavailable: why"."""
    if os.path.isabs(path) or ".." in path.split("/") or "\0" in path:
        return "unavailable: not in the workspace"
    full = os.path.join(top, path)
    above = os.path.realpath(os.path.dirname(full))
    real_top = os.path.realpath(top)
    if above != real_top and not above.startswith(real_top.rstrip("/") + "/"):
        return "unavailable: a link leads out of the workspace"
    try:
        found = os.lstat(full)
        if stat.S_ISLNK(found.st_mode):
            return _blob(os.fsencode(os.readlink(full)))
        if stat.S_ISDIR(found.st_mode):
            return "unavailable: a folder"
        if not stat.S_ISREG(found.st_mode):
            return "unavailable: no plain file"
        if found.st_size > FILE_LIMIT:
            return f"unavailable: {found.st_size} bytes"
        return _blob(_bytes(full, FILE_LIMIT))
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        return f"unavailable: {error.strerror}"


def _bytes(path: str, limit: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return file.read(limit)


def _blob(data: bytes) -> str:
    head = b"blob %d\0" % len(data)
    return hashlib.sha1(head + data, usedforsecurity=False).hexdigest()


def _rules(folder: str) -> dict[str, str]:
    """The digests of the files of rules, in the workspace and above it."""
    found: dict[str, str] = {}
    here = folder
    for level in range(_UP):
        for name in RULES:
            path = os.path.join(here, name)
            if os.path.isfile(path):
                try:
                    data = _bytes(os.path.realpath(path), RULE_LIMIT)
                    digest = hashlib.sha256(data).hexdigest()
                except OSError as error:
                    digest = f"unavailable: {error.strerror}"
                found["../" * level + name] = digest
        above = os.path.dirname(here)
        if above == here:
            break
        here = above
    return found
