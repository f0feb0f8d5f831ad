"""The terminal: whether there is one, lending it to a child, and putting it right after.

The child uses the very terminal of its opener, in the same foreground group: Ctrl-C and
Ctrl-Z reach it as they would without us. Whatever it leaves behind, also when it was
killed, is undone afterwards: the settings, the foreground group, and the modes that a
full-screen program switches on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
from collections.abc import Iterator
from typing import Any

from handoff.errors import NotATerminal

__all__ = ["MEND", "RESET", "Terminal"]

#: what a person types if the opener itself was killed and could not do this
MEND = "stty sane; tput reset"
#: Each is harmless on a terminal where nothing is to be undone. The cursor is saved first:
#: leaving the second screen where there is none would otherwise move it.
RESET = (
    b"\x1b7\x1b[?1049l"  # the second screen
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l"  # mouse, focus
    b"\x1b[?2004l\x1b[?2026l"  # bracketed paste, synchronised output
    b"\x1b[<u\x1b[>4;0m"  # keyboard protocols
    b"\x1b[?1l\x1b>"  # cursor keys, keypad
    b"\x1b[?7h\x1b[?25h\x1b(B\x1b[0m"  # wrapping, cursor, character set, colours
)


class Terminal:
    """The terminal behind two descriptors."""

    def __init__(self, stdin: int = 0, stdout: int = 1) -> None:
        self.stdin, self.stdout = stdin, stdout

    def require(self) -> None:
        """Check that both are a terminal, and that it is ours to use now.

        Raises:
            NotATerminal: one is a pipe, a file or closed, or this runs in the background.
        """
        for name, fd in (("input", self.stdin), ("output", self.stdout)):
            if not _is_terminal(fd):
                raise NotATerminal(
                    f"standard {name} is no terminal",
                    remedy="run it yourself in a terminal, without a pipe",
                )
        foreground = self._foreground()
        if foreground is not None and foreground != os.getpgrp():
            raise NotATerminal("this runs in the background", remedy="fg")

    def _foreground(self) -> int | None:
        """The foreground group; None if this is not our controlling terminal."""
        try:
            return os.tcgetpgrp(self.stdin)
        except OSError:
            return None

    @contextlib.contextmanager
    def lend(self) -> Iterator[None]:
        """Remember how the terminal is, and make it so again at the end."""
        settings = termios.tcgetattr(self.stdin)
        foreground = self._foreground()
        try:
            yield
        finally:
            self._mend(settings, foreground)

    def _mend(self, settings: list[Any], foreground: int | None) -> None:
        # Changing the settings from the background stops the caller: not while this is on.
        with _without(signal.SIGTTOU):
            if foreground is not None and self._foreground() != foreground:
                with contextlib.suppress(OSError):
                    os.tcsetpgrp(self.stdin, foreground)
            try:
                termios.tcsetattr(self.stdin, termios.TCSANOW, settings)
                os.write(self.stdout, RESET)
            except (termios.error, OSError):
                return  # the terminal was closed: nobody sees it any more


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


@contextlib.contextmanager
def _without(number: int) -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
