"""Suite D1: two openers, one new session, a source, a person, in any order, cut at any point.

Each schedule runs the real opener, journal and acknowledgement step by step on a real
database. A crash is an exception that nothing catches, at one of the named points or
between two steps; whoever crashed is dead, and may come again as somebody else.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from handoff import lifecycle
from handoff.clock import FakeClock
from handoff.errors import HandoffError, LaunchFailed
from handoff.sessions import history as past
from handoff.sessions.acknowledge import acknowledge, read_page
from handoff.sessions.bench import Metric, scratch
from handoff.sessions.bench.stage import (
    DOCUMENT,
    PERSON,
    PROFILE,
    REF,
    SOURCE,
    NoTerminal,
    Program,
    QuietHost,
    frozen,
    hasty,
    journal,
    record,
)
from handoff.sessions.journal import Journal
from handoff.sessions.opening import Opening, Request
from handoff.sessions.owner import Owner

#: where a schedule may be cut
POINTS = (
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
)
STEPS = 80


class Killed(BaseException):
    """kill -9."""


class Broken(Exception):
    """What must never be was seen."""


class Played(NamedTuple):
    """Many schedules. ``twice``, ``illegal``: how many broke which rule, with the first
    one's words in ``first``."""

    played: int
    twice: int
    illegal: int
    launches: int
    ends: Counter[str]
    cut: Counter[str]
    first: str


