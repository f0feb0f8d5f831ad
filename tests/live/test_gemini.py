"""Gemini CLI itself, over ACP and its shim, against the stub model."""

from __future__ import annotations

import json
import pathlib

from handoff.executors.contract import Deny, PermissionAsked, TurnEnded
from tests.live import acp_turns as turns
from tests.live.acp_turns import Start
from tests.live.stub_model import StubModel
from tests.support.home import Home

PROGRAM = "gemini"


async def test_a_gated_turn(start: Start, worktree: pathlib.Path) -> None:
    asked = await turns.gated_turn(start, worktree)
    [write] = [p for p in asked if p.kind in ("edit", "write")]
    assert write.paths == (str(worktree / "notes.txt"),)


async def test_a_denial_and_its_reason(
    start: Start, worktree: pathlib.Path, stub: StubModel
) -> None:
    run, _ = await turns.denied(start, worktree)
    await turns.reason_as_next_prompt(run, stub)


async def test_an_interrupt_withdraws_what_waits(start: Start) -> None:
    await turns.interrupt_pending(start)


async def test_a_permission_is_answered_after_the_daemon_was_gone(
    start: Start, worktree: pathlib.Path
) -> None:
    await turns.answered_after_restart(start, worktree)


async def test_a_session_that_is_gone(start: Start) -> None:
    await turns.unknown_session(start, "0198c0de-0000-7000-8000-000000000000")


async def test_the_process_is_killed_in_a_turn(start: Start) -> None:
    await turns.killed(start)


async def test_a_bad_request_ends_the_turn(start: Start) -> None:
    await turns.fails(start, {"error": 400, "times": -1, "message": "no"})


async def test_the_project_does_not_open_the_gate(start: Start, worktree: pathlib.Path) -> None:
    (worktree / ".gemini").mkdir()
    (worktree / ".gemini" / "settings.json").write_text(
        '{"tools": {"allowed": ["run_shell_command"], "autoAccept": true},'
        ' "general": {"defaultApprovalMode": "yolo"}}'
    )
    run = await start()
    await run.prompt("Push.", [{"run": "git push origin main"}, {"say": "done"}])
    asked = await run.next(PermissionAsked, TurnEnded)
    assert isinstance(asked, PermissionAsked)
    assert "git push" in (asked.command or "")
    await run.command(Deny(asked.id))


async def test_an_interrupt_ends_a_running_command(start: Start, worktree: pathlib.Path) -> None:
    await turns.interrupt_running(start, worktree)


async def test_a_listing_is_not_asked_for(start: Start) -> None:
    run = await start()
    await run.prompt("Look.", [{"run": "ls"}, {"run": "cat README.md"}, {"say": "seen"}])
    assert (await run.next(PermissionAsked)).command == "cat README.md"


async def test_the_users_settings_and_policies_do_not_open_the_gate(
    start: Start, isolated_home: Home
) -> None:
    folder = isolated_home.path / ".gemini"
    settings = json.loads((folder / "settings.json").read_text())
    settings["tools"] = {"allowed": ["run_shell_command(rm)", "write_file"]}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "policies").mkdir()
    (folder / "policies" / "mine.toml").write_text(
        '[[rule]]\ntoolName = "write_file"\ndecision = "allow"\npriority = 900\n'
    )
    run = await start()
    await run.prompt(
        "Work.", [{"write": {"path": "a.txt", "content": "x"}}, {"run": "rm -rf build"}]
    )
    for kind in ("edit", "execute"):
        asked = await run.next(PermissionAsked)
        assert asked.kind == kind
        await run.command(Deny(asked.id))
