"""Every message of the node protocol, as frozen dataclasses.

The first half is the protocol that the Go nodes (v0.1.x, v0.2.0) and the plugin's server
(v0.1.2) speak, field for field; what they leave out when it is zero or empty has a default
here, and what they always write is always written. The second half is spoken only after
both sides named a capability: ``calls2`` (our calls, streams, credit, cancel, ask) and its
frames (:mod:`handoff.wire.node.frames`); ``pair`` precedes any hello.

:func:`decode_message` reads a JSON object, ignores fields that it does not know, and never
guesses: a known field of the wrong kind is a :class:`~handoff.errors.BadRequest`, a type
that it does not know an :class:`Unknown`. :func:`encode_message` is its inverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from handoff.errors import BadRequest
from handoff.wire.node.shapes import B64, Text, always, decode, encode, text

#: the version that both sides name; only its first number breaks compatibility
PROTOCOL_VERSION = "0.1.0"
#: characters of names, versions and the like in a handshake, as the plugin's server has it
SHORT = 32
NAME = 64
#: characters that say who asks
ASKER = 1024
#: entries of ``capabilities``
MAX_CAPABILITIES = 16
#: characters of the id of a call of the old vocabulary
ID = 128
#: bytes of a file in ``read_result`` and ``write``, of the old vocabulary
LEGACY_FILE_LIMIT = 10 * 1024 * 1024

#: capabilities, and what they mean
CAPABILITIES = {
    "exec": "runs commands (old vocabulary)",
    "exec_chunk": "a command's output may come in pieces (old vocabulary)",
    "read": "reads files (old vocabulary)",
    "write": "writes files (old vocabulary)",
    "calls2": "calls with keys, streams with credit, cancel, ask after a lost link",
    "frames2": "binary frames with sequence numbers; needs calls2",
    "e2e2": "sealed frames bound to the handshake; needs frames2",
    "keys": "signs the handshake with an ed25519 key instead of sending a token",
}


class Message:
    """Base of all messages; ``type`` is the discriminator."""

    type: ClassVar[str] = ""


# -- handshake ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """Node to brain, first. ``e2e`` and ``ecdh_pub`` since Go node v0.2.0. Ours: ``key``
    (ed25519, base64url), ``instance`` (which installation, boot, file of calls and process, so
    that two daemons of one name show), ``policy`` (digest of the policy file), ``took_over`` (this start was
    told to take over the name)."""

    protocol_version: str = text(SHORT)
    node_name: str = text(NAME)
    node_version: str = text(SHORT, "")
    platform: str = text(SHORT, "")
    arch: str = text(SHORT, "")
    capabilities: tuple[str, ...] = text(MAX_CAPABILITIES, ())
    ts: str = text(SHORT, "")
    e2e: bool = False
    ecdh_pub: str = text(NAME, "")
    key: str = text(NAME, "")
    instance: str = text(NAME, "")
    policy: str = text(NAME, "")
    took_over: bool = False

    type: ClassVar[str] = "hello"


@dataclass(frozen=True, slots=True)
class HelloAck(Message):
    """Brain to node. With ``ecdh_pub`` and ``salt`` the session will be sealed."""

    protocol_version: str = text(SHORT)
    session_id: str = text(ID)
    server_time: str = text(SHORT, "")
    capabilities: tuple[str, ...] = text(64, ())
    ecdh_pub: str = text(NAME, "")
    salt: str = text(NAME, "")
    key: str = text(NAME, "")

    type: ClassVar[str] = "hello_ack"


@dataclass(frozen=True, slots=True)
class HelloErr(Message):
    """Brain to node, before it closes with ``code``."""

    reason: str = text(NAME)
    code: int = 0
    server_max_version: str = text(SHORT, "")
    detail: str = ""

    type: ClassVar[str] = "hello_err"


@dataclass(frozen=True, slots=True)
class Auth(Message):
    """Node to brain. One of ``token``, ``proof`` (sealed sessions), ``signature``."""

    node_name: str = text(NAME)
    token: str = text(NAME, "")
    proof: str = text(NAME, "")
    signature: str = text(ID, "")
    ts: str = text(SHORT, "")

    type: ClassVar[str] = "auth"


@dataclass(frozen=True, slots=True)
class AuthOk(Message):
    """Brain to node: the session is open."""

    session_id: str = text(ID)
    proof: str = text(NAME, "")
    signature: str = text(ID, "")

    type: ClassVar[str] = "auth_ok"


@dataclass(frozen=True, slots=True)
class AuthErr(Message):
    """Brain to node, before it closes with ``code``."""

    reason: str = text(NAME)
    code: int = 0
    detail: str = ""

    type: ClassVar[str] = "auth_err"


@dataclass(frozen=True, slots=True)
class Pair(Message):
    """Node to brain, instead of hello: redeem a pairing code. ``code``: its public part;
    ``key``: the node's new ed25519 key; ``proof``: that it knows the secret part."""

    code: str = text(NAME)
    key: str = text(NAME)
    proof: str = text(NAME)
    node_name: str = text(NAME, "")

    type: ClassVar[str] = "pair"


