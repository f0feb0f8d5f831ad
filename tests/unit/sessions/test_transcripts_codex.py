from __future__ import annotations

from pathlib import Path

from tests.unit.sessions import transcript_kit as kit
from tests.unit.sessions.test_transcripts import messages

from handoff.sessions import transcripts


def test_newer_versions_say_themselves_what_the_user_said(tmp_path: Path) -> None:
    def kinds(*found: str) -> dict[str, object]:
        return {"internal_chat_message_metadata_passthrough": {"content_item_kinds": list(found)}}

    kit.codex(
        tmp_path,
        kit.codex_said(20, "user", "<skill> is what I want", **kinds("user.text")),
        kit.codex_said(21, "user", "plain, but the program's", **kinds("context.other")),
        kit.codex_line(22, "compacted", message="what went before"),
    )
    said = [one.text for one in messages(tmp_path, "codex", role="user")]
    assert said == [kit.RULE, "<skill> is what I want"]
    assert messages(tmp_path, "codex")[-1].text == "what went before"
    assert messages(tmp_path, "codex")[-1].role == "system"


def test_a_file_that_says_that_it_is_another_thread_s_is_none(tmp_path: Path) -> None:
    path = kit.codex(tmp_path)
    other = kit.CODEX[:-1] + "7"
    path.rename(path.with_name(path.name.replace(kit.CODEX, other)))
    assert messages(tmp_path, "codex", other) == []


def test_archived_threads_count(tmp_path: Path) -> None:
    path = kit.codex(tmp_path)
    folder = tmp_path / "home" / "archived_sessions"
    folder.mkdir(parents=True)
    path.rename(folder / path.name)
    opened = transcripts.opener("codex", {"CODEX_HOME": str(tmp_path / "home")})
    assert opened is not None
    with opened() as store:
        assert store.session(kit.CODEX) is not None
