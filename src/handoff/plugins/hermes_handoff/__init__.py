"""Sessions of Handoff inside Hermes Agent: a tool, a skill, commands, and two quiet hooks.

Every process of the host that needs tools calls :func:`register`, so it only declares: it
makes no file, thread, socket or process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["register"]

#: an own toolset: a plugin's tool in one of the host's can be dropped with it
TOOLSET = "handoff"


def register(ctx: Any) -> None:
    """Declare to the host what plugin.yaml says, and the commands."""
    from .commands import COMMANDS, HELP, Commands
    from .hooks import HOOKS, Observer
    from .runtime import Runtime
    from .tool import DESCRIPTION, SCHEMA, Tool

    runtime = Runtime(ctx)
    ctx.register_tool(SCHEMA["name"], TOOLSET, SCHEMA, Tool(runtime), description=DESCRIPTION)
    observer = Observer(runtime)
    for hook in HOOKS:
        ctx.register_hook(hook, getattr(observer, hook))
    skill = Path(__file__).parent / "skills" / "handoff" / "SKILL.md"
    ctx.register_skill("handoff", skill, "Hand this session over to a new one")
    commands = Commands(runtime)
    for name, (about, arguments, method) in COMMANDS.items():
        ctx.register_cli_command(name, about, arguments, commands.handler(method), about)
    ctx.register_command("hh", commands.slash, HELP.splitlines()[0])