@dataclass(frozen=True, slots=True)
class PairOk(Message):
    """Brain to node: the key is stored under ``node_name``. ``key`` is the brain's,
    ``proof`` shows that the brain knows the secret part too."""

    node_name: str = text(NAME)
    key: str = text(NAME)
    proof: str = text(NAME)

    type: ClassVar[str] = "pair_ok"


@dataclass(frozen=True, slots=True)
class PairErr(Message):
    """Brain to node: the code was not redeemed."""

    reason: str = text(NAME)
    code: int = 0
    detail: str = ""

    type: ClassVar[str] = "pair_err"


# -- the old vocabulary ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OldExec(Message):
    """Brain to node: run a command in the node's shell."""

    id: str = text(ID, "")
    command: str = ""
    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int = 0

    type: ClassVar[str] = "exec"


@dataclass(frozen=True, slots=True)
class OldExecResult(Message):
    """Node to brain. ``returncode`` repeats ``exit_code`` for the plugin's tool, which
    reads that name."""

    id: str = text(ID, "")
    status: str = text(SHORT, "ok", always=True)
    exit_code: int = always(0)
    stdout: str = always("")
    stderr: str = always("")
    duration_ms: int = always(0)
    truncated: bool = always(False)
    returncode: int | None = None

    type: ClassVar[str] = "exec_result"


@dataclass(frozen=True, slots=True)
class OldExecChunk(Message):
    """Node to brain: a piece of stdout; the last has ``more`` false and the status."""

    id: str = text(ID, "")
    seq: int = always(0)
    data: B64 = always(b"")
    more: bool = always(False)
    status: str = text(SHORT, "")
    exit_code: int = 0
    duration_ms: int = 0
    truncated: bool = False

    type: ClassVar[str] = "exec_chunk"


@dataclass(frozen=True, slots=True)
class OldRead(Message):
    """Brain to node: a whole file, at most 10 MiB."""

    id: str = text(ID, "")
    path: str = ""

    type: ClassVar[str] = "read"


@dataclass(frozen=True, slots=True)
class OldReadResult(Message):
    """Node to brain. An empty file leaves out content and size."""

    id: str = text(ID, "")
    status: str = text(SHORT, "ok", always=True)
    content_b64: B64 = b""
    size_bytes: int = 0
    error: str = ""
    error_detail: str = ""

    type: ClassVar[str] = "read_result"


@dataclass(frozen=True, slots=True)
class OldWrite(Message):
    """Brain to node: a whole file. Go nodes refuse empty content."""

    id: str = text(ID, "")
    path: str = ""
    content_b64: B64 = always(b"")
    mode: str = text(SHORT, "")

    type: ClassVar[str] = "write"


