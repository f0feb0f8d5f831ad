"""The handshake: who is let in, who is not, and what each is told."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from tests.support.nodelink import (
    BRAIN,
    BRAIN_KEY,
    BY_HASH,
    BY_KEY,
    BY_TOKEN,
    KEYED,
    NODE_KEY,
    TOKEN,
    Raw,
    Wires,
    brain_link,
    node_link,
)

from handoff.clock import FakeClock
from handoff.link.ciphers import CIPHERS
from handoff.wire.node import events as ev
from handoff.wire.node.calls import Exec, ExecResult
from handoff.wire.node.closing import REASONS
from handoff.wire.node.features import Features
from handoff.wire.node.options import BrainOptions, NodeOptions
from handoff.wire.node.sealing import Handshake, RandomSeal, b64url, from_b64url

TOKENED = NodeOptions("lab", token=TOKEN)
UNSEALED = dataclasses.replace(TOKENED, seal=False)
PLUGIN = dataclasses.replace(TOKENED, plugin=True)

#: what each released node says first
HELLOS: dict[str, dict[str, Any]] = {
    "v0.1.0": {
        "arch": "amd64",
        "capabilities": ["exec", "read", "write"],
        "node_name": "lab",
        "node_version": "0.1.0",
        "platform": "linux",
        "protocol_version": "0.1.0",
        "ts": "2026-09-01T08:00:00.000Z",
        "type": "hello",
    },
}
for _version in ("0.1.1", "0.1.2", "0.1.3", "0.1.4"):
    HELLOS[f"v{_version}"] = {**HELLOS["v0.1.0"], "node_version": _version}
HELLOS["v0.2.0"] = {
    **HELLOS["v0.1.0"],
    "node_version": "dev",
    "capabilities": ["exec", "exec_chunk", "read", "write"],
    "e2e": True,
    "ecdh_pub": "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9_AsrhtHHw",
}


def hello(**more: Any) -> str:
    return json.dumps({**HELLOS["v0.1.4"], **more})


def auth(**more: Any) -> str:
    return json.dumps({"type": "auth", "node_name": "lab", **more})


class Server(Raw):
    """A brain's link, with a hand for a node."""

    def __init__(
        self, credential: ev.Credential | None = BY_HASH, options: BrainOptions = BRAIN
    ) -> None:
        self.clock = FakeClock()
        self.brain = brain_link(self.clock, options)
        self.credential = credential
        super().__init__(self.brain)

    def say(self, frame: Any) -> list[Any]:
        found = super().say(frame)
        for event in list(self.seen):
            if isinstance(event, ev.Identify):
                self.seen.remove(event)
                self.brain.identify(self.credential)
            if isinstance(event, ev.Admit):
                self.seen.remove(event)
                self.brain.admit()
        return [json.loads(f) if isinstance(f, str) else f for f in found + self.heard()]

    def closed(self) -> tuple[int, str]:
        close = self.brain.closing
        assert close is not None
        assert close.text.startswith(close.reason)
        assert len(close.text.encode()) <= 123
        return close.code, close.reason


# -- the table of refusals ---------------------------------------------------------------


def test_a_legacy_node_is_let_in() -> None:
    server = Server()
    (ack,) = server.say(hello())
    assert ack == {
        "type": "hello_ack",
        "protocol_version": "0.1.0",
        "session_id": ack["session_id"],
        "server_time": "2023-11-14T22:13:20.000Z",
        "capabilities": ["exec", "read", "write"],
    }
    (ok,) = server.say(auth(token=TOKEN, ts="x"))
    assert ok == {"type": "auth_ok", "session_id": ack["session_id"]}
    (opened,) = server.saw(ev.Opened)
    assert opened.features == Features()
    assert not opened.features.ws_ping


