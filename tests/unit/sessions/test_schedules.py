"""Two openers, one new session, a source, a person: in any order, cut at any point.

Each schedule runs the real opener, journal and acknowledgement step by step on a real
database. A crash is an exception that nothing catches, at one of the named points or
between two steps; whoever crashed is dead, and may come again as somebody else.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
from tests.support.openings import (
    DOCUMENT,
    PERSON,
    PROFILE,
    REF,
    SOURCE,
    QuietHost,
    frozen,
    make_journal,
    record,
)

from handoff import lifecycle
from handoff.clock import FakeClock
from handoff.errors import HandoffError, LaunchFailed
from handoff.sessions import history as past
from handoff.sessions import journal_file, opening
from handoff.sessions.acknowledge import acknowledge, read_page
from handoff.sessions.journal import Journal
from handoff.sessions.opening import Opening, Request
from handoff.sessions.owner import Owner

POINTS = [
    "journal.prepare",
    "journal.prepared",
    "journal.reserve",
    "journal.reserved",
    "journal.launch_intent",
    "journal.launch_intent.done",
    "opener.before_start",
    "opener.started",
    "journal.child_started",
    "journal.child_started.done",
    "journal.spawn_failed",
    "journal.spawn_failed.done",
    "opener.child_ended",
    "journal.exit",
    "journal.exited",
    "journal.see",
    "journal.seen",
    "journal.serve",
    "journal.served",
    "journal.ack",
    "journal.acked",
    "journal.abandon",
    "journal.abandoned",
]
TEXT = "".join(f"line {n} {'x' * 90}\n" for n in range(400))  # two pages


class Killed(BaseException):
    """kill -9."""


class NoShield:
    """Signals are of the real process; here there is none."""

    received: tuple[int, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class NoTerminal:
    """A terminal that is always there."""

    def require(self) -> None:
        pass

    def lend(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class World:
    """One schedule."""

    def __init__(self, root: pathlib.Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock()
        self.root = root
        self.alive: set[int] = set()
        self.pids = 100
        self.launches: list[str] = []
        self.nonces: dict[str, str] = {}
        self.crash_at = self.random.choice([*POINTS, ""])
        self.crash_in = self.random.randint(1, 3)
        self.crashed: list[str] = []
        self.ids = ["attempt-0001", "attempt-0001", "attempt-0002"]

    def reach(self, name: str) -> None:
        if name == self.crash_at:
            self.crash_in -= 1
            if self.crash_in == 0:
                self.crashed.append(name)
                raise Killed

    def journal(self) -> Journal:
        return make_journal(
            self.root,
            clock=self.clock,
            liveness=lambda owner: owner.pid in self.alive,
            reach=self.reach,
        )

    # -- those who act ---------------------------------------------------------------------

    def source(self) -> Iterator[object]:
        for attempt_id in dict.fromkeys(self.ids):
            self.journal().prepare(frozen(attempt_id, "/"), SOURCE)
            yield

    def opener(self) -> Iterator[object]:
        self.pids += 1
        pid = self.pids
        self.alive.add(pid)
        attempt_id = self.random.choice(self.ids)
        request = Request(REF, attempt_id, "/", PROFILE, yes=True)
        journal = self.journal()

        def identity(token: str) -> Owner:
            return Owner(pid, 1, "b", "h", token)

        def start(_launch: object, attempt: str, nonce: str, _shield: object) -> Any:
            self.check_start(attempt)
            if self.random.random() < 0.15:
                raise LaunchFailed("no such program")
            self.launches.append(attempt)
            self.nonces[attempt] = nonce
            return Program()

        run = Opening(
            journal,
            request,
            QuietHost(),
            {},
            NoTerminal(),  # type: ignore[arg-type]
            start,
            identity,
            self.reach,
        )
        try:
            yield from run.steps()
        finally:
            self.alive.discard(pid)

    def destination(self) -> Iterator[object]:
        while not self.launches:
            yield
        attempt_id = self.random.choice(self.launches)
        session = f"s-of-{attempt_id}"
        journal = self.journal()
        for page in (1, 2):
            read_page(
                journal,
                record(TEXT),
                page,
                attempt_id=attempt_id,
                session_id=session,
                profile=PROFILE,
                nonce=self.nonces[attempt_id],
            )
            yield
        acknowledge(
            journal,
            record(TEXT),
            attempt_id=attempt_id,
            session_id=session,
            ref=REF,
            digest=DOCUMENT,
            constraint_ids=["c1", "c2"],
            discrepancy_codes=["head_moved"],
            first_step="look",
        )
        yield

    def person(self) -> Iterator[object]:
        for _ in range(3):
            yield
            journal = self.journal()
            for attempt_id in journal.attempts():
                status = journal.status(attempt_id)
                if status["certainty"] == "uncertain" or self.random.random() < 0.05:
                    journal.abandon(attempt_id, "looked, and nothing is there", PERSON)
                elif status["state"] == "acknowledged":
                    journal.confirm(attempt_id, PERSON)

    # -- what must hold --------------------------------------------------------------------

    def check_start(self, attempt_id: str) -> None:
        """At the very moment of a start."""
        quiet = make_journal(self.root, liveness=lambda owner: owner.pid in self.alive)
        kinds = Counter(e.kind for e in quiet.events(attempt_id))
        assert kinds["launch_intent"] == 1, "intent before effect"
        assert attempt_id not in self.launches, "started twice"
        others = set(quiet.live(REF)) - {attempt_id}
        assert not others, f"started beside {others}"

    def check_all(self) -> list[str]:
        quiet = make_journal(self.root, liveness=lambda owner: owner.pid in self.alive)
        quiet.verify()
        states = []
        for attempt_id in quiet.attempts():
            events = quiet.events(attempt_id)
            for length in range(1, len(events) + 1):
                facts = past.fold(events[:length])
                assert facts.state in lifecycle.ATTEMPT
                assert facts.launches <= 1
            status = quiet.status(attempt_id)
            assert status["resume_verified"] is False
            assert self.launches.count(attempt_id) <= facts.launches
            if facts.state == "launch_failed":
                assert attempt_id not in self.launches, "a start that is called impossible"
            if facts.state in ("prepared", "reserved"):
                assert attempt_id not in self.launches
            states.append(facts.state + ("?" if status["certainty"] == "uncertain" else ""))
        return states

    def run(self) -> list[str]:
        makers: dict[str, Callable[[], Iterator[object]]] = {
            "source": self.source,
            "one": self.opener,
            "two": self.opener,
            "destination": self.destination,
            "person": self.person,
        }
        running = {name: maker() for name, maker in makers.items()}
        again = dict.fromkeys(makers, 3)
        for _ in range(80):
            if not running:
                break
            name = self.random.choice(list(running))
            try:
                next(running[name])
            except (StopIteration, HandoffError, Killed):
                del running[name]
                again[name] -= 1
                if again[name]:
                    running[name] = makers[name]()
            else:
                if self.random.random() < 0.02:  # killed between two steps
                    running.pop(name).close()  # type: ignore[attr-defined]
                    self.crashed.append(name)
        for left in running.values():
            left.close()  # type: ignore[attr-defined]
        return self.check_all()


class Program:
    """A child that ends as soon as it is waited for."""

    owner = Owner(7, 7, "b", "h")

    def wait(self) -> tuple[int | None, int | None]:
        return 0, None


def schedules(count: int, base: int, root: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal_file, "SYNCHRONOUS", "OFF")
    patch.setattr(journal_file, "_sync_folder", lambda _path: None)
    patch.setattr(opening, "Shield", NoShield)
    crashes: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    launches = 0
    for seed in range(base, base + count):
        world = World(root / str(seed), seed)
        try:
            ends.update(world.run())
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}, cut at {world.crashed}: {error}") from error
        shutil.rmtree(root / str(seed))
        crashes.update(world.crashed)
        launches += len(world.launches)
    assert launches > count / 4, "the schedules open something"
    assert {"closed", "abandoned", "launch_failed"} <= set(ends), ends
    assert len(set(POINTS) & set(crashes)) >= min(16, count // 8), crashes


#: HANDOFF_SCHEDULES=10000 is what a release is held to; HANDOFF_SEED starts elsewhere
COUNT = int(os.environ.get("HANDOFF_SCHEDULES", "160"))
SEED = int(os.environ.get("HANDOFF_SEED", "0"))


@pytest.mark.slow
@pytest.mark.timeout(60 + COUNT)
@pytest.mark.parametrize("part", [0, 1])
def test_no_schedule_starts_anything_twice(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    schedules(COUNT // 2, SEED + part * COUNT, tmp_path, monkeypatch)
