"""A process on whose disk syncs fail for a while. ``syncer.py DATABASE MIGRATIONS go|die``:
after the failed write it goes on, or kills itself. Prints one line of facts."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from handoff.clock import SystemClock
from handoff.errors import StorageError
from handoff.store.engine import Store

flag = Path(os.environ["FAIL_SYNC"])
store = Store.open(Path(sys.argv[1]), clock=SystemClock(), migrations=Path(sys.argv[2]))


def put(key: str) -> None:
    store.write_sync(lambda conn: conn.execute("INSERT INTO left_half VALUES (?)", (key,)))


def found() -> list[str]:
    return store.read(lambda c: [r[0] for r in c.execute("SELECT k FROM left_half ORDER BY k")])


put("a, before")
flag.touch()
told: list[object] = []
for _ in range(2):
    try:
        put("b, refused")
    except StorageError as exc:
        told.append([exc.code, exc.details])
print(json.dumps([told, found()]), flush=True)
if sys.argv[3] == "die":
    os.kill(os.getpid(), signal.SIGKILL)
flag.unlink()
put("c, after")
store.close()
