"""The actor: what it does when calls, journals, restarts and failures cross each other."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio
from tests.unit.agentd.harness import Box, PlainDriver
from tests.unit.agentd.running import FakeShim, LineDriver, LineExecutor, actor_of, until

from handoff.agentd import outcome, turns
from handoff.agentd.actor import Actor
from handoff.agentd.core import Core
from handoff.errors import StorageError, TooLarge, Unreachable
from handoff.executors.contract import Output, Session, SessionReady, TurnEnded


@pytest_asyncio.fixture
async def actor(box: Box, tmp_path: pathlib.Path) -> AsyncIterator[Actor]:
    """An actor whose task runs (no process is followed yet)."""
    box.start()
    made = actor_of(box, tmp_path)
    yield made
    await made.close()


def run_id(actor: Actor) -> str:
    return actor.core.must_run().id


def said(box: Box) -> str:
    rows = box.store.reader().execute("SELECT data FROM frames WHERE kind = 'text' ORDER BY n")
    return "".join(row[0] for row in rows.fetchall())


async def test_a_caller_that_has_gone_changes_nothing(box: Box, actor: Actor) -> None:
    gate = asyncio.Event()

    async def hold() -> None:
        await gate.wait()

    actor._redact = lambda _change: hold()  # type: ignore[assignment]
    first = asyncio.create_task(actor.call(lambda core: core.event("progress", {"n": 1})))
    second = asyncio.create_task(actor.call(lambda core: core.event("progress", {"n": 2})))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second.cancel()
    gate.set()
    await first
    await actor.call(lambda core: core.event("progress", {"n": 3}))
    told = [payload["n"] for kind, payload in box.events() if kind == "progress"]
    assert told == [1, 3]


async def test_who_waits_at_the_end_is_told(actor: Actor) -> None:
    never = asyncio.Event()

    async def hold() -> None:
        await never.wait()

    actor._redact = lambda _change: hold()  # type: ignore[assignment]
    waits = asyncio.create_task(actor.call(lambda core: core.event("progress", {})))
    await until(actor._inbox.empty)
    await asyncio.sleep(0)
    await actor.close()
    with pytest.raises(Unreachable):
        await asyncio.wait_for(waits, 2)


async def test_an_earlier_run_says_nothing_for_its_successor(box: Box, actor: Actor) -> None:
    """The process that rests is being ended while `continue` has begun the next one."""
    old = FakeShim(run_id(actor))
    actor.follow(old)
    box.core = actor.core
    await actor.call(lambda core: turns.take(core, [TurnEnded(text="no trailer")]))
    effect = next(e.id for e in actor.core.effects if e.kind == "verify")
    found: dict[str, object] = {"code": "no_claim", "why": "", "head": "", "dirt": {"total": 0}}
    await actor.call(lambda core: outcome.verified(core, effect, {"found": found, "verify": []}))
    await actor.call(turns.end_run)
    await actor.call(lambda core: turns.continue_(core, "more", "b" * 40, "me"))
    new = run_id(actor)
    assert new != old.run_id
    old.says("stdout", b"late words\n")
    old.says("exited", b"-15")
    old.says("swept", b"1")
    await until(lambda: not actor._records)
    old.dies()
    assert actor._reader is not None
    await asyncio.wait_for(asyncio.wait({actor._reader}), 5)
    run = actor.core.must_run()
    assert (run.id, run.state, run.read_offset) == (new, "intended", 0)
    assert actor.state == "running"
    assert "turn_failed" not in box.types()[box.types().index("continued") :]


async def test_a_row_that_no_database_takes_costs_its_record_only(
    box: Box, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that can't be stored must not end the task's actor for ever."""
    shim = FakeShim(run_id(actor))
    actor.follow(shim)

    class Broken(LineDriver):
        def feed(self, line: bytes) -> list[Output]:
            if line == b"bad":
                return [SessionReady("\ud800", "new")]
            return super().feed(line)

    monkeypatch.setattr(LineExecutor, "load_driver", lambda self, data: Broken(json.loads(data)))
    await actor._forget_change(ValueError())
    shim.says("stdout", b"before\n")
    shim.says("stdout", b"bad\n")
    shim.says("stdout", b"after\n")
    await until(lambda: "after" in said(box), within=10)
    assert said(box).count("before") == 1
    assert "unrecognised" in box.types()


