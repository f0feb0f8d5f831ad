"""``handoff init``: write a first configuration."""

from __future__ import annotations

import os
import sys

from handoff.errors import UsageError

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
        "init",
        "Write a first configuration with a random token. On a terminal it asks which executor\n"
        "is the default. An existing configuration is never touched.",
        examples="  handoff init",
    )
    made.add_argument("--executor", metavar="NAME", help="default executor; nothing is asked")
    return made


def ready(found: list[Any]) -> list[str]:
    """Names of the executors that are installed, those that are logged in first."""
    rank = {"yes": 0, "unknown": 1, "no": 2}
    there = [one for one in found if one.path and not one.problem]
    return [one.name for one in sorted(there, key=lambda one: rank.get(one.login, 1))]


def ask(names: list[str], preferred: str) -> str:
    """The executor that the user picks; Enter takes the preferred one.

    Raises:
        EOFError, KeyboardInterrupt: the user gave up; nothing was written.
    """
    while True:
        answer = input(f"default executor [{preferred}]: ").strip() or preferred
        if answer in names:
            return answer
        print(f"'{answer}' is none of: {', '.join(names)}")


def rows(found: list[Any]) -> list[list[str]]:
    """The detection as cells."""
    from handoff.cli.doctor import LOGIN
    from handoff.cli.terminal import safe_line

    out = []
    for one in found:
        state = "not installed"
        if one.path:
            state = LOGIN[one.login]
        cells = (one.name, one.version or "-", state, one.path or one.remedy)
        out.append([safe_line(cell) for cell in cells])
    return out


def run(args: Namespace, context: Context) -> int:
    """Write it and say what comes next."""
    from handoff.cli.doctor import detected
    from handoff.cli.terminal import is_tty, table
    from handoff.config import create_default, load
    from handoff.executors import catalog

    names = list(catalog.definitions({}))
    if args.executor and args.executor not in names:
        known = ", ".join(names)
        raise UsageError(
            f"there is no executor '{args.executor}' (known: {known})", remedy="handoff init --help"
        )
    found = [one for one, _ in detected(None)]
    there = ready(found)
    chosen = args.executor or (there[0] if there else "opencode")
    if not context.json_wanted:
        print(table(("EXECUTOR", "VERSION", "STATE", ""), rows(found), limit=200) + "\n")
    asks = is_tty(sys.stdin) and context.human and not args.executor
    if asks and not os.path.lexists(context.config):
        try:
            chosen = ask(names, chosen)
        except EOFError:
            print("\nnothing was written")
            return 1
    written = create_default(context.config, executor=chosen)
    if not written:
        chosen = load(context.config)[0].executor.default
    if context.json_wanted:
        context.emit({"config": context.config, "written": written, "executor": chosen})
        return 0
    state = "wrote" if written else "kept, as it was there already:"
    print(f"{state} {context.config}  (default executor: {chosen})\nnext:")
    for words in (("agentd", "--detach"), ("doctor",), ("dispatch", "--prompt", "WHAT TO DO")):
        print("  " + context.command(*words))
    if not there:
        print("no executor is ready; this needs none:\n  " + context.command("demo"))
    return 0
