"""The old vocabulary, both ways: a Go node under our brain, our node under the plugin."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.nodelink import BRAIN, BY_TOKEN, TOKEN, Raw, Wires, brain_link, node_link

from handoff.clock import FakeClock
from handoff.errors import UnsupportedByPeer
from handoff.wire.node import events as ev
from handoff.wire.node.calls import (
    CallFailed,
    Exec,
    ExecResult,
    Output,
    Read,
    ReadResult,
    Result,
    Stat,
    Write,
    WriteResult,
)
from handoff.wire.node.options import NodeOptions

PLUGIN = NodeOptions("lab", token=TOKEN, plugin=True)


class GoNode(Raw):
    """A Go node's hand on our brain's link, the session open."""

    def __init__(self, *, chunks: bool = False) -> None:
        self.clock = FakeClock()
        options = dataclasses.replace(BRAIN, chunks=chunks)
        self.brain = brain_link(self.clock, options)
        super().__init__(self.brain)
        self.tell(
            type="hello",
            protocol_version="0.1.0",
            node_name="lab",
            capabilities=["exec", "exec_chunk", "read", "write"],
        )
        self.brain.identify(BY_TOKEN)
        self.heard()
        self.tell(type="auth", node_name="lab", token=TOKEN)
        self.brain.admit()
        self.heard()
        self.seen.clear()

    def tell(self, **message: Any) -> list[Any]:
        return [json.loads(frame) for frame in self.say(json.dumps(message))]

    def asks(self, call: Any) -> dict[str, Any]:
        self.number = self.brain.call(call, key="key-0001")
        (frame,) = self.heard()
        asked: dict[str, Any] = json.loads(frame)
        return asked

    def result(self) -> Result:
        (ended,) = self.saw(ev.CallEnded)
        assert ended.id == self.number
        self.seen.clear()
        result: Result = ended.result
        return result


@pytest.fixture
def go() -> GoNode:
    return GoNode()


# -- our brain, a Go node ----------------------------------------------------------------


def test_calls_are_said_in_its_words(go: GoNode) -> None:
    asked = go.asks(Exec(command="make", cwd="/srv", env={"CI": "1"}, timeout_ms=45_000))
    del asked["id"]
    assert asked == {
        "type": "exec",
        "command": "make",
        "cwd": "/srv",
        "env": {"CI": "1"},
        "timeout_ms": 45_000,
    }
    assert go.asks(Exec(command="x", timeout_ms=1))["timeout_ms"] == 1_000
    assert go.asks(Exec(command="x", timeout_ms=9_000_000))["timeout_ms"] == 600_000
    read = go.asks(Read("/srv/VERSION"))
    assert (read["type"], read["path"]) == ("read", "/srv/VERSION")
    write = go.asks(Write("/srv/x", data="hé\n".encode(), mode="create"))
    assert (write["content_b64"], write["mode"]) == ("aMOpCg==", "create")


@pytest.mark.parametrize(
    "call",
    [
        Exec(argv=("ls",)),
        Exec(command="x", job=True),
        Exec(command="x", shell="s"),
        Exec(command="x", stdin="given", stdin_data=b"y"),
        Write("/x", stream=True),
        Write("/x", if_match="abc"),
        Write("/x", permissions=0o600),
        Write("/x", data=b"x" * (256 * 1024), parents=True),
        Stat("/x"),
        Exec(command="rm \udcff"),
        Exec(command="x", env={"A": "\udcff"}),
        Exec(command="x", cwd="/\udcff"),
        Read("/\udcff"),
        Write("/\udcff"),
    ],
)
def test_what_it_can_not_do_is_said_and_not_sent(go: GoNode, call: Any) -> None:
    with pytest.raises(UnsupportedByPeer):
        go.brain.call(call, key="key-0001")
    assert go.heard() == []
    with pytest.raises(UnsupportedByPeer):
        go.brain.ask(call, key="key-0001")
    assert go.brain.under_way == 0


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"status": "ok", "exit_code": 0}, "ok", 0),
        ({"status": "ok"}, "ok", 0),
        ({"status": "error", "exit_code": 1}, "error", 1),
        ({"status": "error", "exit_code": 137}, "error", 137),
        ({"status": "error", "exit_code": -1}, "error", None),
        ({"status": "timeout", "exit_code": -1}, "timeout", None),
        ({"status": "timeout"}, "timeout", None),
        ({"status": "ok", "exit_code": 7}, "error", 7),
        ({"exit_code": 7}, "error", 7),
    ],
)
def test_how_a_command_ended_is_what_the_node_says(
    go: GoNode, fields: dict[str, Any], status: str, code: int | None
) -> None:
    asked = go.asks(Exec(command="x"))
    go.tell(type="exec_result", id=asked["id"], stdout="aé", stderr="b", **fields)
    result = go.result()
    assert isinstance(result, ExecResult)
    assert (result.status, result.exit_code) == (status, code)
    assert result.stdout == Output(3, "aé".encode())
    assert result.stderr.head == b"b"
    assert bool(result.note) is (code is None)


def test_a_cut_output_is_said_to_be(go: GoNode) -> None:
    asked = go.asks(Exec(command="x"))
    go.tell(type="exec_result", id=asked["id"], status="ok", truncated=True)
    result = go.result()
    assert isinstance(result, ExecResult)
    assert "cut" in result.note


@pytest.mark.parametrize(
    ("call", "answer", "code"),
    [
        (Exec(command="x"), {"type": "exec_result", "status": "great"}, "protocol_violation"),
        (Exec(command="x"), {"type": "read_result", "status": "ok"}, "protocol_violation"),
        (Read("/x"), {"type": "exec_result", "status": "ok"}, "protocol_violation"),
        (Read("/x"), {"type": "read_result", "status": "huh"}, "protocol_violation"),
        (
            Read("/x"),
            {"type": "read_result", "status": "error", "error": "path_not_allowed"},
            "path_not_allowed",
        ),
        (Read("/x"), {"type": "read_result", "status": "error"}, "io_error"),
        (
            Write("/x"),
            {"type": "write_result", "status": "error", "error": "file_too_large"},
            "file_too_large",
        ),
        (
            Exec(command="x"),
            {"type": "error", "code": 4000, "reason": "bad_request"},
            "bad_request",
        ),
        (Exec(command="x"), {"type": "error", "code": 5000}, "internal_error"),
    ],
)
def test_no_failure_becomes_a_success(go: GoNode, call: Any, answer: Any, code: str) -> None:
    asked = go.asks(call)
    go.tell(id=asked["id"], **answer)
    result = go.result()
    assert isinstance(result, CallFailed)
    assert result.code == code
    assert result.error


def test_files_come_back_byte_by_byte(go: GoNode) -> None:
    data = bytes(range(256))
    asked = go.asks(Read("/x"))
    go.tell(
        type="read_result",
        id=asked["id"],
        status="ok",
        size_bytes=256,
        content_b64=base64.b64encode(data).decode(),
    )
    result = go.result()
    assert isinstance(result, ReadResult)
    assert (result.data, result.size, result.eof, result.utf8) == (data, 256, True, False)
    asked = go.asks(Read("/x", offset=3, length=4))
    go.tell(
        type="read_result",
        id=asked["id"],
        status="ok",
        content_b64=base64.b64encode(b"0123456789").decode(),
    )
    result = go.result()
    assert isinstance(result, ReadResult)
    assert (result.data, result.offset, result.size, result.eof) == (b"3456", 3, 10, False)
    asked = go.asks(Read("/empty", stream=True))
    go.tell(type="read_result", id=asked["id"], status="ok")
    assert go.saw(ev.StreamPiece) == [ev.StreamPiece(go.number, "data", b"", True)]
    result = go.result()
    assert isinstance(result, ReadResult)
    assert (result.data, result.size, result.eof) == (b"", 0, True)


def test_late_doubled_and_foreign_answers_are_ignored(go: GoNode) -> None:
    asked = go.asks(Exec(command="x"))
    done = {"type": "exec_result", "id": asked["id"], "status": "ok"}
    go.tell(**done)
    go.result()
    go.tell(**done)
    go.tell(type="exec_result", id="never", status="ok")
    go.tell(type="error", id="never", code=5001, reason="unknown_message")
    go.tell(type="exec_result", status="ok")
    assert not go.saw(ev.CallEnded)
    assert len(go.saw(ev.Oddity)) == 4
    asked = go.asks(Exec(command="y"))
    go.brain.give_up(go.number)
    go.tell(type="exec_result", id=asked["id"], status="ok")
    assert not go.saw(ev.CallEnded)
    assert go.brain.cancel(go.number) is False


def test_what_is_ours_is_unknown_to_it_and_from_it(go: GoNode) -> None:
    go.tell(type="result", id=1, ok=True)
    go.tell(type="told", id=1, key="k", state="done")
    go.tell(type="data", id=1, stream="stdout", data="AA==")
    assert go.brain.state == "open"
    assert len(go.saw(ev.Oddity)) == 2


def test_malformed_frames_are_dropped(go: GoNode) -> None:
    asked = go.asks(Exec(command="x"))
    for frame in ("[1]", "3", b"\0\1", '{"type":', "x" * 100, '{"type":"exec_result","id":3}'):
        go.say(frame)
    assert go.brain.state == "open"
    go.tell(type="exec_result", id=asked["id"], status="ok")
    assert isinstance(go.result(), ExecResult)
    for wrong in ({"exit_code": "7"}, {"status": 3}, {"stdout": "\ud800"}):
        asked = go.asks(Exec(command="x"))
        go.tell(type="exec_result", id=asked["id"], **wrong)
        result = go.result()
        assert isinstance(result, CallFailed)
        assert result.code == "protocol_violation"


def test_chunks_are_put_together(go: GoNode) -> None:
    go = GoNode(chunks=True)
    asked = go.asks(Exec(command="x", stream=True, head_bytes=4, tail_bytes=4))
    chunk = {"type": "exec_chunk", "id": asked["id"]}
    go.tell(**chunk, seq=1, data=base64.b64encode(b"012345").decode(), more=True)
    go.tell(**chunk, seq=2, data=base64.b64encode(b"6789").decode(), more=True)
    go.tell(**chunk, seq=3, data="", more=False, status="ok", duration_ms=5)
    pieces = go.saw(ev.StreamPiece)
    assert b"".join(e.data for e in pieces) == b"0123456789"
    assert [e.end for e in pieces] == [False, False, True]
    result = go.result()
    assert isinstance(result, ExecResult)
    assert result.stdout == Output(10, b"0123", b"6789", streamed=True)
    assert (result.exit_code, result.duration_ms) == (0, 5)
    # after a time limit the node sends one piece too many
    go.tell(**chunk, seq=3, data="eA==", more=True)
    assert not go.saw(ev.StreamPiece)


def test_a_missing_chunk_is_a_failure() -> None:
    go = GoNode(chunks=True)
    asked = go.asks(Exec(command="x"))
    go.tell(type="exec_chunk", id=asked["id"], seq=2, data="eA==", more=True)
    result = go.result()
    assert isinstance(result, CallFailed)
    assert result.code == "protocol_violation"


def test_chunks_that_were_not_agreed_are_ignored(go: GoNode) -> None:
    asked = go.asks(Exec(command="x"))
    go.tell(type="exec_chunk", id=asked["id"], seq=1, data="", more=False, status="ok")
    assert not go.saw(ev.CallEnded)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["type", "id", "status", "exit_code", "seq", "data", "more", "stdout"]),
            st.sampled_from(
                ["exec_result", "exec_chunk", "read_result", "error", "ID", "ok", 1, True, "eA=="]
            ),
        ),
        max_size=8,
    )
)
def test_no_sequence_of_answers_ends_a_call_twice(answers: list[dict[str, Any]]) -> None:
    go = GoNode(chunks=True)
    asked = go.asks(Exec(command="x"))
    for answer in answers:
        if answer.get("id") == "ID":
            answer = {**answer, "id": asked["id"]}
        go.tell(**answer)
    assert len(go.saw(ev.CallEnded)) <= 1
    assert go.brain.state == "open"


# -- our node, the plugin's server -------------------------------------------------------


class Plugin(Raw):
    """The hand of the plugin's server v0.1.2 on our node's link, the session open."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.node = node_link(self.clock, PLUGIN)
        super().__init__(self.node)
        self.heard()
        self.tell(type="hello_ack", protocol_version="0.1.0", session_id="s", server_time="t")
        self.tell(type="auth_ok", session_id="s")
        (opened,) = self.saw(ev.Opened)
        assert opened.features.profile == "plugin"
        self.seen.clear()

    def tell(self, **message: Any) -> list[dict[str, Any]]:
        return [json.loads(frame) for frame in self.say(json.dumps(message))]

    def asked(self, **message: Any) -> ev.CallAsked:
        assert self.tell(**message) == []
        (asked,) = self.saw(ev.CallAsked)
        self.seen.clear()
        assert isinstance(asked, ev.CallAsked)
        return asked

    def answer(self, asked: ev.CallAsked, result: Result) -> dict[str, Any]:
        self.node.finish(asked.id, result)
        (frame,) = self.heard()
        found: dict[str, Any] = json.loads(frame)
        return found


