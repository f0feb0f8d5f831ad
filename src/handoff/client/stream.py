"""A task's events as one endless iterator that survives lost connections.

The stream asks agentd for everything after its position, and after a loss asks again from
the position it has reached: nothing is missed, nothing comes twice. It waits 1 s after the
first loss, then twice as long each time up to 60 s (2 s on this machine, where asking costs
nothing and a restart is soon over), and starts again at 1 s once a connection has lived for
5 s. What can't get better by waiting (an unknown task, a refused
credential, a call that agentd does not understand) is raised at once.
"""

from __future__ import annotations

import json
import time

from handoff.client.http import IDLE_S, Client, Lost, Response
from handoff.errors import (
    HandoffError,
    OutcomeUnknown,
    ProtocolViolation,
    TimedOut,
    Unauthorized,
    Unreachable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

BACKOFF_FIRST_S = 1.0
BACKOFF_MOST_S = 60.0
BACKOFF_LOCAL_S = 2.0
STABLE_S = 5.0


def passing(error: HandoffError) -> bool:
    """Whether the same call may work later without anybody doing anything."""
    if isinstance(error, Unauthorized):
        return False
    return isinstance(error, Unreachable | OutcomeUnknown) or error.http >= 500


class Lines:
    """NDJSON from agentd with reconnection; the base of event and frame streams.

    Args:
        client: whose endpoint is located anew after a loss.
        notify: takes one line when the connection is lost and when it is back.

    ``deadline``: monotonic time at which :class:`TimedOut` is raised, or None; the
    consumer may move it while it iterates.
    """

    def __init__(
        self,
        client: Client,
        *,
        notify: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.deadline: float | None = None
        #: whether agentd has answered already: then its absence is a restart, not a mistake
        self.reached = False
        self._notify = notify
        self._sleep = sleep
        self._monotonic = monotonic
        self._delay = BACKOFF_FIRST_S
        self._lost = ""

    def request(self) -> tuple[str, dict[str, Any]]:
        """Path and query that continue where the stream is."""
        raise NotImplementedError

    def take(self, item: dict[str, Any]) -> bool:
        """Note the position; False if the item was seen before."""
        raise NotImplementedError

    def finished(self, item: dict[str, Any]) -> bool:
        """Whether this item is the last one ever."""
        return "end" in item

    def _left(self) -> float:
        if self.deadline is None:
            return IDLE_S
        left = self.deadline - self._monotonic()
        if left <= 0:
            raise TimedOut("nothing more came within the time limit")
        return left

    def __iter__(self) -> Iterator[dict[str, Any]]:
        first = not self.reached
        while True:
            began = self._monotonic()
            try:
                path, query = self.request()
                response = self.client.open(
                    "GET", path, query, answer_s=min(self._left(), IDLE_S), persist=False
                )
                try:
                    first = False
                    if self._lost:
                        self._notify("connected again")
                        self._lost = ""
                    for item in self._items(response):
                        yield item
                        if self.finished(item):
                            return
                    raise Lost("agentd closed the stream")
                finally:
                    response.close()
            except (Lost, TimeoutError) as error:
                why = str(error) or "no sign of life"
            except TimedOut:
                raise
            except HandoffError as error:
                if first or not passing(error) or isinstance(error, ProtocolViolation):
                    raise
                why = error.cause
            self._pause(why, self._monotonic() - began)

    def _items(self, response: Response) -> Iterator[dict[str, Any]]:
        response.idle_s = min(self._left(), IDLE_S)
        try:
            for line in response.lines():
                try:
                    item = json.loads(line)
                except ValueError:
                    raise ProtocolViolation("agentd sent a line that is not JSON") from None
                if self.take(item):
                    yield item
                response.idle_s = min(self._left(), IDLE_S)
        except TimeoutError:
            self._left()  # the consumer's limit, not silence, if it has passed
            raise

    def _pause(self, why: str, lived: float) -> None:
        if lived >= STABLE_S:
            self._delay = BACKOFF_FIRST_S
        delay = min(self._delay, self._left()) if self.deadline is not None else self._delay
        if not self._lost:
            self._notify(f"connection lost ({why}); trying again in {self._delay:g} s")
        self._lost = why
        self._sleep(delay)
        most = BACKOFF_LOCAL_S if self.client.endpoint.socket_path else BACKOFF_MOST_S
        self._delay = min(self._delay * 2, most)
        self.client.relocate()


class Events(Lines):
    """The events of one task after ``seq``, as ``{"event": …}`` items between
    ``{"hello": …}``, ``{"summary": …}`` and ``{"end": …}``.

    Args:
        wakes: only events that a coordinator should be woken for.
        summary: ask for a backlog summary where there is something to sum up.
    """

    def __init__(
        self, client: Client, task: str, seq: int, *, wakes: bool, summary: bool, **rest: Any
    ) -> None:
        super().__init__(client, **rest)
        self.task = task
        self.seq = seq
        self._wakes = wakes
        self._summary = summary

    def request(self) -> tuple[str, dict[str, Any]]:
        """The stream route, from the last event on."""
        query = {"from_seq": self.seq, "wakes": self._wakes, "summary": self._summary}
        return f"/api/tasks/{self.task}/stream", query

    def take(self, item: dict[str, Any]) -> bool:
        """Events at or below the position are dropped."""
        event = item.get("event")
        if event is None:
            return True
        if event["seq"] <= self.seq:
            return False
        self.seq = event["seq"]
        return True


class Frames(Lines):
    """The readable record of a task after frame ``n``, as ``{"frame": …}`` items."""

    def __init__(
        self, client: Client, task: str, *, follow: bool, tail: int | None, **rest: Any
    ) -> None:
        super().__init__(client, **rest)
        self.task = task
        self.n: int | None = None
        self._follow = follow
        self._tail = tail

    def request(self) -> tuple[str, dict[str, Any]]:
        """The frames route: the tail at first, afterwards from the last frame on."""
        place = {"from": 0, "tail": self._tail} if self.n is None else {"from": self.n}
        return f"/api/tasks/{self.task}/frames", {**place, "follow": self._follow}

    def take(self, item: dict[str, Any]) -> bool:
        """Frames at or below the position are dropped."""
        frame = item.get("frame")
        if frame is None:
            return True
        if self.n is not None and frame["n"] <= self.n:
            return False
        self.n = frame["n"]
        return True
