"""kill -9 of the daemon with many running tasks, and its next start.

Each task stands in the middle of a turn, at a permission. Counted from the start of the
new daemon until it answers and has taken up every task again. Then every permission is
allowed, and every task must come to its end once: nothing lost, nothing twice.
"""

from __future__ import annotations

import time
from collections import Counter

from common import Row, main
from scale import QUEUE
from tests.support.daemon import Agentd
from tests.support.waiting import until

from live import post, request, running


def types(agentd: Agentd, task: str) -> Counter[str]:
    return Counter(event["type"] for event in agentd.events(task))


def measure(quick: bool) -> list[Row]:
    tasks = 10 if quick else 100
    with running(QUEUE) as (agentd, repository):
        body = request(repository, {"run": {"command": "echo hello >> out.txt"}}, "commit")
        ids = [str(post(agentd, "/api/tasks", body)["id"]) for _ in range(tasks)]

        def count(state: str) -> int:
            return int(agentd.get("/api/status")["task_counts"][state])

        until(lambda: count("waiting_answer") == tasks, "all wait", within=300)
        before = {task: types(agentd, task) for task in ids}
        agentd.kill()
        began = time.perf_counter()
        agentd.start()
        until(lambda: not agentd.get("/api/status")["recovering"], "recovered", within=60)
        spent = time.perf_counter() - began
        until(
            lambda: all(row["live"] == "alive" for row in agentd.get("/api/status")["active"]),
            "all are alive",
        )
        lost = sum(bool(before[task] - types(agentd, task)) for task in ids)
        twice = sum(types(agentd, task)["permission_request"] != 1 for task in ids)
        for task in ids:
            (ticket,) = [
                t for t in agentd.get(f"/api/tasks/{task}/tickets") if t["state"] == "open"
            ]
            post(
                agentd,
                f"/api/tasks/{task}/reply",
                {"ticket_id": ticket["id"], "decision": "allow"},
            )
        until(lambda: count("waiting_review") == tasks, "all end", within=300)
        lost += sum(types(agentd, task)["completed"] == 0 for task in ids)
        twice += sum(types(agentd, task)["completed"] > 1 for task in ids)
    return [
        Row("recovery after kill -9", "s", spent, 2, note=f"{tasks} tasks in a turn"),
        Row("recovery: tasks that lost something", "tasks", lost, 0),
        Row("recovery: tasks with something twice", "tasks", twice, 0),
    ]


if __name__ == "__main__":
    main(measure)
