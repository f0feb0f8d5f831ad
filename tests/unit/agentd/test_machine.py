"""All tasks together: the queue, recovery, and letting go."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.unit.agentd.harness import Box
from tests.unit.agentd.running import FakeShim, LineRegistry, services_of, until

from handoff.agentd import machine as machine_module
from handoff.agentd import turns
from handoff.agentd.effects import Effects
from handoff.agentd.machine import Machine
from handoff.agentd.watchdog import Watchdog
from handoff.errors import StorageError, UsageError
from handoff.executors.contract import TurnEnded


@pytest_asyncio.fixture
async def machine(
    box: Box, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Machine]:
    """A machine that holds the box's task; its effects stay due."""
    monkeypatch.setattr(Effects, "start", lambda self: None)
    made = Machine(services_of(box, tmp_path))
    yield made
    await made.close()


async def test_a_place_that_could_not_be_given_is_given_later(
    box: Box, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full just when the task may start."""
    monkeypatch.setattr(machine_module, "ADMIT_AGAIN_S", 0.01)
    machine.load()
    actor = machine.actors[box.task_id]
    real, times = box.store.write, 0

    async def full(fn: Any) -> Any:
        nonlocal times
        times += 1
        if times == 1:
            raise StorageError("no space left")
        return await real(fn)

    monkeypatch.setattr(box.store, "write", full)
    machine.ready()
    await until(lambda: [e.kind for e in actor.core.effects] == ["prepare"])


async def test_the_queue_may_be_asked_from_another_thread(box: Box, machine: Machine) -> None:
    """A list of tasks is made in a thread while tasks come and go."""
    machine.load()
    actor = machine.actors[box.task_id]

    class Turning:
        """An actor whose look changes the machine."""

        task_id = "x"
        core = actor.core

        @property
        def state(self) -> str:
            machine.actors[str(len(machine.actors))] = actor
            return "running"

    machine.actors = {"a": Turning(), "b": Turning()}  # type: ignore[dict-item]
    try:
        assert machine.position("c") is None
        assert machine.running() >= 2
    finally:
        machine.actors = {box.task_id: actor}


async def test_an_executor_that_is_no_longer_configured_keeps_nobody_from_starting(
    box: Box, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.start()

    def unknown(_self: object, name: str) -> object:
        raise UsageError(f"there is no executor '{name}'")

    monkeypatch.setattr(LineRegistry, "get", unknown)
    machine.load()
    await machine.recover()
    actor = machine.actors[box.task_id]
    assert actor.core.must_run().state == "ending"
    assert "there is no executor" in str(actor.core.must_turn().fault)


async def test_a_task_that_can_not_be_taken_up_still_has_its_effects(
    box: Box, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.start()
    started: list[str] = []
    monkeypatch.setattr(Effects, "start", lambda self: started.append(self.actor.task_id))

    async def broken(_self: Machine, _actor: object) -> None:
        raise OSError("shim.json")

    monkeypatch.setattr(Machine, "_find_run", broken)
    machine.load()
    await machine.recover()
    assert started == [box.task_id]


async def test_force_closes_a_turn_whatever_was_still_to_be_said(
    box: Box, machine: Machine
) -> None:
    """A denial's reason that waits for its turn begins no new process."""
    box.start()
    machine.load()
    actor = machine.actors[box.task_id]

    def kept(core: Any) -> None:
        core.touch_turn().guidance = '[{"ref": "g1", "reason": "use make"}]'

    await actor.call(kept)
    run_id = actor.core.must_run().id
    await actor.call(lambda core: machine_module._force_review(core, who="me"))
    assert actor.core.must_run().id == run_id
    assert "deny_guidance_dropped" in box.types()
    assert "verify" in {e.kind for e in actor.core.effects}


async def test_force_closes_a_turn_that_is_being_verified(box: Box, machine: Machine) -> None:
    box.start()
    machine.load()
    actor = machine.actors[box.task_id]
    await actor.call(lambda core: turns.take(core, [TurnEnded(text="no trailer")]))
    assert actor.core.must_turn().state == "verifying"
    report = await machine.resume(box.task_id, force=True, who="me")
    assert report["forced"]
    assert (actor.state, report["state"]) == ("waiting_review", "waiting_review")
    assert "verify" not in {e.kind for e in actor.core.effects}


async def test_a_process_that_did_not_come_up_is_cleared_away(box: Box, machine: Machine) -> None:
    """What a dead shim left behind carries the mark of a run that nobody follows."""
    box.step(turns.admit)
    box.step(lambda core: turns.prepared(core, box.effect("prepare"), "a" * 40, []))
    run_id = box.core.must_run().id
    box.step(lambda core: turns.start_failed(core, box.effect("start_run"), StorageError("no")))
    due = [(e.kind, e.payload) for e in box.core.effects]
    assert due[0] == ("end_run", f'{{"run_id": "{run_id}"}}')
    assert [kind for kind, _ in due] == ["end_run", "cleanup"]


async def test_the_watch_goes_on_while_a_shim_does_not_answer(
    box: Box, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handoff.agentd.watchdog.LOOK_S", 0.01)
    box.start()
    machine.load()
    actor = machine.actors[box.task_id]
    shim = FakeShim(actor.core.must_run().id)
    never = asyncio.Event()

    async def silent() -> list[Any]:
        await never.wait()
        return []

    monkeypatch.setattr(shim, "tree", silent)
    actor.follow(shim)
    actor.core.set_phase("model")
    box.clock.advance(100_000)
    await asyncio.wait_for(Watchdog(machine).look_at(actor), 5)
    assert "stalled" in box.types()


async def test_an_actor_that_is_busy_is_not_let_go(
    box: Box, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.load()
    actor = machine.actors[box.task_id]
    await actor.call(lambda core: turns.stop(core, "me"))
    await actor.call(lambda core: core.settle_effect(core.effects[0].id))
    box.clock.advance(100)
    gate = asyncio.Event()

    async def hold(_change: object) -> None:
        await gate.wait()

    monkeypatch.setattr(actor, "_redact", hold)
    waits = asyncio.create_task(actor.call(lambda core: core.event("progress", {})))
    await asyncio.sleep(0.01)
    watchdog = Watchdog(machine)
    await watchdog.look_at(actor)
    assert machine.actors.get(box.task_id) is actor
    gate.set()
    await waits
    await watchdog.look_at(actor)
    assert box.task_id not in machine.actors
