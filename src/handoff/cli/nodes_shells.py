"""``handoff nodes shells``: shells on a node that keep folder and variables between commands."""

from __future__ import annotations

from handoff.cli import nodes_place as place
from handoff.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser
    from handoff.nodes.client import BrainClient


def parser(name: str) -> Parser:
    """The verb's own flags."""
    made = place.parser(
        name,
        "Shells on a node that keep folder, variables and functions from one command to the\n"
        "next. Commands run in one with 'exec --in'. Without a verb: all that are open.",
        examples="  handoff nodes shells lab open work --cwd '~/calc'\n"
        "  handoff nodes exec lab --in work --shell 'export N=3; cd src'\n"
        "  handoff nodes exec lab --in work --shell 'make -j$N'\n"
        "  handoff nodes shells lab close work",
    )
    made.add_argument("node", help="the node")
    made.add_argument(
        "verb", nargs="?", default="list", choices=("list", "open", "close"), help="what to do"
    )
    made.add_argument("shell", nargs="?", default="", help="the shell's name")
    made.add_argument("--cwd", default="", help="open: folder to start in (default: the home)")
    made.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="open: a variable"
    )
    return made


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    del name
    brain = place.client(args)
    if args.verb == "list":
        return _list(brain, args, context)
    if not args.shell:
        raise UsageError("name the shell", remedy=f"handoff nodes shells {args.node}")
    given: dict[str, Any] = {"name": args.shell}
    if args.verb == "open":
        if args.cwd:
            given["cwd"] = place.argument(args.cwd)
        if env := place.variables(args.env):
            given["env"] = env
        value = _ask(brain, args, "shell_open", given)
        said = "opened" if value.get("opened") else "is open already"
        place.tell(context, value, f"{args.shell}: {said}, process {value.get('pid')}")
        return 0
    value = _ask(brain, args, "shell_close", given)
    done = value.get("changed", True) is True
    place.tell(context, {"changed": done}, f"{args.shell}: {'ended' if done else 'was not open'}")
    return 0


def _list(brain: BrainClient, args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line

    value = _ask(brain, args, "shell_list", {})
    if not context.human:
        context.emit({"shells": [], **value})
        return 0
    for one in value.get("shells", []):
        cwd = place.text_of(one.get("cwd", "")).decode(errors="replace")
        context.show(safe_line(f"{one['name']}  process {one.get('pid')}  {cwd}"))
    return 0


def _ask(brain: BrainClient, args: Namespace, op: str, given: dict[str, Any]) -> dict[str, Any]:
    from handoff.nodes.client import new_key

    key = "" if op == "shell_list" else new_key()
    ok, value = brain.call(args.node, op, given, key=key, by=place.by())
    if not ok:
        raise place.failed(value)
    return value
