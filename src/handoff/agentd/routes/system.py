"""The machine itself: status, footprint, reclaim, projects."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handoff import __version__
from handoff.agentd import http
from handoff.agentd.core import Core
from handoff.agentd.effects import removal_json
from handoff.agentd.workspaces import plan_of
from handoff.clock import iso
from handoff.errors import HandoffError, NotAllowed, UnknownProject, UnknownTask, UsageError
from handoff.ids import short
from handoff.lifecycle import TASK, terminal
from handoff.store.records import TaskRow, decode
from handoff.store.sql import Q
from handoff.workspace import removal
from handoff.workspace import state as workspace_state
from handoff.workspace.identity import identify

if TYPE_CHECKING:
    from handoff.agentd.actor import Actor
    from handoff.agentd.machine import Machine
    from handoff.process.contract import Proc

#: seconds that the probe of one task may take in `status`
PROBE_S = 2.0


def routes(machine: Machine) -> list[Route]:
    """The routes of the machine."""
    api = _System(machine)
    return [
        Route("/api/status", api.status, methods=["GET"]),
        Route("/api/footprint", api.footprint, methods=["GET"]),
        Route("/api/reclaim", api.reclaimable, methods=["GET"]),
        Route("/api/tasks/{task}/reclaim", api.reclaim, methods=["POST"]),
        Route("/api/projects", api.projects, methods=["GET"]),
        Route("/api/projects", api.add_project, methods=["POST"]),
        Route("/api/projects/{name}", api.remove_project, methods=["DELETE"]),
    ]


class _System:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.services = machine.services

    # -- status --------------------------------------------------------------------------

    async def status(self, _request: Request) -> Response:
        """What this agentd is, holds and does."""
        services, machine = self.services, self.machine
        conn = services.store.reader()
        counts = dict.fromkeys(TASK, 0)
        counts.update(dict(conn.execute(Q["task_counts"]).fetchall()))
        open_actors = [a for a in machine.actors.values() if not terminal(a.state)]
        probes = await asyncio.gather(*(self._probe(a) for a in open_actors))
        body = {
            "version": {"version": __version__, "platform": os.uname().sysname.lower()},
            "instance": services.instance,
            "pid": os.getpid(),
            "listen": machine.endpoint.get("url", ""),
            "socket": machine.endpoint.get("socket", ""),
            "data_dir": str(services.places.data_dir),
            "config": services.config_path,
            "started_at": iso(machine.started_ms),
            "uptime_s": round(services.clock.monotonic() - machine.started, 1),
            "executors": sorted(services.executors.names()),
            "default_executor": services.config.executor.default,
            "task_counts": counts,
            "active": probes,
            "queue": {
                "running": machine.running(),
                "limit": machine.limit,
                "waiting": len(machine.queue()),
            },
            "path": services.search_path if services.path_known else None,
            "stall_timeout": _go_duration(services.config.stalltimeout),
            "recovering": machine.recovering,
            "disk": await asyncio.to_thread(self._disk),
            "warnings": services.warnings,
        }
        return http.Json(body)

    async def _probe(self, actor: Actor) -> dict[str, object]:
        row = actor.core.task
        live, note, procs = "dead", "", None
        if actor.shim is not None and actor.core.run_alive:
            try:
                async with asyncio.timeout(PROBE_S):
                    procs = len(await actor.shim.tree())
                    live = "alive"
            except (TimeoutError, HandoffError) as error:
                live, note = "unknown", str(error) or "no answer"
        result: dict[str, object] = {
            "id": row.id,
            "name": row.name,
            "state": actor.state,
            "executor": row.executor,
            "repo_path": row.repo_path,
            "live": live,
            "note": note,
            "watchers": self.services.hub.watchers(row.id),
            "open_tickets": len(actor.core.open_tickets()),
            "phase": actor.core.phase,
        }
        if procs is not None:
            result["procs"] = procs
        return result

    def _disk(self) -> dict[str, int]:
        where = self.services.places
        return {
            "free_bytes": shutil.disk_usage(where.data_dir).free,
            "db_bytes": _size(str(where.database)) + _size(f"{where.database}-wal"),
            "tasks_bytes": _tree_size(str(where.data_dir / "tasks")),
        }

    # -- processes -----------------------------------------------------------------------

    async def footprint(self, _request: Request) -> Response:
        """Every task's processes."""
        actors = list(self.machine.actors.values())
        return http.Json({"rows": await asyncio.gather(*map(_footprint, actors))})

    # -- worktrees -----------------------------------------------------------------------

    async def reclaimable(self, _request: Request) -> Response:
        """Worktrees of tasks that are over."""
        conn = self.services.store.reader()
        ids = [r[0] for r in conn.execute(Q["tasks_terminal_with_workspace"]).fetchall()]
        rows = [await asyncio.to_thread(self._residue, task_id) for task_id in ids]
        return http.Json({"rows": rows, "scanned": len(ids)})

    def _residue(self, task_id: str) -> dict[str, object]:
        row = self._row(task_id)
        found: dict[str, object] = {
            "task_id": row.id,
            "name": row.name,
            "state": row.state,
            "branch": row.branch,
            "work_dir": row.work_dir,
            "dirty_count": 0,
        }
        try:
            tree = workspace_state.tree_state(row.work_dir)
        except HandoffError as error:
            return {**found, "worktree": "unknown", "note": error.cause}
        if not tree.exists:
            return {**found, "worktree": "absent"}
        dirty = tree.dirt.total
        return {**found, "worktree": "dirty" if dirty else "clean", "dirty_count": dirty}

    async def reclaim(self, request: Request) -> Response:
        """Remove the worktree of a task that is over."""
        task_id = self.machine.resolve(request.path_params["task"])
        http.guard(self.machine, request, task_id)
        force = http.flag_of(await http.json_of(request), "force")
        row = self._row(task_id)
        if not terminal(row.state):
            raise NotAllowed(
                f"task {short(task_id)} is {row.state}: its worktree is in use",
                remedy=f"handoff done {short(task_id)}",
                reason="not_terminal",
            )
        if row.workspace_kind != "managed":
            raise NotAllowed(
                f"{row.work_dir} is yours, not a managed worktree", reason="not_managed"
            )
        outcome = await asyncio.to_thread(removal.remove, plan_of(row), force=force)
        if outcome.action == "kept":
            raise NotAllowed(
                f"{row.work_dir} was kept ({outcome.reason}): {outcome.note}",
                remedy=f"handoff reclaim {short(task_id)} --force",
                reason=outcome.reason,
                dirty=[{"status": s, "path": p} for s, p in outcome.entries],
            )
        await self.machine.actor(task_id).call(_workspace_gone)
        return http.Json(
            {
                "removed": outcome.action == "removed",
                "branch": row.branch,
                "discarded": [{"status": s, "path": p} for s, p in outcome.entries],
                **removal_json(outcome),
            }
        )

    def _row(self, task_id: str) -> TaskRow:
        conn = self.services.store.reader()
        rows = decode(TaskRow, conn.execute(Q["task_get"], {"id": task_id}))
        if not rows:
            raise UnknownTask(f"no task has the id '{task_id}'", remedy="handoff tasks")
        return rows[0]

    # -- projects ------------------------------------------------------------------------

    async def projects(self, _request: Request) -> Response:
        """All registered projects with what is seen of them now."""
        rows = self.services.store.reader().execute(Q["project_list"]).fetchall()
        return http.Json([await asyncio.to_thread(_project_json, row) for row in rows])

    async def add_project(self, request: Request) -> Response:
        """Register the repository at a path."""
        http.guard(self.machine, request, None)
        body = await http.json_of(request)
        path = body.get("path")
        if not isinstance(path, str) or not os.path.isabs(path):
            raise UsageError(
                "'path' must be an absolute path", remedy="handoff project add --path ."
            )
        given = http.text_of(body, "name")
        project = await asyncio.to_thread(identify, http.without_nul(path, "path"))
        name = given or project.name
        if any(c in "/\\:" or not c.isprintable() for c in name) or name in (".", ".."):
            raise UsageError(f"'{name}' can't be a project's name")
        row = {
            "project_id": project.project_id,
            "name": name,
            "path": project.root,
            "origin_url": project.origin_url,
            "created_at": self.services.clock.now_ms(),
        }
        added = await self.services.store.write(lambda conn: _register(conn, row))
        return http.Json({**_project_json(added), "project": asdict(project)})

    async def remove_project(self, request: Request) -> Response:
        """Unregister a project; nothing on disk is touched."""
        http.guard(self.machine, request, None)
        name = request.path_params["name"]
        await self.services.store.write(lambda conn: _unregister(conn, name))
        return http.Json({"ok": True})


