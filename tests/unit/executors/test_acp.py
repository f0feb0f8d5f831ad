from __future__ import annotations

import json

import msgspec
import pytest
from tests.unit.executors.acp_peer import CAREFUL, PLAIN, Peer, working

from handoff.errors import NotAllowed, ProtocolViolation
from handoff.executors.acp import AcpDriver
from handoff.executors.catalog import BUILT_IN
from handoff.executors.contract import (
    Allow,
    AskClosed,
    Fault,
    Interrupt,
    Noticed,
    Prompt,
    PromptTaken,
    Session,
    SessionReady,
    StartFailed,
    Text,
    TurnEnded,
    Unrecognised,
    UsageSeen,
)
from handoff.wire import jsonrpc

# -- handshake -----------------------------------------------------------------------------


def test_a_session_begins_without_servers_and_with_the_agents_extension_fields():
    peer = Peer(BUILT_IN["claude-agent-acp"])
    peer.answer("initialize", {})
    assert peer.sent[-1]["params"] == {
        "cwd": "/w",
        "mcpServers": [],
        "_meta": {"claudeCode": {"options": {"settingSources": []}}},
    }
    peer = Peer()
    peer.answer("initialize", {})
    assert peer.sent[-1]["params"] == {"cwd": "/w", "mcpServers": []}


def test_a_prompt_is_kept_until_the_session_is_ready():
    peer = Peer()
    assert peer.do(Prompt("go")) == []
    assert peer.methods() == ["initialize"]
    (ready,) = peer.ready()
    assert ready == SessionReady("s1")
    assert peer.methods() == ["initialize", "session/new", "session/prompt"]
    assert peer.sent[-1]["params"] == {
        "sessionId": "s1",
        "prompt": [{"type": "text", "text": "go"}],
    }


def test_instructions_go_before_the_first_prompt_only():
    peer = working(session=Session("/w", "n", instructions="RULES\n"))
    assert peer.sent[-1]["params"]["prompt"][0]["text"] == "RULES\n\ngo"
    peer.answer("session/prompt", {"stopReason": "end_turn"})
    peer.do(Prompt("more"))
    assert peer.sent[-1]["params"]["prompt"][0]["text"] == "more"


@pytest.mark.parametrize("can", [{"loadSession": True}, {"sessionCapabilities": {"resume": {}}}])
def test_a_resumed_session_was_told_its_instructions(can):
    peer = Peer(session=Session("/w", "n", resume="old", instructions="RULES"))
    peer.answer("initialize", {"agentCapabilities": can})
    way = "session/load" if "loadSession" in can else "session/resume"
    assert peer.sent[-1]["method"] == way
    assert peer.sent[-1]["params"]["sessionId"] == "old"
    (ready,) = peer.answer(way, {})
    assert ready == SessionReady("old", "resumed")
    peer.do(Prompt("go on"))
    assert peer.sent[-1]["params"]["prompt"][0]["text"] == "go on"


def test_a_session_that_no_way_brings_back_is_lost_and_its_instructions_are_told_again():
    peer = Peer(session=Session("/w", "n", resume="old", instructions="RULES"))
    both = {"loadSession": True, "sessionCapabilities": {"resume": {}}}
    peer.answer("initialize", {"agentCapabilities": both})
    gone = {"code": -32603, "message": "Internal error", "data": {"details": "no such session"}}
    assert peer.answer("session/resume", error=gone) == [
        Noticed("the executor could not resume its session: no such session")
    ]
    peer.answer("session/load", error=gone)
    (ready,) = peer.answer("session/new", {"sessionId": "s2"})
    assert ready == SessionReady("s2", "lost")
    peer.do(Prompt("go on"))
    assert peer.sent[-1]["params"]["prompt"][0]["text"] == "RULES\n\ngo on"


def test_the_history_of_a_loaded_session_is_not_told():
    peer = Peer(session=Session("/w", "n", resume="s1"))
    peer.answer("initialize", {"agentCapabilities": {"loadSession": True}})
    assert peer.chunk("old words") == []
    assert peer.update("tool_call", toolCallId="old", title="x", status="pending") == []
    peer.answer("session/load", {})
    peer.do(Prompt("go"))
    peer.chunk("new words")
    (ended,) = peer.answer("session/prompt", {"stopReason": "end_turn"})
    assert ended.text == "new words"


