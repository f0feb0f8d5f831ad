"""Who asks a node for a call, and what is known of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from handoff.errors import BadRequest, Cancelled, HandoffError, OutcomeUnknown, Unreachable
from handoff.nodes import told
from handoff.nodes.node.calls_journal import Seen
from handoff.nodes.node.streams import Withdrawn
from handoff.wire.node.calls import Call, CallFailed

__all__ = ["Known", "Who", "as_cut", "failed", "not_here", "row", "whole"]

log = logging.getLogger("handoff.node")


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


def failed(key: str, call: Call, error: Exception) -> CallFailed:
    """What a call is answered with that ended in an error."""
    if isinstance(error, HandoffError):
        return CallFailed.of(error, retry_safe=call.reads)
    if isinstance(error, ConnectionError):
        return CallFailed.of(OutcomeUnknown(f"the link was lost: {error}"))
    if isinstance(error, OSError):
        return CallFailed.of(HandoffError(f"the node could not do it: {error.strerror or error}"))
    # our mistake: whoever asked must not wait for ever
    log.error("a call broke: %s", call.op, exc_info=error)
    broken = f"the node broke at this call: {type(error).__name__}"
    if call.reads:
        return CallFailed.of(HandoffError(broken), retry_safe=True)
    return CallFailed.of(OutcomeUnknown(broken, key=key))


def as_cut(error: ConnectionError, left: str = "") -> HandoffError:
    """What became of a call whose bytes did not all come or go. left: what it left."""
    if isinstance(error, Withdrawn):
        more = f"; {left}" if left else ""
        return Cancelled(f"cancelled before all of it had come{more}", remedy="ask again if wanted")
    return Unreachable("the link was lost before all of it had come", remedy="ask again")


def row(key: str, call: Call, who: Who) -> dict[str, Any]:
    """What each row of the audit says of a call."""
    return {
        "request_id": key,
        "brain": who.brain,
        "actor": dict(who.actor),
        "op": call.op,
        "target": told.target(call),
    }
