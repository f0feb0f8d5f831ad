"""Who asks a node for a call, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from handoff.errors import BadRequest, HandoffError
from handoff.nodes import told
from handoff.nodes.node.calls_journal import Seen
from handoff.wire.node.calls import Call

__all__ = ["Known", "Who", "not_here", "row", "whole"]


class Who(NamedTuple):
    """Who asks. ``brain``: its name or key; ``actor``: what the brain says of whoever asked
    it (a session, a profile, a person)."""

    brain: str
    actor: Mapping[str, str]


class Known(NamedTuple):
    """What is known of a call, and the call itself unless it was never seen."""

    state: str
    call: Call | None = None


def whole(seen: Seen) -> dict[str, Any]:
    """A call's arguments as they were noted, its content left out."""
    args = dict(seen.args)
    if seen.op == "exec" and args.get("stdin") == "given":
        args["stdin"] = "none"
    if seen.op == "edit":
        args["old"] = "-"
    return args


def not_here(call: Call) -> HandoffError:
    """What a call is refused with that is none of a node's."""
    return BadRequest(f"this node can't do '{call.op}'", remedy="look at its features", field="op")


def row(key: str, call: Call, who: Who) -> dict[str, Any]:
    """What each row of the audit says of a call."""
    return {
        "request_id": key,
        "brain": who.brain,
        "actor": dict(who.actor),
        "op": call.op,
        "target": told.target(call),
    }
