"""Killed at any moment: what was acknowledged is there, and nothing is there by half."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from handoff.clock import SystemClock
from handoff.store import migrate
from handoff.store.engine import Store

WRITER = Path(__file__).with_name("writer.py")
TABLES = """
CREATE TABLE left_half (k TEXT PRIMARY KEY) STRICT;
CREATE TABLE right_half (k TEXT PRIMARY KEY) STRICT;
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0001_halves.sql").write_text(TABLES)
    return folder


def start(*arguments: object, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WRITER), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )


def halves(path: Path, folder: Path) -> set[str]:
    """What is in the database after recovery; fails if anything is there by half."""
    store = Store.open(path, clock=SystemClock(), migrations=folder)
    try:
        assert store.check() == []
        left, right = (
            store.read(lambda c, t=t: {row[0] for row in c.execute(f"SELECT k FROM {t}")})
            for t in ("left_half", "right_half")
        )
    finally:
        store.close()
    assert left == right
    return left


def test_kill_at_random_moments(tmp_path, folder):
    path = tmp_path / "handoff.db"
    acknowledged: set[str] = set()
    rng = random.Random(7)
    for round_ in range(8):
        with start(path, folder, round_, 20) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(1, 2000)):
                acknowledged.add(process.stdout.readline().strip())
            process.kill()
            lines = process.stdout.read().split("\n")
            acknowledged.update(lines[:-1])  # the last may be cut
            process.wait(10)
        acknowledged.discard("")
        assert acknowledged <= halves(path, folder)
    assert len(acknowledged) > 1000


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_killed_before_a_commit_nothing_of_it_is_there(tmp_path, folder, nth):
    path = tmp_path / "handoff.db"
    with start(path, folder, 0, 1, 50, HANDOFF_CRASH_AT=f"store.before_commit:{nth}") as process:
        acknowledged = set((process.communicate(timeout=15)[0]).split())
    assert process.returncode == -9
    assert halves(path, folder) == acknowledged
    assert len(acknowledged) == nth - 1


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_killed_after_a_commit_all_of_it_is_there(tmp_path, folder, nth):
    path = tmp_path / "handoff.db"
    with start(path, folder, 0, 1, 50, HANDOFF_CRASH_AT=f"store.after_commit:{nth}") as process:
        acknowledged = set((process.communicate(timeout=15)[0]).split())
    assert process.returncode == -9
    # one producer, one write a group: the last is durable and nobody was told
    assert halves(path, folder) == acknowledged | {f"0:0:{nth - 1}"}
    assert len(acknowledged) == nth - 1


def schema(path: Path) -> tuple[str, list[tuple[object, ...]]]:
    conn = sqlite3.connect(path)
    try:
        rows = conn.execute("SELECT * FROM left_half ORDER BY k").fetchall()
        return migrate.dump(conn), rows
    finally:
        conn.close()


def test_killed_anywhere_in_a_migration_the_next_start_converges(tmp_path, folder):
    (folder / "0002_fill.sql").write_text(
        "INSERT INTO left_half VALUES ('a'), ('b');"
        "CREATE INDEX by_k ON left_half (k); INSERT INTO left_half SELECT k || k FROM left_half;"
    )
    (folder / "0003_more.sql").write_text("CREATE TABLE more (x INTEGER) STRICT;")
    log = tmp_path / "points"
    with start(tmp_path / "whole.db", folder, 0, 0, HANDOFF_CRASH_LOG=str(log)) as process:
        assert process.wait(15) == 0
    points = log.read_text().split()
    assert points.count("migrate.before_commit") == 3
    assert points.count("migrate.statement") == 6
    for i, point in enumerate(points):
        path = tmp_path / f"{i}.db"
        nth = points[: i + 1].count(point)
        with start(path, folder, 0, 0, HANDOFF_CRASH_AT=f"{point}:{nth}") as process:
            assert process.wait(15) == -9
        Store.open(path, clock=SystemClock(), migrations=folder).close()
        assert schema(path) == schema(tmp_path / "whole.db"), f"{point}:{nth}"
