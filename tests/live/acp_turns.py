"""What every ACP agent has to do, written once; each agent's module runs it."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Awaitable, Callable
from typing import Any

from handoff.executors.contract import (
    Allow,
    AskClosed,
    Deny,
    Interrupt,
    PermissionAsked,
    SessionReady,
    StartFailed,
    TurnEnded,
)
from tests.live.harness import Run
from tests.live.stub_model import StubModel

Start = Callable[..., Awaitable[Run]]


async def allow_all(run: Run, within: float = 90.0) -> tuple[TurnEnded, list[PermissionAsked]]:
    """Allow whatever is asked until the turn ends."""
    asked: list[PermissionAsked] = []
    while True:
        found = await run.next(PermissionAsked, TurnEnded, within=within)
        if isinstance(found, TurnEnded):
            return found, asked
        assert isinstance(found, PermissionAsked)
        asked.append(found)
        await run.command(Allow(found.id))


async def gated_turn(start: Start, worktree: pathlib.Path) -> list[PermissionAsked]:
    """A write and a command, both asked for, allowed and done."""
    (worktree / "build").mkdir()
    run = await start()
    ready = await run.next(SessionReady)
    assert ready.session_id
    assert ready.context == "new"
    await run.prompt(
        f"Work in the working directory {worktree}.",
        [
            {"say": "I write."},
            {"write": {"path": f"{worktree}/notes.txt", "content": "one\n"}},
            {"run": "rm -rf build"},
            {"say": "All done."},
        ],
    )
    end, asked = await allow_all(run)
    assert end.fault is None, run.tell()
    assert (worktree / "notes.txt").read_text().strip() == "one"
    assert not (worktree / "build").exists()
    assert "All done." in run.text()
    assert "rm -rf build" in [p.command for p in asked], asked
    closed = {c.id: c.how for c in run.all(AskClosed)}
    assert closed == {p.id: "acknowledged" for p in asked}
    return asked


async def denied(start: Start, worktree: pathlib.Path) -> tuple[Run, TurnEnded]:
    """A denied command is not run."""
    (worktree / "build").mkdir()
    run = await start()
    await run.prompt("Go.", [{"run": "rm -rf build"}, {"say": "I see."}])
    asked = await run.next(PermissionAsked)
    await run.command(Deny(asked.id, "nothing is deleted"))
    end = await run.next(TurnEnded)
    assert (worktree / "build").exists()
    assert not run.driver.carries_reason
    return run, end


async def reason_as_next_prompt(run: Run, stub: StubModel) -> None:
    """The reason of a denial reaches the model as the next prompt."""
    await run.prompt("The command was denied: nothing is deleted.", [{"say": "Understood."}])
    end = await run.next(TurnEnded)
    assert end.fault is None, run.tell()
    assert "Understood." in run.text()
    assert stub.was_told("nothing is deleted")


async def interrupt_pending(start: Start) -> None:
    """An interrupt withdraws what waits; the session goes on."""
    run = await start()
    await run.prompt("Go.", [{"run": "rm -rf build"}, {"say": "never said"}])
    await run.next(PermissionAsked)
    await run.command(Interrupt())
    assert (await run.next(AskClosed)).how == "withdrawn"
    end = await run.next(TurnEnded)
    assert end.fault is not None
    assert end.fault.code == "cancelled"
    await run.prompt("Again.", [{"say": "still here"}])
    assert (await run.next(TurnEnded)).fault is None
    assert "still here" in run.text()


async def interrupt_running(start: Start, worktree: pathlib.Path) -> None:
    """An interrupt ends a running command."""
    run = await start()
    loop = "rm -rf build; touch begun; while :; do sleep 0.2; done"
    await run.prompt("Go.", [{"run": loop}, {"say": "never"}])
    await run.command(Allow((await run.next(PermissionAsked)).id))
    async with asyncio.timeout(60):
        while not (worktree / "begun").exists():
            await asyncio.sleep(0.01)
    await run.command(Interrupt())
    end = await run.next(TurnEnded)
    assert end.fault is not None
    async with asyncio.timeout(60):
        while any("touch begun" in p.command for p in await run.handle.tree()):
            await asyncio.sleep(0.05)


async def answered_after_restart(start: Start, worktree: pathlib.Path) -> None:
    """A permission that waits is answered by another daemon."""
    (worktree / "build").mkdir()
    run = await start()
    await run.prompt("Go.", [{"run": "rm -rf build"}, {"say": "it was allowed"}])
    asked = await run.next(PermissionAsked)
    await run.again(await run.leave())
    await run.command(Allow(asked.id))
    assert (await run.next(AskClosed)) == AskClosed(asked.id, "acknowledged")
    end, _ = await allow_all(run)
    assert end.fault is None, run.tell()
    assert "it was allowed" in run.text()
    assert not (worktree / "build").exists()


async def resumed(start: Start, stub: StubModel) -> None:
    """Another process takes up the session, and the model has its history."""
    first = await start()
    session = (await first.next(SessionReady)).session_id
    await first.prompt("Remember the word heron.", [{"say": "I will."}])
    await first.next(TurnEnded)
    await first.end()
    second = await start(resume=session)
    ready = await second.next(SessionReady)
    assert ready.context == "resumed"
    assert not second.text(), "history is no news"
    await second.prompt("Which word?", [{"say": "that one"}])
    assert (await second.next(TurnEnded)).fault is None
    assert "that one" in second.text()
    assert "heron" in stub.bodies[-1]


async def unknown_session(start: Start, session: str) -> None:
    """A session that is gone costs the context, not the task."""
    run = await start(resume=session)
    ready = await run.next(SessionReady, StartFailed)
    if isinstance(ready, StartFailed):
        assert ready.lost
        return
    assert ready.context == "lost"
    await run.prompt("Go on.", [{"say": "from the start"}])
    assert (await run.next(TurnEnded)).fault is None


async def killed(start: Start) -> None:
    """A process that is killed in a turn ends it as a crash."""
    run = await start()
    await run.prompt("Go.", [{"run": "rm -rf build"}, {"say": "never"}])
    await run.next(PermissionAsked)
    await run.handle.end(0.0)
    assert (await run.next(AskClosed)).how == "withdrawn"
    end = await run.next(TurnEnded)
    assert end.fault is not None
    assert end.fault.code == "crash"


async def fails(start: Start, fault: dict[str, Any], within: float = 90.0) -> TurnEnded:
    """The fault ends the turn; the next one works."""
    run = await start()
    await run.prompt("Fail.", [fault])
    end = await run.next(TurnEnded, within=within)
    assert end.fault is not None, run.tell()
    await run.prompt("And now.", [{"say": "alive"}])
    after = await run.next(TurnEnded)
    assert after.fault is None, run.tell()
    assert "alive" in run.text()
    return end