@pytest.fixture
def plugin() -> Plugin:
    return Plugin()


def test_its_exec_becomes_a_call(plugin: Plugin) -> None:
    asked = plugin.asked(type="exec", id="a", command="make", cwd="/srv", env={"CI": "1"})
    call = asked.call
    assert isinstance(call, Exec)
    assert asked.key == ""
    assert (call.command, call.cwd, call.env, call.timeout_ms) == (
        "make",
        "/srv",
        {"CI": "1"},
        60_000,
    )
    for given_ms, used in ((1, 1_000), (90_000, 90_000), (10**9, 600_000), (-5, 1_000)):
        asked = plugin.asked(type="exec", id="a", command="x", timeout_ms=given_ms)
        assert asked.call.timeout_ms == used  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("result", "fields"),
    [
        (ExecResult("ok", 0), {"status": "ok", "exit_code": 0, "returncode": 0}),
        (ExecResult("error", 7), {"status": "error", "exit_code": 7, "returncode": 7}),
        (
            ExecResult("error", None, 9, ended_by="signal"),
            {"status": "error", "exit_code": 137, "returncode": 137},
        ),
        (
            ExecResult("timeout", None, 15, ended_by="timeout"),
            {"status": "timeout", "exit_code": -1, "returncode": 124},
        ),
        (
            ExecResult("refused", note="no"),
            {"status": "error", "exit_code": -1, "returncode": 126, "stderr": "refused\nno\n"},
        ),
        (
            ExecResult("unknown_outcome"),
            {"status": "error", "exit_code": -1, "returncode": 126},
        ),
        (
            CallFailed("policy_denied", "the policy refuses it", "ask the owner"),
            {
                "status": "error",
                "exit_code": -1,
                "returncode": 126,
                "stderr": "the policy refuses it\nask the owner\n",
            },
        ),
    ],
)
def test_its_tool_is_told_the_truth(plugin: Plugin, result: Result, fields: dict[str, Any]) -> None:
    said = plugin.answer(plugin.asked(type="exec", id="a", command="x"), result)
    assert {name: said[name] for name in fields} == fields
    for name in ("stdout", "stderr", "duration_ms", "truncated"):
        assert name in said
    assert said["id"] == "a"


