"""A tool that waits for something nobody gives it: what is told, and what an end ends."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import psutil
import pytest
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import Home
from tests.support.plans import fake_plan
from tests.support.repository import Repository
from tests.support.waiting import until
from tests.unit.workspace import repos


@pytest.fixture
def impatient(isolated_home: Home) -> Iterator[Agentd]:
    """An agentd that calls one second of silence a stall."""
    with run_agentd(isolated_home, "stalltimeout: 1s\nstallmodel: 1s\n") as agentd:
        yield agentd


def below(folder: pathlib.Path) -> list[psutil.Process]:
    """Processes of the helper in that folder, and what they started."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in word for word in process.cmdline()):
                found += [process, *process.children(recursive=True)]
        except psutil.Error:
            continue
    return found


def test_a_commit_that_waits_for_a_signature(impatient: Agentd) -> None:
    cases = impatient.home.path / "cases"
    repository = Repository(repos.build("signing", cases), impatient.home)
    before = repository.git("config", "--list", "--local")
    task = impatient.dispatch(repository, fake_plan("commit"))
    told = impatient.cli("wait", task["id"], "--json", timeout=20).ok().lines()[-1]
    assert told["type"] == "stalled"
    payload = told["payload"]
    assert payload["phase"] == "tool"
    assert "git commit" in payload["detail"]
    assert payload["since"] < told["created_at"], "since when, not only for how long"
    commands = [process["command"] for process in payload["processes"]]
    commit, helper, leaf = commands[-3:]
    assert commit.startswith("git commit")
    assert "asking.sh" in helper
    assert leaf == "sleep 86400"
    assert not any("fake" in command for command in commands), "the executor itself is no tool"
    assert impatient.cli("diff", task["id"]).code == 0, "our own git never waits for it"
    running = below(cases / "asking.sh")
    assert running
    assert impatient.cli("stop", task["id"]).ok().json()["status"] == "stopped"
    until(lambda: not [p for p in running if p.is_running()], "the whole tree is gone")
    assert (cases / "asked.log").read_text() == "asked\n", "asked once, and not by us"
    assert repository.git("config", "--list", "--local") == before