@pytest.mark.parametrize("version", HELLOS)
@pytest.mark.parametrize("credential", [BY_HASH, BY_TOKEN])
def test_every_released_nodes_hello_is_accepted(version: str, credential: Any) -> None:
    server = Server(credential)
    (ack,) = server.say(json.dumps({**HELLOS[version], "from_the_future": {"a": [1]}}))
    assert ack["type"] == "hello_ack"
    assert ("ecdh_pub" in ack) is (version == "v0.2.0" and bool(credential.token))


@pytest.mark.parametrize("version", ["0", "0.9.3", "0.1.0-draft"])
def test_minor_versions_are_echoed(version: str) -> None:
    (ack,) = Server().say(hello(protocol_version=version))
    assert ack["protocol_version"] == version


def test_a_minimal_hello_is_accepted() -> None:
    said = json.dumps({"type": "hello", "protocol_version": "0.1.0", "node_name": "lab"})
    assert Server().say(said)[0]["type"] == "hello_ack"


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        ('{"type":"auth","node_name":"lab","token":"x"}', 4003, "expected_hello"),
        ('{"type":"ping"}', 4003, "expected_hello"),
        ('{"type":"hello_ack"}', 4003, "expected_hello"),
        ("{}", 4003, "expected_hello"),
        ('{"type":7}', 4003, "expected_hello"),
        ("[1]", 4003, "expected_hello"),
        ("3", 4003, "expected_hello"),
        ("null", 4003, "expected_hello"),
        ("not JSON", 4003, "malformed_frame"),
        ('{"type":"hello"', 4003, "malformed_frame"),
        ('{"type":NaN}', 4003, "malformed_frame"),
        ("[" * 4000, 4003, "malformed_frame"),
        (b"\0\1binary", 4003, "malformed_frame"),
        (hello(node_name="   "), 4003, "bad_hello"),
        (hello(node_name=""), 4003, "bad_hello"),
        (hello(node_name="x" * 65), 4003, "bad_hello"),
        (hello(node_name="a\nb"), 4003, "bad_hello"),
        (hello(node_name="a\u202eb"), 4003, "bad_hello"),
        (hello(platform="\x1b[31m"), 4003, "bad_hello"),
        (hello(node_name=7), 4003, "bad_hello"),
        (hello(node_name="\ud83d"), 4003, "bad_hello"),
        ('{"type":"hello","node_name":"lab"}', 4003, "bad_hello"),
        (hello(node_version="x" * 33), 4003, "bad_hello"),
        (hello(ts="x" * 33), 4003, "bad_hello"),
        (hello(capabilities=["x"] * 17), 4003, "bad_hello"),
        (hello(capabilities=["x" * 33]), 4003, "bad_hello"),
        (hello(capabilities="exec"), 4003, "bad_hello"),
        (hello(ecdh_pub="AAAA", e2e=True), 4003, "bad_hello"),
        (hello(ecdh_pub="=" * 44, e2e=True), 4003, "bad_hello"),
        (hello(protocol_version="1.0.0"), 4002, "unsupported_protocol_version"),
        (hello(protocol_version="abc"), 4002, "unsupported_protocol_version"),
        (hello(protocol_version=""), 4002, "unsupported_protocol_version"),
        (hello(extra="x" * 9000), 1009, "frame_too_big"),
    ],
)
def test_a_wrong_first_message_is_told_why(frame: Any, code: int, reason: str) -> None:
    server = Server()
    (said,) = server.say(frame)
    assert said["type"] == "hello_err"
    assert (said["code"], said["reason"]) == (code, reason)
    assert said["detail"]
    assert ("server_max_version" in said) is (code == 4002)
    assert server.closed() == (code, reason)
    (ended,) = server.saw(ev.Ended)
    assert ended.close.final is REASONS[reason].final
    assert server.say(hello()) == []  # nothing after the end


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        (hello(), 4003, "expected_auth"),
        ('{"type":"exec","command":"true"}', 4003, "expected_auth"),
        ("[1]", 4003, "expected_auth"),
        ("not JSON", 4003, "malformed_frame"),
        (auth(), 4003, "bad_auth"),
        (auth(token="x" * 65), 4003, "bad_auth"),
        (auth(proof="abc"), 4003, "bad_auth"),
        (auth(token=TOKEN, proof="abc"), 4003, "bad_auth"),
        (auth(token=7), 4003, "bad_auth"),
        ('{"type":"auth","token":"x"}', 4003, "bad_auth"),
        (json.dumps({"type": "auth", "node_name": "other", "token": TOKEN}), 4001, "unknown_node"),
        (auth(token="wrong"), 4001, "invalid_token"),
        (auth(token="wröng"), 4001, "invalid_token"),
        (auth(token=TOKEN[:-1]), 4001, "invalid_token"),
    ],
)
def test_a_wrong_second_message_is_told_why(frame: Any, code: int, reason: str) -> None:
    server = Server()
    server.say(hello())
    (said,) = server.say(frame)
    assert said["type"] == "auth_err"
    assert (said["code"], said["reason"]) == (code, reason)
    assert server.closed() == (code, reason)
    assert not server.saw(ev.Opened)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_name_that_does_not_exist_is_refused_as_a_wrong_token_is(sealed: bool) -> None:
    server = Server(credential=None)
    (ack,) = server.say(json.dumps(HELLOS["v0.2.0"]) if sealed else hello())
    assert ack["type"] == "hello_ack"
    assert ("ecdh_pub" in ack) is sealed  # so that nobody is asked for a token in clear
    shown = {"proof": b64url(bytes(32))} if sealed else {"token": TOKEN}
    (said,) = server.say(auth(**shown))
    assert (said["reason"], said["code"]) == ("invalid_token", 4001)


