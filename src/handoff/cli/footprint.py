"""``handoff footprint``: processes that tasks hold."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "footprint", "Show the processes that tasks hold.", examples="  handoff footprint"
    )
    made.add_argument("--all", action="store_true", help="also tasks without processes")
    return made


def run(args: Namespace, context: Context) -> int:
    """Show them."""
    from handoff.cli.terminal import safe_line, state, table
    from handoff.ids import short

    found = context.client().get("/api/footprint")
    if context.json_wanted:
        context.emit(found)
        return 0
    rows: list[list[str]] = []
    shown: list[dict[str, Any]] = [
        row
        for row in found["rows"]
        if args.all or row.get("procs") or row.get("verdict", "ok") != "ok"
    ]
    for row in shown:
        procs = "?" if row.get("procs") is None else str(row["procs"])
        name = safe_line(row.get("name") or "")
        verdict = safe_line(row.get("verdict") or "")
        rows.append([short(row["task_id"]), state(row["state"]), procs, verdict, name])
    usage = found.get("usage") or {}
    if rows:
        context.show(table(("TASK", "STATE", "PROCS", "VERDICT", "NAME"), rows))
    else:
        context.show("no task holds a process")
    if usage.get("limit"):
        context.show(f"processes: {usage.get('used', '?')} of {usage['limit']}")
    return 0
