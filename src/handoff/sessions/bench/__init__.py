"""Three suites that measure handoffs without a model: what is preserved (A), which secrets
are found and which facts stay (B), which faults of a state are named (C).

Seeded and offline: the same seed gives the same report, byte for byte, on every machine.
No clock, no file, no network; how fast the redactor is, is measured elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from handoff.sessions import canonical

SCALE = 10_000


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


def run(seed: int = 1) -> dict[str, object]:
    """All suites: ``{"seed", "suites": {"A": [rows], "B": …, "C": …}, "passed"}``."""
    from handoff.sessions.bench import faults, preservation, secrets

    suites = {
        "A": preservation.metrics(seed),
        "B": secrets.metrics(seed),
        "C": faults.metrics(seed),
    }
    return {
        "seed": seed,
        "suites": {name: [row.to_json() for row in rows] for name, rows in suites.items()},
        "passed": all(row.passed for rows in suites.values() for row in rows),
    }


def report(seed: int = 1) -> bytes:
    """The report as canonical bytes."""
    return canonical.dumps(run(seed))
