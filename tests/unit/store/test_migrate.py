from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.errors import SchemaTooNew, StorageError
from handoff.store import migrate
from handoff.store.connection import APPLICATION_ID

SCHEMA = Path(migrate.__file__).parent / "schema.sql"

ONE = migrate.Migration(1, "one", "CREATE TABLE a (x INTEGER) STRICT; INSERT INTO a VALUES (1);")
TWO = migrate.Migration(2, "two", "CREATE TABLE b (y TEXT) STRICT;\nUPDATE a SET x = x + 1;")
BAD = migrate.Migration(2, "bad", "CREATE TABLE b (y TEXT) STRICT; INSERT INTO missing VALUES (1);")


def now() -> int:
    return 1234


@pytest.fixture
def conn(tmp_path):
    conn = sqlite3.connect(tmp_path / "db", isolation_level=None)
    yield conn
    conn.close()


def tables(conn: sqlite3.Connection) -> set[str]:
    return {row[0] for row in conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def test_schema_sql_is_the_sum_of_the_migrations():
    conn = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate.apply(conn, now, migrate.load())
        assert migrate.dump(conn) == SCHEMA.read_text("utf-8"), (
            "run: python -m handoff.store.migrate > src/handoff/store/schema.sql"
        )
    finally:
        conn.close()


def test_the_module_prints_the_schema():
    done = subprocess.run(
        [sys.executable, "-m", "handoff.store.migrate"],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stdout == SCHEMA.read_text("utf-8")


def test_every_table_is_strict():
    conn = sqlite3.connect(":memory:", isolation_level=None)
    try:
        migrate.apply(conn, now, migrate.load())
        loose = conn.execute(
            "SELECT name FROM pragma_table_list "
            "WHERE schema = 'main' AND strict = 0 AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        assert loose == []
    finally:
        conn.close()


def test_migrations_apply_in_order_and_are_recorded(conn):
    assert migrate.apply(conn, now, [ONE]) == 1
    assert migrate.apply(conn, now, [ONE, TWO]) == 2
    assert migrate.apply(conn, now, [ONE, TWO]) == 2
    assert conn.execute("SELECT x FROM a").fetchall() == [(2,)]
    assert conn.execute("SELECT * FROM schema_migration").fetchall() == [
        (1, "one", 1234),
        (2, "two", 1234),
    ]
    assert conn.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID


def test_a_migration_that_fails_leaves_the_one_before(conn):
    with pytest.raises(sqlite3.OperationalError, match="missing"):
        migrate.apply(conn, now, [ONE, BAD])
    assert migrate.version_of(conn) == 1
    assert tables(conn) == {"a", "schema_migration"}
    assert not conn.in_transaction
    assert conn.execute("PRAGMA foreign_keys").fetchone()[0] == 1
    assert migrate.apply(conn, now, [ONE, TWO]) == 2


def test_a_newer_schema_is_refused_and_left_alone(conn):
    migrate.apply(conn, now, [ONE, TWO])
    before = conn.execute("SELECT * FROM a").fetchall()
    with pytest.raises(SchemaTooNew) as caught:
        migrate.apply(conn, now, [ONE])
    assert caught.value.details == {"schema": 2, "known": 1}
    assert caught.value.remedy
    assert conn.execute("SELECT * FROM a").fetchall() == before
    assert migrate.version_of(conn) == 2


def test_another_programs_database_is_refused(conn):
    conn.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StorageError, match="another program"):
        migrate.apply(conn, now, [ONE])
    assert tables(conn) == {"theirs"}


def test_a_migration_may_rebuild_a_table_that_others_point_to(conn):
    first = migrate.Migration(
        1,
        "first",
        "CREATE TABLE p (id INTEGER PRIMARY KEY) STRICT;"
        "CREATE TABLE c (p INTEGER REFERENCES p (id)) STRICT;"
        "INSERT INTO p VALUES (7); INSERT INTO c VALUES (7);",
    )
    rebuild = migrate.Migration(
        2,
        "rebuild",
        "CREATE TABLE p2 (id INTEGER PRIMARY KEY, n TEXT) STRICT;"
        "INSERT INTO p2 SELECT id, '' FROM p; DROP TABLE p; ALTER TABLE p2 RENAME TO p;",
    )
    migrate.apply(conn, now, [first])
    assert migrate.apply(conn, now, [first, rebuild]) == 2
    assert conn.execute("SELECT * FROM c").fetchall() == [(7,)]
    with pytest.raises(sqlite3.IntegrityError):
        conn.execute("INSERT INTO c VALUES (8)")


def test_a_migration_that_leaves_a_dangling_key_is_taken_back(conn):
    first = migrate.Migration(
        1,
        "first",
        "CREATE TABLE p (id INTEGER PRIMARY KEY) STRICT;"
        "CREATE TABLE c (p INTEGER REFERENCES p (id)) STRICT;"
        "INSERT INTO p VALUES (7); INSERT INTO c VALUES (7);",
    )
    careless = migrate.Migration(2, "careless", "DELETE FROM p;")
    with pytest.raises(StorageError, match="0002_careless"):
        migrate.apply(conn, now, [first, careless])
    assert conn.execute("SELECT * FROM p").fetchall() == [(7,)]


def test_two_that_migrate_at_once_apply_each_step_once(tmp_path):
    path = tmp_path / "db"
    start = threading.Barrier(4)
    errors: list[BaseException] = []

    def upgrade() -> None:
        own = sqlite3.connect(path, isolation_level=None, timeout=10)
        try:
            start.wait(10)
            migrate.apply(own, now, [ONE, TWO])
        except BaseException as exc:
            errors.append(exc)
        finally:
            own.close()

    threads = [threading.Thread(target=upgrade) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert errors == []
    conn = sqlite3.connect(path)
    try:
        assert conn.execute("SELECT x FROM a").fetchall() == [(2,)]
    finally:
        conn.close()


# -- files and scripts -------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", [["0002_b.sql"], ["0001_a.sql", "0003_c.sql"], ["1_a.sql"], ["0001-a.sql"]]
)
def test_misnumbered_files_are_refused(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("SELECT 1;")
    with pytest.raises(StorageError):
        migrate.load(tmp_path)


def test_our_own_migrations_load():
    assert migrate.load()[0].version == 1


TRICKY = """
-- a comment; with a semicolon
CREATE TABLE t (x TEXT DEFAULT ';'); /* and; another */
CREATE TRIGGER g AFTER INSERT ON t BEGIN
  UPDATE t SET x = 'a;b';
  DELETE FROM t WHERE x = '--';
END;;
INSERT INTO t VALUES ('it''s; -- not a comment');
-- the end;
"""


def test_statements_are_split_where_sqlite_would():
    found = list(migrate.statements(TRICKY))
    assert len(found) == 3
    conn = sqlite3.connect(":memory:")
    try:
        for statement in found:
            conn.execute(statement)
        conn.commit()
    finally:
        conn.close()


def test_a_script_that_ends_inside_a_statement_is_refused():
    with pytest.raises(StorageError, match="CREATE TABLE u"):
        list(migrate.statements("SELECT 1; CREATE TABLE u (x)"))


PIECES = st.sampled_from(
    ["SELECT 1", "SELECT ';'", "SELECT 'it''s;'", "-- c;\nSELECT 2", 'SELECT ";" AS "a;b"']
)


@given(st.lists(PIECES, max_size=6), st.sampled_from(["", "\n", " /* ; */ ", "\n-- ;\n"]))
def test_any_list_of_statements_comes_back(pieces, between):
    script = "".join(piece + ";" + between for piece in pieces)
    assert len(list(migrate.statements(script))) == len(pieces)