@dataclass(frozen=True, slots=True)
class OldWriteResult(Message):
    """Node to brain."""

    id: str = text(ID, "")
    status: str = text(SHORT, "ok", always=True)
    bytes_written: int = 0
    error: str = ""
    error_detail: str = ""

    type: ClassVar[str] = "write_result"


@dataclass(frozen=True, slots=True)
class Ping(Message):
    """Either side: are you there?"""

    ts: str = text(SHORT, "")

    type: ClassVar[str] = "ping"


@dataclass(frozen=True, slots=True)
class Pong(Message):
    """The answer to ping; ``echo_ts`` is its ``ts``."""

    ts: str = text(SHORT, "")
    echo_ts: str = text(SHORT, "")

    type: ClassVar[str] = "pong"


@dataclass(frozen=True, slots=True)
class ErrorMessage(Message):
    """A call could not be carried out (4000 ``bad_request``, 5000 ``internal_error``, 5001
    ``unknown_message``)."""

    id: str = text(ID, "")
    code: int = always(0)
    reason: str = text(NAME, "", always=True)
    detail: str = ""

    type: ClassVar[str] = "error"


@dataclass(frozen=True, slots=True)
class Bye(Message):
    """Either side, before it closes: why. ``retry_ms``: come back not before that long."""

    reason: str = text(NAME, "")
    code: int = 0
    detail: str = ""
    retry_ms: int = 0

    type: ClassVar[str] = "bye"


@dataclass(frozen=True, slots=True)
class Enc(Message):
    """A sealed message of Go node v0.2.0: base64url of nonce, ciphertext and tag."""

    ts: str = text(SHORT, "")
    data: str = always("")

    type: ClassVar[str] = "enc"


@dataclass(frozen=True, slots=True)
class RateLimit(Message):
    """The plugin's server, before it closes with 4004."""

    reason: str = text(NAME, "")
    code: int = 0
    node_name: str = ""
    limit_per_second: int = 0

    type: ClassVar[str] = "rate_limit"


# -- calls2 ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallMessage(Message):
    """Brain to node. ``id`` names the call on this link, ``key`` for ever. ``window``: how
    many bytes of each stream the node may send before it is given credit. ``deadline_ms``:
    how long from now the caller waits (0: no limit). ``by``: who asked, for the audit."""

    id: int
    op: str = text(SHORT)
    key: str = text(NAME, "")
    args: Mapping[str, Any] = field(default_factory=dict)
    window: int = 0
    deadline_ms: int = 0
    by: str = text(ASKER, "")

    type: ClassVar[str] = "call"


@dataclass(frozen=True, slots=True)
class ResultMessage(Message):
    """Node to brain, the last of its call. ``value``: the answer, or the failure if not
    ``ok``. ``streams``: bytes that were sent of each stream. ``repeated``: it comes from
    the journal, nothing was run now."""

    id: int
    ok: bool
    value: Mapping[str, Any] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)
    repeated: bool = False

    type: ClassVar[str] = "result"


@dataclass(frozen=True, slots=True)
class DataMessage(Message):
    """A piece of a stream where frames are JSON. ``end``: nothing follows."""

    id: int
    stream: str = text(SHORT)
    offset: int = 0
    data: B64 = b""
    end: bool = False

    type: ClassVar[str] = "data"


@dataclass(frozen=True, slots=True)
class Credit(Message):
    """The receiver of a stream allows it to reach ``upto`` bytes."""

    id: int
    stream: str = text(SHORT)
    upto: int = 0

    type: ClassVar[str] = "credit"


@dataclass(frozen=True, slots=True)
class Ack(Message):
    """Bytes of binary frames that have arrived in this session, headers and all."""

    bytes: int

    type: ClassVar[str] = "ack"


@dataclass(frozen=True, slots=True)
class StopStream(Message):
    """The receiver of a stream wants no more of it; the call goes on."""

    id: int
    stream: str = text(SHORT)

    type: ClassVar[str] = "stop_stream"


