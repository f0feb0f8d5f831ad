from __future__ import annotations

import os
import pathlib
import pty
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.openings import PROFILE, SOURCE, frozen, launched, make_journal

from handoff.clock import FakeClock
from handoff.errors import ActorRefused, NotATerminal
from handoff.sessions import owner
from handoff.sessions.journal import Journal
from handoff.sessions.recover import AGENT_MARKS, inspect, person
from handoff.sessions.routes import last_route, observe
from handoff.sessions.terminal import MEND, Terminal

A = "attempt-0001"


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    master, slave = pty.openpty()
    yield Terminal(slave, slave)
    os.close(master)
    os.close(slave)


def journal_in(folder: pathlib.Path, living: bool | None = False) -> Journal:
    return make_journal(folder / "handoff", liveness=lambda _: living)


def test_what_is_seen_and_what_can_be_chosen(tmp_path: pathlib.Path) -> None:
    journal = journal_in(tmp_path)
    held = launched(journal)
    journal.child_started(held, owner.me())
    found = [{"session_id": "s-1", "title": "x"}]
    seen = inspect(journal, A, found)
    assert seen["candidates"] == found
    assert seen["choices"] == ["--show-prompt", "--adopt SESSION", "--abandon"]
    assert seen["chosen"] is None
    assert seen["child"]["alive"] is True
    assert seen["mend_terminal"] == MEND
    assert [e["kind"] for e in seen["events"]][-1] == "child_started"
    assert journal.status(A)["state"] == "requested", "looking changes nothing"


@pytest.mark.parametrize("living", [True, None])
def test_while_the_opener_may_live_there_is_only_waiting(
    tmp_path: pathlib.Path, living: bool | None
) -> None:
    journal = journal_in(tmp_path, living)
    launched(journal)
    seen = inspect(journal, A)
    assert seen["choices"] == ["wait for its opener to end"]
    assert seen["mend_terminal"] == ""


def test_each_state_has_its_choices(tmp_path: pathlib.Path) -> None:
    journal = journal_in(tmp_path, True)
    journal.prepare(frozen(), SOURCE)
    assert inspect(journal, A)["choices"] == ["open it", "--abandon"]
    held = launched(journal)
    journal.session_seen(A, "s-new", PROFILE, nonce="n-1")
    assert inspect(journal, A)["choices"] == ["let the new session read on", "--abandon"]
    journal.child_exited(held, 1, None)
    assert inspect(journal, A)["choices"] == ["prepare a new attempt that supersedes this one"]


def test_a_person_is_at_a_terminal(tmp_path: pathlib.Path, terminal: Terminal) -> None:
    journal = journal_in(tmp_path)
    launched(journal)
    actor = person(journal, {"HOME": "/h"}, terminal, A)
    assert actor.kind == "person"
    assert actor.id
    journal.abandon(A, "x", actor)


def test_a_pipe_is_no_person(tmp_path: pathlib.Path) -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(NotATerminal):
            person(journal_in(tmp_path), {}, Terminal(reader, writer))
    finally:
        os.close(reader)
        os.close(writer)
    with pytest.raises(NotATerminal):
        person(journal_in(tmp_path), {}, Terminal(reader, writer))


@pytest.mark.parametrize("mark", AGENT_MARKS)
def test_an_agents_child_is_no_person(
    tmp_path: pathlib.Path, terminal: Terminal, mark: str
) -> None:
    with pytest.raises(ActorRefused, match=mark):
        person(journal_in(tmp_path), {mark: "1"}, terminal)


def test_what_runs_inside_the_new_session_is_no_person(
    tmp_path: pathlib.Path, terminal: Terminal
) -> None:
    journal = journal_in(tmp_path)
    held = launched(journal)
    journal.child_started(held, owner.me(pid=os.getppid()))
    with pytest.raises(ActorRefused, match=A):
        person(journal, {}, terminal, A)


# -- routes --------------------------------------------------------------------------------


def test_the_latest_route_of_exactly_that_session(tmp_path: pathlib.Path) -> None:
    clock = FakeClock()
    journal = make_journal(tmp_path / "handoff", clock=clock)
    assert last_route(journal, "s-1") is None
    assert not os.path.exists(journal.root)
    observe(journal, "s-1", "m-1", "p-1", "t-1")
    observe(journal, "s-2", "m-2", "p-2", "t-9")
    clock.advance(5)
    observe(journal, "s-1", "m-3", "p-1", "t-2")
    assert last_route(journal, "s-1") == {
        "model": "m-3",
        "provider": "p-1",
        "turn_id": "t-2",
        "observed_at": clock.now_ms(),
    }
    assert last_route(journal, "s-2")["model"] == "m-2"  # type: ignore[index]
    assert last_route(journal, "s-3") is None


@pytest.mark.parametrize("given", [("", "m", "p"), ("s", "", "p"), ("s", "m", "")])
def test_half_a_route_is_none(tmp_path: pathlib.Path, given: Any) -> None:
    journal = make_journal(tmp_path / "handoff")
    observe(journal, *given, "t")
    assert not os.path.exists(journal.root)