async def _footprint(actor: Actor) -> dict[str, object]:
    procs: list[Proc] = []
    verdict = "ok"
    if actor.shim is not None and actor.core.run is not None:
        try:
            async with asyncio.timeout(PROBE_S):
                procs = await actor.shim.tree()
        except (TimeoutError, HandoffError):
            verdict = "unknown" if actor.core.run_alive else "gone"
    return {
        "task_id": actor.task_id,
        "name": actor.core.task.name,
        "state": actor.state,
        "procs": len(procs),
        "verdict": verdict,
        "processes": [
            {"pid": p.pid, "ppid": p.ppid, "command": p.command, "age_s": round(p.age_s, 1)}
            for p in procs
        ],
    }


def _workspace_gone(core: Core) -> None:
    core.task.workspace_state = "gone"
    core.change.task_changed = True


def _register(conn: sqlite3.Connection, row: dict[str, object]) -> tuple[object, ...]:
    known = conn.execute(Q["project_by_id"], {"project_id": row["project_id"]}).fetchone()
    if known is not None and known[2] == row["path"]:
        return tuple(known)
    if known is not None:
        raise NotAllowed(
            f"this project is registered as '{known[1]}' at {known[2]}",
            remedy=f"handoff project rm {known[1]}",
        )
    there = [p for p in conn.execute(Q["project_list"]).fetchall() if p[2] == row["path"]]
    if there:
        # Another origin since: the same place, and who uses its name need not care.
        conn.execute(Q["project_remove"], {"name": there[0][1]})
        row = {**row, "name": there[0][1], "created_at": there[0][4]}
    taken = conn.execute(Q["project_by_name"], {"name": row["name"]}).fetchone()
    if taken is not None:
        raise NotAllowed(
            f"the name '{row['name']}' belongs to {taken[2]}", remedy="give another name"
        )
    conn.execute(Q["project_add"], row)
    return tuple(row.values())