@dataclass(frozen=True, slots=True)
class Cancel(Message):
    """Brain to node: end the call; its result says how it ended."""

    id: int
    reason: str = text(NAME, "")

    type: ClassVar[str] = "cancel"


@dataclass(frozen=True, slots=True)
class Signal(Message):
    """Brain to node: send a signal to the command (its number)."""

    id: int
    signal: int

    type: ClassVar[str] = "signal"


@dataclass(frozen=True, slots=True)
class Ask(Message):
    """Brain to node after a lost link: what became of the call with that key? From here on
    the call has this ``id``. ``offsets``: bytes of each stream that arrived before."""

    id: int
    key: str = text(NAME)
    offsets: Mapping[str, int] = field(default_factory=dict)
    window: int = 0

    type: ClassVar[str] = "ask"


@dataclass(frozen=True, slots=True)
class Told(Message):
    """Node to brain. ``state``: ``running`` (streams and result follow), ``done`` (the
    same), ``never_seen`` (it was not run), ``unknown_outcome``. ``received``: bytes of the
    streams into the call that arrived; send from there."""

    id: int
    key: str = text(NAME)
    state: str = text(SHORT)
    received: Mapping[str, int] = field(default_factory=dict)

    type: ClassVar[str] = "told"


@dataclass(frozen=True, slots=True)
class Forget(Message):
    """Brain to node: these results are stored, they need not be kept."""

    keys: tuple[str, ...] = text(1_000, ())

    type: ClassVar[str] = "forget"


@dataclass(frozen=True, slots=True)
class Notice(Message):
    """Node to brain: something happened that no call asked for (``job_done``,
    ``policy_changed``, ``shell_lost``)."""

    kind: str = text(SHORT)
    body: Mapping[str, Any] = field(default_factory=dict)

    type: ClassVar[str] = "notice"


@dataclass(frozen=True, slots=True)
class Unknown(Message):
    """A message whose type is not known here."""

    type_name: Text
    id: str | int | None = None


#: every message by its type
MESSAGES: dict[str, type[Message]] = {
    cls.type: cls
    for cls in (
        *(Hello, HelloAck, HelloErr, Auth, AuthOk, AuthErr, Pair, PairOk, PairErr),
        *(OldExec, OldExecResult, OldExecChunk, OldRead, OldReadResult, OldWrite),
        *(OldWriteResult, Ping, Pong, ErrorMessage, Bye, Enc, RateLimit),
        *(CallMessage, ResultMessage, DataMessage, Credit, Ack, StopStream, Cancel),
        *(Signal, Ask, Told, Forget, Notice),
    )
}


#: those that need ``calls2``, and those that have no place where it is
CALLS2: frozenset[type[Message]] = frozenset(
    {
        *(CallMessage, ResultMessage, DataMessage, Credit, Ack, StopStream, Cancel),
        *(Signal, Ask, Told, Forget, Notice),
    }
)
OLD: frozenset[type[Message]] = frozenset(
    {
        *(OldExec, OldExecResult, OldExecChunk, OldRead, OldReadResult, OldWrite),
        *(OldWriteResult, ErrorMessage, RateLimit),
    }
)


def decode_message(value: Any) -> Message:
    """The message that a JSON value is.

    Raises:
        BadRequest: it is no object with a text as ``type``, or a known field is wrong.
    """
    if type(value) is not dict:
        raise BadRequest("a message must be a JSON object")
    name = value.get("type")
    if type(name) is not str:
        raise BadRequest("a message must have a 'type'", field="type")
    cls = MESSAGES.get(name)
    if cls is None:
        number = value.get("id")
        return Unknown(name[:NAME], number if type(number) in {str, int} else None)
    message: Message = decode(cls, value)
    return message


def encode_message(message: Message) -> dict[str, Any]:
    """The JSON object of a message."""
    return {"type": message.type, **encode(message)}
