"""Effects that are given up while they are carried out."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest
from tests.unit.agentd.harness import Box, PlainDriver
from tests.unit.agentd.running import FakeShim, services_of, until

from handoff.agentd import effects, turns
from handoff.agentd.effects import Effects
from handoff.agentd.launching import Started
from handoff.agentd.machine import Machine
from handoff.executors.contract import Session


async def test_a_start_that_is_given_up_is_ended_when_it_stands(
    box: Box, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop while the shim comes up: what is not there yet can't be found and ended."""
    order: list[str] = []
    go = asyncio.Event()

    async def launch(_services: object, _task: object, run: Any) -> Started:
        order.append("begun")
        await go.wait()
        order.append("stands")
        return Started(FakeShim(run.id), PlainDriver(), Session(cwd="/", new_id="n"), {})

    async def end(_run_id: str, _run_dir: object) -> list[Any]:
        order.append("ended")
        return []

    async def clean(_self: Effects, _effect: object, *, discard: bool) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(effects, "launch_run", launch)
    monkeypatch.setattr(effects, "end_processes", end)
    monkeypatch.setattr(Effects, "_cleanup", clean)
    box.step(turns.admit)
    box.step(lambda core: turns.prepared(core, box.effect("prepare"), "a" * 40, []))
    machine = Machine(services_of(box, tmp_path))
    machine.load()
    try:
        await machine.recover()
        await until(lambda: order == ["begun"])
        await machine.actors[box.task_id].call(lambda core: turns.stop(core, "me"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert order == ["begun"]
        go.set()
        await until(lambda: "ended" in order)
        assert order == ["begun", "stands", "ended"]
    finally:
        go.set()
        await machine.close()
