from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from handoff.process import reaping


def spawn(script: str) -> int:
    return os.posix_spawn("/bin/sh", ["/bin/sh", "-c", script], {"PATH": "/bin:/usr/bin"})


@pytest.fixture(params=["pidfd", "none"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With pidfds, and as where there are none."""
    if request.param == "none":
        monkeypatch.setattr(reaping, "_pidfd", lambda _pid: -1)
    return str(request.param)


async def test_the_exit_code(way: str):
    assert await reaping.watch(spawn("exit 7")) == 7
    assert await reaping.watch(spawn("kill -9 $$")) == -9
    assert not reaping._unreaped


async def test_a_child_that_ended_before_it_was_watched(way: str):
    pid = spawn("exit 3")
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert await asyncio.wait_for(reaping.watch(pid), 10) == 3


async def test_uncollected_until_it_is_asked_for(way: str):
    pid = spawn("read x; exit 5")
    ended = reaping.ended_uncollected(pid)
    await asyncio.wait_for(asyncio.shield(ended), 10)
    if way == "pidfd" and sys.platform == "linux":
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # still there
    assert reaping.collected(pid, ended) == 5
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


async def test_what_lives_is_not_collected(way: str):
    pid = spawn("exec sleep 60")
    ended = reaping.ended_uncollected(pid)
    assert way == "none" or reaping.collected(pid, ended) is None
    os.kill(pid, signal.SIGKILL)
    await asyncio.wait_for(asyncio.shield(ended), 10)
    assert reaping.collected(pid, ended) == -9


async def test_a_child_that_somebody_else_collected(way: str):
    pid = spawn("exit 3")
    os.waitpid(pid, 0)
    if way == "none":
        assert await asyncio.wait_for(reaping.watch(pid), 10) == 0


async def test_only_known_children_are_killed(way: str, monkeypatch: pytest.MonkeyPatch):
    for pid in (0, 1, -1, os.getpid(), os.getppid()):
        reaping.kill(pid)
    pid = spawn("exec sleep 60")
    ended = reaping.watch(pid)
    reaping.kill(pid)
    assert await asyncio.wait_for(ended, 10) == -9
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal after the end"))
    reaping.kill(pid)


def test_children_of_a_loop_that_is_gone_are_collected():
    async def leave() -> int:
        pid = spawn("exec sleep 60")
        reaping.watch(pid)
        return pid

    pid = asyncio.run(leave())
    reaping.collect()
    assert pid in reaping._unreaped  # it lives still
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    reaping.collect()
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)
    assert pid not in reaping._unreaped
