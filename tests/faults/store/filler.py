"""A process whose disk fills up: writes until it is refused, then is given room again.

``filler.py DATABASE MIGRATIONS disk`` (the database is on a tiny file system, beside a file
``ballast``) or ``... limit`` (files may grow to 400 KiB only). Prints one line of facts.
"""

from __future__ import annotations

import json
import resource
import sqlite3
import sys
from pathlib import Path

from handoff.clock import SystemClock
from handoff.errors import StorageError
from handoff.store.engine import Store

path, migrations, how = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
store = Store.open(path, clock=SystemClock(), migrations=migrations)
acknowledged: list[str] = []
refused: list[str] = []


def put(key: str) -> None:
    def fn(conn: sqlite3.Connection) -> None:
        conn.execute("INSERT INTO left_half VALUES (?)", (key,))
        conn.execute("INSERT INTO right_half VALUES (?)", (key,))

    store.write_sync(fn)
    acknowledged.append(key)


hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (400 * 1024, hard))
for i in range(5000):
    try:
        put(f"{i:05}" + "x" * 1000)
    except StorageError as exc:
        refused.append(exc.code)
        if len(refused) == 5:
            break
during = store.read(lambda c: c.execute("SELECT count(*) FROM left_half").fetchone()[0])
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
else:
    path.with_name("ballast").unlink()
before = len(acknowledged)
for i in range(5):
    put(f"after {i}")
found = store.read(lambda c: {row[0] for row in c.execute("SELECT k FROM left_half")})
pairs = store.read(lambda c: {row[0] for row in c.execute("SELECT k FROM right_half")})
facts = {
    "before": before,
    "during": during,
    "refused": refused,
    "exact": found == pairs == set(acknowledged),
    "check": store.check(),
}
store.close()
print(json.dumps(facts))
