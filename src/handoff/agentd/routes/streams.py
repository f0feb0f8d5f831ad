"""Following a task: events and frames as lines, and events over a WebSocket.

A stream is a cursor over the task's rows. It sends what is there, waits to be woken, and
goes on; it holds no more than one page of rows, whatever the reader does. A reader that
stops reading stops its own stream and nobody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from handoff.agentd import http, views
from handoff.agentd.hub import event_line, frame_line
from handoff.agentd.routes.tasks import number, number_of
from handoff.errors import HandoffError
from handoff.lifecycle import terminal
from handoff.store.records import TaskRow, TicketRow, decode
from handoff.store.sql import Q

if TYPE_CHECKING:
    from handoff.agentd.machine import Machine

#: seconds between two signs of life on a silent stream
HEARTBEAT_S = 20.0
#: rows read at once, and bytes of them: what a reader that does not read holds
PAGE = 200
PAGE_BYTES = 256 * 1024
NDJSON = "application/x-ndjson"

Item = tuple[int, bool, bytes]
#: no rows, but a sign of life is due
HEARTBEAT: list[Item] = []


def routes(machine: Machine) -> list[BaseRoute]:
    """The routes of streams."""
    api = _Streams(machine)
    task = "/api/tasks/{task}"
    return [
        Route(f"{task}/events", api.events, methods=["GET"]),
        Route(f"{task}/stream", api.stream, methods=["GET"]),
        Route(f"{task}/frames", api.frames, methods=["GET"]),
        Route(f"{task}/render", api.render, methods=["GET"]),
        WebSocketRoute("/ws/events", api.websocket),
    ]


class _Streams:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.hub = machine.services.hub
        self.store = machine.services.store

    def _id(self, request: Request) -> str:
        return self.machine.resolve(request.path_params["task"])

    def _task(self, task_id: str) -> TaskRow:
        rows = self.store.reader().execute(Q["task_get"], {"id": task_id})
        return decode(TaskRow, rows)[0]

    def _ended(self, task_id: str) -> bool:
        """Whether nothing will be added to the task's events any more."""
        actor = self.machine.actors.get(task_id)
        if actor is None:
            return terminal(self._task(task_id).state)
        return terminal(actor.state) and self.machine.settled(task_id)

    # -- pages ---------------------------------------------------------------------------

    def _events(self, task_id: str, after: int) -> list[Item]:
        recent = self.hub.channel(task_id).events.after(after)
        if recent is not None:
            return recent[:PAGE]
        where = {"task_id": task_id, "after": after, "limit": PAGE}
        return _bounded(self.store.reader().execute(Q["events_after"], where), _event_item)

    def _frames(self, task_id: str, after: int) -> list[Item]:
        recent = self.hub.channel(task_id).frames.after(after)
        if recent is not None:
            return recent[:PAGE]
        where = {"task_id": task_id, "start": after + 1, "limit": PAGE}
        return _bounded(self.store.reader().execute(Q["frames_from"], where), _frame_item)

    # -- events --------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        """A page of events."""
        task_id = self._id(request)
        where: dict[str, object] = {
            "task_id": task_id,
            "after": number(request, "from_seq", 0, 1 << 62),
            "limit": number(request, "limit", 1000, 1000),
        }
        query = (
            "events_waking_after" if request.query_params.get("wakes") == "1" else "events_after"
        )
        rows = views.event_rows(self.store.reader().execute(Q[query], where).fetchall())
        return http.Json([views.event_json(row) for row in rows])

    async def stream(self, request: Request) -> Response:
        """Events from a cursor on, as lines, until the task is over."""
        task_id = self._id(request)
        start = number(request, "from_seq", 0, 1 << 62)
        lines = self._event_lines(
            task_id,
            start,
            only_waking=request.query_params.get("wakes") == "1",
            summary=request.query_params.get("summary") == "1",
        )
        return StreamingResponse(lines, media_type=NDJSON)

    async def _event_lines(
        self, task_id: str, cursor: int, *, only_waking: bool, summary: bool
    ) -> AsyncIterator[bytes]:
        row = self._task(task_id)
        hello = {
            "instance": self.machine.services.instance,
            "task": task_id,
            "state": row.state,
            "last_seq": row.last_seq,
        }
        yield _line("hello", hello)
        if summary:
            backlog = self._backlog(task_id, cursor, row.last_seq)
            if backlog is not None:
                yield _line("summary", backlog)
                cursor = row.last_seq
        page = partial(self._events, task_id)
        self.hub.watch(task_id)
        try:
            async for items in self._follow(task_id, page, cursor):
                shown = [line for _, wakes, line in items if wakes or not only_waking]
                if shown:
                    yield b"".join(b'{"event": ' + line + b"}\n" for line in shown)
                if items is HEARTBEAT:
                    yield _line("heartbeat", self.machine.services.clock.now_ms())
        finally:
            self.hub.unwatch(task_id)
        if not self.hub.closing:
            yield _line("end", {"state": self._task(task_id).state})

    async def _follow(
        self, task_id: str, page: Callable[[int], list[Item]], cursor: int, *, wait: bool = True
    ) -> AsyncIterator[list[Item]]:
        """Pages of rows after the cursor until nothing more will come, or agentd ends;
        :data:`HEARTBEAT` when nothing came for a while. ``wait`` False: what is there now."""
        channel = self.hub.channel(task_id)
        flag = channel.subscribe()
        try:
            while True:
                flag.clear()
                # Looked at before the rows: what is added afterwards wakes us again.
                ended = self._ended(task_id)
                while items := page(cursor):
                    cursor = items[-1][0]
                    yield items
                    await asyncio.sleep(0)  # a quick reader must not keep the loop to itself
                if ended or not wait or self.hub.closing:
                    return
                if not await _woken(flag):
                    yield HEARTBEAT
        finally:
            channel.unsubscribe(flag)
            if task_id not in self.machine.actors:
                self.hub.forget(task_id)

    def _backlog(self, task_id: str, after: int, upto: int) -> dict[str, object] | None:
        """One summary of what was missed and what is still owed; None if there is nothing."""
        conn = self.store.reader()
        where = {"task_id": task_id, "after": after, "upto": upto}
        missed = conn.execute(Q["events_waking_count"], where).fetchone()[0]
        rows = decode(TicketRow, conn.execute(Q["tickets_unsettled"], {"task_id": task_id}))
        actionable = [views.ticket_json(t) for t in rows if t.state == "open"]
        if missed < 2:
            # A single missed event tells more than its summary would.
            return None
        newest = conn.execute(
            Q["events_waking_after"], {"task_id": task_id, "after": after, "limit": 1000}
        ).fetchall()
        events = [views.event_json(e) for e in views.event_rows(newest)]
        open_ids = {t["id"] for t in actionable}
        asked = [e for e in events if e["type"] in ("permission_request", "question")]
        stale = sum(1 for e in asked if _ticket_of(e) not in open_ids)
        return {
            "type": "backlog_summary",
            "task_id": task_id,
            "from_seq": after,
            "to_seq": upto,
            "state": self._task(task_id).state,
            "missed": missed,
            "missed_truncated": missed > len(events),
            "stale": stale,
            "actionable": actionable,
            "newest": events[-1] if events else None,
        }

    async def websocket(self, socket: WebSocket) -> None:
        """Events from a cursor on, one a text frame, as the first protocol version has it."""
        wanted = socket.query_params.get("task", "")
        try:
            cursor = number_of(socket.query_params.get("from_seq"), "from_seq", 0, 1 << 62)
        except HandoffError:
            cursor = -1
        if not wanted or cursor < 0:
            await socket.close(1008, "task and from_seq are needed")
            return
        await socket.accept()
        try:
            task_id = self.machine.resolve(wanted)
        except HandoffError:
            await socket.close(1008, "task not found")
            return
        channel = self.hub.channel(task_id)
        flag = channel.subscribe()
        gone = asyncio.create_task(_until_hangup(socket, flag))
        self.hub.watch(task_id)
        try:
            await self._send_events(socket, task_id, cursor, flag, gone)
        except (WebSocketDisconnect, RuntimeError):
            pass  # it went while something was sent; its cursor knows where
        finally:
            channel.unsubscribe(flag)
            self.hub.unwatch(task_id)
            gone.cancel()
            if task_id not in self.machine.actors:
                self.hub.forget(task_id)

    async def _send_events(
        self,
        socket: WebSocket,
        task_id: str,
        cursor: int,
        flag: asyncio.Event,
        gone: asyncio.Task[None],
    ) -> None:
        while not gone.done():
            flag.clear()
            ended = self._ended(task_id)
            while items := self._events(task_id, cursor):
                for seq, _, line in items:
                    await socket.send_text(line.decode())
                    cursor = seq
            if ended:
                state = self._task(task_id).state
                reason = "task archived" if state == "completed" else "task failed"
                await socket.close(1000, reason)
                return
            if self.hub.closing:
                await socket.close(1012, "agentd restarts")
                return
            await flag.wait()

    # -- frames --------------------------------------------------------------------------

    async def frames(self, request: Request) -> Response:
        """The live view from a frame on, as lines."""
        task_id = self._id(request)
        tail = request.query_params.get("tail")
        start = number(request, "from", 0, 1 << 62)
        if tail is not None:
            made = self._task(task_id).frames_made
            start = max(start, made - number(request, "tail", 0, 1 << 30))
        follow = request.query_params.get("follow") == "1"
        lines = self._frame_lines(task_id, start, follow=follow)
        return StreamingResponse(lines, media_type=NDJSON)

    async def _frame_lines(self, task_id: str, start: int, *, follow: bool) -> AsyncIterator[bytes]:
        first = self.store.reader().execute(Q["frames_first"], {"task_id": task_id}).fetchone()[0]
        if first is not None and first > start:
            gap = {"n": first - 1, "turn": 0, "kind": "gap", "data": {"missing": first - start}}
            yield _line("frame", gap)
            start = first
        page = partial(self._frames, task_id)
        async for items in self._follow(task_id, page, start - 1, wait=follow):
            if items is HEARTBEAT:
                yield _line("heartbeat", self.machine.services.clock.now_ms())
            else:
                yield b"".join(b'{"frame": ' + line + b"}\n" for _, _, line in items)
        if not self.hub.closing:
            yield _line("end", {"state": self._task(task_id).state})

    async def render(self, request: Request) -> Response:
        """The live view as plain text, by byte offset, as the first protocol version has it.

        The text is made from the frames, the same each time, so an offset stays good.
        """
        task_id = self._id(request)
        offset = number(request, "offset", 0, 1 << 62) if "offset" in request.query_params else None
        tail = number(request, "tail", 4096, 1 << 30)
        # In a thread: a long task has many frames, and nobody else should wait for them.
        text, size, cursor = await asyncio.to_thread(self._rendered, task_id, offset, tail)
        headers = {"X-Handoff-Render-Size": str(size)}
        if request.query_params.get("follow") not in ("1", "true"):
            return Response(text, media_type="text/plain; charset=utf-8", headers=headers)
        lines = self._render_lines(task_id, text, cursor)
        return StreamingResponse(lines, media_type="text/plain; charset=utf-8", headers=headers)

    async def _render_lines(self, task_id: str, text: bytes, cursor: int) -> AsyncIterator[bytes]:
        from handoff.agentd.rendering import render_frame

        yield text
        async for line in self._frame_lines(task_id, cursor + 1, follow=True):
            for one in line.splitlines():
                frame = json.loads(one).get("frame")
                if frame:
                    yield render_frame(frame["kind"], frame["data"])

    def _rendered(self, task_id: str, offset: int | None, tail: int) -> tuple[bytes, int, int]:
        """The text from an offset on, or its tail; the size of all of it, and the last
        frame's number. Holds no more than what is asked for and one page."""
        from handoff.agentd.rendering import render_frame

        size, cursor, kept = 0, -1, bytearray()
        while items := self._frames_from_database(task_id, cursor):
            cursor = int(str(items[-1]["n"]))
            for item in items:
                piece = render_frame(str(item["kind"]), json.loads(str(item["data"])))
                left_out = 0 if offset is None else max(0, offset - size)
                size += len(piece)
                kept += piece[left_out:]
            if offset is None and len(kept) > tail:
                del kept[: len(kept) - tail]
        text = bytes(kept)
        return (_whole_characters(text) if offset is None else text), size, cursor

    def _frames_from_database(self, task_id: str, after: int) -> list[dict[str, object]]:
        where = {"task_id": task_id, "start": after + 1, "limit": PAGE}
        return views.frame_rows(self.store.reader().execute(Q["frames_from"], where).fetchall())


