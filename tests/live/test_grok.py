"""Grok itself, over ACP and its shim, against the stub model."""

from __future__ import annotations

import pathlib

import pytest

from handoff.executors import detect
from handoff.executors.contract import (
    Answer,
    Deny,
    PermissionAsked,
    QuestionAsked,
    Retrying,
    TurnEnded,
)
from tests.live import acp_turns as turns
from tests.live.acp_turns import Start
from tests.live.stub_model import StubModel
from tests.support.home import Home

PROGRAM = "grok"


async def test_a_gated_turn(start: Start, worktree: pathlib.Path) -> None:
    asked = await turns.gated_turn(start, worktree)
    [write] = [p for p in asked if p.kind in ("edit", "write")]
    assert write.paths == (str(worktree / "notes.txt"),)


async def test_a_denial_ends_the_turn_and_the_reason_follows(
    start: Start, worktree: pathlib.Path, stub: StubModel
) -> None:
    run, _ = await turns.denied(start, worktree)
    await turns.reason_as_next_prompt(run, stub)


async def test_a_question_is_answered_within_the_turn(start: Start, stub: StubModel) -> None:
    run = await start()
    ask = {"question": "Which driver?", "options": ["pgx", "gorm"]}
    await run.prompt("Ask.", [{"ask": ask}, {"say": "So be it."}])
    asked = await run.next(QuestionAsked)
    assert asked.questions[0].text == "Which driver?"
    assert [choice.label for choice in asked.questions[0].choices] == ["pgx", "gorm"]
    await run.command(Answer(asked.id, (("pgx",),)))
    assert (await run.next(TurnEnded)).fault is None
    assert "So be it." in run.text()
    assert any("pgx" in result for result in stub.requests[-1]["results"])


async def test_an_interrupt_withdraws_what_waits(start: Start) -> None:
    await turns.interrupt_pending(start)


async def test_an_interrupt_ends_a_running_command(start: Start, worktree: pathlib.Path) -> None:
    await turns.interrupt_running(start, worktree)


async def test_a_permission_is_answered_after_the_daemon_was_gone(
    start: Start, worktree: pathlib.Path
) -> None:
    await turns.answered_after_restart(start, worktree)


async def test_a_session_is_resumed(start: Start, stub: StubModel) -> None:
    await turns.resumed(start, stub)


async def test_a_session_that_is_gone(start: Start) -> None:
    await turns.unknown_session(start, "0198c0de-0000-7000-8000-000000000000")


async def test_the_process_is_killed_in_a_turn(start: Start) -> None:
    await turns.killed(start)


async def test_a_rate_limit_is_named(start: Start) -> None:
    end = await turns.fails(start, {"error": 429, "times": -1, "message": "slow down"})
    assert end.fault is not None
    assert end.fault.code == "limit"


async def test_a_bad_request_ends_the_turn(start: Start) -> None:
    await turns.fails(start, {"error": 400, "times": -1, "message": "no"})


ALLOW = '{"permissions": {"allow": ["Bash(git push:*)"]}}'


def claude_settings(folder: pathlib.Path) -> None:
    (folder / ".claude").mkdir()
    for name in ("settings.json", "settings.local.json"):
        (folder / ".claude" / name).write_text(ALLOW)


async def test_settings_in_the_project_do_not_open_the_gate(
    start: Start, worktree: pathlib.Path
) -> None:
    claude_settings(worktree)
    (worktree / ".grok").mkdir()
    (worktree / ".grok" / "config.toml").write_text('[permission]\nallow = ["Bash"]\n')
    run = await start()
    await run.prompt("Push.", [{"run": "git push origin main"}, {"say": "done"}])
    asked = await run.next(PermissionAsked)
    assert "git push" in (asked.command or "")
    await run.command(Deny(asked.id))


@pytest.mark.parametrize("shut", [False, True])
async def test_settings_of_the_user_open_the_gate_unless_grok_is_told_to_ask(
    start: Start, isolated_home: Home, shut: bool
) -> None:
    """Grok obeys the allow rules of the user's own Claude Code settings, and no flag or
    variable stops it: docs/executors.md says so. Its own ``ask`` rules win over them."""
    claude_settings(isolated_home.path)
    if shut:
        config = isolated_home.path / ".grok" / "config.toml"
        config.write_text(f"{config.read_text()}\n{detect.GROK_ASK}\n")
    run = await start()
    await run.prompt("Push.", [{"run": "git push origin main"}, {"say": "done"}])
    found = await run.next(PermissionAsked, TurnEnded)
    assert isinstance(found, PermissionAsked) is shut


async def test_a_server_error_is_retried_and_told(start: Start) -> None:
    run = await start()
    await run.prompt("Go.", [{"error": 500, "times": 1}, {"say": "recovered"}])
    assert (await run.next(Retrying)).attempt == 1
    assert (await run.next(TurnEnded)).fault is None
    assert "recovered" in run.text()


async def test_what_only_reads_is_not_asked_for(start: Start) -> None:
    run = await start()
    await run.prompt("Look.", [{"run": "ls"}, {"run": "cat /etc/hostname"}, {"say": "seen"}])
    assert isinstance(await run.next(PermissionAsked, TurnEnded), TurnEnded)