def test_an_exec_without_an_id_is_run_and_answered_without(plugin: Plugin) -> None:
    said = plugin.answer(plugin.asked(type="exec", command="x"), ExecResult("ok", 0))
    assert "id" not in said


def test_partial_and_cut_output_reaches_it(plugin: Plugin) -> None:
    asked = plugin.asked(type="exec", id="a", command="x")
    output = Output(100, b"head", b"tail\xff")
    said = plugin.answer(asked, ExecResult("timeout", stdout=output))
    assert said["stdout"] == "head\n[91 bytes are missing here]\ntail\ufffd"
    assert said["truncated"] is True


def test_no_answer_is_larger_than_it_takes(plugin: Plugin) -> None:
    asked = plugin.asked(type="exec", id="a", command="x")
    half = b"\0" * (5 * 1024 * 1024)
    plugin.node.finish(
        asked.id, ExecResult("ok", 0, stdout=Output(1 << 40, half, half), stderr=Output(1, b"x"))
    )
    (frame,) = plugin.heard()
    assert isinstance(frame, str)
    assert len(frame.encode()) < 16 * 1024 * 1024
    assert json.loads(frame)["truncated"] is True


def test_its_read_is_streamed_to_the_link_and_answered_whole(plugin: Plugin) -> None:
    asked = plugin.asked(type="read", id="r", path="/x")
    assert asked.call == Read("/x", stream=True)
    assert plugin.node.send(asked.id, "data", b"ab") is True
    plugin.node.send(asked.id, "data", b"\xff")
    said = plugin.answer(asked, ReadResult(size=3))
    assert said == {
        "type": "read_result",
        "id": "r",
        "status": "ok",
        "content_b64": "YWL/",
        "size_bytes": 3,
    }
    said = plugin.answer(plugin.asked(type="read", id="r", path="/x"), ReadResult())
    assert said == {"type": "read_result", "id": "r", "status": "ok"}


