"""What a brain goes by when a call is asked for, or asked about, once more."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from handoff.errors import Cancelled, HandoffError, NodeOffline, OutcomeUnknown, RequestConflict
from handoff.nodes.brain.journal import Sent
from handoff.wire.node import calls
from handoff.wire.node.calls import Call

if TYPE_CHECKING:
    from handoff.link.records import NodeRecord
    from handoff.nodes.brain.asking import Asking

__all__ = [
    "CONTENT",
    "actor",
    "as_sent",
    "conflict",
    "from_journal",
    "late_after",
    "never_known",
    "not_back",
    "offline",
    "revoked",
    "same",
    "withdrawn",
]

#: seconds that an answer may take to arrive
LATE_S = 10.0
#: fields of calls that the journal does not keep
CONTENT = frozenset({"data", "stdin_data", "old", "new"})


def conflict(key: str) -> HandoffError:
    """The key names another call."""
    return RequestConflict(f"the key {key} was used for another call", remedy="use a new key")


def same(node: str, digest: str, target: str, call: Call) -> bool:
    """Whether what was asked of a node is this very call."""
    return (node, digest) == (target, calls.digest(call))


def from_journal(sent: Sent) -> Call:
    """The call as far as the journal has it: without its content."""
    args = dict(sent.args)
    if sent.op == "exec" and args.get("stdin") == "given":
        args["stdin"] = "none"
    if sent.op == "edit":
        args["old"] = "-"
    return calls.call_from_json(sent.op, args)


def as_sent(call: Call, sent: Sent) -> Call:
    """A call that was made before, with the streams that the node sends for it."""
    if isinstance(call, calls.Exec):
        return replace(call, stream=sent.args.get("stream") is True)
    return call


def never_known(asking: Asking) -> OutcomeUnknown:
    """Nobody can say any more."""
    return OutcomeUnknown(
        f"{asking.node} does not know any more what became of this call; it may have run",
        remedy="look at what it has done before you ask again with a new key",
        key=asking.key,
    )


def not_back(asking: Asking) -> OutcomeUnknown:
    """It may still say."""
    return OutcomeUnknown(
        f"{asking.node} does not answer: the link was lost, and the node has not come back yet",
        remedy="ask again with the same key: the node keeps the result",
        key=asking.key,
    )


def offline(node: NodeRecord) -> NodeOffline:
    """A node that is not linked."""
    if node.revoked:
        return NodeOffline(
            f"{node.name} was revoked: it is not let in",
            remedy=f"pair it anew: handoff nodes pair {node.name}",
            node=node.name,
            last_seen_ms=node.last_ms,
            revoked=True,
        )
    return NodeOffline(
        f"{node.name} is not connected",
        remedy=f"start it there: hermes-node run; or wait: handoff nodes exec {node.name}"
        " --queue-until 10m …",
        node=node.name,
        last_seen_ms=node.last_ms,
        revoked=False,
    )


def withdrawn(node: str) -> Cancelled:
    """It is not wanted any more, and was not sent."""
    return Cancelled(
        f"cancelled while it waited for {node}; nothing was done", remedy="ask again", node=node
    )


def revoked(asking: Asking) -> OutcomeUnknown:
    """It will not come back to say."""
    return OutcomeUnknown(
        f"{asking.node} was revoked while it carried out this call; it ends what it runs",
        remedy="look at the machine itself",
        key=asking.key,
    )


def late_after(call: Call) -> float | None:
    """Seconds after which a command's answer is overdue; None for what has no time limit."""
    if isinstance(call, calls.Exec) and not call.job and call.timeout_ms:
        return (call.timeout_ms + call.grace_ms) / 1000 + LATE_S
    return None


def actor(by: str) -> Any:
    """Who asked, from its JSON."""
    with contextlib.suppress(ValueError):
        return json.loads(by)
    return by
