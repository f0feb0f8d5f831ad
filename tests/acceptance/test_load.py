"""Long silence, slow readers, large records: nobody else notices."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import psutil
import pytest
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import Home
from tests.support.plans import fake_plan
from tests.support.repository import Repository, make_repository
from tests.support.waiting import until

MIB = 1 << 20


def memory(agentd: Agentd) -> int:
    assert agentd.process is not None
    return int(psutil.Process(agentd.process.pid).memory_info().rss)


def open_stream(agentd: Agentd, path: str) -> socket.socket:
    """A stream whose answer nobody reads."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(agentd.socket_path)
    link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return link


def test_readers_that_do_not_read_cost_nobody_anything(
    agentd: Agentd, git_repo: Repository
) -> None:
    """What one holds is bounded in bytes: a few MiB, not a page of large rows."""
    plan = fake_plan({"run": {"command": "true"}}, *[{"big": {"mib": 4}}] * 3, "commit")

    def play(readers: int) -> int:
        task = agentd.dispatch(git_repo, plan)["id"]
        agentd.ticket(task)
        path = f"/api/tasks/{task}/frames?from=0&follow=1"
        links = [open_stream(agentd, path) for _ in range(readers)]
        try:
            agentd.reply(task, "--approve").ok()
            agentd.wait_event(task, "completed", within=40)
            began = time.monotonic()
            agentd.get("/api/status")
            assert time.monotonic() - began < 2
            return memory(agentd)
        finally:
            for link in links:
                link.close()

    alone = play(0)
    assert play(8) - alone < 8 * 4 * MIB


def test_the_tail_of_a_long_record_is_read_by_itself(agentd: Agentd, git_repo: Repository) -> None:
    plan = fake_plan(*[{"big": {"mib": 4}}] * 3, {"say": {"text": "the last words\n"}}, "commit")
    task = agentd.dispatch(git_repo, plan)["id"]
    agentd.wait_event(task, "completed", within=40)
    agentd.restart()
    before = memory(agentd)
    status, text = agentd.call("GET", f"/api/tasks/{task}/frames?tail=6")
    assert status == 200
    frames = [json.loads(line) for line in str(text).splitlines()]
    assert "the last words" in json.dumps(frames)
    assert len(frames) <= 7
    assert memory(agentd) - before < 8 * MIB


@pytest.fixture
def impatient(isolated_home: Home) -> Iterator[Agentd]:
    """An agentd that calls one second of silence a stall."""
    with run_agentd(isolated_home, "stalltimeout: 1s\nstallmodel: 1s\n") as agentd:
        yield agentd


def stalls(agentd: Agentd, task: str) -> list[dict[str, object]]:
    return [e["payload"] for e in agentd.events(task) if e["type"] == "stalled"]


def test_silence_is_told_again_and_says_what_runs(impatient: Agentd) -> None:
    repository = make_repository(impatient.home)
    plan = fake_plan({"run": {"command": "exec sleep 86399", "ask": False}})
    task = impatient.dispatch(repository, plan)["id"]
    until(lambda: len(stalls(impatient, task)) >= 2, "two reports", within=30)
    told = stalls(impatient, task)[0]
    assert told["phase"] == "tool"
    assert "sleep 86399" in json.dumps(told["processes"])
    assert str(told["hint"]).startswith("handoff attach")
    assert impatient.state(task) == "running", "a report changes nothing"
    assert impatient.cli("wait", task, "--json", timeout=10).ok().lines()[-1]["type"] in (
        "stalled", "backlog_summary",
    )  # fmt: skip


def test_waiting_for_a_person_is_no_stall(impatient: Agentd) -> None:
    repository = make_repository(impatient.home)
    asking = impatient.dispatch(repository, fake_plan({"run": {"command": "true"}}))["id"]
    impatient.ticket(asking)
    silent = impatient.dispatch(repository, fake_plan({"hang": {}}))["id"]
    until(lambda: stalls(impatient, silent), "the other one is reported", within=30)
    assert impatient.show(asking)["task"]["activity"]["phase"] == "waiting"
    assert not stalls(impatient, asking)
