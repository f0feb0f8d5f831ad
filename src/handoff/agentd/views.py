"""Rows as the JSON objects of the API. Field names are those of the protocol's first
version, plus ours."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

from handoff.clock import iso
from handoff.ids import short
from handoff.store.records import TaskRow, TicketRow, TurnRow, decode
from handoff.store.sql import Q

if TYPE_CHECKING:
    from handoff.agentd.machine import Machine

Json = dict[str, object]


def task_json(machine: Machine, row: TaskRow) -> Json:
    """A Task."""
    plan = json.loads(row.workspace)
    return {
        "id": row.id,
        "ref": short(row.id),
        "target": row.target,
        "project": row.project_name,
        "project_id": row.project_id,
        "repo_path": row.repo_path,
        "branch": row.branch,
        "plan_path": row.plan_name,
        "plan_summary": row.plan_summary,
        "executor_session": row.session_id,
        "state": row.state,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "name": row.name,
        "executor": row.executor,
        "executor_path": row.executor_path,
        "executor_version": row.executor_version,
        "model": row.model,
        "work_dir": row.work_dir,
        "worktree_managed": row.workspace_kind == "managed",
        "workspace_kind": row.workspace_kind,
        "workspace_state": row.workspace_state,
        "base_commit": row.base_commit,
        "base_name": plan["base_name"],
        "base_ahead": plan["base_ahead"],
        "repo_dirty_count": plan["dirty_count"],
        "repo_dirty_files": ", ".join(plan["dirty_files"]),
        "notes": plan["notes"],
        "missing_submodules": plan["missing_submodules"],
        "skipped_hooks": plan["skipped_hooks"],
        "verify": json.loads(row.verify),
        "done_note": row.done_note,
        "queue_position": machine.position(row.id) if row.state == "pending" else None,
        "last_seq": row.last_seq,
    }


def task_view(machine: Machine, conn: sqlite3.Connection, row: TaskRow) -> Json:
    """A TaskView: a Task with what is seen of it now."""
    actor = machine.actors.get(row.id)
    opened = conn.execute(Q["ticket_open_count"], {"task_id": row.id}).fetchone()[0]
    turns = decode(TurnRow, conn.execute(Q["turn_last"], {"task_id": row.id}))
    activity: Json = {"phase": "idle", "idle_s": None, "detail": ""}
    if actor is not None:
        idle = machine.services.clock.monotonic() - actor.last_activity
        activity = {
            "phase": actor.core.phase,
            "idle_s": round(idle, 1),
            "detail": actor.core.phase_detail,
        }
    return {
        **task_json(machine, row),
        "turn": turns[0].number if turns else 0,
        "watchers": machine.services.hub.watchers(row.id),
        "open_tickets": opened,
        "activity": activity,
    }


def ticket_json(row: TicketRow) -> Json:
    """A Ticket, its request in full."""
    return {
        "id": row.id,
        "ref": row.ref,
        "task_id": row.task_id,
        "turn": row.turn,
        "kind": row.kind,
        "state": row.state,
        "request": json.loads(row.request),
        "decision": row.decision,
        "reason": row.reason,
        "answer": _compat_answer(row),
        "source": row.source,
        "answered_by": row.answered_by,
        "void_reason": row.void_reason,
        "fingerprint": row.fingerprint,
        "created_at": iso(row.created_at),
        "answered_at": _time(row.answered_at),
        "delivered_at": _time(row.delivered_at),
        "acknowledged_at": _time(row.acknowledged_at),
    }


def _compat_answer(row: TicketRow) -> str | None:
    """The answer as text, as peers of the first protocol version expect it."""
    if row.answer is None:
        return None
    if row.kind == "gate":
        return f"deny: {row.reason}" if row.decision == "deny" and row.reason else row.decision
    return "\n".join(", ".join(one) for one in json.loads(row.answer))


def turn_json(row: TurnRow, prompt: str) -> Json:
    """A Turn with its prompt and its outcome."""
    return {
        "number": row.number,
        "state": row.state,
        "prompt": prompt,
        "actor": row.actor,
        "start_head": row.start_head,
        "outcome": json.loads(row.outcome) if row.outcome else None,
        "started_at": iso(row.started_at),
        "ended_at": _time(row.ended_at),
    }


def _time(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)


def event_rows(rows: list[tuple[object, ...]]) -> list[Json]:
    """Rows of the event queries by name."""
    names = ("seq", "task_id", "type", "actor", "wakes", "payload", "created_at")
    return [dict(zip(names, row, strict=True)) for row in rows]


def event_json(row: Json) -> Json:
    """An Event."""
    return {
        "seq": row["seq"],
        "task_id": row["task_id"],
        "type": row["type"],
        "actor": row["actor"],
        "wakes": bool(row["wakes"]),
        "created_at": iso(int(str(row["created_at"]))),
        "payload": json.loads(str(row["payload"])),
    }


def frame_rows(rows: list[tuple[object, ...]]) -> list[Json]:
    """Rows of the frame queries by name."""
    return [dict(zip(("n", "turn", "kind", "data", "at"), row, strict=True)) for row in rows]
