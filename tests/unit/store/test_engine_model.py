"""The store against a dict: whatever is asked for, in whatever order, the two agree."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from handoff.clock import FakeClock
from handoff.errors import StorageError, StorageFull
from handoff.store.engine import Store

KEYS = st.sampled_from("abcde")
OPERATION = st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(0, 9)),
    st.tuples(st.just("add"), KEYS, st.integers(1, 9)),
    st.tuples(st.just("drop"), KEYS, st.just(0)),
    st.tuples(st.just("half"), KEYS, st.integers(0, 9)),
    st.tuples(st.just("meddle"), KEYS, st.integers(0, 9)),
    st.tuples(st.just("sub"), KEYS, st.integers(0, 9)),
)
Op = tuple[str, str, int]


class Stop(Exception):
    """Raised in the middle of a write."""


def upsert(conn: sqlite3.Connection, key: str, value: int) -> None:
    conn.execute("INSERT OR REPLACE INTO kv VALUES (?, ?)", (key, value))


def real(op: Op):
    """The write that does it; its result is the value the key had before."""
    what, key, value = op

    def fn(conn: sqlite3.Connection) -> int | None:
        row = conn.execute("SELECT v FROM kv WHERE k = ?", (key,)).fetchone()
        before = None if row is None else int(row[0])
        if what == "put":
            upsert(conn, key, value)
        elif what == "add":
            upsert(conn, key, (before or 0) + value)
        elif what == "drop":
            conn.execute("DELETE FROM kv WHERE k = ?", (key,))
        elif what == "half":
            upsert(conn, key, value)
            conn.execute("DELETE FROM kv WHERE k <> ?", (key,))
            raise Stop
        elif what == "meddle":
            upsert(conn, key, value)
            conn.execute("COMMIT")
        else:
            try:  # a broken constraint that the function itself deals with
                conn.execute("INSERT INTO kv VALUES (?, NULL)", (key,))
            except sqlite3.IntegrityError:
                upsert(conn, key, value)
        return before

    return fn


def apply(model: dict[str, int], op: Op) -> int | type[Exception] | None:
    what, key, value = op
    before = model.get(key)
    if what == "half":
        return Stop
    if what == "meddle":
        return sqlite3.DatabaseError
    if what == "drop":
        model.pop(key, None)
    else:
        model[key] = value + (before or 0) * (what == "add")
    return before


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        root = Path(self.folder.name)
        (root / "migrations").mkdir()
        (root / "migrations" / "0001_kv.sql").write_text(
            "CREATE TABLE kv (k TEXT PRIMARY KEY, v INTEGER NOT NULL) STRICT;"
        )
        self.root = root
        self.model: dict[str, int] = {}
        self.copies = 0
        self.store = self.open(root / "handoff.db")

    def open(self, path: Path) -> Store:
        return Store.open(path, clock=FakeClock(), migrations=self.root / "migrations")

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def run(self, ops: list[Op]) -> list[object]:
        async def together() -> list[object]:
            writes = [self.store.write(real(op)) for op in ops]
            return await asyncio.gather(*writes, return_exceptions=True)

        return asyncio.run(together())

    @rule(ops=st.lists(OPERATION, max_size=8))
    def write_together(self, ops: list[Op]) -> None:
        for op, outcome in zip(ops, self.run(ops), strict=True):
            expected = apply(self.model, op)
            if isinstance(expected, type):
                assert isinstance(outcome, expected), (op, outcome)
            else:
                assert outcome == expected, (op, outcome)

    @rule(op=OPERATION)
    def write_from_a_thread(self, op: Op) -> None:
        expected = apply(self.model, op)
        try:
            outcome: object = self.store.write_sync(real(op))
        except Exception as exc:
            assert isinstance(expected, type)
            assert isinstance(exc, expected)
        else:
            assert outcome == expected

    @rule(ops=st.lists(OPERATION, min_size=1, max_size=8), full=st.booleans())
    def commit_fails(self, ops: list[Op], full: bool) -> None:
        def fail(moment: str) -> None:
            if moment == "before_commit":
                error = sqlite3.OperationalError("no")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
                raise error

        self.store.on_commit = fail
        outcomes = self.run(ops)
        self.store.on_commit = None
        for op, outcome in zip(ops, outcomes, strict=True):
            if op[0] not in {"half", "meddle"}:
                assert isinstance(outcome, StorageFull if full else StorageError)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open(self.root / "handoff.db")

    @precondition(lambda self: self.copies < 3)
    @rule()
    def go_on_with_a_copy(self) -> None:
        self.copies += 1
        copy = self.root / f"copy{self.copies}.db"
        self.store.backup(copy)
        self.store.close()
        copy.replace(self.root / "handoff.db")
        self.store = self.open(self.root / "handoff.db")

    @invariant()
    def they_agree(self) -> None:
        found = self.store.read(lambda c: c.execute("SELECT k, v FROM kv").fetchall())
        assert {row["k"]: row["v"] for row in found} == self.model


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
