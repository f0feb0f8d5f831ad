"""``handoff session``: semantic handoffs between agents' sessions.

The group's own table of verbs, static as the root's: only the chosen verb's module is
imported. What goes before the verb (``handoff session -p bob list``) may as well go behind.
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
    "create": ("session_make", "publish a handoff record from a state"),
    "evidence": ("session_make", "what a state can be held against"),
    "sweep": ("session_make", "draft records of sessions that nobody handed off"),
    "list": ("session_look", "records, newest first"),
    "search": ("session_look", "records that hold a text"),
    "show": ("session_look", "one record: its document, state and manifest"),
    "read": ("session_look", "a record page by page, with what has changed"),
    "log": ("session_look", "a record's ancestors, children and attempts"),
    "validate": ("session_look", "integrity of a record, and what could be better"),
    "verify": ("session_look", "check the whole store and the journal"),
    "prepare": ("session_open", "freeze an attempt to open a new session"),
    "open": ("session_open", "open the new session here, once"),
    "status": ("session_settle", "what is known of attempts"),
    "ack": ("session_open", "acknowledge that all was read"),
    "confirm": ("session_settle", "confirm the new session (a person)"),
    "recover": ("session_settle", "look at an attempt, and settle it"),
    "abandon": ("session_settle", "give an attempt up (a person)"),
    "export": ("session_keep", "one file for another machine"),
    "import": ("session_keep", "take in an exported file"),
    "bind": ("session_keep", "say that a folder belongs to a project"),
    "prune": ("session_keep", "remove old records"),
    "purge": ("session_keep", "remove one record"),
    "verify-release": ("session_release", "check a plugin's archive before it is unpacked"),
    "bench": ("session_bench", "measure handoffs on this machine, without a model"),
}
#: flags that may stand before the verb, each with a value
_BEFORE = ("-p", "--profile", "--host", "--session", "--config")


class Verb:
    """One verb, with the two functions of every command."""

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
        from handoff.cli.session_place import guarded

        return guarded(self._module.run, self.name, args, context)


def help_text() -> str:
    """What ``handoff session --help`` prints."""
    lines = [
        "A session becomes an immutable handoff record; exactly one new session opens from it.",
        "",
        "usage: handoff session [--profile NAME] [--host KIND] VERB ...",
        "",
    ]
    lines += [f"  {name:<14} {about}" for name, (_, about) in VERBS.items()]
    lines += [
        "",
        "Records and attempts are kept per profile: --profile, else the profile of Hermes that",
        "HERMES_HOME names, else Handoff's own (`handoff`), for agents without profiles.",
        "",
        "examples:",
        "  handoff session create --workspace . state.json",
        "  handoff session prepare REF --workspace . --host codex",
        "  handoff session open REF",
        "",
        "handoff session VERB --help tells more.",
    ]
    return "\n".join(lines)


def parser() -> Parser:
    """The group as a command: its verb."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "session",
        "A session becomes an immutable handoff record; exactly one new session opens from it.",
        examples="  handoff session create --workspace . state.json\n"
        "  handoff session prepare REF --workspace . --host codex\n"
        "  handoff session open REF",
    )
    made.add_argument("verb", choices=tuple(VERBS), help="what to do")
    return made


def verb(words: list[str]) -> tuple[Verb | None, list[str]]:
    """The verb and its words; None if only help was asked for (which was printed).

    Raises:
        UsageError: there is no such verb.
    """
    before: list[str] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] in ("-h", "--help"):
            print(help_text())
            return None, []
        before.append(words[at])
        if words[at] in _BEFORE and at + 1 < len(words):
            at += 1
            before.append(words[at])
        at += 1
    if at >= len(words):
        if before:
            raise UsageError("the verb is missing", remedy="handoff session --help")
        print(help_text())
        return None, []
    name = words[at]
    if name == "help":
        print(help_text())
        return None, []
    if name not in VERBS:
        import difflib

        near = difflib.get_close_matches(name, list(VERBS), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        remedy = f"handoff session {near[0]} --help" if near else "handoff session --help"
        raise UsageError(f"'handoff session' has no verb '{name[:64]}'{hint}", remedy=remedy)
    return Verb(name), [*before, *words[at + 1 :]]


def run(_args: Namespace, _context: Context) -> int:
    """Never reached: the verb runs."""
    print(help_text())
    return 0
