"""Calls that wait for a node that is away: until it comes, can't come, or nobody wants them
any more. None of them was sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Absent"]


@dataclass(slots=True, eq=False)
class _Queued:
    """One call. ``wanted``: whoever made it has not cancelled it."""

    target: str
    wanted: bool = True


class Absent:
    """For one brain."""

    def __init__(self) -> None:
        self._back: dict[str, asyncio.Event] = {}
        self._queued: dict[str, list[_Queued]] = {}

    @property
    def count(self) -> int:
        """How many wait."""
        return sum(len(found) for found in self._queued.values())

    async def wait(self, target: str, key: str, seconds: float, over: Callable[[], bool]) -> bool:
        """Wait for a node, at most so long. Nothing runs between the last look at ``over`` and
        the return. Returns False if the call was cancelled by its key.

        Args:
            target: the node.
            key: the call's.
            seconds: how long.
            over: whether there is nothing more to wait for; asked at first, and when it is
                woken. What it raises is raised.
        """
        queued = _Queued(target)
        others = self._queued.setdefault(key, [])
        others.append(queued)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while queued.wanted and not over():
                        await self._back.setdefault(target, asyncio.Event()).wait()
            return queued.wanted
        finally:
            others.remove(queued)
            if not others:
                self._queued.pop(key, None)

    def woken(self, target: str) -> None:
        """Whoever waits for that node looks again."""
        if (back := self._back.pop(target, None)) is not None:
            back.set()

    def cancel(self, key: str) -> bool:
        """What waits with that key is not to be sent. False: nothing does."""
        found = self._queued.get(key, []) if key else []
        for one in found:
            one.wanted = False
            self.woken(one.target)
        return bool(found)
