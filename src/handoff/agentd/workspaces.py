"""Workspace plans in the task's row."""

from __future__ import annotations

import msgspec

from handoff.errors import WorkspaceBusy
from handoff.ids import short
from handoff.store.records import TaskRow
from handoff.workspace.contract import WorkspacePlan


def plan_json(plan: WorkspacePlan) -> str:
    """The plan for its column."""
    return msgspec.json.encode(plan).decode()


def plan_of(task: TaskRow) -> WorkspacePlan:
    """The plan that the task was dispatched with."""
    return msgspec.json.decode(task.workspace, type=WorkspacePlan)


def busy_error(path: str, task_id: str, name: str, state: str) -> WorkspaceBusy:
    """Another open task works in that place."""
    return WorkspaceBusy(
        f"{path} is in use by task {short(task_id)} '{name}' ({state})",
        remedy=f"handoff done {short(task_id)}, handoff stop {short(task_id)}, or dispatch "
        "without --in-place",
        holder=task_id,
    )
