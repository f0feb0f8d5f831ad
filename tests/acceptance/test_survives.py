"""What survives what (docs/topics/survives.md): kills, restarts, lost links."""

from __future__ import annotations

import json
import pathlib
import signal
import sqlite3
import subprocess
import threading
import time
import uuid
from typing import Any

import psutil
import pytest
from tests.support.daemon import Agentd
from tests.support.plans import fake_plan
from tests.support.repository import Repository
from tests.support.waiting import until


def shims(agentd: Agentd) -> list[psutil.Process]:
    """The shims of that home: they run below no agentd of ours once it was killed."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
            if any(part.endswith("/shim.py") for part in line) and str(agentd.data) in " ".join(
                line
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def sequence(agentd: Agentd, task: str) -> list[str]:
    """The types of a task's events, without what only tells of progress."""
    return [
        e["type"] for e in agentd.events(task) if e["type"] not in ("progress", "queue_changed")
    ]


ASKING = fake_plan(
    {"write": {"path": "a.txt", "text": "a\n"}},
    {"run": {"command": "echo ran >>ran.txt"}},
    "commit",
)


@pytest.mark.parametrize("hard", [True, False], ids=["kill -9", "SIGTERM"])
def test_a_permission_waits_through_a_restart(
    agentd: Agentd, git_repo: Repository, *, hard: bool
) -> None:
    task = agentd.dispatch(git_repo, ASKING)
    before = agentd.ticket(task["id"])
    executors = [p.pid for shim in shims(agentd) for p in shim.children()]
    agentd.restart(hard=hard)
    assert agentd.ticket(task["id"]) == before
    assert [p.pid for shim in shims(agentd) for p in shim.children()] == executors
    agentd.reply(task["id"], "--approve").ok()
    agentd.wait_event(task["id"], "completed")
    assert sequence(agentd, task["id"]) == [
        "dispatched", "executor_started", "permission_allowed", "permission_request",
        "ticket_answered", "ticket_acknowledged", "completed",
    ]  # fmt: skip
    text = (pathlib.Path(task["work_dir"]) / "ran.txt").read_text()
    assert text == "ran\n", "run once"


def test_work_done_while_agentd_was_away_is_taken_over(
    agentd: Agentd, git_repo: Repository
) -> None:
    plan = fake_plan(
        {"run": {"command": "touch started", "ask": False}},
        {"wait_file": {"path": "go"}},
        {"say": {"text": "while you slept\n"}},
        "commit",
    )
    task = agentd.dispatch(git_repo, plan)
    tree = pathlib.Path(task["work_dir"])
    until((tree / "started").exists, "the executor's first step")
    agentd.kill()
    head = git_repo.head(task["branch"])
    (tree / "go").touch()
    until(lambda: git_repo.head(task["branch"]) != head, "the commit, with no agentd there")
    agentd.start()
    done = agentd.wait_event(task["id"], "completed")
    assert done["payload"]["commit"] == git_repo.head(task["branch"])
    frames = agentd.cli("attach", task["id"], "--all", "--no-follow", "--json").ok().lines()
    said = "".join(f["data"]["text"] for f in frames if f["kind"] == "text")
    assert said.count("while you slept") == 1


