"""Looking at a task's work: diff, files, and running commands in its worktree."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from handoff.agentd import http
from handoff.errors import NotAllowed, UnknownTask, UsageError
from handoff.ids import short
from handoff.process.command import CommandResult, run_command
from handoff.store.records import TaskRow, decode
from handoff.store.sql import Q

if TYPE_CHECKING:
    from handoff.agentd.machine import Machine

#: seconds that `run` may take unless told otherwise, and at most
RUN_S = 600.0
RUN_MOST_S = 24 * 3600.0
#: bytes of output that an answer without streaming keeps
RUN_KEPT = 1024 * 1024


def routes(machine: Machine) -> list[Route]:
    """The routes of review."""
    api = _Review(machine)
    task = "/api/tasks/{task}"
    return [Route(f"{task}/run", api.run, methods=["POST"])]


class _Review:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.services = machine.services

    def _row(self, request: Request) -> TaskRow:
        task_id = self.machine.resolve(request.path_params["task"])
        conn = self.services.store.reader()
        rows = decode(TaskRow, conn.execute(Q["task_get"], {"id": task_id}))
        if not rows:
            raise UnknownTask(f"no task has the id '{task_id}'", remedy="handoff tasks")
        return rows[0]

    # -- run -----------------------------------------------------------------------------

    async def run(self, request: Request) -> Response:
        """Run a command in the task's worktree."""
        row = self._row(request)
        http.guard(self.machine, request, row.id)
        body = await http.json_of(request)
        command = _command(body)
        limit = _limit(body)
        if not os.path.isdir(row.work_dir):
            raise NotAllowed(
                f"the worktree of task {short(row.id)} is gone ({row.work_dir}): "
                "there is nowhere to run a command",
                remedy=f"handoff diff {short(row.id)}",
            )
        if body.get("stream"):
            lines = self._run_lines(command, row.work_dir, limit)
            return StreamingResponse(lines, media_type="application/x-ndjson")
        result = await self._run(command, row.work_dir, limit, None)
        return JSONResponse(
            {
                "stdout": (result.tail_out + result.tail_err).decode(errors="replace"),
                **_outcome(result),
            }
        )

    async def _run(
        self,
        command: list[str] | str,
        cwd: str,
        limit_s: float,
        queue: asyncio.Queue[bytes | None] | None,
    ) -> CommandResult:
        async def forward(fd: int, data: bytes) -> None:
            assert queue is not None
            text = base64.b64encode(data).decode()
            await queue.put(json.dumps({"fd": fd, "b64": text}).encode() + b"\n")

        env = {**self.services.environ, "PATH": self.services.search_path}
        return await run_command(
            command,
            cwd=cwd,
            env=env,
            timeout_s=limit_s,
            on_output=forward if queue is not None else None,
            limit_bytes=RUN_KEPT // 2,
        )

    async def _run_lines(
        self, command: list[str] | str, cwd: str, limit_s: float
    ) -> AsyncIterator[bytes]:
        # Bounded: a reader that is slow slows the command down, and nothing piles up here.
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=16)

        async def work() -> CommandResult:
            try:
                return await self._run(command, cwd, limit_s, queue)
            finally:
                await queue.put(None)

        running = asyncio.create_task(work())
        try:
            while (line := await queue.get()) is not None:
                yield line
            result = await running
            yield json.dumps(_outcome(result)).encode() + b"\n"
        finally:
            if not running.done():
                running.cancel()
                while not queue.empty():
                    queue.get_nowait()
                await asyncio.gather(running, return_exceptions=True)


def _outcome(result: CommandResult) -> dict[str, object]:
    return {
        "exit_code": result.exit_code,
        "timed_out": result.timed_out,
        "dropped_bytes": result.dropped_bytes,
        "seconds": round(result.seconds, 3),
    }


def _command(body: dict[str, object]) -> list[str] | str:
    argv, text = body.get("argv"), body.get("cmd")
    if isinstance(argv, list) and argv and all(isinstance(a, str) for a in argv):
        return [str(a) for a in argv]
    if isinstance(text, str) and text.strip():
        return text
    raise UsageError("'argv' or 'cmd' is missing", remedy="handoff run TASK -- COMMAND")


def _limit(body: dict[str, object]) -> float:
    value = body.get("timeout_s", RUN_S)
    if not isinstance(value, int | float) or value <= 0:
        raise UsageError("'timeout_s' must be a number of seconds above 0")
    return min(float(value), RUN_MOST_S)
