"""``handoff tasks``: list tasks."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

STATES = ("pending", "running", "waiting_answer", "waiting_review", "completed", "failed")
#: rows on a terminal where no --limit was given
SCREEN = 30


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser, count

    made = Parser(
        "tasks",
        "List tasks, newest first. Piped or with --json: one task as JSON per line, all of them.",
        examples="  handoff tasks --state waiting_answer --state waiting_review",
    )
    made.add_argument(
        "--state", action="append", choices=STATES, help="only in that state; repeatable"
    )
    made.add_argument("--project", metavar="NAME", default="", help="only of that project")
    made.add_argument("--limit", metavar="N", type=count, help="at most so many")
    return made


def row(task: dict[str, Any]) -> list[str]:
    """A task as cells."""
    from handoff.cli.render import activity
    from handoff.cli.terminal import ago, cut, safe_line, state
    from handoff.ids import short

    note = ""
    if task["state"] in ("running", "waiting_answer", "pending"):
        note = activity(task)
        if task.get("open_tickets"):
            note = f"{task['open_tickets']} open ticket{'s' * (task['open_tickets'] > 1)}"
        if task.get("queue_position"):
            note = f"queue: place {task['queue_position']}"
        if task.get("watchers") == 0:
            note = ", ".join(part for part in (note, "unwatched") if part)
    return [
        short(task["id"]),
        state(task["state"]),
        safe_line(task.get("executor") or ""),
        ago(str(task.get("created_at", ""))),
        cut(note, 24),
        safe_line(task.get("name") or task.get("plan_summary") or ""),
    ]


HEAD = ("TASK", "STATE", "EXECUTOR", "AGE", "NOW", "NAME")


def run(args: Namespace, context: Context) -> int:
    """List them."""
    from handoff.cli.terminal import table

    states = list(dict.fromkeys(args.state or []))
    limit = args.limit or (SCREEN + 1 if context.human else None)
    # agentd filters by one state, and by project only after its own limit: what it can't
    # do exactly is done here, on the whole list.
    exact = len(states) <= 1 and not args.project
    query = {
        "state": states[0] if len(states) == 1 else None,
        "project": args.project or None,
        "limit": limit if exact else None,
    }
    tasks: list[dict[str, Any]] = context.client().get("/api/tasks", query)
    tasks = [task for task in tasks if not states or task["state"] in states][:limit]
    if not context.human:
        for task in tasks:
            context.emit(task)
        return 0
    if not tasks:
        context.show("no tasks")
        context.show("  " + context.command("dispatch", "--prompt", "WHAT TO DO"))
        return 0
    shown = tasks if args.limit else tasks[:SCREEN]
    context.show(table(HEAD, [row(task) for task in shown]))
    if len(shown) < len(tasks):
        context.show("there are older ones: " + context.command("tasks", "--limit", "1000"))
    return 0
