"""What the workspace tests share: a fresh folder, and requests with the usual values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from handoff.clock import uuid4_text
from handoff.workspace.contract import WorkspacePlan, WorkspaceRequest
from handoff.workspace.plan import plan_workspace

_numbers = itertools.count(1)


def new_task_id() -> str:
    """An id whose short form no other test uses."""
    return uuid4_text(next(_numbers).to_bytes(4, "big") + bytes(12))


def nobody(path: str) -> str | None:
    """The busy callback of a machine without tasks."""
    del path
    return None


Planner = Callable[..., WorkspacePlan]


@pytest.fixture
def planner(tmp_path: Path) -> Planner:
    """``planner(start, title="x", ...)``: a plan, its worktrees below ``tmp_path``."""

    def plan(start: Path | str, **more: object) -> WorkspacePlan:
        values: dict[str, object] = {
            "task_id": new_task_id(),
            "start_dir": str(start),
            "worktrees_dir": str(tmp_path / "trees"),
            **more,
        }
        return plan_workspace(WorkspaceRequest(**values), nobody)  # type: ignore[arg-type]

    return plan
