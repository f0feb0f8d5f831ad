"""A real actor on a real database, with a shim and a driver that do what the test says."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any, cast

from tests.unit.agentd.harness import Box, PlainDriver

from handoff.agentd.actor import Actor
from handoff.agentd.hub import Hub
from handoff.agentd.services import Places, Services
from handoff.config import Config
from handoff.errors import ExecutorGone
from handoff.executors.contract import Output, PermissionAsked, Text
from handoff.executors.registry import Registry
from handoff.process.contract import Proc, Record


class LineDriver(PlainDriver):
    """Says each line as text; ``ask ID`` asks for permission."""

    def feed(self, line: bytes) -> list[Output]:
        text = line.decode()
        if text.startswith("ask "):
            ident = text.removeprefix("ask ")
            self.pending.append(ident)
            return [
                PermissionAsked(
                    id=ident, tool="bash", kind="execute", title="run", text="run", raw="{}"
                )
            ]
        return [Text(text)]


class LineExecutor:
    """An executor whose driver is a :class:`LineDriver`."""

    def load_driver(self, data: bytes) -> LineDriver:
        return LineDriver(json.loads(data))


class LineRegistry:
    """Knows no executor but that one."""

    def get(self, _name: str) -> LineExecutor:
        return LineExecutor()


class FakeShim:
    """A shim whose journal is a list in memory."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.run_dir = pathlib.Path("/nonexistent")
        self.shim_pid = 1
        self.sent: list[tuple[int, bytes]] = []
        self.refuse: list[Exception] = []
        self.gone = False
        self._journal: list[Record] = []
        self._news = asyncio.Event()

    def says(self, kind: str, data: bytes) -> None:
        """One more record."""
        start = self._journal[-1].end if self._journal else 0
        record = Record(start, start + len(data) + 16, cast("Any", kind), 0, data)
        self._journal.append(record)
        self._news.set()

    def dies(self) -> None:
        """Nothing more will come."""
        self.gone = True
        self._news.set()

    async def send(self, number: int, data: bytes) -> int:
        if self.refuse:
            raise self.refuse.pop(0)
        if self.gone:
            raise ExecutorGone("gone")
        self.sent.append((number, data))
        return number

    async def records(self, offset: int) -> AsyncIterator[Record]:
        index = next((i for i, r in enumerate(self._journal) if r.offset >= offset), None)
        index = len(self._journal) if index is None else index
        while True:
            while index < len(self._journal):
                yield self._journal[index]
                index += 1
            if self.gone:
                return
            self._news.clear()
            await self._news.wait()

    async def ack(self, offset: int) -> None:
        pass

    async def end(self, grace_s: float) -> list[Proc]:
        return []

    async def tree(self) -> list[Proc]:
        return []

    async def alive(self) -> bool:
        return not self.gone

    async def close(self) -> None:
        pass


def services_of(box: Box, folder: pathlib.Path) -> Services:
    """Services on the box's database."""
    return Services(
        store=box.store,
        hub=Hub(),
        clock=box.clock,
        config=Config(),
        config_path=str(folder / "config.yaml"),
        places=Places(folder, folder / "worktrees", folder / "repos"),
        executors=cast("Registry", LineRegistry()),
        instance="test",
    )


def actor_of(box: Box, folder: pathlib.Path) -> Actor:
    """A started actor of the box's task."""
    actor = Actor(box.task_id, services_of(box, folder))
    actor.start()
    return actor


async def until(condition: Any, what: str = "", within: float = 5.0) -> None:
    """Wait for a condition of this loop."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.001)
