"""The ACP driver's whole state, as one value that can be written down after every line."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from handoff.executors.contract import Fault, Session

#: characters of the turn's text that are kept for the trailer
TAIL = 16 * 1024
#: tool calls that are remembered at most, and bytes of one of them
CALLS = 64
CALL_BYTES = 64 * 1024

STATE_VERSION = 1


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """One property of an elicitation's form: how an answer becomes its value."""

    key: str
    type: str = "string"
    values: dict[str, str] = {}
    free: str | None = None
    other: str | None = None


class Ask(msgspec.Struct, omit_defaults=True):
    """A request of the agent's that waits for the coordinator.

    ``options``: option id by kind. ``labels``: option id by label (``choice``).
    ``keys``: question texts (``xai``). ``announced``: whether its tool call was told
    before, so that updates of that call are evidence for our answer.
    """

    rpc: int | str
    kind: Literal["permission", "form", "xai", "qwen", "choice"]
    options: dict[str, str] = {}
    labels: dict[str, str] = {}
    keys: list[str] = []
    fields: list[Field] = []
    call: str | None = None
    announced: bool = False
    answered: bool = False


class Turn(msgspec.Struct, omit_defaults=True):
    """The running turn. ``prompt``: id of our ``session/prompt``, None while it waits
    for the session. ``broken``: a fault of ours (a line too long) that ends it."""

    prompt: int | None = None
    taken: bool = False
    interrupted: bool = False
    denied: bool = False
    tail: str = ""
    fresh: bool = False
    message: str | None = None
    retry: Fault | None = None
    fault: Fault | None = None
    broken: Fault | None = None


class State(msgspec.Struct, omit_defaults=True):
    """Everything that the driver knows.

    ``phase``: ``new``, ``handshake`` (the session is being made), ``ready``, ``over``.
    ``sent``: what our unanswered requests were for. ``logins``: silent ways to log in that
    are left, ``refused``: why they are needed. ``steps``: what is left of the
    handshake after the session was opened.
    """

    version: int = STATE_VERSION
    agent: str = ""
    phase: Literal["new", "handshake", "ready", "over"] = "new"
    session: Session | None = None
    session_id: str | None = None
    context: Literal["new", "resumed", "lost"] = "new"
    next_id: int = 1
    sent: dict[int, str] = {}
    steps: list[str] = []
    can_load: bool = False
    can_resume: bool = False
    tried: list[str] = []
    opened: dict[str, Any] = {}
    info_name: str | None = None
    info_version: str | None = None
    model: str | None = None
    mode: str | None = None
    mode_sets: int = 0
    logins: list[str] = []
    refused: Fault | None = None
    told_instructions: bool = False
    queued: str | None = None
    turn: Turn | None = None
    asks: dict[str, Ask] = {}
    calls: dict[str, dict[str, Any]] = {}
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(State)


def dump(state: State) -> bytes:
    """The state as JSON."""
    return _ENCODER.encode(state)


def load(data: bytes) -> State:
    """The state that :func:`dump` wrote.

    Raises:
        msgspec.MsgspecError: it is not one.
        ValueError: it is of another version.
    """
    state = _DECODER.decode(data)
    if state.version != STATE_VERSION:
        raise ValueError(f"driver state of version {state.version}, not {STATE_VERSION}")
    return state


def size_of(value: Any) -> int:
    """Bytes of a JSON value."""
    return len(_ENCODER.encode(value))
