"""What a link machine reports to the program around it.

Events come from ``link.events()`` in the order in which they happened. Those that ask
(:class:`Identify`, :class:`Admit`, :class:`PairAsked`) wait until they are answered or the
handshake's time is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from handoff.wire.node.calls import Call, Result
from handoff.wire.node.closing import Close
from handoff.wire.node.features import Features
from handoff.wire.node.messages import Hello, Pair, PairOk

__all__ = [
    "Admit",
    "CallAsked",
    "CallEnded",
    "CallTold",
    "CancelAsked",
    "Credential",
    "Drained",
    "Ended",
    "Event",
    "Forgotten",
    "Identify",
    "Noticed",
    "Oddity",
    "Opened",
    "Outstanding",
    "PairAsked",
    "Paired",
    "SignalAsked",
    "StateAsked",
    "StreamPiece",
    "StreamStopped",
]


@dataclass(frozen=True, slots=True)
class Credential:
    """What the brain holds about a node. One of ``key`` (ed25519, 32 bytes), ``token`` (in
    clear: needed to seal a session with a Go node) and ``token_sha256`` (hex). ``require``:
    ``""``, ``e2e`` (any sealed session) or ``e2e2`` (ours)."""

    name: str
    key: bytes = b""
    token: str = field(default="", repr=False)
    token_sha256: str = field(default="", repr=False)
    revoked: bool = False
    require: str = ""


# -- both roles --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """The session is open."""

    session_id: str
    features: Features
    hello: Hello


@dataclass(frozen=True, slots=True)
class Outstanding:
    """A call of the brain's that has no result. ``received``: bytes of each stream that
    arrived. ``reads``: it changes nothing."""

    id: int
    key: str
    op: str
    reads: bool
    received: dict[str, int]


@dataclass(frozen=True, slots=True)
class Ended:
    """The link is over, once. ``calls``: what had no result (brain only)."""

    close: Close
    calls: tuple[Outstanding, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """Bytes of a stream. After using them call ``link.consume``; ``end``: the last."""

    id: int
    stream: str
    data: bytes | memoryview
    end: bool


@dataclass(frozen=True, slots=True)
class Drained:
    """A stream that was full takes more: the producer may go on."""

    id: int
    stream: str


@dataclass(frozen=True, slots=True)
class StreamStopped:
    """The other side wants no more of a stream."""

    id: int
    stream: str


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something was ignored: a malformed frame, an unknown message."""

    what: str
    detail: str = ""


# -- brain -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identify:
    """Who is that? Answer with ``link.identify``."""

    hello: Hello


@dataclass(frozen=True, slots=True)
class Admit:
    """The node showed who it is. Answer with ``link.admit`` or ``link.refuse``."""

    hello: Hello
    features: Features


@dataclass(frozen=True, slots=True)
class PairAsked:
    """A pairing code is presented. Answer with ``link.pair_ok`` or ``link.refuse``."""

    pair: Pair


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The result of a call. ``repeated``: it came from the node's journal. ``sent``: bytes
    of each stream that the node had sent in all."""

    id: int
    key: str
    result: Result
    repeated: bool = False
    sent: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallTold:
    """The answer to ``link.ask``: ``running``, ``done``, ``never_seen``,
    ``unknown_outcome``; result and streams follow for the first two. ``received``: how much
    of each stream into the call the node holds."""

    id: int
    key: str
    state: str
    received: dict[str, int]


@dataclass(frozen=True, slots=True)
class Noticed:
    """The node reports something that no call asked for."""

    kind: str
    body: dict[str, Any]


# -- node --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallAsked:
    """Carry out a call and answer with ``link.finish``. ``key`` is empty on a link of the
    old vocabulary: such a call can't be asked about later."""

    id: int
    key: str
    call: Call
    by: str = ""
    deadline_ms: int = 0


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """End the call; it is still answered with ``link.finish``."""

    id: int
    reason: str


@dataclass(frozen=True, slots=True)
class SignalAsked:
    """Send a signal to the call's command."""

    id: int
    signal: int


@dataclass(frozen=True, slots=True)
class StateAsked:
    """What became of the call with that key? Answer with ``link.tell``."""

    id: int
    key: str
    offsets: dict[str, int]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The brain has stored the results of these calls."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Paired:
    """The brain took the pairing code; its proof is checked by the pairing module."""

    answer: PairOk


Event = (
    Opened
    | Ended
    | StreamPiece
    | Drained
    | StreamStopped
    | Oddity
    | Identify
    | Admit
    | PairAsked
    | CallEnded
    | CallTold
    | Noticed
    | CallAsked
    | CancelAsked
    | SignalAsked
    | StateAsked
    | Forgotten
    | Paired
)
