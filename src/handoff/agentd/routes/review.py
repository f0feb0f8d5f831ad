"""Looking at a task's work: diff, files, and running commands in its worktree."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from handoff.agentd import http
from handoff.agentd.keys import Key
from handoff.agentd.workspaces import own_work
from handoff.errors import HandoffError, NotAllowed, UnknownTask, UsageError
from handoff.ids import short
from handoff.process.command import CommandResult, run_command
from handoff.store.records import TaskRow, decode
from handoff.store.sql import Q
from handoff.workspace import review
from handoff.workspace import state as workspace_state
from handoff.workspace.contract import Range
from handoff.workspace.own import raw_range
from handoff.workspace.pending import uncommitted, uncommitted_stream
from handoff.workspace.reading import FileContent, read_file

if TYPE_CHECKING:
    from handoff.agentd.machine import Machine

#: seconds that `run` may take unless told otherwise, and at most
RUN_S = 600.0
RUN_MOST_S = 24 * 3600.0
#: bytes of output that an answer without streaming keeps
RUN_KEPT = 1024 * 1024
#: bytes of a diff and of a file in a JSON answer; the raw forms have no bound
DIFF_KEPT = 8 * 1024 * 1024
FILE_KEPT = 1024 * 1024
FILE_PART = 1024 * 1024


def routes(machine: Machine) -> list[Route]:
    """The routes of review."""
    api = _Review(machine)
    task = "/api/tasks/{task}"
    return [
        Route(f"{task}/diff", api.diff, methods=["GET"]),
        Route(f"{task}/file", api.file, methods=["GET"]),
        Route(f"{task}/run", api.run, methods=["POST"]),
    ]


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

    # -- diff ----------------------------------------------------------------------------

    async def diff(self, request: Request) -> Response:
        """The task's own work from its base, or what is not committed yet."""
        row = self._row(request)
        asked = _DiffQuery(request)
        if asked.uncommitted:
            if not os.path.isdir(row.work_dir):
                raise NotAllowed(
                    f"the worktree of task {short(row.id)} is gone: nothing is uncommitted",
                    remedy=f"handoff diff {short(row.id)}",
                )
            if asked.json:
                found = await asyncio.to_thread(uncommitted, row.work_dir, asked.paths)
                return http.Json({"uncommitted": found.to_json()})
            pieces = await asyncio.to_thread(
                partial(uncommitted_stream, row.work_dir, asked.paths, mode=asked.mode)
            )
            return await _streamed(pieces, {})
        span = await asyncio.to_thread(self._span, row, asked.base)
        if asked.json:
            return http.Json(await asyncio.to_thread(self._diff_json, row, span, asked))
        stream = partial(review.diff_stream, row.repo_path, span, asked.paths, mode=asked.mode)
        pieces = await asyncio.to_thread(stream)
        headers = {"Handoff-Base": span.base, "Handoff-Head": span.head}
        if span.moved:
            headers["Handoff-Moved"] = _header(span.moved)
        left = await asyncio.to_thread(_dirt, row.work_dir)
        if left:
            headers["Handoff-Uncommitted"] = str(left)
        return await _streamed(pieces, headers)

    def _span(self, row: TaskRow, base: str) -> Range:
        span = own_work(row)
        return raw_range(row.repo_path, base, span.head) if base else span

    def _diff_json(self, row: TaskRow, span: Range, asked: _DiffQuery) -> dict[str, object]:
        changes = review.files(row.repo_path, span, asked.paths)
        body: dict[str, object] = {
            "range": {
                "base": span.base,
                "head": span.head,
                "recorded_base": span.recorded_base,
                "moved": span.moved,
            },
            "files": [review.change_json(change) for change in changes],
            "diff": "",
            "truncated": False,
            "uncommitted": None,
        }
        if os.path.isdir(row.work_dir):
            body["uncommitted"] = uncommitted(row.work_dir).to_json()
        if asked.mode != "patch":
            return body
        text = bytearray()
        for piece in review.diff_stream(row.repo_path, span, asked.paths):
            text += piece
            if len(text) > DIFF_KEPT:
                body["truncated"] = True
                break
        body["diff"] = bytes(text[:DIFF_KEPT]).decode(errors="replace")
        return body

    # -- file ----------------------------------------------------------------------------

    async def file(self, request: Request) -> Response:
        """A file of the worktree, or of the branch once the worktree is gone."""
        row = self._row(request)
        query = _query(request)
        paths = query.get("path")
        if not paths:
            raise UsageError("'path' is missing", remedy="handoff fetch TASK PATH")
        place, commit = row.work_dir, ""
        if not os.path.isdir(row.work_dir):
            span = await asyncio.to_thread(self._span, row, "")
            place, commit = row.repo_path, span.head
        read = partial(read_file, place, paths[0], commit=commit)
        if query.get("format", [""])[0] != "raw":
            found = await asyncio.to_thread(partial(read, limit=FILE_KEPT))
            return http.Json(
                {
                    "content": found.data.decode(errors="replace"),
                    "b64": base64.b64encode(found.data).decode(),
                    "size": found.size,
                    "truncated": found.cut,
                    "notice": found.notice,
                    "source": found.source,
                }
            )
        return await _streamed(_pieces(read), {})

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
        stream = http.flag_of(body, "stream")
        key = Key(self.services.store, request, f"run {row.id}")
        await key.begin(self.services.clock, f"handoff show {short(row.id)}")
        if stream:
            lines = self._run_lines(command, row.work_dir, limit)
            return StreamingResponse(lines, media_type="application/x-ndjson")
        result = await self._run(command, row.work_dir, limit, None)
        return http.Json(
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

        env = {**self.services.environ, "PATH": await self.services.path()}
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


class _DiffQuery:
    """What a diff was asked for. ``paths`` hold the bytes of the names as they were sent."""

    def __init__(self, request: Request) -> None:
        query = _query(request)
        flags = {key for key, values in query.items() if values[0] in ("1", "true")}
        self.paths = query.get("path", [])
        self.base = query.get("base", [""])[0]
        self.json = query.get("format", ["json"])[0] != "raw"
        self.uncommitted = "uncommitted" in flags
        self.mode: review.Mode = "patch"
        if "stat" in flags:
            self.mode = "stat"
        elif "name_only" in flags:
            self.mode = "name_only"


def _query(request: Request) -> dict[str, list[str]]:
    """The query, with names that are not UTF-8 kept as they are."""
    raw = request.scope["query_string"].decode("latin-1")
    return parse_qs(raw, keep_blank_values=True, errors="surrogateescape")


def _dirt(work_dir: str) -> int:
    if not os.path.isdir(work_dir):
        return 0
    try:
        return workspace_state.tree_state(work_dir, 1).dirt.total
    except HandoffError:
        return 0  # a hint only; `--uncommitted` tells what is wrong


def _header(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode().replace("\n", " ")


def _pieces(read: Callable[..., FileContent]) -> Iterator[bytes]:
    """A file in parts, so that its size does not matter."""
    offset = 0
    while True:
        part = read(offset=offset, limit=FILE_PART)
        yield part.data
        offset += len(part.data)
        if not part.cut or not part.data:
            return


async def _streamed(pieces: Iterator[bytes], headers: dict[str, str]) -> Response:
    """An answer in pieces. The first one is awaited before the answer begins, so that a
    refusal is a proper error and not a stream that breaks."""
    first = await asyncio.to_thread(next, pieces, b"")

    async def body() -> AsyncIterator[bytes]:
        try:
            yield first
            while piece := await asyncio.to_thread(next, pieces, b""):
                yield piece
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                await asyncio.to_thread(close)

    return StreamingResponse(body(), media_type="application/octet-stream", headers=headers)


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
        return [http.without_nul(str(a), "argv") for a in argv]
    if isinstance(text, str) and text.strip():
        return http.without_nul(text, "cmd")
    raise UsageError("'argv' or 'cmd' is missing", remedy="handoff run TASK -- COMMAND")


def _limit(body: dict[str, object]) -> float:
    value = body.get("timeout_s", RUN_S)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise UsageError("'timeout_s' must be a number of seconds above 0")
    return float(min(value, RUN_MOST_S))
