"""One step of a task, committed as one transaction.

A :class:`Change` holds everything that an input caused: rows, events, frames, numbered
inputs for the executor, effects, and the answer under the caller's idempotency key.
:func:`apply` writes it inside the transaction of the caller. Nothing else writes a task.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field

from handoff.errors import UsageError
from handoff.store.records import (
    EffectRow,
    RunRow,
    TaskRow,
    TicketRow,
    TurnRow,
    decode,
    encode,
)
from handoff.store.sql import Q
from handoff.wire.agentd import wakes

#: frames kept of one task; older ones go, and a reader is told how many
FRAMES_KEPT = 50_000


@dataclass
class Change:
    """What one input caused. ``settled``: (outbox id, lifecycle state, error text).
    ``sent``: (run id, input number). ``prompts``: (turn, what it begins with).
    ``runs_over``: earlier runs, now gone. ``request``: (key, operation, response JSON)."""

    new_task: bool = False
    tickets: dict[str, TicketRow] = field(default_factory=dict)
    turns: dict[int, TurnRow] = field(default_factory=dict)
    prompts: list[tuple[int, str]] = field(default_factory=list)
    runs: dict[str, RunRow] = field(default_factory=dict)
    runs_over: list[str] = field(default_factory=list)
    events: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)
    frames: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    inputs: list[tuple[str, int, bytes, str | None]] = field(default_factory=list)
    sent: list[tuple[str, int]] = field(default_factory=list)
    effects: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    settled: list[tuple[int, str, str]] = field(default_factory=list)
    failed_once: list[tuple[int, str]] = field(default_factory=list)
    request: tuple[str, str, str] | None = None
    task_changed: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (
            self.new_task
            or self.task_changed
            or self.tickets
            or self.turns
            or self.prompts
            or self.runs
            or self.runs_over
            or self.events
            or self.frames
            or self.inputs
            or self.sent
            or self.effects
            or self.settled
            or self.failed_once
            or self.request
        )


@dataclass
class Committed:
    """What the database made of it: events, frames and effects with their numbers."""

    events: list[dict[str, object]]
    frames: list[dict[str, object]]
    effects: list[EffectRow]


def apply(conn: sqlite3.Connection, task: TaskRow, change: Change, now: int) -> Committed:
    """Write the change; updates ``task.last_seq``, ``frames_made`` and ``updated_at``.

    The caller's transaction makes it one step: all of it, or nothing.
    """
    if change.new_task:
        task.number = conn.execute(Q["task_next_number"]).fetchone()[0]
        conn.execute(Q["task_add"], encode(task))
    for turn in change.turns.values():
        conn.execute(Q["turn_save"], encode(turn))
    for number, text in change.prompts:
        conn.execute(Q["prompt_add"], {"task_id": task.id, "turn": number, "text": text})
    for run in change.runs.values():
        conn.execute(Q["run_save"], encode(run))
    for run_id in change.runs_over:
        conn.execute(Q["run_over"], {"id": run_id, "ended_at": now})
    for ticket in change.tickets.values():
        conn.execute(Q["ticket_save"], encode(ticket))
    events = [_add_event(conn, task, event, now) for event in change.events]
    frames = _add_frames(conn, task, change, now)
    for run_id, number, data, ticket_id in change.inputs:
        conn.execute(
            Q["input_add"],
            {"run_id": run_id, "number": number, "data": data, "ticket_id": ticket_id},
        )
    for run_id, number in change.sent:
        conn.execute(Q["input_sent"], {"run_id": run_id, "number": number, "sent_at": now})
    effects = _apply_effects(conn, task, change, now)
    if change.request is not None:
        key, operation, response = change.request
        row = {"key": key, "operation": operation, "response": response, "created_at": now}
        try:
            conn.execute(Q["request_add"], row)
        except sqlite3.IntegrityError as error:
            raise UsageError(f"the key {key} was used for another call at the same time") from error
    task.updated_at = now
    conn.execute(Q["task_save"], encode(task))
    return Committed(events, frames, effects)


def _add_event(
    conn: sqlite3.Connection, task: TaskRow, event: tuple[str, str, dict[str, object]], now: int
) -> dict[str, object]:
    kind, actor, payload = event
    row = {
        "task_id": task.id,
        "type": kind,
        "actor": actor,
        "wakes": int(wakes(kind)),
        "payload": json.dumps(payload, ensure_ascii=False),
        "created_at": now,
    }
    seq = conn.execute(Q["event_add"], row).lastrowid
    assert seq is not None
    task.last_seq = seq
    return {"seq": seq, **row}


def _add_frames(
    conn: sqlite3.Connection, task: TaskRow, change: Change, now: int
) -> list[dict[str, object]]:
    turn = max(change.turns, default=0)
    made = []
    for kind, data in change.frames:
        row: dict[str, object] = {
            "task_id": task.id,
            "n": task.frames_made,
            "turn": data.pop("turn", turn),
            "kind": kind,
            "data": json.dumps(data, ensure_ascii=False),
            "at": now,
        }
        conn.execute(Q["frame_add"], row)
        task.frames_made += 1
        made.append(row)
    if made and task.frames_made > FRAMES_KEPT and task.frames_made % 100 < len(made):
        conn.execute(
            Q["frames_prune"], {"task_id": task.id, "start": task.frames_made - FRAMES_KEPT}
        )
    return made


def _apply_effects(
    conn: sqlite3.Connection, task: TaskRow, change: Change, now: int
) -> list[EffectRow]:
    made = []
    for kind, payload in change.effects:
        text = json.dumps(payload, ensure_ascii=False)
        row = {"task_id": task.id, "kind": kind, "payload": text, "created_at": now}
        effect_id = conn.execute(Q["outbox_add"], row).lastrowid
        assert effect_id is not None
        made.append(EffectRow(effect_id, kind, text))
    for effect_id, state, error in change.settled:
        conn.execute(
            Q["outbox_settle"],
            {"id": effect_id, "state": state, "error": error, "done_at": now},
        )
    for effect_id, error in change.failed_once:
        conn.execute(Q["outbox_failed_once"], {"id": effect_id, "error": error})
    return made


@dataclass
class Loaded:
    """A task as the database holds it."""

    task: TaskRow
    turn: TurnRow | None
    run: RunRow | None
    tickets: list[TicketRow]
    effects: list[EffectRow]


def prompt(conn: sqlite3.Connection, task_id: str, turn: int) -> str:
    """What a turn of the task began with; the first turn's is the plan."""
    row = conn.execute(Q["prompt_get"], {"task_id": task_id, "turn": turn}).fetchone()
    return "" if row is None else str(row[0])


def load(conn: sqlite3.Connection, task_id: str) -> Loaded | None:
    """The task with its newest turn and run, its unsettled tickets and due effects."""
    tasks = decode(TaskRow, conn.execute(Q["task_get"], {"id": task_id}))
    if not tasks:
        return None
    where = {"task_id": task_id}
    turns = decode(TurnRow, conn.execute(Q["turn_last"], where))
    runs = decode(RunRow, conn.execute(Q["run_last"], where))
    return Loaded(
        tasks[0],
        turns[0] if turns else None,
        runs[0] if runs else None,
        decode(TicketRow, conn.execute(Q["tickets_unsettled"], where)),
        decode(EffectRow, conn.execute(Q["outbox_due"], where)),
    )
