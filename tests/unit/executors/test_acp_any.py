from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.executors.acp_peer import ONCE, SESSION, Peer

from handoff.errors import NotAllowed
from handoff.executors.acp import AcpDriver
from handoff.executors.catalog import BUILT_IN
from handoff.executors.contract import (
    Allow,
    Answer,
    AskClosed,
    Deny,
    Interrupt,
    PermissionAsked,
    Prompt,
    QuestionAsked,
    ToolCall,
    TurnEnded,
)

# -- anything at all -----------------------------------------------------------------------

_words = st.sampled_from(
    ["s1", "c1", "a", "b", "x", "pending", "completed", "execute", "edit", "diff", "text", "yolo"]
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | _words | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            [
                "sessionId", "update", "sessionUpdate", "toolCallId", "toolCall", "options", "kind",
                "optionId", "content", "type", "text", "path", "newText", "locations", "rawInput",
                "command", "status", "title", "_meta", "claudeCode", "parentToolUseId", "codex",
                "error", "threadStatus", "stopReason", "usage", "questions", "question",
                "requestedSchema", "properties", "oneOf", "const", "requestId", "entries", "cost",
                "currentModeId", "configOptions", "agentCapabilities", "protocolVersion", "modes",
            ]
        ),
        inner,
        max_size=6,
    ),
    max_leaves=25,
)  # fmt: skip
_updates = st.sampled_from(
    [
        "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan",
        "usage_update", "session_info_update", "current_mode_update", "config_option_update",
        "user_message_chunk", "new",
    ]
)  # fmt: skip
_methods = st.sampled_from(
    [
        "session/request_permission", "elicitation/create", "_x.ai/ask_user_question",
        "_x.ai/session_notification", "$/cancel_request", "session/update", "fs/read_text_file",
    ]
)  # fmt: skip
_permissions = st.builds(
    lambda number, options, tool: {
        "id": number,
        "method": "session/request_permission",
        "params": {"sessionId": "s1", "toolCall": tool, "options": options},
    },
    st.integers(0, 4),
    st.lists(st.sampled_from(ONCE), max_size=4),
    st.fixed_dictionaries({"toolCallId": st.sampled_from(["c1", "c2"])}),
)
_messages = (
    st.builds(
        lambda kind, fields: {
            "method": "session/update",
            "params": {"sessionId": "s1", "update": {"sessionUpdate": kind, **fields}},
        },
        _updates,
        st.dictionaries(
            st.sampled_from(["toolCallId", "content", "status", "messageId", "_meta", "entries"]),
            _values,
            max_size=4,
        ),
    )
    | st.builds(
        lambda method, number, params: {"method": method, "id": number, "params": params},
        _methods,
        st.integers(0, 4) | st.just("t"),
        _values,
    )
    | st.builds(lambda method, params: {"method": method, "params": params}, _methods, _values)
    | st.builds(lambda number, result: {"id": number, "result": result}, st.integers(1, 9), _values)
    | st.builds(
        lambda number, error: {"id": number, "error": error},
        st.integers(1, 9),
        st.fixed_dictionaries({"code": st.integers(-3, 3), "message": _words, "data": _values}),
    )
    | _permissions
)
_ids = st.sampled_from(["0", "1", "2", "3", "4", "s:t"])
_commands = (
    st.builds(Prompt, _words)
    | st.builds(Allow, _ids)
    | st.builds(Deny, _ids, _words)
    | st.builds(Answer, _ids, st.just((("a",),)) | st.just(()))
    | st.just(Interrupt())
)
_steps = st.lists(
    st.tuples(st.just("feed"), _messages.map(lambda m: json.dumps(m).encode()))
    | st.tuples(st.just("feed"), st.binary(max_size=60))
    | st.tuples(st.just("do"), _commands),
    max_size=25,
)


def play(step, driver):
    what, value = step
    try:
        return driver.feed(value) if what == "feed" else driver.command(value)
    except NotAllowed as error:
        assert what == "do"
        return str(error)


@settings(max_examples=150)
@given(steps=_steps, start=st.integers(0, 3), name=st.sampled_from(["claude-agent-acp", "gemini"]))
def test_writing_the_state_down_between_any_two_steps_changes_nothing(steps, start, name):
    definition = BUILT_IN[name]
    opening = [
        {"id": 1, "result": {"protocolVersion": 1}},
        {"id": 2, "result": {"sessionId": "s1"}},
        {"id": 3, "result": {}},
    ][:start]
    plain, reloaded = AcpDriver(definition), AcpDriver(definition)
    assert plain.open(SESSION) == reloaded.open(SESSION)
    begin = [("feed", json.dumps(m).encode()) for m in opening]
    for step in [*begin, ("do", Prompt("go")), *steps]:
        reloaded = AcpDriver.load(reloaded.dump(), definition)
        assert play(step, plain) == play(step, reloaded)
    assert plain.dump() == reloaded.dump()
    assert plain.exited(1, "x") == AcpDriver.load(reloaded.dump(), definition).exited(1, "x")


@settings(max_examples=150)
@given(steps=_steps)
def test_asks_and_turns_are_closed_once_whatever_the_agent_writes(steps):
    peer = Peer()
    peer.ready()
    for step in [("do", Prompt("go")), *steps]:
        outputs = play(step, peer.driver)
        if not isinstance(outputs, str):
            peer.take(outputs)
    peer.take(peer.driver.exited(None, ""))
    waiting: set[str] = set()
    turns = 0
    for one in peer.out:
        if isinstance(one, PermissionAsked | QuestionAsked):
            assert one.id not in waiting
            waiting.add(one.id)
        elif isinstance(one, AskClosed):
            waiting.remove(one.id)
        elif isinstance(one, TurnEnded):
            turns += 1
            assert not waiting
        elif isinstance(one, ToolCall):
            assert one.id
    assert not waiting
    prompts = sum(1 for m in peer.sent if m.get("method") == "session/prompt")
    assert turns == prompts
