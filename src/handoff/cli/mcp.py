"""``handoff mcp``: Sessions for any host that speaks the Model Context Protocol."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from handoff.cli.context import Context
    from handoff.cli.parsing import Parser


def parser() -> Parser:
    """The command's own flags."""
    from handoff.cli.parsing import Parser

    made = Parser(
        "mcp",
        "Serves the tool hermes_handoff on standard input and output, one JSON-RPC message a "
        "line. An agent starts it by itself; see docs/howto/mcp.md.",
        examples="  claude mcp add handoff -- handoff mcp\n  codex mcp add handoff -- handoff mcp",
    )
    made.add_argument(
        "-p",
        "--profile",
        metavar="NAME",
        default="",
        help="profile of Hermes, or 'handoff' for Handoff's own store",
    )
    return made


def run(args: Namespace, context: Context) -> int:
    """Serve until the input ends."""
    import sys

    from handoff.cli import terminal
    from handoff.errors import UsageError

    if context.agentd or context.target:
        raise UsageError(
            "sessions are of this machine: --agentd and --target say nothing here",
            remedy="handoff mcp --help",
        )
    if sys.stdin is None or sys.stdout is None:
        raise UsageError(
            "standard input and output are closed, and both are needed",
            remedy="handoff mcp --help",
        )
    if terminal.is_tty(sys.stdin):
        raise UsageError(
            "this is started by an agent, not typed: it reads JSON-RPC messages",
            remedy="handoff mcp --help",
        )
    from handoff.mcp.server import run as serve

    return serve(args.profile)
