"""``handoff session`` killed at each of its crash points, as ``kill -9`` would, and run again."""

from __future__ import annotations

import json
import os
import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.acceptance.pty_console import Terminal
from tests.support.agents import Agents
from tests.support.console import Cli, Ran
from tests.support.home import Home

from handoff.sessions.terminal import MEND

STATE = {
    "schema": "handoff-state/2",
    "goal": {"text": "Make the parser total", "done_when": ["pytest passes"]},
    "constraints": [{"id": "c1", "text": "Keep Python 3.11", "kind": "must"}],
    "omissions": [],
}
ATTEMPT = "attempt-0001"


class Place:
    """A folder, agents, and the command, which may be told to die."""

    def __init__(self, home: Home) -> None:
        self.home, self.cli = home, Cli(home)
        self.agents = Agents(home.path / "agents")
        self.work = home.path / "work"
        self.work.mkdir()
        self.log = home.path / "points"

    def run(self, *words: str, at: str = "", log: bool = False, stdin: str = "") -> Ran:
        env = {"PATH": self.agents.path()}
        env |= {"HANDOFF_CRASH_AT": at} if at else {}
        env |= {"HANDOFF_CRASH_LOG": str(self.log)} if log else {}
        return self.cli("session", *words, env=env, stdin=stdin)

    def create(self, **more: Any) -> Ran:
        words = ("create", "--workspace", str(self.work), "--request-id", "request-0001", "-")
        return self.run(*words, stdin=json.dumps(STATE), **more)

    def prepare(self, ref: str, **more: Any) -> Ran:
        words = ("prepare", ref, "--workspace", str(self.work), "--host", "codex")
        return self.run(*words, "--attempt-id", ATTEMPT, **more)

    def open(self, ref: str, at: str = "", log: bool = False) -> tuple[int, Any]:
        env = {**self.home.env, "PATH": self.agents.path()}
        env |= {"HANDOFF_CRASH_AT": at} if at else {}
        env |= {"HANDOFF_CRASH_LOG": str(self.log)} if log else {}
        words = ("session", "open", ref, "--attempt-id", ATTEMPT, "--yes", "--json")
        terminal = Terminal(*words, cwd=self.work, env=env)
        try:
            code = terminal.end()
            lines = [line for line in terminal.text.splitlines() if '"exit_code"' in line]
            return code, json.loads(lines[-1][lines[-1].index("{") :]) if lines else None
        finally:
            terminal.close()

    def points(self) -> list[str]:
        """The crash points that were reached."""
        return self.log.read_text().split()


CREATE = ("records.staged", "records.published", "records.requested")
PREPARE = ("journal.prepare", "journal.prepared")
#: point -> the state that is found, and what a second opener exits with
OPEN = {
    "journal.reserve": ("prepared", 0),
    "journal.reserved": ("reserved", 0),
    "journal.launch_intent": ("reserved", 0),
    "journal.launch_intent.done": ("requested", 5),
    "opener.before_start": ("requested", 5),
    "opener.started": ("requested", 5),
    "journal.child_started": ("requested", 5),
    "journal.child_started.done": ("requested", 5),
    "opener.child_ended": ("requested", 5),
    "journal.exit": ("requested", 5),
    "journal.exited": ("closed", 4),
}


@pytest.fixture
def place(isolated_home: Home) -> Iterator[Place]:
    made = Place(isolated_home)
    yield made
    for one in made.agents.launches():
        if one["pid"] > 1 and pathlib.Path(f"/proc/{one['pid']}").exists():
            os.kill(one["pid"], signal.SIGKILL)


def test_no_point_is_left_out(place: Place) -> None:
    ref = place.create(log=True).ok().json()["ref"]
    assert set(place.points()) == set(CREATE)
    place.log.unlink()
    place.prepare(ref, log=True).ok()
    assert set(place.points()) == set(PREPARE)
    place.log.unlink()
    assert place.open(ref, log=True)[0] == 0
    assert set(place.points()) == set(OPEN)


@pytest.mark.parametrize("point", CREATE)
def test_create_is_all_or_nothing_and_its_retry_is_the_same(place: Place, point: str) -> None:
    assert place.create(at=point).code == -signal.SIGKILL
    before = place.run("list").ok().json()["total"]
    made = place.create().ok().json()
    assert place.run("list").ok().json()["total"] == 1
    assert place.run("verify").ok().json()["faults"] == []
    again = place.create().ok().json()
    assert (again["ref"], again["idempotent"]) == (made["ref"], True)
    assert made["idempotent"] == bool(before)


@pytest.mark.parametrize("point", PREPARE)
def test_prepare_is_all_or_nothing_and_its_retry_is_the_same(place: Place, point: str) -> None:
    ref = place.create().ok().json()["ref"]
    assert place.prepare(ref, at=point).code == -signal.SIGKILL
    known = place.run("status").ok().json()["attempts"]
    assert [one["state"] for one in known] in ([], ["prepared"])
    assert place.prepare(ref).ok().json()["created"] == (not known)
    assert place.run("verify").ok().json()["journal"]["attempts"] == 1
    assert place.agents.launches() == []


@pytest.mark.parametrize("point", OPEN)
def test_a_killed_opener_is_never_followed_by_a_second_start(place: Place, point: str) -> None:
    state, exit_code = OPEN[point]
    ref = place.create().ok().json()["ref"]
    place.prepare(ref).ok()
    assert place.open(ref, at=point)[0] == -signal.SIGKILL
    status = place.run("status", ATTEMPT).ok().json()
    assert (status["state"], status["resume_verified"]) == (state, False)
    assert (status["certainty"] == "uncertain") == (exit_code == 5)
    code, _told = place.open(ref)
    assert code == exit_code
    assert len(place.agents.launches()) <= 1
    assert place.run("verify").ok().json()["faults"] == []
    if exit_code == 5:
        looked = place.run("recover", ATTEMPT).ok().json()
        assert looked["mend_terminal"] == MEND
        assert [one["choice"] for one in looked["commands"]] == ["adopt", "abandon"]
