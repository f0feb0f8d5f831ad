"""``handoff nodes exec | jobs``: commands on nodes."""

from __future__ import annotations

import contextlib
import os
import sys

from handoff.cli import nodes_place as place
from handoff.cli.parsing import count
from handoff.errors import HandoffError, UsageError
from handoff.nodes.exits import TIMED_OUT, exit_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser
    from handoff.nodes.client import BrainClient

#: bytes of standard input that are read at a time
CHUNK = 1 << 16


def parser(name: str) -> Parser:
    """The verb's own flags."""
    if name == "jobs":
        return _job_flags()
    made = place.parser(
        "exec",
        "Run a command on nodes. What it writes comes as it is written, and its exit code is\n"
        "ours (of several nodes: the highest). The command goes behind --, as a program with\n"
        "its arguments; --shell takes a line for the node's shell instead.",
        examples="  handoff nodes exec lab -- make test\n"
        "  handoff nodes exec lab --shell 'cd src && make'\n"
        "  handoff nodes exec lab --in work --shell 'export N=3'\n"
        "  handoff nodes exec --tag linux --limit 4 -- uptime",
    )
    made.add_argument("names", nargs="*", metavar="NODE", help="nodes by name; 'all' for each")
    made.add_argument("--tag", action="append", default=[], help="nodes that have this tag")
    made.add_argument("--limit", type=count, default=8, metavar="N", help="nodes at a time")
    _command_flags(made)
    made.add_argument(
        "--in", dest="within", metavar="SHELL", default="", help="in this shell: nodes shells"
    )
    made.add_argument("--stdin", action="store_true", help="send our standard input")
    made.add_argument("--key", default="", help="the call's key: the same runs nothing twice")
    made.add_argument(
        "--queue-until", metavar="TIME", default="0", help="wait so long for a node that is away"
    )
    return made


def _command_flags(made: Parser) -> None:
    made.add_argument("--shell", metavar="LINE", default="", help="a line for the node's shell")
    made.add_argument("--cwd", default="", help="folder to start in (default: the home)")
    made.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for it"
    )
    made.add_argument("--timeout", metavar="TIME", default="1h", help="time limit (default: 1h)")


def _job_flags() -> Parser:
    made = place.parser(
        "jobs",
        "Commands in the background of a node. Without a verb: all of them.",
        examples="  handoff nodes jobs lab start -- make world\n"
        "  handoff nodes jobs lab\n"
        "  handoff nodes jobs lab tail call-4f0c…",
    )
    made.add_argument("node", help="the node")
    made.add_argument(
        "verb",
        nargs="?",
        default="list",
        choices=("list", "start", "tail", "wait", "kill", "forget"),
        help="what to do",
    )
    made.add_argument("job", nargs="?", default="", help="the job's key, or its beginning")
    _command_flags(made)
    made.add_argument("--stderr", action="store_true", help="tail: its errors")
    made.set_defaults(timeout="")
    return made


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    return _jobs(args, context) if name == "jobs" else _exec(args, context)


def call_of(args: Namespace, context: Context) -> dict[str, Any]:
    """The command as the arguments of a call.

    Raises:
        UsageError: none, or two.
    """
    words = context.rest or []
    if bool(words) == bool(args.shell):
        raise UsageError(
            "give a command behind '--', or a line with --shell",
            remedy="handoff nodes exec NODE -- COMMAND ...",
        )
    within = getattr(args, "within", "")
    if within and (args.cwd or args.env or args.stdin):
        raise UsageError(
            "a command in a shell has that shell's folder and variables, and no input",
            remedy=f"handoff nodes shells NODE open {within} --cwd DIR --env NAME=VALUE",
        )
    # a job without a limit runs until it ends
    limit = round(place.seconds(args.timeout) * 1000) if args.timeout else 0
    made: dict[str, Any] = {"timeout_ms": limit}
    if within:
        import shlex

        made |= {"shell": within, "command": place.argument(args.shell or shlex.join(words))}
    elif words:
        made["argv"] = [place.argument(word) for word in words]
    else:
        made["command"] = place.argument(args.shell)
    if args.cwd:
        made["cwd"] = place.argument(args.cwd)
    if env := place.variables(args.env):
        made["env"] = env
    return made


def _exec(args: Namespace, context: Context) -> int:

    call = call_of(args, context)
    brain = place.client(args)
    names = place.choose(brain, args.names, args.tag)
    wait_s = place.seconds(args.queue_until)
    if len(names) == 1:
        return _one(brain, names[0], call, args, context, wait_s)
    if args.stdin or args.key:
        raise UsageError("--stdin and --key are for one node", remedy="name one node")
    return _many(brain, names, call, args, context, wait_s)


