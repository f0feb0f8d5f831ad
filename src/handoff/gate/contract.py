"""What the gate is asked and what it says. The first version knows one rule: a write
inside the task's worktree passes; everything else asks the coordinator. The seam for a
policy and an approver is :class:`Verdict`: they will be further sources of one."""

from __future__ import annotations

from typing import Literal

import msgspec


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """A path that a request names. ``resolved``: every symbolic link followed (the part
    that does not exist yet appended); "" if it can't be resolved. ``problem``: why a
    write there can't be plain ("symlink loop", "FIFO", "directory", ...)."""

    given: str
    resolved: str
    inside: bool = False
    protected: bool = False
    problem: str = ""


class FileMark(msgspec.Struct, frozen=True):
    """A file that a command would use, as it was when it was asked for. ``digest``:
    SHA-256 hex of its bytes, or "" if it was not there; ``copy`` holds its bytes (base64)
    when it was text of at most 64 KiB, so that a change can be shown."""

    path: str
    digest: str
    size: int
    copy: str = ""


class Examined(msgspec.Struct, frozen=True):
    """A permission request, looked at.

    ``text``: the full text for the ticket (every byte of the request; for a write the
    unified diff). ``fingerprint``: SHA-256 hex over what is asked and over the content of
    what would be used: equal fingerprints may share a grant within a task.
    ``reusable``: False where content can't be pinned down.
    """

    text: str
    command: str | None
    targets: tuple[Target, ...]
    diff: str
    files: tuple[FileMark, ...]
    fingerprint: str
    reusable: bool
    verdict: Verdict


class Verdict(msgspec.Struct, frozen=True):
    """``allow`` by a rule, or ``ask``. ``source``: ``policy``, ``grant``, ``approver`` or
    ``coordinator``. ``why``: one line for the event."""

    decision: Literal["allow", "ask"]
    source: str
    why: str


class Excerpt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A shortened text that says so. ``text`` shows the start and the end, with
    ``[… N characters, M lines left out …]`` between; runs of blank lines and blanks are
    counted, not printed. ``short``: something was counted instead of printed.
    ``characters``, ``lines``: the size of the whole text."""

    text: str
    short: bool
    characters: int
    lines: int
