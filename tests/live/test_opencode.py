"""opencode itself, over ACP and its shim, against the stub model."""

from __future__ import annotations

import json
import pathlib

import pytest

from handoff.executors.contract import Deny, PermissionAsked, Retrying, SessionReady, TurnEnded
from tests.live import acp_turns as turns
from tests.live.acp_turns import Start
from tests.live.stub_model import StubModel
from tests.support.home import Home

PROGRAM = "opencode"


async def test_a_gated_turn(start: Start, worktree: pathlib.Path) -> None:
    asked = await turns.gated_turn(start, worktree)
    [write] = [p for p in asked if p.kind in ("edit", "write")]
    assert write.paths == (str(worktree / "notes.txt"),)


async def test_a_denial_ends_the_turn_and_the_reason_follows(
    start: Start, worktree: pathlib.Path, stub: StubModel
) -> None:
    run, _ = await turns.denied(start, worktree)
    await turns.reason_as_next_prompt(run, stub)


async def test_it_has_no_question_tool(start: Start, stub: StubModel) -> None:
    run = await start()
    await run.prompt("Ask.", [{"ask": {"question": "Which?", "options": ["a", "b"]}}])
    end = await run.next(TurnEnded)
    assert "no tool for ask" in end.text
    [request] = [r for r in stub.requests if "said" in r]
    assert "bash" in request["tools"]


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
    await turns.unknown_session(start, "ses_00000000ffffAAAAAAAAAAAAAA")


async def test_the_process_is_killed_in_a_turn(start: Start) -> None:
    await turns.killed(start)


async def test_an_answer_that_is_no_answer_ends_the_turn(start: Start) -> None:
    await turns.fails(start, {"garbage": True, "times": -1})


async def test_a_stalled_stream_is_cut_and_tried_again(start: Start, stub: StubModel) -> None:
    run = await start()
    fault = {"stall": 60, "times": 1}  # the set-up's chunkTimeout is 3 s
    await run.prompt("Go.", [fault, {"say": "recovered"}])
    assert (await run.next(TurnEnded)).fault is None
    assert "recovered" in run.text()
    assert stub.count(fault=fault) == 1


async def test_the_project_does_not_open_the_gate(start: Start, worktree: pathlib.Path) -> None:
    allow = {"permission": {"*": "allow", "bash": "allow", "edit": "allow"}}
    (worktree / "opencode.json").write_text(json.dumps(allow))
    (worktree / ".opencode").mkdir()
    (worktree / ".opencode" / "opencode.json").write_text(json.dumps(allow))
    run = await start()
    await run.next(SessionReady)
    await run.prompt("Push.", [{"run": "git push origin main"}, {"say": "done"}])
    asked = await run.next(PermissionAsked)
    assert asked.command == "git push origin main"
    await run.command(Deny(asked.id))


@pytest.mark.parametrize("default", [False, True])
async def test_the_users_agents_do_not_open_the_gate(
    start: Start, isolated_home: Home, default: bool
) -> None:
    """An agent's own permissions win over all others, wherever the user wrote them down."""
    path = isolated_home.path / ".config" / "opencode" / "opencode.json"
    config = json.loads(path.read_text())
    allow = {"permission": {"bash": "allow", "edit": "allow"}}
    config["agent"] = {"build": allow, "wild": {"mode": "primary", "prompt": "Work.", **allow}}
    if default:
        config["default_agent"] = "wild"
    path.write_text(json.dumps(config))
    run = await start()
    await run.prompt("Push.", [{"run": "git push origin main"}, {"say": "done"}])
    asked = await run.next(PermissionAsked)
    assert asked.command == "git push origin main"
    await run.command(Deny(asked.id))


async def test_every_command_is_asked_for(start: Start) -> None:
    run = await start()
    await run.prompt("Look.", [{"run": "ls"}, {"say": "seen"}])
    assert (await run.next(PermissionAsked)).command == "ls"


async def test_a_retry_is_silent(start: Start) -> None:
    run = await start()
    await run.prompt("Go.", [{"error": 500, "times": 1}, {"say": "recovered"}])
    assert (await run.next(TurnEnded)).fault is None
    assert "recovered" in run.text()
    assert not run.all(Retrying), "should it tell them now, docs/executors.md is out of date"
