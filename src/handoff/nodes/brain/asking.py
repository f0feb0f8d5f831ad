"""A call under way, over as many links as it takes, and those who wait for its end."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from handoff.errors import TooLarge
from handoff.nodes.brain.again import late_after, not_back
from handoff.wire.node.calls import Call, CallFailed, ExecResult, Result

if TYPE_CHECKING:
    from handoff.nodes.brain.session import Session

__all__ = ["Asking", "Pieces", "Waiting", "untold"]

#: told of each stream's bytes in order; what it returns, unless None, is awaited before the next
Pieces = Callable[[str, bytes], Awaitable[Any] | None]
#: bytes that may wait for whoever asked. A node of ours sends less before they are taken; one
#: of the older kind can't be told to wait
QUEUE = 8 << 20


def untold(answer: Result) -> Result:
    """A call's answer for somebody who was told nothing of its streams."""
    return answer.untold() if isinstance(answer, ExecResult) else answer


class Asking:
    """A call under way.

    away: its node is gone, and may come back. answer: (ok, result), once the streams before
    it were taken.
    """

    def __init__(
        self,
        key: str,
        node: str,
        call: Call,
        by: str,
        pieces: Pieces | None = None,
        feed: Callable[[], Any] | None = None,
    ) -> None:
        self.key = key
        #: what both sides' audits call it; a call that only reads may have no key
        self.request_id = key or f"call-{secrets.token_hex(12)}"
        self.node = node
        self.call = call
        self.by = by
        self._pieces = pieces
        self.feed = feed
        self.fed = 0
        self.answer: tuple[bool, Result] | None = None
        #: its end was told and noted
        self.settled = False
        self.away = False
        self.waiting: list[Waiting] = []
        self.session: Session | None = None
        self.number = 0
        self.received: dict[str, int] = {}
        self._queue: deque[tuple[str, bytes] | tuple[bool, Result]] = deque()
        self._handing: asyncio.Task[None] | None = None
        self._queued = 0
        self._dropped = 0

    @property
    def repeatable(self) -> bool:
        """Whether all of it can be sent once more."""
        return self.feed is None or not self.fed

    def lost(self) -> None:
        """Its link is gone; the node may go on with it."""
        self.session = None
        self.number = 0
        self.away = True
        for one in list(self.waiting):
            one.lost()

    def on(self, session: Session, number: int) -> None:
        """It is on that link now."""
        self.session, self.number = session, number
        self.away = False

    def came(self, stream: str, data: bytes) -> None:
        """Bytes of one of its streams have arrived."""
        self.received[stream] = self.received.get(stream, 0) + len(data)
        if self._dropped or self._queued + len(data) > QUEUE:
            self._dropped += len(data)  # and all that follows: what was told is a whole start
            return
        self._queued += len(data)
        self._queue.append((stream, data))
        self._hand_on()

    def honest(self, result: Result) -> Result:
        """The result of a call, which says so if not all of its streams was handed on."""
        if not self._dropped or isinstance(result, CallFailed):
            return result
        note = (
            f"{self._dropped} bytes of output were dropped: they were not taken as fast as they"
            " came, and this node, of the older kind, can't wait"
        )
        if isinstance(result, ExecResult):
            return replace(result.untold(), note=note)
        return CallFailed.of(TooLarge(note, remedy="ask again, and read faster"), retry_safe=True)

    def finish(self, ok: bool, answer: Result) -> None:
        """It is over; told after the bytes before it."""
        self._queue.append((ok, answer))
        self._hand_on()

    def fail(self, failed: CallFailed) -> None:
        """It is over without an answer."""
        self.finish(False, failed)

    def _hand_on(self) -> None:
        while self._queue and self._handing is None:
            one = self._queue.popleft()
            if isinstance(one[0], str):
                self._hand(one[0], one[1])
            elif self.answer is None:
                self.answer = one
                for waiting in list(self.waiting):
                    waiting.ended()

    def _hand(self, stream: str, data: bytes) -> None:
        taken = None
        if self._pieces is not None:
            with contextlib.suppress(ConnectionError):
                taken = self._pieces(stream, data)
        if taken is None:
            self._taken(stream, len(data))
        else:
            self._handing = asyncio.ensure_future(self._slowly(taken, stream, len(data)))

    async def _slowly(self, taken: Awaitable[Any], stream: str, size: int) -> None:
        with contextlib.suppress(ConnectionError):
            await taken
        self._handing = None
        self._taken(stream, size)
        self._hand_on()

    def _taken(self, stream: str, size: int) -> None:
        self._queued -= size
        if self.session is not None:
            self.session.consumed(self, stream, size)


class Waiting:
    """One who waits for a call's end, without a task.

    While its node is away, at most ``return_s`` seconds. A command whose own time is long
    over is not waited for either: the line may be dead without saying so. told: called once,
    with (True, result) or (False, why not); at once if the call has ended already.
    """

    def __init__(
        self, asking: Asking, return_s: float, told: Callable[[bool, Result], None]
    ) -> None:
        self._asking = asking
        self._return_s = return_s
        self._told = told
        self._late: asyncio.TimerHandle | None = None
        self._back: asyncio.TimerHandle | None = None
        self._overdue = False
        if asking.answer is not None:
            told(*asking.answer)
            return
        asking.waiting.append(self)
        late = late_after(asking.call)
        if late is not None:
            self._late = asyncio.get_running_loop().call_later(late, self._is_late)
        if asking.away:
            self.lost()

    def ended(self) -> None:
        """The call is over."""
        assert self._asking.answer is not None
        self._end(*self._asking.answer)

    def lost(self) -> None:
        """Its node is gone."""
        if self._back is None:
            loop = asyncio.get_running_loop()
            self._back = loop.call_later(self._return_s, self._is_away)

    def leave(self) -> None:
        """Wait no more."""
        for timer in (self._late, self._back):
            if timer is not None:
                timer.cancel()
        with contextlib.suppress(ValueError):
            self._asking.waiting.remove(self)

    def _end(self, ok: bool, answer: Result) -> None:
        self.leave()
        self._told(ok, answer)

    def _is_late(self) -> None:
        self._overdue = True
        if self._back is None:
            self._end(False, CallFailed.of(not_back(self._asking)))

    def _is_away(self) -> None:
        self._back = None
        if self._asking.away or self._overdue:
            self._end(False, CallFailed.of(not_back(self._asking)))
