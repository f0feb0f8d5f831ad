"""``handoff dispatch``: hand a plan to an executor."""

from __future__ import annotations

import os
import sys

from handoff.errors import HandoffError, InputTooLarge, NotFound, Unreachable, UsageError, from_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

#: bytes of a plan or prompt: with base64 it fits into the 4 MiB that agentd takes
MAX_PLAN = 3 * 1024 * 1024
#: seconds: agentd answers once the executor runs, and waits 120 s for that
ANSWER_S = 180.0
#: events that come only once the executor works
STARTED = ("permission_request", "question", "completed", "turn_failed", "archived")


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser
    from handoff.cli.task_records import profile_flag

    made = Parser(
        "dispatch",
        "Hand a plan to an executor, which works in a worktree of its own.\n"
        "On a terminal it stays until the executor has started; the task does not depend on it.",
        examples="  handoff dispatch plan.md\n"
        "  handoff dispatch --prompt 'fix the failing test' --verify 'pytest -q'\n"
        "  git diff | handoff dispatch --prompt - --executor claude\n"
        "  handoff dispatch --from REF --executor codex",
    )
    made.add_argument("plan", nargs="?", help="file with the plan")
    made.add_argument("--prompt", metavar="TEXT", help="instruction; `-` reads standard input")
    made.add_argument("--from", dest="record", metavar="REF", help="go on from a handoff record")
    made.add_argument("--name", default="", help="name to show for the task")
    made.add_argument("--project", metavar="NAME", default="", help="a registered project")
    made.add_argument("--executor", metavar="NAME", default="", help="which executor")
    made.add_argument("--model", metavar="NAME", default="", help="which model it uses")
    place = made.add_argument_group("where it works (default: a worktree of its own)")
    trees = place.add_mutually_exclusive_group()
    trees.add_argument("--new-worktree", action="store_true", help="a managed worktree (default)")
    trees.add_argument("--worktree", metavar="PATH", default="", help="a worktree of yours")
    trees.add_argument("--in-place", action="store_true", help="the folder you stand in")
    names = place.add_mutually_exclusive_group()
    names.add_argument("--branch", metavar="NAME", default="", help="an existing branch")
    names.add_argument("--new-branch", metavar="NAME", default="", help="name of the new branch")
    place.add_argument("--base", metavar="REF", default="", help="start there, not at your HEAD")
    place.add_argument("--allow-dirty", action="store_true", help="although there are changes")
    place.add_argument("--no-sync-check", action="store_true", help="remote: don't compare HEADs")
    made.add_argument(
        "--verify",
        metavar="CMD",
        action="append",
        default=[],
        help="run after each turn; repeatable",
    )
    made.add_argument("--no-setup", action="store_true", help="skip the configured set-up command")
    profile_flag(made)
    made.add_argument("--detach", action="store_true", help="don't wait for the executor's start")
    made.add_argument("--no-terminal", action="store_true", help="open no terminal window")
    return made


def _read(path: str) -> bytes:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_PLAN + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MAX_PLAN + 1)
    except OSError as error:
        kind = NotFound if isinstance(error, FileNotFoundError) else UsageError
        raise kind(f"the plan {path} can't be read: {error.strerror}", path=path) from error
    if len(data) > MAX_PLAN:
        raise InputTooLarge(
            f"the plan is larger than {MAX_PLAN} bytes", remedy="put it into the project"
        )
    return data


def read_text(path: str, what: str) -> str:
    """A file, or standard input for ``-``, as text.

    Raises:
        UsageError: it can't be read or is not UTF-8.
    """
    try:
        return _read(path).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8 (byte {error.start})") from None


def request(args: Namespace, context: Context) -> dict[str, Any]:
    """The body of the call.

    Raises:
        UsageError: neither plan nor prompt, or an empty one.
        HandoffError: the record to go on from can't be had, or is another project's.
    """
    prompt = args.prompt
    if prompt == "-":
        prompt = read_text("-", "standard input")
    body: dict[str, Any] = {"prompt": prompt or "", "name": args.name}
    if args.plan is not None:
        raw = _read(args.plan)
        if not raw.strip():
            raise UsageError(f"the plan {args.plan} is empty")
        from base64 import b64encode

        body["plan_b64"] = b64encode(raw).decode()
        body["plan_name"] = os.path.basename(args.plan) if args.plan != "-" else "plan.md"
    if args.record is not None:
        _add_record(body, args, context)
    elif args.plan is None and not (prompt or "").strip():
        raise UsageError(
            "there is nothing to do: give a plan file or --prompt", remedy="handoff dispatch --help"
        )
    body |= {
        "executor": args.executor,
        "model": args.model,
        "branch": args.branch,
        "new_branch": args.new_branch,
        "base": args.base,
        "worktree": os.path.abspath(args.worktree) if args.worktree else "",
        "new_worktree": args.new_worktree,
        "in_place": args.in_place,
        "allow_dirty": args.allow_dirty,
        "verify": args.verify,
        "setup": not args.no_setup,
        "project_name": args.project,
        "target": context.target,
    }
    if not args.project and context.local:
        body["start_dir"] = os.getcwd()
    elif not context.local:
        from handoff.cli.remote import baseline

        body |= baseline(args, context)
    return body


