"""``handoff nodes serve | status | stop | doctor``."""

from __future__ import annotations

import os
import sys

from handoff import __version__
from handoff.cli import nodes_place as place
from handoff.errors import HandoffError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser
    from handoff.nodes.brain.main import Settings


def parser(name: str) -> Parser:
    """The verb's own flags."""
    if name == "serve":
        return _serve_flags()
    about = {
        "status": "Whether a brain serves, where nodes dial it, and how many do.",
        "restart": "End the brain and start it anew, in the background. Nodes dial again; what\n"
        "runs on them goes on. What is given here is kept in the brain's folder. A brain that\n"
        "`handoff nodes serve` runs is restarted there.",
        "stop": "End the brain. Nodes dial again; what runs on them goes on, and its results\n"
        "are kept for the next brain.",
        "doctor": "Check the brain, its files, its port and its nodes.",
    }[name]
    examples = f"  handoff nodes {name}"
    if name == "restart":
        examples += "\n  handoff nodes restart --host 0.0.0.0 --address wss://brain.example:7000"
        return _listen_flags(place.parser(name, about, examples=examples))
    return place.parser(name, about, examples=examples)


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    if name == "serve":
        return _serve(args, context)
    if name == "stop":
        place.client(args, start=False).ask("stop")
        place.tell(context, {"stopped": True}, "The brain ends.")
        return 0
    if name == "restart":
        return _restart(args, context)
    return _status(args, context) if name == "status" else _doctor(args, context)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 65536):
        import argparse

        raise argparse.ArgumentTypeError(f"'{text}' is no port: 0 to 65535")
    return int(text)


def _serve_flags() -> Parser:
    made = place.parser(
        "serve",
        "Run the brain in the foreground. What is given here is kept in the brain's folder,\n"
        "and counts for a brain that another command starts as well.",
        examples="  handoff nodes serve\n"
        "  handoff nodes serve --host 0.0.0.0 --address wss://brain.example:7000",
    )
    return _listen_flags(made)


def _listen_flags(made: Parser) -> Parser:
    made.add_argument("--host", default="", help="address to listen on (default: 127.0.0.1)")
    made.add_argument("--port", type=_port, default=-1, help="port (default: 7000; 0: a free one)")
    made.add_argument("--address", metavar="URL", default="", help="what nodes dial, if another")
    made.add_argument(
        "--tls", action="store_true", default=None, help="its own TLS (default), after --no-tls"
    )
    made.add_argument(
        "--no-tls",
        action="store_false",
        dest="tls",
        help="plain WebSocket: behind a proxy or tunnel only",
    )
    made.add_argument(
        "--require", choices=("any", "e2e", "e2e2"), default="", help="sealed sessions only"
    )
    return made


def _changes(args: Namespace) -> dict[str, Any]:
    """What of the settings is given. Raises BadRequest."""
    from handoff.link.pairing import check_address

    changes: dict[str, Any] = {}
    if args.host:
        changes["host"] = args.host
    if args.port >= 0:
        changes |= {"port": args.port, "fixed": True}
    if args.address:
        changes["address"] = check_address(args.address)
    if args.tls is not None:
        changes["tls"] = args.tls
    if args.require:
        changes["require"] = "" if args.require == "any" else args.require
    return changes


def _serve(args: Namespace, context: Context) -> int:
    import asyncio
    from dataclasses import replace

    from handoff.link.files import make_folder
    from handoff.nodes.brain.main import PORT, load_settings, save_settings, serve

    where = place.folder(args)
    make_folder(where)
    changes = _changes(args)
    settings = replace(load_settings(where), **changes)

    def ready(status: dict[str, Any]) -> None:
        if changes:  # what a brain can't serve with is not kept
            save_settings(where, settings)
        line = (
            f"nodes dial {status['address']}  (key {status['fingerprint']})\n"
            f"  listening on {status['host']}:{status['port']}, folder {where}\n"
            f"  pair one: {context.command('nodes', 'pair', 'NAME')}"
        )
        if not settings.fixed and status["port"] != PORT:
            line += f"\n  port {PORT} is in use by another program: this one is kept"
        if not status["tls"]:
            line += "\n  without TLS: only behind a proxy or tunnel that has it"
        place.tell(context, {"ready": status}, line)
        sys.stdout.flush()

    asyncio.run(serve(where, settings, ready))
    return 0


