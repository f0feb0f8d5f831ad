"""Uncommitted work, shown like committed work and within limits. Standard library only.

Tracked files are compared with HEAD by git; untracked ones are shown as additions, made
here, because git would need one process for each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from handoff.errors import GitError, HandoffError, NotFound
from handoff.workspace import git
from handoff.workspace.contract import Dirt
from handoff.workspace.reading import read_beneath
from handoff.workspace.review import Change, Mode, change_json, parse_changes, select
from handoff.workspace.state import (
    DEPTH_LIMIT,
    gitlinks,
    populated,
    printable,
    tree_state,
    untracked_files,
)

#: untracked files that are shown; all are counted
FILE_LIMIT = 500
#: bytes of one untracked file that are shown
SIZE_LIMIT = 1 << 20
#: bytes of all untracked files that are shown
TOTAL_LIMIT = 16 << 20

_TRACKED = (
    "--find-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-relative",
    "--ignore-submodules=dirty",
    "--submodule=short",
    "--diff-algorithm=myers",
    "-O/dev/null",
)


@dataclass(frozen=True)
class Pending:
    """Uncommitted work. ``changes``: tracked files, then untracked ones as additions, then
    the same of each submodule; ``left_out``: how many untracked files are not in it;
    ``dirt``: the short view; ``submodules``: paths of those that hold some of it."""

    changes: tuple[Change, ...]
    left_out: int
    dirt: Dirt
    submodules: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "files": [change_json(change) for change in self.changes],
            "left_out": self.left_out,
            "total": self.dirt.total,
            "complete": self.dirt.complete,
            "entries": [list(entry) for entry in self.dirt.entries],
            "submodules": list(self.dirt.submodules),
        }


def uncommitted(work_dir: str, paths: Sequence[str] = ()) -> Pending:
    """What is not committed in a worktree.

    Raises:
        NotFound: a path names no uncommitted file.
    """
    dirt = tree_state(work_dir).dirt
    changes, left_out = _changes(work_dir, "")
    inside: list[str] = []
    # The second look at every submodule is spared where the first one found nothing.
    pending = [(path, 1) for path in _submodules(work_dir, "")] if dirt.submodules else []
    while pending:
        path, depth = pending.pop(0)
        try:
            more, hidden = _changes(os.path.join(work_dir, path), f"{path}/")
        except GitError:
            continue  # the short view says what is wrong with it
        if more:
            inside.append(path)
        changes += more
        left_out += hidden
        if depth < DEPTH_LIMIT:
            pending += [(sub, depth + 1) for sub in _submodules(work_dir, f"{path}/")]
    chosen = select(changes, paths)
    return Pending(tuple(chosen), 0 if paths else left_out, dirt, tuple(inside))


def _changes(top: str, prefix: str) -> tuple[list[Change], int]:
    """The changes of one repository, named from where ``prefix`` begins, and how many
    untracked files are not among them."""
    args = ["diff", *_TRACKED, "-z", "--raw", "--numstat", "--abbrev=40", "HEAD", "--"]
    tracked = parse_changes(git.run(args, top, content=True).out)
    loose, left_out = untracked_files(top, FILE_LIMIT)
    found = [*tracked, *(_addition(top, path) for path in loose)]
    named = [
        replace(
            change,
            path=prefix + change.path,
            old_path=prefix + change.old_path if change.old_path else "",
        )
        for change in found
    ]
    return named, left_out


def _submodules(work_dir: str, prefix: str) -> list[str]:
    """Submodules of one repository that have a checkout, named like its changes."""
    top = os.path.join(work_dir, prefix)
    return [prefix + path for path, _ in gitlinks(top) if populated(top, path)]


def _home(path: str, submodules: Sequence[str]) -> str:
    """The submodule that holds a file, "" for the worktree itself."""
    return max((s for s in submodules if path.startswith(s + "/")), key=len, default="")


def uncommitted_stream(
    work_dir: str, paths: Sequence[str] = (), *, mode: Mode = "patch"
) -> Iterator[bytes]:
    """Uncommitted work in chunks, in the forms of :func:`handoff.workspace.review.diff_stream`.

    Raises:
        NotFound: a path names no uncommitted file.
    """
    found = uncommitted(work_dir, paths)
    if mode == "json":
        return iter([json.dumps(found.to_json(), ensure_ascii=False).encode("utf-8")])
    return _stream(work_dir, found, bool(paths), mode)


def _stream(work_dir: str, found: Pending, limited: bool, mode: Mode) -> Iterator[bytes]:
    loose = [change for change in found.changes if change.status == "untracked"]
    tracked = [change for change in found.changes if change.status != "untracked"]
    if mode == "patch":
        for home in ("", *found.submodules):
            own = [c for c in tracked if _home(c.path, found.submodules) == home]
            if own:
                yield from _tracked_patch(work_dir, own, home, limited)
    else:
        for change in tracked:
            yield _line(change, mode)
    room = TOTAL_LIMIT
    for change in loose:
        if mode != "patch":
            yield _line(change, mode)
            continue
        patch = _new_file_patch(work_dir, change.path, min(SIZE_LIMIT, room))
        room = max(0, room - len(patch))
        yield patch
    if found.left_out:
        yield f"{found.left_out} more untracked files are not shown\n".encode()


def _tracked_patch(
    work_dir: str, changes: list[Change], submodule: str, limited: bool
) -> Iterator[bytes]:
    """What git shows of the tracked files of the worktree or of one of its submodules."""
    prefix = f"{submodule}/" if submodule else ""
    names: list[str] = []
    if limited:
        for change in changes:
            names += [name[len(prefix) :] for name in (change.path, change.old_path) if name]
    form = ["--patch", "--full-index", f"--src-prefix=a/{prefix}", f"--dst-prefix=b/{prefix}"]
    args = ["diff", *_TRACKED, *form, "HEAD", "--", *names]
    top = os.path.join(work_dir, submodule)
    yield from git.stream(args, top, content=True, literal=True)


def _line(change: Change, mode: Mode) -> bytes:
    name = quoted(os.fsencode(change.path))
    if mode == "name_only":
        old = quoted(os.fsencode(change.old_path)) + b"\n" if change.old_path else b""
        return old + name + b"\n"
    if change.binary:
        figures = "binary"
    elif change.added is None:
        figures = "?"
    else:
        figures = f"+{change.added} -{change.removed}"
    return b" " + name + f" | {change.status} {figures}\n".encode()


def _addition(work_dir: str, path: str) -> Change:
    """An untracked file as a change; one that can't be read is shown without figures."""
    if path.endswith("/"):
        return Change(path, "", "untracked", None, None, binary=False, submodule=True)
    try:
        content, mode = _content(work_dir, path, SIZE_LIMIT + 1)
    except (HandoffError, OSError):
        return Change(path, "", "untracked", None, None, binary=False)
    if _is_binary(content):
        return Change(path, "", "untracked", None, None, binary=True)
    if len(content) > SIZE_LIMIT:
        return Change(path, "", "untracked", None, 0, binary=False)
    del mode
    lines = content.count(b"\n") + (bool(content) and not content.endswith(b"\n"))
    return Change(path, "", "untracked", lines, 0, binary=False)