def _add_record(body: dict[str, Any], args: Namespace, context: Context) -> None:
    """Put a record behind the plan, if there is one, and name the task after its goal."""
    from base64 import b64decode, b64encode

    from handoff.cli.task_records import plan_of

    own = b64decode(body.get("plan_b64", ""))
    own = own.rstrip(b"\n") + b"\n\n" if own else b""
    made, name, title = plan_of(args.record, args, context, MAX_PLAN - len(own))
    body["plan_b64"] = b64encode(own + made).decode()
    body.setdefault("plan_name", name)
    body["name"] = body["name"] or title


def run(args: Namespace, context: Context) -> int:
    """Dispatch; on a terminal follow the start."""
    body = request(args, context)
    watch = context.human and not args.detach
    task = _sent(body, args, context)
    if context.human:
        from handoff.cli import render

        context.show("\n".join(render.task_head(task)))
    else:
        for note in task.get("notes") or []:
            context.say(f"note: {note}")
        context.emit(task)
    if sys.platform == "darwin" and not args.no_terminal and context.local:
        _open_terminal(task["id"], context)
    return _follow_start(task, context) if watch else 0


def _sent(body: dict[str, Any], args: Namespace, context: Context) -> dict[str, Any]:
    """The task. One that goes on from a record is noted with the record, before and after."""
    delivery = None
    if args.record is not None:
        from handoff.cli.task_records import Delivery

        delivery = Delivery(args, context)
    try:
        task: dict[str, Any] = context.client().post(
            "/api/tasks",
            body,
            # Who watches the start, or does not care for it, need not wait for it in silence.
            {"wait": 0 if context.human or args.detach else None},
            look=context.command("tasks", "--limit", "3"),
            answer_s=ANSWER_S,
        )
    except HandoffError as error:
        if delivery:
            delivery.failed(error)
        raise
    if delivery:
        delivery.done(task)
    return task


def _follow_start(task: dict[str, Any], context: Context) -> int:
    """Show events until the executor works, waits in the queue, or the task ends.

    Raises:
        HandoffError: why it could not begin.
    """
    from handoff.cli import render
    from handoff.cli.terminal import colour
    from handoff.client.stream import Events
    from handoff.ids import short

    stream = Events(context.client(), task["id"], 0, wakes=False, summary=False, notify=context.say)
    try:
        for item in stream:
            event = item.get("event")
            if event is None:
                continue
            kind = event["type"]
            if kind == "failed":
                raise _start_error(event["payload"])
            if kind in STARTED:
                break
            context.show(colour(f"  {render.event_line(event)}", "dim"))
            if kind in ("executor_started", "queue_changed"):
                break
    except KeyboardInterrupt:
        context.say("the task goes on without this terminal")
    except Unreachable as error:
        context.say(f"the task was dispatched, but its start can't be watched: {error}")
    for name in ("wait", "attach"):
        context.show("  " + context.command(name, short(task["id"])))
    return 0


def _start_error(payload: dict[str, Any]) -> HandoffError:
    """The typed error of a task that could not begin."""
    cause = payload.get("reason") or payload.get("fail_reason") or "the task could not begin"
    code, remedy = payload.get("code"), payload.get("remedy") or ""
    return from_json({"error": cause, "code": code, "remedy": remedy})


def _open_terminal(task_id: str, context: Context) -> None:
    """Open Terminal.app on the task where the configuration wants that (macOS)."""
    from handoff.config import load

    try:
        if not load(context.config)[0].terminal.auto:
            return
    except HandoffError as error:
        context.say(f"no terminal was opened: {error}")
        return
    import subprocess

    command = context.command("attach", task_id).replace("\\", "\\\\").replace('"', '\\"')
    script = f'tell application "Terminal" to do script "{command}"'
    try:
        subprocess.run(["osascript", "-e", script], check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        context.say(f"no terminal was opened: {type(error).__name__}")