async def test_a_journal_that_is_read_anew_meanwhile_is_taken_once(
    box: Box, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`resume` finds the process again just while a permission of it is looked at."""
    looked, go = asyncio.Event(), asyncio.Event()
    real = asyncio.to_thread

    async def slow(fn, *args, **kw):  # type: ignore[no-untyped-def]
        looked.set()
        await go.wait()
        return await real(fn, *args, **kw)

    monkeypatch.setattr("handoff.agentd.taking.asyncio.to_thread", slow)
    shim = FakeShim(run_id(actor))
    actor.follow(shim)
    actor.core.driver = LineDriver(dict(actor.core.driver.state))  # type: ignore[union-attr]
    shim.says("stdout", b"first\nask p1\n")
    await asyncio.wait_for(looked.wait(), 5)
    actor.follow(shim)
    go.set()
    shim.says("stdout", b"last\n")
    await until(lambda: "last" in said(box))
    assert said(box).count("first") == 1
    assert box.types().count("permission_request") == 1


async def test_input_that_finds_no_room_is_sent_later(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handoff.agentd.actor.RETRY_S", 0.01)
    shim = FakeShim(run_id(actor))
    shim.refuse = [TooLarge("full"), TooLarge("full")]
    actor.follow(shim)

    def send(core: Core) -> None:
        core.send(b"hello\n")

    await actor.call(send)
    await until(lambda: b"hello\n" in [data for _, data in shim.sent])


async def test_a_failed_commit_wakes_the_effects(box: Box, actor: Actor) -> None:
    """An effect that a refused decision gave up is due again, and nobody else says so."""
    woken = 0

    def count(_actor: Actor, _change: object) -> None:
        nonlocal woken
        woken += 1

    actor.on_commit = count

    def refused(core: Core) -> None:
        core.event("progress", {})
        raise StorageError("no")

    with pytest.raises(StorageError):
        await actor.call(refused)
    assert woken == 1


async def test_a_stopped_task_starts_nothing(box: Box, tmp_path: pathlib.Path) -> None:
    """Stop, and what was on its way at that moment."""
    actor = actor_of(box, tmp_path)
    try:
        await actor.call(turns.admit)
        effect = next(e.id for e in actor.core.effects if e.kind == "prepare")
        await actor.call(partial(turns.stop, actor="me"))
        await actor.call(lambda core: turns.prepared(core, effect, "a" * 40, []))
        await actor.call(turns.admit)
        assert actor.core.run is None
        assert {e.kind for e in actor.core.effects} == {"cleanup"}
    finally:
        await actor.close()


async def test_a_process_of_a_stopped_task_gets_no_prompt(box: Box, tmp_path: pathlib.Path) -> None:
    actor = actor_of(box, tmp_path)
    try:
        await actor.call(turns.admit)
        effect = next(e.id for e in actor.core.effects if e.kind == "prepare")
        await actor.call(lambda core: turns.prepared(core, effect, "a" * 40, []))
        start = next(e.id for e in actor.core.effects if e.kind == "start_run")
        await actor.call(partial(turns.stop, actor="me"))
        session = Session(cwd="/", new_id="n")
        await actor.call(lambda core: turns.run_started(core, start, PlainDriver(), session, {}))
        assert not box.store.reader().execute("SELECT * FROM inputs").fetchall()
        assert actor.core.must_run().state == "ended"
        assert "end_run" in {e.kind for e in actor.core.effects}
    finally:
        await actor.close()
