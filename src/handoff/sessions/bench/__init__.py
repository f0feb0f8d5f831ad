"""Four suites that measure handoffs without a model: what is preserved (A), which secrets
are found and which facts stay (B), which faults of a state are named (C), and whether anything
is ever started twice (D).

Seeded and offline: the same seed gives the same report, byte for byte, on every machine. The
report holds no time; how fast the redactor is and what it does to documents at hand is
:func:`measured` beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from handoff.sessions import canonical

SCALE = 10_000
SUITES = ("A", "B", "C", "D")
#: rounds of suite D by default; a release is held to :data:`FULL`. A round is one killed
#: process and ten schedules.
ROUNDS, FULL = 22, 1000
SCHEDULES = 10


class Metric(NamedTuple):
    """One figure. ``hits`` of ``total``; ``gate``: the least share that is allowed, in
    hundredths of a percent; None if the figure is only published."""

    name: str
    hits: int
    total: int
    gate: int | None

    @property
    def share(self) -> int:
        """Hits of total, in hundredths of a percent, rounded down."""
        return SCALE * self.hits // self.total if self.total else SCALE

    @property
    def passed(self) -> bool:
        """Whether the gate holds; a gate over nothing does not."""
        return self.gate is None or (self.total > 0 and self.share >= self.gate)

    def to_json(self) -> dict[str, object]:
        """As a row of the report."""
        return {**self._asdict(), "share": self.share, "passed": self.passed}


#: told which suite is at work, and how much of how much of it is done
Tick = Callable[[str, int, int], None]


def _silent(_suite: str, _done: int, _of: int) -> None:
    """Nobody watches."""


def run(
    seed: int = 1, suites: Sequence[str] = SUITES, rounds: int = ROUNDS, tick: Tick = _silent
) -> dict[str, Any]:
    """The chosen suites: ``{"seed", "rounds", "suites": {"A": [rows], …}, "table": [rows of
    the contexts, with B], "passed"}``.

    Raises:
        TimedOut: a process of suite D has not ended.
        HandoffError: what a suite builds on failed: no git, no room.
    """
    from handoff.sessions.bench import contexts

    rows = {name: _suite(name, seed, rounds, tick) for name in SUITES if name in suites}
    told: dict[str, Any] = {
        "seed": seed,
        "rounds": rounds if "D" in rows else 0,
        "suites": {name: [row.to_json() for row in found] for name, found in rows.items()},
        "table": contexts.shown(seed) if "B" in rows else [],
        "passed": all(row.passed for found in rows.values() for row in found),
    }
    return told


def _suite(name: str, seed: int, rounds: int, tick: Tick) -> list[Metric]:
    tick(name, 0, 1)
    if name == "A":
        from handoff.sessions.bench import gathering, preservation

        return [*gathering.metrics(seed), *preservation.metrics(seed)]
    if name == "B":
        from handoff.sessions.bench import boundary, contexts, secrets

        return [*secrets.metrics(seed), *contexts.metrics(seed), *boundary.metrics(seed)]
    if name == "C":
        from handoff.sessions.bench import faults

        return faults.metrics(seed)
    from handoff.sessions.bench import damage, kills, schedules

    count = rounds * SCHEDULES
    played = schedules.metrics(seed, count, lambda done: tick("D1", done, count))
    killed = kills.metrics(seed, rounds, lambda done: tick("D2", done, rounds))
    return [*played, *killed, *damage.metrics()]


def report(seed: int = 1, suites: Sequence[str] = SUITES, rounds: int = ROUNDS) -> bytes:
    """The report as canonical bytes."""
    return canonical.dumps(run(seed, suites, rounds))
