from __future__ import annotations

import re
import sqlite3

import pytest

from handoff.errors import StorageError
from handoff.store import migrate, sql

#: queries that may read a whole table or a whole index, and why that is cheap
MAY_SCAN = {
    "instance_get": "the table has one row",
    "project_list": "a list of everything, of a table that people fill by hand",
    "task_counts": "counts every task, from the index alone",
    "runs_not_ended": "the index holds only what is asked for",
    "outbox_tasks": "the index holds only what is asked for",
}


@pytest.fixture(scope="module")
def conn():
    conn = sqlite3.connect(":memory:", isolation_level=None)
    migrate.apply(conn, lambda: 0, migrate.load())
    yield conn
    conn.close()


def plan(conn: sqlite3.Connection, query: sql.Query) -> list[str]:
    names = re.findall(r"[:@$]([a-z_][a-z0-9_]*)", query.text)
    given = dict.fromkeys(names, 1) if names else [1] * query.text.count("?")
    return [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {query.text}", given)]


@pytest.mark.parametrize("query", sql.QUERIES.values(), ids=lambda q: q.name)
def test_every_query_fits_the_schema_and_uses_an_index(conn, query):
    steps = plan(conn, query)
    scans = [s for s in steps if s.startswith("SCAN") and not s.startswith("SCAN CONSTANT")]
    if query.name in MAY_SCAN:
        assert scans, f"{query.name} no longer scans: take it off the list"
    else:
        assert not scans


def test_every_name_on_the_list_is_a_query():
    assert set(MAY_SCAN) <= set(sql.Q)


def test_a_query_without_an_index_would_be_caught(conn):
    query = sql.Query("x", "doc", "SELECT * FROM events WHERE payload = :payload")
    assert any(step.startswith("SCAN events") for step in plan(conn, query))


def test_the_text_is_reached_by_name():
    assert {name: query.text for name, query in sql.QUERIES.items()} == sql.Q
    assert all(not text.endswith(";") for text in sql.Q.values())


SOURCE = """
-- Section: not a query.
-- name: first
-- What it is for,
-- on two lines.
SELECT 1; -- a remark

-- Section two
-- name: second
-- Another.
SELECT ';' || :a
"""


def test_parse():
    with pytest.raises(StorageError):
        sql.parse(SOURCE)  # the second has no semicolon
    found = sql.parse(SOURCE + ";")
    assert list(found) == ["first", "second"]
    assert found["first"] == sql.Query("first", "What it is for, on two lines.", "SELECT 1")
    assert found["second"].text == "SELECT ';' || :a"


@pytest.mark.parametrize(
    "source",
    [
        "-- name: a\nSELECT 1;",
        "-- name: a\n-- Doc.\n",
        "-- name: a\n-- Doc.\nSELECT 1; SELECT 2;",
        "-- name: a b\n-- Doc.\nSELECT 1;",
        "-- name:\n-- Doc.\nSELECT 1;",
        "-- name: a\n-- Doc.\nSELECT 1;\n-- name: a\n-- Doc.\nSELECT 2;",
    ],
)
def test_a_malformed_file_is_refused(source):
    with pytest.raises(StorageError):
        sql.parse(source)
