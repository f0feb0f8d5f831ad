"""``handoff reclaim``: worktrees that can go."""

from __future__ import annotations

from handoff.errors import NotAllowed

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
        "reclaim",
        "List worktrees of tasks that are over, or remove one. Branches and records stay.",
        examples="  handoff reclaim\n  handoff reclaim 1f3a\n  handoff reclaim 1f3a --force",
    )
    made.add_argument("task", nargs="?", help="task id or a unique prefix of it")
    made.add_argument(
        "--force", action="store_true", help="discard uncommitted changes; they are listed"
    )
    return made


def run(args: Namespace, context: Context) -> int:
    """List or remove."""
    return _one(args, context) if args.task else _list(context)


def _list(context: Context) -> int:
    from handoff.cli.terminal import safe_line, table
    from handoff.ids import short

    found = context.client().get("/api/reclaim")
    if context.json_wanted:
        context.emit(found)
        return 0
    rows: list[list[str]] = []
    for row in found["rows"]:
        dirty = f" ({row['dirty_count']})" if row.get("dirty_count") else ""
        rows.append(
            [
                short(row["task_id"]),
                safe_line(row.get("state", "")),
                safe_line(row.get("worktree", "")) + dirty,
                safe_line(row.get("work_dir", "")),
            ]
        )
    if rows:
        context.show(table(("TASK", "STATE", "WORKTREE", "PATH"), rows))
        context.show("  " + context.command("reclaim", rows[0][0]))
    else:
        context.show("no worktree is left over")
    return 0


def entries(found: dict[str, Any], key: str) -> list[str]:
    """``XY path`` lines of a list of {status, path} or [status, path]."""
    out = []
    for entry in found.get(key) or []:
        status, path = (entry["status"], entry["path"]) if isinstance(entry, dict) else entry
        out.append(f"{status} {path}")
    return out


def _one(args: Namespace, context: Context) -> int:
    from handoff.cli.context import tasks_path
    from handoff.cli.terminal import safe_line

    try:
        result = context.client().post(
            tasks_path(args.task, "reclaim"),
            {"force": args.force},
            look=context.command("reclaim"),
            answer_s=180,
        )
    except NotAllowed as error:
        for line in entries(error.details, "dirty"):
            print(safe_line(line) if context.human else line)
        if entries(error.details, "dirty") and not error.remedy:
            error.remedy = context.command("reclaim", args.task, "--force")
        raise
    if context.json_wanted:
        context.emit(result)
        return 0
    action = str(result.get("action", "removed")).replace("_", " ")
    context.show(f"{safe_line(result.get('work_dir', ''))}: {action}")
    for line in entries(result, "discarded"):
        context.show(f"  discarded {safe_line(line)}")
    return 0
