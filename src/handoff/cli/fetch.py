"""``handoff fetch``: a file from a task's worktree, byte for byte."""

from __future__ import annotations

import sys

from handoff.cli.terminal import shell_quote
from handoff.errors import NotFound, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser
    from handoff.client.http import Response

REST = True


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "fetch",
        "Write a file of the task's worktree to standard output, byte for byte. Once the\n"
        "worktree is gone, the file comes from the task's branch.",
        examples="  handoff fetch 1f3a src/app.py > app.py\n  handoff fetch 1f3a -- -odd-name",
    )
    made.add_argument("task", help="task id or a unique prefix of it")
    made.add_argument("path", nargs="?", help="path below the worktree; means itself, no pattern")
    return made


def copy_out(response: Response, context: Context) -> None:
    """A raw answer to standard output: exact when piped, made harmless on a terminal.

    Raises:
        Unreachable: the answer was cut off.
    """
    from handoff.cli.diff import Screen
    from handoff.cli.terminal import is_tty
    from handoff.client.http import Lost

    screen = Screen(context, plain=True) if is_tty(sys.stdout) else None
    try:
        for piece in response.pieces():
            if screen is not None:
                screen.feed(piece)
            else:
                sys.stdout.buffer.write(piece)
        if screen is not None:
            screen.end()
        sys.stdout.buffer.flush()
    except (Lost, TimeoutError) as error:
        raise Unreachable(f"the answer was cut off: {error}", remedy="handoff status") from error
    finally:
        response.close()


def run(args: Namespace, context: Context) -> int:
    """Fetch it."""
    from handoff.cli.context import tasks_path

    words = [*([args.path] if args.path is not None else []), *(context.rest or [])]
    if len(words) != 1:
        parser().error("give one path")
    path = tasks_path(args.task, "file")
    client = context.client()
    try:
        if context.json_wanted:
            context.emit(client.get(path, {"path": words[0], "format": "json"}))
        else:
            copy_out(client.open("GET", path, {"path": words[0], "format": "raw"}), context)
    except NotFound as error:
        if error.code == NotFound.code:  # the file; git ls-files would look where you stand
            error.remedy = f"handoff diff {shell_quote(args.task)} --name-only"
        raise
    return 0
