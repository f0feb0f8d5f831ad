"""A disk that takes writes but fails to sync them: what was refused must not come back.

SQLite writes a commit before it syncs it. If the sync fails, the commit stands whole in the
WAL, and a process that recovers from it later would find a write that its caller was told
had failed.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE = "CREATE TABLE left_half (k TEXT NOT NULL) STRICT;"

pytestmark = pytest.mark.skipif(
    not (sys.platform == "linux" and shutil.which("cc")),
    reason="needs Linux and a C compiler to make syncs fail",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("sync") / "failing_sync.so"
    source = str(HERE / "failing_sync.c")
    command = ["cc", "-shared", "-fPIC", "-o", str(made), source, "-ldl"]
    subprocess.run(command, check=True, timeout=20)
    return made


@pytest.mark.parametrize(
    ("then", "kept"), [("go", ["a, before", "c, after"]), ("die", ["a, before"])]
)
def test_a_write_that_was_refused_does_not_come_back(tmp_path, library, then, kept):
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / "0001_t.sql").write_text(TABLE)
    path = tmp_path / "handoff.db"
    done = subprocess.run(
        [sys.executable, str(HERE / "syncer.py"), str(path), str(tmp_path / "migrations"), then],
        env={**os.environ, "LD_PRELOAD": str(library), "FAIL_SYNC": str(tmp_path / "flag")},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == (0 if then == "go" else -9), done.stderr
    told, seen = json.loads(done.stdout)
    assert told == [["storage_failed", {}]] * 2
    assert seen == ["a, before"]
    conn = sqlite3.connect(path)
    try:
        assert [row[0] for row in conn.execute("SELECT k FROM left_half ORDER BY k")] == kept
    finally:
        conn.close()
