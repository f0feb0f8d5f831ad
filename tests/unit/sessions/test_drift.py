from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sessions.records_kit import KEY, draft, repository, run_git, state, store
from tests.unit.sessions.test_evidence import host

from handoff.clock import FakeClock
from handoff.errors import UnknownRecord
from handoff.sessions import evidence
from handoff.sessions.drift import Drift, Now, compare
from handoff.sessions.guard import RedactorGuard
from handoff.sessions.manifest import Source, parse_ref
from handoff.sessions.records import Records
from handoff.sessions.workspace import bind

DAY = 24 * 3600


class Case:
    """A record of a real repository and a real session store, and the world around it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = repository(folder / "one")
        self.sessions = host(folder / "state.db", [("s", "user", "mend it")])
        self.clock = FakeClock()
        self.records = store(folder, clock=self.clock)
        self.source = Source("default", "s", "1", "hermes", "0.22.5")
        self.now: dict[str, Any] = {
            "workspace": str(self.repository),
            "sessions": str(self.sessions),
            "profile": "default",
            "host_version": "0.22.5",
        }

    def create(self, given: dict[str, Any] | None = None, request: str = "request-0001") -> str:
        given = given or state(
            files=[{"path": "a.py", "role": "modified"}, {"path": "old.py", "role": "deleted"}]
        )
        place = bind(str(self.repository))
        got = evidence.gather(
            place,
            RedactorGuard(KEY),
            sessions=str(self.sessions),
            session_id="s",
            paths=[item["path"] for item in given.get("files", [])],
        )
        made = draft(given, request, binding=place, source=self.source, evidence=got.frozen)
        return self.records.create(made).ref

    def look(self, ref: str, **more: Any) -> Drift:
        return compare(self.records, ref, Now(self.clock.now_ms(), **{**self.now, **more}))

    def codes(self, ref: str, **more: Any) -> dict[str, str]:
        return {one["code"]: one["severity"] for one in self.look(ref, **more).findings}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_nothing_has_changed(case: Case) -> None:
    (case.repository / "a.py").write_text("a = 2\n")
    found = case.look(case.create())
    assert (found.findings, found.verdict) == ((), "current")


def test_a_missing_workspace_blocks_and_reading_does_not_need_it(case: Case) -> None:
    ref = case.create()
    shutil.rmtree(case.repository)
    found = case.look(ref)
    assert (found.blocking, found.verdict) == (["workspace_missing"], "blocked")
    assert "another folder" in found.findings[0]["details"]["remedy"]
    assert case.records.read(ref).state["goal"]
    assert case.records.search("parser").total == 1
    assert case.records.verify(ref) == []


def test_another_repository_blocks_until_a_person_binds_it(case: Case) -> None:
    ref = case.create()
    run_git(case.folder, "clone", "-q", str(case.repository), str(case.folder / "clone"))
    clone = str(case.folder / "clone")
    assert case.look(ref, workspace=clone).blocking == ["anchor_changed"]
    case.records.bind(parse_ref(ref).project_id, bind(clone))
    assert case.codes(ref, workspace=clone) == {"anchor_changed": "note"}


def test_another_worktree_is_the_same_project(case: Case) -> None:
    ref = case.create()
    run_git(case.repository, "worktree", "add", "-q", str(case.folder / "tree"), "-b", "side")
    assert case.codes(ref, workspace=str(case.folder / "tree")) == {"branch_changed": "warn"}


def test_a_commit_ahead(case: Case) -> None:
    ref = case.create()
    (case.repository / "b.py").write_text("b = 2\n")
    run_git(case.repository, "commit", "-qam", "second")
    (one,) = case.look(ref).findings
    assert one["code"] == "head_moved"
    assert (one["details"]["ahead"], one["details"]["behind"]) == (1, 0)


def test_a_rewritten_history(case: Case) -> None:
    ref = case.create()
    run_git(case.repository, "commit", "-q", "--amend", "-m", "other")
    (one,) = case.look(ref).findings
    assert one["details"]["unreachable"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda top: (top / "a.py").write_text("a = 3\n"), "file_changed"),
        (lambda top: (top / "a.py").unlink(), "file_missing"),
        (lambda top: (top / "new.py").write_text(""), "dirty_changed"),
        (lambda top: (top / "CLAUDE.md").write_text("x"), "rules_changed"),
        (lambda top: run_git(top, "checkout", "-qb", "other"), "branch_changed"),
    ],
)
def test_a_change_in_the_workspace(case: Case, change: Any, code: str) -> None:
    ref = case.create()
    change(case.repository)
    found = case.look(ref)
    assert code in {one["code"] for one in found.findings}
    assert found.verdict == "drifted"


def test_done_but_absent(case: Case) -> None:
    done = {"id": "p1", "text": "wrote it", "evidence": [{"kind": "file", "id": "gone.py:12"}]}
    ref = case.create(state(progress={"done": [done]}))
    assert case.codes(ref) == {"done_but_absent": "warn"}


def test_a_stale_verification(case: Case) -> None:
    claim = {
        "id": "v1", "claim": "tests pass", "command": "pytest", "exit_code": 0, "result": "pass",
        "commit": run_git(case.repository, "rev-parse", "HEAD"), "at": "2026-01-31T12:00:00Z",
    }  # fmt: skip
    ref = case.create(state(verification=[claim]))
    assert case.codes(ref) == {}
    run_git(case.repository, "commit", "-q", "--allow-empty", "-m", "more")
    assert case.codes(ref) == {"head_moved": "warn", "verification_stale": "warn"}


def test_a_verification_without_a_command(case: Case) -> None:
    claim = {
        "id": "v1", "claim": "tests pass", "exit_code": 0, "result": "pass",
        "commit": run_git(case.repository, "rev-parse", "HEAD"), "at": "2026-01-31T12:00:00Z",
    }  # fmt: skip
    assert case.codes(case.create(state(verification=[claim]))) == {"verification_unbound": "warn"}


def test_the_source_went_on(case: Case) -> None:
    import sqlite3

    ref = case.create()
    with sqlite3.connect(case.sessions) as db:
        db.execute("INSERT INTO messages (session_id, role, content) VALUES ('s', 'user', 'and')")
    db.close()
    assert case.codes(ref) == {"source_advanced": "warn"}
    assert case.look(ref).verdict == "stale"


def test_to_hand_off_is_not_to_go_on(case: Case) -> None:
    """The calls that make and prepare a record are messages of the session, too."""
    import sqlite3

    ref = case.create()
    with sqlite3.connect(case.sessions) as db:
        for role in ("assistant", "tool", "assistant"):
            db.execute(
                "INSERT INTO messages (session_id, role, content) VALUES ('s', ?, 'x')", (role,)
            )
    db.close()
    assert case.codes(ref) == {}
    with sqlite3.connect(case.sessions) as db:
        for _ in range(70):
            db.execute("INSERT INTO messages (session_id, role, content) VALUES ('s', 'tool', 'x')")
    db.close()
    assert case.codes(ref) == {"source_advanced": "warn"}


def test_a_newer_record(case: Case) -> None:
    ref = case.create()
    case.clock.advance(1)
    case.create(state("newer"), "request-0002")
    assert case.codes(ref) == {"newer_handoff": "warn"}


def test_what_the_caller_knows(case: Case) -> None:
    ref = case.create()
    assert case.codes(ref, profile="bob") == {"profile_changed": "block"}
    assert case.codes(ref, opened=["attempt-1"]) == {"already_opened": "block"}
    assert case.codes(ref, opened=["attempt-1"], parallel=True) == {"already_opened": "warn"}
    assert case.codes(ref, host_version="0.23") == {"host_changed": "warn"}
    told = {"code": "tool_not_allowed", "severity": "block", "message": "x"}
    assert case.codes(ref, host=[told]) == {"tool_not_allowed": "block"}


@pytest.mark.parametrize(
    ("days", "found"),
    [(0.9, {}), (2, {"aged": "note"}), (8, {"aged": "warn"}), (40, {"aged": "warn"})],
)
def test_age(case: Case, days: float, found: dict[str, str]) -> None:
    ref = case.create()
    case.clock.advance(days * DAY)
    assert case.codes(ref) == found


def test_a_record_from_the_future(case: Case) -> None:
    ref = case.create()
    case.clock.set_back(DAY)
    assert case.codes(ref) == {"clock_skew": "note"}


def test_inherited_claims_that_nobody_checked(case: Case) -> None:
    given = state(
        context=[{"id": "x1", "text": "port 8080", "basis": "inherited"}],
        lineage={"depth": 2, "inherited_ids": ["x1"]},
    )
    assert case.codes(case.create(given)) == {"inherited_unverified": "warn"}


def test_a_secret_of_newer_rules(case: Case) -> None:
    ref = case.create(state("the green-parrot door"))
    case.records = Records(
        case.records.root, clock=case.clock, guard=RedactorGuard(KEY, {"DOOR": "green-parrot"})
    )
    assert case.codes(ref) == {"secret_suspected": "warn"}
    assert "green-parrot" not in str(case.look(ref))


def test_a_damaged_record_blocks(case: Case) -> None:
    ref = case.create()
    where = parse_ref(ref)
    folder = Path(case.records.root) / "projects" / where.project_id / "records" / where.handoff_id
    (folder / "document.md").write_bytes(b"other")
    assert case.look(ref).blocking == ["integrity_failed"]
    with pytest.raises(UnknownRecord):
        case.look(f"handoff://{'a' * 32}/{'b' * 32}")


def test_other_rules_of_redaction_are_told(case: Case) -> None:
    ref = case.create()
    guard = RedactorGuard(KEY)
    guard.ruleset = "handoff-redaction/2/standard"
    case.records = Records(case.records.root, clock=case.clock, guard=guard)
    assert case.codes(ref) == {"ruleset_changed": "warn"}
