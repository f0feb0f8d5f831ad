from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.errors import BadRequest
from handoff.wire.node import messages
from handoff.wire.node.frames import dumps
from handoff.wire.node.messages import (
    MESSAGES,
    Hello,
    OldExecChunk,
    OldExecResult,
    OldReadResult,
    Unknown,
    decode_message,
    encode_message,
)

#: exchanges of the Go node with the plugin's server and with a server of its description;
#: the values are invented, the shapes are not
GOLDEN = {
    "A1": '{"type":"hello","protocol_version":"0.1.0","node_name":"lab-box","node_version":"0.1.4","platform":"linux","arch":"amd64","capabilities":["exec","read","write"],"ts":"2026-09-01T08:00:00.000Z"}',
    "A2": '{"type":"hello_ack","protocol_version":"0.1.0","session_id":"5f0c","server_time":"2026-09-01T08:00:00.021Z"}',
    "A3": '{"type":"auth","node_name":"lab-box","token":"qk3","ts":"t"}',
    "A4": '{"type":"auth_ok","session_id":"5f0c"}',
    "B1": '{"type":"exec","id":"0b1d","command":"make -j2","cwd":"/srv/app","env":{"CI":"1"},"timeout_ms":45000}',
    "B2": '{"type":"exec_result","id":"0b1d","status":"error","exit_code":2,"stdout":"…\\n","stderr":"make: *** …\\n","duration_ms":812,"truncated":false}',
    "C1": '{"type":"hello_ack","protocol_version":"0.1.0","session_id":"5f0c","server_time":"t","capabilities":["exec","exec_chunk","read","write"]}',
    "C2": '{"type":"exec_chunk","id":"0b1e","seq":1,"data":"bGluZTEK","more":true}',
    "C3": '{"type":"exec_chunk","id":"0b1e","seq":2,"data":"","more":false,"status":"ok","duration_ms":5210}',
    "C4": '{"type":"exec_chunk","id":"0b1f","seq":1,"data":"","more":false,"status":"timeout","exit_code":-1,"duration_ms":45000}',
    "D1": '{"type":"read","id":"77aa","path":"/srv/app/VERSION"}',
    "D2": '{"type":"read_result","id":"77aa","status":"ok","content_b64":"MS4yLjMK","size_bytes":6}',
    "D3": '{"type":"read_result","id":"77ab","status":"ok"}',
    "D4": '{"type":"read_result","id":"77ac","status":"error","error":"path_not_allowed","error_detail":"…"}',
    "E1": '{"type":"write","id":"9c01","path":"/srv/app/x","content_b64":"aMOpCg==","mode":"create"}',
    "E2": '{"type":"write_result","id":"9c01","status":"ok","bytes_written":4}',
    "F1": '{"type":"ping","ts":"2026-09-01T08:00:30.000Z"}',
    "F2": '{"type":"pong","ts":"2026-09-01T08:00:30.012Z","echo_ts":"2026-09-01T08:00:30.000Z"}',
    "G1": '{"type":"error","id":"d00d","code":4000,"reason":"bad_request","detail":"…"}',
    "G2": '{"type":"error","id":"d00e","code":5001,"reason":"unknown_message","detail":"…"}',
    "H1": '{"type":"auth_err","reason":"invalid_token","code":4001}',
    "H2": '{"type":"hello_err","reason":"unsupported_protocol_version","code":4002,"server_max_version":"0.1.0"}',
    "I1": '{"type":"rate_limit","reason":"rate_limit_exceeded","code":4004,"node_name":"lab-box","limit_per_second":100}',
    "J1": '{"type":"hello","protocol_version":"0.1.0","node_name":"lab-box","node_version":"dev","platform":"linux","arch":"amd64","capabilities":["exec","exec_chunk","read","write"],"ts":"t","e2e":true,"ecdh_pub":"B6N8"}',
    "J2": '{"type":"hello_ack","protocol_version":"0.1.0","session_id":"5f0c","server_time":"t","ecdh_pub":"WGmv","salt":"ZGVm"}',
    "J3": '{"type":"auth","node_name":"lab-box","proof":"32Ky","ts":"t"}',
    "J4": '{"type":"auth_ok","session_id":"5f0c","proof":"0oXB"}',
    "J5": '{"type":"enc","ts":"t","data":"AAEC"}',
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_frames_are_read_and_written_alike(name: str) -> None:
    value = json.loads(GOLDEN[name])
    message = decode_message(value)
    assert type(message) is MESSAGES[value["type"]]
    assert dumps(encode_message(message)) == GOLDEN[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_order_of_keys_and_further_keys_do_not_matter(name: str) -> None:
    value = json.loads(GOLDEN[name])
    turned = {"later": {"deep": [1, None]}, **dict(reversed(value.items()))}
    assert decode_message(turned) == decode_message(value)


def test_what_go_leaves_out_is_zero() -> None:
    chunk = decode_message({"type": "exec_chunk", "id": "x", "seq": 2, "data": "", "more": False})
    assert isinstance(chunk, OldExecChunk)
    assert (chunk.exit_code, chunk.duration_ms, chunk.truncated) == (0, 0, False)
    read = decode_message({"type": "read_result", "id": "x", "status": "ok"})
    assert isinstance(read, OldReadResult)
    assert (read.content_b64, read.size_bytes) == (b"", 0)
    result = decode_message({"type": "exec_result", "status": "ok"})
    assert isinstance(result, OldExecResult)
    assert (result.id, result.exit_code, result.returncode) == ("", 0, None)


@pytest.mark.parametrize("value", [None, 3, "x", [], [{}], {}, {"type": 1}, {"type": None}])
def test_what_is_no_message(value: object) -> None:
    with pytest.raises(BadRequest):
        decode_message(value)


def test_an_unknown_type_is_no_error() -> None:
    assert decode_message({"type": "zzz", "id": "7"}) == Unknown("zzz", "7")
    assert decode_message({"type": "zzz", "id": {}}) == Unknown("zzz")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"node_name": None}, "node_name"),
        ({"node_name": 3}, "node_name"),
        ({"capabilities": {"a": 1}}, "capabilities"),
        ({"capabilities": [1]}, "capabilities"),
        ({"e2e": "yes"}, "e2e"),
        ({"node_name": "\ud800"}, "node_name"),
        ({"arch": "x" * 33}, "arch"),
    ],
)
def test_a_known_field_of_the_wrong_kind_is_named(change: dict[str, object], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_message({**json.loads(GOLDEN["A1"]), **change})
    assert caught.value.details["field"] == field


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    "inner", [nested(40), nested(400), {"a": "\ud800"}, {"\ud800": 1}, {"a": ["\udcff"]}]
)
def test_what_could_not_be_sent_on_is_not_taken_in(inner: Any) -> None:
    for message in (
        {"type": "result", "id": 1, "ok": False, "value": inner},
        {"type": "call", "id": 1, "op": "stat", "args": inner},
        {"type": "notice", "kind": "x", "body": inner},
    ):
        with pytest.raises(BadRequest):
            decode_message(message)


