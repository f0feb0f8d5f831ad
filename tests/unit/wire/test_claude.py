"""The codec of Claude Code's protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.wire import claude as wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KINDS = ("assistant", "control_request", "control_response", "result", "stream_event", "system")
FIELDS = (
    "message",
    "request",
    "response",
    "event",
    "subtype",
    "request_id",
    "parent_tool_use_id",
    "content",
    "input",
    "tool_name",
    "modelUsage",
    "errors",
    "tasks",
    "rate_limit_info",
)


def decode(body: Any) -> wire.Message:
    return wire.decode(json.dumps(body).encode())


def ask(given: Any, **rest: Any) -> wire.Message:
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": given, **rest}
    return decode({"type": "control_request", "request_id": "q", "request": request})


@given(st.binary(max_size=400))
def test_arbitrary_bytes_become_a_message(line: bytes) -> None:
    assert isinstance(wire.decode(line), wire.Message)


@given(
    st.fixed_dictionaries(
        {"type": st.sampled_from(KINDS) | JSON},
        optional=dict.fromkeys(FIELDS, JSON),
    )
)
def test_fields_of_any_type_become_a_message(body: dict[str, Any]) -> None:
    assert isinstance(decode(body), wire.Message)


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"3", b"null", b'{"type": 3}', b"\xff\xfe", b"[" * 200_000]
)
def test_what_is_no_message_is_strange(line: bytes) -> None:
    found = wire.decode(line)
    assert isinstance(found, wire.Strange)
    assert len(found.sample) <= wire.SAMPLE


def test_an_unknown_type_is_named_without_its_content() -> None:
    found = decode({"type": "new\nthing" + "x" * 100, "secret": "abc"})
    assert isinstance(found, wire.Strange)
    assert found.what.startswith("new?thing")
    assert len(found.what) <= 60
    assert decode({"type": "system", "subtype": "brand_new"}) == wire.Strange(
        "system/brand_new", '{"type":"system","subtype":"brand_new"}'
    )


def test_half_a_character_costs_no_message() -> None:
    line = (
        rb'{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool",'
        rb'"tool_name":"Bash","input":{"command":"echo \ud83d"}}}'
    )
    found = wire.decode(line)
    assert isinstance(found, wire.AskTool)
    assert found.input == {"command": "echo \ufffd"}
    assert json.loads(found.raw) == {"command": "echo \ufffd"}


def test_what_was_shown_is_what_is_sent_back() -> None:
    given = {"command": "x", "n": 123456789012345678901234567890, "f": 1.5, "deep": [{"a": None}]}
    found = ask(given)
    assert isinstance(found, wire.AskTool)
    sent = json.loads(wire.allow("q", found.raw))
    assert sent == {
        "type": "control_response",
        "response": {
            "subtype": "success",
            "request_id": "q",
            "response": {"behavior": "allow", "updatedInput": given},
        },
    }


def test_an_allow_carries_no_lasting_permission() -> None:
    found = ask({"command": "ls"}, permission_suggestions=[{"type": "addRules"}])
    assert isinstance(found, wire.AskTool)
    assert b"updatedPermissions" not in wire.allow("q", found.raw)


@pytest.mark.parametrize("given", [None, [], "x", 3])
def test_a_request_without_readable_input_is_not_a_tool_request(given: Any) -> None:
    assert ask(given) == wire.AskOther("q", "can_use_tool")


def test_a_denial_carries_its_reason() -> None:
    sent = json.loads(wire.deny("q", 'not "that"'))
    assert sent["response"]["response"] == {"behavior": "deny", "message": 'not "that"'}


def test_answers_are_added_to_the_questions() -> None:
    given = {"questions": [{"question": "Which?"}]}
    sent = json.loads(wire.answer("q", json.dumps(given), {"Which?": "a, b"}))
    assert sent["response"]["response"]["updatedInput"] == {**given, "answers": {"Which?": "a, b"}}


@pytest.mark.parametrize(
    "line",
    [
        wire.initialize("a"),
        wire.interrupt("a"),
        wire.prompt("one\ntwo\u2028three"),
        wire.allow("a", "{}"),
        wire.deny("a", "b\nc"),
        wire.answer("a", "{}", {"q\n": "a\n"}),
        wire.unsupported("a", "hook_callback"),
    ],
)
def test_every_message_of_ours_is_one_line_of_json(line: bytes) -> None:
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    json.loads(line)


def test_an_answer_to_our_request() -> None:
    def body(**response: Any) -> wire.Message:
        return decode({"type": "control_response", "response": {"request_id": "h", **response}})

    assert body(subtype="success", response={"a": 1}) == wire.Answered("h", "", {"a": 1})
    assert body(subtype="error", error="no") == wire.Answered("h", "no", {})
    assert body() == wire.Answered("h", "refused without a reason", {})


def test_blocks_of_an_assistant_message() -> None:
    content = [
        {"type": "text", "text": "a"},
        {"type": "thinking", "thinking": "b"},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
        {"type": "tool_use", "name": "no id"},
        {"type": "unheard of"},
        7,
    ]
    message = {"id": "m", "content": content}
    assert decode({"type": "assistant", "message": message, "parent_tool_use_id": "p"}) == (
        wire.Said("m", "p", ("a",), ("b",), (wire.ToolUse("t", "Bash", {"command": "ls"}),), None)
    )


def test_results_as_text() -> None:
    content = [
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "is_error": True,
            "content": [{"type": "text", "text": "one"}, {"type": "image", "source": {}}],
        },
        {"type": "tool_result", "tool_use_id": "u", "content": "plain"},
        {"type": "tool_result", "content": "whose?"},
    ]
    assert decode({"type": "user", "message": {"content": content}}) == wire.Results(
        (wire.ToolResult("t", "one\n[image]", True), wire.ToolResult("u", "plain", False)), None
    )


def test_a_result_adds_up_all_models() -> None:
    usage = {
        "a": {"inputTokens": 10, "cacheReadInputTokens": 5, "outputTokens": 2},
        "b": {"inputTokens": 1, "cacheCreationInputTokens": 4, "outputTokens": 3},
        "c": "?",
    }
    found = decode({"type": "result", "subtype": "success", "modelUsage": usage})
    assert isinstance(found, wire.Result)
    assert (found.input_tokens, found.output_tokens, found.cost_usd) == (20, 5, None)
    nothing = decode({"type": "result"})
    assert isinstance(nothing, wire.Result)
    assert nothing.input_tokens is None, "what is not told is not zero"
