from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.errors import BadRequest, FileMissing, HandoffError, UnknownNode, all_errors
from handoff.wire.node import calls
from handoff.wire.node.calls import (
    CALLS,
    Call,
    CallFailed,
    Exec,
    ExecResult,
    FileInfo,
    JobInfo,
    Listing,
    Move,
    Output,
    Read,
    ReadResult,
    ShellOpen,
    Skipped,
    Stat,
    TreeGet,
    TreePut,
    Write,
    call_from_json,
    check_key,
    checked,
    digest,
    result_from_json,
    to_json,
)


def wire(value: Any) -> dict[str, Any]:
    """What arrives of a JSON object."""
    sent: dict[str, Any] = json.loads(json.dumps(value, allow_nan=False))
    return sent


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
RAW = st.binary(min_size=1, max_size=20).map(lambda b: os.fsdecode(b.replace(b"\0", b"x")))


@given(
    argv=st.lists(RAW, min_size=1, max_size=4),
    env=st.dictionaries(st.from_regex("[A-Z]+", fullmatch=True), RAW),
)
def test_any_bytes_go_over_as_arguments_and_variables(argv: list[str], env: Any) -> None:
    call = Exec(argv=tuple(argv), env=env, stdin="given", stdin_data=b"\xff\0")
    again = call_from_json("exec", wire(to_json(call)))
    assert again == call
    assert [os.fsencode(a) for a in again.argv] == [os.fsencode(a) for a in argv]  # type: ignore[attr-defined]
    assert digest(again) == digest(call)


@given(st.binary(max_size=200))
def test_any_output_goes_over_byte_by_byte(data: bytes) -> None:
    result = ExecResult("error", 7, stdout=Output(len(data) + 9, data, data, "spill"))
    sent = wire(to_json(result))
    assert result_from_json(Exec, True, sent) == result
    shown = sent["stdout"].get("head", "")
    assert isinstance(shown, str | dict)
    if isinstance(shown, str):
        assert shown.encode() == data
    else:
        assert set(shown) == {"b64"}


def test_bytes_that_json_would_swell_go_as_base64() -> None:
    for data in (bytes(1000), b"\x01\x02" * 500, b"\x1b[0m" * 300, b"\n" * 1000):
        sent = json.dumps(to_json(ReadResult(data=data)))
        assert len(sent) < 2 * len(data) + 100
    assert to_json(ReadResult(data=b"a line\n" * 9))["data"] == "a line\n" * 9


def test_a_cut_is_counted() -> None:
    output = Output(bytes_total=100, head=b"abc", tail=b"xyz")
    assert output.cut == 94
    assert Output(3, b"abc").cut == 0


