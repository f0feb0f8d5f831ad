"""``handoff attach``: watch an executor work."""

from __future__ import annotations

import sys

from handoff.errors import NotFound, UsageError
from handoff.ids import short

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

    Json = dict[str, Any]

#: frames shown at first where --all was not given
TAIL = 60
#: lines of a prompt on a terminal
PROMPT_LINES = 16
ORDER = ("running", "waiting_answer", "waiting_review")


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "attach",
        "Watch a task: what the executor says and does, tickets, answers. Ctrl-C leaves; the\n"
        "task goes on. A lost connection is made again and continues where it was.\n"
        "Piped: text; with --json: one frame per line.",
        examples="  handoff attach 1f3a\n  handoff attach 1f3a --all --no-follow > log.txt",
    )
    made.add_argument("task", nargs="?", help="task id or a prefix; without it you may choose")
    made.add_argument("--all", action="store_true", help="from the very beginning")
    made.add_argument("--no-follow", action="store_true", help="stop at what is there now")
    return made


def choose(context: Context) -> str | None:
    """The task that the user picks from a list; None if there is none to pick from."""
    from handoff.cli.tasks import HEAD, row
    from handoff.cli.terminal import is_tty, table

    tasks = context.client().get("/api/tasks", {"limit": 30})
    rank = {state: at for at, state in enumerate(ORDER)}
    tasks.sort(key=lambda task: rank.get(task["state"], len(ORDER)))
    if not tasks:
        context.say("no tasks")
        return None
    if not is_tty(sys.stdin) or not context.human:
        for task in tasks:
            print(context.command("attach", task["id"]))
        return None
    rows = [[str(at), *row(task)] for at, task in enumerate(tasks, 1)]
    context.show(table(("", *HEAD), rows))
    answer = input(f"which one (1-{len(tasks)})? ").strip()
    if not answer:
        return None
    if not answer.isascii() or not answer.isdigit() or not 0 < int(answer) <= len(tasks):
        raise UsageError(f"'{answer}' is none of them", remedy=context.command("attach"))
    return str(tasks[int(answer) - 1]["id"])


