"""Processes: what a task starts is counted while it lives and gone when it is over."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import uuid
from collections.abc import Iterator

import psutil
import pytest
from tests.support.daemon import Agentd
from tests.support.plans import fake_plan
from tests.support.repository import Repository
from tests.support.waiting import until

from handoff.process import facts, tally


def with_argument(seconds: int) -> list[psutil.Process]:
    """Processes with that unlikely number among their arguments."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(seconds) in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def seconds() -> int:
    """A number that nothing else on the machine sleeps for."""
    return 100_000_000 + uuid.uuid4().int % 900_000_000


@pytest.fixture
def look_alike(seconds: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that looks like the task's."""
    process = subprocess.Popen(["sleep", str(seconds)], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("how", ["nohup", "setsid", "double", "loop"])
@pytest.mark.parametrize("end", ["done", "stop", "executor killed", "shim killed", "agentd killed"])
def test_nothing_outlives_its_task(
    agentd: Agentd,
    git_repo: Repository,
    look_alike: subprocess.Popen[bytes],
    seconds: int,
    how: str,
    end: str,
) -> None:
    plan = fake_plan(
        {"leak": {"how": how, "seconds": seconds}}, "commit", {"run": {"command": "true"}}
    )
    task = agentd.dispatch(git_repo, plan)["id"]
    agentd.ticket(task)

    def leaked() -> list[psutil.Process]:
        return [p for p in with_argument(seconds) if p.pid != look_alike.pid]

    until(leaked, "the leaked process")
    counted = agentd.cli("footprint", "--json").ok()
    assert task in counted.out
    assert any(str(p.pid) in counted.out for p in leaked()), "counted while it lives"
    shim = next(
        parent
        for parent in psutil.process_iter()
        if any(a.endswith("/shim.py") for a in _words(parent))
        and str(agentd.data) in str(_words(parent))
    )
    if end == "done":
        agentd.reply(task, "--approve").ok()
        agentd.wait_event(task, "completed", "turn_failed")
        agentd.cli("done", task).ok()
    elif end == "stop":
        agentd.cli("stop", task).ok()
    elif end == "executor killed":
        next(c for c in shim.children() if "fake" in str(_words(c))).kill()
        agentd.wait_event(task, "turn_failed")
    elif end == "shim killed":
        until(lambda: _in_roster(agentd, leaked()), "the shim has noted it")
        shim.kill()
        agentd.wait_event(task, "turn_failed")
    else:
        agentd.restart(hard=True)
        agentd.cli("stop", task).ok()
    until(lambda: not leaked(), "nothing is left", within=10)
    assert look_alike.poll() is None, "what merely looks alike lives on"


def _in_roster(agentd: Agentd, processes: list[psutil.Process]) -> bool:
    """A shim notes its tree at most once a second; a process that emptied its environment
    is known by that alone once the shim is gone."""
    noted = {
        pid
        for path in agentd.data.rglob("roster*")
        for pid, _ in tally.read_roster(str(path.parent), facts.boot_id())
    }
    return {p.pid for p in processes} <= noted


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_many_short_tasks_leave_no_zombie(agentd: Agentd, git_repo: Repository) -> None:
    for _ in range(8):
        task = agentd.dispatch(git_repo, fake_plan({"crash": {"code": 1}}))["id"]
        agentd.wait_event(task, "turn_failed", "failed")
        agentd.cli("stop", task).ok()
    assert agentd.process is not None
    children = psutil.Process(agentd.process.pid).children(recursive=True)
    assert not [c for c in children if c.status() == psutil.STATUS_ZOMBIE]


def test_run_keeps_streams_codes_and_words(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    agentd.ticket(task)
    both = agentd.cli("run", task, "echo out; echo err >&2; exit 7")
    assert (both.code, both.out, both.err) == (7, "out\n", "err\n")
    words = ["a b", "$HOME", "'\"", "*", "", "ä\n-x"]
    show = [sys.executable, "-c", "import sys; print(sys.argv[1:])", *words]
    assert agentd.cli("run", task, "--", *show).ok().out == f"{words}\n"


def test_run_has_a_limit_and_leaves_nothing(
    agentd: Agentd, git_repo: Repository, seconds: int
) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    agentd.ticket(task)
    ran = agentd.cli("run", "--timeout", "1s", task, f"setsid sleep {seconds} & sleep {seconds}")
    assert ran.code == 124
    until(lambda: not with_argument(seconds), "nothing of it is left", within=10)


def test_run_with_endless_output_keeps_agentd_small(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    agentd.ticket(task)
    assert agentd.process is not None
    daemon = psutil.Process(agentd.process.pid)
    before = daemon.memory_info().rss
    read = 0
    with agentd.cli.start("run", "--timeout", "3s", task, "yes") as process:
        assert process.stdout is not None
        while chunk := process.stdout.read(1 << 20):
            read += len(chunk)
    assert process.returncode == 124
    assert read > 1 << 20
    assert daemon.memory_info().rss - before < 64 << 20


def test_a_task_whose_executor_is_missing_fails_with_its_name(
    agentd: Agentd, git_repo: Repository
) -> None:
    cli = agentd.cli.within(git_repo.path)
    ran = cli("dispatch", "--prompt", "x", "--executor", "opencode")
    assert ran.code == 1
    assert "opencode" in ran.err
    assert "handoff doctor" in ran.err
    unknown = cli("dispatch", "--prompt", "x", "--executor", "nobody")
    assert unknown.code in (2, 4)
    assert "nobody" in unknown.err
    assert agentd.cli("tasks", "--json").out == ""
    assert git_repo.git("worktree", "list").count("\n") == 0
    assert git_repo.git("branch", "--list", "handoff*") == ""


def test_a_program_whose_interpreter_is_missing_is_told_so(
    agentd: Agentd, git_repo: Repository
) -> None:
    program = git_repo.home.path / "my-agent"
    program.write_text("#!/usr/bin/env case-node\n")
    program.chmod(0o755)
    config = agentd.dir / "config.yaml"
    config.write_text(config.read_text() + f"agents:\n  mine:\n    command: [{program}]\n")
    agentd.restart()
    cli = agentd.cli.within(git_repo.path)
    ran = cli("dispatch", "--prompt", "x", "--executor", "mine")
    assert ran.code == 1
    assert "case-node" in ran.err
    assert "log" not in ran.err.lower()


def test_the_worktree_is_where_the_executor_stands(agentd: Agentd, git_repo: Repository) -> None:
    (git_repo.home.path / ".bashrc").write_text("cd /\necho loud\n")
    plan = fake_plan({"run": {"command": "pwd >where; umask", "ask": False}}, "commit")
    task = agentd.dispatch(git_repo, plan)
    agentd.wait_event(task["id"], "completed")
    assert (pathlib.Path(task["work_dir"]) / "where").read_text().strip() == task["work_dir"]
