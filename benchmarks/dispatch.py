"""From a dispatch to a running executor.

*Accepted*: from sending the request until its row is committed, seen from another process;
from then on no crash loses it. *Answered*: until the caller has its answer: the repository
was looked at, the worktree made, the executor started. *Started*: from the end of ``git
worktree add`` (the time at which git wrote the worktree's index) until the shim recorded
that the executor's process runs.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from common import Row, main, p50
from tests.support.daemon import Agentd
from tests.support.repository import Repository

from handoff.process.journal import read_all
from live import post, request, running


def dispatch(
    agentd: Agentd, repository: Repository, conn: sqlite3.Connection
) -> tuple[dict[str, object], float, float]:
    """(the task, ms until its dispatch was on disk, ms until the answer)."""
    body = request(repository, {"say": {"text": "hello"}})
    answer: list[tuple[dict[str, object], float]] = []

    def send() -> None:
        answer.append((post(agentd, "/api/tasks", body), time.perf_counter()))

    count = "SELECT count(*) FROM dispatches"
    before = conn.execute(count).fetchone()
    thread = threading.Thread(target=send)
    began = time.perf_counter()
    thread.start()
    while conn.execute(count).fetchone() == before:
        time.sleep(0.0002)
    accepted = time.perf_counter() - began
    thread.join()
    task, at = answer[0]
    return task, accepted * 1000, (at - began) * 1000


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
    accepted, answered, started = [], [], []
    with running() as (agentd, repository):
        uri = f"{(agentd.data / 'handoff.db').as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as conn:
            for _ in range(times):
                task, on_disk, told = dispatch(agentd, repository, conn)
                accepted.append(on_disk)
                answered.append(told)
                spent = started_after_worktree(agentd, task)
                if spent is not None:
                    started.append(spent)
                agentd.wait_state(str(task["id"]), "waiting_review", "failed")
                post(agentd, f"/api/tasks/{task['id']}/stop")
    return [
        Row("dispatch: accepted, on disk", "ms", p50(accepted), 5),
        Row("dispatch: executor runs after `git worktree add`", "ms", p50(started), 50)
        if started
        else Row("dispatch: executor runs", skipped="no run was found"),
        Row("dispatch: answered, worktree made, executor started", "ms", p50(answered), None),
    ]


if __name__ == "__main__":
    main(measure)
