"""What has changed between the question and the answer."""

from __future__ import annotations

import base64
import hashlib
import os

import msgspec

from handoff.gate.contract import FileMark
from handoff.gate.diffs import unified
from handoff.gate.marks import MAX_COPY, CantPin, as_text, mark, may_be_kept, read_regular

#: characters of one file's difference in an explanation
MAX_SHOWN = 4096


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that is not what it was. ``path``: below the worktree where it lies there,
    else absolute. ``what``: ``changed``, ``appeared``, ``gone`` or ``unreadable``.
    ``diff``: the unified difference, or "" where it can't or should not be shown; ``why``
    then says why."""

    path: str
    what: str
    diff: str = ""
    why: str = ""


def changed(files: tuple[FileMark, ...], work_dir: str) -> list[Change]:
    """Compare files with their marks, now. An empty list: all is as it was.

    A file that can't be read counts as changed.
    """
    found = []
    for then in files:
        change = _compare(then, _label(then.path, work_dir))
        if change is not None:
            found.append(change)
    return found


def _label(path: str, work_dir: str) -> str:
    plain, top = os.path.normpath(path), os.path.normpath(work_dir)
    return plain[len(top) + 1 :] if plain.startswith(top + "/") else path


def _compare(then: FileMark, label: str) -> Change | None:
    try:
        data = read_regular(then.path)
    except CantPin as error:
        return Change(path=label, what="unreadable", why=str(error))
    if data is None:
        return Change(path=label, what="gone") if then.digest else None
    if then.digest and hashlib.sha256(data).hexdigest() == then.digest:
        return None
    what = "changed" if then.digest else "appeared"
    if not may_be_kept(then.path, data):
        why = "not shown: it is large, no text, or may hold secrets"
        return Change(path=label, what=what, why=f"{why} ({then.size} bytes then, {len(data)} now)")
    if then.size and not then.copy:
        why = f"not shown: no copy of what it was ({then.size} bytes then, {len(data)} now)"
        return Change(path=label, what=what, why=why)
    old = as_text(base64.b64decode(then.copy)) or ""
    new = as_text(data) or ""
    diff = unified(old, new, label, limit=MAX_COPY, new_file=not then.digest)
    return Change(path=label, what=what, diff=diff)


def marks_now(files: tuple[FileMark, ...]) -> tuple[FileMark, ...]:
    """The same files, marked as they are now, for a ticket that asks again.

    What can't be pinned (a folder took its place) keeps its old mark: it stays changed,
    and can't be approved, until it is a file again.
    """
    found = []
    for then in files:
        try:
            found.append(mark(then.path))
        except CantPin:
            found.append(then)
    return tuple(found)


def explain(changes: list[Change]) -> str:
    """The changes for a person: one line each, and the differences as far as they are
    short. "" for no changes."""
    parts = []
    for change in changes:
        words = {
            "changed": "is not what it was when this was asked for",
            "appeared": "was not there when this was asked for",
            "gone": "was there when this was asked for, and is gone",
            "unreadable": "can't be compared with what it was",
        }
        parts.append(f"{change.path} {words.get(change.what, change.what)}")
        if change.diff:
            shown = change.diff[:MAX_SHOWN]
            rest = len(change.diff) - len(shown)
            parts.append(shown.rstrip("\n"))
            if rest:
                parts.append(f"[… {rest} more characters of the difference left out …]")
        elif change.why:
            parts.append(f"  {change.why}")
    return "\n".join(parts)
