from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sessions.records_kit import KEY, binding, draft, repository, state, store

from handoff.errors import NotFound, StorageError
from handoff.sessions import evidence, host_store
from handoff.sessions.drift import dropped_candidates
from handoff.sessions.guard import RedactorGuard
from handoff.sessions.records import Records
from handoff.sessions.state import check
from handoff.sessions.workspace import bind

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
GUARD = RedactorGuard(KEY)
RULE = "Never touch the public API in lib/api.py."


def host(path: Path, messages: list[tuple[str, str, str]], *, wal: bool = False) -> Path:
    """A session store with these messages: (session, role, text)."""
    db = sqlite3.connect(path)
    if wal:
        db.execute("PRAGMA journal_mode = WAL").close()
    db.execute(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, parent_session_id TEXT, model TEXT,"
        " billing_provider TEXT, cwd TEXT, source TEXT, started_at REAL, ended_at REAL)"
    )
    db.execute(
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT,"
        " timestamp REAL, tool_name TEXT, tool_calls TEXT)"
    )
    for number, (session, role, text) in enumerate(messages):
        parent = {"child": "parent"}.get(session)
        db.execute(
            "INSERT OR IGNORE INTO sessions VALUES (?, ?, 'm', 'p', '/x', 'cli', 1.7e9, NULL)",
            (session, parent),
        )
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
            (session, role, text, 1.7e9 + number),
        )
    db.commit()
    db.close()
    return path


def gather(path: Path, session: str = "s", place: Any = None) -> evidence.Bundle:
    return evidence.gather(
        place or binding(str(path.parent)), GUARD, sessions=str(path), session_id=session
    )


def test_early_rules_are_there_however_long_the_session(tmp_path: Path) -> None:
    messages = [("s", "user", "Please mend the parser."), ("s", "user", RULE)]
    messages += [("s", "assistant", f"step {n} " + "x" * 900) for n in range(1000)]
    got = gather(host(tmp_path / "state.db", messages))
    texts = [one["text"] for one in got.frozen["candidates"]]
    assert texts == ["Please mend the parser.", RULE]
    assert len(got.messages) <= 200
    assert sum(len(one["text"].encode()) for one in got.messages) <= 64 * 1024
    assert got.last_message == got.messages[-1]["id"] == "1002"


def test_the_middle_of_a_long_session_is_not_lost(tmp_path: Path) -> None:
    noise = "and so it went on, without a word of note. " * 40
    messages = [("s", "user", "Please mend the parser.")]
    messages += [("s", "tool" if n % 2 else "assistant", noise) for n in range(600)]
    messages[300] = ("s", "tool", noise + "\nE4711: src/store.py: 12 of 97 tests failed\n" + noise)
    got = gather(host(tmp_path / "state.db", messages))
    [one] = [one for one in got.messages if "excerpt" in one]
    assert (one["id"], one["cut"]) == ("301", True)
    assert one["text"] == "E4711: src/store.py: 12 of 97 tests failed"
    assert len(got.messages) <= 200
    assert sum(len(one["text"].encode()) for one in got.messages) <= 64 * 1024
    assert got.messages[-1]["id"] == got.last_message
    assert got.frozen["window"]["first"] == got.messages[1]["id"]


@pytest.mark.parametrize(
    "rule",
    ["You must keep v1.", "NON usare mai rm, sempre trash", "Niemals auf main schieben.",
     "不要修改数据库", "Don't push.", "only Python 3.11", "deadline: Friday"],
)  # fmt: skip
def test_rules_of_several_languages_are_known(tmp_path: Path, rule: str) -> None:
    path = host(tmp_path / "state.db", [("s", "user", "hello"), ("s", "user", rule)])
    assert gather(path).frozen["candidates"][1]["text"] == rule


def test_a_compressed_ancestor_is_read_first(tmp_path: Path) -> None:
    path = host(
        tmp_path / "state.db",
        [("parent", "user", RULE), ("other", "user", "never mine"), ("child", "user", "go on")],
    )
    got = gather(path, "child")
    assert [one["text"] for one in got.messages] == [RULE, "go on"]
    assert got.frozen["candidates"][0]["text"] == RULE


def test_tool_results_are_cut_and_say_so(tmp_path: Path) -> None:
    path = host(tmp_path / "state.db", [("s", "tool", "HEAD" + "x" * 5000 + "TAIL")])
    (one,) = gather(path).messages
    assert one["cut"]
    assert one["text"].startswith("HEAD")
    assert one["text"].endswith("TAIL")
    assert len(one["text"]) < 400


def test_secrets_do_not_leave(tmp_path: Path) -> None:
    path = host(
        tmp_path / "state.db",
        [("s", "user", f"always use {SECRET}"), ("s", "tool", f"token={SECRET}")],
    )
    got = gather(path)
    assert SECRET not in str(got)
    assert got.redactions


