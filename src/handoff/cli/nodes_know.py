"""``handoff nodes pair | list | show | revoke | …``: which nodes there are."""

from __future__ import annotations

import os
import sys

from handoff.cli import nodes_place as place
from handoff.cli.parsing import count
from handoff.errors import ConfigError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser


#: seconds that a pairing code may be good for at most
LONGEST_S = 24 * 3600


def parser(name: str) -> Parser:
    """The verb's own flags."""
    made = place.parser(name, *_ABOUT[name][:1], examples=_ABOUT[name][1])
    if name in {"show", "revoke", "remove", "rename", "rotate", "tag"}:
        made.add_argument("name", help="the node")
    if name == "pair":
        made.add_argument("name", nargs="?", default="", help="what the node is to be called")
        made.add_argument("--replace", action="store_true", help="in place of a node of that name")
        made.add_argument("--address", metavar="URL", default="", help="what the node dials")
        made.add_argument(
            "--ttl", metavar="TIME", default="10m", help="how long the code is good for"
        )
        made.add_argument(
            "--token", action="store_true", help="a permanent token, for a Go node of v0.1 or v0.2"
        )
        made.add_argument(
            "--sealed",
            action="store_true",
            help="with --token: keep it, for sealed sessions only (v0.2)",
        )
        made.add_argument("--tag", action="append", default=[], help="with --token: what it is for")
    if name == "rename":
        made.add_argument("to", help="the new name")
    if name == "tag":
        made.add_argument("tags", nargs="*", help="all its tags; none takes them away")
    if name == "list":
        made.add_argument("--tag", action="append", default=[], help="only nodes with this tag")
    if name == "logs":
        made.add_argument("--node", default="", help="only about this node")
        made.add_argument("--key", default="", help="only about this call")
        made.add_argument("-n", type=count, default=50, metavar="N", help="the last N rows")
        made.add_argument("--verify", action="store_true", help="whether the chain is unbroken")
    if name == "import":
        made.add_argument("--tokens", metavar="FILE", default="", help="tokens.json of the plugin")
        made.add_argument("--settings", metavar="FILE", default="", help="its hermes-node.yaml")
    return made


_ABOUT: dict[str, tuple[str, str]] = {
    "pair": (
        (
            "A code for one new node: good once, for some minutes. The node makes its own key, and\n"
            "both sides know each other's from then on."
        ),
        "  handoff nodes pair lab\n  handoff nodes pair old --token",
    ),
    "list": ("All nodes, by name, also those that are away.", "  handoff nodes list --json"),
    "show": ("One node: its machine, its link, its policy.", "  handoff nodes show lab"),
    "revoke": (
        "Take a node's credential. Its link is closed at once, and it is not let in again.",
        "  handoff nodes revoke lab",
    ),
    "remove": ("Forget a node altogether.", "  handoff nodes remove lab"),
    "rename": (
        "Another name. A node that has a token must be given it too, in its config.toml.",
        "  handoff nodes rename lab lab-1",
    ),
    "rotate": ("A new token in place of the old one.", "  handoff nodes rotate old"),
    "tag": ("Replace a node's tags.", "  handoff nodes tag lab linux gpu"),
    "import": (
        (
            "Take over the nodes and settings of hermes-node-plugin. The key of its token file is\n"
            "read from HERMES_NODES_TOKEN_KEY."
        ),
        "  handoff nodes import --tokens ~/.hermes/nodes/tokens.json",
    ),
    "logs": ("The audit of this brain.", "  handoff nodes logs --node lab -n 20"),
}


def run(name: str, args: Namespace, context: Context) -> int:
    """Do it."""
    verbs: dict[str, Any] = {
        "pair": _pair,
        "list": _list,
        "show": _show,
        "revoke": _revoke,
        "remove": _remove,
        "rename": _rename,
        "rotate": _rotate,
        "tag": _tag,
        "import": _import,
        "logs": _logs,
    }
    done: int = verbs[name](args, context)
    return done


