"""The number that stands for a command's end, wherever one is given."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["TIMED_OUT", "exit_code"]

#: of a command that its time limit ended, as ``timeout`` has it
TIMED_OUT = 124
#: what a shell adds to a signal's number
_SIGNALLED = 128
_TERM = 15


def exit_code(value: Mapping[str, Any]) -> int | None:
    """The exit code of an ``ExecResult`` as JSON, as a shell would give it: never 0 for what
    did not end well. None: it was not started, or nobody knows."""
    status = value.get("status") or "ok"
    if status == "timeout":
        return TIMED_OUT
    if value.get("exit_code"):
        return int(value["exit_code"])
    if value.get("signal"):
        return _SIGNALLED + int(value["signal"])
    if status == "cancelled":  # it may have ended well on being told to end
        return _SIGNALLED + _TERM
    return 0 if status == "ok" else None
