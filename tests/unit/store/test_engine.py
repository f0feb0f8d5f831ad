from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from handoff.clock import SystemClock
from handoff.errors import SchemaTooNew, StorageError, StorageFull
from handoff.store import writer
from handoff.store.engine import Store

TABLE = "CREATE TABLE kv (k TEXT PRIMARY KEY, v INTEGER NOT NULL) STRICT;"


@pytest.fixture
def folder(tmp_path):
    """Migrations that make one small table."""
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0001_kv.sql").write_text(TABLE)
    return folder


@pytest.fixture
def store(tmp_path, folder):
    store = Store.open(tmp_path / "data" / "handoff.db", clock=SystemClock(), migrations=folder)
    yield store
    store.close()


def put(key: str, value: int) -> Callable[[sqlite3.Connection], str]:
    def fn(conn: sqlite3.Connection) -> str:
        conn.execute("INSERT INTO kv (k, v) VALUES (?, ?)", (key, value))
        return key

    return fn


def everything(conn: sqlite3.Connection) -> dict[str, int]:
    return {row["k"]: row["v"] for row in conn.execute("SELECT k, v FROM kv")}


class Held:
    """Holds the writer inside a write until let go, so that what follows forms one group."""

    def __init__(self, store: Store) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()
        self.store = store
        self.thread = threading.Thread(target=self.write)

    def write(self) -> None:
        with contextlib.suppress(StorageError):  # some tests fail the group that it is in
            self.store.write_sync(self.wait)

    def wait(self, conn: sqlite3.Connection) -> None:
        self.inside.set()
        assert self.go.wait(10)

    def __enter__(self) -> Self:
        self.thread.start()
        assert self.inside.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self.thread.join(10)


async def submit(*writes: object) -> list[asyncio.Task[object]]:
    """Tasks whose writes are in the queue, in this order."""
    tasks = [asyncio.ensure_future(w) for w in writes]  # type: ignore[call-overload]
    await asyncio.sleep(0)  # each runs up to its queueing
    return tasks


# -- opening -----------------------------------------------------------------------------


def test_a_new_store_is_private(store):
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    store.write_sync(put("a", 1))
    wal = store.path.with_name("handoff.db-wal")
    assert stat.S_IMODE(wal.stat().st_mode) == 0o600


def test_a_file_that_others_could_read_is_tightened(tmp_path, folder):
    path = tmp_path / "handoff.db"
    path.touch()
    path.chmod(0o644)
    Store.open(path, clock=SystemClock(), migrations=folder).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_connection_is_durable_and_checks_keys(store):
    def pragmas(conn):
        return [
            conn.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]

    assert store.write_sync(pragmas) == ["wal", 2, 1, 5000]


def test_what_was_written_is_there_after_reopening(store, folder):
    store.write_sync(put("a", 1))
    store.close()
    again = Store.open(store.path, clock=SystemClock(), migrations=folder)
    try:
        assert again.read(everything) == {"a": 1}
    finally:
        again.close()


@pytest.mark.parametrize("content", [b"not a database, by far" * 100, b"SQLite format 3\0" * 300])
def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path, folder, content):
    path = tmp_path / "handoff.db"
    path.write_bytes(content)
    with pytest.raises(StorageError, match="damaged") as caught:
        Store.open(path, clock=SystemClock(), migrations=folder)
    assert "mv" in caught.value.remedy
    assert path.read_bytes() == content


def test_a_folder_in_the_place_of_the_file(tmp_path, folder):
    with pytest.raises(StorageError):
        Store.open(tmp_path, clock=SystemClock(), migrations=folder)


def test_a_file_in_the_place_of_the_folder(tmp_path, folder):
    (tmp_path / "data").write_text("")
    with pytest.raises(StorageError, match="data"):
        Store.open(tmp_path / "data" / "handoff.db", clock=SystemClock(), migrations=folder)


