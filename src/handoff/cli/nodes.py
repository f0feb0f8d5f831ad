"""``handoff nodes``: commands and files on other machines that dial in.

The group's own table of verbs, static as the root's: only the chosen verb's module is
imported.
"""

from __future__ import annotations

import sys

from handoff.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

#: verb -> (module below handoff.cli, one line of help)
VERBS: dict[str, tuple[str, str]] = {
    "serve": ("nodes_brain", "run the brain that nodes dial, here in the foreground"),
    "status": ("nodes_brain", "whether a brain serves, and where"),
    "restart": ("nodes_brain", "end the brain, and start it anew in the background"),
    "stop": ("nodes_brain", "end the brain; what runs on nodes goes on"),
    "pair": ("nodes_know", "a code, or a token, for a new node"),
    "list": ("nodes_know", "all nodes, also those that are away"),
    "show": ("nodes_know", "one node: machine, link, policy"),
    "revoke": ("nodes_know", "take a node's credential, and close its link"),
    "remove": ("nodes_know", "forget a node"),
    "rename": ("nodes_know", "another name for a node"),
    "rotate": ("nodes_know", "a new token for a node that has one"),
    "tag": ("nodes_know", "say what a node is for"),
    "import": ("nodes_know", "take over the nodes of hermes-node-plugin"),
    "exec": ("nodes_exec", "run a command; its exit code is ours"),
    "jobs": ("nodes_exec", "commands in the background: start, list, tail, wait, kill"),
    "shells": ("nodes_shells", "shells that keep folder and variables: open, list, close"),
    "read": ("nodes_files", "a file's bytes on standard output"),
    "write": ("nodes_files", "a file from standard input"),
    "ls": ("nodes_files", "a folder's names"),
    "put": ("nodes_copy", "copy a file or a tree to a node"),
    "get": ("nodes_copy", "copy a file or a tree from a node"),
    "logs": ("nodes_know", "what was asked, by whom, and what came of it"),
    "doctor": ("nodes_brain", "check the brain and its nodes"),
}


#: flags with a value that may also stand before the verb
VALUED = ("--brain", "--agentd", "--target", "--config")


class Verb:
    """One verb, with the two functions of every command."""

    REST = True

    def __init__(self, name: str) -> None:
        module = f"handoff.cli.{VERBS[name][0]}"
        __import__(module)
        self.name = name
        self._module: Any = sys.modules[module]

    def parser(self) -> Parser:
        """The verb's own flags."""
        made: Parser = self._module.parser(self.name)
        return made

    def run(self, args: Namespace, context: Context) -> int:
        """Do it."""
        if context.rest is not None and self.name not in {"exec", "jobs"}:
            raise UsageError("nothing may follow '--' here", remedy=f"handoff nodes {self.name} -h")
        done: int = self._module.run(self.name, args, context)
        return done


def help_text() -> str:
    """What ``handoff nodes --help`` prints."""
    lines = [
        "Run commands and move files on machines that dial in to this one's brain.",
        "",
        "usage: handoff nodes VERB ...",
        "",
    ]
    lines += [f"  {name:<8} {about}" for name, (_, about) in VERBS.items()]
    lines += [
        "",
        "examples:",
        "  handoff nodes serve --host 0.0.0.0",
        "  handoff nodes pair lab          then, on the other machine: hermes-node pair CODE",
        "  handoff nodes exec lab -- make test",
        "",
        "handoff nodes VERB --help tells more.",
    ]
    return "\n".join(lines)


def parser() -> Parser:
    """The group as a command: its verb."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "nodes",
        "Run commands and move files on machines that dial in to this one's brain.",
        examples="  handoff nodes serve --host 0.0.0.0\n"
        "  handoff nodes pair lab\n"
        "  handoff nodes exec lab -- make test",
    )
    made.add_argument("verb", choices=tuple(VERBS), help="what to do")
    return made


def verb(words: list[str]) -> tuple[Verb | None, list[str]]:
    """The verb and its words; None if only help was asked for (which was printed).

    Raises:
        UsageError: there is no such verb.
    """
    words = _verb_first(words)
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text())
        return None, []
    name, *rest = words
    if name not in VERBS:
        import difflib

        near = difflib.get_close_matches(name, list(VERBS), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        remedy = f"handoff nodes {near[0]} --help" if near else "handoff nodes --help"
        raise UsageError(f"'handoff nodes' has no verb '{name[:64]}'{hint}", remedy=remedy)
    return Verb(name), rest


def _verb_first(words: list[str]) -> list[str]:
    """Flags that every verb has, behind it."""
    at = 0
    while at < len(words) and words[at].startswith("--"):
        flag, equals, _ = words[at].partition("=")
        if flag == "--json" or (flag in VALUED and equals):
            at += 1
        elif flag in VALUED:
            at += 2
        else:
            break
    return [*words[at : at + 1], *words[:at], *words[at + 1 :]]


def run(_args: Namespace, _context: Context) -> int:
    """Never reached: the verb runs."""
    print(help_text())
    return 0