def test_a_missing_login_at_the_start_is_told_as_such():
    peer = Peer()
    peer.answer("initialize", {})
    (failed,) = peer.answer(
        "session/new", error={"code": -32000, "message": "Authentication required"}
    )
    assert failed == StartFailed(Fault("login", "Authentication required"))
    with pytest.raises(NotAllowed):
        peer.do(Prompt("go"))


LOGIN = msgspec.structs.replace(PLAIN, login="plain login", logins=("api-key",))
NO_LOGIN = {"code": -32000, "message": "Authentication required"}


def test_a_login_that_asks_nobody_is_tried():
    peer = Peer(LOGIN)
    peer.answer("initialize", {"authMethods": [{"id": "browser"}, {"id": "api-key"}]})
    assert peer.answer("session/new", error=NO_LOGIN) == []
    assert peer.sent[-1]["method"] == "authenticate"
    assert peer.sent[-1]["params"] == {"methodId": "api-key"}
    peer.answer("authenticate", {})
    (ready,) = peer.answer("session/new", {"sessionId": "s1"})
    assert isinstance(ready, SessionReady)


def test_a_login_that_fails_says_what_is_missing_and_how_to_log_in():
    peer = Peer(LOGIN)
    peer.answer("initialize", {"authMethods": [{"id": "api-key"}]})
    peer.answer("session/new", error=NO_LOGIN)
    (failed,) = peer.answer("authenticate", error={"code": -32603, "message": "no key"})
    message = "Authentication required (log in with: plain login)"
    assert failed == StartFailed(Fault("login", message))
    peer = working(LOGIN)
    *_, ended = peer.answer("session/prompt", error=NO_LOGIN)
    assert ended.fault == Fault("login", message)


def test_another_version_of_the_protocol_is_refused():
    peer = Peer()
    (failed,) = peer.answer("initialize", {"protocolVersion": 2})
    assert isinstance(failed, StartFailed)
    assert failed.fault.code == "protocol" and "version 2" in failed.fault.message


def test_the_mode_is_set_before_anything_is_prompted():
    peer = Peer(CAREFUL)
    peer.do(Prompt("go"))
    peer.ready(modes={"currentModeId": "auto", "availableModes": [{"id": "auto"}, {"id": "ask"}]})
    assert peer.methods()[-1] == "session/set_mode"
    (ready,) = peer.answer("session/set_mode", {})
    assert isinstance(ready, SessionReady)
    assert peer.methods()[-1] == "session/prompt"


def test_an_agent_that_will_not_ask_is_not_used():
    peer = Peer(CAREFUL)
    peer.do(Prompt("go"))
    peer.ready(modes={"currentModeId": "yolo", "availableModes": [{"id": "yolo"}]})
    (failed,) = peer.answer("session/set_mode", error={"code": -32602, "message": "unknown mode"})
    assert isinstance(failed, StartFailed)
    assert "(it offers: yolo)" in failed.fault.message
    assert "session/prompt" not in peer.methods()


def test_a_mode_is_set_by_the_option_where_there_are_no_modes():
    values = [{"value": "ask"}, {"value": "wild"}]
    peer = Peer(CAREFUL)
    option = {"id": "mode", "currentValue": "wild", "options": values}
    assert peer.ready(configOptions=[option]) == []
    assert peer.sent[-1]["method"] == "session/set_config_option"
    assert peer.sent[-1]["params"] == {"sessionId": "s1", "configId": "mode", "value": "ask"}
    (failed,) = peer.answer("session/set_config_option", error={"code": -32602, "message": "no"})
    assert "(it offers: ask, wild)" in failed.fault.message
    peer = Peer(CAREFUL)
    (ready,) = peer.ready(configOptions=[{**option, "currentValue": "ask"}])
    assert isinstance(ready, SessionReady)


def test_an_agent_that_knows_no_modes_may_be_in_the_right_one():
    peer = Peer(CAREFUL)
    peer.ready(modes={"currentModeId": "ask"})
    (ready,) = peer.answer("session/set_mode", error={"code": -32601, "message": "no such method"})
    assert isinstance(ready, SessionReady)


