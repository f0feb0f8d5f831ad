"""Service definitions for a node: the foreground program, started anew when it ends badly."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from xml.sax.saxutils import escape

__all__ = ["launchd", "systemd"]


def program() -> list[str]:
    """The command that runs a node, by absolute path."""
    found = shutil.which("hermes-node")
    return [os.path.abspath(found)] if found else [sys.executable, "-m", "handoff.cli.hermes_node"]


def systemd(config: str) -> str:
    """A user unit. A node that was refused for good (exit code 3) is not started again."""
    words = [*program(), "run", "--config", config]
    command = " ".join(_unit_word(word) for word in words)
    return (
        "# ~/.config/systemd/user/hermes-node.service\n"
        "# then: systemctl --user enable --now hermes-node; loginctl enable-linger\n"
        "[Unit]\n"
        "Description=Node of a Hermes brain\n"
        "After=network-online.target\n"
        "\n"
        "[Service]\n"
        f"ExecStart={command}\n"
        "Restart=on-failure\n"
        "RestartSec=5\n"
        "RestartPreventExitStatus=2 3\n"
        # what was running when it crashed is found again by the node that is started anew
        "KillMode=process\n"
        # and by one that is stopped by systemd, to be upgraded; `hermes-node stop` ends it
        "KillSignal=SIGUSR1\n"
        "TimeoutStopSec=20\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def _unit_word(word: str) -> str:
    """A word as systemd reads it (systemd.service(5), COMMAND LINES)."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    escaped = escaped.replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"' if shlex.quote(word) != word else escaped


def launchd(config: str) -> str:
    """A LaunchAgent."""
    words = "".join(
        f"    <string>{escape(word)}</string>\n" for word in [*program(), "run", "--config", config]
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" '
        '"http://www.apple.com/DTDs/PropertyList-1.0.dtd">\n'
        "<!-- ~/Library/LaunchAgents/com.hermes-node.plist; launchctl load it -->\n"
        '<plist version="1.0">\n<dict>\n'
        "  <key>Label</key>\n  <string>com.hermes-node</string>\n"
        "  <key>ProgramArguments</key>\n  <array>\n"
        f"{words}"
        "  </array>\n"
        "  <key>RunAtLoad</key>\n  <true/>\n"
        "  <key>KeepAlive</key>\n  <dict>\n"
        "    <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n"
        "</dict>\n</plist>\n"
    )
