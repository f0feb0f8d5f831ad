"""Ending what a dead shim left behind.

A process belongs to a run if it was started with the run's mark ``HANDOFF_RUN=<run id>`` in
its environment, or stands in the run's roster with the same start stamp, or descends from
such a one. Names and command lines are never looked at, and every signal goes to a process
whose start stamp was seen to be right (on Linux through its pidfd, so that a pid used again
can't be hit). This process, its ancestors and the first process are never signalled,
whoever claims that they belong to a run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from handoff.process import facts, fence
from handoff.process.signalling import ancestors, send_signal
from handoff.process.tally import read_roster

if TYPE_CHECKING:
    from handoff.process.contract import Proc
    from handoff.process.handle import Info

#: seconds between looks while waiting, and of killing before giving up
_LOOK_S = 0.05
_KILL_S = 5.0
#: seconds of looking for nothing but newcomers
_CHASE_S = 0.01
#: looks in a row that must find nothing where something may run away
_SURE = 3


async def sweep(run_id: str, run_dir: Path, *, grace_s: float = 3.0) -> list[Proc]:
    """TERM, wait up to grace_s, KILL everything of the run, its shim first.

    Returns what is still alive after all that: empty unless a process can't be killed.
    """
    return await asyncio.to_thread(_sweep, run_id, run_dir, grace_s)


def _sweep(run_id: str, run_dir: Path, grace_s: float) -> list[Proc]:
    info = _info(run_id, run_dir)
    if info is not None and info.boot == facts.boot_id():
        # it did not react, if it lives still; its executor dies with it
        send_signal(info.pid, info.started, signal.SIGKILL)

    shut = partial(fence.shut, info.cgroup, run_id) if info else lambda: None
    left = end_all(Quarry(run_id, run_dir if info else None), grace_s, shut, sure=_SURE)
    if info is not None and not left:
        fence.release(info.cgroup, run_id)
    return left


def _roster(run_dir: Path) -> frozenset[tuple[int, int]]:
    return frozenset(read_roster(str(run_dir), facts.boot_id()))


class Quarry:
    """What has to end: everything of one run.

    Args: as of :func:`belonging`; run_dir: whose roster counts as known, if not None.
    """

    def __init__(
        self, run_id: str, run_dir: Path | None, *, session: int | None = None, since: int = 0
    ) -> None:
        self._run_id = run_id
        self._run_dir = run_dir
        self._session = session
        self._since = since
        self._mark = _mark(run_id)

    def look(self) -> list[facts.Fact]:
        """All of it that lives now, the oldest first."""
        known = _roster(self._run_dir) if self._run_dir else frozenset()
        return belonging(self._run_id, known, session=self._session, since=self._since)

    def chase(self, number: int) -> bool:
        """For a moment, send that signal to whatever turns up with the mark, on sight.

        What forks and ends without a pause is gone before a look is over. Returns whether
        something was met.
        """
        until, before, met = time.monotonic() + _CHASE_S, frozenset(facts.all_pids()), False
        while time.monotonic() < until:
            now = frozenset(facts.all_pids())
            for pid in now - before:
                one = facts.fact(pid)
                if one is not None and facts.has_mark(pid, self._mark):
                    met = send_signal(pid, one.started, number) or met
            before = now
        return met


def end_all(
    quarry: Quarry,
    grace_s: float,
    before_kill: Callable[[], object] = lambda: None,
    *,
    sure: int = 1,
) -> list[Proc]:
    """TERM, wait up to grace_s, KILL until the quarry is empty. Blocks.

    before_kill: called once before the first KILL. sure: so many looks in a row must find
    nothing, and more once something was found. Returns what still lives when killing did
    not help.
    """
    now = time.monotonic()
    term_until, kill_until = now + grace_s, now + grace_s + _KILL_S
    met: set[tuple[int, int]] = set()
    pause = _LOOK_S / 10
    empty, shut = 0, False
    while empty < sure:
        found = quarry.look()
        killing = time.monotonic() >= term_until
        if not found:
            empty += 1
            if sure > 1 and quarry.chase(signal.SIGSTOP if killing else signal.SIGTERM):
                empty = 0
            continue
        empty, sure = 0, _SURE
        if time.monotonic() >= kill_until:
            return _procs(found)
        if killing and not shut:
            shut = True
            before_kill()
        fresh = [one for one in found if (one.pid, one.started) not in met]
        met.update((one.pid, one.started) for one in fresh)
        for one in found if killing else fresh:
            send_signal(one.pid, one.started, signal.SIGKILL if killing else signal.SIGTERM)
        if not (killing and fresh and quarry.chase(signal.SIGSTOP)):
            time.sleep(pause)
            pause = _LOOK_S / 5 if killing else min(pause * 1.5, _LOOK_S)
    return []


def left_behind(run_id: str, run_dir: Path) -> list[Proc]:
    """Everything of the run that lives now, apart from its shim."""
    mine = _info(run_id, run_dir) is not None
    return _procs(belonging(run_id, _roster(run_dir) if mine else frozenset()))


def _info(run_id: str, run_dir: Path) -> Info | None:
    """Who held the run; None if nobody ever did, or run_dir is another run's."""
    from handoff.process.handle import Info

    try:
        info = Info.load(run_dir)
    except FileNotFoundError:
        return None
    return info if info.run_id == run_id else None


def belonging(
    run_id: str,
    known: AbstractSet[tuple[int, int]] = frozenset(),
    *,
    session: int | None = None,
    since: int = 0,
) -> list[facts.Fact]:
    """Everything that carries the run's mark or is known, and what descends from it, the
    oldest first.

    known: (pid, start stamp). session: members of that session belong as well. since: a
    start stamp; nothing older can belong. Our own ancestors
    never belong.

    Raises:
        ValueError: run_id is empty, or session is no session of a run: 0 and 1 are what
            half a machine may have.
    """
    mark = _mark(run_id)
    if session is not None and session <= 1:
        raise ValueError(f"{session} is no session of a run")
    spared = ancestors()
    everything: dict[int, facts.Fact] = {}
    children: dict[int, list[int]] = {}
    own: list[int] = []
    for pid in facts.all_pids():
        one = facts.fact(pid)
        if one is None or one.state in "ZX" or pid in spared:
            continue
        everything[pid] = one
        children.setdefault(one.ppid, []).append(pid)
        if one.started < since:
            continue
        of_session = session is not None and one.session == session
        if of_session or (pid, one.started) in known or facts.has_mark(pid, mark):
            own.append(pid)
    found: dict[int, facts.Fact] = {}
    while own:
        pid = own.pop()
        if pid in everything and pid not in found:
            found[pid] = everything[pid]
            own += children.get(pid, [])
    # Parents first: a script whose child was ended before it would go on to its next line.
    in_order = sorted(found.values(), key=lambda one: (one.started, one.pid))
    # the mark was read after the stamp: leave out a pid that changed hands in between
    return [one for one in in_order if facts.living(one.pid, one.started)]


def _mark(run_id: str) -> bytes:
    if not run_id:
        raise ValueError("a run without an id has no processes")
    return b"HANDOFF_RUN=" + os.fsencode(run_id)


def _procs(found: list[facts.Fact]) -> list[Proc]:
    # a node imports this module too, and does without what the contract rests on
    from handoff.process.contract import Proc

    return [
        Proc(one.pid, one.ppid, one.started, facts.command_of(one.pid), round(age, 2))
        for one, age in zip(found, facts.ages(found), strict=True)
    ]
