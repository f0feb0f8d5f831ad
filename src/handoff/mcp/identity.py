"""Which session speaks: told by the host, never by the model.

A host says it beside a call (``_meta``), or in the environment of the server that it starts
for one session. An environment is inherited: a host that was itself started from another
agent's session hands that one's variable on. So a variable counts only for the host that
sets it, which the client's own name tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from handoff.mcp.protocol import Client

__all__ = ["Speaker", "speaker"]

#: key of ``_meta`` -> the host that sets it, and how its client calls itself ("" for any:
#: the key is the host's alone)
_META = (
    ("ai.opencode/sessionID", "opencode", ""),
    ("threadId", "codex", "codex"),
)
#: variable -> the host that sets it for a server it starts, and how its client calls itself
_ENV = (("CLAUDE_CODE_SESSION_ID", "claude", "claude-code"),)
#: the name of a client -> its kind of host, where a call names no session
_NAMES = (("claude-code", "claude"), ("codex", "codex"), ("opencode", "opencode"))
_LONGEST = 200


class Speaker(NamedTuple):
    """``session``: its id as the host names it, "" if the host does not say. ``host``: the
    kind of host (:data:`handoff.sessions.host.KINDS`)."""

    session: str
    host: str


def speaker(meta: Mapping[str, Any], client: Client, env: Mapping[str, str]) -> Speaker:
    """The session that a call comes from."""
    for key, host, name in _META:
        if client.name.startswith(name) and _plain(meta.get(key)):
            return Speaker(str(meta[key]), host)
    for variable, host, name in _ENV:
        if client.name.startswith(name) and _plain(env.get(variable)):
            return Speaker(env[variable], host)
    return Speaker(
        "", next((kind for name, kind in _NAMES if client.name.startswith(name)), "other")
    )


def _plain(value: Any) -> bool:
    """Whether it can be a session's id: one short printable word."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= _LONGEST
        and value.isprintable()
        and " " not in value
    )
