"""The command line while things go wrong around it."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.console import HANDOFF, Cli
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import Home, clean_environment
from tests.support.plans import fake_plan
from tests.support.repository import Repository, make_repository
from tests.support.waiting import until


def frozen(agentd: Agentd) -> None:
    assert agentd.process is not None
    os.kill(agentd.process.pid, signal.SIGSTOP)


def thawed(agentd: Agentd) -> None:
    assert agentd.process is not None
    os.kill(agentd.process.pid, signal.SIGCONT)


# -- nothing twice -----------------------------------------------------------------------


def test_a_dispatch_given_up_by_its_caller_is_made_at_most_once(
    agentd: Agentd, git_repo: Repository
) -> None:
    frozen(agentd)
    cli = agentd.cli.within(git_repo.path)
    impatient = cli.start("dispatch", "--prompt", fake_plan({"note": {}}))
    with pytest.raises(subprocess.TimeoutExpired):
        impatient.wait(1)
    impatient.kill()
    impatient.communicate()
    patient = cli.start("dispatch", "--prompt", fake_plan({"note": {}}))
    with pytest.raises(subprocess.TimeoutExpired):
        patient.wait(1)
    thawed(agentd)
    out, err = patient.communicate(timeout=20)
    assert patient.returncode == 0, err
    mine = json.loads(out)["id"]
    agentd.wait_state(mine, "waiting_review", "waiting_answer")
    tasks = [task["id"] for task in agentd.cli("tasks").ok().lines()]
    assert mine in tasks
    assert len(tasks) <= 2


@pytest.mark.parametrize("after", [0.0, 0.01, 0.03, 0.06])
def test_agentd_killed_between_accept_and_reply_and_restarted_at_once(
    agentd: Agentd, git_repo: Repository, after: float
) -> None:
    sent = agentd.cli.within(git_repo.path).start("dispatch", "--prompt", fake_plan({"note": {}}))
    threading.Event().wait(0.05 + after)  # where in the call it hits is left to chance
    agentd.restart(hard=True)
    out, err = sent.communicate(timeout=30)
    tasks = agentd.cli("tasks").ok().lines()
    if sent.returncode == 0:
        assert [task["id"] for task in tasks] == [json.loads(out)["id"]]
    else:
        assert sent.returncode in (1, 5), err
        assert len(tasks) <= 1


# -- nothing lost ------------------------------------------------------------------------


def test_followers_killed_at_any_moment_leave_no_gap(
    agentd: Agentd, git_repo: Repository, tmp_path: Path
) -> None:
    total = 25
    steps: list[dict[str, object]] = [{"run": {"command": f"true {n}"}} for n in range(total)]
    task = agentd.dispatch(git_repo, fake_plan(*steps))["id"]
    stop = threading.Event()

    def approve() -> None:
        while not stop.is_set():
            for ticket in agentd.tickets(task):
                agentd.call("POST", f"/api/tasks/{task}/reply", {
                    "ticket_id": ticket["id"], "decision": "allow"})  # fmt: skip
            stop.wait(0.01)

    approver = threading.Thread(target=approve)
    chance = random.Random(7)
    outputs: list[Path] = []

    def follow() -> subprocess.Popen[bytes]:
        outputs.append(tmp_path / f"w{len(outputs)}")
        with outputs[-1].open("wb") as out:
            return subprocess.Popen(
                [HANDOFF, "wait", task, "--follow"], stdout=out, env=agentd.home.env
            )

    approver.start()
    try:
        while agentd.state(task) in ("running", "waiting_answer") and len(outputs) < 12:
            follower = follow()
            threading.Event().wait(chance.uniform(0.02, 0.3))
            follower.kill()
            follower.wait()
        last = follow()
        agentd.wait_state(task, "running", "waiting_answer", "waiting_review")
        until(lambda: agentd.state(task) == "waiting_review", "the turn rests", within=15)
    finally:
        stop.set()
        approver.join()
    agentd.cli("done", task).ok()
    assert last.wait(15) == 0

    told: list[int] = []
    for path in outputs:
        for raw in path.read_bytes().splitlines(keepends=True):
            if raw.endswith(b"\n"):  # the line that the kill cut comes again, whole
                line = json.loads(raw)
                told += [line["seq"]] if "seq" in line else []
    waking = [event["seq"] for event in agentd.events(task) if event["wakes"]]
    assert sorted(set(told)) == waking
    assert told == sorted(told)
    assert len(told) - len(waking) <= len(outputs)
    kinds = [json.loads(raw)["type"] for raw in outputs[-1].read_bytes().splitlines()]
    assert "archived" in kinds


def test_a_follower_outlives_restarts(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    follower = agentd.cli.start("wait", task, "--follow")
    until(lambda: agentd.show(task)["task"]["watchers"] == 1, "somebody follows")
    agentd.restart(hard=True)
    agentd.cli("reply", task, "--approve").ok()
    agentd.restart()
    agentd.cli("wait", task, "--until-done", "--timeout", "20s")
    agentd.cli("done", task).ok()
    out, err = follower.communicate(timeout=30)
    assert follower.returncode == 0, err
    kinds = [json.loads(line)["type"] for line in out.splitlines()]
    assert kinds[0] == "permission_request"
    assert kinds[-1] == "archived"
    assert kinds.count("archived") == 1
    assert "connection lost" in err


def test_a_wait_on_a_full_disk_still_tells_and_says_so(
    agentd: Agentd, git_repo: Repository
) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    cursors = agentd.dir / "cursors"
    cursors.write_text("no folder can be made here")
    elsewhere = agentd.home.path / "sealed"
    elsewhere.mkdir()
    (elsewhere / ".handoff").write_text("nor here")
    told = agentd.cli.within(elsewhere)("wait", task).ok()
    assert told.json()["type"] == "permission_request"
    assert "can't be written" in told.err


# -- proxies -----------------------------------------------------------------------------


@pytest.fixture
def trap() -> Iterator[tuple[str, list[Any]]]:
    """A listener that must never be called."""
    called: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    called.append(listener.accept())
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", called
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def test_nothing_of_ours_goes_to_a_proxy(
    agentd: Agentd, git_repo: Repository, trap: tuple[str, list[Any]]
) -> None:
    proxy, called = trap
    env = {
        name: proxy
        for key in ("http_proxy", "https_proxy", "all_proxy")
        for name in (key, key.upper())
    }
    url = str(agentd.endpoint()["url"])
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    for argv in (
        ("tasks",),
        ("tasks", "--agentd", url),
        ("status", "--agentd", url),
        ("wait", task, "--agentd", url),
        ("doctor",),
        ("attach", task, "--no-follow", "--agentd", url),
    ):
        done = agentd.cli(*argv, env=env)
        assert done.code in (0, 1), done.err
    assert called == []


# -- paths -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["d" * 120, "d" * 150 + " ä", 'it\'s a "home" $HOME'])
def test_long_and_odd_homes(isolated_home: Home, name: str) -> None:
    path = isolated_home.path / name
    path.mkdir()
    (path / ".gitconfig").write_text((isolated_home.path / ".gitconfig").read_text())
    home = Home(path, clean_environment(path))
    cli = Cli(home)
    with run_agentd(home) as agentd:
        repository = make_repository(home, "it's \"a\nrepo")
        task = agentd.dispatch(repository, fake_plan({"commit": "x"}))["id"]
        done = cli("wait", task, "--until-done", "--timeout", "20s").ok().lines()[-1]
        assert done["type"] == "completed"
        assert cli("status").ok().out
        assert cli("diff", task).ok().out
        fetched = cli("show", task).ok().json()
        assert fetched["task"]["repo_path"] == str(repository.path)
        assert cli("done", task).code == 0


def test_remedies_work_as_printed_with_an_odd_config_path(
    agentd: Agentd, git_repo: Repository
) -> None:
    odd = agentd.home.path / "it's here"
    odd.symlink_to(agentd.dir)
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    refused = agentd.cli("--config", str(odd / "config.yaml"), "done", task)
    assert refused.code == 3
    remedy = refused.err.partition("  try: ")[2].strip()
    shell = f'PATH="{Path(HANDOFF).parent}:$PATH"; {remedy} --help >/dev/null && {remedy} --json'
    done = subprocess.run(
        ["bash", "-c", shell], env=agentd.home.env, capture_output=True, text=True, timeout=20
    )
    assert done.returncode in (0, 2), done.stderr
    assert "agentd has not been started" not in done.stderr


# -- start -------------------------------------------------------------------------------


def test_detach_starts_once_and_tells_where(cli: Cli) -> None:
    (cli.home.path / ".handoff").mkdir(mode=0o700)
    config = cli.home.path / ".handoff" / "config.yaml"
    config.write_text("listen: 127.0.0.1:0\ntoken: aaaabbbbccccdddd\nexecutor: {default: fake}\n")
    config.chmod(0o600)
    first = cli("agentd", "--detach").ok()
    status = cli("status", "--json").ok().json()["agentd"]
    try:
        assert f"pid {status['pid']}" in first.out
        assert status["socket"] in first.out
        again = cli("agentd", "--detach").ok()
        assert "runs already" in again.out
        assert cli("status", "--json").ok().json()["agentd"]["pid"] == status["pid"]
        second = cli("agentd")
        assert second.code == 3, second.err
    finally:
        os.kill(status["pid"], signal.SIGTERM)
        until(lambda: cli("status").code == 5, "it has ended")


def test_a_broken_configuration_is_one_line(cli: Cli) -> None:
    folder = cli.home.path / ".handoff"
    folder.mkdir(mode=0o700)
    (folder / "config.yaml").write_text("listen: 127.0.0.1:0\nstalltimeout: 5 bananas\n")
    for argv in (("agentd",), ("agentd", "--detach")):
        done = cli(*argv)
        assert done.code == 2
        assert "line 2: 'stalltimeout'" in done.err
        assert "Traceback" not in done.err
    doctor = cli("doctor")
    assert doctor.code == 1
    assert "line 2: 'stalltimeout'" in doctor.out


def test_a_default_executor_that_does_not_exist_is_a_finding(cli: Cli) -> None:
    folder = cli.home.path / ".handoff"
    folder.mkdir(mode=0o700)
    (folder / "config.yaml").write_text("listen: off\nexecutor: {default: nobody}\n")
    doctor = cli("doctor", "--json")
    assert doctor.code == 1
    bad = [one for one in doctor.json()["checks"] if one["level"] == "bad"]
    assert [one["name"] for one in bad] == ["nobody (default)"]
    assert "fake" in bad[0]["text"]


def test_a_demo_without_git_says_what_to_install(cli: Cli) -> None:
    (cli.home.path / "bin").mkdir()
    done = cli("demo", "--yes", env={"PATH": str(cli.home.path / "bin")})
    assert done.code == 1
    assert "there is no git on PATH\n  try: install git" in done.err


def test_a_daemon_that_cant_start_says_why(cli: Cli) -> None:
    folder = cli.home.path / ".handoff"
    folder.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = folder / "config.yaml"
        config.write_text(f"listen: 127.0.0.1:{port}\ntoken: aaaabbbb\n")
        config.chmod(0o600)
        done = cli("agentd", "--detach")
    assert done.code == 3
    assert str(port) in done.err
    assert "Traceback" not in done.err
    assert cli("status").code == 5
