"""agentd killed over and over while a task runs and asks: nothing is lost, nothing twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from typing import Any

import pytest
from tests.support.console import HANDOFF
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import make_home
from tests.support.repository import make_repository
from tests.support.waiting import until

ROUNDS = 100
#: commands that the executor asks about, each different and each run for real
ASKS = 120


class Approver(threading.Thread):
    """Approves whatever waits, through restarts."""

    def __init__(self, agentd: Agentd, task: str) -> None:
        super().__init__(daemon=True)
        self.agentd = agentd
        self.task = task
        self.over = threading.Event()
        self.answered: Counter[str] = Counter()

    def run(self) -> None:
        while not self.over.wait(0.01):
            try:
                for ticket in self.agentd.tickets(self.task):
                    reply = {"ticket_id": ticket["ref"], "decision": "allow"}
                    path = f"/api/tasks/{self.task}/reply"
                    status, _ = self.agentd.call("POST", path, reply)
                    if status == 200:
                        self.answered[ticket["ref"]] += 1
            except (OSError, AssertionError, json.JSONDecodeError, KeyError, ValueError):
                continue  # the daemon is down at the moment
            except Exception:  # http.client has many ways to say that the link was cut
                continue


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_hundred_kills_during_a_running_asking_task() -> None:
    seed = int(os.environ.get("HANDOFF_SEED", "0")) or random.randrange(1 << 30)
    chance = random.Random(seed)
    plan = "".join(f'@@do run {{"command": "echo {n} >> ran.txt"}}\n' for n in range(1, ASKS + 1))
    with make_home() as home, run_agentd(home) as agentd:
        repository = make_repository(home)
        task = str(agentd.dispatch(repository, plan + "@@do commit\n")["id"])
        follower = follow(agentd, task)
        until(lambda: agentd.show(task)["task"]["watchers"] == 1, "the follower follows")
        approver = Approver(agentd, task)
        approver.start()
        for _ in range(ROUNDS):
            time.sleep(chance.uniform(0.0, 0.15))
            agentd.kill()
            # Half of the time the next kill falls into the start-up itself.
            agentd.start(wait=chance.random() < 0.5)
        agentd.wait_ready()
        shown = wait_rest(agentd, task)
        approver.over.set()
        approver.join()
        assert shown["task"]["state"] == "waiting_review", f"seed {seed}: {shown['task']}"
        check(agentd, task, repository.path, home.env, seed)
        assert agentd.cli("done", task).code == 0
        out, _ = follower.communicate(timeout=30)
        said = (home.path / "follower.err").read_text()
        assert follower.returncode == 0, f"seed {seed}: {said}"
        check_follower(agentd, task, out, seed)


def follow(agentd: Agentd, task: str) -> subprocess.Popen[str]:
    """``handoff wait --follow`` in the background, for the whole life of the task."""
    with (agentd.home.path / "follower.err").open("w") as errors:
        return subprocess.Popen(
            [HANDOFF, "wait", task, "--follow", "--json"],
            env=agentd.home.env,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def wait_rest(agentd: Agentd, task: str) -> dict[str, Any]:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        shown = agentd.show(task)
        if shown["task"]["state"] in ("waiting_review", "failed"):
            return shown
        time.sleep(0.1)
    raise AssertionError(f"not at rest: {agentd.show(task)}")


def check(agentd: Agentd, task: str, repository: object, env: dict[str, str], seed: int) -> None:
    events = agentd.events(task)
    kinds = Counter(e["type"] for e in events)
    asked = [e["payload"]["ref"] for e in events if e["type"] == "permission_request"]
    assert len(asked) == len(set(asked)) == ASKS, f"seed {seed}: {len(asked)} asked"
    assert kinds["ticket_answered"] == ASKS, f"seed {seed}: {kinds}"
    assert kinds["completed"] == 1, f"seed {seed}: {kinds}"
    tickets = agentd.get(f"/api/tasks/{task}/tickets")
    assert {t["state"] for t in tickets} == {"acknowledged"}, f"seed {seed}"
    branch = agentd.show(task)["task"]["branch"]
    git = ["git", "-C", str(repository), "show", f"{branch}:ran.txt"]
    ran = subprocess.run(git, env=env, capture_output=True, text=True, check=True).stdout
    assert ran.split() == [str(n) for n in range(1, ASKS + 1)], f"seed {seed}"


def check_follower(agentd: Agentd, task: str, out: str, seed: int) -> None:
    """It saw every waking event once, alone or within a summary, and the end."""
    lines = [json.loads(line) for line in out.splitlines()]
    seqs = [line["seq"] for line in lines if "seq" in line]
    assert len(seqs) == len(set(seqs)), f"seed {seed}: an event was printed twice"
    assert seqs == sorted(seqs), f"seed {seed}"
    waking = [e["seq"] for e in agentd.events(task) if e["wakes"]]
    summed = [
        (line["from_seq"], line["to_seq"]) for line in lines if line["type"] == "backlog_summary"
    ]
    missing = [
        seq
        for seq in waking
        if seq not in seqs and not any(low < seq <= high for low, high in summed)
    ]
    assert not missing, f"seed {seed}: {missing}"
    assert lines[-1]["type"] == "archived", f"seed {seed}: {lines[-1]}"
