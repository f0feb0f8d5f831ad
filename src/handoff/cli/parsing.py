"""The command line of one command: argparse with our errors and the global flags."""

from __future__ import annotations

import argparse

from handoff.cli.terminal import columns
from handoff.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def _formatter(prog: str) -> argparse.HelpFormatter:
    """The help's form. Given its width, argparse need not import what measures terminals."""
    return argparse.RawDescriptionHelpFormatter(prog, width=min(columns(), 100) - 2)


#: commands that take what may be called anything
TAKE_NAMES = ("diff", "fetch", "run")


class Parser(argparse.ArgumentParser):
    """argparse whose mistakes are :class:`UsageError` with a remedy.

    Flags are never abbreviated: what a script says today must not mean something else
    when a flag is added.
    """

    def __init__(self, name: str, about: str, *, examples: str = "") -> None:
        super().__init__(
            prog=f"handoff {name}",
            description=about,
            epilog=f"examples:\n{examples}" if examples else None,
            formatter_class=_formatter,
            allow_abbrev=False,
        )
        group = self.add_argument_group("global flags")
        group.add_argument(
            "--agentd", metavar="URL", default=argparse.SUPPRESS, help="another agentd, by URL"
        )
        group.add_argument(
            "--target", metavar="NAME", default=argparse.SUPPRESS, help="another agentd, by name"
        )
        group.add_argument(
            "--config", metavar="PATH", default=argparse.SUPPRESS, help="configuration file"
        )
        group.add_argument(
            "--json",
            action="store_true",
            default=argparse.SUPPRESS,
            help="JSON, also on a terminal",
        )

    def error(self, message: str) -> NoReturn:
        """Raises: UsageError, with the nearest flag where one was misspelt."""
        marker = "unrecognized arguments: "
        if message.startswith(marker):
            import difflib

            flag = message.removeprefix(marker).split()[0].split("=")[0]
            near = difflib.get_close_matches(flag, list(self._option_string_actions), n=1)
            message = f"unknown argument '{flag}'" + (f"; did you mean {near[0]}?" if near else "")
            if not near and self.prog.split()[-1] in TAKE_NAMES:
                message += "; a name that begins with '-' goes after '--'"
        raise UsageError(message, remedy=f"{self.prog} --help")


def duration(text: str) -> float:
    """Seconds of ``90s``, ``10m``, ``1h30m``, or of a bare number of seconds."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    total, number, at = 0.0, "", 0
    if len(text) <= 32 and text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    while at < len(text):
        if text[at].isascii() and (text[at].isdigit() or text[at] == "."):
            number += text[at]
            at += 1
            continue
        unit = "ms" if text.startswith("ms", at) else text[at]
        if unit not in units or not number or number.count(".") > 1 or number == ".":
            break
        total += float(number) * units[unit]
        number, at = "", at + len(unit)
    if at != len(text) or number or not text or len(text) > 32:
        raise argparse.ArgumentTypeError(f"'{text}' is not a duration such as 90s, 10m or 2h")
    return total


def count(text: str) -> int:
    """A whole number above 0."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)
