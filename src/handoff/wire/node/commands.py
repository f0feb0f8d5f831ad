"""Calls that run commands: at once, as jobs, in shell sessions; and what calls have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from handoff.errors import BadRequest
from handoff.wire.node import results
from handoff.wire.node.results import Result
from handoff.wire.node.shapes import Data, Text, text

__all__ = [
    "COMMAND_LIMIT",
    "HEAD_BYTES",
    "INLINE_LIMIT",
    "PATH_LIMIT",
    "TAIL_BYTES",
    "TIMEOUT_LIMIT_MS",
    "Call",
    "Exec",
    "GetFacts",
    "GetPolicy",
    "JobForget",
    "JobKill",
    "JobList",
    "JobTail",
    "JobWait",
    "ReadOutput",
    "ShellClose",
    "ShellList",
    "ShellOpen",
    "check_key",
]

#: characters of a path: Linux PATH_MAX, macOS has less
PATH_LIMIT = 4096
#: characters of a command line or of one argument in a call (Linux allows 128 KiB each)
COMMAND_LIMIT = 128 * 1024
#: what ``timeout_ms`` of a command may be at most: thirty days
TIMEOUT_LIMIT_MS = 30 * 24 * 3600 * 1000
#: bytes of content within a call or its answer; more goes through a stream
INLINE_LIMIT = 256 * 1024
#: bytes kept of the start and of the end of each output stream, by default
HEAD_BYTES = 64 * 1024
TAIL_BYTES = 64 * 1024
STREAM_NAMES = frozenset({"stdout", "stderr"})

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{7,63}")


class Call:
    """Base of all calls."""

    op: ClassVar[str] = ""
    reads: ClassVar[bool] = True
    takes: ClassVar[str] = ""
    gives: ClassVar[tuple[str, ...]] = ()
    result: ClassVar[type[Result]]

    def _check(self) -> None:
        """Raise BadRequest if the values contradict each other."""

    def comes(self) -> tuple[str, ...]:
        """The streams that the node will send for this very call."""
        return self.gives if getattr(self, "stream", True) else ()

    def fed(self) -> tuple[str, ...]:
        """The streams that the caller will send for this very call."""
        return (self.takes,) if self.takes and getattr(self, "stream", True) else ()


def _bad(cause: str, name: str) -> BadRequest:
    return BadRequest(cause, field=name)


def _one_of(value: str, allowed: frozenset[str], name: str) -> None:
    if value not in allowed:
        raise _bad(f"'{name}' must be one of {', '.join(sorted(allowed))}", name)


def _count(value: int, name: str, most: int = 2**62) -> None:
    if not 0 <= value <= most:
        raise _bad(f"'{name}' must be between 0 and {most}", name)


def _variables(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        wrong = not name or "=" in name or "\0" in name or "\0" in value
        if not wrong and not name.isascii():
            try:  # names are keys of JSON objects, which hold nothing but characters
                name.encode("utf-8")
            except UnicodeEncodeError:
                wrong = True
        if wrong:
            raise _bad(f"{name[:64]!a} can't be an environment variable", "env")


def check_key(key: str, name: str = "call_key") -> str:
    """The key of a call, or the name of a transfer: 8 to 64 of ``A-Z a-z 0-9 . _ : -``.

    Raises:
        BadRequest: it is not one.
    """
    if not _KEY.fullmatch(key):
        raise BadRequest(f"'{name}' must be 8 to 64 letters, digits or . _ : -", field=name)
    return key


@dataclass(frozen=True, slots=True)
class Exec(Call):
    """Run a command.

    Exactly one of ``command`` (a line for the shell) and ``argv`` (a program with its
    arguments, no shell). ``cwd`` and ``env`` are honoured on the node, ``~`` is expanded
    there; a ``cwd`` that is not there fails the call. ``stdin``: ``none`` (closed), ``given``
    (``stdin_data``) or ``stream``. ``stream``: send output as it comes. ``shell``: the named
    shell session to run in. ``job``: run in the background, answer with :class:`JobInfo`.
    ``timeout_ms`` 0 means none, which only a job may have.
    """

    command: Text = text(COMMAND_LIMIT, "")
    argv: tuple[Text, ...] = text(4096, ())
    cwd: Text = text(PATH_LIMIT, "")
    env: Mapping[str, Text] = field(default_factory=dict)
    timeout_ms: int = 60_000
    stdin: str = text(16, "none")
    stdin_data: Data = text(INLINE_LIMIT, b"")
    stream: bool = False
    head_bytes: int = HEAD_BYTES
    tail_bytes: int = TAIL_BYTES
    shell: str = text(64, "")
    job: bool = False
    grace_ms: int = 2_000

    op: ClassVar[str] = "exec"
    reads: ClassVar[bool] = False
    takes: ClassVar[str] = "stdin"
    gives: ClassVar[tuple[str, ...]] = ("stdout", "stderr")
    result: ClassVar[type[Result]] = results.ExecResult

    def fed(self) -> tuple[str, ...]:
        """``stdin``, if it is to be a stream."""
        return ("stdin",) if self.stdin == "stream" else ()

    def _check(self) -> None:
        if bool(self.command.strip()) == bool(self.argv):
            raise _bad("give either a command line or an argument list", "command")
        if any("\0" in part for part in (self.command, self.cwd, *self.argv)):
            raise _bad("a command can't hold a NUL character", "command")
        if self.argv and not self.argv[0]:
            raise _bad("the program's name is empty", "argv")
        _variables(self.env)
        _one_of(self.stdin, frozenset({"none", "given", "stream"}), "stdin")
        if self.stdin_data and self.stdin != "given":
            raise _bad("'stdin_data' needs 'stdin' to be 'given'", "stdin_data")
        _count(self.timeout_ms, "timeout_ms", TIMEOUT_LIMIT_MS)
        if not self.timeout_ms and not self.job:
            raise _bad("only a job may run without a time limit", "timeout_ms")
        _count(self.grace_ms, "grace_ms", 60_000)
        _count(self.head_bytes, "head_bytes", INLINE_LIMIT // 2)
        _count(self.tail_bytes, "tail_bytes", INLINE_LIMIT // 2)
        if self.job and (self.shell or self.stdin == "stream" or self.stream):
            raise _bad("a job has no shell session and no streams", "job")


@dataclass(frozen=True, slots=True)
class ReadOutput(Call):
    """A piece of kept output, by the ``spill`` id of an :class:`Output`. ``offset`` below
    0 counts from the end."""

    spill: str = text(64)
    offset: int = 0
    length: int = INLINE_LIMIT

    op: ClassVar[str] = "read_output"
    result: ClassVar[type[Result]] = results.Range

    def _check(self) -> None:
        _count(self.length, "length", INLINE_LIMIT)


@dataclass(frozen=True, slots=True)
class JobList(Call):
    """All jobs that the node remembers."""

    op: ClassVar[str] = "job_list"
    result: ClassVar[type[Result]] = results.Jobs


@dataclass(frozen=True, slots=True)
class JobWait(Call):
    """Answered when the job is done, or after ``timeout_ms`` with its state."""

    job: str = text(64)
    timeout_ms: int = 0

    op: ClassVar[str] = "job_wait"
    result: ClassVar[type[Result]] = results.JobInfo

    def _check(self) -> None:
        _count(self.timeout_ms, "timeout_ms", TIMEOUT_LIMIT_MS)


@dataclass(frozen=True, slots=True)
class JobTail(Call):
    """A piece of a job's output; ``offset`` below 0 counts from the end."""

    job: str = text(64)
    stream: str = text(16, "stdout")
    offset: int = -INLINE_LIMIT
    length: int = INLINE_LIMIT

    op: ClassVar[str] = "job_tail"
    result: ClassVar[type[Result]] = results.Range

    def _check(self) -> None:
        _one_of(self.stream, STREAM_NAMES, "stream")
        _count(self.length, "length", INLINE_LIMIT)


