"""Executors that start more than they should. All storms here are bounded by themselves."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.support.runs import (
    Runs,
    eventually,
    joined,
    kill_shim,
    kinds,
    lives,
    until_output,
    whole,
)

from handoff.process.sweeping import belonging

#: forks so many sleeping children, says ``up`` and stays
MANY = (
    "import os, sys, time\n"
    "for _ in range(int(sys.argv[1])):\n"
    "    if os.fork() == 0:\n"
    "        os.setsid()\n"
    "        time.sleep(60); os._exit(0)\n"
    "    time.sleep(float(sys.argv[2]))\n"
    "print('up', flush=True); time.sleep(60)\n"
)
#: one process at a time, each lives but a moment: forks, and its parent is gone. Ends by
#: itself after twelve seconds. Ignores TERM.
RUNNERS = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "until = time.monotonic() + 12\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    print('up', flush=True)\n"
    "    while time.monotonic() < until:\n"
    "        time.sleep(float(sys.argv[1]))\n"
    "        if os.fork(): os._exit(0)\n"
    "    open('escaped', 'w')\n"
    "else:\n"
    "    time.sleep(60)\n"
)
#: doubles as long as there are fewer than so many, everything in sessions of its own
DOUBLING = (
    "import os, sys, time\n"
    "depth = int(sys.argv[1])\n"
    "while depth:\n"
    "    depth -= 1\n"
    "    if os.fork() == 0: os.setsid()\n"
    "time.sleep(60)\n"
)


def python(script: str, *arguments: object) -> tuple[str, ...]:
    import sys

    return (sys.executable, "-I", "-S", "-c", script, *map(str, arguments))


async def test_pressure_is_told_before_the_limit(runs: Runs):
    shim = await runs.start(*python(MANY, 18, 0), max_procs=20)
    await until_output(shim, b"up")

    async def told() -> bool:
        with_pressure = [r async for r in _so_far(shim) if r.kind == "pressure"]
        return [r.data for r in with_pressure] == [b"19"]

    await eventually(told)
    assert await shim.alive() and len(await shim.tree()) == 19


async def _so_far(shim):
    from handoff.process import journal
    from handoff.process.contract import Record

    for raw in journal.read_all(str(shim.run_dir)):
        yield Record(*raw)


async def test_over_the_limit_everything_ends_and_the_journal_says_why(runs: Runs):
    began = time.monotonic()
    shim = await runs.start(*python(MANY, 60, 0.01), max_procs=25)
    records = await whole(shim)
    assert time.monotonic() - began < 12
    assert b"processes, the limit is 25]" in joined(records, "stderr")
    assert "pressure" in kinds(records) and kinds(records)[-1] == "swept"
    assert belonging(shim.run_id) == []


async def test_a_neighbour_run_does_not_feel_it(runs: Runs):
    calm = await runs.sh("while read x; do echo $x; done")
    storm = await runs.start(*python(MANY, 60, 0), max_procs=25)
    await whole(storm)
    assert await calm.send(1, b"still here\n") == 1
    assert await until_output(calm, b"here")


async def test_without_a_limit_nothing_is_ended(runs: Runs):
    shim = await runs.start(*python(MANY, 60, 0))
    await until_output(shim, b"up")
    assert len(await shim.tree()) == 61 and await shim.alive()
    assert await shim.end(0.1) == []
    assert belonging(shim.run_id) == []


async def test_a_doubling_tree_is_ended_whole(runs: Runs):
    shim = await runs.start(*python(DOUBLING, 6))

    async def grown() -> bool:
        return len(await shim.tree()) == 64

    await eventually(grown)
    tree = await shim.tree()
    assert await shim.end(0.0) == []
    assert not any(lives(one.pid) for one in tree)
    assert int(joined(await whole(shim), "swept")) >= 63


@pytest.mark.parametrize("pause", [0, 0.001, 0.02])
async def test_what_runs_away_by_forking_is_caught(runs: Runs, pause: float):
    """Each process of it is gone before a look at the whole machine is over."""
    shim = await runs.start(*python(RUNNERS, pause))
    await until_output(shim, b"up")
    await asyncio.wait_for(shim.end(0.1), 11)
    await whole(shim)
    assert belonging(shim.run_id) == []
    assert not (runs.root / "escaped").exists()


@pytest.mark.parametrize("pause", [0.005, 0.02])
async def test_what_runs_away_when_the_shim_was_killed(runs: Runs, pause: float):
    """With nobody to adopt it, and no cgroup: stopped on sight."""
    shim = await runs.start(*python(RUNNERS, pause))
    await until_output(shim, b"up")
    kill_shim(shim)
    assert await asyncio.wait_for(shim.end(0.1), 11) == []
    assert belonging(shim.run_id) == []
    assert not (runs.root / "escaped").exists()
