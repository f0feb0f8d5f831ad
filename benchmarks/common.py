"""What every benchmark shares: a row of the table, timing, memory, and a home of its own."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PYTHON = sys.executable
BIN = pathlib.Path(sys.executable).parent
HANDOFF = str(BIN / "handoff")

#: a user has byte code on disk; so have we
ENV = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "HANDOFF_HOME")}


@dataclass
class Row:
    """One figure. ``ours`` and ``budget`` in ``unit``; ``peers``: name -> value, same unit.

    ``more``: more is better. ``note``: how it was counted. ``skipped``: why there is none.
    """

    figure: str
    unit: str = ""
    ours: float | None = None
    budget: float | None = None
    peers: dict[str, float] = field(default_factory=dict)
    more: bool = False
    note: str = ""
    skipped: str = ""

    def verdict(self, slack: float = 1.0) -> str:
        """``within``, ``over``, or why neither can be said."""
        if self.skipped:
            return f"not measured: {self.skipped}"
        if self.ours is None or self.budget is None:
            return "no budget"
        good = self.ours * slack >= self.budget if self.more else self.ours <= self.budget * slack
        return "within" if good else "over"


def number(value: float | None) -> str:
    """Three significant digits, thousands apart."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| figure | budget | ours | peers | verdict |", "|---|---|---|---|---|"]
    for row in rows:
        sign = "≥" if row.more else "≤"
        budget = f"{sign} {number(row.budget)} {row.unit}" if row.budget is not None else "-"
        ours = f"**{number(row.ours)}** {row.unit}" if row.ours is not None else "-"
        peers = ", ".join(f"{name} {number(value)}" for name, value in row.peers.items()) or "-"
        figure = f"{row.figure} ({row.note})" if row.note else row.figure
        lines.append(f"| {figure} | {budget} | {ours} | {peers} | {row.verdict()} |")
    return "\n".join(lines)


def main(measure: Callable[[bool], list[Row]]) -> None:
    """Run one benchmark file: prints its table, or JSON with ``--json``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="rows as JSON, for scripts/bench")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    args = parser.parse_args()
    rows = measure(args.quick)
    if args.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        print(table(rows))


def p50(values: list[float]) -> float:
    return statistics.median(values)


def interleaved(
    commands: dict[str, list[str]], times: int, env: dict[str, str] | None = None
) -> dict[str, list[float]]:
    """Wall time in milliseconds of each command, taken in turns so that a busy neighbour
    disturbs all of them alike. The first round warms the caches and is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for round_ in range(times + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            done = subprocess.run(
                command, env=env or ENV, stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            spent = (time.perf_counter() - began) * 1000
            if done.returncode:
                raise SystemExit(f"{name} failed: {done.stderr.decode()[-500:]}")
            if round_:
                taken[name].append(spent)
    return taken


def ratios(taken: dict[str, list[float]], base: str) -> dict[str, float]:
    """p50 of each command over p50 of the base."""
    floor = p50(taken[base])
    return {name: p50(values) / floor for name, values in taken.items()}


def memory_mib(pid: int, what: str = "Pss") -> float:
    """``Pss`` (its share of what is shared) or ``Rss`` of a process, in MiB."""
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"no {what} of process {pid}")


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(condition: Callable[[], object], within: float = 30.0, every: float = 0.001) -> float:
    """Seconds until condition() is true; looks every millisecond."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > within:
            raise SystemExit(f"not within {within} s")
        time.sleep(every)
    return time.perf_counter() - began