@pytest.mark.parametrize("wal", [False, True])
def test_the_source_is_never_written(tmp_path: Path, wal: bool) -> None:
    path = host(tmp_path / "state.db", [("s", "user", RULE)], wal=wal)
    open_elsewhere = sqlite3.connect(path)
    open_elsewhere.execute(
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s','user','only now',1.8e9)"
    )
    open_elsewhere.commit()

    def look() -> dict[str, tuple[str, int]]:
        return {
            p.name: (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns)
            for p in tmp_path.iterdir()
        }

    before = look()
    got = gather(path)
    assert [one["text"] for one in got.messages] == [RULE, "only now"]
    assert look() == before
    open_elsewhere.close()


def test_what_is_no_session_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        gather(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("x" * 5000)
    with pytest.raises(StorageError):
        gather(tmp_path / "text.db")
    with closing(sqlite3.connect(tmp_path / "empty.db")) as empty:
        empty.executescript("CREATE TABLE x (y)")
    with pytest.raises(StorageError, match="no session store"):
        gather(tmp_path / "empty.db")
    with pytest.raises(NotFound):
        gather(host(tmp_path / "state.db", [("s", "user", "x")]), "another")


def test_a_store_with_few_columns_is_read(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "old.db")
    db.executescript(
        "CREATE TABLE sessions (id TEXT); CREATE TABLE messages (id, session_id, role, content);"
        "INSERT INTO sessions VALUES ('s');"
        'INSERT INTO messages VALUES (1, \'s\', \'user\', \'[{"type":"text","text":"hello"}]\');'
    )
    db.close()
    with host_store.opened(str(tmp_path / "old.db")) as found:
        assert [one.text for one in found.messages(["s"])] == ["hello"]


def test_an_unfounded_basis_is_lowered_with_its_place(tmp_path: Path) -> None:
    path = host(
        tmp_path / "state.db",
        [("s", "user", RULE), ("s", "tool", "12 tests passed in tests/test_a.py")],
    )
    pointer = {"kind": "tool", "id": "2"}
    given = check(
        state(
            constraints=[
                {"id": "c1", "text": "never touch the public api", "kind": "must_not",
                 "basis": "observed"},
                {"id": "c2", "text": "deploy on fridays", "kind": "must", "basis": "observed"},
            ],
            context=[
                {"id": "x1", "text": "12 tests passed", "basis": "observed", "evidence": [pointer]},
                {"id": "x2", "text": "97 tests failed", "basis": "observed", "evidence": [pointer]},
                {"id": "x3", "text": "port is 8080", "basis": "verified",
                 "evidence": [{"kind": "message", "id": "99"}]},
                {"id": "x4", "text": "x", "basis": "observed",
                 "evidence": [{"kind": "message", "id": "1", "sha256": "0" * 64}]},
                {"id": "x5", "text": "anything", "basis": "reported"},
            ],
        )
    ).state  # fmt: skip
    got, notes = evidence.ground(given, str(path), "s")
    bases = {item["id"]: item["basis"] for item in got["constraints"] + got["context"]}
    assert bases == {
        "c1": "observed", "c2": "inferred", "x1": "observed", "x2": "inferred",
        "x3": "inferred", "x4": "inferred", "x5": "reported",
    }  # fmt: skip
    assert [note["pointer"] for note in notes] == [
        "/constraints/1/basis", "/context/1/basis", "/context/2/basis", "/context/3/basis",
    ]  # fmt: skip
    assert given["context"][1]["basis"] == "observed", "the given state is left as it was"


def test_a_dropped_rule_is_told_word_for_word(tmp_path: Path) -> None:
    path = host(tmp_path / "state.db", [("s", "user", "hello"), ("s", "user", RULE)])
    got = gather(path)
    records = store(tmp_path)
    lost = records.create(draft(evidence=got.frozen))
    assert dropped_candidates(records.read(lost.ref)) == [RULE]
    kept = state(constraints=[{"id": "c1", "text": RULE, "kind": "must_not"}])
    held = records.create(draft(kept, "request-0002", evidence=got.frozen))
    assert dropped_candidates(records.read(held.ref)) == []
    said = state(omissions=[{"what": RULE, "why": "no longer wanted"}])
    told = records.create(draft(said, "request-0003", evidence=got.frozen))
    assert dropped_candidates(records.read(told.ref)) == []


def test_no_message_is_stored_but_candidates(tmp_path: Path) -> None:
    path = host(tmp_path / "state.db", [("s", "user", RULE), ("s", "assistant", "PRIVATE-MUSINGS")])
    records = Records(str(tmp_path / "handoff"), guard=GUARD)
    records.create(draft(evidence=gather(path).frozen))
    stored = b"".join(p.read_bytes() for p in (tmp_path / "handoff").rglob("*") if p.is_file())
    assert b"PRIVATE-MUSINGS" not in stored


def test_git_facts_are_frozen(tmp_path: Path) -> None:
    one = repository(tmp_path / "one")
    (one / "a.py").write_text("a = 2\n")
    (one / "AGENTS.md").write_text("rules\n")
    path = host(tmp_path / "state.db", [("s", "user", "x")])
    facts = gather(path, place=bind(str(one))).frozen
    assert [c["path"] for c in facts["git"]["changed"]] == ["AGENTS.md", "a.py"]
    assert facts["rules"][0]["path"] == "AGENTS.md"
    assert str(tmp_path) not in str(facts)
