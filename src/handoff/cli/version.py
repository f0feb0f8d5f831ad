"""``handoff version``."""

from __future__ import annotations

import os
import sys

from handoff import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    return Parser("version", "Print the version (the first line, bare), Python and platform.")


def facts() -> dict[str, str]:
    """Version, Python and platform."""
    python = ".".join(map(str, sys.version_info[:3]))
    system = os.uname()
    return {
        "version": __version__,
        "python": python,
        "platform": f"{system.sysname.lower()}/{system.machine}",
    }


def run(_args: Namespace, context: Context) -> int:
    """Print it."""
    found = facts()
    if context.json_wanted:
        context.emit(found)
    else:
        print(found["version"])
        print(f"python    {found['python']}")
        print(f"platform  {found['platform']}")
    return 0
