"""One event, a hundred subscribers over WebSockets: how soon has each of them got it.

Ours: the coordinator answers a ticket; counted from the time stamp of the event
``ticket_answered``, which is taken before its commit to disk, until it was received. Peer:
the usual broadcast of a Starlette application (a set of sockets, a loop that sends to each),
which stores nothing; counted from before its loop. Time stamps are whole milliseconds, cut
off, so both figures are up to 1 ms too high. One client process reads both.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

from common import ENV, PYTHON, Row, main, p50
from websockets.asyncio.client import ClientConnection, unix_connect

from live import post, request, running

SUBSCRIBERS = 100

BROADCAST = """
import json, sys, time, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect

sockets = set()

async def emit(request):
    body = json.dumps({**await request.json(), "at_ms": time.time_ns() // 1_000_000})
    for socket in list(sockets):
        await socket.send_text(body)
    return JSONResponse({"ok": True})

async def events(socket):
    await socket.accept()
    sockets.add(socket)
    try:
        await socket.receive_text()
    except WebSocketDisconnect:
        pass
    finally:
        sockets.discard(socket)

app = Starlette(routes=[Route("/emit", emit, methods=["POST"]), WebSocketRoute("/ws", events)])
uvicorn.run(app, uds=sys.argv[1], log_level="error", ws="websockets-sansio")
"""


class Crowd:
    """A hundred connections; notes when each of them got the event of the round."""

    def __init__(self) -> None:
        self.got: list[float] = []
        self.all = asyncio.Event()
        self.match: Callable[[str], bool] = lambda _: False
        self.message = ""
        self._tasks: list[asyncio.Task[None]] = []

    async def read(self, link: ClientConnection) -> None:
        async for message in link:
            if self.match(str(message)):
                self.got.append(time.time() * 1000)
                self.message = str(message)
                if len(self.got) == SUBSCRIBERS:
                    self.all.set()

    async def join(self, socket: str, uri: str, stack: contextlib.AsyncExitStack) -> None:
        for _ in range(SUBSCRIBERS):
            link = await stack.enter_async_context(
                unix_connect(socket, uri, compression=None, ping_interval=None)
            )
            self._tasks.append(asyncio.create_task(self.read(link)))

    async def round(
        self,
        match: Callable[[str], bool],
        stamp: Callable[[str], int],
        cause: Callable[[], Awaitable[object]],
    ) -> tuple[float, float]:
        """(ms until the median subscriber had it, ms until the last)."""
        self.got, self.match = [], match
        self.all.clear()
        causing = asyncio.create_task(cause())  # type: ignore[arg-type]
        await asyncio.wait_for(self.all.wait(), 20)
        await causing
        began = stamp(self.message)
        return p50(self.got) - began, self.got[-1] - began


def their_stamp(message: str) -> int:
    return int(json.loads(message)["at_ms"])


def our_stamp(message: str) -> int:
    created = json.loads(message)["created_at"]
    return round(datetime.fromisoformat(created).timestamp() * 1000)


async def call(socket: str, path: str, body: dict[str, object]) -> None:
    reader, writer = await asyncio.open_unix_connection(socket)
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: agentd\r\ncontent-type: application/json\r\n"
        f"handoff-request: {uuid.uuid4()}\r\ncontent-length: {len(data)}\r\nconnection: close\r\n\r\n"
    )
    writer.write(head.encode() + data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    if b" 200 " not in answer.split(b"\r\n", 1)[0]:
        raise SystemExit(answer.decode()[-500:])


async def theirs(rounds: int) -> list[tuple[float, float]]:
    with tempfile.TemporaryDirectory() as name:
        socket = f"{name}/s"
        process = subprocess.Popen([PYTHON, "-c", BROADCAST, socket], env=ENV)  # noqa: ASYNC220
        try:
            while not Path(socket).exists():
                await asyncio.sleep(0.01)
            async with contextlib.AsyncExitStack() as stack:
                crowd = Crowd()
                await crowd.join(socket, "ws://peer/ws", stack)
                taken = []
                for i in range(rounds):
                    body: dict[str, object] = {"round": i, "text": "x" * 200}
                    taken.append(
                        await crowd.round(
                            lambda m, i=i: f'"round": {i},' in m,
                            their_stamp,
                            lambda body=body: call(socket, "/emit", body),
                        )
                    )
                return taken
        finally:
            process.terminate()
            process.wait(10)


async def ours(rounds: int) -> list[tuple[float, float]]:
    # each a command of its own: the same one again would pass by its first grant
    steps: list[dict[str, object]] = [{"run": {"command": f"echo {i}"}} for i in range(rounds)]
    with running() as (agentd, repository):
        task = str(post(agentd, "/api/tasks", request(repository, *steps))["id"])
        socket = agentd.socket_path
        taken = []
        async with contextlib.AsyncExitStack() as stack:
            crowd = Crowd()
            await crowd.join(socket, f"ws://agentd/ws/events?task={task}&from_seq=0", stack)
            for _ in range(rounds):
                ticket = await open_ticket(agentd, task)
                reply: dict[str, object] = {"ticket_id": ticket, "decision": "allow"}
                taken.append(
                    await crowd.round(
                        lambda m, t=ticket: '"ticket_answered"' in m and t in m,
                        our_stamp,
                        lambda reply=reply: call(socket, f"/api/tasks/{task}/reply", reply),
                    )
                )
        return taken


async def open_ticket(agentd: object, task: str) -> str:
    from tests.support.daemon import Agentd

    assert isinstance(agentd, Agentd)
    for _ in range(2000):
        for ticket in await asyncio.to_thread(agentd.get, f"/api/tasks/{task}/tickets"):
            if ticket["state"] == "open":
                return str(ticket["id"])
        await asyncio.sleep(0.01)
    raise SystemExit("no ticket was opened")


def measure(quick: bool) -> list[Row]:
    rounds = 5 if quick else 40
    mine = asyncio.run(ours(rounds))
    peer = asyncio.run(theirs(rounds))
    return [
        Row(
            "event to 100 subscribers, the median one",
            "ms",
            p50([m for m, _ in mine]),
            5,
            {"starlette broadcast, not durable": p50([m for m, _ in peer])},
        ),
        Row(
            "event to 100 subscribers, the last one",
            "ms",
            p50([last for _, last in mine]),
            None,
            {"starlette broadcast, not durable": p50([last for _, last in peer])},
        ),
    ]


if __name__ == "__main__":
    main(measure)
