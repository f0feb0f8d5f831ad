"""File descriptors: how many this process may have, and one line a minute when none is free."""

from __future__ import annotations

import contextlib
import errno
import logging
import resource
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

__all__ = ["limit", "quiet", "raise_limit"]

#: more than anything here needs; the limit itself may be a million, which some systems walk
MOST = 65536
#: seconds between two lines
WITHIN_S = 60.0

log = logging.getLogger("handoff.nodes")


def limit() -> int:
    """How many this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Take what the system lets this process have: what it gives of its own accord is made
    for programs with a handful of files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def quiet(loop: asyncio.AbstractEventLoop) -> None:
    """Asyncio tries again each second to accept who waits, and logs each time a hundred
    tracebacks: say it once a minute."""
    said = -WITHIN_S

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal said
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in {errno.EMFILE, errno.ENFILE}:
            loop.default_exception_handler(context)
        elif time.monotonic() >= said + WITHIN_S:
            said = time.monotonic()
            log.error("nobody can be let in: %s (limit: %d)", error.strerror, limit())

    loop.set_exception_handler(handle)
