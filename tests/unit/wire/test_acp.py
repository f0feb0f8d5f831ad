from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.wire import acp
from handoff.wire.lenient import lenient

STRUCTS = [
    acp.Initialized,
    acp.SessionOpened,
    acp.PromptDone,
    acp.Content,
    acp.ToolFields,
    acp.PermissionRequest,
    acp.Elicitation,
    acp.AskUser,
    acp.RetryState,
    acp.PlanEntry,
    acp.Cost,
]


def test_names_are_those_of_the_wire():
    done = lenient(acp.PromptDone, {"stopReason": "end_turn", "usage": {"inputTokens": 3}})
    assert done == acp.PromptDone("end_turn", acp.Usage(3))
    tool = lenient(
        acp.ToolFields,
        {
            "toolCallId": "c",
            "rawInput": {"command": "ls"},
            "_meta": {"k": 1},
            "content": [{"type": "diff", "path": "/a", "oldText": None, "newText": "x"}],
        },
    )
    assert tool is not None
    assert (tool.tool_call_id, tool.raw_input, tool.meta) == ("c", {"command": "ls"}, {"k": 1})
    assert tool.content == [acp.ToolContent("diff", None, "/a", None, "x")]


def test_null_where_a_list_is_usual_is_survived():
    opened = lenient(
        acp.SessionOpened,
        {"sessionId": "s", "modes": None, "models": {"availableModels": None}, "configOptions": 1},
    )
    assert opened == acp.SessionOpened("s", None, acp.Models())


def test_nothing_is_claimed_that_we_do_not_do():
    params = acp.initialize("handoff", "1")
    assert params["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
        "elicitation": {"form": {}},
    }


_keys = [
    "protocolVersion", "agentCapabilities", "sessionId", "modes", "models", "configOptions",
    "stopReason", "usage", "type", "text", "toolCallId", "toolCall", "options", "optionId",
    "kind", "questions", "question", "label", "requestedSchema", "properties", "_meta", "content",
    "locations", "path", "amount", "attempt", "id", "value",
]  # fmt: skip
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_keys), inner, max_size=5)
    ),
    max_leaves=15,
)


@pytest.mark.parametrize("kind", STRUCTS)
@given(value=_json)
def test_no_value_makes_decoding_raise(kind, value):
    found = lenient(kind, value)
    assert found is None or isinstance(found, kind)
