"""Desktop notifications, where the system has a program for them."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from handoff.cli.context import Context


def _command(title: str, text: str) -> list[str]:
    import shutil

    if sys.platform == "darwin" and shutil.which("osascript"):
        quoted = [
            f'"{t.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'
            for t in (text, title)
        ]
        return ["osascript", "-e", f"display notification {quoted[0]} with title {quoted[1]}"]
    program = shutil.which("notify-send")
    return [program, "--app-name=handoff", "--", title, text] if program else []


def notify(task_id: str, event: dict[str, Any], context: Context) -> None:
    """Show that event; says on stderr if that is impossible. Never fails."""
    from handoff.cli.render import event_line
    from handoff.cli.terminal import safe_line
    from handoff.ids import short

    text = safe_line(event_line({"created_at": "", **event}).strip())
    command = _command(f"handoff {short(task_id)}: {safe_line(event['type'])}", text[:200])
    if not command:
        context.say("no desktop notification: neither notify-send nor osascript is there")
        return
    import subprocess

    try:
        subprocess.run(command, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        context.say(f"the desktop notification failed: {type(error).__name__}")