def test_a_file_over_ten_mebibytes_is_refused_not_cut(plugin: Plugin) -> None:
    asked = plugin.asked(type="read", id="r", path="/x")
    for _ in range(11):
        plugin.node.send(asked.id, "data", bytes(1024 * 1024))
    said = plugin.answer(asked, ReadResult())
    assert (said["status"], said["error"]) == ("error", "file_too_large")
    assert "content_b64" not in said
    big = base64.b64encode(bytes(10 * 1024 * 1024 + 1)).decode()
    (said,) = plugin.tell(type="write", id="w", path="/x", content_b64=big, mode="create")
    assert (said["code"], said["reason"]) == (4000, "bad_request")


def test_its_write_becomes_a_call(plugin: Plugin) -> None:
    asked = plugin.asked(type="write", id="w", path="/x", content_b64="aMOpCg==", mode="append")
    assert asked.call == Write("/x", data="hé\n".encode(), mode="append")
    assert plugin.answer(asked, WriteResult(bytes_written=4)) == {
        "type": "write_result",
        "id": "w",
        "status": "ok",
        "bytes_written": 4,
    }
    asked = plugin.asked(type="write", id="w", path="/x", content_b64="", mode="")
    assert asked.call == Write("/x")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("path_not_allowed", "path_not_allowed"),
        ("file_not_found", "file_not_found"),
        ("file_too_large", "file_too_large"),
        ("io_error", "io_error"),
        ("storage_full", "io_error"),
    ],
)
def test_file_errors_are_named_in_its_words(plugin: Plugin, code: str, error: str) -> None:
    for kind in ({"type": "read"}, {"type": "write", "content_b64": "eA=="}):
        asked = plugin.asked(id="f", path="/x", **kind)
        said = plugin.answer(asked, CallFailed(code, "so it is"))
        assert (said["status"], said["error"]) == ("error", error)
        assert "so it is" in said["error_detail"]
        assert (code in said["error_detail"]) is (code != error)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"type": "exec", "id": "b"}, 4000),
        ({"type": "exec", "id": "b", "command": " "}, 4000),
        ({"type": "read", "id": "b"}, 4000),
        ({"type": "write", "id": "b", "path": "/x", "mode": "replace"}, 4000),
        ({"type": "dance", "id": "b"}, 5001),
        ({"type": "call", "id": "b", "op": "exec"}, 4000),
    ],
)
def test_what_it_gets_wrong_is_answered(plugin: Plugin, message: dict[str, Any], code: int) -> None:
    (said,) = plugin.tell(**message)
    assert said["type"] == "error"
    assert said["code"] == code
    assert not plugin.saw(ev.CallAsked)
    assert plugin.node.state == "open"


