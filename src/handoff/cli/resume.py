"""``handoff resume``: redeliver recorded answers, or settle a turn whose end was lost."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "resume",
        "Hand recorded answers to the executor again, or settle a turn whose end was lost.\n"
        "agentd does both by itself when it starts; this is for when you doubt it.",
        examples="  handoff resume 1f3a",
    )
    made.add_argument("task", help="task id or a unique prefix of it")
    made.add_argument(
        "--force", action="store_true", help="end the turn here: the task waits for review"
    )
    return made


def run(args: Namespace, context: Context) -> int:
    """Do it and print the report."""
    from handoff.cli import render
    from handoff.cli.context import tasks_path

    report = context.client().post(
        tasks_path(args.task, "resume"),
        query={"force": args.force},
        look=context.command("show", args.task),
    )
    if context.human:
        context.show("\n".join(render.facts(report)))
    else:
        context.emit(report)
    return 0
