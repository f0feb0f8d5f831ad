"""One session of a node: its brain's calls, carried out and answered on one link.

A link that is lost ends no call. What a call still tells then goes nowhere, its result is
stored, and the brain asks for it on a later link.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from handoff.nodes.node.engine import Engine, Who
from handoff.nodes.node.streams import Withdrawn
from handoff.wire.node.calls import Call, Result
from handoff.wire.node.events import (
    CallAsked,
    CancelAsked,
    Drained,
    Event,
    SignalAsked,
    StateAsked,
    StreamPiece,
    StreamStopped,
)
from handoff.wire.node.node import NodeLink

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["Serving"]


class _Lines:
    """The streams of one call on one link."""

    def __init__(self, serving: Serving, number: int, *, reads: bool) -> None:
        self._serving = serving
        self._number = number
        self._came: deque[tuple[str, bytes, bool]] = deque()
        self._news = asyncio.Event()
        self._room: dict[str, asyncio.Event] = {}
        self._stopped: set[str] = set()
        self._sent: dict[str, int] = {}
        self._ended = False
        self._cut = False
        self._reads = reads
        self._left = False

    async def send(self, name: str, offset: int, data: bytes) -> None:
        """See :class:`handoff.nodes.node.streams.Streams`. The link counts a stream's bytes
        without a gap, so a stream with one ends at it; the result says how much there was."""
        serving = self._serving
        if offset != self._sent.setdefault(name, offset):
            return
        self._sent[name] = offset + len(data)
        if not serving.alive:
            raise ConnectionError("the link is gone")
        if self._left:
            raise Withdrawn("nobody takes it any more")
        if name in self._stopped:
            return
        room = self._room.setdefault(name, asyncio.Event())
        room.clear()
        more = serving.link.send(self._number, name, data)
        serving.poke()
        if not more:
            await room.wait()
        if not serving.alive:
            raise ConnectionError("the link is gone")
        if self._left:
            raise Withdrawn("nobody takes it any more")

    async def receive(self) -> bytes:
        """See :class:`handoff.nodes.node.streams.Streams`."""
        while True:
            if self._cut:
                raise Withdrawn("the call was cancelled before its input was whole")
            while self._came:
                if data := self._next():
                    self._serving.poke()
                    return data
            if self._ended:
                return b""
            if not self._serving.alive:
                raise ConnectionError("the link is gone")
            self._news.clear()
            await self._news.wait()

    def more(self) -> list[bytes]:
        """See :class:`handoff.nodes.node.streams.Streams`."""
        found = []
        while self._came:
            if data := self._next():
                found.append(data)
        if found:
            self._serving.poke()
        return found

    def _next(self) -> bytes:
        """The next piece; whoever sends may send as much again."""
        name, data, end = self._came.popleft()
        self._ended = self._ended or end
        self._serving.link.consume(self._number, name, len(data))
        return data

    def came(self, piece: StreamPiece) -> None:
        self._came.append((piece.stream, bytes(piece.data), piece.end))
        self._news.set()

    def drained(self, name: str) -> None:
        self._room.setdefault(name, asyncio.Event()).set()

    def stopped(self, name: str) -> None:
        self._stopped.add(name)
        self.drained(name)

    def cut(self) -> None:
        """The call is cancelled: what has not been taken of its input is not its end, and
        what is only read need not go on."""
        self._cut = not self._ended
        self._left = self._reads
        self._news.set()
        if self._left:
            self.lost()

    def lost(self) -> None:
        self._news.set()
        for room in self._room.values():
            room.set()


class Serving:
    """Answers what a link's brain asks.

    poke: to be called when the link has something to send. spawn: keeps a call going, also
    when this session is over.
    """

    def __init__(
        self,
        engine: Engine,
        link: NodeLink,
        brain: str,
        clock: Clock,
        poke: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._engine = engine
        self.link = link
        self._brain = brain
        self._clock = clock
        self.poke = poke
        self._spawn = spawn
        self._lines: dict[int, _Lines] = {}
        self._keys: dict[int, str] = {}
        self.alive = True

    def take(self, event: Event) -> None:
        """Something happened on the link."""
        match event:
            case CallAsked():
                key = event.key or f"old-{self._clock.new_id()}"
                who = Who(self._brain, actor_of(event.by))
                if event.call.reads and (found := self._engine.at_once(key, event.call, who)):
                    self.link.finish(event.id, found[1])
                    return
                lines = self._open(event.id, key, reads=event.call.reads)
                self._spawn(self._carry_out(event.id, key, event.call, who, lines))
            case StateAsked():
                self._state(event)
            case CancelAsked() if event.id in self._keys:
                self._lines[event.id].cut()
                self._spawn(self._cancel(self._keys[event.id]))
            case SignalAsked() if event.id in self._keys:
                self._spawn(self._signal(self._keys[event.id], event.signal))
            case StreamPiece() if event.id in self._lines:
                self._lines[event.id].came(event)
            case Drained() if event.id in self._lines:
                self._lines[event.id].drained(event.stream)
            case StreamStopped() if event.id in self._lines:
                self._lines[event.id].stopped(event.stream)
            case _:
                pass

    def over(self) -> None:
        """The link is gone."""
        self.alive = False
        for lines in self._lines.values():
            lines.lost()

    def _open(self, number: int, key: str, *, reads: bool) -> _Lines:
        lines = self._lines[number] = _Lines(self, number, reads=reads)
        self._keys[number] = key
        return lines

    async def _carry_out(self, number: int, key: str, call: Call, who: Who, lines: _Lines) -> None:
        def tell(answer: Result) -> None:
            self._answer(number, answer)

        _, answer = await self._engine.call(key, call, who, lines, tell)
        self._answer(number, answer)

    def _state(self, event: StateAsked) -> None:
        known = self._engine.known(event.key)
        received = self._engine.received(event.key)
        self.link.tell(event.id, known.call, known.state, received)
        self.poke()
        if known.call is not None and known.state in {"running", "done"}:
            lines = self._open(event.id, event.key, reads=known.call.reads)
            self._spawn(self._resume(event.id, event.key, known.call, event.offsets, lines))

    async def _resume(
        self, number: int, key: str, call: Call, offsets: Mapping[str, int], lines: _Lines
    ) -> None:
        _, answer = await self._engine.resume(key, call, offsets, lines)
        self._answer(number, answer, repeated=True)

    def _answer(self, number: int, answer: Result, *, repeated: bool = False) -> None:
        self._lines.pop(number, None)
        first = self._keys.pop(number, None) is not None
        if self.alive and first:
            self.link.finish(number, answer, repeated=repeated)
            self.poke()

    async def _cancel(self, key: str) -> None:
        await self._engine.cancel(key)

    async def _signal(self, key: str, number: int) -> None:
        await self._engine.signal(key, number)


def actor_of(by: str) -> dict[str, str]:
    """Who asked the brain, as it says: a JSON object of texts, or one text."""
    if not by:
        return {}
    try:
        value = json.loads(by)
    except (ValueError, RecursionError):
        return {"by": by[:200]}
    if not isinstance(value, dict):
        return {"by": by[:200]}
    return {str(key)[:40]: str(one)[:200] for key, one in list(value.items())[:10]}
