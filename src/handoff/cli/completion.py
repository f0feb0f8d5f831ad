"""``handoff completion``: static scripts for bash, zsh and fish.

The scripts hold all commands and flags, so that TAB starts no Python; only task ids are
asked for, by the hidden command ``_ids``. They are files of the package
(``completions/handoff.<shell>``), so that printing one builds no parser.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser

SHELLS = ("bash", "zsh", "fish")
FOLDER = os.path.join(os.path.dirname(__file__), "completions")


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "completion",
        "Print a completion script.",
        examples="  handoff completion bash > ~/.local/share/bash-completion/completions/handoff\n"
        "  handoff completion zsh > ~/.zfunc/_handoff\n"
        "  handoff completion fish > ~/.config/fish/completions/handoff.fish",
    )
    made.add_argument("shell", choices=SHELLS, help="which shell")
    return made


def quick(words: list[str]) -> bool:
    """Print a script if the words name just a shell; False if they need the parser."""
    if len(words) != 1 or words[0] not in SHELLS:
        return False
    with open(os.path.join(FOLDER, f"handoff.{words[0]}"), encoding="utf-8") as stream:
        print(stream.read(), end="")
    return True


def run(args: Namespace, _context: Context) -> int:
    """Print the script."""
    quick([args.shell])
    return 0
