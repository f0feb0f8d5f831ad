"""``hermes node …``: the nodes of the profile, for a person at a terminal."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from handoff.errors import HandoffError, UnknownNode, UsageError

from . import results
from .runtime import Runtime

__all__ = ["ABOUT", "Commands", "arguments"]

ABOUT = "Remote nodes of this profile: pair, list, revoke, and look after them"
#: seconds for a brain to end
END_S = 20.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs."""
    verbs = parser.add_subparsers(dest="node_verb", metavar="VERB")
    for name, about in _VERBS.items():
        verb = verbs.add_parser(name, help=about, description=about)
        verb.add_argument("--json", action="store_true", help="for programs")
        if name in {"pair", "revoke", "show", "rotate", "rename"}:
            verb.add_argument("node", nargs="?", default="", metavar="NAME", help="the node")
            verb.add_argument("--name", default="", help="the same as NAME")
        if name in _MORE:
            _MORE[name](verb)


def _pair_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--force", action="store_true", help="in place of a node of that name")
    verb.add_argument("--address", default="", metavar="URL", help="what the node dials")
    verb.add_argument("--ttl", type=int, default=600, metavar="S", help="seconds of the code")
    verb.add_argument("--token", action="store_true", help="a permanent token, for a Go node")
    verb.add_argument(
        "--sealed",
        action="store_true",
        help="with --token: keep it, for sealed sessions only (v0.2)",
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:6]) < 65536):
        raise argparse.ArgumentTypeError(f"'{text}' is no port: 0 to 65535")
    return int(text)


def _restart_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--host", default="", help="listen there from now on")
    verb.add_argument("--port", type=_port, default=-1, help="and on this port (0: a free one)")
    verb.add_argument("--address", default="", metavar="URL", help="what nodes dial, if another")
    verb.add_argument("--tls", choices=("on", "off"), default="", help="off: behind a proxy only")


def _rename_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--to", default="", help="the new name, if it is not given as a second")
    verb.add_argument("other", nargs="?", default="", metavar="NEW", help="the new name")


def _log_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--node", default="", help="only about this node")
    verb.add_argument("--key", default="", help="only about this call")
    verb.add_argument("-n", type=int, default=50, metavar="N", help="the last N rows")
    verb.add_argument("--verify", action="store_true", help="whether the chain is unbroken")


_MORE: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    "pair": _pair_flags,
    "restart": _restart_flags,
    "rename": _rename_flags,
    "logs": _log_flags,
}


