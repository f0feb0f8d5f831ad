from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sessions.records_kit import repository, run_git, state

from handoff.sessions import evidence
from handoff.sessions.proofs import Proofs
from handoff.sessions.state import check
from handoff.sessions.workspace import bind


def wrong(place: Path, kind: str, name: str, **more: Any) -> str:
    pointer = {"kind": kind, "id": name, **more}
    return Proofs(bind(str(place)), [pointer]).wrong(pointer)


def test_commits_and_files_are_looked_up(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    head = run_git(place, "rev-parse", "HEAD")
    digest = hashlib.sha256(b"a = 1\n").hexdigest()
    assert wrong(place, "git", head) == ""
    assert wrong(place, "git", head[:10]) == ""
    assert "no such object" in wrong(place, "git", "0" * 40)
    assert "no such object" in wrong(place, "git", "HEAD; rm -rf /")
    assert "no such object" in wrong(place, "git", "--help")
    for name in ("a.py", "a.py:1", "a.py:1-3", "a.py#L1-L3"):
        assert wrong(place, "file", name) == "", name
    assert wrong(place, "file", "a.py", sha256=digest) == ""
    assert "another digest" in wrong(place, "file", "a.py", sha256="0" * 64)
    assert "no such file" in wrong(place, "file", "c.py")
    assert "no file of the workspace" in wrong(place, "file", "../w/a.py")
    assert "no file of the workspace" in wrong(place, "file", "/etc/passwd")


def test_where_nothing_can_be_asked_nothing_is_held_against_it(tmp_path: Path) -> None:
    pointer = {"kind": "git", "id": "0" * 40}
    assert Proofs(None, [pointer]).wrong(pointer) == ""
    place = repository(tmp_path / "w")
    binding = bind(str(place))
    (place / ".git" / "HEAD").write_text("broken")
    assert Proofs(binding, [pointer]).wrong(pointer) == ""


@pytest.mark.parametrize(
    ("kind", "name", "basis"),
    [("git", "0" * 40, "inferred"), ("file", "gone.py", "inferred"), ("file", "a.py", "observed")],
)
def test_a_claim_is_lowered_also_without_a_session(
    tmp_path: Path, kind: str, name: str, basis: str
) -> None:
    place = repository(tmp_path / "w")
    claim = {"id": "p1", "text": "done", "basis": "observed"}
    given = check(
        state(progress={"done": [{**claim, "evidence": [{"kind": kind, "id": name}]}]})
    ).state
    got, notes = evidence.ground(given, "", "", bind(str(place)))
    assert got["progress"]["done"][0]["basis"] == basis
    assert len(notes) == (basis != "observed")


def test_only_the_tool_says_verified(tmp_path: Path) -> None:
    place = repository(tmp_path / "w")
    pointer = {"kind": "file", "id": "a.py"}
    claim = {"id": "p1", "text": "done", "basis": "verified", "evidence": [pointer]}
    got, [note] = evidence.ground(
        check(state(progress={"done": [claim]})).state, "", "", bind(str(place))
    )
    assert got["progress"]["done"][0]["basis"] == "observed"
    assert note["pointer"] == "/progress/done/0/basis"
