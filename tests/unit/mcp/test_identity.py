"""Which session speaks comes from the host, and only from the host that says such things."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.mcp.identity import Speaker, speaker
from handoff.mcp.protocol import Client

CLAUDE = {"CLAUDE_CODE_SESSION_ID": "c1"}


@pytest.mark.parametrize(
    ("meta", "name", "env", "expected"),
    [
        ({}, "claude-code", CLAUDE, ("c1", "claude")),
        ({"threadId": "t1"}, "codex-mcp-client", {}, ("t1", "codex")),
        ({"ai.opencode/sessionID": "o1"}, "opencode", {}, ("o1", "opencode")),
        # an inherited variable, or another host's key, says nothing
        ({}, "cursor-vscode", CLAUDE, ("", "other")),
        ({}, "", CLAUDE, ("", "other")),
        ({"threadId": "t1"}, "codex-mcp-client", CLAUDE, ("t1", "codex")),
        ({}, "codex-mcp-client", CLAUDE, ("", "codex")),
        ({"threadId": "t1"}, "some-editor", {}, ("", "other")),
        ({}, "opencode", CLAUDE, ("", "opencode")),
        ({}, "claude-code", {}, ("", "claude")),
        ({"sessionId": "x", "session_id": "x"}, "claude-code", {}, ("", "claude")),
    ],
)
def test_who_speaks(
    meta: dict[str, Any], name: str, env: dict[str, str], expected: tuple[str, str]
) -> None:
    assert speaker(meta, Client(name), env) == Speaker(*expected)


@pytest.mark.parametrize("value", ["", " ", "a b", "a\nb", "\x1b[2J", "x" * 201, 7, None, ["x"]])
def test_what_is_no_id_is_none(value: Any) -> None:
    assert speaker({"threadId": value}, Client("codex"), {}).session == ""
    if isinstance(value, str):
        env = {"CLAUDE_CODE_SESSION_ID": value}
        assert speaker({}, Client("claude-code"), env).session == ""


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=10) | st.integers()), st.text())
def test_nothing_else_ever_names_a_session(meta: dict[str, Any], name: str) -> None:
    for key in ("threadId", "ai.opencode/sessionID"):
        meta.pop(key, None)
    assert speaker(meta, Client(name), {"SESSION_ID": "x"}).session == ""