class Commands:
    """The verbs. Each returns its exit code."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def run(self, args: argparse.Namespace) -> int:
        """What the host calls. Hermes 0.19 drops what a handler returns: a code that is not 0
        leaves as SystemExit."""
        name = getattr(args, "node_verb", None)
        code = 2
        if name not in _VERBS:
            print(f"usage: hermes node {{{','.join(_VERBS)}}} …", file=sys.stderr)
        else:
            code = self._verb(name, args)
        if code:
            sys.stdout.flush()
            raise SystemExit(code)
        return code

    def _verb(self, name: str, args: argparse.Namespace) -> int:
        try:
            done: int = getattr(self, f"_{name}")(args)
            return done
        except HandoffError as error:
            if args.json:
                print(json.dumps(results.refusal(error)))
            else:
                print(f"hermes node {name}: {error.cause} ({error.code})", file=sys.stderr)
                if error.remedy:
                    print(f"  {results.in_hermes(error.remedy)}", file=sys.stderr)
            return error.exit_code

    def _pair(self, args: argparse.Namespace) -> int:
        name, brain = args.node or args.name, self._runtime.client()
        if args.token:
            told = brain.ask(
                "token", name=_named(args), keep=args.sealed, replace=args.force, by=self._by()
            )
            if args.json:
                return _json(told)
            print(f"token: {told['token']}")
            _say(f"node '{told['name']}'. The token is shown this once; on the node:")
            _say(
                f"  hermes-node pair --server {told['address']} --token … --name {told['name']}\n"
                "  (or server_url, name and token in its config.toml, mode 0600)"
            )
            if str(told["address"]).startswith("wss:"):
                where = os.path.join(self._runtime.folder(), "cert.pem")
                _say(f"  a copy of {where} goes there as well: [server] ca_cert")
            return 0
        told = brain.ask(
            "code",
            name=name,
            address=args.address,
            replace=args.force,
            ttl_s=args.ttl,
            by=self._by(),
        )
        if args.json:
            return _json(told)
        print(f"code: {told['code']}")
        _say(f"on the other machine, within {told['ttl_s']} s:  hermes-node pair {told['code']}")
        _say(f"it will dial {told['address']}; this brain's key is {told['fingerprint']}")
        if "//127.0.0.1" in told["address"] or "//localhost" in told["address"]:
            _say("that address is this machine's own: for another one")
            _say("  hermes node restart --host 0.0.0.0 --address wss://NAME:7000")
        return 0

    def _list(self, args: argparse.Namespace) -> int:
        nodes = self._runtime.client().ask("nodes")["nodes"]
        rows = []
        for one in nodes:
            row = results.node_row(one)
            row["created_at"] = results.time_text(one["created_ms"])
            row["last_used_at"] = row["last_seen"]
            rows.append(row)
        if args.json:
            for row in rows:
                print(json.dumps(row))
            return 0
        if not rows:
            print("no nodes yet: hermes node pair NAME")
            return 0
        keys = ("name", "state", "created_at", "last_used_at")
        lines: list[tuple[str, ...]] = [("NAME", "STATE", "CREATED", "LAST_USED")]
        lines += [tuple(_plain(row[key] or "-") for key in keys) for row in rows]
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        lines.insert(1, tuple("-" * width for width in widths))
        for line in lines:
            print("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)))
        return 0

    def _show(self, args: argparse.Namespace) -> int:
        name = _named(args)
        brain = self._runtime.client()
        nodes = brain.ask("nodes")["nodes"]
        found = next((one for one in nodes if one["name"] == name), None)
        if found is None:  # the brain says which names are near it
            brain.call(name, "policy", {}, by=self._by())
            raise UnknownNode(f"there is no node '{name}'", remedy="hermes node list", name=name)
        if found["state"] == "connected":
            ok, value = brain.call(name, "policy", {}, by=self._by())
            found["policy"] = value if ok else results.failure(value)
        if args.json:
            return _json(found)
        for key, value in {**results.node_row(found), "policy": found.get("policy")}.items():
            if value not in (None, "", [], {}):
                shown = value if isinstance(value, str) else json.dumps(value)
                print(_plain(f"{key:<15} {shown}"))
        return 0

    def _revoke(self, args: argparse.Namespace) -> int:
        name = _named(args)
        told = self._runtime.client().ask("revoke", name=name, by=self._by())
        if args.json:
            return _json({"name": name, **told})
        print(f"revoked: {name}" if told["changed"] else f"was revoked before: {name}")
        return 0

    def _rename(self, args: argparse.Namespace) -> int:
        # with --name, the one word is the new name
        name, to = (args.name, args.node) if args.name else (args.node, args.other)
        to = args.to or to
        if not name or not to:
            raise UsageError("name the node and its new name", remedy="hermes node rename OLD NEW")
        kind = self._runtime.client().ask("rename", name=name, to=to, by=self._by())["kind"]
        if args.json:
            return _json({"name": to, "kind": kind})
        must = "" if kind == "key" else "; on the node: name in its config.toml"
        print(f"renamed: {name} is {to}{must}")
        return 0

    def _rotate(self, args: argparse.Namespace) -> int:
        told = self._runtime.client().ask("rotate", name=_named(args), by=self._by())
        if args.json:
            return _json(told)
        print(f"token: {told['token']}")
        _say("it is shown this once; the node needs it in its config.toml")
        return 0

    def _status(self, args: argparse.Namespace) -> int:
        brain = self._runtime.client(start=False)
        if not brain.running():
            if args.json:
                print(json.dumps({"running": False, "folder": brain.folder}))
            else:
                print("hermes-node server: not running")
            return 1
        told = brain.ask("status")
        if args.json:
            return _json({"running": True, **told})
        print(f"hermes-node server: listening on {told['host']}:{told['port']}")
        print(f"  nodes dial {told['address']}  (key {told['fingerprint']})")
        print(f"  {told['connected']} connected, {told['under_way']} calls under way")
        return 0

    def _restart(self, args: argparse.Namespace) -> int:
        from dataclasses import replace

        from handoff.link.files import make_folder
        from handoff.link.pairing import check_address
        from handoff.nodes.brain.main import load_settings, save_settings

        folder = self._runtime.folder()
        given: dict[str, Any] = {"host": args.host, "address": args.address}
        changes = {name: value for name, value in given.items() if value}
        if args.port >= 0:
            changes |= {"port": args.port, "fixed": True}
        if args.tls:
            changes["tls"] = args.tls == "on"
        make_folder(folder)
        settings = load_settings(folder)
        if changes.get("address"):
            check_address(args.address)
        if changes:
            save_settings(folder, replace(settings, **changes))
        brain = self._runtime.client(start=False)
        if brain.running():
            brain.ask("stop")
            until = time.monotonic() + END_S
            while _held(folder):
                if time.monotonic() > until:
                    from handoff.errors import TimedOut

                    raise TimedOut("the brain does not end", remedy=f"look at {folder}/brain.json")
                time.sleep(0.05)
        try:
            told = self._runtime.client().ask("status")
        except HandoffError:
            # with what was given it can't serve: nodes come back to the brain that there was
            save_settings(folder, settings)
            with contextlib.suppress(HandoffError):
                self._runtime.client().ask("status")
            raise
        if args.json:
            return _json({"status": "restarted", **told})
        print(f"restarted — listening on port {told['port']}")
        return 0

    def _logs(self, args: argparse.Namespace) -> int:
        from .checks import logs

        return logs(self._runtime.folder(), args)

    def _doctor(self, args: argparse.Namespace) -> int:
        from .checks import doctor

        return doctor(self._runtime, as_json=args.json)

    def _by(self) -> dict[str, str]:
        made = {"surface": "hermes node", "user": str(os.geteuid())}
        profile = self._runtime.profile()
        return {**made, "profile": profile} if profile else made


#: verb -> what it does
_VERBS: dict[str, str] = {
    "pair": "a code, or a token, for a new node",
    "list": "all nodes, also those that are away",
    "show": "one node: machine, link, policy",
    "revoke": "take a node's credential, and close its link",
    "rename": "another name for a node",
    "rotate": "a new token for a node that has one",
    "status": "whether the brain serves, and where",
    "restart": "end the brain and start it anew; what runs on nodes goes on",
    "logs": "what was asked, by whom, and what came of it",
    "doctor": "check the brain, its nodes and this profile",
}


def _named(args: argparse.Namespace) -> str:
    name = str(args.node or args.name)
    if not name:
        raise UsageError("name the node", remedy="hermes node list")
    return name


def _held(folder: str) -> bool:
    """Whether a process holds the brain's lock."""
    import fcntl

    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, "brain.json")) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _plain(value: str) -> str:
    """A word without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in value)


def _json(value: Any) -> int:
    print(json.dumps(value))
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr)