class World:
    """One schedule, decided by its seed."""

    def __init__(self, root: str, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 -- no secret, a schedule
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
        self.twice: list[str] = []

    def reach(self, name: str) -> None:
        """A point at which it may be cut."""
        if name == self.crash_at:
            self.crash_in -= 1
            if self.crash_in == 0:
                self.crashed.append(name)
                raise Killed

    def journal(self) -> Journal:
        """The journal as somebody opens it who may crash."""
        return journal(self.root, self.clock, lambda owner: owner.pid in self.alive, self.reach)

    def quiet(self) -> Journal:
        """The journal as whoever only looks opens it."""
        return journal(self.root, liveness=lambda owner: owner.pid in self.alive)

    # -- those who act ---------------------------------------------------------------------

    def source(self) -> Iterator[object]:
        """Prepares both attempts."""
        for attempt_id in dict.fromkeys(self.ids):
            self.journal().prepare(frozen(attempt_id, "/"), SOURCE)
            yield None

    def opener(self) -> Iterator[object]:
        """Opens one of them."""
        self.pids += 1
        pid = self.pids
        self.alive.add(pid)
        request = Request(REF, self.random.choice(self.ids), "/", PROFILE, yes=True)

        def identity(token: str) -> Owner:
            return Owner(pid, 1, "b", "h", token)

        def start(_launch: object, attempt: str, nonce: str, _shield: object) -> Any:
            self._look_at_start(attempt)
            if self.random.random() < 0.15:
                raise LaunchFailed("no such program")
            self.launches.append(attempt)
            self.nonces[attempt] = nonce
            return Program()

        terminal: Any = NoTerminal()
        run = Opening(
            self.journal(), request, QuietHost(), {}, terminal, start, identity, self.reach
        )
        try:
            yield from run.steps()
        finally:
            self.alive.discard(pid)

    def destination(self) -> Iterator[object]:
        """The new session reads and acknowledges."""
        while not self.launches:
            yield None
        attempt_id = self.random.choice(self.launches)
        session = f"s-of-{attempt_id}"
        book = self.journal()
        for page in (1, 2):
            read_page(
                book,
                record(),
                page,
                attempt_id=attempt_id,
                session_id=session,
                profile=PROFILE,
                nonce=self.nonces[attempt_id],
            )
            yield None
        acknowledge(
            book,
            record(),
            attempt_id=attempt_id,
            session_id=session,
            ref=REF,
            digest=DOCUMENT,
            constraint_ids=["c1", "c2"],
            discrepancy_codes=["head_moved"],
            first_step="look",
        )
        yield None

    def person(self) -> Iterator[object]:
        """Gives up what is uncertain, confirms what is acknowledged."""
        for _ in range(3):
            yield None
            book = self.journal()
            for attempt_id in book.attempts():
                status = book.status(attempt_id)
                if status["certainty"] == "uncertain" or self.random.random() < 0.05:
                    book.abandon(attempt_id, "looked, and nothing is there", PERSON)
                elif status["state"] == "acknowledged":
                    book.confirm(attempt_id, PERSON)

    # -- what must hold --------------------------------------------------------------------

    def _look_at_start(self, attempt_id: str) -> None:
        """At the very moment of a start: the intent is written, and nothing else lives."""
        quiet = self.quiet()
        kinds = Counter(event.kind for event in quiet.events(attempt_id))
        if kinds["launch_intent"] != 1:
            self.twice.append(f"{kinds['launch_intent']} intents at the start of {attempt_id}")
        if attempt_id in self.launches:
            self.twice.append(f"{attempt_id} is started again")
        others = set(quiet.live(REF)) - {attempt_id}
        if others:
            self.twice.append(f"{attempt_id} is started beside {sorted(others)}")

    def _look_at_end(self) -> list[str]:
        quiet = self.quiet()
        quiet.verify()
        states = []
        for attempt_id in quiet.attempts():
            events = quiet.events(attempt_id)
            for length in range(1, len(events) + 1):
                facts = past.fold(events[:length])
                _must(facts.state in lifecycle.ATTEMPT, f"no such state as {facts.state}")
                _must(facts.launches <= 1, f"{facts.launches} intents of {attempt_id}")
            facts = past.fold(events)
            status = quiet.status(attempt_id)
            _must(status["resume_verified"] is False, "resume_verified")
            started = self.launches.count(attempt_id)
            _must(started <= facts.launches, f"{attempt_id} started without an intent")
            if facts.state in ("prepared", "reserved", "launch_failed"):
                _must(started == 0, f"{attempt_id} was started, and is called {facts.state}")
            states.append(facts.state + ("?" if status["certainty"] == "uncertain" else ""))
        return states

    def run(self) -> list[str]:
        """Play it; the states at its end.

        Raises:
            Broken: what must never be was seen.
        """
        makers: dict[str, Callable[[], Iterator[object]]] = {
            "source": self.source,
            "one": self.opener,
            "two": self.opener,
            "destination": self.destination,
            "person": self.person,
        }
        running: dict[str, Any] = {name: maker() for name, maker in makers.items()}
        again = dict.fromkeys(makers, 3)
        for _ in range(STEPS):
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
                    running.pop(name).close()
                    self.crashed.append(name)
        for left in running.values():
            left.close()
        return self._look_at_end()


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def play(count: int, base: int, tick: Callable[[int], None] = lambda _done: None) -> Played:
    """That many schedules, from seed ``base`` on. ``tick``: told how many are done."""
    cut: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    twice = illegal = launches = 0
    first = ""
    with scratch.folder() as folder, hasty():
        for number in range(count):
            place = os.path.join(folder, str(number))
            world = World(place, base + number)
            try:
                ends.update(world.run())
            except (Broken, HandoffError) as error:
                illegal += 1
                first = first or f"schedule {base + number}, cut at {world.crashed}: {error}"
            if world.twice:
                twice += 1
                first = first or f"schedule {base + number}: {world.twice[0]}"
            shutil.rmtree(place, ignore_errors=True)
            cut.update(world.crashed)
            launches += len(world.launches)
            tick(number + 1)
    return Played(count, twice, illegal, launches, ends, cut, first)


def metrics(
    seed: int, count: int, tick: Callable[[int], None] = lambda _done: None
) -> list[Metric]:
    """The rows of the suite."""
    played = play(count, seed * 1_000_000, tick)
    reached = len(set(POINTS) & set(played.cut))
    return [
        Metric("D1 schedules without a second launch", count - played.twice, count, 10_000),
        Metric("D1 schedules without an illegal state", count - played.illegal, count, 10_000),
        # A cut is drawn, so that few schedules reach few points.
        Metric("D1 crash points that were cut at", reached, len(POINTS),
               9500 if count >= 1000 else None),
        Metric("D1 launches in these schedules", played.launches, count, 2500),
    ]  # fmt: skip
