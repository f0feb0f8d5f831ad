"""Which session of Claude Code calls is read from the transcripts, not from a variable that
outlives a session."""

from __future__ import annotations

import os
import pathlib
import threading

import pytest

from handoff.mcp import claude

TOOL = "toolu_01AbC"
LINE = '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"%s"}]}}\n'


@pytest.fixture
def projects(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr(claude, "PATIENCE", 0.3)
    made = tmp_path / "projects" / "-work-a"
    made.mkdir(parents=True)
    return made


def asked(projects: pathlib.Path, tool: object = TOOL, first: str = "old") -> str:
    return claude.session_of(tool, first, {"CLAUDE_CONFIG_DIR": str(projects.parents[1])})


def test_the_transcript_that_holds_the_call_tells_the_session(projects: pathlib.Path) -> None:
    (projects / "old.jsonl").write_text(LINE % "toolu_01Other")
    (projects / "new.jsonl").write_text(LINE % "toolu_01Other" + LINE % TOOL)
    assert asked(projects) == "new"


def test_home_is_where_the_transcripts_are_without_a_setting(
    projects: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "projects").rename(home / "x")
    (home / ".claude").mkdir()
    (home / "x").rename(home / ".claude" / "projects")
    (home / ".claude/projects/-work-a/s1.jsonl").write_text(LINE % TOOL)
    assert claude.session_of(TOOL, "", {"HOME": str(home)}) == "s1"


def test_a_call_of_a_subagent_is_its_session_s(projects: pathlib.Path) -> None:
    (projects / "s1" / "subagents").mkdir(parents=True)
    (projects / "s1" / "subagents" / "agent-7.jsonl").write_text(LINE % TOOL)
    (projects / "s1.jsonl").write_text(LINE % "toolu_01Other")
    assert asked(projects) == "s1"


def test_a_transcript_that_is_written_a_moment_later_is_waited_for(
    projects: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claude, "PATIENCE", 10.0)
    writing = threading.Timer(0.1, lambda: (projects / "s1.jsonl").write_text(LINE % TOOL))
    writing.start()
    try:
        assert asked(projects) == "s1"
    finally:
        writing.join()


def test_what_two_transcripts_hold_tells_nothing(projects: pathlib.Path) -> None:
    (projects / "s1.jsonl").write_text(LINE % TOOL)
    (projects / "s2.jsonl").write_text(LINE % TOOL)
    assert asked(projects, first="s1") == ""


def test_a_part_of_an_id_is_not_the_id(projects: pathlib.Path) -> None:
    (projects / "s1.jsonl").write_text(LINE % (TOOL + "2"))
    assert asked(projects) == ""


def test_an_old_transcript_is_not_of_a_session_that_calls_now(projects: pathlib.Path) -> None:
    path = projects / "s1.jsonl"
    path.write_text(LINE % TOOL)
    os.utime(path, (1, 1))
    assert asked(projects) == ""


def test_only_the_end_of_a_large_transcript_is_read(projects: pathlib.Path) -> None:
    path = projects / "s1.jsonl"
    path.write_bytes(b" " * (5 * 1024 * 1024) + (LINE % TOOL).encode())
    assert asked(projects) == "s1"


@pytest.mark.parametrize("tool", [None, 7, "", "a b", "x" * 201, '"', "../x", ["x"]])
def test_without_an_id_of_the_call_nothing_is_known(projects: pathlib.Path, tool: object) -> None:
    (projects / "old.jsonl").write_text(LINE % TOOL)
    assert asked(projects, tool) == ""


def test_no_transcripts_no_session(tmp_path: pathlib.Path, projects: pathlib.Path) -> None:
    assert claude.session_of(TOOL, "old", {}) == ""
    assert claude.session_of(TOOL, "old", {"CLAUDE_CONFIG_DIR": str(tmp_path / "none")}) == ""
    (projects / "s1.jsonl").mkdir()
    assert asked(projects) == ""


def test_a_project_s_own_files_say_nothing(
    projects: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (projects / "s1.jsonl").write_text(LINE % TOOL)
    (projects.parents[1] / ".claude").mkdir()
    (projects.parent).rename(projects.parents[1] / ".claude" / "projects")
    monkeypatch.chdir(projects.parents[1])
    assert claude.session_of(TOOL, "", {}) == ""
    assert claude.session_of(TOOL, "", {"CLAUDE_CONFIG_DIR": ".claude"}) == ""
