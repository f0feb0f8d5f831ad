from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from tests.unit.sessions import transcript_kit as kit
from tests.unit.sessions.test_transcripts import messages, snapshot

from handoff.errors import StorageError


def test_a_store_that_is_in_use_is_read_beside_its_log(tmp_path: Path) -> None:
    path = kit.opencode(tmp_path, wal=True)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(
            "INSERT INTO part VALUES ('p9', 'm3', ?, 0, ?)",
            (kit.OPENCODE, '{"type": "text", "text": "and more"}'),
        )
        db.commit()
        before = snapshot(tmp_path)
        assert messages(tmp_path, "opencode")[-1].text == "done it\nand more"
        assert snapshot(tmp_path) == before


def test_the_program_s_own_words_are_not_the_user_s(tmp_path: Path) -> None:
    kit.opencode(tmp_path)
    assert [one.text for one in messages(tmp_path, "opencode", role="system")] == ["reminder"]


@pytest.mark.parametrize("how", ["other tables", "no store"])
def test_another_form_is_told(tmp_path: Path, how: str) -> None:
    path = kit.opencode(tmp_path)
    if how == "no store":
        path.write_bytes(b"x" * 5000)
    else:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("ALTER TABLE part RENAME TO piece")
    with pytest.raises(StorageError):
        messages(tmp_path, "opencode")