def _pair(args: Namespace, context: Context) -> int:
    brain = place.client(args)
    if args.token:
        if not args.name:
            raise UsageError("a token is for a node with a name", remedy="handoff nodes pair NAME")
        told = brain.ask(
            "token",
            name=args.name,
            keep=args.sealed,
            replace=args.replace,
            tags=args.tag,
            by=place.by(),
        )
        place.tell(
            context,
            told,
            f"token: {told['token']}\n"
            "  it is shown this once; on the node, in config.toml (0600):\n"
            f'  [node] server_url = "{told["address"]}"  name = "{told["name"]}"  token = "…"',
        )
        return 0
    ttl = place.seconds(args.ttl)
    if not 1 <= ttl <= LONGEST_S:
        raise UsageError(
            f"--ttl {args.ttl}: a code is good for 1s to {LONGEST_S // 3600}h",
            remedy="handoff nodes pair NAME --ttl 10m",
        )
    told = brain.ask(
        "code",
        name=args.name,
        address=args.address,
        replace=args.replace,
        ttl_s=int(ttl),
        by=place.by(),
    )
    within = args.ttl if told["ttl_s"] % 60 else f"{told['ttl_s'] // 60} minutes"
    text = (
        f"on the other machine, within {within}:\n\n"
        f"  hermes-node pair {told['code']}\n\n"
        f"  it will dial {told['address']}; this brain's key is {told['fingerprint']}"
    )
    if "//127.0.0.1" in told["address"] or "//localhost" in told["address"]:
        verb = "restart" if brain.ask("status").get("spawned") else "serve"
        text += (
            "\n  that address is this machine's own: for another one"
            f"\n  handoff nodes {verb} --host 0.0.0.0 --address wss://NAME:7000"
        )
    place.tell(context, told, text)
    return 0


def _list(args: Namespace, context: Context) -> int:
    import time

    from handoff.cli.terminal import safe_line, span, table

    listed = place.client(args).ask("nodes")["nodes"]
    found = [one for one in listed if set(args.tag) <= set(one["tags"])]
    if not context.human:
        context.emit({"nodes": found, "count": len(found)})
        return 0
    if not found:
        context.show("no nodes yet: handoff nodes pair NAME")
        return 0
    rows = []
    for one in found:
        facts = one["facts"]
        machine = " ".join(str(facts.get(key, "")) for key in ("os", "arch", "hostname")).strip()
        seen = "now" if one["state"] == "connected" else "never"
        if one["last_ms"] and one["state"] != "connected":
            seen = f"{span(max(0.0, time.time() - one['last_ms'] / 1000))} ago"
        words = (one["name"], one["state"], seen, machine, ",".join(one["tags"]))
        rows.append([safe_line(word) for word in words])
    context.show(table(["NAME", "STATE", "LAST SEEN", "MACHINE", "TAGS"], rows))
    return 0


def _show(args: Namespace, context: Context) -> int:
    from handoff.cli.terminal import safe_line

    brain = place.client(args)
    found = [one for one in brain.ask("nodes")["nodes"] if one["name"] == args.name]
    one: dict[str, Any] = found[0] if found else {"state": "connected"}
    if one["state"] == "connected":
        # of a name that nobody has the brain says which are near it
        ok, policy = brain.call(args.name, "policy", {}, by=place.by())
        one["policy"] = policy if ok else None
    if not context.human:
        context.emit(one)
        return 0
    lines = [f"{one['name']}: {one['state']}"]
    lines += [f"  {key}: {one['facts'][key]}" for key in sorted(one["facts"])]
    if one["link"]:
        link = one["link"]
        lines.append(
            f"  link: from {link['remote']}, {link['profile']}, "
            f"{'sealed ' + link['sealed'] if link['sealed'] else 'not sealed'}, by {link['method']}"
        )
    if one.get("policy"):
        lines.append(f"  policy: {one['policy'].get('rules', {})}")
    lines.append(f"  credential: {one['kind']} {one['fingerprint']}  tags: {' '.join(one['tags'])}")
    context.show("\n".join(safe_line(line) for line in lines))
    return 0


def _revoke(args: Namespace, context: Context) -> int:
    told = place.client(args).ask("revoke", name=args.name, by=place.by())
    word = "revoked" if told["changed"] else "was revoked before"
    place.tell(context, told, f"{args.name} {word}")
    return 0


def _remove(args: Namespace, context: Context) -> int:
    place.client(args).ask("remove", name=args.name, by=place.by())
    place.tell(context, {"removed": args.name}, f"{args.name} is forgotten")
    return 0


def _rename(args: Namespace, context: Context) -> int:
    kind = place.client(args).ask("rename", name=args.name, to=args.to, by=place.by())["kind"]
    must = "" if kind == "key" else "; on the node: name in its config.toml"
    place.tell(
        context, {"name": args.to, "kind": kind}, f"{args.name} is called {args.to} now{must}"
    )
    return 0


def _rotate(args: Namespace, context: Context) -> int:
    told = place.client(args).ask("rotate", name=args.name, by=place.by())
    place.tell(context, told, f"token: {told['token']}\n  it is shown this once")
    return 0


