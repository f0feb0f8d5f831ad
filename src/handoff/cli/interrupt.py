"""``handoff interrupt``: end the running turn, keep the task."""

from __future__ import annotations

from handoff.ids import short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "interrupt",
        "End the running turn. The session and the worktree stay: `handoff continue` goes on.",
        examples="  handoff interrupt 1f3a",
    )
    made.add_argument("task", help="task id or a unique prefix of it")
    return made


def run(args: Namespace, context: Context) -> int:
    """End the turn."""
    from handoff.cli.context import tasks_path

    result = context.client().post(
        tasks_path(args.task, "interrupt"), look=context.command("show", args.task)
    )
    if not context.human:
        context.emit(result)
        return 0
    context.show("asked to end the turn")
    context.show("  " + context.command("wait", short(args.task)))
    return 0
