"""``handoff show``: everything about one task, one ticket or its plan."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

    Json = dict[str, Any]

#: events on a terminal where --all was not given
SCREEN = 12
PAGE = 1000


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "show",
        "Show a task: its state, open tickets, turns and newest events.",
        examples="  handoff show 1f3a\n  handoff show 1f3a --ticket g2\n  handoff show 1f3a --plan",
    )
    made.add_argument("task", help="task id or a unique prefix of it")
    what = made.add_mutually_exclusive_group()
    what.add_argument("--ticket", metavar="REF", help="one ticket, with every byte of its text")
    what.add_argument("--plan", action="store_true", help="the plan as it was handed over")
    what.add_argument("--all", action="store_true", help="with every event")
    return made


def run(args: Namespace, context: Context) -> int:
    """Show it."""
    from handoff.cli.context import tasks_path

    client = context.client()
    if args.ticket:
        return _ticket(client.get(tasks_path(args.task, "tickets", args.ticket)), context)
    if args.plan:
        return _plan(client.get(tasks_path(args.task, "plan")), context)
    found: Json = client.get(tasks_path(args.task))
    from handoff.cli.task_records import ref_of

    if record := ref_of(found["task"]):
        found["record"] = record
    if args.all:
        found["recent_events"] = all_events(found["task"]["id"], context)
    if not context.human:
        context.emit(found)
        return 0
    context.show(text(found, context, everything=args.all))
    return 0


def all_events(task: str, context: Context) -> list[Json]:
    """Every event of a task, page by page."""
    events: list[Json] = []
    while True:
        at = events[-1]["seq"] if events else 0
        page = context.client().get(
            f"/api/tasks/{task}/events", {"from_seq": at, "limit": PAGE, "all": True}
        )
        events += page
        if len(page) < PAGE:
            return events


def _ticket(ticket: Json, context: Context) -> int:
    from handoff.cli.render import ticket_full

    if context.human:
        context.show(ticket_full(ticket, context))
    else:
        context.emit(ticket)
    return 0


def _plan(plan: Json, context: Context) -> int:
    from handoff.cli.terminal import is_tty, safe

    if context.json_wanted:
        context.emit(plan)
        return 0
    body = str(plan["plan"])
    if is_tty(sys.stdout):
        context.show(safe(body).rstrip("\n"))
    else:
        sys.stdout.buffer.write(body.encode("utf-8", "surrogateescape"))
    return 0


def _turn(turn: Json) -> str:
    from handoff.cli.terminal import colour, local_time, safe_line

    outcome = turn.get("outcome") or {}
    told = outcome.get("code") or turn.get("state") or ""
    if told == "verified":
        told = colour("verified", "green")
    elif outcome:
        told = colour(safe_line(told), "red")
    said = str(outcome.get("summary") or outcome.get("reason") or "").split("\n")[0]
    when = local_time(str(turn.get("started_at", "")))
    return f"  {turn.get('number', '?')}  {when}  {told}  {safe_line(said)}".rstrip()


def text(found: Json, context: Context, *, everything: bool) -> str:
    """A task as lines for a person."""
    from handoff.cli.render import event_line, task_head, ticket_full
    from handoff.cli.terminal import colour, indent
    from handoff.ids import short

    task = found["task"]
    lines = task_head(task)
    if task.get("done_note"):
        from handoff.cli.terminal import safe

        lines.append("  accepted with: " + safe(task["done_note"]))
    if found.get("record"):
        lines.append(f"  record {found['record']}")
    if found.get("turns"):
        lines += [colour("turns", "bold"), *[_turn(turn) for turn in found["turns"]]]
    for ticket in found["pending_tickets"]:
        lines.append(ticket_full(ticket, context, whole=False))
    events = found["recent_events"]
    shown = events if everything else events[-SCREEN:]
    lines.append(colour("events", "bold"))
    lines += [indent(event_line(event)) for event in shown]
    if len(shown) < len(events):
        lines.append("  older ones: " + context.command("show", short(task["id"]), "--all"))
    if task["state"] == "waiting_review":
        for words in (("diff",), ("continue", "REMARKS"), ("done",)):
            lines.append("  " + context.command(words[0], short(task["id"]), *words[1:]))
    elif task["state"] == "running":
        lines.append("  " + context.command("attach", short(task["id"])))
    return "\n".join(lines)