def _restart(args: Namespace, context: Context) -> int:
    import contextlib
    from dataclasses import replace

    from handoff.errors import NotAllowed
    from handoff.link.files import make_folder
    from handoff.nodes.brain.main import load_settings, save_settings
    from handoff.nodes.client import BrainClient

    where = place.folder(args)
    brain, changes = BrainClient(where), _changes(args)
    make_folder(where)
    before = load_settings(where)
    if brain.running():
        status = brain.ask("status")
        if not status.get("spawned"):
            raise NotAllowed(
                f"process {status['pid']} runs this brain in the foreground, or as a service",
                remedy="end it there, and start it there",
                pid=status["pid"],
            )
        brain.end()
    if changes:
        save_settings(where, replace(before, **changes))
    try:
        status = brain.ask("status")
    except HandoffError:
        if changes:  # with these it can't serve: nodes come back to the brain that there was
            save_settings(where, before)
            with contextlib.suppress(HandoffError):
                brain.ask("status")
        raise
    text = f"nodes dial {status['address']}; process {status['pid']}, version {status['version']}"
    place.tell(context, status, text)
    return 0


def _status(args: Namespace, context: Context) -> int:
    status = place.client(args, start=False).ask("status")
    place.tell(
        context,
        status,
        f"nodes dial {status['address']}  (key {status['fingerprint']})\n"
        f"  {status['connected']} connected, {status['under_way']} calls under way; "
        f"process {status['pid']}, folder {status['folder']}, "
        f"version {status.get('version', 'unknown')}",
    )
    return 0


def _doctor(args: Namespace, context: Context) -> int:
    from handoff.nodes.brain import probing

    checks: list[tuple[str, bool, str]] = []
    where = place.folder(args)

    def check(name: str, good: bool, detail: str) -> None:
        checks.append((name, good, detail))

    check("folder", os.path.isdir(where), where)
    if os.path.isdir(where):
        bits = os.stat(where).st_mode & 0o077
        check("private", not bits, "for its user alone" if not bits else f"chmod 700 {where}")
    settings = _doctor_settings(where, check)
    try:
        brain = place.client(args, start=False)
        status = brain.ask("status")
        check("brain", True, f"process {status['pid']}, {status['address']}")
        version = status.get("version", "unknown")
        check("version", version == __version__, f"brain {version}, this program {__version__}")
        check("port", *probing.answering(where, status))
        for one in brain.ask("nodes")["nodes"]:
            good = one["state"] == "connected"
            check(f"node {one['name']}", good or one["state"] == "revoked", one["state"])
    except HandoffError as error:
        check("brain", False, f"{error.cause}; {context.command('nodes', 'serve')}")
        if settings is not None:
            check("port", *probing.port_to_be_had(settings))
    good = all(one[1] for one in checks)
    rows = [{"check": name, "ok": fine, "detail": detail} for name, fine, detail in checks]
    lines = [f"{'ok  ' if fine else 'FAIL'} {name}: {detail}" for name, fine, detail in checks]
    place.tell(context, {"ok": good, "checks": rows}, "\n".join(lines))
    return 0 if good else 1


def _doctor_settings(where: str, check: Any) -> Settings | None:
    """The settings, if they can be read."""
    from handoff.nodes import audit
    from handoff.nodes.brain.main import load_settings

    settings = None
    try:
        settings = load_settings(where)
        check("settings", True, f"{settings.host}:{settings.port}")
        local = settings.host in {"127.0.0.1", "::1", "localhost"}
        detail = "for this machine and tunnels only" if local else settings.host
        check("reach", True, detail)
    except HandoffError as error:
        check("settings", False, error.cause)
    try:
        report = audit.verify(os.path.join(where, "audit"))
        found = [f"{one.file}:{one.line} {one.what}" for one in report.findings[:3]]
        check("audit", not found, "; ".join(found) or f"{report.rows} rows, unbroken")
    except HandoffError as error:
        check("audit", False, error.cause)
    return settings
