"""What both ends' audits say of a call and of its answer, in the same words."""

from __future__ import annotations

import shlex
from typing import Any

from handoff.wire.node import calls
from handoff.wire.node.calls import Call, CallFailed, Exec, ExecResult, Result

__all__ = ["SHOWN", "outcome", "shown", "target"]

#: characters of a command that are shown in lists and audits
SHOWN = 400


def shown(call: Exec) -> str:
    """The command for people, shortened."""
    text = call.command or shlex.join(call.argv)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def target(call: Call) -> str:
    """What a call is about."""
    if isinstance(call, Exec):
        return f"{call.cwd or '~'} :: {shown(call)}"
    found = [str(getattr(call, name, "")) for name in ("path", "to", "job", "name", "spill")]
    about = " -> ".join(one for one in found if one)
    if isinstance(call, calls.Glob | calls.Grep):
        about += f" :: {call.pattern}"
    return about[:SHOWN]


def outcome(answer: Result) -> dict[str, Any]:
    """What came of it."""
    if isinstance(answer, CallFailed):
        return {"status": "failed", "code": answer.code}
    if isinstance(answer, ExecResult):
        return {
            "status": answer.status,
            "exit_code": answer.exit_code,
            "duration_ms": answer.duration_ms,
            "bytes": answer.stdout.bytes_total + answer.stderr.bytes_total,
        }
    if isinstance(answer, calls.WriteResult):
        return {"status": "ok", "bytes": answer.bytes_written}
    return {"status": "ok"}
