"""Many tasks and many subscribers: what each one costs the daemon in memory.

Tasks: each waits for an answer to a question, with its executor alive. Subscribers: WebSocket
connections to one task, at rest. Memory is the daemon's own (PSS); shims and executors are
processes of their own. Peer: the minimal Starlette application on uvicorn with as many
WebSockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import tempfile
from pathlib import Path

from common import ENV, PYTHON, Row, main, memory_mib
from fanout import BROADCAST
from tests.support.waiting import until
from websockets.asyncio.client import unix_connect

from live import post, request, running

QUEUE = "max_running: 1000\n"


async def subscribers(pid: int, socket: str, uri: str, count: int) -> float:
    """KiB of the process a connection."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(20):  # what the first ones load is not counted
            await stack.enter_async_context(
                unix_connect(socket, uri, compression=None, ping_interval=None)
            )
        await asyncio.sleep(0.5)
        before = memory_mib(pid)
        for _ in range(count):
            await stack.enter_async_context(
                unix_connect(socket, uri, compression=None, ping_interval=None)
            )
        await asyncio.sleep(0.5)
        return (memory_mib(pid) - before) * 1024 / count


def peer(count: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        socket = f"{name}/s"
        process = subprocess.Popen([PYTHON, "-c", BROADCAST, socket], env=ENV)
        try:
            until(lambda: Path(socket).exists(), "the peer listens")
            return asyncio.run(subscribers(process.pid, socket, "ws://peer/ws", count))
        finally:
            process.terminate()
            process.wait(10)


def measure(quick: bool) -> list[Row]:
    tasks, count = (10, 100) if quick else (200, 1000)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with running(QUEUE) as (agentd, repository):
        assert agentd.process is not None
        pid = agentd.process.pid
        body = request(repository, {"ask": {"question": "What now?", "via": "elicitation"}})
        ids = [str(post(agentd, "/api/tasks", body)["id"])]
        agentd.wait_state(ids[0], "waiting_answer")
        before = memory_mib(pid)
        for _ in range(tasks):
            ids.append(str(post(agentd, "/api/tasks", body)["id"]))

        def all_wait() -> bool:
            counts = agentd.get("/api/status")["task_counts"]
            return bool(counts["waiting_answer"] == tasks + 1)

        until(all_wait, "all tasks wait", within=300)
        each = (memory_mib(pid) - before) / tasks
        uri = f"ws://agentd/ws/events?task={ids[0]}&from_seq=0"
        per = asyncio.run(subscribers(pid, agentd.socket_path, uri, count))
    return [
        Row("memory of the daemon a waiting task", "MiB", each, 1, note=f"{tasks} tasks"),
        Row(
            "memory of the daemon a subscriber",
            "KiB",
            per,
            30,
            {"uvicorn + starlette": peer(count)},
            note=f"{count} WebSockets",
        ),
    ]


if __name__ == "__main__":
    main(measure)