def test_a_revoked_node_is_told_so_only_with_the_right_token() -> None:
    revoked = dataclasses.replace(BY_HASH, revoked=True)
    for token, code, reason in ((TOKEN, 4006, "revoked"), ("wrong", 4001, "invalid_token")):
        server = Server(revoked)
        server.say(hello())
        server.say(auth(token=token))
        assert server.closed() == (code, reason)


def test_each_step_has_its_own_time() -> None:
    silent = Server()
    silent.clock.advance(9.9)
    silent.brain.tick()
    assert silent.heard() == []
    assert silent.brain.wake_at() == 10.0
    silent.clock.advance(0.1)
    silent.brain.tick()
    (said,) = silent.heard()
    assert json.loads(said)["type"] == "hello_err"
    assert silent.closed() == (4005, "handshake_timeout")

    half = Server()
    half.clock.advance(9.0)
    half.say(hello())
    half.clock.advance(9.9)
    half.brain.tick()
    assert half.heard() == []
    half.clock.advance(0.2)
    half.brain.tick()
    (said,) = half.heard()
    assert json.loads(said)["type"] == "auth_err"
    assert half.closed() == (4005, "handshake_timeout")


def test_the_program_may_refuse_who_is_known() -> None:
    server = Server()
    server.link.receive(hello())
    server.brain.events()
    server.brain.refuse("not_now", "the brain is ending")
    (said,) = server.heard()
    assert json.loads(said) == {
        "type": "hello_err",
        "reason": "not_now",
        "code": 1012,
        "detail": "the brain is ending",
    }

    wires = Wires()
    wires.admits = False
    wires.pump()
    (admit,) = wires.brain_saw(ev.Admit)
    assert admit.features.method == "key"
    wires.brain.refuse("name_in_use", "since 10:00, from 10.0.0.7")
    wires.pump()
    assert wires.node.closing is not None
    assert wires.node.closing.final
    assert wires.node.closing.detail == "since 10:00, from 10.0.0.7"


def test_nothing_is_said_while_the_program_decides() -> None:
    server = Server()
    server.link.receive(hello())
    assert server.heard() == []
    server.link.receive(auth(token=TOKEN))
    server.heard()
    assert server.closed() == (4003, "unexpected_message")


# -- sealed sessions ---------------------------------------------------------------------

