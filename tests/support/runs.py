"""Real executors under real shims, for tests; nothing of them is left afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from handoff.process import facts, supervisor, sweeping
from handoff.process.contract import Record, Spec
from handoff.process.handle import Info, RunHandle

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


async def eventually(
    condition: Callable[[], object] | Callable[[], Awaitable[object]], within: float = 15.0
) -> object:
    """The first true value of condition (a function or a coroutine function)."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {within:g} s"
        await asyncio.sleep(0.01)


class Runs:
    """Starts runs below one folder and remembers them all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.handles: list[RunHandle] = []
        self._count = 0

    def new_dir(self) -> tuple[Path, str]:
        self._count += 1
        run_id = f"{self.root.parent.name}-{self.root.name}-{os.getpid()}-{self._count}"
        return self.root / f"run{self._count}", run_id

    async def start(
        self,
        *argv: str,
        limits: supervisor.Limits | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        run_dir: Path | None = None,
        run_id: str = "",
        **more: object,
    ) -> RunHandle:
        made, new_id = self.new_dir()
        spec = Spec(
            run_id or new_id,
            argv,
            cwd or str(self.root),
            {**ENV, **(env or {})},
            **more,  # type: ignore[arg-type]
        )
        handle = await supervisor.start(run_dir or made, spec, limits)
        self.handles.append(handle)
        return handle

    async def sh(self, script: str, **more: object) -> RunHandle:
        return await self.start("/bin/sh", "-c", script, **more)  # type: ignore[arg-type]

    async def python(self, script: str, **more: object) -> RunHandle:
        return await self.start(sys.executable, "-I", "-S", "-u", "-c", script, **more)  # type: ignore[arg-type]

    async def attach(self, handle: RunHandle) -> RunHandle:
        fresh = await supervisor.attach(handle.run_dir, handle.run_id)
        self.handles.append(fresh)
        return fresh

    async def close(self) -> None:
        for handle in self.handles:
            await handle.close()
            await sweeping.sweep(handle.run_id, handle.run_dir, grace_s=0)


@asynccontextmanager
async def running(root: Path) -> AsyncIterator[Runs]:
    runs = Runs(root)
    try:
        yield runs
    finally:
        await runs.close()


async def whole(handle: RunHandle, offset: int = 0, within: float = 15.0) -> list[Record]:
    """All records until the run is over."""
    async with asyncio.timeout(within):
        return [record async for record in handle.records(offset)]


async def until_output(handle: RunHandle, needle: bytes, within: float = 15.0) -> bytes:
    """Standard output up to and with needle."""
    seen = bytearray()
    async with asyncio.timeout(within):
        async for record in handle.records(0):
            if record.kind == "stdout":
                start = max(0, len(seen) - len(needle))
                seen += record.data
                if needle in seen[start:]:
                    return bytes(seen)
    raise AssertionError(f"the run ended without {needle!r}, it said {bytes(seen[-500:])!r}")


def joined(records: list[Record], kind: str) -> bytes:
    return b"".join(record.data for record in records if record.kind == kind)


def kinds(records: list[Record]) -> list[str]:
    """The kinds in order, neighbours of one kind told once."""
    found: list[str] = []
    for record in records:
        if not found or found[-1] != record.kind:
            found.append(record.kind)
    return found


def lives(pid: int) -> bool:
    one = facts.fact(pid)
    return one is not None and one.state not in "ZX"


def kill_shim(handle: RunHandle) -> None:
    info = Info.load(handle.run_dir)
    assert sweeping.send_signal(info.pid, info.started, signal.SIGKILL)
