"""What an executor may leave behind, whatever way it and its shim come to their end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from tests.support.runs import (
    ENV,
    Runs,
    eventually,
    joined,
    kill_shim,
    kinds,
    lives,
    until_output,
    whole,
)

from handoff.process import facts, supervisor
from handoff.process.handle import RunHandle
from handoff.process.sweeping import belonging, send_signal

#: each starts something that notes its pid in ``leaked`` and stays, then says ``up``
LEAKS = {
    "nohup": "nohup sh -c 'echo $$ >> leaked; exec sleep 98765' >/dev/null 2>&1 &",
    "setsid": "setsid sh -c 'echo $$ >> leaked; exec sleep 98765' &",
    "double fork": "(setsid sh -c '(sh -c \"echo \\$\\$ >> leaked; exec sleep 98765\" &)' &)",
    "ignores TERM": 'setsid sh -c \'trap "" TERM HUP INT; echo $$ >> leaked; while :; do sleep 1; '
    "done' &",
    "no descriptors": "setsid sh -c 'echo $$ >> leaked; exec sleep 98765 <&- >&- 2>&-' &",
    "no environment": "setsid env -i sh -c 'echo $$ >> leaked; exec /bin/sleep 98765' &",
    "stopped": "sh -c 'echo $$ >> leaked; kill -STOP $$; sleep 98765' &",
    "fifty": "for n in $(seq 50); do sh -c 'echo $$ >> leaked; exec sleep 98765' & done",
}
COUNT = {"fifty": 50}


async def leak(runs: Runs, how: str, rest: str = "read x") -> tuple[RunHandle, list[facts.Fact]]:
    """A run that leaked that way and says so: its handle, and what it leaked."""
    file = runs.root / "leaked"
    shim = await runs.sh(f"{LEAKS[how]}\necho up; {rest}")
    await until_output(shim, b"up")

    def noted() -> list[int]:
        words = file.read_text().split() if file.exists() else []
        return [int(word) for word in words] if len(words) == COUNT.get(how, 1) else []

    pids = await eventually(noted)
    assert isinstance(pids, list)
    found = [one for pid in pids if (one := facts.fact(pid)) is not None]
    assert len(found) == len(pids)
    # its last exec has happened, so that its environment is what it stays
    await eventually(lambda: all(facts.command_of(pid) for pid in pids))
    return shim, found


async def in_roster(shim: RunHandle, leaked: list[facts.Fact]) -> None:
    from handoff.process.tally import read_roster

    wanted = {(one.pid, one.started) for one in leaked}
    await eventually(lambda: wanted <= set(read_roster(str(shim.run_dir), facts.boot_id())))


async def by_end(shim: RunHandle) -> None:
    assert await shim.end(0.2) == []


async def by_itself(shim: RunHandle) -> None:
    await shim.send(1, b"go\n")


async def by_kill_of_the_executor(shim: RunHandle) -> None:
    (executor,) = [one for one in await shim.tree() if one.ppid == shim.shim_pid][:1]
    assert send_signal(executor.pid, executor.started, signal.SIGKILL)


async def by_term_of_the_shim(shim: RunHandle) -> None:
    one = facts.fact(shim.shim_pid)
    assert one is not None
    assert send_signal(one.pid, one.started, signal.SIGTERM)


WAYS = {
    "end": by_end,
    "it exits": by_itself,
    "it is killed": by_kill_of_the_executor,
    "its shim is asked to end": by_term_of_the_shim,
}


@pytest.fixture
def look_alike() -> Iterator[int]:
    """Somebody else's process that looks the same, in a session of its own."""
    made = subprocess.Popen(["/bin/sleep", "98765"], env=ENV, start_new_session=True)
    yield made.pid
    assert made.poll() is None, "a process that merely looks alike was ended"
    made.kill()
    made.wait()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", LEAKS)
async def test_nothing_is_left_and_a_look_alike_lives(
    runs: Runs, look_alike: int, how: str, way: str
):
    shim, leaked = await leak(runs, how)
    counted = {one.pid for one in await shim.tree()}
    assert {one.pid for one in leaked} <= counted and look_alike not in counted
    await WAYS[way](shim)
    # the shim's own grace is 3 s; a client may shorten it
    ended = asyncio.create_task(shim.end(0.2))
    records = await whole(shim)
    assert await ended == []
    assert kinds(records)[-2:] == ["exited", "swept"]
    assert int(joined(records, "swept")) >= COUNT.get(how, 1)
    assert not any(lives(one.pid) for one in leaked)
    assert belonging(shim.run_id) == [] and lives(look_alike)


@pytest.mark.parametrize("how", LEAKS)
async def test_the_shim_is_killed_and_the_sweep_finds_the_rest(
    runs: Runs, look_alike: int, how: str
):
    shim, leaked = await leak(runs, how)
    await in_roster(shim, leaked)
    kill_shim(shim)
    records = await whole(shim)
    assert "exited" not in kinds(records) and not await shim.alive()
    assert {one.pid for one in leaked} <= {one.pid for one in await shim.tree()}
    assert await supervisor.sweep(shim.run_id, shim.run_dir, grace_s=0.2) == []
    assert not any(lives(one.pid) for one in leaked) and lives(look_alike)
    assert await shim.tree() == []


