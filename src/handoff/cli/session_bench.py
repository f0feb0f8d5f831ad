"""``handoff session bench``: the suites that measure handoffs, on this machine."""

from __future__ import annotations

import os
import sys

from handoff.cli import session_place as place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser


def parser(name: str) -> Parser:
    """The verb's own flags."""
    from handoff.cli.parsing import Parser, count

    made = Parser(
        f"session {name}",
        "Measure handoffs without a model and without a network: what is preserved (A), which "
        "secrets are found (B), which faults are named (C), whether anything is started twice "
        "(D). The same seed gives the same report. Exit 1 if a gate does not hold.",
        examples="  handoff session bench --suite A --suite C\n"
        "  handoff session bench --rounds 1000 --write results",
    )
    made.add_argument(
        "--suite",
        action="append",
        choices=("A", "B", "C", "D"),
        default=[],
        help="only this one; may be given more than once (all)",
    )
    made.add_argument("--seed", metavar="N", type=count, default=1, help="(1)")
    made.add_argument(
        "--rounds",
        metavar="N",
        type=count,
        default=22,
        help="of D: processes that are killed, with ten schedules each (22); a release: 1000",
    )
    made.add_argument(
        "--write", metavar="DIR", default="", help="write benchmark.json and benchmark.md there"
    )
    made.set_defaults(profile="", host="")
    return made


def run(_name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    from handoff.sessions import bench
    from handoff.sessions.bench import scratch

    suites = tuple(args.suite) or bench.SUITES
    measured: dict[str, Any] = {}
    scratch.cleared()
    with scratch.ended_by_signals():
        seeded = bench.run(args.seed, suites, args.rounds, _Progress())
        if "B" in suites:
            from handoff.sessions.bench.measured import measured as measure

            measured = measure()
    passed = seeded["passed"] and all(row["passed"] for row in measured.get("pace", ()))
    told = {"seeded": seeded, "measured": measured, "passed": passed}
    if args.write:
        _write(place.absolute(args.write), seeded, measured)
    if context.human:
        _show(told, context)
    else:
        context.emit(told)
    return 0 if passed else 1


class _Progress:
    """One line on standard error that is written over, where that is a terminal."""

    def __init__(self) -> None:
        from handoff.cli.terminal import is_tty

        self._seen = sys.stderr is not None and is_tty(sys.stderr)

    def __call__(self, suite: str, done: int, of: int) -> None:
        if self._seen:
            text = f"suite {suite}" + (f"  {done} of {of}" if of > 1 else "")
            end = "\r" if done < of else "\r\x1b[K"
            print(f"\r\x1b[K{text}", end=end, file=sys.stderr, flush=True)


def _write(folder: str, seeded: dict[str, Any], measured: dict[str, Any]) -> None:
    from handoff.errors import StorageError
    from handoff.sessions import canonical
    from handoff.sessions.bench import document

    texts = (
        ("benchmark.json", canonical.dumps(seeded) + b"\n"),
        ("benchmark.md", document.render(seeded, measured).encode()),
    )
    try:
        os.makedirs(folder, exist_ok=True)
        for name, data in texts:
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
    except OSError as error:
        there = folder
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        raise StorageError(
            f"the results can't be written to {folder}: {error.strerror}", remedy=f"ls -ld {there}"
        ) from error


def _show(told: dict[str, Any], context: Context) -> None:
    from handoff.cli.terminal import table

    for suite, rows in told["seeded"]["suites"].items():
        context.show(f"Suite {suite}")
        context.show(table(("figure", "of", "share", "gate", ""), [_cells(row) for row in rows]))
    if told["seeded"]["table"]:
        context.show("Secrets found, by context (held out: of kinds that no rule knows)")
        head = ("context", "held out", "strict", "all", "session-handoff", "detect-secrets")
        context.show(table(head, [_context(row) for row in told["seeded"]["table"]]))
    for row in told["measured"].get("pace", ()):
        mark = "" if row["passed"] else "  OVER ITS LIMIT"
        context.show(f"{row['what']}: {row['value']} (limit {row['limit']:g}){mark}")
    for row in told["measured"].get("documents", ()):
        context.show(
            f"{row['mode']}: {row['redactions']} redactions in {row['words']} words of documents"
        )
    context.show("all gates hold" if told["passed"] else "a gate does not hold")


def _cells(row: dict[str, Any]) -> Sequence[str]:
    gate = "" if row["gate"] is None else f"{row['gate'] / 10_000:.3f}"
    share = f"{row['share'] / 10_000:.3f}"
    return row["name"], f"{row['hits']}/{row['total']}", share, gate, "" if row["passed"] else "NO"


def _context(row: dict[str, Any]) -> Sequence[str]:
    def share(pair: Sequence[int]) -> str:
        return f"{pair[0] / pair[1]:.3f}"

    theirs = row["published"]
    return (
        row["context"],
        share(row["held_out"]),
        share(row["held_out_strict"]),
        share(row["all"]),
        f"{theirs['session_handoff'][2] / 1000:.3f}",
        f"{theirs['detect_secrets'] / 1000:.3f}",
    )
