"""What both sides of a link can do, as their handshake settled it."""

from __future__ import annotations

from dataclasses import dataclass

from handoff.wire.node.messages import Hello

__all__ = ["OLD", "Features", "offered", "settle"]

#: the old vocabulary, which every node has
OLD = ("exec", "read", "write")
_OURS = ("calls2", "frames2", "e2e2", "keys")
#: GOOS values that a Go node sends as its platform; ours sends ``sys.platform`` after "py-"
GO, OWN, PLUGIN = "go", "handoff", "plugin"


@dataclass(frozen=True, slots=True)
class Features:
    """``profile``: ``handoff`` (a peer of ours), ``go`` (any other node, treated as the Go
    node, the most fragile one), ``plugin`` (any other brain). ``sealed``: ``""``, ``v1``
    (Go's), ``v2`` (ours). ``method``: how the node showed who it is: ``token``, ``proof``,
    ``key``. ``chunks``: stdout may come in ``exec_chunk`` pieces."""

    profile: str = GO
    calls2: bool = False
    frames2: bool = False
    sealed: str = ""
    chunks: bool = False
    method: str = "token"

    @property
    def ws_ping(self) -> bool:
        """Whether WebSocket pings may be sent: a Go node answers none while it executes."""
        return self.profile != GO

    def meets(self, require: str) -> bool:
        """Whether the session is sealed as it must be: ``e2e``, ``e2e2``, or "" for any."""
        return not require or (self.sealed == "v2" if require == "e2e2" else bool(self.sealed))


def offered(*, chunks: bool = False, seal: bool = True, keys: bool = True) -> tuple[str, ...]:
    """The capabilities that a peer of ours names."""
    left_out = {name for name, wanted in (("e2e2", seal), ("keys", keys)) if not wanted}
    ours = [name for name in _OURS if name not in left_out]
    return (*OLD, *(("exec_chunk",) if chunks else ()), *ours)


def settle(hello: Hello, brain: tuple[str, ...]) -> tuple[str, ...]:
    """The capabilities that both name and whose needs are met, in the brain's order."""
    both = set(hello.capabilities) & set(brain)
    if not {"calls2", "frames2"} <= both:
        both -= {"frames2", "e2e2"}
    if not hello.ecdh_pub:
        both -= {"e2e2", "keys"}
    if not hello.key:
        both.discard("keys")
    if not hello.e2e:
        both.discard("e2e2")
    return tuple(name for name in brain if name in both or name in OLD)
