"""The command line of ``hermes-node``: its verbs, their flags and its help."""

from __future__ import annotations

import argparse

from handoff.cli.parsing import count
from handoff.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

VERBS = {
    "pair": "become a node of the brain that showed a code",
    "run": "dial the brain and serve it, in the foreground",
    "status": "the link as it is now",
    "stop": "end the node; --keep leaves its commands running",
    "validate": "check the configuration and the policy",
    "doctor": "check everything that a node needs",
    "policy": "what may be done to this machine",
    "asks": "commands that wait for a person here",
    "approve": "allow one command once",
    "deny": "refuse one command",
    "lock": "end and refuse everything at once, until unlock",
    "unlock": "take the lock away",
    "logs": "what was asked of this machine",
    "service": "text of a systemd or launchd service",
    "completion": "completion for bash, zsh or fish",
}


EXAMPLES = {
    "pair": "pair hn1… --allow ~/project",
    "stop": "stop --keep",
    "approve": "approve 4f0c",
    "deny": "deny 4f0c",
    "logs": "logs -n 20 --json",
    "service": "service systemd >~/.config/systemd/user/hermes-node.service",
    "completion": "completion bash > ~/.local/share/bash-completion/completions/hermes-node",
}


def help_text() -> str:
    """What ``hermes-node --help`` prints."""
    lines = [
        "Let a brain run commands and move files on this machine, under this machine's policy.",
        "",
        "usage: hermes-node [--config PATH] VERB ...",
        "",
    ]
    lines += [f"  {name:<10} {about}" for name, about in VERBS.items()]
    lines += [
        "",
        "examples:",
        "  hermes-node pair hn1…            (the code that `handoff nodes pair` shows)",
        "  hermes-node run",
        "",
        "Files: ~/.hermes-node/config.toml, policy.toml; --config names another folder's.",
        "Exit: 0 done, 1 failed, 2 usage, 3 not allowed now, 4 not found, 5 unreachable.",
    ]
    return "\n".join(lines)


class _Parser(argparse.ArgumentParser):
    """argparse whose mistakes are typed."""

    def error(self, message: str) -> NoReturn:
        """Raises: UsageError, with the nearest verb where one was misspelt."""
        import difflib

        if message.startswith("argument verb: invalid choice: "):
            given = message.split("'")[1][:64]
            near = difflib.get_close_matches(given, list(VERBS), n=1)
            message = f"there is no verb '{given}'"
            message += f"; did you mean '{near[0]}'?" if near else ""
        raise UsageError(message, remedy=f"{self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = _Parser(prog="hermes-node", allow_abbrev=False)
    top.add_argument("--config", default="", metavar="PATH")
    top.add_argument("--json", action="store_true")
    sub = top.add_subparsers(dest="verb", required=True)
    made = {
        name: sub.add_parser(
            name,
            help=about,
            description=about,
            allow_abbrev=False,
            epilog=f"example:\n  hermes-node {EXAMPLES.get(name, name)}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, about in VERBS.items()
    }
    for one in made.values():
        one.add_argument("--config", default=argparse.SUPPRESS, metavar="PATH")
        one.add_argument("--json", action="store_true", default=argparse.SUPPRESS)
    pair = made["pair"]
    pair.add_argument("code", nargs="?", default="", help="the code; '-' reads it from stdin")
    pair.add_argument("--name", default="", help="this node's name, where the code has none")
    pair.add_argument("--server", default="", metavar="URL", help="older brains: their address")
    pair.add_argument(
        "--token-file", default="", metavar="FILE", help="older brains: file with the token"
    )
    pair.add_argument(
        "--pin", default="", metavar="HEX", help="older brains: certificate's SHA-256"
    )
    pair.add_argument(
        "--plugin", action="store_true", help="older brains: it is hermes-node-plugin up to v0.1.2"
    )
    pair.add_argument(
        "--allow", action="append", default=[], metavar="PATH", help="readable and writable here"
    )
    made["run"].add_argument(
        "--take-over",
        action="store_true",
        help="take the place of another machine, or copy, that is connected under this name",
    )
    made["stop"].add_argument("--keep", action="store_true", help="leave its commands running")
    for name in ("approve", "deny"):
        made[name].add_argument("ask", help="what `hermes-node asks` shows")
    made["logs"].add_argument("-n", type=count, default=50, metavar="N")
    made["logs"].add_argument("--verify", action="store_true")
    made["service"].add_argument("kind", choices=("systemd", "launchd"))
    made["completion"].add_argument("shell", choices=("bash", "zsh", "fish"))
    return top
