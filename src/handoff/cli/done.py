"""``handoff done``: accept the work."""

from __future__ import annotations

from handoff.errors import HandoffError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

#: bytes of a note that agentd keeps
MAX_NOTE = 4096


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser
    from handoff.cli.task_records import profile_flag

    made = Parser(
        "done",
        "Accept the work of a task that waits for review. Its worktree is removed unless it\n"
        "holds something that exists nowhere else; its branch stays.",
        examples="  handoff done 1f3a --note 'merged as 8c1d2e3'\n  handoff done 1f3a --record",
    )
    made.add_argument("task", help="task id or a unique prefix of it")
    made.add_argument("--note", metavar="TEXT", default="", help="what became of it (4096 bytes)")
    made.add_argument(
        "--record",
        action="store_true",
        help="leave a handoff record of it, to go on from in a session or a task",
    )
    profile_flag(made)
    made.add_argument(
        "--workspace",
        metavar="DIR",
        default="",
        help="whose project the record belongs to (default: the task's repository)",
    )
    return made


def run(args: Namespace, context: Context) -> int:
    """Accept it."""
    from handoff.cli import render
    from handoff.cli.context import tasks_path

    length = len(args.note.encode("utf-8", "surrogateescape"))
    if length > MAX_NOTE:
        raise UsageError(f"the note has {length} bytes, more than {MAX_NOTE}")
    result = context.client().post(
        tasks_path(args.task, "done"),
        {"note": args.note} if args.note else {},
        look=context.command("show", args.task),
    )
    if args.note and not result.get("note_saved"):
        context.say("agentd did not confirm that the note was saved")
    if args.record:
        result["record"] = _record(args, context)
    if not context.human:
        context.emit(result)
        return 0
    lines = ["accepted", *render.removal(result.get("worktree"), context, args.task)]
    if args.record:
        lines.append(f"record {result['record']['ref']}")
        lines.append(f"  handoff session show {result['record']['ref']}")
    context.show("\n".join(lines))
    return 0


def _record(args: Namespace, context: Context) -> dict[str, Any]:
    """The record of the task that was just accepted.

    Raises:
        HandoffError: why there is none; the task is accepted all the same.
    """
    from handoff.cli.task_records import keep

    try:
        return keep(args.task, args, context)
    except HandoffError as error:
        error.cause = f"the task is accepted, but left no record: {error.cause}"
        error.args = (error.cause,)
        error.remedy = error.remedy or context.command("done", args.task, "--record")
        raise
