"""``handoff status``: the daemon and what it is doing."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

    Json = dict[str, Any]


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    return Parser(
        "status",
        "Show agentd, its executors, the queue and the open tasks. Exit 5 if it can't be reached.",
        examples="  handoff status --json",
    )


def lines(found: Json) -> list[str]:
    """The status for a person."""
    from handoff.cli.terminal import ago, colour, safe_line, size

    version = (found.get("version") or {}).get("version") or "?"
    executors = [
        colour(f"{name} (default)", "bold") if name == found.get("default_executor") else name
        for name in map(safe_line, found.get("executors") or [])
    ]
    queue, disk = found.get("queue") or {}, found.get("disk") or {}
    counts = {k: v for k, v in (found.get("task_counts") or {}).items() if v}
    rows = [
        (
            "agentd",
            f"{safe_line(version)}, pid {found.get('pid', '?')}, up {ago(found['started_at'])}",
        ),
        ("at", f"{safe_line(found.get('socket') or '')}  {safe_line(found.get('listen') or '')}"),
        ("data", safe_line(found.get("data_dir") or "")),
        ("executors", ", ".join(executors) or "none"),
        ("tasks", ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"),
    ]
    if queue:
        rows.append(
            ("queue", f"{queue['running']} of {queue['limit']} running, {queue['waiting']} waiting")
        )
    if disk:
        used = (disk.get("db_bytes") or 0) + (disk.get("tasks_bytes") or 0)
        rows.append(("disk", f"{size(used)} used, {size(disk.get('free_bytes') or 0)} free"))
    out = [f"{name:<10} {value}" for name, value in rows]
    if found.get("recovering"):
        out.append(colour("recovering what was running before the last stop", "yellow"))
    out += [colour(f"! {safe_line(text)}", "yellow") for text in found.get("warnings") or []]
    return out


def active(found: Json) -> str:
    """The open tasks as a table, "" if there are none."""
    from handoff.cli.terminal import colour, safe_line, state, table
    from handoff.ids import short

    rows = []
    for task in found.get("active") or []:
        live = safe_line(task.get("live", "unknown"))
        note = safe_line(task.get("note") or "")
        unattended = task.get("watchers") == 0 and task["state"] != "waiting_review"
        rows.append(
            [
                short(task["id"]),
                state(task["state"]),
                safe_line(task.get("executor") or ""),
                colour(live, "red") if live == "dead" else live,
                "?" if task.get("procs") is None else str(task["procs"]),
                "  ".join(part for part in (safe_line(task.get("name") or ""), note) if part)
                + ("  (unwatched)" if unattended else ""),
            ]
        )
    return table(("TASK", "STATE", "EXECUTOR", "LIVE", "PROCS", "NAME"), rows) if rows else ""


def run(_args: Namespace, context: Context) -> int:
    """Show it."""
    from handoff.cli.version import facts

    found = context.client().get("/api/status", answer_s=15)
    if context.json_wanted:
        context.emit({"reachable": True, "degraded": False, "cli": facts(), "agentd": found})
        return 0
    context.show("\n".join(lines(found)))
    shown = active(found)
    if shown:
        context.show("\n" + shown)
    return 0
