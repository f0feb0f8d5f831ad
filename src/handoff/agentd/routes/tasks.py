"""Tasks: dispatch, look, answer, continue, accept, stop."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handoff.agentd import http, tickets, turns, views
from handoff.agentd.core import Core
from handoff.agentd.keys import Key
from handoff.errors import (
    ChangedSinceAsked,
    HandoffError,
    NotAllowed,
    UnknownTask,
    UnknownTicket,
    UsageError,
    from_json,
)
from handoff.gate.changed import changed, explain, marks_now
from handoff.gate.contract import FileMark
from handoff.ids import short
from handoff.lifecycle import terminal
from handoff.store import commit
from handoff.store.records import TaskRow, TicketRow, TurnRow, decode
from handoff.store.sql import Q
from handoff.workspace import state as workspace_state

if TYPE_CHECKING:
    from handoff.agentd.actor import Actor
    from handoff.agentd.machine import Machine

#: bytes of a note given with `done`
NOTE_LIMIT = 4096
#: seconds that an answer to a reply waits for the delivery
DELIVERY_S = 10.0
#: seconds that the answers to stop and done wait for the clean-up
CLEANUP_S = 60.0
RECENT = 100


def routes(machine: Machine) -> list[Route]:
    """The routes of tasks."""
    api = _Tasks(machine)
    task = "/api/tasks/{task}"
    return [
        Route("/api/tasks", api.list, methods=["GET"]),
        Route("/api/tasks", api.dispatch, methods=["POST"]),
        Route(task, api.show, methods=["GET"]),
        Route(f"{task}/tickets", api.tickets, methods=["GET"]),
        Route(f"{task}/tickets/{{ticket}}", api.ticket, methods=["GET"]),
        Route(f"{task}/plan", api.plan, methods=["GET"]),
        Route(f"{task}/reply", api.reply, methods=["POST"]),
        Route(f"{task}/continue", api.continue_, methods=["POST"]),
        Route(f"{task}/interrupt", api.interrupt, methods=["POST"]),
        Route(f"{task}/done", api.done, methods=["POST"]),
        Route(f"{task}/stop", api.stop, methods=["POST"]),
        Route(f"{task}/resume", api.resume, methods=["POST"]),
    ]


def number(request: Request, name: str, default: int, most: int) -> int:
    """A whole number from the query.

    Raises:
        UsageError: it is not one, or is negative.
    """
    return number_of(request.query_params.get(name), name, default, most)


def number_of(text: str | None, name: str, default: int, most: int) -> int:
    """The same of a text; above ``most`` is ``most``."""
    if text is None or text == "":
        return default
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"'{name}' must be a whole number, 0 or more, not '{text[:40]}'")
    return most if len(text.lstrip("0")) > len(str(most)) else min(int(text), most)


class _Tasks:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def _id(self, request: Request) -> str:
        return self.machine.resolve(request.path_params["task"])

    def _row(self, task_id: str) -> TaskRow:
        conn = self.machine.services.store.reader()
        rows = decode(TaskRow, conn.execute(Q["task_get"], {"id": task_id}))
        if not rows:
            raise UnknownTask(f"no task has the id '{task_id}'", remedy="handoff tasks")
        return rows[0]

    def _guarded(self, request: Request) -> tuple[str, Actor, str]:
        task_id = self._id(request)
        actor = http.guard(self.machine, request, task_id)
        return task_id, self.machine.actor(task_id), actor

    # -- looking -------------------------------------------------------------------------

    async def list(self, request: Request) -> Response:
        """All tasks, newest first."""
        state = request.query_params.get("state")
        project = request.query_params.get("project")
        limit = number(request, "limit", 10_000, 10_000)
        where: dict[str, object] = {
            "before": number(request, "before", 1 << 62, 1 << 62),
            "limit": limit,
        }
        query = "task_list"
        if state:
            query, where["state"] = "task_list_by_state", state

        def read(conn: sqlite3.Connection) -> list[dict[str, object]]:
            rows = decode(TaskRow, conn.execute(Q[query], where))
            shown = [r for r in rows if not project or project in (r.project_name, r.project_id)]
            return [views.task_view(self.machine, conn, row) for row in shown]

        return http.Json(await self.machine.services.store.read_async(read))

    async def show(self, request: Request) -> Response:
        """One task, its open tickets, its newest events and its turns."""
        task_id = self._id(request)

        return http.Json(self.machine.services.store.read(partial(self._snapshot, task_id)))

    def _snapshot(self, task_id: str, conn: sqlite3.Connection) -> dict[str, object]:
        where: dict[str, object] = {"task_id": task_id}
        rows = conn.execute(Q["events_newest"], {**where, "limit": RECENT}).fetchall()
        unsettled = decode(TicketRow, conn.execute(Q["tickets_unsettled"], where))
        turned = decode(TurnRow, conn.execute(Q["turns_of_task"], where))
        prompts = dict(conn.execute(Q["prompts_of_task"], where).fetchall())
        return {
            "task": views.task_view(self.machine, conn, self._row(task_id)),
            "pending_tickets": [views.ticket_json(t) for t in unsettled if t.state == "open"],
            "recent_events": [views.event_json(e) for e in reversed(views.event_rows(rows))],
            "turns": [views.turn_json(t, prompts.get(t.number, "")) for t in turned],
        }

    async def tickets(self, request: Request) -> Response:
        """All tickets of a task."""
        conn = self.machine.services.store.reader()
        where = {"task_id": self._id(request)}
        rows = decode(TicketRow, conn.execute(Q["tickets_of_task"], where))
        return http.Json([views.ticket_json(row) for row in rows])

    async def ticket(self, request: Request) -> Response:
        """One ticket, every byte of it."""
        row = self._ticket(self._id(request), request.path_params["ticket"])
        return http.Json(views.ticket_json(row))

    def _ticket(self, task_id: str, wanted: str) -> TicketRow:
        conn = self.machine.services.store.reader()
        ident = wanted if ":" in wanted else f"{task_id}:{wanted}"
        rows = decode(TicketRow, conn.execute(Q["ticket_get"], {"id": ident}))
        if not rows or rows[0].task_id != task_id:
            raise UnknownTicket(
                f"task {short(task_id)} has no ticket '{wanted}'",
                remedy=f"handoff show {short(task_id)}",
            )
        return rows[0]

    async def plan(self, request: Request) -> Response:
        """What the executor was given."""
        row = self._row(self._id(request))
        text = commit.prompt(self.machine.services.store.reader(), row.id, 1)
        return http.Json({"plan": text, "name": row.plan_name})

    # -- dispatch ------------------------------------------------------------------------

    async def dispatch(self, request: Request) -> Response:
        """Accept a plan."""
        actor = http.guard(self.machine, request, None)
        key = request.headers.get("handoff-request") or self.machine.services.clock.new_id()
        task_id = await self.machine.dispatch(key, await http.body_of(request), actor)
        if request.query_params.get("wait") != "0":
            await self._started(task_id)
        return http.Json(views.task_json(self.machine, self._row(task_id)))

    async def _started(self, task_id: str) -> None:
        """Wait until the executor runs, the task stands in the queue, or it has failed."""
        channel = self.machine.services.hub.channel(task_id)
        flag = channel.subscribe()
        try:
            while True:
                flag.clear()
                actor = self.machine.actor(task_id)
                if actor.state != "pending":
                    break
                if self.machine.position(task_id) is not None:
                    return
                await asyncio.wait_for(flag.wait(), 120)
        except TimeoutError:
            return
        finally:
            channel.unsubscribe(flag)
        if actor.state == "failed" and (error := self._start_error(task_id)) is not None:
            raise error

    def _start_error(self, task_id: str) -> HandoffError | None:
        """Why the task never began, or None if it did and was stopped later."""
        conn = self.machine.services.store.reader()
        rows = conn.execute(Q["events_newest"], {"task_id": task_id, "limit": 20}).fetchall()
        for event in views.event_rows(rows):
            if event["type"] == "failed":
                payload = json.loads(str(event["payload"]))
                if "code" not in payload:
                    break  # stopped
                cause = payload.get("reason") or payload.get("fail_reason")
                body = {
                    "error": cause,
                    "code": payload.get("code"),
                    "remedy": payload.get("remedy", ""),
                    "details": {"task_id": task_id},
                }
                return from_json(body)
        if conn.execute(Q["run_last"], {"task_id": task_id}).fetchone() is not None:
            return None
        return NotAllowed(f"task {short(task_id)} was stopped before it began")

    # -- tickets -------------------------------------------------------------------------

    async def reply(self, request: Request) -> Response:
        """Answer a ticket, and tell whether the executor got it."""
        task_id, actor, who = self._guarded(request)
        body = await http.json_of(request)
        key = self._key(request, "reply", task_id)
        if (known := key.answer()) is not None:
            return http.Json(await self._delivery(actor, str(known["ticket"])))
        ticket = self._wanted(task_id, body)
        decision, reason, answers = tickets.parse_answer(ticket, body)
        tickets.check_open(ticket)
        if decision == "allow":
            await self._check_unchanged(actor, ticket)

        def answer(core: Core) -> None:
            if key.answer() is not None:
                return  # the same call, twice at once
            current = core.tickets.get(ticket.id) or self._ticket(task_id, ticket.id)
            tickets.answer(core, current, decision, reason, answers, who)
            core.change.request = key.record({"ok": True, "ticket": ticket.id})

        await actor.call(answer)
        return http.Json(await self._delivery(actor, ticket.id))

    def _wanted(self, task_id: str, body: dict[str, object]) -> TicketRow:
        wanted = http.text_of(body, "ticket_id")
        if wanted:
            return self._ticket(task_id, wanted)
        conn = self.machine.services.store.reader()
        rows = decode(TicketRow, conn.execute(Q["tickets_unsettled"], {"task_id": task_id}))
        opened = [row for row in rows if row.state == "open"]
        if len(opened) == 1:
            return opened[0]
        if not opened:
            raise NotAllowed(
                f"task {short(task_id)} has no open ticket", remedy=f"handoff show {short(task_id)}"
            )
        refs = ", ".join(t.ref for t in opened)
        raise UsageError(f"say which ticket: {refs}", remedy="--ticket REF", tickets=refs)

    async def _check_unchanged(self, actor: Actor, ticket: TicketRow) -> None:
        """What would run now must be what was asked about; else the ticket asks again."""
        marks = msgspec.json.decode(ticket.marks, type=tuple[FileMark, ...])
        if not marks:
            return
        work_dir = actor.core.task.work_dir
        changes = await asyncio.to_thread(changed, marks, work_dir)
        if not changes:
            return
        fresh = await asyncio.to_thread(marks_now, marks)

        def ask_again(core: Core) -> None:
            current = core.tickets.get(ticket.id)
            if current is not None and current.state == "open":
                current.marks = msgspec.json.encode(fresh).decode()
                # What the words of the request meant has changed: no grant may cover both.
                current.reusable = 0
                core.touch_ticket(current)
                core.event(
                    "progress",
                    {
                        "text": f"ticket {ticket.ref}: files changed since it was asked",
                        "files": [c.path for c in changes][:20],
                    },
                )

        await actor.call(ask_again)
        raise ChangedSinceAsked(
            f"ticket {ticket.ref} was not answered: what it would use has changed since it "
            f"was asked\n{explain(changes)}",
            remedy="look at the change, then reply again",
            ticket=ticket.ref,
            changes=msgspec.to_builtins(changes),
        )

    async def _delivery(self, actor: Actor, ticket_id: str) -> dict[str, object]:
        """Wait until the answer is with the executor, for a bounded time."""
        channel = self.machine.services.hub.channel(actor.task_id)
        flag = channel.subscribe()
        deadline = asyncio.get_running_loop().time() + DELIVERY_S
        try:
            while True:
                flag.clear()
                row = self._ticket(actor.task_id, ticket_id)
                if row.state != "answered":
                    break
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                try:
                    await asyncio.wait_for(flag.wait(), min(left, 0.05))
                except TimeoutError:
                    continue
        finally:
            channel.unsubscribe(flag)
        relayed = row.delivered_at is not None
        answer: dict[str, object] = {
            "ok": True,
            "relayed": relayed,
            "state": row.state,
            "ticket": row.ref,
        }
        if not relayed:
            answer["reason"] = row.void_reason or "recorded; the executor has not taken it yet"
        return answer

    def _key(self, request: Request, what: str, task_id: str) -> Key:
        return Key(self.machine.services.store, request, f"{what} {task_id}")

    # -- turns ---------------------------------------------------------------------------

    async def continue_(self, request: Request) -> Response:
        """Further instructions."""
        task_id, actor, who = self._guarded(request)
        body = await http.json_of(request)
        key = self._key(request, "continue", task_id)
        if (known := key.answer()) is not None:
            return http.Json(known)
        text = body.get("instructions")
        if not isinstance(text, str) or not text.strip():
            raise UsageError("'instructions' is missing", remedy="handoff continue TASK TEXT")
        row = self._row(task_id)
        if row.state != "waiting_review":
            raise NotAllowed(
                f"task {short(task_id)} is {row.state}: it takes further instructions only when "
                "it waits for review",
                remedy=_way_on(row),
                state=row.state,
            )
        head = await asyncio.to_thread(workspace_state.head_of, row.work_dir)

        def go(core: Core) -> None:
            if key.answer() is not None:
                return  # the same call, twice at once
            turns.continue_(core, text, head, who)
            core.change.request = key.record({"ok": True, "state": core.task.state})

        await actor.call(go)
        return http.Json({"ok": True, "state": actor.state})

    async def interrupt(self, request: Request) -> Response:
        """End the running turn, keep the session."""
        _, actor, who = self._guarded(request)
        await self.machine.interrupt(actor, who)
        return http.Json({"ok": True, "state": actor.state})

    # -- the end -------------------------------------------------------------------------

    async def done(self, request: Request) -> Response:
        """Accept the task."""
        task_id, actor, who = self._guarded(request)
        body = await http.json_of(request)
        note = http.text_of(body, "note") or ""
        if len(note.encode()) > NOTE_LIMIT:
            raise UsageError(f"the note must be text of at most {NOTE_LIMIT} bytes")
        row = self._row(task_id)
        if row.state not in ("waiting_review", "completed"):
            raise NotAllowed(
                f"task {short(task_id)} is {row.state}: it can be accepted when it waits for review",
                remedy=_way_on(row),
                state=row.state,
            )

        def accept(core: Core) -> None:
            if core.task.state != "completed":  # else twice at once
                turns.done(core, note, who)

        await actor.call(accept)
        worktree = await self._cleaned(task_id)
        saved = actor.core.task.done_note == note
        return http.Json({"ok": True, "note_saved": saved, "worktree": worktree})

    async def stop(self, request: Request) -> Response:
        """Give the task up."""
        task_id, actor, who = self._guarded(request)
        key = self._key(request, "stop", task_id)
        repeated = key.answer() is not None
        if terminal(actor.state) and not repeated:
            raise NotAllowed(
                f"task {short(task_id)} is over already ({actor.state})",
                state=actor.state,
            )

        def stop(core: Core) -> None:
            if key.answer() is not None:
                return  # the same call, twice at once
            turns.stop(core, who)
            core.change.request = key.record({"status": "stopped"})

        if not repeated:
            await actor.call(stop)
        worktree = await self._cleaned(task_id)
        return http.Json(
            {
                "status": "stopped",
                "worktree_removed": worktree["action"] in ("removed", "pruned", "already_absent"),
                "worktree": worktree,
            }
        )

    async def _cleaned(self, task_id: str) -> dict[str, object]:
        """Wait for the clean-up, for a bounded time, and tell how it ended."""
        channel = self.machine.services.hub.channel(task_id)
        flag = channel.subscribe()
        deadline = asyncio.get_running_loop().time() + CLEANUP_S
        try:
            while (
                not self.machine.settled(task_id) and asyncio.get_running_loop().time() < deadline
            ):
                flag.clear()
                try:
                    await asyncio.wait_for(flag.wait(), 0.25)
                except TimeoutError:
                    continue
        finally:
            channel.unsubscribe(flag)
        row = self._row(task_id)
        if not self.machine.settled(task_id):
            return {"action": "pending", "work_dir": row.work_dir, "reason": "", "note": ""}
        if row.workspace_state == "gone":
            action = "removed" if row.workspace_kind == "managed" else "restored"
            return {"action": action, "work_dir": row.work_dir, "reason": "", "note": ""}
        kept = self._kept(task_id)
        return {"action": "kept", "work_dir": row.work_dir, **kept}

    def _kept(self, task_id: str) -> dict[str, object]:
        conn = self.machine.services.store.reader()
        rows = conn.execute(Q["events_newest"], {"task_id": task_id, "limit": 20}).fetchall()
        for event in views.event_rows(rows):
            payload = json.loads(str(event["payload"]))
            if event["type"] == "progress" and "kept" in payload:
                return {
                    "reason": payload["reason"],
                    "note": payload["text"],
                    "entries": payload["entries"],
                    "remedy": payload["remedy"],
                }
        return {"reason": "", "note": ""}

    async def resume(self, request: Request) -> Response:
        """Look again at a task that seems stuck; with ``force`` bring it to review."""
        task_id, actor, who = self._guarded(request)
        if terminal(actor.state):
            raise NotAllowed(f"task {short(task_id)} is over ({actor.state})")
        force = request.query_params.get("force") in ("1", "true")
        return http.Json(await self.machine.resume(task_id, force=force, who=who))


def _way_on(row: TaskRow) -> str:
    ident = short(row.id)
    return {  # what waits for an answer is shown with the commands that give it
        "running": f"handoff wait {ident}",
        "pending": f"handoff wait {ident}",
    }.get(row.state, f"handoff show {ident}")
