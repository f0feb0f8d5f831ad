"""What a node answers, as data; :mod:`handoff.wire.node.calls` has the calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from handoff import errors
from handoff.errors import HandoffError
from handoff.wire.node.shapes import B64, Data, Text, decode, shape, text

__all__ = [
    "ENDED_BY",
    "EXEC_STATUS",
    "FILE_KINDS",
    "CallFailed",
    "Done",
    "ExecResult",
    "Facts",
    "FileInfo",
    "Hashes",
    "JobInfo",
    "Jobs",
    "Listing",
    "Match",
    "Matches",
    "Output",
    "PolicyView",
    "Range",
    "ReadResult",
    "Result",
    "ShellInfo",
    "Shells",
    "Skipped",
    "TransferInfo",
    "TreeResult",
    "WriteResult",
]

#: how a command ended
EXEC_STATUS = frozenset({"ok", "error", "timeout", "cancelled", "unknown_outcome", "refused"})
#: what ended it: itself, a signal that was not ours, or one of ours and why
ENDED_BY = frozenset({"exit", "signal", "timeout", "cancel", "shutdown", "revoked", "unknown"})
#: kinds of a directory entry
FILE_KINDS = frozenset({"file", "dir", "link", "fifo", "socket", "char", "block", "unknown"})


class Result:
    """Base of all answers."""


@shape
@dataclass(frozen=True, slots=True)
class Output:
    """One output stream of a command.

    ``bytes_total`` is exact. If it is more than ``head`` and ``tail`` together hold, the
    bytes between them are missing here: ``cut``. Both sides of a cut fall between UTF-8
    characters. ``spill``, if not empty, is the id under which :class:`ReadOutput` has every
    byte. Nothing cut: ``head`` is all, ``tail`` is empty. ``streamed``: the caller was sent
    every byte as it came.
    """

    bytes_total: int = 0
    head: Data = b""
    tail: Data = b""
    spill: str = text(64, "")
    streamed: bool = False

    @property
    def cut(self) -> int:
        """Bytes that lie between head and tail and are not here."""
        return self.bytes_total - len(self.head) - len(self.tail)


@dataclass(frozen=True, slots=True)
class ExecResult(Result):
    """How a command ended.

    ``status``: ``ok`` (exit code 0), ``error`` (another, or a signal), ``timeout``,
    ``cancelled``, ``unknown_outcome`` (nobody can know; it may have run), ``refused`` (it
    was not started). ``exit_code`` is None unless the command itself exited; ``signal`` its
    signal's number. ``still_holding``: something outside the command's tree still has its
    output open. ``killed``: processes ended by the sweep. ``cwd``: where it ended, of a
    shell session only.
    """

    status: str = text(32)
    exit_code: int | None = None
    signal: int | None = None
    stdout: Output = field(default_factory=Output)
    stderr: Output = field(default_factory=Output)
    duration_ms: int = 0
    ended_by: str = text(32, "exit")
    still_holding: bool = False
    killed: int = 0
    cwd: Text = ""
    note: str = ""

    def untold(self) -> ExecResult:
        """The result for somebody who was told nothing of its streams."""
        out, err = (replace(one, streamed=False) for one in (self.stdout, self.stderr))
        return replace(self, stdout=out, stderr=err)


@shape
@dataclass(frozen=True, slots=True)
class JobInfo(Result):
    """A background job. ``state``: ``running``, ``done``, ``unknown_outcome``. ``result``:
    once it is done."""

    job: str
    state: str
    command: Text = ""
    started_ms: int = 0
    pid: int = 0
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> ExecResult | None:
        """The result as a value, or None while it runs."""
        return decode(ExecResult, self.result) if self.result else None


@dataclass(frozen=True, slots=True)
class Jobs(Result):
    """The node's jobs, newest first."""

    jobs: tuple[JobInfo, ...] = ()


@shape
@dataclass(frozen=True, slots=True)
class ShellInfo(Result):
    """A named shell session. ``id`` is new with each process, so a lost one shows.
    ``opened``: by this very call."""

    name: str
    id: str
    pid: int = 0
    cwd: Text = ""
    started_ms: int = 0
    opened: bool = False


