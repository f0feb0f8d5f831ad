"""``handoff run``: a command in a task's worktree, on the machine that has it."""

from __future__ import annotations

import json
import sys

from handoff.errors import OutcomeUnknown, ProtocolViolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser
    from handoff.client.http import Response

#: seconds after which agentd ends the command where no --timeout was given
DEFAULT_S = 600.0
REST = True


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser, duration

    made = Parser(
        "run",
        "Run a command in the task's worktree. Both output channels arrive as they are\n"
        "written; the exit code is the command's own, 124 if it was ended at its time limit.\n"
        "One word is shell text; several are a program and its arguments, kept as they are.\n"
        "Flags of handoff stand before the task or before `--`.",
        examples="  handoff run 1f3a pytest -q\n  handoff run 1f3a 'grep -c x *.py | sort'\n"
        "  handoff run --timeout 90s 1f3a -- make check",
    )
    made.add_argument("--timeout", metavar="DUR", type=duration, help="time limit (default 10m)")
    made.add_argument("task", help="task id or a unique prefix of it")
    made.add_argument("command", nargs="*", help="the command", metavar="CMD")
    return made


def split(words: list[str], after: list[str] | None) -> tuple[list[str], list[str] | None]:
    """Keep handoff's flags from the command's: (ours, the command).

    Without ``--`` everything behind the task belongs to the command.
    """
    valued = ("--timeout", "--agentd", "--target", "--config")
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in valued else 1
    if after is not None:
        flags_only = all(
            w.startswith("-") or words[n] in valued for n, w in enumerate(words[at + 1 :], at)
        )
        if flags_only:
            return words, after
        after = ["--", *after]
    return words[: at + 1], [*words[at + 1 :], *(after or [])]


def run(args: Namespace, context: Context) -> int:
    """Run it and pass on what it says."""
    from handoff.cli.context import tasks_path

    words = context.rest or []
    if not words:
        parser().error("give a command")
    limit = args.timeout or DEFAULT_S
    body: dict[str, Any] = {"cmd": words[0]} if len(words) == 1 else {"argv": words}
    body["timeout_s"] = limit
    path, client = tasks_path(args.task, "run"), context.client()
    look = context.command("show", args.task)
    if context.json_wanted:
        result = client.post(path, body, look=look, answer_s=limit + 30)
        context.emit(result)
        return exit_code(result)
    from handoff.client.http import Lost

    try:
        response = client.open(
            "POST", path, None, {**body, "stream": True}, answer_s=limit + 30, persist=False
        )
        response.idle_s = limit + 30
        try:
            result = _copy(response)
        finally:
            response.close()
    except (Lost, TimeoutError) as error:
        raise OutcomeUnknown(
            f"the link was lost while the command ran: {error or 'no sign of life'}", remedy=look
        ) from error
    if result.get("dropped_bytes"):
        context.say(f"{result['dropped_bytes']} bytes of output were left out")
    if result.get("timed_out"):
        context.say(f"ended at its time limit of {limit:g} s")
    return exit_code(result)


def exit_code(result: dict[str, Any]) -> int:
    """The command's exit code as a shell gives it: 128 + signal, 124 at the time limit."""
    if result.get("timed_out"):
        return 124
    code = int(result["exit_code"])
    return 128 - code if code < 0 else code


def _copy(response: Response) -> dict[str, Any]:
    from base64 import b64decode

    from handoff.cli.terminal import is_tty, safe

    streams = {1: sys.stdout, 2: sys.stderr}
    rest = {1: b"", 2: b""}
    for line in response.lines():
        item = json.loads(line)
        if "exit_code" in item:
            for fd, tail in rest.items():
                if tail:
                    print(safe(tail.decode("utf-8", "surrogateescape")), end="", file=streams[fd])
                streams[fd].flush()
            return dict(item)
        if "fd" not in item:
            continue
        fd = item["fd"]
        data = b64decode(item["b64"])
        if is_tty(streams[fd]):
            data, rest[fd] = whole(rest[fd] + data)
            text = data.replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")
            print(safe(text), end="", file=streams[fd])
        else:
            streams[fd].buffer.write(data)
        streams[fd].flush()
    raise ProtocolViolation("agentd's answer had no exit code")


def whole(data: bytes) -> tuple[bytes, bytes]:
    """Data up to its last whole UTF-8 character or line end, and the begun one."""
    if data.endswith(b"\r"):
        return data[:-1], b"\r"
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return (data[:-back], data[-back:]) if need > back else (data, b"")
    return data, b""