NODE_PRIVATE = bytes(range(1, 33))
BRAIN_PRIVATE = bytes(range(0x21, 0x41))
SALT = "ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1-f4CBgoM"
SESSION = "00000000-0000-4000-8000-000000000001"


def test_the_vector_of_the_go_node() -> None:
    public = CIPHERS.x25519_public(BRAIN_PRIVATE)
    assert b64url(CIPHERS.x25519_public(NODE_PRIVATE)) == HELLOS["v0.2.0"]["ecdh_pub"]
    assert b64url(public) == "WGmv9FBUlzLLqu1eXfmzCm2jHLDldCutWtShp2jxpns"
    shared = "a84dc7c3c8f058b1b2dc4cd1e9b5dc0a7987f88b6a9564cde3391fc421159e77"
    assert CIPHERS.x25519(NODE_PRIVATE, public).hex() == shared
    made = Handshake(CIPHERS, NODE_PRIVATE, public, from_b64url(SALT, 32), b"example-token-0001")
    assert b64url(made.client_proof()) == "32KynE70yKptzQB6VLrIRCanbSDKbOdOQ26kYh_7HkE"
    assert b64url(made.server_proof()) == "0oXB__exCgORhONQiJBG0apoctd3DMyq_3j0icHfrv4"
    key = made.session_key(SESSION)
    assert key.hex() == "a727d2de60cd0570818d44245ba6911d0b1ca285763a4e3f2848869397863beb"
    seal = RandomSeal(CIPHERS.aead(key), lambda size: bytes(range(size)))
    data = "AAECAwQFBgcICQoLtQGjKNdklnh7XzOAnwGGjOjMaPY_8E9sbLo9WaY-KWYORejipBZsWA"
    assert seal.seal(b'{"type":"ping","ts":"T"}') == data
    opener = RandomSeal(CIPHERS.aead(key), bytes)
    assert opener.open(data) == b'{"type":"ping","ts":"T"}'


class GoNode:
    """Node v0.2.0's end of a sealed session, written from its description."""

    def __init__(self, server: Server, token: str = TOKEN) -> None:
        self.server = server
        (self.ack,) = server.say(json.dumps(HELLOS["v0.2.0"]))
        self.made = Handshake(
            CIPHERS,
            NODE_PRIVATE,
            from_b64url(self.ack["ecdh_pub"], 32),
            from_b64url(self.ack["salt"], 32),
            token.encode(),
        )
        self.seal = RandomSeal(
            CIPHERS.aead(self.made.session_key(self.ack["session_id"])), _counting()
        )

    def auth(self) -> Any:
        (ok,) = self.server.say(auth(proof=b64url(self.made.client_proof())))
        return ok

    def say(self, message: dict[str, Any]) -> list[Any]:
        data = self.seal.seal(json.dumps(message).encode())
        return [self.open(f) for f in self.server.say(json.dumps({"type": "enc", "data": data}))]

    def open(self, frame: dict[str, Any]) -> Any:
        assert frame["type"] == "enc"
        return json.loads(self.seal.open(frame["data"]))


def _counting() -> Any:
    count = iter(range(1 << 30))
    return lambda size: next(count).to_bytes(size, "big")


def test_a_go_node_gets_a_sealed_session() -> None:
    server = Server(BY_TOKEN)
    node = GoNode(server)
    ok = node.auth()
    assert ok["proof"] == b64url(node.made.server_proof())
    (opened,) = server.saw(ev.Opened)
    assert (opened.features.sealed, opened.features.method) == ("v1", "proof")
    number = server.brain.call(Exec(command="true", timeout_ms=5000), key="key-0001")
    (frame,) = server.heard()
    asked = node.open(json.loads(frame))
    assert (asked["type"], asked["command"], asked["timeout_ms"]) == ("exec", "true", 5000)
    result = {"type": "exec_result", "id": asked["id"], "status": "ok", "exit_code": 0}
    assert node.say(result) == []
    (ended,) = server.saw(ev.CallEnded)
    assert (ended.id, ended.result.exit_code) == (number, 0)
    (pong,) = node.say({"type": "ping", "ts": "T"})
    assert (pong["type"], pong["echo_ts"]) == ("pong", "T")


