"""Session stores as the releases of Hermes leave them: compressed in place, and taken back."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
from typing import Any

import pytest

from handoff.sessions import host_store
from handoff.sessions.evidence import went_on
from handoff.sessions.host_rows import MACHINE

RULE = "You must never touch the generated files."
SUMMARY = f"{MACHINE[0]} — REFERENCE ONLY] Earlier turns; always do as you like."
#: id, role, content, timestamp, active, compacted, message_uid: after a compression
OLDER = [
    (1, "user", RULE, 100.0, 0, 1, None),
    (2, "assistant", "one", 101.0, 0, 1, None),
    (3, "user", "go on", 102.0, 0, 1, None),
    (4, "assistant", "two", 103.0, 0, 1, None),
    (5, "user", RULE, 100.0, 1, 0, None),  # the head, written anew
    (6, "user", SUMMARY, 200.0, 1, 0, None),
    (7, "user", "go on", 200.00001, 1, 0, None),  # the tail, stamped anew
    (8, "assistant", "two", 103.0, 1, 0, None),
    (9, "user", "go on", 300.0, 1, 0, None),  # said again
]
NEWER = [
    (1, "user", RULE, 100.0, 0, 1, "a"),
    (2, "assistant", "one", 101.0, 0, 1, "b"),
    (3, "user", "go on", 102.0, 0, 0, "c"),
    (4, "assistant", "two", 103.0, 0, 0, "d"),
    (5, "user", RULE, 100.0, 1, 0, "a"),
    (6, "user", SUMMARY, 200.0, 1, 0, "e"),
    (7, "user", "go on", 102.0, 1, 0, "c"),
    (8, "assistant", "two", 103.0, 1, 0, "d"),
    (9, "user", "go on", 300.0, 1, 0, "f"),
]


def store_of(path: pathlib.Path, rows: list[tuple[Any, ...]], *columns: str) -> str:
    """A store with one session ``s``; ``columns``: those beside id, role and content."""
    every = ("timestamp", "active", "compacted", "message_uid")
    kept = [0, 1, 2, *(3 + every.index(name) for name in columns)]
    names = ["id", "role", "content", *columns]
    with contextlib.closing(sqlite3.connect(path / "state.db")) as db:
        db.execute("CREATE TABLE sessions (id TEXT, started_at REAL, source TEXT)")
        db.execute("INSERT INTO sessions VALUES ('s', 100.0, 'cli')")
        db.execute(f"CREATE TABLE messages (session_id TEXT, {', '.join(names)})")
        marks = ", ".join("?" * len(names))
        for row in rows:
            db.execute(
                f"INSERT INTO messages VALUES ('s', {marks})", [row[place] for place in kept]
            )
        db.commit()
    return str(path / "state.db")


def shown(path: str, **more: Any) -> list[tuple[str, str, str]]:
    with host_store.opened(path) as store:
        return [(one.id, one.role, one.text) for one in store.messages(["s"], **more)]


COMPRESSED = [
    pytest.param(OLDER, ("timestamp", "active", "compacted"), id="older"),
    pytest.param(NEWER, ("timestamp", "active", "compacted", "message_uid"), id="newer"),
]


@pytest.mark.parametrize(("rows", "columns"), COMPRESSED)
def test_a_compressed_session_is_read_once_and_by_its_first_ids(
    tmp_path: pathlib.Path, rows: Any, columns: tuple[str, ...]
) -> None:
    path = store_of(tmp_path, rows, *columns)
    found = shown(path)
    words = [one for one in found if one[1] != "system"]
    assert sorted(words) == [
        ("1", "user", RULE),
        ("2", "assistant", "one"),
        ("3", "user", "go on"),
        ("4", "assistant", "two"),
        ("9", "user", "go on"),
    ]
    assert [one for one in found if one[1] == "system"] == [("6", "system", SUMMARY)]
    assert found[-1] == ("9", "user", "go on")
    assert [one[0] for one in shown(path, role="user")] == ["1", "3", "9"]
    assert shown(path, last=1) == [("9", "user", "go on")]
    assert shown(path, message_id="3") == [("3", "user", "go on")]
    with host_store.opened(path) as store:
        assert store.last_message("s") == "9"


@pytest.mark.parametrize(("rows", "columns"), COMPRESSED)
def test_to_compress_is_not_to_go_on(
    tmp_path: pathlib.Path, rows: Any, columns: tuple[str, ...]
) -> None:
    path = store_of(tmp_path, rows[:-1], *columns)
    assert went_on(path, "s", "4") is False
    (tmp_path / "more").mkdir()
    assert went_on(store_of(tmp_path / "more", rows, *columns), "s", "4") is True


def test_what_the_user_took_back_was_not_said(tmp_path: pathlib.Path) -> None:
    rows = [
        (1, "user", "do it", 100.0, 1, 0, None),
        (2, "user", "always use tabs", 101.0, 0, 0, None),
        (3, "user", "use blanks", 102.0, 1, 0, None),
    ]
    path = store_of(tmp_path, rows, "timestamp", "active", "compacted")
    assert [one[2] for one in shown(path)] == ["do it", "use blanks"]
    assert shown(path, message_id="2") == []


@pytest.mark.parametrize("columns", [(), ("timestamp",), ("timestamp", "active")])
def test_a_store_without_these_columns_is_read_whole(
    tmp_path: pathlib.Path, columns: tuple[str, ...]
) -> None:
    rows = [(n, "user", f"text {n}", float(n), 1, 0, None) for n in range(1, 1203)]
    path = store_of(tmp_path, rows, *columns)
    assert [one[0] for one in shown(path)] == [str(n) for n in range(1, 1203)]
    assert [one[0] for one in shown(path, last=3)] == ["1200", "1201", "1202"]


@pytest.mark.parametrize("machine", MACHINE)
def test_what_the_host_wrote_is_not_the_users(tmp_path: pathlib.Path, machine: str) -> None:
    rows = [(1, "user", f"{machine} always obey", 1.0, 1, 0, None)]
    path = store_of(tmp_path, rows, "timestamp", "active", "compacted")
    assert shown(path, role="user") == []
    assert [one[1] for one in shown(path)] == ["system"]


def test_strange_values_are_no_traceback(tmp_path: pathlib.Path) -> None:
    rows = [
        (1, None, None, "x", None, None, None),
        (2, b"user", b"\xff\xfe", None, "1", "0", b"u"),
        (3, 7, 8, 9, 1.5, -1, 3),
    ]
    path = store_of(tmp_path, rows, "timestamp", "active", "compacted", "message_uid")
    assert [one[0] for one in shown(path)] == ["1", "2", "3"]


def test_sessions_by_when_they_were_started(tmp_path: pathlib.Path) -> None:
    path = store_of(tmp_path, [(1, "user", "x", 1.0, 1, 0, None)], "timestamp")
    with host_store.opened(path) as store:
        assert [one.id for one in store.started_since(100_000, 5)] == ["s"]
        assert store.started_since(100_001, 5) == []
        assert store.started_since(0, 0) == []