def test_a_newer_schema_is_refused(store, folder):
    store.close()
    (folder / "0002_more.sql").write_text("CREATE TABLE more (x INTEGER) STRICT;")
    Store.open(store.path, clock=SystemClock(), migrations=folder).close()
    (folder / "0002_more.sql").unlink()
    with pytest.raises(SchemaTooNew, match="schema 2"):
        Store.open(store.path, clock=SystemClock(), migrations=folder)


def test_a_failing_migration_closes_the_file(tmp_path, folder):
    (folder / "0002_bad.sql").write_text("INSERT INTO nowhere VALUES (1);")
    with pytest.raises(StorageError, match="nowhere"):
        Store.open(tmp_path / "handoff.db", clock=SystemClock(), migrations=folder)
    (folder / "0002_bad.sql").unlink()
    Store.open(tmp_path / "handoff.db", clock=SystemClock(), migrations=folder).close()


READ_ONLY = """
import os, sys
from pathlib import Path
from handoff.clock import SystemClock
from handoff.errors import StorageError
from handoff.store.engine import Store
if os.getuid() == 0:
    os.setuid(65534)  # root may write anywhere
try:
    Store.open(Path(sys.argv[1]), clock=SystemClock())
except StorageError as exc:
    print(exc.code, exc.remedy)
"""


