"""Where the folders that a policy names lead to, without following each path at each look.

To follow a path takes a look at every name in it, and a policy has twenty paths. A path that
goes through no link leads elsewhere only after a name in one of its folders was replaced,
and that shows in the folder's own change time, which nobody can set. So these folders are
looked at, each once; a path that goes through a link is followed every time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Bases"]

#: a folder that was changed less than this before it was looked at may change again within
#: one tick of its clock (nanoseconds; the kernel's ticks have at most ten million)
YOUNG_NS = 100_000_000

_Stamp = tuple[int, int, int] | None


class _Seen(NamedTuple):
    """``same``: path -> itself without capitals, of those that go through no link. ``stamps``:
    folder -> what it was before they were followed."""

    same: Mapping[str, str]
    stamps: tuple[tuple[str, _Stamp], ...]


class Bases:
    """The folders of one policy."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: _Seen | None = None

    def now(self, paths: Callable[[], Sequence[str]]) -> Mapping[str, str]:
        """Those of ``paths`` that lead to themselves, as the system would say now, each with
        itself as ``str.casefold`` writes it. paths: always gives the same."""
        seen = self._seen
        if seen is not None:
            for path, stamp in seen.stamps:
                if _stamp(path) != stamp:
                    break
            else:
                return seen.same
        every = paths()
        folders = {above for path in every for above in _above(path)}
        before = time.time_ns()
        stamps = tuple((folder, _stamp(folder)) for folder in folders)
        same = {one: one.casefold() for one in every if one and os.path.realpath(one) == one}
        young = any(stamp is not None and before - stamp[2] < YOUNG_NS for _, stamp in stamps)
        self._seen = None if young else _Seen(same, stamps)
        return same


def _above(path: str) -> list[str]:
    found = []
    while path not in {"", "/"}:
        path = os.path.dirname(path)
        found.append(path)
    return found


def _stamp(path: str) -> _Stamp:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
