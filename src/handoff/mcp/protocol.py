"""The server's side of the Model Context Protocol, without I/O.

:meth:`Protocol.receive` takes one line and says what to do: bytes to send, calls to carry
out. :meth:`Protocol.finish` takes a call's outcome and gives the bytes to send, or none if
the client has withdrawn the call meanwhile.

Two eras of the protocol are spoken, each request in its own:

- with a handshake (2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25): ``initialize`` first. A
  version that is not known is answered with the newest of these, as the specification says.
  Batches of messages are taken in the two older ones, which have them.
- without (2026-07-28): every request carries its version in ``_meta``, ``server/discover``
  tells what there is, and results say that they are complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from handoff.mcp.lines import decode, encode

__all__ = [
    "HANDSHAKE",
    "MAX_RUNNING",
    "STATELESS",
    "Call",
    "Client",
    "Protocol",
    "Send",
    "Tool",
]

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = ("2026-07-28",)
_BATCHED = HANDSHAKE[:2]
_STRUCTURED = (*HANDSHAKE[2:], *STATELESS)
_ANNOTATED = (*HANDSHAKE[1:], *STATELESS)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
BUSY = -32000
UNSUPPORTED_VERSION = -32022

_VERSION = "io.modelcontextprotocol/protocolVersion"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_CLIENT = "io.modelcontextprotocol/clientInfo"
_SERVER = "io.modelcontextprotocol/serverInfo"

#: calls at a time, running or waiting for their turn
MAX_RUNNING = 64
#: messages in one batch
MAX_BATCH = 64

Id = int | str


class Tool(NamedTuple):
    """A tool as it is offered."""

    name: str
    title: str
    description: str
    schema: Mapping[str, Any]
    output: Mapping[str, Any]
    annotations: Mapping[str, Any]


class Client(NamedTuple):
    """The program at the other end, as it calls itself; "" if it does not say."""

    name: str = ""
    version: str = ""


class Batch:
    """Replies that go out together, once there is one for each request."""

    def __init__(self) -> None:
        self.waiting = 0
        self.replies: list[dict[str, Any]] = []


class Send(NamedTuple):
    """These bytes go to the client."""

    data: bytes


class Call(NamedTuple):
    """A tool is to be called. ``meta``: what the host (not the model) says with it."""

    id: Id
    tool: str
    arguments: dict[str, Any]
    meta: Mapping[str, Any]
    client: Client
    version: str
    batch: Batch | None


class _Fault(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class Protocol:
    """One connection.

    Args:
        tools: what is offered.
        name, version: of this server.
        instructions: for the model, how the tools belong together.
    """

    def __init__(self, tools: Sequence[Tool], name: str, version: str, instructions: str) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._info = {"name": name, "version": version}
        self._instructions = instructions
        self._version = ""
        self._client = Client()
        self._running: dict[Id, Call] = {}

    # -- what comes in -------------------------------------------------------------------

    def receive(self, line: bytes | None) -> list[Send | Call]:
        """What one line (None: one that was too long) asks for. Never raises."""
        if line is None:
            return [self._refusal(None, INVALID_REQUEST, "the message is too long")]
        if not line.strip():
            return []
        try:
            value = decode(line)
        except ValueError as error:
            return [self._refusal(None, PARSE_ERROR, f"that is not JSON: {_reason(error)}")]
        if isinstance(value, list):
            return self._batch(value)
        return self._message(value, None)

    def _batch(self, values: list[Any]) -> list[Send | Call]:
        if self._version not in _BATCHED:
            told = f"protocol {self._version or 'not agreed on'} has no batches"
            return [self._refusal(None, INVALID_REQUEST, told)]
        if not 0 < len(values) <= MAX_BATCH:
            return [self._refusal(None, INVALID_REQUEST, f"a batch has 1 to {MAX_BATCH} messages")]
        batch = Batch()
        outputs: list[Send | Call] = []
        batch.waiting = 1  # itself, until all its messages were looked at
        for value in values:
            outputs += self._message(value, batch)
        batch.waiting -= 1
        return [*outputs, *self._flush(batch)]

    def _message(self, value: Any, batch: Batch | None) -> list[Send | Call]:
        if not isinstance(value, dict):
            return self._refuse(None, batch, INVALID_REQUEST, "a message is a JSON object")
        number, method = value.get("id"), value.get("method")
        if method is None and ("result" in value or "error" in value):
            return []  # an answer, and nothing was asked
        known = number if isinstance(number, int | str) and not isinstance(number, bool) else None
        if value.get("jsonrpc") != "2.0" or not isinstance(method, str):
            return self._refuse(known, batch, INVALID_REQUEST, "that is no JSON-RPC 2.0 message")
        if "id" not in value:
            return self._notification(method, value.get("params"))
        if known is None:
            return self._refuse(None, batch, INVALID_REQUEST, "an id is a text or a whole number")
        if known in self._running:
            return self._refuse(known, batch, INVALID_REQUEST, "a request with that id is running")
        try:
            return self._request(known, method, value.get("params"), batch)
        except _Fault as fault:
            return self._refuse(known, batch, fault.code, fault.message, fault.data)

    def _notification(self, method: str, params: Any) -> list[Send | Call]:
        """Only a withdrawal matters. One of a call that has ended, or never was, is no fault:
        both cross on their way."""
        if method != "notifications/cancelled" or not isinstance(params, dict):
            return []
        number = params.get("requestId")
        if not isinstance(number, int | str) or isinstance(number, bool):
            return []
        call = self._running.pop(number, None)
        if call is None or call.batch is None:
            return []
        call.batch.waiting -= 1
        return self._flush(call.batch)

    def _request(
        self, number: Id, method: str, params: Any, batch: Batch | None
    ) -> list[Send | Call]:
        if params is None:
            params = {}
        if not isinstance(params, dict):
            raise _Fault(INVALID_PARAMS, "params is a JSON object")
        meta = params.get("_meta", {})
        if not isinstance(meta, dict):
            raise _Fault(INVALID_PARAMS, "_meta is a JSON object")
        if method == "initialize":
            return self._reply(number, batch, self._initialize(params))
        version, client = self._era(meta)
        if method == "ping" and version not in STATELESS:
            return self._reply(number, batch, {})
        if not version:
            raise _Fault(INVALID_REQUEST, "initialize comes first")
        if method == "server/discover" and version in STATELESS:
            return self._reply(
                number, batch, self._complete(version, self._discover(), cached=True)
            )
        if method == "tools/list":
            listed = {"tools": self._list(params, version)}
            return self._reply(number, batch, self._complete(version, listed, cached=True))
        if method == "tools/call":
            call = self._call(number, params, meta, client, version, batch)
            self._running[number] = call
            if batch is not None:
                batch.waiting += 1
            return [call]
        raise _Fault(METHOD_NOT_FOUND, f"there is no method {_short(method)}")

    def _era(self, meta: Mapping[str, Any]) -> tuple[str, Client]:
        """The version that a request is in, and who sends it."""
        if _VERSION not in meta:
            return self._version, self._client
        version = meta[_VERSION]
        if version not in STATELESS:
            told = {"supported": [*HANDSHAKE, *STATELESS], "requested": _short(version)}
            raise _Fault(UNSUPPORTED_VERSION, "that version has no requests by themselves", told)
        if not isinstance(meta.get(_CAPABILITIES), dict):
            raise _Fault(INVALID_PARAMS, f"_meta lacks {_CAPABILITIES}")
        return str(version), _client(meta.get(_CLIENT))

    # -- answers -------------------------------------------------------------------------

    def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        wanted = params.get("protocolVersion")
        if not isinstance(wanted, str):
            raise _Fault(INVALID_PARAMS, "protocolVersion is a text")
        self._version = wanted if wanted in HANDSHAKE else HANDSHAKE[-1]
        self._client = _client(params.get("clientInfo"))
        return {
            "protocolVersion": self._version,
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": self._info,
            "instructions": self._instructions,
        }

    def _discover(self) -> dict[str, Any]:
        return {
            "supportedVersions": [*STATELESS],
            "capabilities": {"tools": {}},
            "instructions": self._instructions,
        }

    def _complete(
        self, version: str, result: dict[str, Any], *, cached: bool = False
    ) -> dict[str, Any]:
        """A result with what its version wants besides."""
        if version not in STATELESS:
            return result
        more: dict[str, Any] = {"resultType": "complete", "_meta": {_SERVER: self._info}}
        if cached:  # it never changes while this server runs
            more |= {"ttlMs": 3_600_000, "cacheScope": "public"}
        return {**result, **more}

    def _list(self, params: Mapping[str, Any], version: str) -> list[dict[str, Any]]:
        if params.get("cursor") is not None:
            raise _Fault(INVALID_PARAMS, "there is one page, and no cursor leads to another")
        listed = []
        for tool in self._tools.values():
            one: dict[str, Any] = {"name": tool.name, "description": tool.description}
            one["inputSchema"] = tool.schema
            if version in _ANNOTATED:
                one["annotations"] = {"title": tool.title, **tool.annotations}
            if version in _STRUCTURED:
                one |= {"title": tool.title, "outputSchema": tool.output}
            listed.append(one)
        return listed

    def _call(
        self,
        number: Id,
        params: Mapping[str, Any],
        meta: Mapping[str, Any],
        client: Client,
        version: str,
        batch: Batch | None,
    ) -> Call:
        name, arguments = params.get("name"), params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or name not in self._tools:
            raise _Fault(INVALID_PARAMS, f"there is no tool {_short(name)}")
        if not isinstance(arguments, dict):
            raise _Fault(INVALID_PARAMS, "arguments is a JSON object")
        if len(self._running) >= MAX_RUNNING:
            raise _Fault(BUSY, f"{MAX_RUNNING} calls are under way; wait for one of them")
        return Call(number, name, arguments, meta, client, version, batch)

    def finish(self, call: Call, reply: Mapping[str, Any]) -> bytes:
        """A call's outcome as bytes to send; none if it was withdrawn. ``reply``: a JSON
        object whose ``ok`` says whether the tool did what it was asked."""
        if self.withdrawn(call):
            return b""
        del self._running[call.id]
        result: dict[str, Any] = {
            "content": [{"type": "text", "text": _text(reply)}],
            "isError": reply.get("ok") is not True,
        }
        if call.version in _STRUCTURED:
            result["structuredContent"] = reply
        if call.batch is not None:
            call.batch.waiting -= 1
        whole = self._complete(call.version, result)
        sent = self._reply(call.id, call.batch, whole)
        return b"".join(one.data for one in sent if isinstance(one, Send))

    def withdrawn(self, call: Call) -> bool:
        """Whether nobody waits for that call any more."""
        return self._running.get(call.id) is not call

    # -- sending -------------------------------------------------------------------------

    def _reply(self, number: Id, batch: Batch | None, result: Any) -> list[Send | Call]:
        return self._out(batch, {"jsonrpc": "2.0", "id": number, "result": result})

    def _refuse(
        self, number: Id | None, batch: Batch | None, code: int, message: str, data: Any = None
    ) -> list[Send | Call]:
        error = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        return self._out(batch, {"jsonrpc": "2.0", "id": number, "error": error})

    def _refusal(self, number: Id | None, code: int, message: str) -> Send:
        body = {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}
        return Send(encode(body))

    def _out(self, batch: Batch | None, message: dict[str, Any]) -> list[Send | Call]:
        if batch is None:
            return [Send(encode(message))]
        batch.replies.append(message)
        return self._flush(batch)

    def _flush(self, batch: Batch) -> list[Send | Call]:
        if batch.waiting or not batch.replies:
            return []
        replies, batch.replies = batch.replies, []
        return [Send(encode(replies))]


def _client(value: Any) -> Client:
    if not isinstance(value, dict):
        return Client()
    name, version = value.get("name"), value.get("version")
    return Client(
        name[:100] if isinstance(name, str) else "",
        version[:100] if isinstance(version, str) else "",
    )


def _text(reply: Mapping[str, Any]) -> str:
    return encode(reply)[:-1].decode("utf-8")


def _short(value: Any) -> str:
    """A name that came in, safe to repeat."""
    text = value if isinstance(value, str) else type(value).__name__
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text[:64])


def _reason(error: ValueError) -> str:
    """Where it is wrong, without the text that is."""
    place = getattr(error, "pos", None)
    if isinstance(place, int):
        return f"{getattr(error, 'msg', 'malformed')} at character {place}"
    return "malformed" if isinstance(error, UnicodeDecodeError) else str(error)[:100]
