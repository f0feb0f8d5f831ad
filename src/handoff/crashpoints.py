"""Named places at which a fault test kills the process, as ``kill -9`` would.

``HANDOFF_CRASH_AT=<name>[:n]`` ends the process at the n-th time (default: the first) that
it reaches ``name``. ``HANDOFF_CRASH_LOG=<file>`` appends the name of every point reached,
one a line, so that a test can find all the places where a run could have been cut.
Without either variable, :func:`reach` is an empty function.
"""

from __future__ import annotations

import os
import signal
import threading

from handoff.errors import ConfigError

__all__ = ["parse", "reach"]


def parse(setting: str) -> tuple[str, int]:
    """``name`` or ``name:n`` as (name, n).

    Raises:
        ConfigError: there is no name, or n is not a positive whole number.
    """
    name, _, count = setting.partition(":")
    if not name or (count and not count.isdecimal()) or count == "0":
        raise ConfigError(f"HANDOFF_CRASH_AT is '{setting}', not <name> or <name>:<n>")
    return name, int(count or "1")


def _nothing(name: str, /) -> None:
    """Mark a crash point; nothing is asked for in this process."""


class _Armed:
    """Counts the points reached and ends the process at the one asked for."""

    def __init__(self, crash_at: str, log: str) -> None:
        self._name, self._left = parse(crash_at) if crash_at else ("", 0)
        self._log = log
        self._lock = threading.Lock()

    def __call__(self, name: str, /) -> None:
        with self._lock:
            if self._log:
                # opened each time: the process may be killed at any of them
                with open(self._log, "a", encoding="utf-8") as out:
                    out.write(name + "\n")
            if name != self._name:
                return
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


_crash_at = os.environ.get("HANDOFF_CRASH_AT", "")
_log = os.environ.get("HANDOFF_CRASH_LOG", "")

#: ``reach(name)``: call it where a crash would be interesting
reach = _Armed(_crash_at, _log) if _crash_at or _log else _nothing