def test_an_agent_that_switches_its_mode_is_switched_back():
    peer = Peer(CAREFUL)
    peer.ready()
    peer.answer("session/set_mode", {})
    assert peer.update("current_mode_update", currentModeId="ask") == []
    (notice,) = peer.update("current_mode_update", currentModeId="yolo")
    assert "'yolo'" in notice.text
    assert peer.methods()[-1] == "session/set_mode"
    option = {"id": "mode", "currentValue": "auto", "options": []}
    (notice,) = peer.update("config_option_update", configOptions=[option])
    assert "'auto'" in notice.text


MODELS = {
    "currentModelId": "a/one",
    "availableModels": [{"modelId": "a/one"}, {"modelId": "a/two"}],
}
OPTION = {
    "id": "model",
    "category": "model",
    "currentValue": "a/one",
    "options": [{"value": "a/one", "name": "One"}, {"value": "a/two", "name": "Two"}],
}


@pytest.mark.parametrize("wanted", ["a/two", "two"])
def test_a_model_is_chosen_by_the_older_way(wanted):
    peer = Peer(session=Session("/w", "n", model=wanted))
    peer.ready(models=MODELS)
    assert peer.sent[-1]["method"] == "session/set_model"
    assert peer.sent[-1]["params"] == {"sessionId": "s1", "modelId": "a/two"}
    (ready,) = peer.answer("session/set_model", {})
    assert ready.model == "a/two"


def test_a_model_is_chosen_by_the_option_where_there_is_one():
    peer = Peer(session=Session("/w", "n", model="Two"))
    peer.ready(models=MODELS, configOptions=[OPTION])
    assert peer.sent[-1]["method"] == "session/set_config_option"
    assert peer.sent[-1]["params"] == {"sessionId": "s1", "configId": "model", "value": "a/two"}


def test_the_model_in_use_is_not_set_again():
    peer = Peer(session=Session("/w", "n", model="a/one"))
    (ready,) = peer.ready(models=MODELS)
    assert ready.model == "a/one"


def test_an_unknown_model_says_which_there_are():
    peer = Peer(session=Session("/w", "n", model="nine"))
    peer.ready(configOptions=[OPTION])
    (failed,) = peer.answer(
        "session/set_config_option", error={"code": -32602, "message": "Invalid params"}
    )
    assert failed.fault.code == "model"
    assert "'nine'" in failed.fault.message and "a/one, a/two" in failed.fault.message


# -- a turn --------------------------------------------------------------------------------


def test_a_turn_ends_with_the_answer_to_its_prompt_and_keeps_its_last_message():
    peer = working()
    assert peer.chunk("I will look. ") == [PromptTaken(), Text("I will look. ")]
    peer.update("tool_call", toolCallId="c1", title="ls", kind="execute", status="pending")
    peer.chunk("Done.\n")
    peer.chunk('{"commit": "c"}')
    usage = {"inputTokens": 5, "outputTokens": 2}
    assert peer.answer("session/prompt", {"stopReason": "end_turn", "usage": usage}) == [
        UsageSeen(5, 2),
        TurnEnded('Done.\n{"commit": "c"}', None, "end_turn"),
    ]


def test_usage_is_summed_over_the_turns_of_a_process():
    peer = working()
    for total in (5, 10):
        peer.update(
            "usage_update", used=9, size=10, cost={"amount": total / 100, "currency": "USD"}
        )
        out = peer.answer("session/prompt", {"stopReason": "end_turn", "usage": {"inputTokens": 5}})
        assert UsageSeen(total, 0, total / 100) in out
        peer.do(Prompt("again"))


def test_a_new_message_id_begins_a_new_message():
    peer = working()
    peer.chunk("first", messageId="m1")
    peer.chunk("second", messageId="m2")
    peer.chunk(" half", messageId="m2")
    (ended,) = peer.answer("session/prompt", {"stopReason": "end_turn"})
    assert ended.text == "second half"


def test_what_a_sub_agent_says_is_told_apart_and_is_no_trailer():
    peer = working()
    peer.chunk("mine")
    meta = {"claudeCode": {"parentToolUseId": "task1"}}
    assert peer.chunk("theirs", _meta=meta)[-1] == Text("theirs", False, "task1")
    assert peer.chunk("other session", session="sub")[-1].parent == "sub"
    (call,) = peer.update("tool_call", toolCallId="c9", title="t", status="pending", _meta=meta)
    assert call.parent == "task1"
    (ended,) = peer.answer("session/prompt", {"stopReason": "end_turn"})
    assert ended.text == "mine"


