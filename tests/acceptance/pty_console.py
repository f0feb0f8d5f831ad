"""The installed command on a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.console import HANDOFF

#: what may reach a terminal from us: text, new lines, tabs, and colours
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


#: makes the terminal on standard input the controlling one (so that Ctrl-C is a signal),
#: then becomes the command
ATTACH = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A command on an 80x24 terminal. ``seen``: all it has written, as bytes."""

    def __init__(self, *args: str, cwd: Path, env: Mapping[str, str]) -> None:
        self.main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.seen = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", ATTACH, HANDOFF, *args],
            cwd=cwd,
            env={**env, "TERM": "xterm-256color", "NO_COLOR": ""},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)

    @property
    def text(self) -> str:
        """What is on the screen so far, without colours."""
        return COLOUR.sub(b"", self.seen).decode().replace("\r\n", "\n")

    def _read(self, seconds: float) -> bool:
        if not select.select([self.main], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.main, 65536)
        except OSError:  # Linux: the other end was closed
            return False
        self.seen += data
        return bool(data)

    def expect(self, text: str, within: float = 15.0) -> None:
        """Read until that text is there."""
        deadline = time.monotonic() + within
        while text not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, f"not within {within:g} s: {text!r} in\n{self.text}"
            if not self._read(left):
                assert text in self.text, f"it ended without {text!r}:\n{self.text}"

    def type(self, text: str) -> None:
        """Type text; ``\\n`` is the Enter key, ``\\x03`` is Ctrl-C."""
        os.write(self.main, text.encode())

    def end(self, within: float = 15.0) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + within
        while self._read(max(0.0, deadline - time.monotonic())):
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        return self.process.wait(timeout=5)

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(timeout=5)
        os.close(self.main)

    def harmless(self) -> bool:
        """Whether nothing but text, tabs, line ends and colours was written."""
        rest = COLOUR.sub(b"", self.seen).replace(b"\r\n", b"\n").decode()
        return not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]", rest)
