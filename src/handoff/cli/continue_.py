"""``handoff continue``: further instructions after a turn."""

from __future__ import annotations

from handoff.errors import UsageError
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
        "continue",
        "Send further instructions to a task that waits for review, also after a failed turn.\n"
        "The executor goes on in the same session and worktree.",
        examples="  handoff continue 1f3a 'good; now add a test for the empty case'\n"
        "  handoff continue 1f3a - < remarks.md",
    )
    made.add_argument("task", help="task id or a unique prefix of it")
    made.add_argument("instructions", help="what to do; `-` reads standard input")
    return made


def run(args: Namespace, context: Context) -> int:
    """Send them."""
    from handoff.cli.context import tasks_path

    text = args.instructions
    if text == "-":
        from handoff.cli.dispatch import read_text

        text = read_text("-", "standard input")
    if not text.strip():
        raise UsageError("the instructions are empty", remedy="handoff continue --help")
    result = context.client().post(
        tasks_path(args.task, "continue"),
        {"instructions": text},
        look=context.command("show", args.task),
    )
    if not context.human:
        context.emit(result)
        return 0
    context.show(f"sent; the task is {result.get('state', 'running')}")
    context.show("  " + context.command("wait", short(args.task)))
    return 0
