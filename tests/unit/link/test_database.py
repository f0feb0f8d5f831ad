from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from handoff.errors import BadRequest, StorageError, StorageFull
from handoff.link.database import Database

INSERT = "INSERT INTO node (name, token_sha256, origin, created_ms) VALUES (?, 'x', 'token', 1)"


def names(database: Database) -> list[str]:
    with database.reading() as db:
        return [row["name"] for row in db.execute("SELECT name FROM node ORDER BY name")]


def test_a_change_is_whole_or_not_at_all(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "nodes.sqlite"))
    with pytest.raises(BadRequest), database.writing() as db:
        db.execute(INSERT, ("a",))
        raise BadRequest("no")
    assert names(database) == []
    with database.writing() as db:
        db.execute(INSERT, ("a",))
    with pytest.raises(StorageError), database.writing() as db:
        db.execute(INSERT, ("b",))
        db.execute(INSERT, ("a",))
    assert names(database) == ["a"]
    database.close()


def test_a_full_disk_is_said_and_harms_nothing(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "nodes.sqlite"))
    with database.writing() as db:
        db.execute(INSERT, ("a",))
    (pages,) = database._db.execute("PRAGMA page_count").fetchone()
    database._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFull) as caught, database.writing() as db:
        for number in range(1000):
            db.execute(INSERT, (f"node {number} {'x' * 40}",))
    assert caught.value.details["path"] == database.path
    assert names(database) == ["a"]
    database.close()


def test_damage_is_said(tmp_path: Path) -> None:
    path = tmp_path / "nodes.sqlite"
    database = Database(str(path))
    with database.writing() as db:
        db.execute(INSERT, ("a",))
    database.close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)
    with pytest.raises(StorageError):
        other = Database(str(path))
        try:
            names(other)
        finally:
            other.close()


def test_threads_take_turns(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "nodes.sqlite"))
    failed: list[BaseException] = []

    def add(worker: int) -> None:
        try:
            for number in range(20):
                with database.writing() as db:
                    db.execute(INSERT, (f"{worker} {number}",))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=add, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failed == []
    assert len(names(database)) == 80
    database.close()


def test_a_row_is_a_key_or_a_token(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "nodes.sqlite"))
    query = (
        "INSERT INTO node (name, public_key, token_sha256, origin, created_ms) VALUES (?,?,?,'x',1)"
    )
    for key, token in ((None, None), (b"k", "t")):
        with pytest.raises(StorageError), database.writing() as db:
            db.execute(query, ("a", key, token))
    database.close()
    with pytest.raises(StorageError):
        names(database)
    assert sqlite3.sqlite_version_info >= (3, 37), "strict tables"