def _many(
    brain: BrainClient,
    names: list[str],
    call: dict[str, Any],
    args: Namespace,
    context: Context,
    wait_s: float,
) -> int:
    """A command on several nodes. Whatever ends us early ends it on all of them."""
    from concurrent.futures import ThreadPoolExecutor, as_completed

    from handoff.nodes.client import new_key

    worst = 0
    keys = {name: new_key() for name in names}
    with ThreadPoolExecutor(args.limit) as pool:
        asked = {
            pool.submit(brain.call, name, "exec", call, key=key, by=place.by(), wait_s=wait_s): name
            for name, key in keys.items()
        }
        try:
            for future in as_completed(asked):
                worst = max(worst, _told(asked[future], future, context))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for future, name in asked.items():
                if not future.done():
                    with contextlib.suppress(HandoffError, OSError):
                        brain.ask("cancel", key=keys[name])
            raise
    return worst


def _told(name: str, future: Any, context: Context) -> int:
    """One node's part of a command on many."""
    from handoff.cli.terminal import safe

    try:
        ok, value = future.result()
    except HandoffError as error:
        ok, value = False, error.to_json()
    if not context.human:
        context.emit({"node": name, "ok": ok, "result": value})
        return _code(value) if ok else place.failed(value).exit_code
    if not ok:
        context.say(f"{name}: {value.get('error')}")
        return place.failed(value).exit_code
    for stream in ("stdout", "stderr"):
        text = whole(value, stream).decode("utf-8", "replace")
        for line in text.splitlines():
            context.show(safe(f"{name}: {line}"))
    return _code(value)


def _one(
    brain: BrainClient,
    name: str,
    call: dict[str, Any],
    args: Namespace,
    context: Context,
    wait_s: float,
) -> int:
    from handoff.nodes.client import new_key

    key = args.key or new_key()
    streamed = not context.json_wanted
    if args.stdin:
        call["stdin"] = "stream"
    if streamed:
        call["stream"] = True
    had = {"stdout": 0, "stderr": 0}

    def shown(stream: str, data: bytes) -> None:
        had[stream] = had.get(stream, 0) + len(data)
        _write(stream, data)

    ok, value = brain.call(
        name,
        "exec",
        call,
        key=key,
        by=place.by(),
        wait_s=wait_s,
        pieces=shown if streamed else None,
        feed=_input() if args.stdin else None,
    )
    if not ok:
        raise place.failed({**value, "details": {**value.get("details", {}), "key": key}})
    if not streamed:
        for stream in ("stdout", "stderr"):
            _fill(brain, name, value.get(stream, {}))
        context.emit({"node": name, "key": key, "result": value})
        return _code(value)
    for stream, fd in (("stdout", 1), ("stderr", 2)):
        told = value.get(stream, {})
        if told and not told.get("streamed"):
            for data in _untold(brain, name, told, had[stream]) or [
                whole(value, stream, had[stream])
            ]:
                _write_all(fd, data)
    notes = [value["note"]] if value.get("note") else []
    if value.get("still_holding"):
        notes.append("something that it started still had its output open, and was ended")
    if value.get("status") not in {"ok", "error", None}:
        why = value.get("ended_by", "")
        notes.append(_ENDED.get(why, f"{value['status']} ({why})"))
    for note in notes:
        context.say(f"handoff: {name}: {note}")
    return _code(value)


def _untold(
    brain: BrainClient, name: str, told: dict[str, Any], had: int
) -> Iterator[bytes] | None:
    """A stream of which the answer holds nothing, as far as its node keeps it: that of a call
    which was asked once more. None if the answer holds it."""
    total = told.get("bytes_total", 0)
    if told.get("head") or told.get("tail") or not told.get("spill") or had >= total:
        return None
    return _kept(brain, name, told["spill"], had, total)


def _fill(brain: BrainClient, name: str, told: dict[str, Any]) -> None:
    """Start and end of a stream whose bytes went to whoever asked first, as an answer has
    them."""
    from handoff.wire.node.commands import HEAD_BYTES, TAIL_BYTES

    total = told.get("bytes_total", 0)
    if told.get("head") or told.get("tail") or not told.get("spill") or not total:
        return
    whole = total <= HEAD_BYTES + TAIL_BYTES
    parts = [("head", 0, total if whole else HEAD_BYTES)]
    parts += [] if whole else [("tail", total - TAIL_BYTES, TAIL_BYTES)]
    for part, at, length in parts:
        given = {"spill": told["spill"], "offset": at, "length": length}
        ok, value = brain.call(name, "read_output", given, by=place.by())
        if ok and value.get("offset", 0) == at and value.get("data"):
            told[part] = value["data"]