@dataclass(frozen=True, slots=True)
class JobKill(Call):
    """End a job's whole tree: TERM, grace, KILL."""

    job: str = text(64)
    grace_ms: int = 2_000

    op: ClassVar[str] = "job_kill"
    reads: ClassVar[bool] = False
    result: ClassVar[type[Result]] = results.JobInfo

    def _check(self) -> None:
        _count(self.grace_ms, "grace_ms", 60_000)


@dataclass(frozen=True, slots=True)
class JobForget(Call):
    """Drop a finished job and its output."""

    job: str = text(64)

    op: ClassVar[str] = "job_forget"
    reads: ClassVar[bool] = False
    result: ClassVar[type[Result]] = results.Done


@dataclass(frozen=True, slots=True)
class ShellOpen(Call):
    """Open a named shell session; an open one of that name is answered as it is."""

    name: str = text(64)
    cwd: Text = text(PATH_LIMIT, "")
    env: Mapping[str, Text] = field(default_factory=dict)

    op: ClassVar[str] = "shell_open"
    reads: ClassVar[bool] = False
    result: ClassVar[type[Result]] = results.ShellInfo

    def _check(self) -> None:
        if not self.name.strip():
            raise _bad("'name' is empty", "name")
        if "\0" in self.cwd:
            raise _bad("a folder can't hold a NUL character", "cwd")
        _variables(self.env)


@dataclass(frozen=True, slots=True)
class ShellClose(Call):
    """End a shell session and everything in it."""

    name: str = text(64)

    op: ClassVar[str] = "shell_close"
    reads: ClassVar[bool] = False
    result: ClassVar[type[Result]] = results.Done


@dataclass(frozen=True, slots=True)
class ShellList(Call):
    """The open shell sessions."""

    op: ClassVar[str] = "shell_list"
    result: ClassVar[type[Result]] = results.Shells


@dataclass(frozen=True, slots=True)
class GetFacts(Call):
    """What kind of machine it is."""

    op: ClassVar[str] = "facts"
    result: ClassVar[type[Result]] = results.Facts


@dataclass(frozen=True, slots=True)
class GetPolicy(Call):
    """What the node's policy allows."""

    op: ClassVar[str] = "policy"
    result: ClassVar[type[Result]] = results.PolicyView
