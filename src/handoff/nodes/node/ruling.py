"""What the policy says of a call that changes something."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from handoff.errors import ConfigError, HandoffError, PolicyAsks, PolicyDenied
from handoff.nodes.node.calls_journal import CallsJournal
from handoff.nodes.node.policy import LOCK, Decision, Policy, load
from handoff.wire.node.calls import Call, Exec, ShellOpen

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["PolicyNow", "rule"]

#: characters that a person is asked to agree to
ASKED = 4000


class PolicyNow:
    """The policy of a node as its file says at this moment.

    folder: where the lock is. path: of the file. allowed: what counts without one.
    """

    def __init__(self, folder: str, path: str, home: str, allowed: Sequence[str]) -> None:
        self._lock = os.path.join(folder, LOCK)
        self._path = path
        self._home = home
        self._allowed = allowed
        self._seen: tuple[object, Policy | HandoffError] | None = None

    def __call__(self) -> Policy:
        """The policy. A file that can't be understood allows nothing.

        Raises:
            ConfigError: it can't be understood.
        """
        if os.path.lexists(self._lock):
            return Policy(enabled=False)
        try:
            found = os.stat(self._path)
            seen: object = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)
        except OSError as error:
            seen = error.errno
        if self._seen is None or self._seen[0] != seen:
            try:
                made: Policy | HandoffError = load(self._path, self._home, self._allowed)
            except ConfigError as error:
                made = error
            self._seen = seen, made
        kept = self._seen[1]
        if isinstance(kept, HandoffError):
            raise kept
        return kept


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
    if isinstance(call, ShellOpen):
        return _allowed(policy.may_open_shell(call.env), "this shell session")
    if not isinstance(call, Exec):
        return {"verdict": "allow"}  # of paths the policy is asked as they are opened
    ruled = policy.may_run(call.argv or call.command, call.env)
    if ruled.verdict == "ask":
        return _asked(journal, clock, call, digest, ruled.reason)
    return _allowed(ruled, "this command")


def _allowed(ruled: Decision, what: str) -> dict[str, str]:
    if not ruled.allowed:
        raise PolicyDenied(
            f"the node's policy refuses {what}: {ruled.reason}",
            remedy="at the node: hermes-node policy",
            rule=ruled.rule,
        )
    return {"verdict": "allow", "rule": ruled.rule}


def _whole(call: Exec) -> str:
    """All that a person agrees to, in signs that show: nothing is shortened, and nothing in
    it moves a terminal's cursor."""
    parts = [call.command or shlex.join(call.argv)]
    if call.cwd:
        parts.append(f"in {call.cwd}")
    parts += [f"with {name}={value}" for name, value in sorted(call.env.items())]
    if call.stdin == "given":
        parts.append(f"input {call.stdin_data.decode('utf-8', 'backslashreplace')}")
    elif call.stdin != "none":
        parts.append("with input that is sent later")
    if call.shell:
        parts.append(f"in the shell session {call.shell}")
    text = "\n  ".join(parts)
    return "".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text)


def _asked(
    journal: CallsJournal, clock: Clock, call: Exec, digest: str, reason: str
) -> dict[str, str]:
    whole = _whole(call)
    if len(whole) > ASKED:
        raise PolicyDenied(
            f"a person would have to read {len(whole)} signs before agreeing to it",
            remedy="write it to a file first, and run that",
        )
    ask, verdict = journal.ask(digest, clock.new_id()[:8], whole, clock.now_ms())
    if verdict == "allow":
        return {"verdict": "allow", "rule": f"a person, {ask}"}
    if verdict == "deny":
        raise PolicyDenied("a person at the node refused it", ask=ask)
    raise PolicyAsks(
        f"a person at the node has to agree first: {reason}",
        remedy=f"at the node: hermes-node approve {ask}; then ask again",
        ask=ask,
    )