def _tag(args: Namespace, context: Context) -> int:
    place.client(args).ask("tags", name=args.name, tags=args.tags)
    place.tell(
        context, {"name": args.name, "tags": args.tags}, f"{args.name}: {' '.join(args.tags)}"
    )
    return 0


def _import(args: Namespace, context: Context) -> int:
    from dataclasses import asdict, replace

    from handoff.clock import SystemClock
    from handoff.link.files import make_folder
    from handoff.link.plugin_import import dotenv_value, read_settings, read_tokens
    from handoff.link.tokens import NodeStore
    from handoff.nodes.brain.main import load_settings, save_settings

    if not args.tokens and not args.settings:
        raise UsageError("nothing to import", remedy="handoff nodes import --tokens FILE")
    where = place.folder(args)
    for given in filter(None, (args.tokens, args.settings)):
        if not os.path.exists(given):
            raise ConfigError(f"{given} does not exist", remedy="name a file here", path=given)
    make_folder(where)
    report: dict[str, Any] = {}
    variable = "HERMES_NODES_TOKEN_KEY"
    if args.settings:
        theirs = read_settings(os.path.abspath(args.settings), os.environ)
        mine = load_settings(where)
        # the nodes dial the plugin's port, also where it is the usual one
        save_settings(where, replace(mine, host=theirs.host, port=theirs.port, fixed=True))
        variable = theirs.token_encryption_key_env
        told = [*theirs.warnings, _transport(where, bool(theirs.tls_cert_path), mine.tls)]
        report["settings"] = {**asdict(theirs), "warnings": [one for one in told if one]}
    if args.tokens:
        path = os.path.abspath(args.tokens)
        beside = os.path.join(os.path.dirname(os.path.dirname(path)), ".env")
        key = os.environ.get(variable, "") or dotenv_value(beside, variable)
        store = NodeStore(os.path.join(where, "nodes.sqlite3"), SystemClock())
        try:
            tokens, odd = read_tokens(path, key)
            taken, left, refused = store.import_tokens(tokens)
        finally:
            store.close()
        report |= {"imported": taken, "left": left, "refused": [*odd, *refused]}
    place.tell(context, report, "\n".join(_reported(report)))
    return 1 if report.get("refused") else 0


def _transport(where: str, theirs: bool, mine: bool) -> str:
    """What nodes of the plugin meet here that is not what they met there; "" if nothing."""
    if theirs:
        return (
            "the plugin's certificate is not taken over: nodes that know it by its digest or an"
            f" authority need {os.path.join(where, 'cert.pem')}"
        )
    if mine:
        return (
            "the plugin served without TLS, this brain serves with it: for nodes that dial ws://,"
            " or a proxy in front, start it once with `handoff nodes serve --no-tls`"
        )
    return ""


def _reported(report: dict[str, Any]) -> list[str]:
    """An import for a person."""
    settings = report.get("settings", {})
    lines = [f"listens on {settings['host']}:{settings['port']} from now on"] if settings else []
    lines += [f"  {one}" for one in settings.get("warnings", ())]
    for key, about in (("imported", "taken over"), ("left", "known before"), ("refused", "not")):
        lines += [f"{about}: {one}" for one in report.get(key, ())]
    return lines or ["there was nothing to take over"]


def _logs(args: Namespace, context: Context) -> int:
    from collections import deque

    from handoff.cli.terminal import safe_line
    from handoff.nodes import audit

    where = os.path.join(place.folder(args), "audit")
    if args.verify:
        report = audit.verify(where)
        value = {
            "rows": report.rows,
            "first": report.first,
            "findings": [one._asdict() for one in report.findings],
        }
        lines = [f"{one.file}:{one.line}: {one.what}" for one in report.findings]
        place.tell(context, value, "\n".join(lines) or f"{report.rows} rows, unbroken")
        return 1 if report.findings else 0
    last: deque[dict[str, Any]] = deque(maxlen=args.n)
    for row in audit.rows(where):
        if args.node and row.get("node") != args.node:
            continue
        if args.key and row.get("request_id") != args.key:
            continue
        last.append(row)
    for row in last:
        if not context.human:
            context.emit(row)
            continue
        told = [str(row.get(key, "")) for key in ("node", "op", "target", "status", "code")]
        context.show(safe_line(f"{row['at']} {row['event']:<7} {' '.join(filter(None, told))}"))
    sys.stdout.flush()
    return 0
