"""agentd killed at every commit and every effect of a task's life: the end is the same.

One uncrashed run names every place that is reached. Then, for each of them, a fresh
machine is killed there, started again, and the coordinator goes on; what is left must equal
the uncrashed run: the same events, tickets and commits, and each prompt sent once.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import threading
import time
from collections import Counter
from typing import Any

import pytest
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import Home, make_home
from tests.support.repository import make_repository

PLAN = """\
@@do write {"path": "made.txt", "text": "made\\n"}
@@do run {"command": "echo ran >> ran.txt"}
@@do ask {"question": "Which color?", "options": ["red", "blue"]}
@@do commit
"""
MORE = '@@do write {"path": "more.txt", "text": "more\\n"}\n@@do commit\n'

#: events whose number may differ: they tell of the crash itself, or of progress
LOOSE = {"progress", "queue_changed"}
#: crash points tried in the usual run; all of them with HANDOFF_FAULTS=all
STRIDE = 1 if os.environ.get("HANDOFF_FAULTS") == "all" else 8


class Coordinator:
    """Drives one task to its end, whatever happens to the daemon meanwhile."""

    def __init__(self, home: Home, agentd: Agentd) -> None:
        self.home = home
        self.agentd = agentd
        self.repository = make_repository(home)
        self.restarts = 0
        self.task = ""

        self.over = threading.Event()
        self.nurse = threading.Thread(target=self.keep_alive, daemon=True)

    def keep_alive(self) -> None:
        """As a service manager: a daemon that has died is started again, without the
        crash point."""
        while not self.over.wait(0.02):
            process = self.agentd.process
            if process is not None and process.poll() is not None:
                self.restarts += 1
                self.agentd.start(wait=False)

    def cli(self, *args: str, stdin: str = "") -> Any:
        """A command, again if the daemon was not there at all."""
        deadline = time.monotonic() + 20
        while True:
            ran = self.agentd.cli.within(self.repository.path)(*args, stdin=stdin)
            if ran.code != 5 or time.monotonic() > deadline:
                return ran
            time.sleep(0.05)

    def run(self) -> None:
        ran = self.cli("dispatch", "--json", "--executor", "fake", "--prompt", "-", stdin=PLAN)
        if ran.code != 0:
            self.task = self.only_task()
        else:
            self.task = ran.json()["id"]
        self.rest()
        self.until_ok("continue", self.task, MORE, when="waiting_review")
        self.rest()
        self.until_ok("done", self.task, "--note", "fine", when="waiting_review")
        self.settle()

    def only_task(self) -> str:
        tasks = [json.loads(line) for line in self.cli("tasks", "--json").out.splitlines()]
        assert len(tasks) == 1, tasks
        return str(tasks[0]["id"])

    def show(self) -> dict[str, Any]:
        return dict(self.cli("show", self.task, "--json").json())

    def until_ok(self, *args: str, when: str) -> None:
        """A command that may have been carried out just before its answer was lost."""
        if self.show()["task"]["state"] == when:
            ran = self.cli(*args)
            if ran.code != 0:
                assert self.show()["task"]["state"] != when, ran

    def rest(self) -> None:
        """Answer what is asked until the task rests."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            shown = self.show()
            if shown["task"]["state"] in ("waiting_review", "completed", "failed"):
                return
            for ticket in shown["pending_tickets"]:
                answer = ["--approve"] if ticket["kind"] == "gate" else ["--answer", "blue"]
                self.cli("reply", self.task, "--ticket", ticket["ref"], *answer)
            time.sleep(0.02)
        raise AssertionError(f"the task does not come to rest: {self.show()}")

    def settle(self) -> None:
        """Wait until nothing is due any more."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            shown = self.show()
            if shown["task"]["workspace_state"] == "gone":
                return
            time.sleep(0.02)
        raise AssertionError(f"the worktree was not cleaned up: {self.show()}")

    def outcome(self) -> dict[str, Any]:
        events = self.agentd.get(f"/api/tasks/{self.task}/events?limit=1000")
        tickets = self.agentd.get(f"/api/tasks/{self.task}/tickets")
        frames = self.frames()
        branch = self.show()["task"]["branch"]
        git = ["git", "-C", str(self.repository.path)]
        log = subprocess.run(
            [*git, "log", "--format=%s", "--reverse", f"main..{branch}"],
            env=self.home.env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        ran = subprocess.run(
            [*git, "show", f"{branch}:ran.txt"],
            env=self.home.env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return {
            "state": self.show()["task"]["state"],
            "events": Counter(e["type"] for e in events if e["type"] not in LOOSE),
            "order": [e["type"] for e in events if e["wakes"]],
            "tickets": [(t["kind"], t["decision"], t["state"] == "void") for t in tickets],
            "prompts": [f["data"]["text"] for f in frames if f["kind"] == "prompt"],
            "said": "".join(f["data"]["text"] for f in frames if f["kind"] == "text").count(
                "summary"
            ),
            "commits": log,
            "ran": ran,
        }

    def frames(self) -> list[dict[str, Any]]:
        status, text = self.agentd.call("GET", f"/api/tasks/{self.task}/frames")
        assert status == 200
        lines = [json.loads(line) for line in str(text).splitlines()]
        return [line["frame"] for line in lines if "frame" in line]


def play(env: dict[str, str]) -> tuple[dict[str, Any], int]:
    with make_home() as home, run_agentd(home, start=False) as agentd:
        agentd.start(env=env, wait="HANDOFF_CRASH_AT" not in env)
        coordinator = Coordinator(home, agentd)
        coordinator.nurse.start()
        try:
            coordinator.run()
            return coordinator.outcome(), coordinator.restarts
        finally:
            coordinator.over.set()
            coordinator.nurse.join()


@pytest.fixture(scope="module")
def uncrashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Counter[str]]:
    log = tmp_path_factory.mktemp("points") / "reached"
    outcome, restarts = play({"HANDOFF_CRASH_LOG": str(log)})
    assert restarts == 0
    return outcome, Counter(pathlib.Path(log).read_text().split())


def test_the_uncrashed_run_is_as_it_should_be(
    uncrashed: tuple[dict[str, Any], Counter[str]],
) -> None:
    outcome, reached = uncrashed
    assert outcome["state"] == "completed"
    assert outcome["order"] == [
        "permission_request",
        "question",
        "completed",
        "completed",
        "archived",
    ]
    assert outcome["ran"] == "ran\n"
    assert len(outcome["commits"]) == 2
    for name in ("prepare", "start_run", "verify", "end_run", "cleanup"):
        assert reached[f"effect.before.{name}"] >= 1


KINDS = [
    "store.before_commit",
    "store.after_commit",
    "input.before_send",
    "input.sent",
    "effect.before.prepare",
    "prepare.created",
    "effect.before.start_run",
    "start_run.started",
    "effect.before.verify",
    "verify.looked",
    "effect.before.end_run",
    "end_run.ended",
    "effect.before.cleanup",
    "cleanup.cleaned",
]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_there_changes_nothing(
    uncrashed: tuple[dict[str, Any], Counter[str]], kind: str
) -> None:
    expected, reached = uncrashed
    assert reached[kind], f"{kind} was not reached: {sorted(reached)}"
    hit = 0
    for nth in range(1, reached[kind] + 1, STRIDE if reached[kind] > 6 else 1):
        outcome, restarts = play({"HANDOFF_CRASH_AT": f"{kind}:{nth}"})
        # Commits that wait are made as one: a run may have fewer of them than another.
        assert restarts or kind.startswith("store."), f"{kind}:{nth} was not reached"
        hit += bool(restarts)
        assert outcome == expected, f"{kind}:{nth}"
    assert hit, kind
