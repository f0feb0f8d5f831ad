"""``handoff stop``: end a task without accepting it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

#: ending an executor's whole tree and removing a large worktree may take so long (seconds)
ANSWER_S = 180.0


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "stop",
        "End a task without accepting it: its executor and everything that it started are\n"
        "ended. Commits stay on its branch; a worktree with unsaved work is kept.",
        examples="  handoff stop 1f3a",
    )
    made.add_argument("task", help="task id or a unique prefix of it")
    return made


def run(args: Namespace, context: Context) -> int:
    """End it."""
    from handoff.cli import render
    from handoff.cli.context import tasks_path

    result = context.client().post(
        tasks_path(args.task, "stop"), look=context.command("show", args.task), answer_s=ANSWER_S
    )
    if not context.human:
        context.emit(result)
        return 0
    lines = ["stopped", *render.removal(result.get("worktree"), context, args.task)]
    context.show("\n".join(lines))
    return 0