async def test_shim_and_executor_are_killed_at_once(runs: Runs, look_alike: int):
    shim, leaked = await leak(runs, "double fork")
    tree = await shim.tree()
    kill_shim(shim)
    for one in tree:
        if one.ppid == shim.shim_pid and one.pid not in {it.pid for it in leaked}:
            send_signal(one.pid, one.started, signal.SIGKILL)
    await whole(shim)
    assert await shim.end(0.2) == []
    assert not any(lives(one.pid) for one in [*tree, *leaked])


async def test_an_executor_never_outlives_its_shim(runs: Runs):
    shim = await runs.sh("trap '' TERM HUP INT; echo up; while :; do sleep 1; done")
    await until_output(shim, b"up")
    (executor, *_) = await shim.tree()
    kill_shim(shim)
    await eventually(lambda: not lives(executor.pid))


async def test_after_the_sweep_nothing_is_started_again(runs: Runs):
    from handoff.errors import ExecutorGone

    shim, _ = await leak(runs, "setsid")
    kill_shim(shim)
    await whole(shim)
    await supervisor.sweep(shim.run_id, shim.run_dir, grace_s=0)
    with pytest.raises(ExecutorGone):
        await supervisor.attach(shim.run_dir, shim.run_id)
    with pytest.raises(ExecutorGone):
        await runs.sh("echo second >> twice", run_dir=shim.run_dir, run_id=shim.run_id)
    assert not (runs.root / "twice").exists()


async def test_a_sweep_may_come_twice_and_at_once(runs: Runs):
    shim, leaked = await leak(runs, "fifty")
    kill_shim(shim)
    results = await asyncio.gather(
        *(supervisor.sweep(shim.run_id, shim.run_dir, grace_s=0.1) for _ in range(3))
    )
    assert results == [[], [], []] and not any(lives(one.pid) for one in leaked)
    assert await supervisor.sweep(shim.run_id, shim.run_dir) == []


async def test_a_sweep_ends_a_shim_that_hangs(runs: Runs):
    """It does not answer any more (here: it is stopped)."""
    shim, leaked = await leak(runs, "ignores TERM")
    one = facts.fact(shim.shim_pid)
    assert one is not None and send_signal(one.pid, one.started, signal.SIGSTOP)
    assert await supervisor.sweep(shim.run_id, shim.run_dir, grace_s=0.2) == []
    assert not lives(shim.shim_pid) and not any(lives(it.pid) for it in leaked)


async def test_runs_beside_each_other_do_not_touch_each_other(runs: Runs):
    first = await runs.sh("setsid sleep 98765 & echo up; read x")
    second = await runs.sh("setsid sleep 98765 & echo up; read x")
    await until_output(first, b"up")
    await until_output(second, b"up")
    kill_shim(first)
    await supervisor.sweep(first.run_id, first.run_dir, grace_s=0)
    assert belonging(first.run_id) == []
    assert len(await second.tree()) == 2 and await second.alive()
    assert await second.send(1, b"x\n") == 1


async def test_the_tree_is_told_to_end_before_it_is_killed(runs: Runs):
    script = (
        "trap 'echo outer >> bye; exit 0' TERM\n"
        'setsid sh -c \'trap "echo inner >> bye; exit 0" TERM; touch ready; '
        "while :; do sleep 0.01; done' &\n"
        "echo up; while :; do sleep 0.01; done"
    )
    shim = await runs.sh(script)
    await until_output(shim, b"up")
    await eventually((runs.root / "ready").exists)
    assert await shim.end(10.0) == []
    assert sorted((runs.root / "bye").read_text().split()) == ["inner", "outer"]
    assert joined(await whole(shim), "exited") == b"0"


async def test_a_shorter_grace_shortens_the_one_that_runs(runs: Runs):
    shim = await runs.sh("trap '' TERM; echo up; while :; do sleep 0.1; done")
    await until_output(shim, b"up")
    patient = asyncio.create_task(shim.end(1000.0))
    other = await runs.attach(shim)
    assert await asyncio.wait_for(other.end(0.1), 15) == []
    assert await asyncio.wait_for(patient, 15) == []


@pytest.mark.parametrize("part", [1, 2])
@pytest.mark.parametrize("wait", [False, True])
async def test_many_short_runs_leave_no_zombie_and_no_descriptor(runs: Runs, wait: bool, part: int):
    """Two hundred in all, ten at a time: half end by themselves, half are ended."""

    async def one(number: int) -> None:
        shim = await runs.sh("sleep 60 & exit 0" if wait else "read x")
        if wait:
            await shim.end(0)
        else:
            await shim.send(1, b"go\n")
        records = await whole(shim)
        assert kinds(records)[-1] == "swept", records
        await shim.close()
        runs.handles.remove(shim)

    await one(0)
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await asyncio.gather(*(one(n) for n in range(10)))
    await asyncio.sleep(0)
    await eventually(lambda: not zombies())
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2


def zombies() -> list[int]:
    found: list[int] = []
    for pid in facts.all_pids():
        one = facts.fact(pid)
        if one is not None and one.ppid == os.getpid() and one.state in "ZX":
            found.append(pid)
    from handoff.process import reaping

    reaping.collect()
    return found
