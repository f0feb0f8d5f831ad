"""The rows of a task as mutable values. Field for field the columns of the schema;
JSON columns are kept as text and decoded by whoever needs them."""

from __future__ import annotations

import sqlite3
from typing import TypeVar

import msgspec


class TaskRow(msgspec.Struct):
    """A task. ``workspace``: the :class:`~handoff.workspace.contract.WorkspacePlan` as
    JSON. ``workspace_state``: ``planned``, ``ready`` or ``gone``. ``verify``: JSON list
    of commands. ``tickets_made``: JSON object kind -> count, for short references."""

    id: str
    number: int
    name: str
    state: str
    target: str
    project_id: str
    project_name: str
    repo_path: str
    work_dir: str
    workspace: str
    workspace_kind: str
    workspace_state: str
    branch: str
    base_commit: str
    plan_name: str
    plan_summary: str
    executor: str
    model: str
    verify: str
    created_at: int
    updated_at: int
    use_setup: int = 1
    session_id: str = ""
    executor_path: str = ""
    executor_version: str = ""
    tickets_made: str = "{}"
    frames_made: int = 0
    done_note: str = ""
    last_seq: int = 0


class TurnRow(msgspec.Struct):
    """A turn. ``guidance``: JSON list of deny reasons that the protocol could not carry.
    ``fault``: a :class:`~handoff.executors.contract.Fault` as JSON. ``outcome``: the
    payload of the event that ended it, as JSON."""

    task_id: str
    number: int
    state: str
    actor: str
    started_at: int
    run_id: str = ""
    start_head: str = ""
    final_text: str = ""
    fault: str | None = None
    guidance: str = "[]"
    outcome: str | None = None
    ended_at: int | None = None


class RunRow(msgspec.Struct):
    """A process of an executor. ``read_offset``, ``read_skip``: where to go on in the
    journal: that record, and how many bytes of its data are already taken.
    ``pending_prompt``: held back until the session's context is known. ``context``: ""
    before the session is ready, then ``new``, ``resumed`` or ``lost``."""

    id: str
    task_id: str
    state: str
    created_at: int
    driver: str = ""
    read_offset: int = 0
    read_skip: int = 0
    inputs_made: int = 0
    stderr_tail: str = ""
    pending_prompt: str = ""
    context: str = ""
    unrecognised: str = "{}"
    exit_code: int | None = None
    ended_at: int | None = None


class TicketRow(msgspec.Struct):
    """A ticket. ``ask_id``: the executor's id, or "" for a question that was left at the
    end of a turn. ``marks``: JSON list of FileMark. ``decision``: ``allow``, ``deny`` or
    "" (asks). ``answer``: JSON. ``source``: who decided: ``policy``, ``grant``,
    ``coordinator``."""

    id: str
    ref: str
    task_id: str
    turn: int
    run_id: str
    ask_id: str
    kind: str
    state: str
    request: str
    created_at: int
    marks: str = "[]"
    fingerprint: str = ""
    reusable: int = 0
    decision: str = ""
    reason: str = ""
    answer: str | None = None
    source: str = ""
    answered_by: str = ""
    input_number: int | None = None
    void_reason: str = ""
    answered_at: int | None = None
    delivered_at: int | None = None
    acknowledged_at: int | None = None


class EffectRow(msgspec.Struct):
    """A due row of the outbox."""

    id: int
    kind: str
    payload: str
    attempts: int = 0
    error: str = ""


Row = TypeVar("Row", TaskRow, TurnRow, RunRow, TicketRow, EffectRow)


def decode(kind: type[Row], cursor: sqlite3.Cursor) -> list[Row]:
    """All rows of a cursor as values of one kind, by column name."""
    names = [column[0] for column in cursor.description]
    return [kind(**dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def encode(row: TaskRow | TurnRow | RunRow | TicketRow) -> dict[str, object]:
    """The row as named parameters."""
    return {name: getattr(row, name) for name in row.__struct_fields__}