def test_a_go_node_with_another_token_is_refused() -> None:
    server = Server(BY_TOKEN)
    said = GoNode(server, "another-token").auth()
    assert (said["type"], said["reason"]) == ("auth_err", "invalid_token")


def test_a_token_in_clear_is_not_taken_where_a_proof_was_asked_for() -> None:
    server = Server(BY_TOKEN)
    server.say(json.dumps(HELLOS["v0.2.0"]))
    server.say(auth(token=TOKEN))
    assert server.closed() == (4003, "bad_auth")


@pytest.mark.parametrize(
    "frame",
    ['{"type":"ping"}', '{"type":"exec_result","id":"x"}', '{"type":"zzz"}'],
)
def test_an_unsealed_message_ends_a_sealed_session(frame: str) -> None:
    server = Server(BY_TOKEN)
    GoNode(server).auth()
    server.say(frame)
    assert server.closed() == (4003, "plaintext_after_key")


def test_a_sealed_message_that_was_changed_ends_the_session() -> None:
    for change in (lambda d: d[:-2] + ("AA" if d[-2:] != "AA" else "BB"), lambda _: "", str.upper):
        server = Server(BY_TOKEN)
        node = GoNode(server)
        node.auth()
        data = change(node.seal.seal(b'{"type":"ping"}'))
        server.say(json.dumps({"type": "enc", "data": data}))
        assert server.closed() == (4003, "bad_seal")


def test_a_malformed_message_within_a_seal_is_dropped() -> None:
    server = Server(BY_TOKEN)
    node = GoNode(server)
    node.auth()
    for inner in (b"[1]", b"nonsense", b"\xff", b'{"type":"enc","data":""}'):
        server.say(json.dumps({"type": "enc", "data": node.seal.seal(inner)}))
    assert len(server.saw(ev.Oddity)) == 4
    assert node.say({"type": "ping", "ts": "T"})[0]["type"] == "pong"


def test_a_low_order_point_is_refused() -> None:
    server = Server(BY_TOKEN)
    server.say(json.dumps({**HELLOS["v0.2.0"], "ecdh_pub": b64url(bytes(32))}))
    assert server.closed() == (4003, "bad_hello")


@pytest.mark.parametrize("require", ["e2e", "e2e2"])
@pytest.mark.parametrize("where", ["credential", "options"])
def test_a_session_without_the_seal_that_is_required_is_refused(require: str, where: str) -> None:
    credential, options = BY_TOKEN, BRAIN
    if where == "credential":
        credential = dataclasses.replace(credential, require=require)
    else:
        options = dataclasses.replace(options, require=require)
    plain = Server(credential, options)
    (said,) = plain.say(hello())
    assert (said["type"], said["reason"]) == ("hello_err", "e2e_required")
    go = Server(credential, options)
    go.say(json.dumps(HELLOS["v0.2.0"]))
    assert (go.brain.closing is not None) is (require == "e2e2")
    assert Wires(credential, TOKENED, options).pump().node.state == "open"
    assert Wires(credential, UNSEALED, options).pump().node.state == "closing"


