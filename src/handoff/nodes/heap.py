"""How the C library treats what a stream uses and frees, thousands of times a second."""

from __future__ import annotations

import contextlib
import ctypes
import sys

__all__ = ["keep_freed"]

#: bytes of a block that is asked of the system by itself, and bytes that are free at the end of
#: the heap before they are given back: more than a stream has under way
KEPT = 4 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def keep_freed() -> None:
    """Use the memory of one piece for the next. By itself glibc gives back what is larger than
    some hundred KiB, and gets it anew page by page, which took a sixth of a brain's time; other
    libraries are left as they are."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # musl has no mallopt
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_MMAP_THRESHOLD, KEPT)
            mallopt(_M_TRIM_THRESHOLD, KEPT)
