from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.sessions.records_kit import repository, store

from handoff.sessions import state as states
from handoff.sessions import task_record
from handoff.sessions.task_record import Finished
from handoff.sessions.workspace import bind

HEAD = "0a9d2acc13d19ef9f01688265bf9d92c3fb60811"
ID = "b2642a24-7e0c-4bd4-801c-566e7ac78242"
AT = "2026-12-01T02:58:17.919Z"


def outcome(**more: Any) -> dict[str, Any]:
    return {
        "turn": 1,
        "code": "verified",
        "commit": HEAD,
        "claim": {"summary": "did it"},
        "found": {"head": HEAD, "new_commits": [HEAD], "dirt": {"total": 0}},
        "verify": [{"command": "pytest -q", "exit_code": 0, "timed_out": False}],
        **more,
    }


def turn(number: int = 1, prompt: str = "Never touch the API.", **more: Any) -> dict[str, Any]:
    return {
        "number": number,
        "prompt": prompt,
        "outcome": outcome(),
        "started_at": AT,
        "ended_at": AT,
        **more,
    }


def task(**more: Any) -> dict[str, Any]:
    return {
        "id": ID,
        "name": "the parser",
        "plan_summary": "# Make the parser total",
        "branch": "handoff/x",
        "base_commit": HEAD,
        "verify": ["pytest -q"],
        "state": "completed",
        **more,
    }


def finished(**more: Any) -> Finished:
    given = {"task": task(), "turns": [turn()], "tickets": [], "files": [], **more}
    return Finished(**given)


def test_each_fact_has_its_place() -> None:
    state = states.check(task_record.state_of(finished())).state
    assert state["goal"] == {
        "text": "Make the parser total",
        "done_when": ["`pytest -q` exits with 0"],
    }
    assert state["verification"][0]["result"] == "pass"
    assert state["verification"][0]["commit"] == HEAD
    assert state["constraints"][0]["kind"] == "must_not"
    assert state["progress"]["done"][0]["evidence"] == [{"kind": "git", "id": HEAD}]
    assert state["omissions"]


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({"verify": [{"command": "x", "exit_code": 1}]}, "fail"),
        ({"verify": [{"command": "x", "exit_code": 0, "timed_out": True}]}, "fail"),
        ({"verify": [{"command": "x", "exit_code": None}]}, "fail"),
        ({"found": {}, "commit": ""}, "not_run"),
    ],
)
def test_a_pass_is_said_of_what_passed_only(change: dict[str, Any], result: str) -> None:
    done = finished(turns=[turn(outcome=outcome(**change))])
    state = states.check(task_record.state_of(done)).state
    assert state["verification"][0]["result"] == result


def test_uncommitted_and_unverified_work_is_uncertain() -> None:
    dirty = {"head": HEAD, "dirt": {"total": 3}}
    done = finished(turns=[turn(outcome=outcome(code="no_commit", found=dirty))])
    state = states.check(task_record.state_of(done)).state
    assert len(state["uncertainties"]) == 2
    assert state["verification"][0]["dirty_digest"] == "3 uncommitted entries"


def test_renames_and_odd_names() -> None:
    files = [
        {"path": "new.py", "old_path": "old.py", "status": "renamed"},
        {"path": "gone.py", "old_path": None, "status": "deleted"},
        {"path": "a\nb", "old_path": None, "status": "added"},
    ]
    state = states.check(task_record.state_of(finished(files=files))).state
    assert [(one["path"], one["role"]) for one in state["files"]] == [
        ("old.py", "deleted"),
        ("new.py", "created"),
        ("gone.py", "deleted"),
    ]
    assert any("names" in one["what"] for one in state["omissions"])


def test_a_plan_beyond_a_record_s_limit_is_named_as_left_out(tmp_path: Path) -> None:
    turns = [turn(number, f"turn {number}\n" + "word " * 20_000) for number in range(1, 60)]
    tickets = [
        {"kind": "ask", "ref": f"q{n}", "turn": 1, "answer": "y" * 3000, "source": "coordinator",
         "request": {"question": "q"}}
        for n in range(300)
    ]  # fmt: skip
    done = finished(turns=turns, tickets=tickets)
    records = store(tmp_path)
    made = task_record.keep(records, "default", bind(str(repository(tmp_path / "w"))), done)
    assert made is not None
    assert task_record.kept(records, "default", ID) == made.ref
    assert task_record.kept(records, "bob", ID) == ""
    state = records.read(made.ref).state
    assert any("ends of long texts" in one["what"] for one in state["omissions"])
    again = task_record.keep(records, "default", bind(str(tmp_path / "w")), done)
    assert again is None


def test_a_secret_of_the_plan_does_not_reach_the_record(tmp_path: Path) -> None:
    secret = "glpat-" + "A1b2C3d4E5f6G7h8I9j0"
    records = store(tmp_path)
    done = finished(turns=[turn(prompt=f"never print {secret}")])
    made = task_record.keep(records, "default", bind(str(repository(tmp_path / "w"))), done)
    assert made is not None
    assert sum(made.redactions.values()) >= 1
    for path in (tmp_path / "handoff").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()


TEXT = st.text(max_size=30)
LOOSE = st.none() | st.booleans() | st.integers(-3, 3) | TEXT


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    prompts=st.lists(TEXT, min_size=1, max_size=3),
    answer=TEXT,
    summary=TEXT,
    command=TEXT,
    code=st.none() | st.integers(-2, 300),
    path=TEXT,
    kind=st.sampled_from(["ask", "gate"]),
    note=TEXT,
)
def test_whatever_was_said_makes_a_valid_state(
    prompts: list[str],
    answer: str,
    summary: str,
    command: str,
    code: int | None,
    path: str,
    kind: str,
    note: str,
) -> None:
    told = outcome(
        claim={"summary": summary}, verify=[{"command": command, "exit_code": code}], reason=note
    )
    request = {"question": answer, "command": command, "permission": ""}
    done = finished(
        task=task(plan_summary=summary, name=note, done_note=note, verify=[command], model=note),
        turns=[turn(n, text, outcome=told) for n, text in enumerate(prompts, 1)],
        tickets=[{"kind": kind, "answer": answer, "decision": "deny", "reason": note, "turn": 1,
                  "source": "coordinator", "request": request, "answered_by": note}],
        files=[{"path": path, "status": "added"}],
    )  # fmt: skip
    states.check(task_record.state_of(done))
