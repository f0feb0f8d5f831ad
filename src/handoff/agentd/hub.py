"""Waking those who wait for news of a task.

Events and frames are rows; a subscriber holds a cursor and reads from the database. The
hub only wakes: it holds no event on anybody's behalf, so a subscriber that never reads
costs one flag. The newest rows of each task are kept here too, encoded once, because a
hundred subscribers would otherwise ask the database for the same row a hundred times.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque

from handoff.clock import iso

#: newest rows kept of one task, and their size in bytes
RECENT_ROWS = 256
RECENT_BYTES = 512 * 1024


class Recent:
    """The newest encoded rows of a task, contiguous by number up to the newest."""

    def __init__(self) -> None:
        self._rows: deque[tuple[int, bool, bytes]] = deque()
        self._bytes = 0
        #: rows after this number are all here; below it nothing can be said
        self.floor: int | None = None

    def add(self, number: int, wakes: bool, line: bytes) -> None:
        """Append the next row; ``number`` is greater than all before."""
        if self.floor is None:
            self.floor = number - 1
        self._rows.append((number, wakes, line))
        self._bytes += len(line)
        while len(self._rows) > RECENT_ROWS or (self._bytes > RECENT_BYTES and len(self._rows) > 1):
            gone, _, old = self._rows.popleft()
            self._bytes -= len(old)
            self.floor = gone

    def after(self, number: int) -> list[tuple[int, bool, bytes]] | None:
        """Rows after a number, or None if the database has to be asked."""
        if self.floor is None or number < self.floor:
            return None
        if not self._rows or number >= self._rows[-1][0]:
            return []
        return [row for row in self._rows if row[0] > number]


class Channel:
    """What is known of one task's stream, and who waits for it."""

    def __init__(self) -> None:
        self.events = Recent()
        self.frames = Recent()
        self.ended = False
        self._waiting: set[asyncio.Event] = set()

    def wake(self) -> None:
        """Wake everybody who waits."""
        for flag in self._waiting:
            flag.set()

    def subscribe(self) -> asyncio.Event:
        """A flag that is set whenever there is news. Clear it before reading."""
        flag = asyncio.Event()
        self._waiting.add(flag)
        return flag

    def unsubscribe(self, flag: asyncio.Event) -> None:
        """Nobody waits on that flag any more."""
        self._waiting.discard(flag)

    @property
    def subscribers(self) -> int:
        """How many wait."""
        return len(self._waiting)


class Hub:
    """The channels of all tasks that are open or watched."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}
        self._watchers: dict[str, int] = {}
        #: set when agentd ends: every stream closes, and its client comes back later
        self.closing = False

    def channel(self, task_id: str) -> Channel:
        """The channel of a task, made on first use."""
        return self._channels.setdefault(task_id, Channel())

    def forget(self, task_id: str) -> None:
        """Drop the channel of a task without an actor, once nobody waits for it."""
        channel = self._channels.get(task_id)
        if channel is not None and not channel.subscribers:
            del self._channels[task_id]

    def publish(
        self,
        task_id: str,
        events: list[dict[str, object]],
        frames: list[dict[str, object]],
        *,
        ended: bool,
    ) -> None:
        """Rows of a task were committed."""
        channel = self.channel(task_id)
        for event in events:
            channel.events.add(int(str(event["seq"])), bool(event["wakes"]), event_line(event))
        for frame in frames:
            channel.frames.add(int(str(frame["n"])), False, frame_line(frame))
        channel.ended = channel.ended or ended
        if events or frames or ended:
            channel.wake()

    def end_streams(self) -> None:
        """Agentd ends: streams close at once."""
        self.closing = True
        for channel in self._channels.values():
            channel.wake()

    def watch(self, task_id: str) -> None:
        """A coordinator waits for the task's events."""
        self._watchers[task_id] = self._watchers.get(task_id, 0) + 1

    def unwatch(self, task_id: str) -> None:
        """A coordinator has gone."""
        left = self._watchers.get(task_id, 1) - 1
        if left > 0:
            self._watchers[task_id] = left
        else:
            self._watchers.pop(task_id, None)

    def watchers(self, task_id: str) -> int:
        """How many coordinators wait for the task's events now."""
        return self._watchers.get(task_id, 0)


def event_line(row: dict[str, object]) -> bytes:
    """An event row as the JSON text of an Event (without a newline)."""
    head = json.dumps(
        {
            "seq": row["seq"],
            "task_id": row["task_id"],
            "type": row["type"],
            "actor": row["actor"],
            "wakes": bool(row["wakes"]),
            "created_at": iso(int(str(row["created_at"]))),
        }
    )
    return f'{head[:-1]}, "payload": {row["payload"]}}}'.encode()


def frame_line(row: dict[str, object]) -> bytes:
    """A frame row as the JSON text of a Frame (without a newline)."""
    head = json.dumps(
        {"n": row["n"], "turn": row["turn"], "kind": row["kind"], "at": iso(int(str(row["at"])))}
    )
    return f'{head[:-1]}, "data": {row["data"]}}}'.encode()
