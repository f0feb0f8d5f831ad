"""Numbered migrations: ``migrations/NNNN_name.sql``, each with its record in one transaction.

A database is at version n when migrations 1 to n have been committed. The number stands in
``PRAGMA user_version`` and, with name and time, in the table ``schema_migration``; both are
written in the transaction of the migration itself, so a process killed at any moment
leaves a database that is wholly at one version.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from handoff.crashpoints import reach
from handoff.errors import SchemaTooNew, StorageError
from handoff.store.connection import APPLICATION_ID

MIGRATIONS = Path(__file__).parent / "migrations"

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_RECORD = """
CREATE TABLE IF NOT EXISTS schema_migration (
  version INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  applied_ms INTEGER NOT NULL
) STRICT
"""


class Migration(NamedTuple):
    """One file of the folder."""

    version: int
    name: str
    script: str


def load(folder: Path = MIGRATIONS) -> list[Migration]:
    """All migrations in order.

    Raises:
        StorageError: a file is misnamed, or the numbers are not 1, 2, 3, ... without a gap.
    """
    found = []
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise StorageError(f"{path.name} is not named NNNN_name.sql")
        found.append(Migration(int(match[1]), match[2], path.read_text("utf-8")))
    if [m.version for m in found] != list(range(1, len(found) + 1)):
        raise StorageError(f"the migrations in {folder} are not numbered 1, 2, 3, ...")
    return found


def statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one (``executescript`` would commit first).

    Raises:
        StorageError: the script ends inside a statement.
    """
    pending = ""
    *pieces, rest = script.split(";")
    for piece in pieces:
        pending += piece + ";"
        if sqlite3.complete_statement(pending):
            if _COMMENT.sub("", pending).strip(" \t\r\n;"):
                yield pending.strip()
            pending = ""
    rest = pending + rest
    if _COMMENT.sub("", rest).strip():
        raise StorageError(f"an SQL script ends inside a statement: {rest.strip()[-80:]!r}")


def version_of(conn: sqlite3.Connection) -> int:
    """The version the database is at; 0 for an empty one."""
    return int(conn.execute("PRAGMA user_version").fetchone()[0])


def pending(conn: sqlite3.Connection, known: list[Migration]) -> list[Migration]:
    """What is still to be applied. Reads only.

    Raises:
        SchemaTooNew: the database was written by a newer program.
        StorageError: the database is another program's.
    """
    own_transaction = not conn.in_transaction
    if own_transaction:  # the three facts must be of one moment: another may be migrating
        conn.execute("BEGIN")
    try:
        version = version_of(conn)
        tables = int(conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
        owner = int(conn.execute("PRAGMA application_id").fetchone()[0])
    finally:
        if own_transaction:
            conn.execute("ROLLBACK")
    if owner != APPLICATION_ID and (owner or version or tables):
        raise StorageError("the file is a database of another program", application_id=owner)
    if version > len(known):
        raise SchemaTooNew(
            f"the database has schema {version}, this Handoff knows up to {len(known)}",
            remedy="pip install --upgrade handoffd",
            schema=version,
            known=len(known),
        )
    return known[version:]


def apply(
    conn: sqlite3.Connection,
    now_ms: Callable[[], int],
    known: list[Migration],
) -> int:
    """Bring the database to the newest version; returns it.

    Foreign keys are not enforced while a migration runs (it may rebuild a table that
    others point to), but are checked as a whole before it commits.

    Raises:
        SchemaTooNew: see :func:`pending`.
        StorageError: see :func:`pending`, or a migration leaves a dangling foreign key.
        sqlite3.Error: a migration failed; the database is as it was before that one.
    """
    if not pending(conn, known):
        return version_of(conn)
    conn.execute("PRAGMA foreign_keys = OFF").close()
    try:
        while pending(conn, known):
            _apply_next(conn, now_ms, known)
    finally:
        conn.execute("PRAGMA foreign_keys = ON").close()
    return version_of(conn)


def _apply_next(
    conn: sqlite3.Connection, now_ms: Callable[[], int], known: list[Migration]
) -> None:
    conn.execute("BEGIN IMMEDIATE")
    try:
        # asked again under the lock: another process may have been faster
        for step in pending(conn, known)[:1]:
            conn.execute(_RECORD)
            for statement in statements(step.script):
                conn.execute(statement)
                reach("migrate.statement")
            broken = conn.execute("PRAGMA foreign_key_check").fetchall()
            if broken:
                raise StorageError(
                    f"migration {step.version:04d}_{step.name} leaves rows of "
                    f"'{broken[0][0]}' without their '{broken[0][2]}'"
                )
            conn.execute(
                "INSERT INTO schema_migration (version, name, applied_ms) VALUES (?, ?, ?)",
                (step.version, step.name, now_ms()),
            )
            conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            conn.execute(f"PRAGMA user_version = {step.version}")
        reach("migrate.before_commit")
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise
    reach("migrate.after_commit")


def dump(conn: sqlite3.Connection) -> str:
    """The whole schema as SQL text, in a fixed order: what ``schema.sql`` holds."""
    rows = conn.execute(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
        "ORDER BY CASE type WHEN 'table' THEN 0 WHEN 'index' THEN 1 ELSE 2 END, name"
    )
    return "".join(f"{row[0].strip()};\n\n" for row in rows).rstrip("\n") + "\n"


def _print_schema() -> None:
    import sys

    conn = sqlite3.connect(":memory:", isolation_level=None)
    try:
        apply(conn, lambda: 0, load())
        sys.stdout.write(dump(conn))
    finally:
        conn.close()


if __name__ == "__main__":  # python -m handoff.store.migrate > src/handoff/store/schema.sql
    _print_schema()