def _unregister(conn: sqlite3.Connection, name: str) -> None:
    row = conn.execute(Q["project_by_name"], {"name": name}).fetchone()
    if row is None:
        raise UnknownProject(f"no project is called '{name}'", remedy="handoff project ls")
    count = conn.execute(Q["tasks_open_of_project"], {"project_id": row[0]}).fetchone()[0]
    if count:
        raise NotAllowed(f"{count} open tasks use project '{name}'", remedy="handoff tasks")
    conn.execute(Q["project_remove"], {"name": name})


def _project_json(row: tuple[object, ...]) -> dict[str, object]:
    project_id, name, path, origin_url, created_at = row
    found: dict[str, object] = {
        "project_id": project_id,
        "name": name,
        "path": path,
        "origin_url": origin_url,
        "created_at": iso(int(str(created_at))),
        "status": "ok",
    }
    if not os.path.isdir(str(path)):
        found["status"] = "missing"
    else:
        try:
            identify(str(path))
        except HandoffError:
            found["status"] = "not_a_repository"
    return found


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _tree_size(root: str, limit_s: float = 0.5) -> int:
    """Bytes below a folder, as far as half a second reaches."""
    total, until = 0, time.monotonic() + limit_s
    for folder, _, names in os.walk(root):
        total += sum(_size(os.path.join(folder, name)) for name in names)
        if time.monotonic() > until:
            break
    return total


def _go_duration(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