def _content(work_dir: str, path: str, limit: int) -> tuple[bytes, str]:
    """The bytes that git would add, and their mode."""
    full = os.path.join(work_dir, path)
    if os.path.islink(full):
        return os.fsencode(os.readlink(full)), "120000"
    found = read_beneath(work_dir, path, limit=limit)
    return found.data, "100755" if found.executable else "100644"


def _is_binary(content: bytes) -> bool:
    # git's own rule: a NUL among the first 8000 bytes
    return b"\0" in content[:8000]


def _new_file_patch(work_dir: str, path: str, limit: int) -> bytes:
    """A patch that adds the file, as git would write it."""
    raw = os.fsencode(path)
    old, new = quoted(b"a/" + raw), quoted(b"b/" + raw)
    start = b"diff --git " + old + b" " + new + b"\n"
    if path.endswith("/"):
        return start + b"(a repository of its own, not shown)\n"
    try:
        content, mode = _content(work_dir, path, limit + 1)
    except NotFound:
        return start + b"(gone meanwhile)\n"
    except (HandoffError, OSError) as error:
        return start + f"(not shown: {error})\n".encode("utf-8", "backslashreplace")
    start += f"new file mode {mode}\n".encode()
    if not content:
        return start
    if _is_binary(content):
        return start + b"Binary files /dev/null and " + new + b" differ\n"
    if len(content) > limit:
        size = os.lstat(os.path.join(work_dir, path)).st_size
        return start + f"(not shown: {size} bytes)\n".encode()
    lines = content.split(b"\n")
    whole = lines[-1] == b""
    if whole:
        lines.pop()
    span = b"1" if len(lines) == 1 else b"1,%d" % len(lines)
    # git marks the end of a name with blanks in it by a tab
    end = b"\t\n" if b" " in raw and not new.startswith(b'"') else b"\n"
    head = b"--- /dev/null\n+++ " + new + end + b"@@ -0,0 +" + span + b" @@\n"
    body = b"".join(b"+" + line + b"\n" for line in lines)
    tail = b"" if whole else b"\\ No newline at end of file\n"
    return start + head + body + tail


_ESCAPES = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r", 34: b'"', 92: b"\\"}


def quoted(name: bytes) -> bytes:
    """A name as git writes it with ``core.quotePath=false``: quoted only if it holds
    control signs, quotes or backslashes."""
    if not any(byte < 32 or byte in {34, 92, 127} for byte in name):
        return name
    out = bytearray(b'"')
    for byte in name:
        if byte in _ESCAPES:
            out += b"\\" + _ESCAPES[byte]
        elif byte < 32 or byte == 127:
            out += b"\\%03o" % byte
        else:
            out.append(byte)
    return bytes(out + b'"')


def describe(found: Pending) -> str:
    """One line for a person: how many files, and the first names."""
    names = [printable(change.path) for change in found.changes[:5]]
    more = len(found.changes) + found.left_out - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