def test_what_can_be_sent_on_is() -> None:
    value = {"a": [{"b": "ä", "c": [1, None, True, 2.5]}]}
    message = decode_message({"type": "notice", "kind": "x", "body": value})
    assert encode_message(message)["body"] == value
    assert decode_message({"type": "notice", "kind": "x", "body": nested(15)})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
FIELDS = sorted(
    {field for cls in MESSAGES.values() for field in cls.__dataclass_fields__}  # type: ignore[attr-defined]
)


@given(
    kind=st.sampled_from(sorted(MESSAGES)),
    fields=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=6),
)
def test_any_object_is_a_message_or_a_typed_error(kind: str, fields: dict[str, object]) -> None:
    try:
        message = decode_message({**fields, "type": kind})
    except BadRequest:
        return
    again = decode_message(json.loads(json.dumps(encode_message(message))))
    assert json.dumps(encode_message(again)) == json.dumps(encode_message(message))


def _text(limit: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=limit)


@given(
    st.builds(
        Hello,
        protocol_version=_text(32),
        node_name=_text(64),
        capabilities=st.lists(_text(32), max_size=16).map(tuple),
        e2e=st.booleans(),
        key=_text(64),
    )
)
def test_messages_survive_the_wire(hello: Hello) -> None:
    assert decode_message(json.loads(dumps(encode_message(hello)))) == hello


def test_every_type_has_one_class_and_every_class_is_listed() -> None:
    classes = [
        value
        for value in vars(messages).values()
        if isinstance(value, type) and issubclass(value, messages.Message) and value.type
    ]
    assert set(classes) == set(MESSAGES.values())
    assert len({cls.type for cls in classes}) == len(classes)
