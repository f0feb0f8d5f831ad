"""The report as a document (docs/sessions/benchmark.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handoff.sessions.bench.contexts import (
    DOCS_BY_OTHERS,
    FACTS,
    FACTS_BY_OTHERS,
    LEAKS,
    LEAKS_BY_OTHERS,
    damaged,
    leaks,
)
from handoff.sessions.bench.formats import RULES

__all__ = ["BEGIN", "END", "render", "seeded_part"]

#: between these stands what a seed decides
BEGIN, END = "<!-- seeded: the same on every machine -->", "<!-- end of the seeded part -->"
_TITLES = {
    "A": "Suite A: what is preserved",
    "B": "Suite B: which secrets are found, and which facts stay",
    "C": "Suite C: which faults of a state are named",
    "D": "Suite D: whether anything is ever started twice",
}
_NOTES = {
    "A": "The evidence holds the rules of the user from the whole session, the last messages, and "
    "lines that name something from everywhere before them, together up to 200 messages and 64 KiB. "
    "In the first sessions the noise names nothing; where every line of it names a path and numbers, "
    "too, not every fact is found, which the figure among such noise shows.",
    "B": "With no clue at all, the standard rules leave what nothing tells from an id; some of the "
    "rules were made while looking at this table, so that the split is no longer blind to them.",
    "D": "A round kills a real opener under a terminal of its own, every other one at a named "
    "point, and looks at what the next opener does. The window in the Desktop page is not played "
    "here (D4).",
}
_HEAD = """\
# Sessions: benchmark

Made by `handoff session bench --seed {seed} --rounds {rounds} --write docs/sessions`; do not edit.
No model and no network is used. A figure is *found of all*; its gate is the least share that is allowed, and the command exits with 1 if one does not hold.
Synthetic secrets and sessions certify no quality of a model and no obedience: they show what the tools do, not what a model makes of it.
"""


def render(seeded: Mapping[str, Any], measured: Mapping[str, Any]) -> str:
    """The whole document."""
    parts = [_HEAD.format(**seeded), BEGIN, "", seeded_part(seeded), END, ""]
    return "\n".join([*parts, *_measured(measured)])


def seeded_part(seeded: Mapping[str, Any]) -> str:
    """What the seed decides; ends with a line feed."""
    lines = []
    for suite, rows in seeded["suites"].items():
        lines += [f"## {_TITLES[suite]}", "", "| figure | found | of | share | gate | holds |",
                  "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
        lines += [_row(row) for row in rows] + [""]
        lines += [_NOTES[suite], ""] if suite in _NOTES else []
    if seeded["table"]:
        lines += _table(seeded["table"])
    return "\n".join(lines)


def _row(row: Mapping[str, Any]) -> str:
    gate = "published only" if row["gate"] is None else _share(row["gate"])
    holds = "" if row["gate"] is None else ("yes" if row["passed"] else "**no**")
    name = row["name"].replace("|", "\\|")
    return (
        f"| {name} | {row['hits']} | {row['total']} | {_share(row['share'])} | {gate} | {holds} |"
    )


def _share(hundredths: int) -> str:
    return f"{hundredths / 10_000:.4f}"


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "## By context, beside others",
        "",
        f"{len(RULES)} kinds of credentials, each cut down to a prefix, an alphabet and a length, three strings of each, in ten contexts. *Held out*: kinds whose prefix is in no list of this redactor, split by the id of the rule; the split is computed at each run.",
        "*Strict* is the mode for what leaves the machine. The figures of others are quoted from one earlier measurement, not run again: `session-handoff` 0.7.5 on 663 strings of 221 rules (all; those that tell themselves by a prefix) and on 717 strings of 358 other detectors (unseen), `detect-secrets` 1.5.0 on those that tell themselves, and a sketch of these rules (unseen). Their lists are of the same kind as this one, not the same.",
        "",
        "| context | ours, held out | ours, held out, strict | ours, all | ours, self-identifying | session-handoff, all | session-handoff, self-identifying | session-handoff, unseen | detect-secrets, self-identifying | sketch, unseen |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        theirs = row["published"]
        ours = [row["held_out"], row["held_out_strict"], row["all"], row["self_identifying"]]
        cells = [f"{found / total:.3f}" for found, total in ours]
        quoted = [*theirs["session_handoff"], theirs["detect_secrets"], theirs["sketch"][1]]
        cells += [f"{figure / 1000:.3f}" for figure in quoted]
        lines.append(f"| {row['context']} | {' | '.join(cells)} |")
    lost, broken = leaks(), damaged()
    return [
        *lines,
        "",
        "| by hand | ours | session-handoff | sketch |",
        "| --- | --- | --- | --- |",
        _by_hand(
            "everyday leaks, found whole", len(LEAKS) - len(lost), len(LEAKS), LEAKS_BY_OTHERS
        ),
        _by_hand(
            "facts with the words key and token, damaged", len(broken), len(FACTS), FACTS_BY_OTHERS
        ),
        "",
        f"Not found of the everyday leaks: {', '.join(lost) or 'none'}.",
        "",
    ]


def _by_hand(what: str, ours: int, of: int, others: Mapping[str, int]) -> str:
    return f"| {of} {what} | {ours} | {others['session-handoff']} | {others['sketch']} |"


def _measured(measured: Mapping[str, Any]) -> list[str]:
    if not measured:
        return []
    lines = [
        "## Measured on one machine",
        "",
        f"{measured['machine']}; processor time.",
        "",
        "| what | value | limit |",
        "| --- | --- | --- |",
        *(f"| {row['what']} | {row['value']} | {row['limit']:g} |" for row in measured["pace"]),
        "",
        "The documents are those that every Python has at hand: its own topics, and the Markdown, reStructuredText and METADATA files of the packages that are installed beside it.",
        "",
        "| documents | mode | files | words | redactions | of them placeholders | others in 100,000 words |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in measured["documents"]:
        cells = (row["mode"], row["documents"], row["words"], row["redactions"],
                 row["placeholders"], f"{row['per_100k'] / 10:.1f}")  # fmt: skip
        lines.append(f"| Python's and its packages' | {' | '.join(map(str, cells))} |")
    quoted = ", ".join(f"{name} {figure / 10}" for name, figure in DOCS_BY_OTHERS.items())
    return [*lines, "", f"Others, on 773,427 words of agent tools' documents: {quoted}.", ""]
