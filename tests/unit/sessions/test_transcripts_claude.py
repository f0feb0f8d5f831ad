from __future__ import annotations

from pathlib import Path

from tests.unit.sessions import transcript_kit as kit
from tests.unit.sessions.test_transcripts import messages

from handoff.sessions import transcripts


def test_only_the_user_s_own_words_are_the_user_s(tmp_path: Path) -> None:
    reminder = {"type": "text", "text": "<system-reminder>never do that</system-reminder>"}
    kit.claude(
        tmp_path,
        kit.claude_entry(10, "user", "a summary", isCompactSummary=True),
        kit.claude_entry(11, "user", "its own", isMeta=True),
        kit.claude_entry(12, "user", "of a sub-agent", isSidechain=True),
        kit.claude_entry(13, "user", [reminder, {"type": "text", "text": "mine"}]),
        kit.claude_entry(14, "user", "<command-name>/clear</command-name>"),
        kit.claude_entry(13, "user", "the same entry again"),
    )
    assert [one.text for one in messages(tmp_path, "claude", role="user")] == [kit.RULE, "mine"]
    told = [one.text for one in messages(tmp_path, "claude", role="system")]
    assert told[:2] == ["a summary", "its own"]
    assert "of a sub-agent" not in repr(messages(tmp_path, "claude"))


def test_its_own_folder_may_be_elsewhere(tmp_path: Path) -> None:
    kit.claude(tmp_path)
    where = {"HOME": "/nowhere", "CLAUDE_CONFIG_DIR": str(tmp_path / ".claude")}
    opened = transcripts.opener("claude", where)
    assert opened is not None
    with opened() as store:
        assert store.session(kit.CLAUDE) is not None
