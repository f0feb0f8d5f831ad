"""Claude Code itself, over its driver and its shim, against the stub model."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Awaitable, Callable

import pytest

from handoff.executors.contract import (
    Allow,
    Answer,
    AskClosed,
    Deny,
    Interrupt,
    PermissionAsked,
    PromptTaken,
    QuestionAsked,
    Retrying,
    SessionReady,
    StartFailed,
    Text,
    ToolCall,
    TurnEnded,
    UsageSeen,
)
from tests.live.harness import Run
from tests.live.stub_model import MODEL, StubModel

PROGRAM = "claude"

Start = Callable[..., Awaitable[Run]]


async def test_a_gated_turn(start: Start, stub: StubModel, worktree: pathlib.Path) -> None:
    run = await start(model=MODEL, instructions="Stay on your branch.")
    (worktree / "CLAUDE.md").write_text("Use tabs.\n")
    await run.prompt(
        "Do it.",
        [
            {"say": "I write a file."},
            {"write": {"path": "notes.txt", "content": "one\ntwo\n"}},
            {"run": "rm -rf build"},
            {"ask": {"question": "Which driver?", "options": ["pgx", "gorm"]}},
            {"run": "ls"},
            {"say": "All done."},
        ],
    )
    ready = await run.next(SessionReady)
    assert (ready.session_id, ready.context) == (run.session.new_id, "new")
    assert ready.version is not None
    await run.next(PromptTaken)

    write = await run.next(PermissionAsked)
    assert (write.tool, write.kind) == ("Write", "write")
    assert write.paths == (str(worktree / "notes.txt"),)
    assert write.edits[0].new == "one\ntwo\n"
    assert not (worktree / "notes.txt").exists()
    await run.command(Allow(write.id))
    assert (await run.next(AskClosed)) == AskClosed(write.id, "acknowledged")
    assert (worktree / "notes.txt").read_text() == "one\ntwo\n"

    remove = await run.next(PermissionAsked)
    assert (remove.command, remove.cwd) == ("rm -rf build", str(worktree))
    await run.command(Deny(remove.id, "nothing is deleted: move it to attic/"))
    assert (await run.next(AskClosed)) == AskClosed(remove.id, "acknowledged")

    asked = await run.next(QuestionAsked)
    [question] = asked.questions
    assert question.text == "Which driver?"
    assert [choice.label for choice in question.choices] == ["pgx", "gorm"]
    await run.command(Answer(asked.id, (("neither: use sqlite",),)))

    end = await run.next(TurnEnded)
    assert (end.text, end.fault) == ("All done.", None)
    assert run.text() == "I write a file.All done."
    assert stub.was_told("nothing is deleted: move it to attic/")
    assert stub.was_told("neither: use sqlite")
    assert any("Stay on your branch." in r.get("system", "") for r in stub.requests)
    assert not stub.was_told("Use tabs."), "the project's own file is read on our word only"
    [listed] = [c for c in run.all(ToolCall) if c.command == "ls"]
    assert listed.status == "pending"  # a command that only reads in the worktree is not asked for
    assert run.all(UsageSeen)[-1].input_tokens


async def test_requests_in_parallel_are_answered_in_any_order(
    start: Start, worktree: pathlib.Path
) -> None:
    run = await start(model=MODEL)
    await run.prompt(
        "Both.",
        [
            [
                {"write": {"path": "a.txt", "content": "a"}},
                {"write": {"path": "b.txt", "content": "b"}},
            ],
            {"say": "both"},
        ],
    )
    asked = [await run.next(PermissionAsked)]
    # the second is only asked for when the first is settled, or at once: both are allowed
    await run.command(Allow(asked[0].id))
    second = await run.next(PermissionAsked)
    await run.command(Allow(second.id))
    assert (await run.next(TurnEnded)).fault is None
    assert (worktree / "a.txt").read_text() == "a"
    assert (worktree / "b.txt").read_text() == "b"


async def test_a_sub_agent_asks_in_its_own_name_and_within_the_turn(start: Start) -> None:
    run = await start(model=MODEL)
    inner = '@@model [{"run": "touch sub.txt"}, {"say": "the sub-agent is done"}]'
    task = {"description": "help", "prompt": inner, "subagent_type": "general-purpose"}
    await run.prompt("Delegate.", [{"tool": "Task", "args": task}, {"say": "the end"}])
    asked = await run.next(PermissionAsked)
    [outer] = [c for c in run.all(ToolCall) if c.kind == "think"]
    assert asked.parent == outer.id
    await run.command(Allow(asked.id))
    end = await run.next(TurnEnded)
    assert end.text == "the end"
    assert [t.parent for t in run.all(Text) if t.text == "the sub-agent is done"] == [outer.id]


async def test_interrupt_withdraws_what_waits_and_the_session_goes_on(start: Start) -> None:
    run = await start(model=MODEL)
    await run.prompt("Go.", [{"run": "rm -rf build"}, {"say": "never said"}])
    asked = await run.next(PermissionAsked)
    await run.command(Interrupt())
    assert (await run.next(AskClosed)).how == "withdrawn"
    end = await run.next(TurnEnded)
    assert end.fault is not None
    assert end.fault.code == "cancelled"
    assert asked.id not in run.driver.dump().decode().split('"asks"')[1].split('"closed"')[0]
    await run.prompt("Again.", [{"say": "still here"}])
    assert (await run.next(TurnEnded)).text == "still here"


async def test_an_interrupt_right_behind_the_prompt_ends_the_turn(start: Start) -> None:
    run = await start(model=MODEL)
    await run.next(SessionReady)
    await run.prompt("Go.", [{"say": "a b c d e f g h", "pause": 0.5}, {"run": "true"}])
    await run.command(Interrupt())
    end = await run.next(TurnEnded)
    assert end.fault is not None
    assert end.fault.code == "cancelled"


async def test_an_interrupt_ends_a_running_command(start: Start, worktree: pathlib.Path) -> None:
    run = await start(model=MODEL)
    loop = "touch begun; while :; do sleep 0.2; done"
    await run.prompt("Go.", [{"run": loop}, {"say": "never"}])
    await run.command(Allow((await run.next(PermissionAsked)).id))
    async with asyncio.timeout(60):
        while not (worktree / "begun").exists():
            await asyncio.sleep(0.01)
    await run.command(Interrupt())
    assert (await run.next(TurnEnded)).fault is not None
    async with asyncio.timeout(60):
        while any("touch begun" in p.command for p in await run.handle.tree()):
            await asyncio.sleep(0.05)


async def test_a_permission_is_answered_after_the_daemon_was_gone(
    start: Start, stub: StubModel
) -> None:
    run = await start(model=MODEL)
    await run.prompt("Go.", [{"run": "touch allowed.txt"}, {"say": "it was allowed"}])
    asked = await run.next(PermissionAsked)
    state = await run.leave()
    await run.again(state)
    await run.command(Allow(asked.id))
    assert (await run.next(AskClosed)) == AskClosed(asked.id, "acknowledged")
    assert (await run.next(TurnEnded)).text == "it was allowed"
    assert stub.count(step=0) == 1, "nothing was asked of the model twice"


async def test_a_session_is_resumed_by_another_process(start: Start, stub: StubModel) -> None:
    first = await start(model=MODEL)
    await first.prompt("Remember the word heron.", [{"say": "I will."}])
    await first.next(TurnEnded)
    await first.end()
    second = await start(model=MODEL, resume=first.session.new_id)
    ready = await second.next(SessionReady)
    assert (ready.session_id, ready.context) == (first.session.new_id, "resumed")
    await second.prompt("Which word?", [{"say": "heron"}])
    assert (await second.next(TurnEnded)).text == "heron"
    assert stub.requests[-1]["step"] == 0
    assert "heron" in stub.bodies[-1]


async def test_a_session_that_is_gone_is_told_apart(start: Start) -> None:
    run = await start(model=MODEL, resume="7c1d4b7e-0000-4000-8000-000000000000")
    await run.prompt("Go on.")
    failed = await run.next(StartFailed)
    assert failed.lost
    assert failed.fault.code == "start"


async def test_a_server_error_is_retried_and_told(start: Start) -> None:
    run = await start(model=MODEL)
    await run.prompt("Go.", [{"error": 500, "times": 1}, {"say": "recovered"}])
    retry = await run.next(Retrying)
    assert (retry.attempt, retry.limit) == (1, 10)
    assert (await run.next(TurnEnded)).text == "recovered"


async def test_each_failure_is_named_and_the_next_turn_works(start: Start) -> None:
    run = await start(model=MODEL, extra={"CLAUDE_CODE_MAX_RETRIES": "0"})
    limit = "You have hit your limit · resets 3pm (UTC)"
    for fault, code in [
        ({"error": 401, "times": -1, "message": "OAuth token has expired"}, "login"),
        ({"error": 429, "times": -1, "message": limit}, "limit"),
        ({"error": 529, "times": -1}, "overloaded"),
        ({"error": 404, "times": -1, "message": "model: stub-1"}, "model"),
        ({"error": 500, "times": -1}, "other"),
        ({"error": 400, "times": -1, "message": "prompt is too long"}, "cut_short"),
        ({"garbage": True, "times": -1}, "other"),
        ({"stop": "max_tokens"}, "cut_short"),
        ({"stop": "refusal"}, "refused"),
    ]:
        script = [fault] if "stop" not in fault else [{"say": "x"}, fault] * 6
        await run.prompt(f"Fail with {fault}.", script)
        end = await run.next(TurnEnded)
        assert end.fault is not None, fault
        assert end.fault.code == code, end.fault
        if code == "limit":
            assert end.fault.resets_at == "3pm (UTC)"
    await run.prompt("And now.", [{"say": "alive"}])
    assert (await run.next(TurnEnded)) == TurnEnded("alive", None, "completed")


@pytest.mark.slow
async def test_a_stalled_model_ends_the_turn(start: Start) -> None:
    idle = {
        "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": "10000",  # it takes no less
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    run = await start(model=MODEL, extra=idle)
    await run.prompt("Go.", [{"stall": 100, "times": -1}])
    end = await run.next(TurnEnded)
    assert end.fault is not None
    assert end.fault.code == "network"


async def test_settings_of_user_and_project_do_not_open_the_gate(
    start: Start, worktree: pathlib.Path, isolated_home: object
) -> None:
    allow = '{"permissions": {"allow": ["Bash(git push:*)", "Bash"], "defaultMode": "acceptEdits"}}'
    for folder in (worktree / ".claude", pathlib.Path(isolated_home.path) / ".claude"):  # type: ignore[attr-defined]
        folder.mkdir(exist_ok=True)
        (folder / "settings.json").write_text(allow)
        (folder / "settings.local.json").write_text(allow)
    run = await start(model=MODEL)
    await run.prompt("Push.", [{"run": "git push origin main"}, {"say": "done"}])
    asked = await run.next(PermissionAsked)
    assert asked.command == "git push origin main"
    await run.command(Deny(asked.id))
    assert (await run.next(TurnEnded)).fault is None


async def test_the_process_is_killed_in_a_turn(start: Start) -> None:
    run = await start(model=MODEL)
    await run.prompt("Go.", [{"run": "rm -rf build"}, {"say": "never"}])
    await run.next(PermissionAsked)
    await run.handle.end(0.0)
    assert (await run.next(AskClosed)).how == "withdrawn"
    end = await run.next(TurnEnded)
    assert end.fault is not None
    assert end.fault.code == "crash"


async def test_reading_is_asked_for_outside_the_worktree_only(start: Start) -> None:
    run = await start(model=MODEL)
    await run.prompt("Look.", [{"run": "ls"}, {"run": "cat /etc/hostname"}, {"say": "seen"}])
    asked = await run.next(PermissionAsked)
    assert asked.command == "cat /etc/hostname"
    await run.command(Deny(asked.id))
    await run.prompt_after(TurnEnded, "And.", [{"read": {"path": "/etc/passwd"}}, {"say": "x"}])
    assert (await run.next(PermissionAsked)).kind == "read"


async def test_an_edit_a_fetch_and_several_answers(
    start: Start, stub: StubModel, worktree: pathlib.Path
) -> None:
    run = await start(model=MODEL)
    ask = {"question": "Which ones?", "options": ["red", "blue", "green"], "multiple": True}
    app = f"{worktree}/app.py"
    await run.prompt(
        "Go.",
        [
            {"read": {"path": app}},
            {"edit": {"path": app, "old": "hello", "new": "good morning"}},
            {"tool": "WebFetch", "args": {"url": "https://example.invalid/x", "prompt": "read"}},
            {"ask": ask},
            {"say": "done"},
        ],
    )
    edit = await run.next(PermissionAsked)
    assert (edit.kind, edit.paths) == ("edit", (app,))
    assert (edit.edits[0].old, edit.edits[0].new) == ("hello", "good morning")
    await run.command(Allow(edit.id))
    fetch = await run.next(PermissionAsked)
    assert fetch.kind == "fetch"
    assert "https://example.invalid/x" in fetch.text
    await run.command(Deny(fetch.id, "nothing from outside"))
    asked = await run.next(QuestionAsked)
    assert asked.questions[0].multiple
    await run.command(Answer(asked.id, (("red", "green"),)))
    assert (await run.next(TurnEnded)).fault is None
    assert "good morning" in (worktree / "app.py").read_text()
    assert stub.was_told("red, green")
