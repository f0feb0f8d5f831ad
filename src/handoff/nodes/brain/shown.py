"""A brain's links for people and lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handoff.nodes.brain.session import Session

__all__ = ["Connected", "connected"]


@dataclass(frozen=True, slots=True)
class Connected:
    """A node that is linked now. ``connected_ms``: since 1970. ``profile``: ``handoff`` or
    ``go``. ``sealed``: ``""``, ``v1``, ``v2``. ``rtt_ms``: -1 if unknown."""

    name: str
    session_id: str
    remote: str
    connected_ms: int
    profile: str
    sealed: str
    method: str
    version: str
    platform: str
    arch: str
    policy: str
    rtt_ms: float
    under_way: int


def connected(session: Session) -> Connected:
    """What is known of an open link."""
    link = session.link
    features, hello = link.features, link.hello
    return Connected(
        name=session.name,
        session_id=session.id,
        remote=session.remote,
        connected_ms=session.connected_ms,
        profile=features.profile if features else "",
        sealed=features.sealed if features else "",
        method=features.method if features else "",
        version=hello.node_version if hello else "",
        platform=hello.platform if hello else "",
        arch=hello.arch if hello else "",
        policy=hello.policy if hello else "",
        rtt_ms=round(link.rtt_ms, 3),
        under_way=link.under_way,
    )