# -- our node ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credential", "options", "method", "sealed", "ours"),
    [
        (BY_KEY, KEYED, "key", "v2", True),
        (BY_KEY, dataclasses.replace(KEYED, seal=False), "key", "", True),
        (BY_TOKEN, TOKENED, "proof", "v2", True),
        (BY_HASH, TOKENED, "token", "", True),
        (BY_TOKEN, UNSEALED, "token", "", True),
        (BY_TOKEN, PLUGIN, "token", "", False),
    ],
)
def test_our_node_and_our_brain_agree(
    credential: Any, options: NodeOptions, method: str, sealed: str, ours: bool
) -> None:
    wires = Wires(credential, options).pump()
    assert wires.brain.state == wires.node.state == "open"
    for link in (wires.brain, wires.node):
        assert link.features is not None
        assert (link.features.method, link.features.sealed) == (method, sealed)
        assert link.features.calls2 is link.features.frames2 is ours
    assert wires.brain.session_id == wires.node.session_id
    number = wires.brain.call(Exec(command="true"), key="key-0001")
    wires.pump()
    (asked,) = wires.node_saw(ev.CallAsked)
    wires.node.finish(asked.id, ExecResult("ok", 0))
    wires.pump()
    (ended,) = wires.brain_saw(ev.CallEnded)
    assert (ended.id, ended.result.status) == (number, "ok")
    token = any(TOKEN in str(frame) for _, frame in wires.frames)
    assert token is (method == "token")


def test_in_a_sealed_session_nothing_can_be_read() -> None:
    wires = Wires().pump()
    wires.brain.call(Exec(command="needle-in-the-frame"), key="key-0001")
    wires.pump()
    opened = [frame for _, frame in wires.frames if isinstance(frame, bytes)]
    assert opened
    assert not any(b"needle" in frame or b"exec" in frame for frame in opened)


def test_a_node_for_the_plugin_says_only_what_the_plugin_takes() -> None:
    clock = FakeClock()
    options = dataclasses.replace(PLUGIN, version="1", platform="linux", arch="x86_64", policy="p")
    (said,) = Raw(node_link(clock, options)).heard()
    assert set(json.loads(said)) <= {
        *("type", "protocol_version", "node_name", "ts"),
        *("node_version", "platform", "arch", "capabilities"),
    }


def test_the_plugins_silent_refusal_of_a_full_hello_is_understood() -> None:
    node = node_link(FakeClock(), TOKENED)
    Raw(node).heard()
    node.lost(4003, "")
    (ended,) = node.events()
    assert isinstance(ended, ev.Ended)
    assert (ended.close.reason, ended.close.final, ended.close.ours) == ("bad_hello", True, False)


class Node(Raw):
    """A node's link, with a hand for a brain."""

    def __init__(self, options: NodeOptions) -> None:
        self.clock = FakeClock()
        self.node = node_link(self.clock, options)
        super().__init__(self.node)
        (first,) = self.heard()
        self.hello = json.loads(first)

    def ack(self, **more: Any) -> list[Any]:
        body = {"type": "hello_ack", "protocol_version": "0.1.0", "session_id": SESSION, **more}
        return [json.loads(frame) for frame in self.say(json.dumps(body))]

    def reason(self) -> str:
        assert self.node.closing is not None
        assert self.node.closing.ours
        return self.node.closing.reason


SEALED_ACK = {"ecdh_pub": b64url(CIPHERS.x25519_public(BRAIN_PRIVATE)), "salt": SALT}


def test_the_node_sends_its_token_only_where_no_seal_is_required() -> None:
    (said,) = Node(TOKENED).ack()
    assert said["token"] == TOKEN
    for require in ("e2e", "e2e2"):
        node = Node(dataclasses.replace(TOKENED, require=require))
        assert node.ack() == []
        assert node.reason() == "e2e_required"
    v2 = Node(dataclasses.replace(TOKENED, require="e2e2"))
    assert v2.ack(**SEALED_ACK) == []  # v1 only
    assert v2.reason() == "e2e_required"


def sealed_v1(options: NodeOptions = TOKENED) -> tuple[Node, Handshake, dict[str, Any]]:
    node = Node(options)
    (said,) = node.ack(**SEALED_ACK)
    made = Handshake(
        CIPHERS,
        BRAIN_PRIVATE,
        from_b64url(node.hello["ecdh_pub"], 32),
        from_b64url(SALT, 32),
        options.token.encode(),
    )
    return node, made, said


def test_the_node_proves_its_token_without_showing_it() -> None:
    _, made, said = sealed_v1()
    assert "token" not in said
    assert said["proof"] == b64url(made.client_proof())


