"""How each side of a link is told to behave."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["BrainOptions", "NodeOptions"]


@dataclass(frozen=True, slots=True)
class BrainOptions:
    """How a brain greets. ``key``: its ed25519 private key. ``require``: ``""``, ``e2e`` or
    ``e2e2`` for every node. ``chunks``: let other nodes send ``exec_chunk`` (Go v0.2.0 may
    break a frame while it does, so it is off)."""

    key: bytes = field(default=b"", repr=False)
    require: str = ""
    chunks: bool = False
    seal: bool = True
    handshake_s: float = 10.0
    stale_s: float = 60.0
    window: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How a node greets. Either ``token`` or ``key`` (ed25519, private). ``brain_key``: the
    brain's public key as it was pinned; without it any brain is taken that fits the token.
    ``plugin``: only what the plugin's server v0.1.2 takes. ``seal``: offer a sealed session.
    ``require``: ``""``, ``e2e`` or ``e2e2``: no session without. ``stale_s``: two pings and
    a half; a brain counts a node as lost after 60 s and waits 30 more for it to come back, so
    the node has to have noticed by then."""

    name: str
    token: str = field(default="", repr=False)
    key: bytes = field(default=b"", repr=False)
    brain_key: bytes = b""
    version: str = ""
    platform: str = ""
    arch: str = ""
    instance: str = ""
    policy: str = ""
    took_over: bool = False
    plugin: bool = False
    seal: bool = True
    require: str = ""
    handshake_s: float = 10.0
    ping_s: float = 30.0
    stale_s: float = 75.0