def _event_item(row: tuple[object, ...]) -> Item:
    event = views.event_rows([row])[0]
    return int(str(event["seq"])), bool(event["wakes"]), event_line(event)


def _frame_item(row: tuple[object, ...]) -> Item:
    frame = views.frame_rows([row])[0]
    return int(str(frame["n"])), False, frame_line(frame)


def _bounded(rows: sqlite3.Cursor, item_of: Callable[[tuple[object, ...]], Item]) -> list[Item]:
    """The first rows, at least one if there is any, up to :data:`PAGE_BYTES`."""
    items, size = [], 0
    with contextlib.closing(rows):
        for row in rows:
            items.append(item_of(row))
            size += len(items[-1][2])
            if size >= PAGE_BYTES:
                break
    return items


def _ticket_of(event: dict[str, object]) -> object:
    payload = event["payload"]
    return payload.get("ticket_id") if isinstance(payload, dict) else None


def _whole_characters(tail: bytes) -> bytes:
    """The tail without a character that its beginning cuts in two."""
    start = 0
    while start < min(4, len(tail)) and tail[start] & 0xC0 == 0x80:
        start += 1
    return tail[start:]


def _line(name: str, value: object) -> bytes:
    return json.dumps({name: value}, ensure_ascii=False).encode() + b"\n"


async def _woken(flag: asyncio.Event) -> bool:
    """Wait for news; False if only the heartbeat is due."""
    try:
        await asyncio.wait_for(flag.wait(), HEARTBEAT_S)
    except TimeoutError:
        return False
    return True


async def _until_hangup(socket: WebSocket, flag: asyncio.Event) -> None:
    """A client of this stream has nothing to say: when it does, or goes, it is over."""
    try:
        await socket.receive()
    finally:
        flag.set()
