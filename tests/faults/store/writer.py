"""A process to be killed: writes pairs of rows and prints each that was acknowledged.

``writer.py DATABASE MIGRATIONS ROUND PRODUCERS [COUNT]``: every producer writes COUNT pairs
(for ever without it), one transaction each.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from pathlib import Path

from handoff.clock import SystemClock
from handoff.store.engine import Store


async def main() -> None:
    database, migrations, round_, producers = sys.argv[1:5]
    count = int(sys.argv[5]) if len(sys.argv) > 5 else sys.maxsize
    store = Store.open(Path(database), clock=SystemClock(), migrations=Path(migrations))

    async def produce(name: int) -> None:
        for i in range(count):
            key = f"{round_}:{name}:{i}"

            def fn(conn: sqlite3.Connection, key: str = key) -> None:
                conn.execute("INSERT INTO left_half VALUES (?)", (key,))
                conn.execute("INSERT INTO right_half VALUES (?)", (key,))

            await store.write(fn)
            os.write(1, f"{key}\n".encode())

    await asyncio.gather(*[produce(n) for n in range(int(producers))])
    store.close()


asyncio.run(main())
