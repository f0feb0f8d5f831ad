"""``handoff agentd``: start the daemon, in the foreground or in the background."""

from __future__ import annotations

import json
import os
import sys
import time

from handoff.cli import terminal
from handoff.errors import Failed, HandoffError, Unreachable, from_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

#: seconds that a daemon may take until it answers
START_S = 30.0


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "agentd",
        "Start the daemon that runs executors. It writes a first configuration if there is\n"
        "none. Executors outlive it: stopping and starting it loses nothing.",
        examples="  handoff agentd --detach\n  handoff agentd --executor fake",
    )
    made.add_argument("--executor", metavar="NAME", help="executor of a task that names none")
    made.add_argument("--listen", metavar="ADDR", help="loopback listener, or `off`")
    made.add_argument("--detach", action="store_true", help="start it in the background")
    return made


def run(args: Namespace, context: Context) -> int:
    """Start it."""
    from handoff.config import create_default

    if create_default(context.config):
        context.say(f"wrote a first configuration: {context.config}")
    if args.detach:
        return detach(args, context)
    from handoff.agentd.main import main

    if terminal.is_tty(sys.stderr):
        context.say("agentd runs in this terminal; Ctrl-C ends it, executors go on without it")
    return int(main(context.config, executor=args.executor, listen=args.listen))


def answering(context: Context) -> dict[str, Any] | None:
    """The status of a running local agentd, or None."""
    from handoff.client.endpoint import discover
    from handoff.client.http import Client

    try:
        client = Client(lambda: discover(context.config), retry_s=0)
        return dict(client.get("/api/status", answer_s=2))
    except Unreachable:
        return None


def detach(args: Namespace, context: Context) -> int:
    """Start it in a session of its own and wait until it answers.

    Raises:
        HandoffError: what it ended with, as it said it.
        Failed: it ended without a word of ours, or did not answer in time.
    """
    import subprocess

    from handoff.config import load

    found = answering(context)
    if found is not None:
        return report(found, context, "agentd runs already")
    settings = load(context.config)[0]
    os.makedirs(settings.datadir, mode=0o700, exist_ok=True)
    # It writes its log itself; this catches what it says before it can, or when it crashes.
    last_words = os.path.join(settings.datadir, "agentd.stderr")
    command = [sys.executable, "-m", "handoff.cli.main", "--json", "--config", context.config]
    command.append("agentd")
    for flag, value in (("--executor", args.executor), ("--listen", args.listen)):
        command += [flag, value] if value else []
    with open(os.open(last_words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=settings.datadir,
        )
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        code = child.poll()
        found = answering(context)
        if found is not None and found.get("pid") == child.pid:
            child.returncode = 0  # it is meant to outlive us: not a forgotten child
            return report(found, context, "agentd runs")
        if code is not None:
            raise said(last_words, f"agentd ended with {code}")
        time.sleep(0.02)
    child.kill()
    child.wait()
    raise said(last_words, f"agentd did not answer within {START_S:g} s")


def said(path: str, what: str) -> HandoffError:
    """The typed error that it ended with, or one that quotes its last line."""
    with open(path, "rb") as file:
        lines = file.read()[-16384:].decode("utf-8", "replace").strip().splitlines()
    last = lines[-1] if lines else "it wrote nothing"
    try:
        body = json.loads(last)
    except ValueError:
        body = None
    if isinstance(body, dict) and body.get("code"):
        return from_json(body)
    return Failed(f"{what}: {last}", remedy=f"cat {terminal.shell_quote(path)}")


def report(found: dict[str, Any], context: Context, head: str) -> int:
    """Say where it is."""
    if context.json_wanted:
        context.emit(found)
        return 0
    context.show(f"{head}: pid {found.get('pid')}, {found.get('socket')}")
    if found.get("listen"):
        context.show(f"  listens on {found['listen']}")
    context.show(f"  data and log: {found.get('data_dir')}")
    return 0
