"""One node's link on the brain's side, and the calls that are under way on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from handoff.errors import HandoffError, UnsupportedByPeer
from handoff.nodes import compat
from handoff.nodes.brain import shown
from handoff.nodes.brain.asking import Asking
from handoff.nodes.brain.twins import Instance
from handoff.wire.node.brain import BrainLink
from handoff.wire.node.calls import Call, CallFailed, Exec, Result
from handoff.wire.node.events import (
    CallEnded,
    CallTold,
    Credential,
    Drained,
    Event,
    StreamPiece,
    StreamStopped,
)

__all__ = ["Session"]

#: bytes of a stream that may wait for whoever asked
WINDOW = 1 << 20
#: seconds beyond a call's own time limit after which a node of the old vocabulary, which
#: can't be asked, is waited for no more
OLD_EXTRA_S = 30.0
#: seconds that a node of ours has to say what became of a call: it only has to look it up
ASK_S = 30.0


class Session:
    """A link and what is under way on it. Attributes that are set by the brain: ``name``,
    ``instance``, ``connected_ms``, and, until the node is let in, ``credential``."""

    def __init__(
        self,
        link: BrainLink,
        remote: str,
        poke: Callable[[], None],
        ended: Callable[[Asking, bool, Result], None],
    ) -> None:
        self.link = link
        self.remote = remote
        self.name = ""
        self.instance = Instance("")
        self.connected_ms = 0
        self.credential: Credential | None = None
        self._poke = poke
        self._ended = ended
        self._calls: dict[int, Asking] = {}
        #: what is taken off the answers of a node of the older kind
        self._shims: dict[int, compat.Shim] = {}
        self._told: dict[int, asyncio.Future[str]] = {}
        self._room: dict[int, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def id(self) -> str:
        """The session's id."""
        return self.link.session_id

    @property
    def calls2(self) -> bool:
        """Whether the node speaks our vocabulary, and remembers what it did."""
        return self.link.features is not None and self.link.features.calls2

    @property
    def keyed(self) -> bool:
        """Whether the node has proved who it is with a key, not with a token of its name."""
        return self.link.features is not None and self.link.features.method == "key"

    def meets(self, require: str) -> bool:
        """Whether it is sealed as it must be."""
        return self.link.features is not None and self.link.features.meets(require)

    def send(self, asking: Asking) -> None:
        """Send a call.

        Raises:
            UnsupportedByPeer, TooLarge, Unreachable, BadRequest: it was not sent.
        """
        call, shim = self.link_call(asking.call)
        number = self.link.call(call, key=asking.request_id, by=asking.by, window=WINDOW)
        self._add(number, asking)
        if shim is not None:
            self._shims[number] = shim
        if call.fed():
            self._task(self._feed(asking, call.fed()[0]))
        if not self.calls2:
            self._task(self._give_up(asking))
        self._poke()

    async def ask(self, asking: Asking) -> str:
        """What became of a call; its streams and result follow if it ran or runs. ``lost`` if
        the link went before the answer; one on which none comes is ended."""
        try:
            number = self.link.ask(
                asking.call, key=asking.key, received=asking.received, window=WINDOW
            )
        except HandoffError:
            return "lost"
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._told[number] = told
        self._add(number, asking)
        self._poke()
        try:
            async with asyncio.timeout(ASK_S):
                return await told
        except TimeoutError:
            self.close("stale", "the node did not say what became of a call")
            return "lost"

    def cancel(self, asking: Asking) -> bool:
        """End a call, and whatever else is asked with its key. False: this node can't be
        told."""
        done = self.link.cancel(asking.number, "asked")
        for number, other in self._calls.items():
            if other is not asking and other.key == asking.key:
                self.link.cancel(number, "asked")
        self._poke()
        return done

    def stop(self, asking: Asking) -> None:
        """End a call that nobody wants any more."""
        self.link.cancel(asking.number, "left")
        self._poke()

    def admit(self) -> None:
        """Let the node in."""
        self.link.admit()
        self._poke()

    def refuse(self, reason: str, detail: str = "") -> None:
        """Turn it away."""
        self.link.refuse(reason, detail)
        self._poke()

    def close(self, reason: str, detail: str = "", *, retry_ms: int = 0) -> None:
        """End the link."""
        self.link.close(reason, detail, retry_ms=retry_ms)
        self._poke()

    def consumed(self, asking: Asking, stream: str, size: int) -> None:
        """Whoever asked has taken so many bytes."""
        self.link.consume(asking.number, stream, size)
        self._poke()

    def release(self) -> list[Asking]:
        """The link is over: what was under way."""
        left, self._calls = list(self._calls.values()), {}
        for told in self._told.values():
            if not told.done():
                told.set_result("lost")
        for room in self._room.values():
            room.set()
        for task in self._tasks:
            task.cancel()
        return [asking for asking in left if asking.session is self]

    def take(self, event: Event) -> None:
        """Something happened to a call."""
        match event:
            case StreamPiece() if event.id in self._calls:
                shim = self._shims.get(event.id)
                data = shim.piece(bytes(event.data)) if shim else bytes(event.data)
                if data:
                    self._calls[event.id].came(event.stream, data)
            case CallEnded() if event.id in self._calls:
                asking = self._calls.pop(event.id)
                self._room.pop(event.id, None)
                result = self._unwrapped(event.id, asking, event.result)
                self._ended(asking, not isinstance(result, CallFailed), result)
            case CallTold() if event.id in self._told:
                self._answered(event)
            case Drained() if event.id in self._room:
                self._room[event.id].set()
            case StreamStopped() if event.id in self._room:
                self._room[event.id].set()
            case _:
                pass

    def link_call(self, call: Call) -> tuple[Call, compat.Shim | None]:
        """The call as this node can do it, and what its answer has too much then.

        Raises:
            UnsupportedByPeer, TooLarge: it can't.
        """
        if self.calls2:
            return call, None
        if call.op not in {"exec", "read", "write"} or getattr(call, "job", False):
            raise UnsupportedByPeer(
                f"{self.name} is a node of the older kind and can't do '{call.op}'",
                remedy="install hermes-node of this project there",
            )
        if isinstance(call, Exec) and call.stdin == "stream":
            raise UnsupportedByPeer(f"{self.name} takes no input for commands")
        return compat.as_it_can(call, f"--no-folder-{self.id}")

    def _unwrapped(self, number: int, asking: Asking, result: Result) -> Result:
        shim = self._shims.pop(number, None)
        if shim is None:
            return asking.honest(result)
        if rest := shim.rest():
            asking.came("stdout", rest)
        return asking.honest(shim.result(result))

    def shown(self) -> Any:
        """The session for lists."""
        return shown.connected(self)

    def _add(self, number: int, asking: Asking) -> None:
        self._calls[number] = asking
        asking.on(self, number)

    def _answered(self, event: CallTold) -> None:
        asking = self._calls[event.id]
        if event.state in {"never_seen", "unknown_outcome"}:
            del self._calls[event.id]
        elif event.state == "running" and asking.call.fed():
            name = asking.call.fed()[0]
            if asking.feed is not None and event.received.get(name, 0) == asking.fed:
                self._task(self._feed(asking, name))
            else:  # bytes were lost with the link: the command must not wait for ever
                self.link.cancel(event.id, "its input was lost")
                self._poke()
        self._told.pop(event.id).set_result(event.state)

    async def _feed(self, asking: Asking, stream: str) -> None:
        number = asking.number
        room = self._room.setdefault(number, asyncio.Event())
        while number in self._calls:
            data = await asking.feed() if asking.feed is not None else b""
            if number not in self._calls:
                return
            if not data:
                self.link.end(number, stream)
                self._poke()
                return
            asking.fed += len(data)
            room.clear()
            more = self.link.send(number, stream, data)
            self._poke()
            if not more:
                await room.wait()

    async def _give_up(self, asking: Asking) -> None:
        """A node of the old vocabulary may never answer."""
        limit = getattr(asking.call, "timeout_ms", 0) or 60_000
        number = asking.number
        await asyncio.sleep(limit / 1000 + OLD_EXTRA_S)
        if self._calls.pop(number, None) is asking:
            from handoff.errors import OutcomeUnknown

            self._shims.pop(number, None)
            self.link.give_up(number)
            error = OutcomeUnknown(f"{self.name} did not answer in time; it may still run")
            self._ended(asking, False, CallFailed.of(error))

    def _task(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