@dataclass(frozen=True, slots=True)
class Shells(Result):
    """The open shell sessions."""

    shells: tuple[ShellInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class Range(Result):
    """A piece of kept output: ``data`` from ``offset``, of ``total`` bytes so far.
    ``running``: there will be more."""

    data: Data = b""
    offset: int = 0
    total: int = 0
    running: bool = False


@shape
@dataclass(frozen=True, slots=True)
class FileInfo(Result):
    """What ``lstat`` says. ``path`` is a name relative to what was listed, or the whole
    path. ``etag`` names this content and these times; ``sha256`` only if asked for."""

    path: Text
    kind: str = text(16, "file")
    size: int = 0
    permissions: int = 0
    mtime_ns: int = 0
    uid: int = 0
    gid: int = 0
    owner: str = ""
    group: str = ""
    target: Text = ""
    etag: str = text(128, "")
    sha256: str = text(64, "")
    error: str = ""


@dataclass(frozen=True, slots=True)
class Listing(Result):
    """Entries in the order of their names as bytes. ``after``: pass it to go on; empty at
    the end."""

    entries: tuple[FileInfo, ...] = ()
    after: Text = ""


@shape
@dataclass(frozen=True, slots=True)
class Match:
    """One line that fits. ``line`` counts from 1; ``text`` without its line end."""

    path: Text
    line: int
    text: Data


@dataclass(frozen=True, slots=True)
class Matches(Result):
    """What was found; ``more``: the limit was reached. ``skipped``: files not looked into."""

    matches: tuple[Match, ...] = ()
    more: bool = False
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class ReadResult(Result):
    """A piece of a file, or with a stream its description.

    ``size``: of the whole file. ``eof``: nothing follows the piece. ``lines``: line ends in
    the piece. ``newline``: ``lf``, ``crlf``, ``cr``, ``mixed`` or empty. Of a piece with a zero
    byte, which is no text unless it begins with a mark, they are 0 and empty. ``bom``:
    ``utf-8``, ``utf-16-le``, … or empty. ``utf8``: whether the piece is UTF-8. ``sha256``: of
    what was sent.
    """

    data: Data = b""
    offset: int = 0
    size: int = 0
    eof: bool = True
    etag: str = text(128, "")
    permissions: int = 0
    mtime_ns: int = 0
    lines: int = 0
    newline: str = text(8, "")
    bom: str = text(16, "")
    utf8: bool = True
    sha256: str = text(64, "")


@dataclass(frozen=True, slots=True)
class WriteResult(Result):
    """What a write left. ``created``: there was no such file. ``replaced``: texts replaced
    by an edit."""

    bytes_written: int = 0
    size: int = 0
    etag: str = text(128, "")
    sha256: str = text(64, "")
    created: bool = False
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class Done(Result):
    """It is done. ``changed``: false if it was so before. ``count``: things removed."""

    changed: bool = True
    count: int = 0


@dataclass(frozen=True, slots=True)
class Hashes(Result):
    """``blocks``: the first 16 bytes of each block's SHA-256, joined; empty without
    ``block_bytes``."""

    sha256: str = text(64, "")
    size: int = 0
    block_bytes: int = 0
    blocks: B64 = b""
    etag: str = text(128, "")


@dataclass(frozen=True, slots=True)
class TransferInfo(Result):
    """How much of an upload the node holds: ``received`` bytes and their SHA-256."""

    transfer: str
    received: int = 0
    sha256: str = text(64, "")


@shape
@dataclass(frozen=True, slots=True)
class Skipped:
    """What was left out of a tree, and why (an error code and its text)."""

    path: Text
    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TreeResult(Result):
    """Counts of a tree call; ``skipped`` is not empty unless everything went over."""

    files: int = 0
    dirs: int = 0
    links: int = 0
    bytes: int = 0
    deleted: int = 0
    unchanged: int = 0
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts(Result):
    """What kind of machine it is. ``limits`` and ``features`` of the node."""

    hostname: str = ""
    os: str = ""
    release: str = ""
    arch: str = ""
    user: str = ""
    uid: int = -1
    home: Text = ""
    shell: Text = ""
    cpus: int = 0
    memory_bytes: int = 0
    node_version: str = ""
    python: str = ""
    time_ms: int = 0
    started_ms: int = 0
    policy_sha256: str = text(64, "")
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyView(Result):
    """The node's policy as it may be shown, and its digest."""

    sha256: str = text(64, "")
    read_only: bool = False
    enabled: bool = True
    rules: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallFailed(Result):
    """The call was not carried out, or its outcome is unknown.

    ``code``, ``error``, ``remedy`` and ``details`` are those of a
    :class:`~handoff.errors.HandoffError`. ``retry_safe``: nothing has happened, the same
    call may be sent again.
    """

    code: str = text(64)
    error: str = ""
    remedy: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    retry_safe: bool = False

    @classmethod
    def of(cls, error: HandoffError, *, retry_safe: bool = False) -> CallFailed:
        """The failure that stands for the error."""
        details = json.loads(json.dumps(error.details, default=str))
        return cls(error.code, error.cause, error.remedy, details, retry_safe)

    def as_error(self) -> HandoffError:
        """The error of its code, to raise."""
        return errors.from_json(
            {
                "error": self.error or self.code,
                "code": self.code,
                "remedy": self.remedy,
                "details": dict(self.details),
            }
        )
