"""Nodes inside Hermes Agent: tools that work on other machines, ``hermes node``, and, where
the host can, its own terminal and file tools on one of them.

Every process of the host that needs tools calls :func:`register`, so it only declares: it
makes no file, thread, socket or process. The brain is a process of its own, which the first
use starts.
"""

from __future__ import annotations

from typing import Any

__all__ = ["register"]

#: an own toolset: a plugin's tool in one of the host's can be dropped with it
TOOLSET = "hermes_nodes"


def register(ctx: Any) -> None:
    """Declare to the host what plugin.yaml says, and the command."""
    from .calling import around
    from .commands import ABOUT, Commands, arguments
    from .runtime import Runtime
    from .schemas import SCHEMAS
    from .tools import Tools

    runtime = Runtime(ctx)
    tools = Tools(runtime)
    for schema in SCHEMAS:
        name = schema["name"]
        ctx.register_tool(
            name, TOOLSET, schema, tools.handler(name), description=schema["description"]
        )
    ctx.register_middleware("tool_execution", around)
    ctx.register_cli_command("node", ABOUT, arguments, Commands(runtime).run, ABOUT)
    if callable(getattr(ctx, "register_terminal_environment_provider", None)):
        from .terminal import make_provider

        ctx.register_terminal_environment_provider(make_provider(runtime))
