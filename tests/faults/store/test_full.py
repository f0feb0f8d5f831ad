"""A disk that fills up, and has room again, under a store that is in use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FILLER = Path(__file__).with_name("filler.py")
TABLES = """
CREATE TABLE left_half (k TEXT PRIMARY KEY) STRICT;
CREATE TABLE right_half (k TEXT PRIMARY KEY) STRICT;
"""
#: in namespaces of its own: nothing is left behind, whatever happens
ON_TINY_DISK = (
    'mount -t tmpfs -o size=900k tmpfs "$1" && head -c 300000 /dev/zero > "$1/ballast" '
    '&& shift && exec "$@"'
)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0001_halves.sql").write_text(TABLES)
    return folder


def facts_of(command: list[str]) -> dict[str, object]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def can_mount(place: Path) -> bool:
    if not shutil.which("unshare"):
        return False
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(place)]
    return subprocess.run(probe, capture_output=True, timeout=10, check=False).returncode == 0


def test_a_full_file_system(tmp_path, folder):
    disk = tmp_path / "disk"
    disk.mkdir()
    if not can_mount(disk):
        pytest.skip("this machine lets nobody mount in a namespace of his own")
    inner = [sys.executable, str(FILLER), str(disk / "handoff.db"), str(folder), "disk"]
    facts = facts_of(["unshare", "-rm", "sh", "-c", ON_TINY_DISK, "sh", str(disk), *inner])
    assert facts["refused"] == ["storage_full"] * 5
    assert facts["before"] == facts["during"]
    assert facts["before"] > 10
    assert facts["exact"] is True
    assert facts["check"] == []


def test_a_file_that_may_not_grow(tmp_path, folder):
    path = tmp_path / "handoff.db"
    facts = facts_of([sys.executable, str(FILLER), str(path), str(folder), "limit"])
    assert len(facts["refused"]) == 5
    assert set(facts["refused"]) <= {"storage_full", "storage_failed"}
    assert facts["before"] == facts["during"]
    assert facts["exact"] is True
    assert facts["check"] == []
    assert os.stat(path).st_size > 0