def test_wait_and_attach_go_on_after_a_restart(agentd: Agentd, git_repo: Repository) -> None:
    plan = fake_plan({"say": {"text": "first\n"}}, {"run": {"command": "true"}}, "commit")
    task = agentd.dispatch(git_repo, plan)["id"]
    with (
        agentd.cli.start("wait", task, "--follow", "--json") as follow,
        agentd.cli.start("attach", task, "--all", "--json") as attach,
    ):
        try:
            assert follow.stdout is not None
            assert attach.stdout is not None
            out, frames = follow.stdout.readline(), attach.stdout.readline()
            until(lambda: agentd.show(task)["task"]["watchers"], "both are there")
            agentd.restart(hard=True)
            agentd.reply(task, "--approve").ok()
            agentd.wait_event(task, "completed")
            agentd.cli("done", task).ok()
            out += follow.stdout.read()
            frames += attach.stdout.read()
            assert follow.wait(timeout=20) == 0, follow.stderr.read() if follow.stderr else ""
            assert attach.wait(timeout=20) == 0, attach.stderr.read() if attach.stderr else ""
        finally:
            follow.kill()
            attach.kill()
    types = [json.loads(line)["type"] for line in out.splitlines()]
    assert [t for t in types if t in ("permission_request", "completed", "archived")] == [
        "permission_request", "completed", "archived",
    ]  # fmt: skip
    numbers = [json.loads(line)["n"] for line in frames.splitlines()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "no gap, no double"


@pytest.mark.parametrize("victim", ["executor", "shim"])
def test_a_dead_executor_ends_the_turn_and_continue_goes_on(
    agentd: Agentd, git_repo: Repository, victim: str
) -> None:
    plan = fake_plan({"run": {"command": "true"}}, "commit")
    task = agentd.dispatch(git_repo, plan)["id"]
    agentd.ticket(task)
    (shim,) = shims(agentd)
    (shim if victim == "shim" else shim.children()[0]).kill()
    failed = agentd.wait_event(task, "turn_failed")
    assert failed["payload"]["code"] == "crash"
    assert agentd.tickets(task) == []
    assert agentd.state(task) == "waiting_review"
    agentd.cli("continue", task, '@@do commit {"path": "b.txt"}').ok()
    agentd.wait_event(task, "completed")


def test_a_task_in_review_can_be_continued_after_a_restart(
    agentd: Agentd, git_repo: Repository
) -> None:
    task = agentd.dispatch(git_repo, fake_plan("commit"))["id"]
    agentd.wait_event(task, "completed")
    agentd.restart(hard=True)
    agentd.cli("continue", task, '@@do commit {"path": "b.txt"}').ok()
    until(lambda: sequence(agentd, task).count("completed") == 2, "the second turn")


def test_after_a_reboot_the_turn_is_over_and_the_work_is_there(
    agentd: Agentd, git_repo: Repository
) -> None:
    """agentd, shim and executor gone at once, as when the machine restarts."""
    plan = fake_plan(
        {"write": {"path": "half.txt", "text": "half\n"}}, {"run": {"command": "true"}}
    )
    task = agentd.dispatch(git_repo, plan)
    agentd.ticket(task["id"])
    gone = [p for shim in shims(agentd) for p in (shim, *shim.children(recursive=True))]
    agentd.kill()
    for process in gone:
        process.kill()
    psutil.wait_procs(gone, timeout=10)
    agentd.start()
    failed = agentd.wait_event(task["id"], "turn_failed")
    assert failed["payload"]["code"] == "crash"
    assert agentd.tickets(task["id"]) == []
    assert (pathlib.Path(task["work_dir"]) / "half.txt").read_text() == "half\n"
    agentd.cli("continue", task["id"], '@@do commit {"path": "b.txt"}').ok()
    agentd.wait_event(task["id"], "completed")


def test_the_data_directory_can_be_moved(agentd: Agentd, git_repo: Repository) -> None:
    """docs/howto/move-data.md, with a worktree that was kept."""
    plan = fake_plan("commit", {"write": {"path": "left.txt", "text": "x\n"}})
    task = agentd.dispatch(git_repo, plan)
    agentd.wait_event(task["id"], "completed", "turn_failed")
    agentd.cli("done", task["id"]).ok()
    before = agentd.cli("diff", task["id"]).ok().out
    agentd.stop()
    moved = agentd.data.parent / "elsewhere"
    agentd.data.rename(moved)
    config = agentd.dir / "config.yaml"
    config.write_text(config.read_text().replace(f"datadir: {agentd.data}", f"datadir: {moved}"))
    agentd.data = moved
    agentd.start()
    assert agentd.cli("tasks", "--json").lines()[0]["id"] == task["id"]
    assert agentd.cli("diff", task["id"]).ok().out == before
    tree = next((moved / "worktrees").glob("[!.]*"))
    git_repo.git("worktree", "repair", str(tree))
    assert "left.txt" in git_repo.home.git("status", "--short", cwd=tree)
    again = agentd.dispatch(git_repo, fake_plan("commit"))["id"]
    agentd.wait_event(again, "completed")


def test_an_answer_given_in_the_moment_of_the_kill_counts_once(
    agentd: Agentd, git_repo: Repository
) -> None:
    """Killed right after the reply; the answer is recorded or the caller knows better."""
    task = agentd.dispatch(git_repo, ASKING)
    agentd.ticket(task["id"])
    reply = agentd.cli.start("reply", task["id"], "--approve", "--json")
    agentd.kill()
    agentd.start()
    out, err = reply.communicate(timeout=60)
    if reply.returncode != 0:
        assert "outcome_unknown" in out + err or "unreachable" in out + err
        if agentd.tickets(task["id"]):
            agentd.reply(task["id"], "--approve").ok()
    agentd.wait_event(task["id"], "completed")
    assert sequence(agentd, task["id"]).count("ticket_answered") == 1
    assert (pathlib.Path(task["work_dir"]) / "ran.txt").read_text() == "ran\n"


# -- nothing twice -----------------------------------------------------------------------


def test_a_dispatch_to_a_stopped_agentd_makes_one_task(
    agentd: Agentd, git_repo: Repository
) -> None:
    """It answers late; the client asks again under its key."""
    assert agentd.process is not None
    agentd.process.send_signal(signal.SIGSTOP)
    cli = agentd.cli.within(git_repo.path)
    sent = cli.start("dispatch", "--prompt", "@@do commit", "--json")
    timer = threading.Timer(2, agentd.process.send_signal, [signal.SIGCONT])
    timer.start()
    out, err = sent.communicate(timeout=60)
    timer.join()
    assert sent.returncode == 0, err
    agentd.wait_event(json.loads(out)["id"], "completed")
    assert len(agentd.cli("tasks", "--json").lines()) == 1


def test_the_same_key_is_the_same_task(agentd: Agentd, git_repo: Repository) -> None:
    key = {"Handoff-Request": str(uuid.uuid4())}
    body = {"prompt": "@@do commit", "start_dir": str(git_repo.path), "executor": "fake"}
    answers: list[tuple[int, Any]] = []

    def send() -> None:
        answers.append(agentd.call("POST", "/api/tasks", body, key))

    threads = [threading.Thread(target=send) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in answers} == {200}
    assert len({answer["id"] for _, answer in answers}) == 1
    agentd.restart(hard=True)
    assert agentd.call("POST", "/api/tasks", body, key)[1]["id"] == answers[0][1]["id"]
    assert len(agentd.cli("tasks", "--json").lines()) == 1


def test_done_twice_is_fine(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan("commit"))["id"]
    agentd.wait_event(task, "completed")
    agentd.cli("done", task, "--note", "good").ok()
    agentd.cli("done", task, "--note", "good").ok()
    assert sequence(agentd, task).count("archived") == 1


def test_followers_that_are_killed_again_and_again_miss_nothing(
    agentd: Agentd, git_repo: Repository
) -> None:
    """One cursor, many short lives: together they print each waking event, the one whose
    printing was cut at most twice."""
    steps = [{"run": {"command": f"true {n}"}} for n in range(20)]
    task = agentd.dispatch(git_repo, fake_plan(*steps, "commit"))["id"]
    stop = threading.Event()

    def approve() -> None:
        while not stop.is_set():
            for ticket in agentd.get(f"/api/tasks/{task}")["pending_tickets"]:
                answer = {"ticket_id": ticket["ref"], "decision": "allow"}
                agentd.call("POST", f"/api/tasks/{task}/reply", answer)

    approver = threading.Thread(target=approve)
    approver.start()
    printed: list[str] = []
    try:
        for round_ in range(8):
            follower = agentd.cli.start("wait", task, "--follow", "--json")
            try:
                out, _ = follower.communicate(timeout=0.15 + 0.05 * (round_ % 4))
            except subprocess.TimeoutExpired:
                follower.kill()
                out, _ = follower.communicate()
            printed += out.splitlines()
        agentd.wait_event(task, "completed", within=60)
    finally:
        stop.set()
        approver.join()
    agentd.cli("done", task).ok()
    last = agentd.cli("wait", task, "--follow", "--json", timeout=30).ok()
    printed += last.out.splitlines()
    seen = [json.loads(line) for line in printed if line.endswith("}")]
    real = [e["seq"] for e in agentd.events(task) if e["wakes"]]
    covered = {s["seq"] for s in seen if "seq" in s}
    for summary in (s for s in seen if s["type"] == "backlog_summary"):
        covered |= {n for n in real if summary["from_seq"] < n <= summary["to_seq"]}
    assert covered >= set(real)
    assert seen[-1]["type"] in ("archived", "backlog_summary")


# -- one daemon --------------------------------------------------------------------------


def test_a_second_agentd_on_the_same_data_is_refused(agentd: Agentd) -> None:
    ran = agentd.cli("agentd", timeout=20)
    assert ran.code == 3
    assert str(agentd.process.pid if agentd.process else "") in ran.err
    assert agentd.cli("status").code == 0


def test_the_lock_of_a_killed_agentd_is_no_obstacle(agentd: Agentd) -> None:
    for _ in range(3):
        agentd.restart(hard=True)
    assert agentd.cli("status").code == 0


def test_without_agentd_each_command_says_what_to_do(agentd: Agentd) -> None:
    agentd.kill()
    for command in (
        ["status"],
        ["tasks"],
        ["show", "abcd1234"],
        ["reply", "abcd1234", "--approve"],
    ):
        ran = agentd.cli(*command, timeout=20)
        assert ran.code == 5, command
        assert "handoff agentd --detach" in ran.err
        assert "Traceback" not in ran.err


def test_a_newer_database_is_refused_with_a_remedy(agentd: Agentd) -> None:
    agentd.stop()
    (database,) = agentd.data.glob("*.db")
    conn = sqlite3.connect(database)
    conn.execute("pragma user_version = 99999")
    conn.close()
    ran = agentd.cli("agentd", timeout=20)
    assert ran.code == 1
    assert "schema 99999" in ran.err
    assert "Traceback" not in ran.err


def test_a_kill_in_the_middle_of_many_tasks_loses_none(
    agentd: Agentd, git_repo: Repository
) -> None:
    plan = fake_plan({"run": {"command": "true"}}, "commit")
    tasks = [agentd.dispatch(git_repo, plan, "--detach")["id"] for _ in range(6)]
    agentd.restart(hard=True)
    assert {t["id"] for t in agentd.cli("tasks", "--json").lines()} == set(tasks)
    for task in tasks:
        agentd.ticket(task, within=30)
        agentd.reply(task, "--approve").ok()
        agentd.wait_event(task, "completed", within=30)


def test_nothing_polls_while_nothing_happens(agentd: Agentd, git_repo: Repository) -> None:
    """A task that waits costs no process and next to no time."""
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    agentd.ticket(task)
    assert agentd.process is not None
    daemon = psutil.Process(agentd.process.pid)
    (shim,) = shims(agentd)
    before = [sum(p.cpu_times()[:2]) for p in (daemon, shim)]
    children = len(daemon.children(recursive=True))
    time.sleep(2)  # the span that is measured
    used = [sum(p.cpu_times()[:2]) - b for p, b in zip((daemon, shim), before, strict=True)]
    assert used[0] < 0.3
    assert used[1] < 0.1
    assert len(daemon.children(recursive=True)) == children