def _kept(brain: BrainClient, name: str, spill: str, at: int, total: int) -> Iterator[bytes]:
    while at < total:
        given = {"spill": spill, "offset": at, "length": CHUNK}
        ok, value = brain.call(name, "read_output", given, by=place.by())
        data = place.text_of(value.get("data", "")) if ok else b""
        found = value.get("offset", 0) if data else total
        if found > at:
            yield f"\n[{found - at} bytes left out]\n".encode()
        yield data
        at = found + len(data)


def whole(value: dict[str, Any], stream: str, had: int = 0) -> bytes:
    """A stream of a result: its start, a line that says what is left out, its end. had: so
    many bytes of it were shown before."""
    told = value.get(stream, {})
    head = place.text_of(told.get("head", ""))
    tail = place.text_of(told.get("tail", ""))
    tail_at = max(len(head), told.get("bytes_total", 0) - len(tail))
    start = max(had, len(head))
    left = ""
    if start < tail_at:
        spill = f"; read_output {told['spill']}" if told.get("spill") else ""
        left = f"\n[{tail_at - start} bytes left out{spill}]\n"
    return head[had:] + left.encode() + tail[max(0, had - tail_at) :]


#: why a command did not end by itself
_ENDED = {
    "timeout": "ended at its time limit",
    "cancel": "ended: it was cancelled",
    "revoked": "ended: the node was revoked",
    "shutdown": "ended: the node was stopped",
}


def _code(value: dict[str, Any]) -> int:
    """The exit code that a result stands for."""
    code = exit_code(value)
    return 1 if code is None else code


def _write(stream: str, data: bytes) -> None:
    _write_all(2 if stream == "stderr" else 1, data)


def _write_all(fd: int, data: bytes) -> None:
    (sys.stderr if fd == 2 else sys.stdout).flush()
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _input() -> Iterator[bytes]:
    while data := os.read(0, CHUNK):
        yield data


def _jobs(args: Namespace, context: Context) -> int:
    from handoff.nodes.client import new_key

    brain = place.client(args)
    if args.verb == "start":
        call = {**call_of(args, context), "job": True}
        ok, value = brain.call(args.node, "exec", call, key=new_key(), by=place.by())
        if not ok:
            raise place.failed(value)
        place.tell(context, value, f"{value['job']}  process {value.get('pid')}")
        return 0
    if args.verb == "list":
        return _job_list(brain, args, context)
    job = _resolve(brain, args)
    if args.verb == "tail":
        stream = "stderr" if args.stderr else "stdout"
        ok, value = brain.call(args.node, "job_tail", {"job": job, "stream": stream})
        if not ok:
            raise place.failed(value)
        if context.json_wanted:
            context.emit(value)
        else:
            _write_all(1, place.text_of(value.get("data", "")))
        return 0
    verb = {"wait": "job_wait", "kill": "job_kill", "forget": "job_forget"}[args.verb]
    given: dict[str, Any] = {"job": job}
    if args.verb == "wait":
        given["timeout_ms"] = round(place.seconds(args.timeout or "1h") * 1000)
    ok, value = brain.call(args.node, verb, given, key=new_key(), by=place.by())
    if not ok:
        raise place.failed(value)
    place.tell(context, value, f"{job}: {value.get('state', 'done')}")
    if args.verb != "wait":
        return 0
    return TIMED_OUT if value.get("state") == "running" else _code(value.get("result", {}))


def _job_list(brain: BrainClient, args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line

    ok, value = brain.call(args.node, "job_list", {}, by=place.by())
    if not ok:
        raise place.failed(value)
    if not context.human:
        context.emit({"jobs": [], **value})
        return 0
    for one in value.get("jobs", []):
        context.show(safe_line(f"{one['job']}  {one['state']:<8} {one.get('command', '')}"))
    return 0


def _resolve(brain: BrainClient, args: Namespace) -> str:
    """A job by its whole key or a beginning that only one has."""
    from handoff.errors import UnknownCall
    from handoff.ids import resolve

    listed = f"handoff nodes jobs {args.node}"
    if not args.job:
        raise UsageError("name the job", remedy=listed)
    ok, value = brain.call(args.node, "job_list", {}, by=place.by())
    if not ok:
        raise place.failed(value)
    return resolve(args.job, [one["job"] for one in value.get("jobs", [])], UnknownCall, listed)