def test_thoughts_are_told_apart_and_are_no_trailer():
    peer = working()
    content = {"type": "text", "text": "hm"}
    out = peer.update("agent_thought_chunk", content=content)
    assert out == [PromptTaken(), Text("hm", thought=True)]
    (ended,) = peer.answer("session/prompt", {"stopReason": "end_turn"})
    assert ended.text == ""


def test_only_the_tail_of_a_long_message_is_kept():
    peer = working()
    peer.chunk("x" * 100_000)
    peer.chunk("the end")
    (ended,) = peer.answer("session/prompt", {"stopReason": "end_turn"})
    assert len(ended.text) == 16 * 1024
    assert ended.text.endswith("xthe end")
    assert len(peer.driver.dump()) < 2000


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("end_turn", None),
        ("max_tokens", "cut_short"),
        ("max_turn_requests", "cut_short"),
        ("refusal", "refused"),
        ("cancelled", "cancelled"),
        ("brand_new", "other"),
        ("", "other"),
    ],
)
def test_stop_reasons(reason, code):
    peer = working()
    *_, ended = peer.answer("session/prompt", {"stopReason": reason})
    assert (ended.fault and ended.fault.code) == code


def test_a_prompt_that_is_refused_ends_its_turn_and_the_next_one_works():
    peer = working()
    error = {"code": -32000, "message": "usage limit reached, resets at 15:00"}
    taken, ended = peer.answer("session/prompt", error=error)
    assert taken == PromptTaken()
    assert ended.fault == Fault("limit", error["message"], resets_at="15:00")
    peer.do(Prompt("again"))
    assert peer.methods().count("session/prompt") == 2


def test_a_second_prompt_while_one_runs_is_refused_and_changes_nothing():
    peer = working()
    before = peer.driver.dump()
    with pytest.raises(NotAllowed):
        peer.driver.command(Prompt("too early"))
    assert peer.driver.dump() == before


def test_the_executors_plan_is_told_whole():
    peer = working()
    entries = [{"content": "a", "status": "completed"}, 5, {"content": "b"}]
    *_, plan = peer.update("plan", entries=entries)
    assert [(s.text, s.status) for s in plan.steps] == [("a", "completed"), ("b", "pending")]


# -- interrupting and ending ---------------------------------------------------------------


def test_an_interrupt_cancels_answers_what_is_pending_and_waits_for_the_end():
    peer = working()
    peer.permission(0)
    ask_params = {"message": "?", "requestedSchema": {"properties": {"q": {"type": "string"}}}}
    peer.feed({"id": 1, "method": "elicitation/create", "params": ask_params})
    out = peer.do(Interrupt())
    assert [(o.id, o.how) for o in out] == [("0", "withdrawn"), ("1", "withdrawn")]
    assert [m.get("method") or m["result"] for m in peer.sent[-3:]] == [
        "session/cancel",
        {"outcome": {"outcome": "cancelled"}},
        {"action": "cancel"},
    ]
    (ended,) = peer.answer("session/prompt", {"stopReason": "cancelled"})
    assert ended.fault == Fault("cancelled", "interrupted")
    assert peer.do(Interrupt()) == []


def test_what_is_asked_after_an_interrupt_is_given_up():
    peer = working()
    peer.do(Interrupt())
    (notice,) = peer.permission()
    assert isinstance(notice, Noticed)
    assert peer.sent[-1]["result"] == {"outcome": {"outcome": "cancelled"}}


def test_an_interrupt_before_the_session_is_ready_takes_the_prompt_back():
    peer = Peer()
    peer.do(Prompt("go"))
    (ended,) = peer.do(Interrupt())
    assert ended.fault == Fault("cancelled", "interrupted before it began")
    peer.ready()
    assert "session/prompt" not in peer.methods()
    peer.do(Prompt("again"))
    assert peer.methods()[-1] == "session/prompt"


def test_a_process_that_dies_in_a_turn_ends_it_and_withdraws_even_answered_asks():
    peer = working()
    peer.chunk("half")
    peer.permission(0)
    peer.permission(1)
    peer.do(Allow("0"))
    out = peer.take(peer.driver.exited(-9, "line\nOut of memory\n"))
    assert [o.how for o in out[:-1]] == ["withdrawn", "withdrawn"]
    assert out[-1] == TurnEnded(
        "half",
        Fault("crash", "the executor's process was ended by signal 9: line / Out of memory"),
    )
    assert peer.driver.exited(0, "") == []