class View:
    """Frames as running text. ``task``: its id, for the commands that are printed."""

    def __init__(self, context: Context, task: str) -> None:
        self.context = context
        self.task = short(task)
        self._open = ""  # the kind of text that has no line end yet
        self._last = ""
        self._tools: dict[str, str] = {}

    def write(self, text: str) -> None:
        """Text as it is, and whether it ended its line."""
        if text:
            sys.stdout.write(text)
            self._last = text[-1]

    def close(self) -> None:
        """End an unfinished line."""
        if self._open and self._last != "\n":
            self.write("\n")
        self._open = ""

    def line(self, text: str) -> None:
        """One line or block of its own."""
        self.close()
        self.write(text + "\n")

    def frame(self, frame: Json) -> None:
        """Show one frame."""
        from handoff.cli.terminal import safe

        kind, data = frame["kind"], frame.get("data") or {}
        if kind in ("text", "thought"):
            if self._open != kind:
                self.close()
                if kind == "thought":
                    self.write(self._dim("(thinking) "))
            self._open = kind
            text = safe(data.get("text", ""))
            self.write(self._dim(text) if kind == "thought" else text)
        else:
            shown = self.block(kind, data, frame)
            if shown:
                self.line(shown)
        sys.stdout.flush()

    def _dim(self, text: str) -> str:
        from handoff.cli.terminal import colour

        return colour(text, "dim")

    def block(self, kind: str, data: Json, frame: Json) -> str:
        """A frame that is not running text, as lines; "" for nothing to show."""
        from handoff.cli.terminal import colour, indent, local_time, safe, safe_line

        when = local_time(str(frame.get("at", "")))
        if kind == "prompt":
            by = safe_line(data.get("actor") or "")
            head = colour(f"── turn {frame.get('turn', '?')} ── {when} ── prompt by {by}", "bold")
            return f"\n{head}\n{indent(self.prompt(safe(data.get('text', ''))), '  > ')}\n"
        if kind == "tool":
            return self.tool(data)
        if kind == "ticket":
            what = "question" if data.get("kind") == "ask" else "permission"
            ref = safe_line(data.get("ref") or data.get("id") or "")
            head = colour(f"◆ {what} {ref}  {when}", "yellow", "bold")
            return f"{head}\n{indent(safe(data.get('text', '')), '  │ ')}"
        if kind == "answer":
            said = data.get("decision") or data.get("answer") or ""
            why = f": {safe_line(data['reason'])}" if data.get("reason") else ""
            ref = safe_line(data.get("ref") or data.get("ticket_id") or "")
            by = safe_line(data.get("actor") or "?")
            return colour(f"◇ {ref} {safe_line(said)}{why}  (by {by})", "green")
        if kind == "retry":
            of = f" of {data['limit']}" if data.get("limit") else ""
            wait = f", in {data['delay_s']:g} s" if data.get("delay_s") else ""
            reason = safe_line(data.get("reason", ""))
            return colour(f"↻ attempt {data.get('attempt', '?')}{of}{wait}: {reason}", "yellow")
        if kind == "plan":
            marks = {"completed": "x", "in_progress": ">", "pending": " "}
            steps = data.get("steps") or []
            rows = [
                f"  [{marks.get(s.get('status'), '?')}] {safe_line(s.get('text'))}" for s in steps
            ]
            return "\n".join([colour("plan", "bold"), *rows])
        if kind == "turn_end":
            good = data.get("code") in ("verified", "completed", "ok")
            told = safe_line(data.get("reason") or data.get("why") or "")
            text = (
                f"── turn {frame.get('turn', '?')} ended: {safe_line(data.get('code', '?'))} {told}"
            )
            return colour(f"{text.rstrip()}  {when}", "green" if good else "red")
        if kind == "gap":
            return colour(f"[{data.get('missing', '?')} frames are no longer kept]", "yellow")
        if kind == "usage":
            return ""
        return self._dim(f"{safe_line(kind)}: {safe(data.get('text') or data)}")

    def prompt(self, text: str) -> str:
        """A prompt; for a person a long one is cut, as it is one command away."""
        lines = text.rstrip("\n").split("\n")
        if not self.context.human or len(lines) <= PROMPT_LINES:
            return "\n".join(lines)
        left = len(lines) - PROMPT_LINES
        whole = self.context.command("show", self.task, "--plan")
        return "\n".join([*lines[:PROMPT_LINES], f"[{left} more lines: {whole}]"])

    def tool(self, data: Json) -> str:
        """A tool call: at its start what it does, at its end how it went."""
        from handoff.cli.terminal import colour, safe_line

        ident, status = str(data.get("id", "")), data.get("status")
        what = data.get("command") or data.get("title") or data.get("kind") or "tool"
        paths = [safe_line(path) for path in (data.get("paths") or [])[:3]]
        head = safe_line(what) if len(str(what)) < 2000 else safe_line(str(what)[:2000]) + "…"
        if paths and not data.get("command") and not any(path in head for path in paths):
            head += "  " + ", ".join(paths)
        lines = []
        if self._tools.get(ident) != head and (head != "tool" or ident not in self._tools):
            self._tools[ident] = head
            lines.append(colour(f"▸ {head}", "cyan"))
        if status in ("completed", "failed"):
            lines += self._output(data, failed=status == "failed")
            self._tools.pop(ident, None)
        return "\n".join(lines)

    def _output(self, data: Json, *, failed: bool) -> list[str]:
        from handoff.cli.terminal import colour, safe

        output = str(data.get("output") or "").rstrip("\n")
        shown = output.split("\n") if output else []
        lines = [f"    {safe(line[:300])}" for line in shown[-6:]]
        if len(shown) > 6:
            lines.insert(0, self._dim(f"    [{len(shown) - 6} lines before]"))
        if failed:
            lines.append(colour("    failed", "red"))
        return lines


def run(args: Namespace, context: Context) -> int:
    """Watch it."""
    from handoff.cli.context import tasks_path
    from handoff.client.stream import Frames

    task = args.task or choose(context)
    if task is None:
        return 0
    found = context.client().get(tasks_path(task))
    if not found.get("task"):
        raise NotFound(f"there is no task {task}", remedy="handoff tasks")
    tail = None if args.all else TAIL
    follow = not args.no_follow
    stream = Frames(
        context.client(), found["task"]["id"], follow=follow, tail=tail, notify=context.say
    )
    view = View(context, found["task"]["id"])
    try:
        for item in stream:
            if "frame" not in item:
                continue
            if context.json_wanted:
                context.emit(item["frame"])
            else:
                view.frame(item["frame"])
    except KeyboardInterrupt:
        view.close()
        sys.stdout.flush()
        context.say(f"left; the task goes on.  {context.command('attach', short(task))}")
        return 0
    view.close()
    sys.stdout.flush()
    return 0