def test_its_own_limit_message_ends_the_link_with_its_reason(plugin: Plugin) -> None:
    plugin.tell(
        type="rate_limit",
        reason="rate_limit_exceeded",
        code=4004,
        node_name="lab",
        limit_per_second=100,
    )
    (ended,) = plugin.saw(ev.Ended)
    assert (ended.close.code, ended.close.reason) == (4004, "rate_limit_exceeded")
    assert "100" in ended.close.detail


def test_it_is_sent_fewer_frames_a_second_than_it_takes(plugin: Plugin) -> None:
    asked = [plugin.asked(type="exec", id=str(n), command="x") for n in range(250)]
    for one in asked:
        plugin.node.finish(one.id, ExecResult("ok", 0))
    sent = []
    for _ in range(4):
        frames = plugin.heard()
        sent.append(len(frames))
        assert len(frames) <= 90
        due = plugin.node.wake_at()
        assert due is not None
        plugin.clock.advance(max(0.0, due - plugin.clock.monotonic()))
    assert sum(sent) == 250


def test_it_is_pinged_and_its_pongs_count(plugin: Plugin) -> None:
    plugin.clock.advance(30)
    plugin.node.tick()
    (ping,) = plugin.heard()
    plugin.clock.advance(0.02)
    plugin.tell(type="pong", ts="t", echo_ts=json.loads(ping)["ts"])
    assert plugin.node.rtt_ms == pytest.approx(20)


def test_both_ends_of_ours_speak_it_too() -> None:
    wires = Wires(BY_TOKEN, PLUGIN).pump()
    number = wires.brain.call(Exec(command="x"), key="key-0001")
    wires.pump()
    (asked,) = wires.node_saw(ev.CallAsked)
    wires.node.finish(asked.id, ExecResult("error", 7, stdout=Output(3, b"abc")))
    wires.pump()
    (ended,) = wires.brain_saw(ev.CallEnded)
    assert ended.id == number
    assert (ended.result.exit_code, ended.result.stdout.head) == (7, b"abc")
