"""Durable events a second from 100 producers, and how long one waits for its commit.

Ours: the store, one event a write, each awaited by its producer before the next.
Peer: the usual way in asyncio, aiosqlite on one connection, one commit an event, with the
same durability (WAL, ``synchronous = FULL``). Both insert the same row into the same table.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiosqlite
from common import Row, main, p50

from handoff.clock import SystemClock
from handoff.store.engine import Store

TABLE = (
    "CREATE TABLE e (seq INTEGER PRIMARY KEY AUTOINCREMENT, task_id TEXT NOT NULL, "
    "type TEXT NOT NULL, payload TEXT NOT NULL, created_at INTEGER NOT NULL) STRICT;"
    "CREATE INDEX by_task ON e (task_id, seq);"
)
INSERT = "INSERT INTO e (task_id, type, payload, created_at) VALUES (?, 'turn_started', ?, 1)"
PAYLOAD = '{"text": "' + "x" * 200 + '"}'
PRODUCERS = 100


async def drive(one: Callable[[str], Awaitable[object]], each: int) -> tuple[float, float]:
    """(events a second, p50 of the wait in milliseconds) of 100 producers."""
    waits: list[float] = []

    async def produce(name: int) -> None:
        for _ in range(each):
            began = time.perf_counter()
            await one(str(name))
            waits.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await asyncio.gather(*[produce(n) for n in range(PRODUCERS)])
    return PRODUCERS * each / (time.perf_counter() - began), p50(waits)


async def ours(folder: Path, each: int) -> tuple[float, float]:
    migrations = folder / "migrations"
    migrations.mkdir()
    (migrations / "0001_e.sql").write_text(TABLE)
    store = Store.open(folder / "ours.db", clock=SystemClock(), migrations=migrations)
    try:
        return await drive(
            lambda name: store.write(lambda conn: conn.execute(INSERT, (name, PAYLOAD)).lastrowid),
            each,
        )
    finally:
        store.close()


async def theirs(folder: Path, each: int) -> tuple[float, float]:
    async with aiosqlite.connect(folder / "theirs.db", isolation_level=None) as conn:
        await conn.execute("PRAGMA journal_mode = WAL")
        await conn.execute("PRAGMA synchronous = FULL")
        await conn.executescript(TABLE)
        return await drive(lambda name: conn.execute(INSERT, (name, PAYLOAD)), each)


def measure(quick: bool) -> list[Row]:
    each = 20 if quick else 100
    a: list[tuple[float, float]] = []
    b: list[tuple[float, float]] = []
    for _ in range(1 if quick else 3):
        with tempfile.TemporaryDirectory() as name:
            a.append(asyncio.run(ours(Path(name), each)))
            b.append(asyncio.run(theirs(Path(name), each)))
    rate, wait = p50([x[0] for x in a]), p50([x[1] for x in a])
    peer_rate, peer_wait = p50([x[0] for x in b]), p50([x[1] for x in b])
    return [
        Row(
            "durable events, 100 producers",
            "events/s",
            rate,
            15_000,
            {"aiosqlite": peer_rate},
            more=True,
        ),
        Row("event acknowledged, p50", "ms", wait, 5, {"aiosqlite": peer_wait}),
    ]


if __name__ == "__main__":
    main(measure)
