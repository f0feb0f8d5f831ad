"""The protocol without I/O: every message gets its answer, and only its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from handoff.mcp.protocol import HANDSHAKE, MAX_RUNNING, STATELESS, Call, Protocol, Send, Tool

TOOL = Tool(
    "do",
    "Do it",
    "Does it.",
    {"type": "object"},
    {"type": "object"},
    {"readOnlyHint": False},
)
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": STATELESS[0],
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "modern", "version": "2"},
}


def made() -> Protocol:
    return Protocol([TOOL], "handoff", "1.0", "how to")


def line(method: str, params: Any = None, number: Any = 1, **more: Any) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, **more}
    if params is not None:
        message["params"] = params
    return json.dumps(message).encode()


def ask(protocol: Protocol, method: str, params: Any = None, number: Any = 1) -> dict[str, Any]:
    """A request that is answered at once."""
    [output] = protocol.receive(line(method, params, number))
    assert isinstance(output, Send)
    answer: dict[str, Any] = json.loads(output.data)
    assert answer["jsonrpc"] == "2.0"
    assert answer["id"] == number
    return answer


def error(protocol: Protocol, data: bytes | None) -> tuple[Any, int]:
    [output] = protocol.receive(data)
    assert isinstance(output, Send)
    answer = json.loads(output.data)
    assert set(answer) == {"jsonrpc", "id", "error"}
    return answer["id"], answer["error"]["code"]


def hello(version: str = HANDSHAKE[-1], name: str = "client") -> Protocol:
    protocol = made()
    params = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": name, "version": "1"},
    }
    ask(protocol, "initialize", params)
    assert protocol.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}') == []
    return protocol


def call(protocol: Protocol, number: Any = 7, **params: Any) -> Call:
    whole = {"name": "do", "arguments": {"a": 1}, **params}
    [found] = protocol.receive(line("tools/call", whole, number))
    assert isinstance(found, Call)
    return found


# -- with a handshake ----------------------------------------------------------------------


@pytest.mark.parametrize("version", HANDSHAKE)
def test_a_version_that_is_known_is_agreed_on(version: str) -> None:
    found = ask(made(), "initialize", {"protocolVersion": version})["result"]
    assert found["protocolVersion"] == version
    assert found["serverInfo"] == {"name": "handoff", "version": "1.0"}
    assert found["capabilities"] == {"tools": {"listChanged": False}}
    assert found["instructions"] == "how to"


@pytest.mark.parametrize("version", ["2026-07-28", "2099-01-01", "", "1"])
def test_another_version_is_answered_with_the_newest(version: str) -> None:
    found = ask(made(), "initialize", {"protocolVersion": version})["result"]
    assert found["protocolVersion"] == HANDSHAKE[-1]


@pytest.mark.parametrize("params", [None, {}, {"protocolVersion": 1}, {"protocolVersion": None}])
def test_a_handshake_without_a_version_is_refused(params: Any) -> None:
    assert ask(made(), "initialize", params)["error"]["code"] == -32602


def test_before_the_handshake_there_is_only_ping() -> None:
    protocol = made()
    assert ask(protocol, "ping")["result"] == {}
    for method in ("tools/list", "tools/call", "resources/list"):
        assert ask(protocol, method)["error"]["code"] == -32600


def test_what_an_older_version_does_not_know_is_left_out() -> None:
    seen = {}
    for version in HANDSHAKE:
        protocol = hello(version)
        [tool] = ask(protocol, "tools/list")["result"]["tools"]
        result = json.loads(protocol.finish(call(protocol), {"ok": True}))["result"]
        seen[version] = (set(tool) - {"name", "description", "inputSchema"}, set(result))
    plain = {"content", "isError"}
    assert seen[HANDSHAKE[0]] == (set(), plain)
    assert seen[HANDSHAKE[1]] == ({"annotations"}, plain)
    for version in HANDSHAKE[2:]:
        more = {"annotations", "title", "outputSchema"}
        assert seen[version] == (more, {*plain, "structuredContent"})


# -- without -------------------------------------------------------------------------------


def test_a_request_may_speak_for_itself() -> None:
    protocol = made()
    found = ask(protocol, "server/discover", {"_meta": ENVELOPE})["result"]
    assert found["supportedVersions"] == [*STATELESS]
    assert found["resultType"] == "complete"
    assert found["ttlMs"] > 0
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "handoff"
    listed = ask(protocol, "tools/list", {"_meta": ENVELOPE})["result"]
    assert listed["resultType"] == "complete"
    assert listed["cacheScope"] == "public"
    made_call = call(protocol, _meta={**ENVELOPE, "threadId": "t"})
    assert made_call.client.name == "modern"
    assert made_call.meta["threadId"] == "t"
    result = json.loads(protocol.finish(made_call, {"ok": True}))["result"]
    assert result["resultType"] == "complete"
    assert "ttlMs" not in result
    assert ask(protocol, "ping", {"_meta": ENVELOPE})["error"]["code"] == -32601


def test_a_version_that_is_not_spoken_gets_those_that_are() -> None:
    meta = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    found = ask(made(), "server/discover", {"_meta": meta})["error"]
    assert found["code"] == -32022
    assert found["data"] == {"supported": [*HANDSHAKE, *STATELESS], "requested": "2099-01-01"}


def test_an_envelope_without_capabilities_is_refused() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": STATELESS[0]}
    assert ask(made(), "server/discover", {"_meta": meta})["error"]["code"] == -32602


def test_a_probe_without_an_envelope_is_told_to_shake_hands() -> None:
    assert ask(made(), "server/discover")["error"]["code"] == -32600
    assert ask(hello(), "server/discover")["error"]["code"] == -32601


# -- calls ---------------------------------------------------------------------------------


def test_a_call_and_its_answer() -> None:
    protocol = hello(name="agent")
    found = call(protocol, number="x", _meta={"k": 1})
    assert (found.id, found.tool, found.arguments, found.meta) == ("x", "do", {"a": 1}, {"k": 1})
    assert found.client.name == "agent"
    answer = json.loads(protocol.finish(found, {"ok": True, "n": 1}))
    assert answer["id"] == "x"
    assert answer["result"]["isError"] is False
    assert answer["result"]["structuredContent"] == {"ok": True, "n": 1}
    assert json.loads(answer["result"]["content"][0]["text"]) == {"ok": True, "n": 1}


@pytest.mark.parametrize("reply", [{"ok": False, "code": "x"}, {}, {"ok": "true"}])
def test_a_refusal_of_the_tool_is_a_result_that_says_so(reply: dict[str, Any]) -> None:
    protocol = hello()
    answer = json.loads(protocol.finish(call(protocol), reply))
    assert answer["result"]["isError"] is True
    assert answer["result"]["structuredContent"] == reply


def test_arguments_may_be_left_out() -> None:
    protocol = hello()
    assert call(protocol, 1, arguments=None).arguments == {}
    [found] = protocol.receive(line("tools/call", {"name": "do"}, 2))
    assert isinstance(found, Call)
    assert found.arguments == {}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": "other"},
        {"name": 1},
        {"name": "do", "arguments": []},
        {"name": "do", "arguments": "a"},
        {"name": "do", "_meta": 1},
        [],
        "do",
    ],
)
def test_a_call_of_the_wrong_shape_is_an_error_of_the_protocol(params: Any) -> None:
    assert ask(hello(), "tools/call", params)["error"]["code"] == -32602


def test_a_withdrawn_call_has_no_answer_and_its_id_is_free() -> None:
    protocol = hello()
    first = call(protocol, 3)
    gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}}
    assert protocol.receive(json.dumps(gone).encode()) == []
    assert protocol.withdrawn(first)
    second = call(protocol, 3)
    assert protocol.finish(first, {"ok": True}) == b""
    assert json.loads(protocol.finish(second, {"ok": True}))["id"] == 3
    assert protocol.finish(second, {"ok": True}) == b""


@pytest.mark.parametrize("params", [None, [], {}, {"requestId": None}, {"requestId": True}, 7])
def test_a_withdrawal_of_nothing_is_no_fault(params: Any) -> None:
    gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    assert hello().receive(json.dumps(gone).encode()) == []


def test_an_id_that_runs_can_not_be_used_again() -> None:
    protocol = hello()
    call(protocol, 1)
    assert error(protocol, line("ping", number=1)) == (1, -32600)
    assert ask(protocol, "ping", number="1")["result"] == {}


def test_too_many_calls_at_a_time_are_refused_and_the_next_is_taken() -> None:
    protocol = hello()
    running = [call(protocol, number) for number in range(MAX_RUNNING)]
    assert error(protocol, line("tools/call", {"name": "do"}, 999)) == (999, -32000)
    protocol.finish(running[0], {"ok": True})
    call(protocol, 999)


# -- batches -------------------------------------------------------------------------------


def batch(*messages: bytes) -> bytes:
    return b"[" + b",".join(messages) + b"]"


def test_a_batch_is_answered_as_one_when_its_last_call_ends() -> None:
    protocol = hello("2025-03-26")
    note = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    calls = protocol.receive(
        batch(
            line("ping", number=1),
            line("tools/call", {"name": "do"}, 2),
            note,
            line("tools/call", {"name": "do"}, 3),
            b"7",
        )
    )
    first, second = calls
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert protocol.finish(second, {"ok": True}) == b""
    answers = json.loads(protocol.finish(first, {"ok": True}))
    assert sorted(str(one["id"]) for one in answers) == ["1", "2", "3", "None"]


def test_a_batch_does_not_wait_for_a_withdrawn_call() -> None:
    protocol = hello("2024-11-05")
    one, two = protocol.receive(
        batch(line("tools/call", {"name": "do"}, 2), line("tools/call", {"name": "do"}, 3))
    )
    assert isinstance(one, Call)
    assert isinstance(two, Call)
    gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    assert protocol.receive(json.dumps(gone).encode()) == []
    assert [a["id"] for a in json.loads(protocol.finish(two, {"ok": True}))] == [3]
    assert protocol.finish(one, {"ok": True}) == b""


def test_a_batch_of_notifications_has_no_answer() -> None:
    note = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    assert hello("2025-03-26").receive(batch(note, note)) == []


@pytest.mark.parametrize("version", HANDSHAKE[2:])
def test_a_version_without_batches_refuses_them(version: str) -> None:
    assert error(hello(version), batch(line("ping"))) == (None, -32600)


def test_a_batch_has_a_size() -> None:
    assert error(hello("2025-03-26"), b"[]") == (None, -32600)
    assert error(hello("2025-03-26"), batch(*[line("ping")] * 65)) == (None, -32600)
    assert error(made(), batch(line("ping"))) == (None, -32600)


# -- what is no message --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, (None, -32600)),
        (b"nonsense", (None, -32700)),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', (None, -32700)),
        (b"\xff\xfe", (None, -32700)),
        (b"1", (None, -32600)),
        (b'"x"', (None, -32600)),
        (b"{}", (None, -32600)),
        (b'{"id":1,"method":"ping"}', (1, -32600)),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', (1, -32600)),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', (1, -32600)),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', (None, -32600)),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', (None, -32600)),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', (None, -32600)),
        (b'{"jsonrpc":"2.0","id":[],"method":"ping"}', (None, -32600)),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', (1, -32602)),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}', (1, -32602)),
        (b'{"jsonrpc":"2.0","id":1,"method":"no/such"}', (1, -32601)),
        (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', (1, -32601)),
    ],
)
def test_what_is_no_message_gets_an_error_and_nothing_else_happens(
    data: bytes | None, expected: tuple[Any, int]
) -> None:
    protocol = hello()
    assert error(protocol, data) == expected
    assert ask(protocol, "ping")["result"] == {}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"   ",
        b"\r",
        b'{"jsonrpc":"2.0","id":9,"result":{}}',
        b'{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","method":"notifications/unknown"}',
        b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"do"}}',
    ],
)
def test_what_wants_no_answer_gets_none(data: bytes) -> None:
    assert hello().receive(data) == []


def test_an_error_repeats_nothing_that_could_harm_a_terminal() -> None:
    [output] = hello().receive(line("\x1b[2J" + "x" * 500))
    assert isinstance(output, Send)
    message = json.loads(output.data)["error"]["message"]
    assert "\x1b" not in message
    assert len(message) < 120


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": st.integers(0, 3) | JSON,
        "method": st.sampled_from(
            ["initialize", "ping", "tools/list", "tools/call", "notifications/cancelled"]
        )
        | st.text(max_size=8),
        "params": JSON
        | st.fixed_dictionaries(
            {"name": st.just("do")},
            optional={"arguments": JSON, "_meta": JSON, "requestId": JSON, "cursor": JSON},
        ),
        "result": JSON,
    },
)


@settings(max_examples=400)
@given(st.sampled_from(["", *HANDSHAKE]), st.lists(MESSAGES | JSON, max_size=6))
def test_whatever_comes_in_what_goes_out_is_a_message(version: str, values: list[Any]) -> None:
    protocol = hello(version) if version else made()
    for value in values:
        for output in protocol.receive(json.dumps(value).encode()):
            if isinstance(output, Call):
                assert isinstance(output.arguments, dict)
                continue
            answer = json.loads(output.data)
            for one in answer if isinstance(answer, list) else [answer]:
                assert one["jsonrpc"] == "2.0"
                assert ("result" in one) != ("error" in one)


@given(st.binary(max_size=300))
def test_noise_gets_one_error_at_most(data: bytes) -> None:
    assert len(hello().receive(data)) <= 1


class Traffic(RuleBasedStateMachine):
    """Calls that begin, end and are withdrawn in any order: each id is answered once, or was
    withdrawn."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol = hello()
        self.running: dict[int, Call] = {}
        self.stale: list[Call] = []

    @rule(number=st.integers(0, 5))
    def begin(self, number: int) -> None:
        [output] = self.protocol.receive(line("tools/call", {"name": "do"}, number))
        if number in self.running:
            assert isinstance(output, Send)
        else:
            assert isinstance(output, Call)
            self.running[number] = output

    @rule(number=st.integers(0, 5))
    def end(self, number: int) -> None:
        found = self.running.pop(number, None)
        if found is not None:
            assert json.loads(self.protocol.finish(found, {"ok": True}))["id"] == number
            self.stale.append(found)

    @rule(number=st.integers(0, 5))
    def withdraw(self, number: int) -> None:
        gone = {"requestId": number}
        data = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone}
        assert self.protocol.receive(json.dumps(data).encode()) == []
        found = self.running.pop(number, None)
        if found is not None:
            self.stale.append(found)

    @invariant()
    def nothing_that_ended_is_answered_again(self) -> None:
        for found in self.stale[-5:]:
            assert self.protocol.finish(found, {"ok": True}) == b""
        assert not any(self.protocol.withdrawn(found) for found in self.running.values())


TestTraffic = Traffic.TestCase
