"""What the policy says of a call that changes something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handoff.errors import PolicyAsks, PolicyDenied
from handoff.nodes.node.calls_journal import CallsJournal
from handoff.nodes.node.policy import Policy
from handoff.nodes.told import shown
from handoff.wire.node.calls import Call, Exec

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["rule"]


def rule(
    policy: Policy, journal: CallsJournal, clock: Clock, call: Call, digest: str
) -> dict[str, str]:
    """The ruling, for the audit. What waits for a person is kept in the journal; an allowance
    is used up by the call that it lets through.

    Raises:
        PolicyDenied, PolicyAsks.
    """
    if not policy.enabled:
        raise PolicyDenied(
            "this node is switched off",
            remedy="at the node: hermes-node unlock, or enabled = true in its policy.toml",
        )
    if not isinstance(call, Exec):
        return {"verdict": "allow"}  # of paths the policy is asked as they are opened
    ruled = policy.may_run(call.argv or call.command)
    if ruled.verdict == "ask":
        return _asked(journal, clock, call, digest, ruled.reason)
    if not ruled.allowed:
        raise PolicyDenied(
            f"the node's policy refuses this command: {ruled.reason}",
            remedy="at the node: hermes-node policy",
            rule=ruled.rule,
        )
    return {"verdict": "allow", "rule": ruled.rule}


def _asked(
    journal: CallsJournal, clock: Clock, call: Exec, digest: str, reason: str
) -> dict[str, str]:
    ask, verdict = journal.ask(digest, clock.new_id()[:8], shown(call), clock.now_ms())
    if verdict == "allow":
        return {"verdict": "allow", "rule": f"a person, {ask}"}
    if verdict == "deny":
        raise PolicyDenied("a person at the node refused it", ask=ask)
    raise PolicyAsks(
        f"a person at the node has to agree first: {reason}",
        remedy=f"at the node: hermes-node approve {ask}; then ask again",
        ask=ask,
    )
