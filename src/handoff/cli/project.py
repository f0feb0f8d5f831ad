"""``handoff project``: register, list or forget repositories."""

from __future__ import annotations

import os

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
        "project",
        "A project is a repository, known by its origin. Dispatching from inside one registers it.",
        examples="  handoff project add\n  handoff project ls\n  handoff project rm web",
    )
    made.add_argument("action", choices=("add", "ls", "rm"), help="what to do")
    made.add_argument("name", nargs="?", default="", help="name (needed for rm)")
    made.add_argument(
        "--path", metavar="PATH", default="", help="add: this folder, not the current"
    )
    return made


def run(args: Namespace, context: Context) -> int:
    """Do it."""
    return {"add": _add, "ls": _ls, "rm": _rm}[args.action](args, context)


def _add(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line

    body = {"path": os.path.abspath(args.path or os.getcwd()), "name": args.name}
    found = context.client().post("/api/projects", body, look=context.command("project", "ls"))
    if context.human:
        context.show(f"project {safe_line(found['name'])}: {safe_line(found['path'])}")
    else:
        context.emit(found)
    return 0


def _ls(_args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line, table

    projects: list[dict[str, Any]] = context.client().get("/api/projects")
    if not context.human:
        for project in projects:
            context.emit(project)
        return 0
    if not projects:
        context.show("no projects")
        context.show("  " + context.command("project", "add"))
        return 0
    rows = [
        [safe_line(p.get(key) or "") for key in ("name", "project_id", "status", "path")]
        for p in projects
    ]
    context.show(table(("NAME", "ID", "STATUS", "PATH"), rows))
    return 0


def _rm(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line
    from handoff.client.http import quote

    if not args.name:
        parser().error("rm needs the project's name")
    look = context.command("project", "ls")
    result = context.client().delete(f"/api/projects/{quote(args.name)}", look=look)
    if context.human:
        context.show(f"forgotten: {safe_line(args.name)} (the repository stays as it is)")
    else:
        context.emit(result)
    return 0
