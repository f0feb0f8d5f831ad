"""Which finished commands a node still keeps, with their output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from handoff.nodes.node.keeping import Running

__all__ = ["Kept", "kept", "surplus"]

#: milliseconds that a finished command's output is kept, and a finished job's
KEEP_MS = 3600 * 1000
KEEP_JOB_MS = 14 * 24 * 3600 * 1000
#: finished commands that are kept, and finished jobs
COMMANDS = 1000
JOBS = 200
#: the last ones of each stay however old they seem, for clocks jump
ALWAYS = 20
#: bytes of output of all of them
BYTES = 4 << 30


class Kept(NamedTuple):
    """A finished command. ``ended_ms``: since 1970. ``size``: bytes of its kept output."""

    name: str
    job: bool
    ended_ms: int
    size: int


def kept(commands: Iterable[Running]) -> list[Kept]:
    """Those of them that have finished."""
    found = []
    for one in commands:
        if one.done:
            meta = one.state.get("meta") or {}
            limit = int(one.state.get("capacity", 0))
            sizes = [min(one.total(name), limit) for name in ("out", "err", "ctl")]
            ended = int(meta.get("started_ms", 0)) + int(one.state.get("duration_ms", 0))
            found.append(Kept(one.name, bool(meta.get("job")), ended, sum(sizes)))
    return found


def surplus(kept: Iterable[Kept], now_ms: int) -> list[str]:
    """The names of those to forget, the oldest first: too many, too old, or, commands before
    jobs, too large together."""
    gone: list[Kept] = []
    left: list[Kept] = []
    ordered = sorted(kept, key=lambda one: (one.ended_ms, one.name), reverse=True)
    for job, most, keep_ms in ((True, JOBS, KEEP_JOB_MS), (False, COMMANDS, KEEP_MS)):
        mine = [one for one in ordered if one.job is job]
        for place, one in enumerate(mine):
            old = place >= ALWAYS and one.ended_ms < now_ms - keep_ms
            (gone if old or place >= most else left).append(one)
    size = 0
    for one in left:  # jobs first, the newest first
        size += one.size
        if size > BYTES:
            gone.append(one)
            size -= one.size
    return [one.name for one in sorted(gone, key=lambda one: (one.ended_ms, one.name))]