@pytest.fixture
def open_folder():
    """A folder that any user can reach."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_that_can_not_be_written(open_folder, there):
    place = open_folder / "closed"
    place.mkdir()
    if there:
        Store.open(place / "handoff.db", clock=SystemClock()).close()
        (place / "handoff.db").chmod(0o444)
    place.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-B", "-c", READ_ONLY, str(place / "handoff.db")],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    place.chmod(0o755)
    assert done.stdout.startswith("storage_failed ls -ld"), done.stderr


# -- writing -----------------------------------------------------------------------------


async def test_a_write_returns_what_its_function_returned(store):
    assert await store.write(put("a", 1)) == "a"
    assert store.read(everything) == {"a": 1}


async def test_an_exception_takes_back_only_its_own(store):
    def half(conn):
        conn.execute("INSERT INTO kv VALUES ('half', 1)")
        raise ValueError("in the middle")

    with Held(store):
        tasks = await submit(
            store.write(put("a", 1)),
            store.write(half),
            store.write(put("a", 2)),  # the key is taken
            store.write(put("b", 3)),
        )
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[0] == "a"
    assert isinstance(outcomes[1], ValueError)
    assert isinstance(outcomes[2], sqlite3.IntegrityError)
    assert outcomes[3] == "b"
    assert store.read(everything) == {"a": 1, "b": 3}
    facts = store.stats()
    assert (facts.writes, facts.refused) == (3, 2)


@pytest.mark.parametrize(
    "sql",
    ["COMMIT", "ROLLBACK", "BEGIN", "END", "SAVEPOINT mine", "RELEASE one", "ROLLBACK TO one"],
)
async def test_a_write_can_not_end_the_transaction(store, sql):
    def meddle(conn):
        conn.execute("INSERT INTO kv VALUES ('mine', 1)")
        conn.execute(sql)

    with Held(store):
        tasks = await submit(store.write(put("a", 1)), store.write(meddle))
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert outcomes[0] == "a"
    assert isinstance(outcomes[1], sqlite3.DatabaseError)
    assert store.read(everything) == {"a": 1}


@pytest.mark.parametrize("how", ["commit", "rollback"])
async def test_nor_through_the_methods_of_the_connection(store, how):
    def meddle(conn):
        conn.execute("INSERT INTO kv VALUES ('mine', 1)")
        getattr(conn, how)()

    with pytest.raises(sqlite3.DatabaseError):
        await store.write(meddle)
    assert store.read(everything) == {}


async def test_a_write_that_makes_sqlite_drop_the_transaction_fails_its_group(store):
    def drop(conn):
        conn.execute("INSERT OR ROLLBACK INTO kv VALUES ('a', 9)")

    with Held(store):
        tasks = await submit(
            store.write(put("a", 1)), store.write(drop), store.write(put("later", 2))
        )
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[0], StorageError)
    assert isinstance(outcomes[1], sqlite3.IntegrityError)
    assert outcomes[2] == "later"  # it had not begun: it is in the next group
    assert store.read(everything) == {"later": 2}


async def test_stop_iteration_reaches_its_caller_as_an_error(store):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await store.write(lambda _: next(iter(())))


async def test_a_write_inside_a_write_is_refused(store):
    with pytest.raises(StorageError, match="inside"):
        await store.write(lambda _: store.write_sync(put("a", 1)))
    assert await store.write(put("b", 1)) == "b"


async def test_a_hundred_producers_share_commits_and_keep_their_order(store):
    done: list[str] = []

    async def produce(name: int) -> None:
        for i in range(20):
            done.append(await store.write(put(f"{name}:{i}", i)))

    await asyncio.gather(*[produce(n) for n in range(100)])
    assert len(store.read(everything)) == 2000
    assert len(done) == 2000
    facts = store.stats()
    assert facts.writes == 2000
    assert facts.groups < 1000
    assert facts.largest_group > 1
    order = store.read(lambda c: [row[0] for row in c.execute("SELECT k FROM kv ORDER BY rowid")])
    for name in range(100):
        assert [k for k in order if k.startswith(f"{name}:")] == [f"{name}:{i}" for i in range(20)]


async def test_a_long_queue_is_cut_into_groups(store, monkeypatch):
    monkeypatch.setattr(writer, "GROUP_MAX", 10)
    with Held(store):
        tasks = await submit(*[store.write(put(str(i), i)) for i in range(35)])
    await asyncio.gather(*tasks)
    facts = store.stats()
    assert facts.groups >= 4
    assert facts.largest_group <= 10


def test_threads_write_too(store):
    def produce(name: int) -> None:
        for i in range(20):
            store.write_sync(put(f"{name}:{i}", i))

    threads = [threading.Thread(target=produce, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(store.read(everything)) == 160


def test_write_sync_raises_what_the_function_raised(store):
    with pytest.raises(ZeroDivisionError):
        store.write_sync(lambda _: 1 // 0)


async def test_nothing_is_answered_before_the_commit(store):
    seen: list[str] = []
    store.on_commit = seen.append
    await store.write(put("a", 1))
    assert seen == ["before_commit", "after_commit"]


async def test_a_cancelled_write_that_had_not_begun_is_not_applied(store):
    with Held(store):
        first, second = await submit(store.write(put("a", 1)), store.write(put("b", 2)))
        first.cancel()
        await asyncio.wait([first])
    assert await second == "b"
    assert store.read(everything) == {"b": 2}


async def test_a_write_cancelled_while_it_runs_is_applied_whole(store):
    inside, go = threading.Event(), threading.Event()

    def slow(conn):
        conn.execute("INSERT INTO kv VALUES ('a', 1)")
        inside.set()
        assert go.wait(10)
        conn.execute("INSERT INTO kv VALUES ('b', 2)")

    task = asyncio.ensure_future(store.write(slow))
    await asyncio.to_thread(inside.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await store.write(put("c", 3))
    assert store.read(everything) == {"a": 1, "b": 2, "c": 3}


def test_a_loop_that_is_gone_does_not_stop_the_writer(store):
    async def leave() -> None:
        task = asyncio.ensure_future(store.write(put("a", 1)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    with Held(store):
        asyncio.run(leave())
    assert store.write_sync(put("b", 1)) == "b"


# -- commits that fail -------------------------------------------------------------------


def limit_pages(store: Store, extra: int | None) -> None:
    """Let the database grow by so many pages only: SQLite then says that the disk is full."""

    def fn(conn):
        pages = conn.execute("PRAGMA page_count").fetchone()[0]
        limit = 2**30 if extra is None else pages + extra
        conn.execute(f"PRAGMA max_page_count = {limit}").fetchone()

    store.write_sync(fn)


def big(key: str) -> Callable[[sqlite3.Connection], None]:
    def fn(conn: sqlite3.Connection) -> None:
        for i in range(200):
            conn.execute("INSERT INTO kv VALUES (?, 1)", (f"{key}{i}" + "x" * 500,))

    return fn


async def test_a_full_disk_is_told_and_ends_when_space_returns(store):
    store.write_sync(put("before", 1))
    limit_pages(store, 3)
    with pytest.raises(StorageFull) as caught:
        await store.write(big("a"))
    assert caught.value.remedy.startswith("df -h")
    assert store.read(everything) == {"before": 1}
    limit_pages(store, None)
    await store.write(big("a"))
    assert len(store.read(everything)) == 201


async def test_a_failed_commit_fails_the_whole_group(store):
    def fail(moment: str) -> None:
        if moment == "before_commit":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    with Held(store):
        tasks = await submit(*[store.write(put(str(i), i)) for i in range(5)])
        store.on_commit = fail
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(o) for o in outcomes] == [StorageFull] * 5
    assert len({id(o) for o in outcomes}) == 5
    assert store.read(everything) == {}
    store.on_commit = None
    assert await store.write(put("0", 1)) == "0"
    assert store.stats().failed_groups == 1


async def test_a_commit_that_sqlite_refuses_fails_the_whole_group(tmp_path, folder):
    (folder / "0002_child.sql").write_text(
        "CREATE TABLE child (k TEXT REFERENCES kv (k) DEFERRABLE INITIALLY DEFERRED) STRICT;"
    )
    store = Store.open(tmp_path / "handoff.db", clock=SystemClock(), migrations=folder)
    try:
        with Held(store):
            tasks = await submit(
                store.write(put("a", 1)),
                # nothing is wrong with it before the commit
                store.write(lambda c: c.execute("INSERT INTO child VALUES ('nobody')").close()),
            )
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(o) for o in outcomes] == [StorageError] * 2
        assert isinstance(outcomes[0].__cause__, sqlite3.IntegrityError)
        assert outcomes[0].details == {}  # known: nothing was applied
        assert store.read(everything) == {}
        assert await store.write(put("b", 2)) == "b"
        assert store.read(everything) == {"b": 2}
        assert store.write_sync(lambda c: c.execute("PRAGMA synchronous").fetchone()[0]) == 2
        assert store.check() == []
    finally:
        store.close()


async def test_a_failed_commit_that_can_not_be_cleaned_up_is_told(store, monkeypatch):
    writer_ = store._writer
    erase = writer_._erase

    def refuse(conn: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("still sick")

    def fail(moment: str) -> None:
        if moment == "before_commit":
            writer_._dirty = True  # as if the sync had failed
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(writer_, "_erase", refuse)
    store.on_commit = fail
    with pytest.raises(StorageError) as caught:
        await store.write(put("a", 1))
    assert caught.value.details == {"unknown": True}
    store.on_commit = None
    with pytest.raises(StorageError, match="still sick"):
        await store.write(put("b", 1))
    monkeypatch.setattr(writer_, "_erase", erase)
    assert await store.write(put("c", 1)) == "c"
    assert store.read(everything) == {"c": 1}


async def test_a_database_that_was_replaced_is_not_written_to(store):
    await store.write(put("a", 1))
    moved = store.path.with_name("moved.db")
    store.path.rename(moved)
    with pytest.raises(StorageError, match="removed or replaced"):
        await store.write(put("b", 1))
    moved.rename(store.path)
    assert await store.write(put("b", 1)) == "b"


async def test_another_process_that_holds_the_lock_is_named(store, monkeypatch):
    store.write_sync(lambda c: c.execute("PRAGMA busy_timeout = 50").fetchone())
    other = sqlite3.connect(store.path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked"):
            await store.write(put("a", 1))
        other.execute("ROLLBACK")
        assert await store.write(put("a", 1)) == "a"
    finally:
        other.close()


# -- reading -----------------------------------------------------------------------------


def test_readers_can_not_write(store):
    with pytest.raises(sqlite3.OperationalError):
        store.reader().execute("INSERT INTO kv VALUES ('a', 1)")
    with pytest.raises(StorageError):
        store.read(put("a", 1))


def test_a_read_sees_one_moment(store):
    store.write_sync(put("a", 1))

    def twice(conn):
        before = everything(conn)
        store.write_sync(put("b", 2))
        inner = store.read(everything)  # a read inside a read: the same moment
        return before, inner, everything(conn)

    assert store.read(twice) == ({"a": 1},) * 3
    assert store.read(everything) == {"a": 1, "b": 2}


def test_an_exception_in_a_read_ends_its_snapshot(store):
    with pytest.raises(ZeroDivisionError):
        store.read(lambda c: (everything(c) and None) or 1 // 0)
    store.write_sync(put("a", 1))
    assert store.read(everything) == {"a": 1}


async def test_reads_in_a_thread_of_their_own(store):
    await store.write(put("a", 1))
    found = await asyncio.gather(*[store.read_async(everything) for _ in range(10)])
    assert found == [{"a": 1}] * 10


def test_readers_end_with_their_threads(store):
    for _ in range(20):
        thread = threading.Thread(target=lambda: store.read(everything))
        thread.start()
        thread.join(10)
    assert len(store._readers) <= 1


# -- closing and copies ------------------------------------------------------------------


async def test_close_commits_what_was_handed_over(store, folder):
    with Held(store) as held:
        tasks = await submit(*[store.write(put(str(i), i)) for i in range(50)])
        closing = asyncio.ensure_future(asyncio.to_thread(store.close))
        while not store._closed:  # its gate is shut before it waits for the writer
            await asyncio.sleep(0)
        held.go.set()
    await closing
    await asyncio.gather(*tasks)
    store.close()
    assert not store.path.with_name("handoff.db-wal").exists()
    again = Store.open(store.path, clock=SystemClock(), migrations=folder)
    try:
        assert len(again.read(everything)) == 50
    finally:
        again.close()


async def test_a_closed_store_says_so(store, tmp_path):
    store.close()
    for call in (
        lambda: store.read(everything),
        store.reader,
        lambda: store.write_sync(put("a", 1)),
        lambda: store.backup(tmp_path / "copy"),
    ):
        with pytest.raises(StorageError, match="closed"):
            call()
    with pytest.raises(StorageError, match="closed"):
        await store.write(put("a", 1))
    with pytest.raises(StorageError, match="closed"):
        await store.read_async(everything)


def test_a_backup_is_a_whole_private_copy(store, tmp_path, folder):
    for i in range(50):
        store.write_sync(put(str(i), i))
    target = tmp_path / "copies" / "handoff.db"
    store.backup(target)
    store.write_sync(put("later", 1))
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    copy = Store.open(target, clock=SystemClock(), migrations=folder)
    try:
        assert copy.read(everything) == {str(i): i for i in range(50)}
        assert copy.check() == []
    finally:
        copy.close()
    with pytest.raises(StorageError, match="exists"):
        store.backup(target)


def test_a_backup_that_fails_leaves_no_half(store):
    with pytest.raises(StorageError):
        store.backup(Path("/proc/nowhere/copy.db"))


def test_check_finds_a_damaged_page(store, folder):
    for i in range(500):
        store.write_sync(put(f"{i:0100}", i))
    assert store.check() == []
    store.close()
    data = bytearray(store.path.read_bytes())
    data[3 * 4096 : 4 * 4096] = b"\xff" * 4096
    store.path.write_bytes(data)
    damaged = Store.open(store.path, clock=SystemClock(), migrations=folder)
    try:
        try:
            found = damaged.check()
        except StorageError as exc:
            found = [str(exc)]
        assert found
    finally:
        damaged.close()


def test_figures(store):
    store.write_sync(put("a", 1))
    facts = store.stats()
    assert (facts.schema, facts.waiting) == (1, 0)
    assert facts.database_bytes > 0
    assert facts.wal_bytes > 0
    assert facts.busy_s >= 0