def test_a_process_that_dies_between_turns_is_no_failed_turn():
    peer = Peer()
    peer.ready()
    assert peer.driver.exited(0, "") == []


@pytest.mark.parametrize(
    ("code", "stderr", "expected"),
    [
        (1, "Error: not logged in", "login"),
        (127, "env: node: not logged in?", "start"),
        (1, "boom", "start"),
        (None, "", "start"),
    ],
)
def test_a_process_that_dies_before_it_is_ready_could_not_start(code, stderr, expected):
    peer = Peer()
    peer.do(Prompt("go"))
    (failed,) = peer.take(peer.driver.exited(code, stderr))
    assert isinstance(failed, StartFailed)
    assert failed.fault.code == expected


# -- broken peers --------------------------------------------------------------------------


def test_unknown_requests_are_refused_and_unknown_notifications_counted():
    peer = working()
    (unknown,) = peer.feed({"id": 5, "method": "fs/write_text_file", "params": {}})
    assert unknown == Unrecognised("request fs/write_text_file")
    assert peer.sent[-1]["error"]["code"] == -32601
    assert peer.feed({"method": "session/news", "params": {}}) == [
        Unrecognised("notification session/news")
    ]
    assert peer.feed({"method": "_vendor/news", "params": {}}) == []


def test_noise_between_messages_is_counted_and_harmless():
    peer = working()
    (noise,) = peer.line(b"warning: deprecated")
    assert noise == Unrecognised("line not JSON", "warning: deprecated")
    assert peer.line(b"") == []
    peer.chunk("still here")
    (ended,) = peer.answer("session/prompt", {"stopReason": "end_turn"})
    assert ended.text == "still here"


LONG = b'{"jsonrpc":"2.0","method":"session/update","params":"'.ljust(jsonrpc.MAX_LINE + 1, b"x")


def test_a_line_over_the_limit_fails_the_turn_and_the_next_turn_works():
    peer = working()
    peer.permission()
    out = peer.line(LONG)
    assert out[-1] == AskClosed("0", "withdrawn", "the turn failed")
    assert "session/cancel" in peer.methods()
    (ended,) = peer.answer("session/prompt", {"stopReason": "cancelled"})
    assert ended.fault is not None
    assert ended.fault.code == "protocol" and "32 MiB" in ended.fault.message
    peer.do(Prompt("again"))
    (_, ended) = peer.answer("session/prompt", {"stopReason": "end_turn"})
    assert ended.fault is None


def test_a_line_over_the_limit_that_may_be_the_answer_ends_the_turn_at_once():
    peer = working()
    out = peer.line(b'{"jsonrpc":"2.0","id":3,"result":"'.ljust(jsonrpc.MAX_LINE + 1, b"x"))
    assert isinstance(out[-1], TurnEnded)
    assert out[-1].fault is not None and out[-1].fault.code == "protocol"
    # A late answer to that prompt does not end the next turn.
    peer.do(Prompt("again"))
    first = next(m["id"] for m in peer.sent if m.get("method") == "session/prompt")
    out = peer.feed({"id": first, "result": {"stopReason": "end_turn"}})
    assert out == [Unrecognised("answer to no request")]


def test_state_of_another_version_is_refused():
    state = msgspec.json.decode(Peer().driver.dump())
    for broken in (b"", b"{}x", json.dumps({**state, "version": 99}).encode()):
        with pytest.raises(ProtocolViolation):
            AcpDriver.load(broken, PLAIN)


def test_a_driver_between_turns_is_small():
    peer = working()
    for n in range(300):
        raw = {"command": "x" * 5000}
        peer.update("tool_call", toolCallId=f"c{n}", title="t", kind="execute", rawInput=raw)
    assert len(peer.driver.dump()) < 64 * 6000
    peer.answer("session/prompt", {"stopReason": "end_turn"})
    assert len(peer.driver.dump()) < 1000


def test_a_call_with_bulk_is_remembered_without_it():
    peer = working()
    raw = {"file_path": "/w/a", "content": "x" * 200_000}
    peer.update("tool_call", toolCallId="c1", title="Write a", kind="edit", rawInput=raw)
    assert len(peer.driver.dump()) < 2000
    (asked,) = peer.permission(call="c1", title="Write a", kind="edit", rawInput=raw)
    assert asked.edits[0].new == "x" * 200_000
