"""Showing what a task did, exactly and in bounded memory. Standard library only.

Committed work is read from the object store alone: the answer is the same while the
worktree lives, after it has gone, and whatever is checked out. Attributes of the worktree
are not used, so a ``.gitattributes`` can't call a changed text "binary".

A path is a ``str`` with surrogate escapes for bytes that are not UTF-8, and means itself:
``*.txt`` is a file of that name.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from handoff.errors import NotFound, UsageError
from handoff.workspace import git
from handoff.workspace.contract import Range
from handoff.workspace.own import keep_range, own_range, range_of, raw_range
from handoff.workspace.refs import forget_refs, record_refs
from handoff.workspace.state import common_dir_of, is_name, printable

__all__ = [
    "Change",
    "Mode",
    "change_json",
    "diff_stream",
    "files",
    "forget_refs",
    "keep_range",
    "own_range",
    "range_of",
    "raw_range",
    "record_refs",
    "select",
]

Mode = Literal["patch", "stat", "name_only", "json"]

#: columns of a ``--stat``: the same on every terminal
STAT_WIDTH = 120

_STATUS = {
    "A": "added",
    "M": "modified",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "T": "type_changed",
    "U": "unmerged",
}


@dataclass(frozen=True)
class Change:
    """One changed file. ``old_path``: what a renamed file was called, else "".
    ``added`` / ``removed``: lines; None for binary files. ``submodule``: the entry is a
    submodule's commit."""

    path: str
    old_path: str
    status: str
    added: int | None
    removed: int | None
    binary: bool
    submodule: bool = False


def change_json(change: Change) -> dict[str, object]:
    """The JSON form. ``path`` is always text; where the name is not UTF-8 it is shown with
    hexadecimal escapes, and ``path_b64`` holds its bytes."""
    shown: dict[str, object] = {"path": printable(change.path)}
    shown |= _raw("path_b64", change.path)
    shown["old_path"] = printable(change.old_path) if change.old_path else None
    shown |= _raw("old_path_b64", change.old_path)
    return shown | {
        "status": change.status,
        "added": change.added,
        "removed": change.removed,
        "binary": change.binary,
        "submodule": change.submodule,
    }


def _raw(key: str, path: str) -> dict[str, object]:
    if printable(path) == path or not is_name(path):
        return {}
    return {key: base64.b64encode(os.fsencode(path)).decode("ascii")}


def files(repo: str, span: Range, paths: Sequence[str] = ()) -> list[Change]:
    """The changed files of a range, in git's order, with exact names.

    Raises:
        NotFound: one of ``paths`` is neither a changed file nor a folder of changed files.
    """
    args = ["diff-tree", *_COMMON, "-z", "--raw", "--numstat", "--abbrev=40"]
    out = git.run([*args, span.base, span.head], common_dir_of(repo), objects_only=True).out
    return select(parse_changes(out), paths)


def select(changes: list[Change], paths: Sequence[str]) -> list[Change]:
    """The changes that the paths name (a file by its new or old name, or a folder).

    Raises:
        NotFound: a path that names none of them.
    """
    if not paths:
        return changes
    chosen: set[int] = set()
    for path in paths:
        wanted = path.rstrip("/") or path
        hits = {
            number
            for number, change in enumerate(changes)
            if any(
                name == wanted or name.startswith(wanted + "/")
                for name in (change.path, change.old_path)
                if name
            )
        }
        if not hits:
            raise NotFound(
                f"{printable(path)!r} is not among the changed files",
                remedy="leave out the path to see all of them",
                path=printable(path),
            )
        chosen |= hits
    return [change for number, change in enumerate(changes) if number in chosen]


def pathspecs(chosen: Iterable[Change], paths: Sequence[str]) -> list[str]:
    """What git has to be asked for to show the chosen changes: the paths themselves, and
    both names of what was renamed, since git shows a rename only if it sees both."""
    found = dict.fromkeys(path.rstrip("/") or path for path in paths)
    for change in chosen:
        if change.old_path:
            found |= dict.fromkeys((change.path, change.old_path))
    return list(found)


def diff_stream(
    repo: str, span: Range, paths: Sequence[str] = (), *, mode: Mode = "patch"
) -> Iterator[bytes]:
    """The difference in chunks, as git writes it: the first bytes come at once, and
    memory does not grow with the size.

    ``mode``: ``patch``, ``stat``, ``name_only`` (one name a line, both names of a renamed
    file; a name with control signs or quotes is quoted as git does) or ``json`` (``{"files": [...]}``).

    Raises:
        NotFound: as :func:`files`.
        GitError: git failed; possibly after the first chunks.
    """
    if mode == "json":
        return iter([_json(files(repo, span, paths))])
    limits = pathspecs(files(repo, span, paths), paths) if paths else []
    args = ["diff-tree", *_COMMON, *_form(mode), span.base, span.head]
    return git.stream([*args, "--", *limits], common_dir_of(repo), literal=True, objects_only=True)


def _json(changes: Iterable[Change]) -> bytes:
    text = json.dumps({"files": [change_json(c) for c in changes]}, ensure_ascii=False)
    return text.encode("utf-8")


_COMMON = (
    "-r",
    "--find-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--ignore-submodules=none",
    "--submodule=short",
    "--diff-algorithm=myers",
    "--indent-heuristic",
)


def _form(mode: Mode) -> list[str]:
    forms = {
        "patch": ["--patch", "--full-index", "--src-prefix=a/", "--dst-prefix=b/"],
        "stat": [f"--stat={STAT_WIDTH}", "--summary"],
        "name_only": ["--name-only", "--no-renames"],
    }
    if mode not in forms:
        raise UsageError(f"'{mode}' is no way to show a difference")
    return forms[mode]


def parse_changes(out: bytes) -> list[Change]:
    """``--raw --numstat -z`` output of any diff command."""
    fields = out.split(b"\0")[:-1]
    raw: list[tuple[str, str, str, bool]] = []
    at = 0
    while at < len(fields) and fields[at].startswith(b":"):
        facts = fields[at].decode("ascii").split(" ")
        letter = facts[4][0]
        moved = letter in "RC"
        first = os.fsdecode(fields[at + 1])
        path = os.fsdecode(fields[at + 2]) if moved else first
        submodule = "160000" in {facts[0].removeprefix(":"), facts[1]}
        raw.append((path, first if moved else "", _STATUS.get(letter, letter), submodule))
        at += 3 if moved else 2
    counts: dict[str, tuple[int | None, int | None]] = {}
    while at < len(fields):
        added, removed, name = fields[at].split(b"\t", 2)
        at += 1
        if not name:
            name = fields[at + 1]
            at += 2
        binary = added == b"-"
        counts[os.fsdecode(name)] = (None, None) if binary else (int(added), int(removed))
    found = []
    for path, old, status, submodule in raw:
        plus, minus = counts.get(path, (0, 0))
        found.append(Change(path, old, status, plus, minus, plus is None, submodule))
    return found