@pytest.mark.parametrize(
    ("op", "args", "field"),
    [
        ("exec", {}, "command"),
        ("exec", {"command": "  "}, "command"),
        ("exec", {"command": "x", "argv": ["y"]}, "command"),
        ("exec", {"argv": [""]}, "argv"),
        ("exec", {"argv": ["x\0y"]}, "command"),
        ("exec", {"command": "x", "cwd": "\0"}, "command"),
        ("exec", {"command": 7}, "command"),
        ("exec", {"command": "x", "env": {"A=B": "c"}}, "env"),
        ("exec", {"command": "x", "env": {"": "c"}}, "env"),
        ("exec", {"command": "x", "env": {"A": "\0"}}, "env"),
        ("exec", {"command": "x", "env": {"A": 1}}, "env"),
        ("exec", {"command": "x", "timeout_ms": -1}, "timeout_ms"),
        ("exec", {"command": "x", "timeout_ms": 0}, "timeout_ms"),
        ("exec", {"command": "x", "timeout_ms": 1.5}, "timeout_ms"),
        ("exec", {"command": "x", "timeout_ms": True}, "timeout_ms"),
        ("exec", {"command": "x", "timeout_ms": 10**20}, "timeout_ms"),
        ("exec", {"command": "x", "stdin": "maybe"}, "stdin"),
        ("exec", {"command": "x", "stdin_data": "y"}, "stdin_data"),
        ("exec", {"command": "x", "stdin_data": {"b64": "!"}, "stdin": "given"}, "stdin_data"),
        ("exec", {"command": "x", "job": True, "shell": "s"}, "job"),
        ("exec", {"command": "x" * (128 * 1024 + 1)}, "command"),
        ("stat", {}, "path"),
        ("stat", {"path": ""}, "path"),
        ("stat", {"path": "a\0b"}, "path"),
        ("stat", {"path": "x" * 4097}, "path"),
        ("read", {"path": "x", "offset": -1}, "offset"),
        ("read", {"path": "x", "length": -2}, "length"),
        ("write", {"path": "x", "mode": "replace"}, "mode"),
        ("write", {"path": "x", "data": "y", "stream": True}, "data"),
        ("write", {"path": "x", "offset": 5}, "offset"),
        ("write", {"path": "x", "transfer": "short"}, "transfer"),
        ("write", {"path": "x", "permissions": 0o10000}, "permissions"),
        ("edit", {"path": "x", "old": ""}, "old"),
        ("hash", {"path": "x", "block_bytes": 1}, "block_bytes"),
        ("nonsense", {}, "op"),
        ("", {}, "op"),
    ],
)
def test_calls_that_can_not_be(op: str, args: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        call_from_json(op, args)
    assert caught.value.details["field"] == field


def test_what_calls_leave_out_and_further_keys() -> None:
    call = call_from_json("exec", {"command": "true", "new_thing": [1]})
    assert to_json(call) == {"command": "true"}
    assert call_from_json("exec", {"command": "true", "timeout_ms": 5000.0}) == Exec(
        command="true", timeout_ms=5000
    )


def test_streams_of_calls() -> None:
    assert Exec(command="x").comes() == ()
    assert Exec(command="x", stream=True).comes() == ("stdout", "stderr")
    assert Exec(command="x", stream=True).fed() == ()
    assert Exec(command="x", stdin="stream").fed() == ("stdin",)
    assert Read("x").comes() == ()
    assert Read("x", stream=True).comes() == ("data",)
    assert Write("x").fed() == ()
    assert Write("x", stream=True).fed() == ("data",)
    assert TreePut("x").fed() == ("data",)
    assert TreeGet("x").comes() == ("data",)
    assert Stat("x").comes() == Stat("x").fed() == ()


def test_every_call_is_listed_and_says_what_it_is() -> None:
    classes = {
        value
        for value in vars(calls).values()
        if isinstance(value, type) and issubclass(value, calls.Call) and value.op
    }
    assert classes == set(CALLS.values())
    for op, cls in CALLS.items():
        assert cls.op == op
        assert len(op) <= 32
        assert issubclass(cls.result, calls.Result)
        assert cls.__doc__
        assert not (cls.reads and cls.takes), "what takes a stream changes something"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({f.name for cls in CALLS.values() for f in dataclasses.fields(cls)})  # type: ignore[arg-type]
RESULT_FIELDS = sorted(
    {f.name for cls in CALLS.values() for f in dataclasses.fields(cls.result)}  # type: ignore[arg-type]
    | {"code", "error", "details", "job", "state"}
)


@given(op=st.sampled_from(sorted(CALLS)), args=st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_object_is_a_call_or_a_typed_error(op: str, args: dict[str, Any]) -> None:
    try:
        call = call_from_json(op, args)
    except BadRequest:
        return
    assert call_from_json(op, wire(to_json(call))) == call


@given(
    op=st.sampled_from(sorted(CALLS)),
    ok=st.booleans(),
    value=st.dictionaries(st.sampled_from(RESULT_FIELDS), JSON),
)
def test_any_object_is_an_answer_or_a_typed_error(op: str, ok: bool, value: Any) -> None:
    try:
        result = result_from_json(CALLS[op], ok, value)
    except BadRequest:
        return
    assert isinstance(result, CallFailed) is not ok
    json.dumps(to_json(result))


def test_nested_answers_survive_the_wire() -> None:
    listing = Listing((FileInfo("a\udcff", "link", 3, target="b"), FileInfo("b")), "b")
    assert result_from_json(CALLS["list"], True, wire(to_json(listing))) == listing
    ended = ExecResult("ok", 0)
    job = JobInfo("j1", "done", result=to_json(ended))
    again = result_from_json(Exec, True, wire(to_json(job)))
    assert isinstance(again, JobInfo)
    assert again.ended == ended
    assert JobInfo("j1", "running").ended is None
    tree = calls.TreeResult(files=1, skipped=(Skipped("p", "not_a_regular_file"),))
    assert result_from_json(TreeGet, True, wire(to_json(tree))) == tree


def test_errors_go_over_as_themselves() -> None:
    error = FileMissing("there is no /x", remedy="look", path="/x", seen={1})
    failed = CallFailed.of(error, retry_safe=True)
    again = result_from_json(Stat, False, wire(to_json(failed)))
    assert isinstance(again, CallFailed)
    raised = again.as_error()
    assert isinstance(raised, FileMissing)
    assert (raised.cause, raised.remedy, raised.details["path"]) == ("there is no /x", "look", "/x")
    assert again.retry_safe
    for code, cls in all_errors().items():
        assert type(CallFailed(code, "x").as_error()) is cls or cls is HandoffError
    odd = CallFailed("from_the_future", "x").as_error()
    assert odd.code == "from_the_future"
    assert UnknownNode.code == "unknown_node"


def test_the_digest_tells_calls_apart() -> None:
    one = Exec(command="true")
    assert digest(one) == digest(Exec(command="true", env={}))
    assert digest(Exec(command="true", env={"A": "1", "B": "2"})) == digest(
        Exec(command="true", env={"B": "2", "A": "1"})
    )
    others = {digest(c) for c in (one, Exec(command="true "), Exec(argv=("true",)), Stat("true"))}
    assert len(others) == 4


def test_how_output_is_delivered_is_no_part_of_what_is_asked() -> None:
    assert digest(Exec(command="true", stream=True)) == digest(Exec(command="true"))


@pytest.mark.parametrize("key", ["abcdefgh", "A.b_c:d-9", "0" * 64])
def test_keys_that_may_be(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key", ["", "short", "x" * 65, "-abcdefgh", "abc defgh", "abcdefgh\n", "äbcdefgh"]
)
def test_keys_that_may_not_be(key: str) -> None:
    with pytest.raises(BadRequest):
        check_key(key)


def test_checked_gives_the_call_back() -> None:
    call = Stat("/x")
    assert checked(call) is call


@pytest.mark.parametrize("half", ["\ud800", "\udc80", "a\udfff"])
@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("exec", {"command": "?"}),
        ("exec", {"argv": ["echo", "?"]}),
        ("exec", {"command": "x", "cwd": "?"}),
        ("exec", {"command": "x", "env": {"?": "v"}}),
        ("exec", {"command": "x", "env": {"A": "?"}}),
        ("exec", {"command": "x", "shell": "?"}),
        ("shell_open", {"name": "?"}),
        ("shell_open", {"name": "s", "env": {"?": "v"}}),
        ("stat", {"path": "?"}),
        ("list", {"path": "/", "after": "?"}),
        ("glob", {"path": "/", "pattern": "?"}),
        ("grep", {"path": "/", "pattern": "?"}),
        ("read", {"path": "?"}),
        ("write", {"path": "/x", "data": "?"}),
        ("move", {"path": "/x", "to": "?"}),
        ("edit", {"path": "/x", "old": "?", "new": ""}),
        ("tree_get", {"path": "/x", "only": ["?"]}),
        ("tree_manifest", {"path": "/x", "exclude": ["?"]}),
        ("job_tail", {"job": "?"}),
    ],
)
def test_half_a_character_is_refused_at_the_entrance(op: str, args: Any, half: str) -> None:
    given = json.loads(json.dumps(args).replace("?", json.dumps(half)[1:-1]))
    with pytest.raises(BadRequest) as refused:
        call_from_json(op, given)
    assert refused.value.details["field"] in {*args, "env"}


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"": "x"}, {"A\0": "x"}, {"A": "\0"}])
@pytest.mark.parametrize("op", ["exec", "shell_open"])
def test_what_is_no_variable_is_refused_at_the_entrance(op: str, env: dict[str, str]) -> None:
    given = {"command": "x"} if op == "exec" else {"name": "s"}
    with pytest.raises(BadRequest, match="environment variable"):
        call_from_json(op, {**given, "env": env})


@pytest.mark.parametrize(
    "call",
    [
        Exec(command="x\ud800"),
        Exec(argv=("x", "\ud800")),
        Exec(command="x", cwd="\ud800"),
        Exec(command="x", env={"\ud800": "x"}),
        Exec(command="x", env={"A": "\ud800"}),
        ShellOpen("s", env={"A": "\ud800"}),
        Stat("\ud800"),
        Move("/x", "\ud800"),
        Write("\ud800"),
    ],
)
def test_what_no_system_takes_is_refused_before_it_is_sent(call: Call) -> None:
    with pytest.raises(BadRequest):
        checked(call)


def test_bytes_that_are_no_characters_go_through() -> None:
    name = "caf\udce9"  # what os.fsdecode makes of b"caf\xe9"
    for call in (Stat(name), Exec(argv=(name,), cwd=name, env={"A": name})):
        checked(call)
        assert call_from_json(call.op, json.loads(json.dumps(to_json(call)))) == call