@pytest.mark.parametrize("proof", [None, "", "AAAA", "ä", b64url(bytes(32)), "client"])
def test_a_brain_that_proves_nothing_is_left(proof: str | None) -> None:
    node, made, _ = sealed_v1()
    body: dict[str, Any] = {"type": "auth_ok", "session_id": SESSION}
    if proof is not None:
        body["proof"] = b64url(made.client_proof()) if proof == "client" else proof
    node.say(json.dumps(body))
    assert node.reason() == "server_unproven"
    assert not node.saw(ev.Opened)


def test_after_the_key_the_node_runs_nothing_that_is_not_sealed() -> None:
    node, made, _ = sealed_v1()
    proof = b64url(made.server_proof())
    node.say(json.dumps({"type": "auth_ok", "session_id": SESSION, "proof": proof}))
    assert len(node.saw(ev.Opened)) == 1
    node.say('{"type":"exec","id":"1","command":"touch /tmp/x"}')
    assert node.reason() == "plaintext_after_key"
    assert not node.saw(ev.CallAsked)


def test_a_sealed_call_is_not_run_twice_nor_reflected() -> None:
    node, made, _ = sealed_v1()
    proof = b64url(made.server_proof())
    node.say(json.dumps({"type": "auth_ok", "session_id": SESSION, "proof": proof}))
    seal = RandomSeal(CIPHERS.aead(made.session_key(SESSION)), _counting())
    body = {"type": "enc", "data": seal.seal(b'{"type":"exec","id":"1","command":"true"}')}
    node.say(json.dumps(body))
    assert len(node.saw(ev.CallAsked)) == 1
    node.say(json.dumps(body))
    assert node.reason() == "bad_seal"
    assert len(node.saw(ev.CallAsked)) == 1

    node, made, _ = sealed_v1()
    proof = b64url(made.server_proof())
    node.say(json.dumps({"type": "auth_ok", "session_id": SESSION, "proof": proof}))
    node.clock.advance(30)
    node.node.tick()
    (ping,) = node.heard()
    node.say(ping)
    assert node.reason() == "bad_seal"


def test_a_brain_with_another_key_is_left_before_anything_is_signed() -> None:
    for options in (
        dataclasses.replace(BRAIN, key=bytes(range(1, 33))),
        dataclasses.replace(BRAIN, key=NODE_KEY),
    ):
        wires = Wires(BY_KEY, KEYED, options).pump()
        assert wires.node.closing is not None
        assert wires.node.closing.reason == "wrong_brain"
        assert wires.node.closing.final
        assert not any("signature" in str(frame) for name, frame in wires.frames if name == "n")


def test_a_node_with_a_key_never_falls_back_to_less() -> None:
    wires = Wires(BY_KEY, KEYED, BrainOptions()).pump()  # a brain without a key
    assert wires.node.closing is not None
    assert wires.node.closing.reason == "server_unproven"
    node = Node(KEYED)
    node.ack(**SEALED_ACK)
    assert node.node.closing is not None


def test_another_nodes_key_does_not_open_the_name() -> None:
    thief = dataclasses.replace(KEYED, key=bytes(range(100, 132)))
    wires = Wires(BY_KEY, thief).pump()
    assert wires.brain.closing is not None
    assert wires.brain.closing.reason == "invalid_token"
    assert wires.node.closing is not None
    assert wires.node.closing.reason == "invalid_token"
    assert wires.node.closing.final


class Between(Wires):
    """Something on the line that changes one frame of the handshake."""

    def __init__(self, change: Any, **options: Any) -> None:
        super().__init__(**options)
        for link in (self.node, self.brain):
            link.next_frame = self._changed(link.next_frame, change)  # type: ignore[method-assign]

    @staticmethod
    def _changed(make: Any, change: Any) -> Any:
        def next_frame() -> Any:
            frame = make()
            if not isinstance(frame, str):
                return frame
            body = json.loads(frame)
            change(body)
            return json.dumps(body)

        return next_frame


