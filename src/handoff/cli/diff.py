"""``handoff diff``: what a task changed since its base."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser
    from handoff.client.http import Response

REST = True
#: columns of a line on a terminal, beyond which it is cut and its size is told
MAX_LINE = 2000


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "diff",
        "Show what a task changed since its base, from git's objects: the same bytes whatever\n"
        "your git settings are, also after the task is over. Piped it is exact.",
        examples="  handoff diff 1f3a\n  handoff diff 1f3a --stat\n"
        "  handoff diff 1f3a -- src/app.py\n  handoff diff 1f3a | git apply --check",
    )
    made.add_argument("task", help="task id or a unique prefix of it")
    made.add_argument("paths", nargs="*", help="only these paths; each means itself, no pattern")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--stat", action="store_true", help="only how much in which file")
    form.add_argument("--name-only", action="store_true", help="only the names")
    made.add_argument("--base", metavar="REF", default="", help="compare with that instead")
    made.add_argument("--uncommitted", action="store_true", help="what is not committed yet")
    return made


class Screen:
    """Lines of a diff (or, plain, of any file) for a terminal: harmless, coloured, cut.

    A line of 24 MiB passes in pieces and is never held whole.
    """

    def __init__(self, context: Context, *, plain: bool = False) -> None:
        self.context = context
        self.plain = plain
        self._line = bytearray()
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """More bytes, cut anywhere."""
        parts = piece.split(b"\n")
        for number, part in enumerate(parts):
            if number:
                self._end_line()
            room = MAX_LINE * 4 - len(self._line)
            self._line += part[: max(room, 0)]
            self._size += len(part)

    def end(self) -> None:
        """No more bytes."""
        if self._size:
            self._end_line()

    def _end_line(self) -> None:
        from handoff.cli.terminal import colour, cut, safe, size, width

        text = safe(bytes(self._line).decode("utf-8", "surrogateescape").expandtabs(8))
        long = self._size > len(self._line) or width(text) > MAX_LINE
        if long:
            text = cut(text, MAX_LINE)
        tint = self._tint(text)
        out = colour(text, *tint) if tint else text
        if long:
            out += colour(f" [line of {size(self._size)}, cut here]", "yellow")
        print(out)
        self._line.clear()
        self._size = 0

    def _tint(self, line: str) -> tuple[str, ...]:
        if self.plain:
            return ()
        if line.startswith(("diff --git ", "--- ", "+++ ")):
            return ("bold",)
        if line.startswith("@@"):
            return ("cyan",)
        return {"+": ("green",), "-": ("red",)}.get(line[:1], ())


def run(args: Namespace, context: Context) -> int:
    """Show it."""
    from handoff.cli.context import tasks_path
    from handoff.cli.fetch import copy_out

    query = {
        "base": args.base or None,
        "stat": args.stat,
        "name_only": args.name_only,
        "uncommitted": args.uncommitted,
        "path": [*args.paths, *(context.rest or [])],
    }
    path, client = tasks_path(args.task, "diff"), context.client()
    if context.json_wanted:
        context.emit(client.get(path, {**query, "format": "json"}))
        return 0
    response = client.open("GET", path, {**query, "format": "raw"})
    if not context.human:
        copy_out(response, context)
        notices(response, args.task, context)
        return 0
    from handoff.client.http import Lost
    from handoff.errors import Unreachable

    screen = Screen(context, plain=args.stat or args.name_only)
    some = False
    try:
        for piece in response.pieces():
            some = True
            screen.feed(piece)
        screen.end()
    except (Lost, TimeoutError) as error:
        raise Unreachable(f"the answer was cut off: {error}", remedy="handoff status") from error
    finally:
        response.close()
    sys.stdout.flush()
    if not some:
        context.say("no changes")
    notices(response, args.task, context)
    return 0


def notices(response: Response, task: str, context: Context) -> None:
    """What the diff itself can't say, on stderr: a moved base, work that it leaves out."""
    moved = response.headers.get("handoff-moved")
    if moved:
        context.say(f"note: {moved}")
    left = response.headers.get("handoff-uncommitted")
    if left:
        command = context.command("diff", task, "--uncommitted")
        context.say(f"note: {left} uncommitted path(s) not shown: {command}")
