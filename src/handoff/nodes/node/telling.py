"""A command's output for whoever follows it, without a gap, and kept output by range.

What is kept of a stream goes round: a command that writes faster than its output is taken
would overwrite what was not told yet. So it may only be a part of that ahead of whoever
follows it, and waits then as it would at a pipe. For a follower that a cut took away it waits
a while longer, so that the next one has everything; without anybody it never waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from handoff.errors import HandoffError
from handoff.nodes.node.keeping import Keep, Running
from handoff.nodes.node.streams import Streams
from handoff.wire.node.calls import INLINE_LIMIT, ExecResult, Range

__all__ = ["AHEAD", "CAPACITY", "INNER", "Telling", "kept_range", "retold"]

#: bytes of output kept of each stream
CAPACITY = 64 << 20
#: how many of them a command may be ahead of whoever follows it
AHEAD = 16 << 20
#: seconds that it waits for a follower who was lost: as long as callers wait for a node to come
#: back, and once more
STAY_S = 60.0
#: bytes of a stream that are sent at a time
PIECE = 128 * 1024
#: what the keeper calls the streams
INNER = {"stdout": "out", "stderr": "err"}


class Telling:
    """One follower of one command. ``sent``: bytes of each stream that it was told.

    keep: how to reach the keeper.
    """

    def __init__(
        self,
        running: Running,
        streams: Streams,
        sent: dict[str, int],
        keep: Callable[[], Awaitable[Keep]],
    ) -> None:
        self._running = running
        self._streams = streams
        self.sent = sent
        self._keep = keep
        self._granted = {name: at + AHEAD for name, at in sent.items()}
        self._gaps: set[str] = set()

    async def begin(self, *, fresh: bool) -> None:
        """From now on it waits for us. fresh: it was started so."""
        self._running.followers += 1
        if self._running.letting_go is not None:
            self._running.letting_go.cancel()
            self._running.letting_go = None
        if not fresh:
            await self._pace()

    async def more(self) -> bool:
        """Tell what is new. False: nobody listens any more."""
        running = self._running
        for name, inner in INNER.items():
            while self.sent[name] < running.total(inner) and name not in self._gaps:
                offset, data = running.read(inner, self.sent[name], PIECE)
                if not data:
                    break
                if offset != self.sent[name]:  # not all was kept: head and tail tell of the rest
                    self._gaps.add(name)
                    await self._pace()
                    break
                try:
                    await self._streams.send(name, offset, data)
                except ConnectionError:
                    return False
                self.sent[name] = offset + len(data)
                if self._granted[name] - self.sent[name] < AHEAD // 2 and not running.done:
                    self._granted = {one: at + AHEAD for one, at in self.sent.items()}
                    await self._pace()
        return True

    async def end(self, *, lost: bool = False) -> None:
        """It waits for us no more. lost: we may come back, so for now it still does."""
        running = self._running
        running.followers -= 1
        if running.followers or running.done:
            return
        if lost:
            running.letting_go = asyncio.create_task(self._let_go())
        else:
            await self._free()

    async def _let_go(self) -> None:
        await asyncio.sleep(STAY_S)
        if not self._running.followers and not self._running.done:
            await self._free()

    async def _free(self) -> None:
        with contextlib.suppress(HandoffError):
            await (await self._keep()).pace(self._running, -1, -1)

    def told(self, name: str) -> bool:
        """Whether every byte of a stream was told."""
        return self.sent[name] == self._running.total(INNER[name])

    async def _pace(self) -> None:
        # a stream that has a gap is told no more: nobody would ever let it go on
        upto = {name: -1 if name in self._gaps else at for name, at in self._granted.items()}
        keep = await self._keep()
        await keep.pace(self._running, upto["stdout"], upto["stderr"])


async def kept_range(
    keep: Callable[[], Awaitable[Keep]], running: Running, stream: str, offset: int, length: int
) -> Range:
    """A piece of kept output; ``offset`` below 0 counts from the end."""
    while True:
        total, done = running.total(stream), running.done
        start = max(0, total + offset) if offset < 0 else offset
        at, data = running.read(stream, start, min(length, INLINE_LIMIT))
        if done or not data or total <= CAPACITY // 2:
            return Range(data=data, offset=at, total=total, running=not done)
        # the command writes on: were these bytes overwritten while they were read?
        await (await keep()).refresh(running)
        if running.read(stream, at, 1)[0] == at:
            return Range(data=data, offset=at, total=total, running=not done)


def retold(answer: ExecResult, told: ExecResult | None, had: Mapping[str, int]) -> ExecResult:
    """A stored answer for whoever had so many bytes of each stream before, and has followed it
    since (``told``: that follower's own answer, None if it could not be followed)."""
    whole = {
        name: getattr(told, name).streamed
        if told is not None
        else had.get(name, 0) >= getattr(answer, name).bytes_total
        for name in INNER
    }
    return replace(
        answer,
        stdout=replace(answer.stdout, streamed=whole["stdout"]),
        stderr=replace(answer.stderr, streamed=whole["stderr"]),
    )
