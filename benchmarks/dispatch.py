"""From a dispatch to a running executor.

*Accepted*: from sending the request until the answer, with the task on disk. *Started*: from
the end of ``git worktree add`` (the time at which git wrote the worktree's index) until the
shim recorded that the executor's process runs.
"""

from __future__ import annotations

import time
from pathlib import Path

from common import Row, main, p50
from tests.support.daemon import Agentd

from handoff.process.journal import read_all
from live import post, request, running


def started_after_worktree(agentd: Agentd, task: dict[str, object]) -> float | None:
    """Milliseconds between the two, or None where the files do not tell."""
    link = Path(str(task["work_dir"]), ".git").read_text().removeprefix("gitdir:").strip()
    index = Path(link, "index").stat().st_mtime_ns / 1e6
    for run_dir in (agentd.data / "tasks" / str(task["id"]) / "runs").iterdir():
        for _, _, kind, at_ms, _ in read_all(str(run_dir)):
            if kind == "started":
                return at_ms - index
    return None


def measure(quick: bool) -> list[Row]:
    times = 5 if quick else 30
    accepted, started = [], []
    with running() as (agentd, repository):
        body = request(repository, {"say": {"text": "hello"}})
        for _ in range(times):
            began = time.perf_counter()
            task = post(agentd, "/api/tasks", body)
            accepted.append((time.perf_counter() - began) * 1000)
            shown = agentd.wait_state(str(task["id"]), "waiting_review", "failed")
            spent = started_after_worktree(agentd, shown["task"])
            if spent is not None:
                started.append(spent)
            post(agentd, f"/api/tasks/{task['id']}/stop")
    return [
        Row("dispatch: accepted, on disk", "ms", p50(accepted), 5),
        Row("dispatch: executor runs after `git worktree add`", "ms", p50(started), 50)
        if started
        else Row("dispatch: executor runs", skipped="no run was found"),
    ]


if __name__ == "__main__":
    main(measure)
