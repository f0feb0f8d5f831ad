from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

from tests.unit.sessions.records_kit import repository, store
from tests.unit.sessions.test_evidence import RULE, host

from handoff.clock import FakeClock
from handoff.sessions.profile import Profile
from handoff.sessions.sweep import sweep

HOUR = 3_600_000


def test_a_session_that_nobody_handed_off_gets_one_draft(tmp_path: Path) -> None:
    one = repository(tmp_path / "one")
    path = host(
        tmp_path / "state.db",
        [("s", "user", "mend the parser"), ("s", "user", RULE), ("s", "assistant", "done"),
         ("talk", "user", "hello"), ("lost", "user", "x")],
    )  # fmt: skip
    called = json.dumps([{"function": {"name": "write_file", "arguments": "{}"}}])
    with sqlite3.connect(path) as db:
        db.execute("UPDATE sessions SET cwd = ?", (str(one),))
        db.execute("UPDATE sessions SET cwd = ? WHERE id = 'lost'", (str(tmp_path / "gone"),))
        db.execute("UPDATE messages SET tool_calls = ? WHERE session_id <> 'talk'", (called,))
    db.close()
    profile = Profile("default", str(tmp_path), str(tmp_path))
    clock = FakeClock(1_700_000_000_000 + 10 * HOUR)
    records = store(tmp_path, clock=clock)
    assert sweep(records, profile, idle_ms=20 * HOUR) == {"drafts": [], "skipped": []}
    would = sweep(records, profile, idle_ms=HOUR, dry_run=True)
    assert {draft["session"] for draft in would["drafts"]} == {"s", "lost"}
    assert not (tmp_path / "handoff").exists()
    told = sweep(records, profile, idle_ms=HOUR)
    (made,) = told["drafts"]
    assert made["session"] == "s"
    assert told["skipped"][0]["session"] == "lost"
    assert told["skipped"][0]["why"].startswith("workspace_missing")
    found = records.read(made["ref"])
    assert found.state["goal"]["text"] == "mend the parser"
    assert [item["text"] for item in found.state["constraints"]] == [RULE]
    assert {item["basis"] for item in found.state["constraints"]} == {"reported"}
    assert (found.manifest["origin"], found.manifest["writer"]["kind"]) == ("sweep", "sweeper")
    assert sweep(records, profile, idle_ms=HOUR)["drafts"] == []
    shutil.rmtree(one)
    assert records.read(made["ref"]).ref == made["ref"]
