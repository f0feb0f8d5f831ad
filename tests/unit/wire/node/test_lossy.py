"""Two machines, a program on each side, and a line that loses, doubles, turns round, damages
and cuts: nothing is run twice, nothing is made up, and after the line heals all is there."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.support.nodelink import BRAIN, BY_KEY, KEYED, brain_link, node_link

from handoff.clock import FakeClock
from handoff.wire.node import events as ev
from handoff.wire.node.brain import BrainLink
from handoff.wire.node.calls import Exec, ExecResult
from handoff.wire.node.link import Link
from handoff.wire.node.node import NodeLink

CALL = Exec(command="x", stream=True, stdin="stream")


class Work:
    """What the node's program keeps of one call, as its journal would."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.runs = 1
        self.made = b""
        self.taken = b""
        self.result: ExecResult | None = None
        #: the number on the present link, 0 if it is not asked about there
        self.number = 0


class Wish:
    """What the brain's program keeps of one call."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.number = 0
        self.got = b""
        self.given = b""
        self.result: ExecResult | None = None
        self.ends = 0


class NodeProgram:
    def __init__(self) -> None:
        self.link: NodeLink | None = None
        self.works: dict[str, Work] = {}
        self.numbers: dict[int, Work] = {}

    def take(self, event: Any) -> None:
        assert self.link is not None
        if isinstance(event, ev.Opened | ev.Ended):
            self.numbers.clear()
            for work in self.works.values():
                work.number = 0
        elif isinstance(event, ev.CallAsked):
            known = self.works.get(event.key)
            if known is not None:
                known.runs += 1
            work = self.works.setdefault(event.key, Work(event.key))
            self._bind(work, event.id)
        elif isinstance(event, ev.StateAsked):
            work = self.works.get(event.key)  # type: ignore[assignment]
            if work is None:
                self.link.tell(event.id, None, "never_seen")
                return
            state = "running" if work.result is None else "done"
            self.link.tell(event.id, CALL, state, {"stdin": len(work.taken)})
            self._bind(work, event.id)
            at = event.offsets.get("stdout", 0)
            assert at <= len(work.made)
            self.link.send(event.id, "stdout", work.made[at:])
            if work.result is not None:
                self.link.finish(event.id, work.result, repeated=True)
        elif isinstance(event, ev.StreamPiece):
            work = self.numbers[event.id]
            work.taken += bytes(event.data)
            self.link.consume(event.id, event.stream, len(event.data))

    def _bind(self, work: Work, number: int) -> None:
        work.number = number
        self.numbers[number] = work

    def produce(self, work: Work, data: bytes) -> None:
        work.made += data
        if self.link is not None and work.number:
            self.link.send(work.number, "stdout", data)

    def finish(self, work: Work) -> None:
        work.result = ExecResult("ok", len(work.made) % 7)
        if self.link is not None and work.number:
            self.link.finish(work.number, work.result)


class BrainProgram:
    def __init__(self) -> None:
        self.link: BrainLink | None = None
        self.wishes: dict[str, Wish] = {}
        self.numbers: dict[int, Wish] = {}
        self.open = False

    def take(self, event: Any) -> None:
        assert self.link is not None
        if isinstance(event, ev.Identify):
            self.link.identify(BY_KEY)
        elif isinstance(event, ev.Admit):
            self.link.admit()
        elif isinstance(event, ev.Opened):
            self.open = True
            for wish in self.wishes.values():
                if wish.result is None:
                    received = {"stdout": len(wish.got)}
                    self._bind(wish, self.link.ask(CALL, key=wish.key, received=received))
        elif isinstance(event, ev.Ended):
            self.open = False
            listed = {call.key for call in event.calls}
            for wish in self.numbers.values():
                assert wish.result is not None or wish.key in listed
            self.numbers.clear()
        elif isinstance(event, ev.CallTold):
            wish = self.numbers[event.id]
            if event.state == "never_seen":
                self._bind(wish, self.link.call(CALL, key=wish.key))
                self.link.send(wish.number, "stdin", wish.given)
            elif event.state == "running":
                at = event.received.get("stdin", 0)
                self.link.send(event.id, "stdin", wish.given[at:])
        elif isinstance(event, ev.StreamPiece):
            wish = self.numbers[event.id]
            if event.stream == "stdout":
                wish.got += bytes(event.data)
            self.link.consume(event.id, event.stream, len(event.data))
        elif isinstance(event, ev.CallEnded):
            wish = self.numbers.pop(event.id)
            assert isinstance(event.result, ExecResult), event
            wish.result = event.result
            wish.ends += 1

    def _bind(self, wish: Wish, number: int) -> None:
        wish.number = number
        self.numbers[number] = wish

    def want(self, key: str) -> None:
        wish = self.wishes[key] = Wish(key)
        if self.open:
            assert self.link is not None
            self._bind(wish, self.link.call(CALL, key=key))

    def give(self, wish: Wish, data: bytes) -> None:
        wish.given += data
        if self.open and wish.number in self.numbers:
            assert self.link is not None
            if self.numbers[wish.number] is wish:
                self.link.send(wish.number, "stdin", data)


class Line(RuleBasedStateMachine):
    sealed = True

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.node = NodeProgram()
        self.brain = BrainProgram()
        self.up: deque[Any] = deque()
        self.down: deque[Any] = deque()
        self.count = 0

    # -- the line ---------------------------------------------------------------------

    @initialize()
    def connect(self) -> None:
        self.up.clear()
        self.down.clear()
        options = dataclasses.replace(BRAIN, seal=self.sealed)
        self.brain.link = brain_link(self.clock, options)
        self.node.link = node_link(self.clock, dataclasses.replace(KEYED, seal=self.sealed))
        self.settle()

    def settle(self) -> None:
        """Let both programs take their events and put frames on the line."""
        for program, way in ((self.node, self.up), (self.brain, self.down)):
            link = program.link
            assert link is not None
            while True:
                events = link.events()
                for event in events:
                    program.take(event)
                frame = link.next_frame()
                if frame is not None:
                    way.append(frame)
                elif not events:
                    break

    def ended(self) -> bool:
        links: list[Link | None] = [self.node.link, self.brain.link]
        return any(link is not None and link.closing is not None for link in links)

    def deliver(self, way: deque[Any], link: Link | None) -> None:
        assert link is not None
        link.receive(way.popleft())
        self.settle()

    @precondition(lambda self: self.up)
    @rule(count=st.integers(1, 6))
    def deliver_up(self, count: int) -> None:
        for _ in range(min(count, len(self.up))):
            self.deliver(self.up, self.brain.link)

    @precondition(lambda self: self.down)
    @rule(count=st.integers(1, 6))
    def deliver_down(self, count: int) -> None:
        for _ in range(min(count, len(self.down))):
            self.deliver(self.down, self.node.link)

    @rule()
    def cut(self) -> None:
        for program in (self.node, self.brain):
            assert program.link is not None
            program.link.lost(1006)
        self.settle()
        self.connect()

    @precondition(lambda self: self.up or self.down)
    @rule(way=st.booleans(), at=st.integers(0, 9))
    def lose(self, way: bool, at: int) -> None:
        frames = self.up if way else self.down
        if frames:
            del frames[at % len(frames)]

    @precondition(lambda self: self.up or self.down)
    @rule(way=st.booleans(), at=st.integers(0, 9))
    def double(self, way: bool, at: int) -> None:
        frames = self.up if way else self.down
        if frames:
            frames.append(frames[at % len(frames)])

    @precondition(lambda self: len(self.up) > 1 or len(self.down) > 1)
    @rule(way=st.booleans(), by=st.integers(1, 9))
    def turn_round(self, way: bool, by: int) -> None:
        frames = self.up if way else self.down
        frames.rotate(by)

    @precondition(lambda self: self.sealed and (self.up or self.down))
    @rule(way=st.booleans(), at=st.integers(0, 9), byte=st.integers(0, 10_000))
    def damage(self, way: bool, at: int, byte: int) -> None:
        frames = self.up if way else self.down
        if frames:
            frame = frames[at % len(frames)]
            if isinstance(frame, bytes):
                changed = bytearray(frame)
                changed[byte % len(changed)] ^= 0x10
                frames[at % len(frames)] = bytes(changed)
            else:
                frames[at % len(frames)] = frame[: byte % (len(frame) + 1)]

    @rule(seconds=st.sampled_from([0.5, 31.0, 95.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for program in (self.node, self.brain):
            assert program.link is not None
            program.link.tick()
        self.settle()

    @precondition(lambda self: self.ended())
    @rule()
    def reconnect(self) -> None:
        self.cut()

    # -- the programs -----------------------------------------------------------------

    @precondition(lambda self: len(self.brain.wishes) < 5)
    @rule()
    def want(self) -> None:
        self.count += 1
        self.brain.want(f"call-{self.count:04d}")
        self.settle()

    @precondition(lambda self: self.node.works)
    @rule(which=st.integers(0, 9), size=st.sampled_from([1, 1000, 70_000, 600_000]))
    def produce(self, which: int, size: int) -> None:
        work = list(self.node.works.values())[which % len(self.node.works)]
        if work.result is None and len(work.made) < 3_000_000:
            self.node.produce(work, bytes([size % 251]) * size)
            self.settle()

    @precondition(lambda self: self.brain.wishes)
    @rule(which=st.integers(0, 9), size=st.sampled_from([1, 1000, 90_000]))
    def give(self, which: int, size: int) -> None:
        wish = list(self.brain.wishes.values())[which % len(self.brain.wishes)]
        if wish.result is None:
            self.brain.give(wish, bytes([size % 253]) * size)
            self.settle()

    @precondition(lambda self: self.node.works)
    @rule(which=st.integers(0, 9))
    def finish(self, which: int) -> None:
        work = list(self.node.works.values())[which % len(self.node.works)]
        if work.result is None:
            self.node.finish(work)
            self.settle()

    # -- what must hold ---------------------------------------------------------------

    @invariant()
    def nothing_runs_twice(self) -> None:
        assert all(work.runs == 1 for work in self.node.works.values())

    @invariant()
    def what_arrived_is_what_was_made(self) -> None:
        for key, wish in self.brain.wishes.items():
            work = self.node.works.get(key)
            if work is None:
                assert wish.got == b""
                assert wish.result is None
                continue
            assert work.made.startswith(wish.got)
            assert wish.given.startswith(work.taken)
            if wish.result is not None:
                assert wish.result == work.result
                assert wish.got == work.made
                assert wish.ends == 1

    def teardown(self) -> None:
        """The line heals: whatever was asked for is run, once, and told, whole."""
        if self.brain.link is None:
            return
        self.cut()
        for _ in range(20_000):
            if self.up:
                self.deliver(self.up, self.brain.link)
            elif self.down:
                self.deliver(self.down, self.node.link)
            else:
                waiting = [w for w in self.node.works.values() if w.result is None]
                if not waiting:
                    break
                self.node.finish(waiting[0])
                self.settle()
        else:
            raise AssertionError("does not come to rest")
        self.nothing_runs_twice()
        self.what_arrived_is_what_was_made()
        for wish in self.brain.wishes.values():
            assert wish.result is not None


class UnsealedLine(Line):
    sealed = False


TestLine = Line.TestCase
TestLine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestUnsealedLine = UnsealedLine.TestCase
TestUnsealedLine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
