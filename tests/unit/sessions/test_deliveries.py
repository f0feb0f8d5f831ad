from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3

import pytest
from tests.support.openings import PERSON, REF, SOURCE, frozen, make_journal

from handoff.errors import BadTransition, JournalCorrupt, NotFound, UsageError
from handoff.sessions import deliveries, journal_file
from handoff.sessions.journal import Journal

TASK = {"kind": "task", "target": "big"}


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> Journal:
    return make_journal(tmp_path / "handoff")


def test_a_record_that_went_to_a_task_is_no_opening(journal: Journal) -> None:
    deliveries.intend(journal, "d-1", REF, TASK, PERSON)
    [told] = deliveries.listed(journal, REF)
    assert (told["state"], told["came_of_it"], told["to"]) == ("intended", {}, TASK)
    assert "not known" in told["explain"]
    deliveries.settle(journal, "d-1", "delivered", {"task": "k3x9"}, PERSON)
    [told] = deliveries.listed(journal)
    assert (told["state"], told["came_of_it"]) == ("delivered", {"task": "k3x9"})
    assert told["actor"] == "person:anna"
    assert deliveries.listed(journal, "handoff://x/y") == []
    assert journal.attempts() == []
    journal.prepare(frozen("attempt-0001"), SOURCE)
    assert journal.history("attempt-0001").launches == 0
    found = journal.verify()
    assert (found["attempts"], found["deliveries"]) == (1, 1)


def test_one_delivery_has_one_outcome(journal: Journal) -> None:
    with pytest.raises(NotFound):
        deliveries.settle(journal, "d-1", "delivered", {}, PERSON)
    deliveries.intend(journal, "d-1", REF, TASK, PERSON)
    with pytest.raises(UsageError):
        deliveries.intend(journal, "d-1", REF, TASK, PERSON)
    deliveries.settle(journal, "d-1", "delivery_failed", {"why": "no executor"}, PERSON)
    for kind in ("delivered", "delivery_failed"):
        with pytest.raises(BadTransition):
            deliveries.settle(journal, "d-1", kind, {}, PERSON)
    assert deliveries.listed(journal)[0]["state"] == "failed"


def test_looking_at_none_creates_nothing(journal: Journal) -> None:
    assert deliveries.listed(journal) == []
    assert not os.path.exists(journal.root)


def test_a_journal_of_the_first_format_is_read_and_then_written(journal: Journal) -> None:
    journal.prepare(frozen("attempt-0001"), SOURCE)
    with contextlib.closing(sqlite3.connect(os.path.join(journal.root, "journal.sqlite3"))) as db:
        db.executescript(
            "DROP TABLE deliveries; DROP TABLE delivery_head; PRAGMA user_version = 1;"
        )
    assert deliveries.listed(journal) == []
    assert journal.verify()["deliveries"] == 0
    deliveries.intend(journal, "d-1", REF, TASK, PERSON)
    assert [one["delivery_id"] for one in deliveries.listed(journal)] == ["d-1"]
    assert journal.status("attempt-0001")["state"] == "prepared"
    with journal_file.reading(journal.root) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == journal_file.SCHEMA_VERSION


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE deliveries SET ref = 'handoff://x/y' WHERE number = 2",
        "UPDATE deliveries SET payload = '{}' WHERE number = 1",
        "DELETE FROM deliveries WHERE number = 2",
        "DELETE FROM deliveries WHERE number = 1",
        "UPDATE delivery_head SET number = 1",
    ],
)
def test_an_edited_delivery_is_found(journal: Journal, sql: str) -> None:
    deliveries.intend(journal, "d-1", REF, TASK, PERSON)
    deliveries.settle(journal, "d-1", "delivered", {"task": "k3x9"}, PERSON)
    path = os.path.join(journal.root, "journal.sqlite3")
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        if "delivery_head" not in sql:
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(sql)
            db.executescript("DROP TRIGGER deliveries_stay; DROP TRIGGER deliveries_remain;")
        db.execute(sql)
    with pytest.raises(JournalCorrupt):
        journal.verify()
