"""From a dispatch request to a task.

A dispatch is accepted first: its request, its idempotency key and its future task id are
one durable row. Everything after that can be done again under the same key, so a caller
that lost its answer asks again and gets the same one, and a crash in between costs nothing.
Looking at the repository changes nothing in it: a request that is refused leaves no
branch, no worktree and no task.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sqlite3
import unicodedata
from dataclasses import replace
from typing import NamedTuple

import msgspec

from handoff.agentd import proposals
from handoff.agentd.launching import executor_env, find_program
from handoff.agentd.services import Services
from handoff.agentd.workspaces import busy_error, plan_json
from handoff.config import verify_of
from handoff.errors import (
    ExecutorMissing,
    HandoffError,
    NotAllowed,
    UnknownProject,
    UsageError,
    from_json,
)
from handoff.executors.turn import compose_prompt
from handoff.store import commit
from handoff.store.commit import Change
from handoff.store.records import TaskRow, TurnRow
from handoff.store.sql import Q
from handoff.workspace.contract import WorkspacePlan, WorkspaceRequest
from handoff.workspace.plan import plan_workspace

#: bytes of a plan and of a prompt
PLAN_LIMIT = 4 * 1024 * 1024
#: characters of a task's name, in columns of a terminal
NAME_COLUMNS = 40


class DispatchRequest(msgspec.Struct, frozen=True):
    """The body of ``POST /api/tasks``. Unknown fields are ignored."""

    project_id: str = ""
    project_name: str = ""
    plan_b64: str = ""
    plan_name: str = ""
    target: str = ""
    prompt: str = ""
    name: str = ""
    executor: str = ""
    model: str = ""
    branch: str = ""
    new_branch: str = ""
    base: str = ""
    worktree: str = ""
    new_worktree: bool = False
    base_commit: str = ""
    start_dir: str = ""
    in_place: bool = False
    allow_dirty: bool = False
    verify: tuple[str, ...] | None = None
    setup: bool = True


class Accepted(NamedTuple):
    """A dispatch that is on record. ``state``: ``accepted``, ``created`` or ``refused``."""

    request_id: str
    task_id: str
    request: DispatchRequest
    actor: str
    state: str
    error: HandoffError | None


def _accepted(row: tuple[str, str, str, str, str, str | None, int | None]) -> Accepted:
    request_id, task_id, request, actor, state, error, http = row
    return Accepted(
        request_id,
        task_id,
        msgspec.json.decode(request, type=DispatchRequest),
        actor,
        state,
        None if error is None else from_json(json.loads(error), http or 500),
    )


async def accept(services: Services, request_id: str, body: bytes, actor: str) -> Accepted:
    """Put the dispatch on record, or find it there.

    Raises:
        UsageError: the body is not a dispatch.
    """
    try:
        request = msgspec.json.decode(body, type=DispatchRequest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"not a dispatch request: {error}") from error
    _check_text(request)
    now = services.clock.now_ms()
    row = {
        "request_id": request_id,
        "task_id": services.clock.new_id(),
        "request": msgspec.json.encode(request).decode(),
        "actor": actor,
        "created_at": now,
    }

    def add(conn: sqlite3.Connection) -> Accepted:
        found = conn.execute(Q["dispatch_get"], {"request_id": request_id}).fetchone()
        if found is None:
            conn.execute(Q["dispatch_add"], row)
            found = conn.execute(Q["dispatch_get"], {"request_id": request_id}).fetchone()
        return _accepted(found)

    return await services.store.write(add)


def _check_text(request: DispatchRequest) -> None:
    """What goes to the system as a path, a name or an argument can hold no NUL."""
    for name in request.__struct_fields__:
        value = getattr(request, name)
        texts = value if isinstance(value, tuple) else (value,)
        if name != "prompt" and any(isinstance(text, str) and "\0" in text for text in texts):
            raise UsageError(f"'{name}' holds a NUL character")


def unfinished(services: Services) -> list[Accepted]:
    """Dispatches that were accepted and have no outcome yet."""
    rows = services.store.reader().execute(Q["dispatches_accepted"]).fetchall()
    return [_accepted(row) for row in rows]


async def refuse(services: Services, accepted: Accepted, error: HandoffError) -> None:
    """Record that the dispatch became no task, and why."""
    text = json.dumps(error.to_json(), default=str)
    row = {
        "request_id": accepted.request_id,
        "state": "refused",
        "error": text,
        "http": error.http,
    }
    await services.store.write(lambda conn: conn.execute(Q["dispatch_settle"], row).close())


async def _program(services: Services, name: str) -> str:
    """The executor's program. What is not found at once may be in the PATH of the user's
    shell, which can take its time after a start.

    Raises:
        ExecutorMissing
    """
    if not services.path_known:
        try:
            return find_program(services, name)
        except ExecutorMissing:
            await services.path()
    return find_program(services, name)


async def create(services: Services, accepted: Accepted) -> str:
    """Make the task of an accepted dispatch: looks at everything, changes nothing outside
    the database. Returns the task id; the task is ``pending``.

    Raises:
        HandoffError: what is wrong with the request. The caller records it by
            :func:`refuse`.
    """
    request = accepted.request
    plan_text, prompt = _texts(request)
    name = request.executor or services.config.executor.default
    executor = services.executors.get(name)
    program = await _program(services, name)
    executor_env(services, name)
    plan = await asyncio.to_thread(_plan, services, accepted, _title(request, plan_text, prompt))
    proposed = await asyncio.to_thread(proposals.notes, plan, services.config)
    plan = replace(plan, notes=(*plan.notes, *proposed))
    now = services.clock.now_ms()
    model = request.model
    if not model and name == services.config.executor.default:
        model = services.config.executor.model
    content = compose_prompt(plan_text, prompt)
    task = TaskRow(
        id=accepted.task_id,
        number=0,
        name=_title(request, plan_text, prompt),
        state="pending",
        target=request.target,
        project_id=plan.project.project_id,
        project_name=plan.project.name,
        repo_path=plan.project.root,
        work_dir=plan.work_dir,
        workspace=plan_json(plan),
        workspace_kind=plan.kind,
        workspace_state="planned",
        branch=plan.branch,
        base_commit=plan.base_commit,
        plan_name=os.path.basename(request.plan_name) or "prompt",
        plan_summary=_summary(content),
        executor=executor.name,
        model=model,
        verify=json.dumps(_verify(services, request, plan.project.name)),
        use_setup=int(request.setup),
        executor_path=program,
        created_at=now,
        updated_at=now,
    )
    turn = TurnRow(
        task_id=task.id,
        number=1,
        state="starting",
        actor=accepted.actor,
        started_at=now,
    )
    change = Change(new_task=True, turns={1: turn}, prompts=[(1, content)])
    change.events.append(("dispatched", accepted.actor, _facts(task, plan)))
    change.frames.append(("prompt", {"text": content, "actor": accepted.actor}))
    await services.store.write(lambda conn: _insert(conn, services, accepted, task, change, now))
    return task.id


def _insert(
    conn: sqlite3.Connection,
    services: Services,
    accepted: Accepted,
    task: TaskRow,
    change: Change,
    now: int,
) -> None:
    """One transaction: the place is still free, the task exists, the dispatch is settled."""
    if task.workspace_kind != "managed":
        holder = conn.execute(Q["task_holder"], {"work_dir": task.work_dir}).fetchone()
        if holder is not None:
            raise busy_error(task.work_dir, *holder)
    most = services.config.queue.max_waiting
    waiting = int(conn.execute(Q["tasks_waiting"]).fetchone()[0]) if most else 0
    if most and waiting >= most:
        raise NotAllowed(
            f"{waiting} tasks wait already (queue.max_waiting is {most})",
            remedy="handoff tasks --state pending",
        )
    commit.apply(conn, task, change, now)
    _register_project(conn, task, now)
    row = {"request_id": accepted.request_id, "state": "created", "error": None, "http": 200}
    conn.execute(Q["dispatch_settle"], row)


def _register_project(conn: sqlite3.Connection, task: TaskRow, now: int) -> None:
    """A project is known from its first task on, under a free name."""
    known = conn.execute(Q["project_by_id"], {"project_id": task.project_id}).fetchone()
    if known is not None:
        return
    taken = {row[1] for row in conn.execute(Q["project_list"]).fetchall()}
    paths = {row[2] for row in conn.execute(Q["project_list"]).fetchall()}
    if task.repo_path in paths:
        return
    name, count = task.project_name, 2
    while name in taken:
        name, count = f"{task.project_name}-{count}", count + 1
    origin = json.loads(task.workspace)["project"]["origin_url"]
    conn.execute(
        Q["project_add"],
        {
            "project_id": task.project_id,
            "name": name,
            "path": task.repo_path,
            "origin_url": origin,
            "created_at": now,
        },
    )


def _texts(request: DispatchRequest) -> tuple[str, str]:
    try:
        raw = base64.b64decode(request.plan_b64, validate=True)
    except ValueError as error:  # what is not ASCII is none of binascii's errors
        raise UsageError(f"plan_b64 is not base64: {error}") from error
    if len(raw) > PLAN_LIMIT or len(request.prompt.encode()) > PLAN_LIMIT:
        raise UsageError(f"the plan is larger than {PLAN_LIMIT >> 20} MiB")
    try:
        plan = raw.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the plan is not UTF-8 text: {error}") from error
    if not plan.strip() and not request.prompt.strip():
        raise UsageError(
            "there is nothing to do: give a plan file or --prompt",
            remedy="handoff dispatch plan.md",
        )
    return plan, request.prompt


def _verify(services: Services, request: DispatchRequest, project: str) -> list[str]:
    chosen = request.verify
    if chosen is None:
        chosen = verify_of(services.config, project)
    return [command for command in chosen if command.strip()]


def _plan(services: Services, accepted: Accepted, title: str) -> WorkspacePlan:
    request = accepted.request
    start_dir = _start_dir(services, request)
    asked = WorkspaceRequest(
        task_id=accepted.task_id,
        start_dir=start_dir,
        worktrees_dir=str(services.places.worktrees_dir),
        title=title,
        branch=request.branch,
        new_branch=request.new_branch,
        base=request.base,
        base_commit=request.base_commit,
        worktree=request.worktree,
        in_place=request.in_place,
        allow_dirty=request.allow_dirty,
    )

    def busy(path: str) -> str | None:
        row = services.store.reader().execute(Q["task_holder"], {"work_dir": path}).fetchone()
        return None if row is None else f"{row[0]} ({row[1]}, {row[2]})"

    return plan_workspace(asked, busy)


def _start_dir(services: Services, request: DispatchRequest) -> str:
    if request.start_dir:
        if not os.path.isabs(request.start_dir):
            raise UsageError(f"start_dir must be absolute, not '{request.start_dir}'")
        return request.start_dir
    conn = services.store.reader()
    row = None
    if request.project_id:
        row = conn.execute(Q["project_by_id"], {"project_id": request.project_id}).fetchone()
    elif request.project_name:
        row = conn.execute(Q["project_by_name"], {"name": request.project_name}).fetchone()
    if row is None:
        wanted = request.project_name or request.project_id
        names = ", ".join(r[1] for r in conn.execute(Q["project_list"]).fetchall()) or "none"
        # Clients of older peers look for this very word in the text.
        raise UnknownProject(
            f"project '{wanted}' is not registered (项目未登记); registered: {names}",
            remedy="handoff project add",
        )
    return str(row[2])


def _facts(task: TaskRow, plan: WorkspacePlan) -> dict[str, object]:
    return {
        "name": task.name,
        "executor": task.executor,
        "branch": plan.branch,
        "base_commit": plan.base_commit,
        "base_name": plan.base_name,
        "work_dir": plan.work_dir,
        "kind": plan.kind,
        "notes": list(plan.notes),
        "missing_submodules": list(plan.missing_submodules),
        "skipped_hooks": list(plan.skipped_hooks),
        "dirty_count": plan.dirty_count,
    }


def _summary(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first[:200]


def _title(request: DispatchRequest, plan: str, prompt: str) -> str:
    """The display name: given, else from the plan's file name, else from the first line."""
    text = request.name.strip()
    if not text and request.plan_name:
        stem = os.path.basename(request.plan_name).removesuffix(".md")
        dated = len(stem) > 11 and stem[:4].isdigit() and stem[4] == stem[7] == stem[10] == "-"
        text = stem[11:] if dated else stem
    if not text:
        text = _summary(prompt or plan).lstrip("# ")
    return _fit("".join(c for c in text if c.isprintable()), NAME_COLUMNS) or "task"


def _fit(text: str, columns: int) -> str:
    used = 0
    for index, char in enumerate(text):
        used += 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if used > columns:
            return text[:index].rstrip() + "…"
    return text
