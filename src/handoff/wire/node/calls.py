"""What a brain may ask of a node, and what comes back, whatever frames carry it.

Each call is a frozen dataclass with an ``op`` (its name on the wire), ``reads`` (whether it
changes nothing, so that it needs no journal and may be asked again), ``takes`` (it may be
fed by a stream of bytes) and ``gives`` (streams of bytes that it may send), and ``result``:
the class of its answer. :data:`CALLS` has all of them by op.

Paths, arguments and variables are ``str`` as ``os.fsdecode`` makes them; sizes and offsets
are bytes, times milliseconds unless the name says otherwise, ``mtime_ns`` nanoseconds since
1970 UTC, ``permissions`` the lower twelve bits of ``st_mode``. Every call and answer goes
through :func:`to_json` and :func:`call_from_json` or :func:`result_from_json`. A call that
fails for any reason is answered with :class:`CallFailed`; a command that ran and failed is
no failure of the call, it is an :class:`ExecResult` whose ``exit_code`` is not 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from handoff.errors import BadRequest
from handoff.wire.node.commands import (
    COMMAND_LIMIT,
    HEAD_BYTES,
    INLINE_LIMIT,
    PATH_LIMIT,
    TAIL_BYTES,
    TIMEOUT_LIMIT_MS,
    Call,
    Exec,
    GetFacts,
    GetPolicy,
    JobForget,
    JobKill,
    JobList,
    JobTail,
    JobWait,
    ReadOutput,
    ShellClose,
    ShellList,
    ShellOpen,
    check_key,
)
from handoff.wire.node.files import (
    WRITE_MODES,
    Delete,
    Edit,
    Glob,
    Grep,
    Hash,
    List,
    Mkdir,
    Move,
    Read,
    SetMeta,
    Stat,
    TransferStat,
    TreeGet,
    TreeManifest,
    TreePut,
    Write,
)
from handoff.wire.node.results import (
    ENDED_BY,
    EXEC_STATUS,
    FILE_KINDS,
    CallFailed,
    Done,
    ExecResult,
    Facts,
    FileInfo,
    Hashes,
    JobInfo,
    Jobs,
    Listing,
    Match,
    Matches,
    Output,
    PolicyView,
    Range,
    ReadResult,
    Result,
    ShellInfo,
    Shells,
    Skipped,
    TransferInfo,
    TreeResult,
    WriteResult,
)
from handoff.wire.node.shapes import decode, encode

__all__ = [
    "CALLS",
    "COMMAND_LIMIT",
    "ENDED_BY",
    "EXEC_STATUS",
    "FILE_KINDS",
    "HEAD_BYTES",
    "INLINE_LIMIT",
    "PATH_LIMIT",
    "TAIL_BYTES",
    "TIMEOUT_LIMIT_MS",
    "WRITE_MODES",
    "Call",
    "CallFailed",
    "Delete",
    "Done",
    "Edit",
    "Exec",
    "ExecResult",
    "Facts",
    "FileInfo",
    "GetFacts",
    "GetPolicy",
    "Glob",
    "Grep",
    "Hash",
    "Hashes",
    "JobForget",
    "JobInfo",
    "JobKill",
    "JobList",
    "JobTail",
    "JobWait",
    "Jobs",
    "List",
    "Listing",
    "Match",
    "Matches",
    "Mkdir",
    "Move",
    "Output",
    "PolicyView",
    "Range",
    "Read",
    "ReadOutput",
    "ReadResult",
    "Result",
    "SetMeta",
    "ShellClose",
    "ShellInfo",
    "ShellList",
    "ShellOpen",
    "Shells",
    "Skipped",
    "Stat",
    "TransferInfo",
    "TransferStat",
    "TreeGet",
    "TreeManifest",
    "TreePut",
    "TreeResult",
    "Write",
    "WriteResult",
    "call_from_json",
    "check_key",
    "checked",
    "digest",
    "result_from_json",
    "to_json",
]


#: every call by its op
CALLS: dict[str, type[Call]] = {
    cls.op: cls
    for cls in (
        *(Exec, ReadOutput, JobList, JobWait, JobTail, JobKill, JobForget),
        *(ShellOpen, ShellClose, ShellList),
        *(Stat, List, Glob, Grep, Read, Write, TransferStat, Edit, Mkdir, Move, Delete),
        *(SetMeta, Hash, TreeManifest, TreeGet, TreePut, GetFacts, GetPolicy),
    )
}


def to_json(value: Call | Result) -> dict[str, Any]:
    """The fields of a call or an answer; what holds its default is left out."""
    return encode(value)


def call_from_json(op: str, args: Mapping[str, Any]) -> Call:
    """The call, checked.

    Raises:
        BadRequest: there is no such op, or a field is missing, wrong or contradicts another.
    """
    cls = CALLS.get(op)
    if cls is None:
        raise BadRequest(f"there is no call '{op[:64]}'", field="op")
    return checked(decode(cls, args))


def checked(call: Call) -> Call:
    """The call, if its values agree with each other.

    Raises:
        BadRequest: they do not, or a text is nothing that a system has (half a character);
            details hold ``field``.
    """
    for name in call.__dataclass_fields__:  # type: ignore[attr-defined]
        value = getattr(call, name)
        kind = type(value)
        if kind is str:
            if not value.isascii():
                _taken(value, name)
        elif kind is tuple or kind is dict:
            for one in value.values() if kind is dict else value:
                if type(one) is str and not one.isascii():
                    _taken(one, name)
    call._check()
    return call


def _taken(value: str, name: str) -> None:
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadRequest(f"'{name}' must be Unicode text, or bytes", field=name) from None


def result_from_json(call: type[Call], ok: bool, value: Mapping[str, Any]) -> Result:
    """The answer to a call of that class: its result, a :class:`JobInfo` for a job, or
    :class:`CallFailed` if not ``ok``.

    Raises:
        BadRequest: the answer has not the shape of one.
    """
    if not ok:
        return decode(CallFailed, value)
    kind = JobInfo if call is Exec and "job" in value else call.result
    return decode(kind, value)


def digest(call: Call) -> str:
    """SHA-256 of a call's content: the same key with another digest is another call. How a
    command's output is delivered is no part of what is asked."""
    asked = encode(call)
    if isinstance(call, Exec):
        asked.pop("stream", None)
    body = json.dumps([call.op, asked], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()
