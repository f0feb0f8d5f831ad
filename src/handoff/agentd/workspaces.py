"""A task's workspace: its plan in the row, its own work in the repository."""

from __future__ import annotations

import msgspec

from handoff.errors import WorkspaceBusy
from handoff.ids import short
from handoff.store.records import TaskRow
from handoff.workspace.contract import Range, WorkspacePlan
from handoff.workspace.own import own_range


def plan_json(plan: WorkspacePlan) -> str:
    """The plan for its column."""
    return msgspec.json.encode(plan).decode()


def plan_of(task: TaskRow) -> WorkspacePlan:
    """The plan that the task was dispatched with."""
    return msgspec.json.decode(task.workspace, type=WorkspacePlan)


def own_work(task: TaskRow, head: str = "") -> Range:
    """What the task itself did, up to ``head`` or to where it stands now.

    Raises:
        NotFound: worktree, branch and kept refs are all gone.
    """
    return own_range(
        task.repo_path,
        task.id,
        recorded_base=task.base_commit,
        base_name=plan_of(task).base_name,
        branch=task.branch,
        work_dir=task.work_dir,
        head=head,
    )


def busy_error(path: str, task_id: str, name: str, state: str) -> WorkspaceBusy:
    """Another open task works in that place."""
    return WorkspaceBusy(
        f"{path} is in use by task {short(task_id)} '{name}' ({state})",
        remedy=f"handoff done {short(task_id)}, handoff stop {short(task_id)}, or dispatch "
        "without --in-place",
        holder=task_id,
    )
