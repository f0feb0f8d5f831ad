"""Two ends of a node link in one process, and what lies between them."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any

from handoff.clock import FakeClock
from handoff.link.ciphers import CIPHERS
from handoff.wire.node import events as ev
from handoff.wire.node.brain import BrainLink
from handoff.wire.node.link import Link
from handoff.wire.node.node import NodeLink
from handoff.wire.node.options import BrainOptions, NodeOptions

TOKEN = "qk3" + "x" * 40
NODE_KEY = bytes(range(32))
BRAIN_KEY = bytes(range(32, 64))
BRAIN_PUBLIC = CIPHERS.ed25519_public(BRAIN_KEY)
NODE_PUBLIC = CIPHERS.ed25519_public(NODE_KEY)

#: how a node may show who it is
BY_KEY = ev.Credential("lab", key=NODE_PUBLIC)
BY_TOKEN = ev.Credential("lab", token=TOKEN)
BY_HASH = ev.Credential("lab", token_sha256=hashlib.sha256(TOKEN.encode()).hexdigest())

KEYED = NodeOptions("lab", key=NODE_KEY, brain_key=BRAIN_PUBLIC)
BRAIN = BrainOptions(key=BRAIN_KEY)


def seeded(seed: str) -> Callable[[int], bytes]:
    """Random bytes that are the same in every run."""
    count = 0

    def random(size: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.shake_256(f"{seed}{count}".encode()).digest(size)

    return random


def brain_link(clock: FakeClock, options: BrainOptions = BRAIN) -> BrainLink:
    return BrainLink(options, clock, CIPHERS, seeded("brain"))


def node_link(clock: FakeClock, options: NodeOptions = KEYED, **more: Any) -> NodeLink:
    return NodeLink(options, clock, CIPHERS, seeded("node"), **more)


class Wires:
    """A brain's and a node's link, connected. :meth:`pump` moves frames until nothing does,
    and answers what the handshake asks."""

    def __init__(
        self,
        credential: ev.Credential | None = BY_KEY,
        node: NodeOptions = KEYED,
        brain: BrainOptions = BRAIN,
        clock: FakeClock | None = None,
    ) -> None:
        self.clock = clock or FakeClock()
        self.credential = credential
        self.brain = brain_link(self.clock, brain)
        self.node = node_link(self.clock, node)
        self.brain_events: list[ev.Event] = []
        self.node_events: list[ev.Event] = []
        self.frames: list[tuple[str, Any]] = []
        self.admits = True

    def step(self) -> bool:
        """Move what one side has to say to the other; whether there was anything."""
        moved = False
        for link, other, name in (
            (self.node, self.brain, "n"),
            (self.brain, self.node, "b"),
        ):
            while (frame := link.next_frame()) is not None:
                self.frames.append((name, frame))
                other.receive(frame)
                moved = True
        for event in self.brain.events():
            self.brain_events.append(event)
            moved = True
            if isinstance(event, ev.Identify):
                self.brain.identify(self.credential)
            elif isinstance(event, ev.Admit) and self.admits:
                self.brain.admit()
        for event in self.node.events():
            self.node_events.append(event)
            moved = True
        return moved

    def pump(self) -> Wires:
        while self.step():
            pass
        return self

    def brain_saw(self, kind: type) -> list[Any]:
        return [event for event in self.brain_events if isinstance(event, kind)]

    def node_saw(self, kind: type) -> list[Any]:
        return [event for event in self.node_events if isinstance(event, kind)]


class Raw:
    """One link and a hand that writes the other side's frames."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.seen: list[ev.Event] = []
        self.out: deque[Any] = deque()

    def say(self, frame: Any) -> list[Any]:
        """Let it receive a frame; what it sends then."""
        self.link.receive(frame)
        return self.heard()

    def heard(self) -> list[Any]:
        found = []
        while (frame := self.link.next_frame()) is not None:
            found.append(frame)
        self.seen += self.link.events()
        return found

    def saw(self, kind: type) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]
