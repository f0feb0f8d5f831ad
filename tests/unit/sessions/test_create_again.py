"""A create whose answer was lost is made again, and meanwhile the world has moved."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sqlite3
from typing import Any

import pytest
from tests.unit.sessions.records_kit import run_git
from tests.unit.sessions.test_service import RULE, SECRET, SESSION, Kit

from handoff.errors import StorageFull
from handoff.sessions import private
from handoff.sessions.service import Caller

SAID = "The parser reads 12 of the 14 files."


@pytest.fixture
def kit(tmp_path: pathlib.Path) -> Kit:
    return Kit(tmp_path)


def say(kit: Kit, role: str, text: str) -> None:
    """The source session goes on."""
    with contextlib.closing(sqlite3.connect(kit.home / "state.db")) as db, db:
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, 1.7e9)",
            (SESSION, role, text),
        )


def claim(message: str) -> dict[str, Any]:
    """A claim that a message of the session is to bear."""
    evidence = [{"kind": "message", "id": message}]
    return {"context": [{"id": "x1", "text": SAID, "basis": "observed", "evidence": evidence}]}


def same(first: dict[str, Any], again: dict[str, Any]) -> None:
    assert (again["ref"], again["idempotent"]) == (first["ref"], True)
    assert again["created_at"] == first["created_at"]


def test_the_session_says_later_what_a_claim_needed(kit: Kit) -> None:
    first = kit.create(**claim("4"))
    assert kit.ok("show", ref=first["ref"])["state"]["context"][0]["basis"] == "inferred"
    say(kit, "assistant", SAID)
    same(first, kit.create(**claim("4")))
    assert kit.ok("show", ref=first["ref"])["state"]["context"][0]["basis"] == "inferred"


def test_the_session_forgets_what_bore_a_claim(kit: Kit) -> None:
    say(kit, "assistant", SAID)
    first = kit.create(**claim("4"))
    assert kit.ok("show", ref=first["ref"])["state"]["context"][0]["basis"] == "observed"
    with contextlib.closing(sqlite3.connect(kit.home / "state.db")) as db, db:
        db.execute("DELETE FROM messages WHERE id = 4")
    same(first, kit.create(**claim("4")))


def test_a_strict_retry_is_not_held_against_a_rule_that_came_later(kit: Kit) -> None:
    state = {
        "schema": "handoff-state/2",
        "goal": {"text": "ship the parser", "done_when": ["`pytest -q` passes"]},
        "constraints": [{"id": "c1", "text": RULE, "kind": "must_not"}],
        "next_steps": [{"id": "n1", "text": "Run `pytest -q` in lib/"}],
        "omissions": [{"what": "small talk", "why": "it adds nothing"}],
    }
    given = {"state": state, "request_id": "request-0001", "workspace": str(kit.work)}
    first = kit.ok("create", strict=True, **given)
    say(kit, "user", "You must never delete the fixtures.")
    again = kit.ok("create", strict=True, **given)
    same(first, again)
    assert again["dropped"] == first["dropped"] == []
    told = kit.refused("create", strict=True, **{**given, "request_id": "request-0002"})
    assert told["code"] == "state_invalid", told


def test_the_evidence_of_a_claim_leaves_the_workspace(kit: Kit) -> None:
    (kit.work / "out.txt").write_text("12\n")
    run_git(kit.work, "add", "out.txt")
    run_git(kit.work, "commit", "-qm", "Out")
    shown = [{"kind": "file", "id": "out.txt"}]
    more = {"context": [{"id": "x1", "text": SAID, "basis": "observed", "evidence": shown}]}
    first = kit.create(**more)
    (kit.work / "out.txt").unlink()
    same(first, kit.create(**more))


def test_another_request_under_the_same_id_stays_a_conflict(kit: Kit) -> None:
    """Also where what differs is only what the tool then lowers to the same."""
    first = kit.create(**claim("4"))
    other = claim("4")
    other["context"][0]["text"] = SAID + " And more."
    state = {"schema": "handoff-state/2", "goal": {"text": "ship the parser"}, **other}
    told = kit.refused("create", state=state, request_id="request-0001", workspace=str(kit.work))
    assert (told["code"], told["details"]["ref"]) == ("request_conflict", first["ref"])
    assert "context" in told["details"]["fields"]
    assert kit.create(**claim("4"))["ref"] == first["ref"]


def test_what_a_request_was_is_kept_as_a_digest_alone(kit: Kit) -> None:
    kit.create(constraints=[{"id": "c1", "text": f"{RULE} {SECRET}", "kind": "must_not"}])
    (note,) = (kit.home / "handoff" / "requests").iterdir()
    assert RULE not in note.read_text()
    assert SECRET not in note.read_text()
    again = kit.create(constraints=[{"id": "c1", "text": f"{RULE} {SECRET}", "kind": "must_not"}])
    assert again["idempotent"] is True


@pytest.mark.parametrize(
    ("point", "there"),
    [("records.requested", 0), ("records.staged", 0), ("records.published", 1)],
)
def test_a_create_that_was_killed_is_made_again_in_another_world(
    kit: Kit, point: str, there: int
) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            kit.service.records._reach = lambda at: os.kill(os.getpid(), 9) if at == point else None
            kit.create(**claim("4"))
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    say(kit, "assistant", SAID)
    kit.service = kit.another()
    before = kit.ok("list", scope="all")["records"]
    assert len(before) == there
    again = kit.create(**claim("4"))
    assert again["idempotent"] is bool(there)
    assert [again["ref"]] == [one["ref"] for one in before or [again]]
    assert kit.ok("list", scope="all")["total"] == 1
    same(again, kit.create(**claim("4")))


def test_a_record_that_was_removed_is_not_made_again_by_a_retry(kit: Kit) -> None:
    first = kit.create()
    kit.ok("purge", Caller("cli", person=True), ref=first["ref"])
    state = {"schema": "handoff-state/2", "goal": {"text": "ship the parser"}}
    told = kit.refused("create", state=state, request_id="request-0001", workspace=str(kit.work))
    assert (told["code"], told["retry"]) == ("ref_not_found", "never")


def test_a_create_without_room_leaves_no_note(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.create("request-0009", goal={"text": "what was there"})
    before = kit.files()

    def full(*_: object) -> None:
        raise StorageFull("no room")

    monkeypatch.setattr(private, "write_all", full)
    state = {"schema": "handoff-state/2", "goal": {"text": "ship the parser"}}
    told = kit.refused("create", state=state, request_id="request-0001", workspace=str(kit.work))
    assert told["code"] == "storage_full"
    assert kit.files() == before