def _strip(*names: str) -> Any:
    def change(body: dict[str, Any]) -> None:
        for name in names:
            if "capabilities" in body and name in body["capabilities"]:
                body["capabilities"].remove(name)

    return change


def _drop(kind: str, *keys: str) -> Any:
    def change(body: dict[str, Any]) -> None:
        if body["type"] == kind:
            for key in keys:
                body.pop(key, None)

    return change


def _add(body: dict[str, Any]) -> None:
    body["note"] = "x"


@pytest.mark.parametrize(
    "change",
    [
        _add,
        _strip("e2e2"),
        _strip("frames2"),
        _strip("keys"),
        _drop("hello", "e2e"),
        _drop("hello", "ecdh_pub"),
        _drop("hello", "key"),
        _drop("hello_ack", "ecdh_pub", "salt"),
        _drop("hello_ack", "key"),
        _drop("auth_ok", "signature"),
        lambda body: body.update(took_over=True) if body["type"] == "hello" else None,
    ],
)
def test_a_handshake_that_was_changed_on_the_way_opens_nothing(change: Any) -> None:
    """Also where the change would be harmless: every byte is signed."""
    wires = Between(change).pump()
    assert wires.node.state != "open"
    assert not wires.node_saw(ev.Opened)


@pytest.mark.parametrize("change", [_strip("e2e2"), _drop("hello_ack", "ecdh_pub"), _add])
def test_with_a_token_a_changed_handshake_opens_nothing_that_is_required(change: Any) -> None:
    options = dataclasses.replace(TOKENED, require="e2e2")
    wires = Between(change, credential=BY_TOKEN, node=options).pump()
    assert not wires.node_saw(ev.Opened)
    assert not any(TOKEN in str(frame) for _, frame in wires.frames)


def test_frames_of_one_direction_do_not_open_in_the_other() -> None:
    wires = Wires().pump()
    wires.brain.call(Exec(command="true"), key="key-0001")
    frame = wires.brain.next_frame()
    assert isinstance(frame, bytes)
    wires.brain.receive(frame)
    assert wires.brain.closing is not None
    assert wires.brain.closing.reason == "bad_seal"


@pytest.mark.parametrize("credential", [BY_KEY, BY_TOKEN])
def test_a_frame_that_is_changed_repeated_or_left_out_ends_the_session(credential: Any) -> None:
    def fresh() -> tuple[Wires, list[bytes]]:
        wires = Wires(credential, KEYED if credential is BY_KEY else TOKENED).pump()
        frames = []
        for n in range(3):
            wires.brain.call(Exec(command="true"), key=f"key-000{n}")
            frame = wires.brain.next_frame()
            assert isinstance(frame, bytes)
            frames.append(frame)
        return wires, frames

    for order, asked, reason in (
        ([0, 1, 2], 3, None),
        ([0, 0], 1, "sequence_gap"),
        ([0, 2], 1, "sequence_gap"),
        ([1, 0], 0, "sequence_gap"),
    ):
        wires, frames = fresh()
        for at in order:
            wires.node.receive(frames[at])
        wires.pump()
        assert len(wires.node_saw(ev.CallAsked)) == asked
        assert (wires.node.closing.reason if wires.node.closing else None) == reason
    for at in (0, 2, 6, -1):
        wires, frames = fresh()
        frame = bytearray(frames[0])
        frame[at] ^= 1
        wires.node.receive(bytes(frame))
        assert wires.node.closing is not None or wires.node.events()
        assert not wires.node_saw(ev.CallAsked)


def test_secrets_are_in_no_representation() -> None:
    for value in (TOKENED, KEYED, BRAIN, BY_TOKEN, BY_HASH):
        shown = repr(value)
        assert TOKEN not in shown
        assert repr(NODE_KEY) not in shown
        assert repr(BRAIN_KEY) not in shown
