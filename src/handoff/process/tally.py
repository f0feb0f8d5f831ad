"""Which processes belong to the run, how many there are, and the roster of them on disk.

On Linux the shim is a subreaper, so its branch of the process tree is the truth. macOS has neither: there the branch
is joined with every process of the executor's session and with everything seen before
that still lives. Standard library only.
"""

from __future__ import annotations

import os

from handoff.process import facts

ROSTER = "roster"
#: a pressure record is due from this share of the limit on
PRESSURE = 0.9


class Tally:
    """Looks at the processes below this one.

    Args:
        limit: how many processes the run may have; 0 = no limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        #: pids that are the executor itself, not something it left behind
        self.executors: set[int] = set()
        self._under_pressure = False
        self._roster: frozenset[tuple[int, int]] = frozenset()
        self._boot = facts.boot_id()

    def members(self, *, thorough: bool = False) -> list[facts.Fact]:
        """Everything that belongs to the run now, zombies included."""
        found = facts.descendants(os.getpid(), thorough=thorough)
        if not facts.LINUX:
            found += self._strays({one.pid for one in found})
        return found

    def _strays(self, known: set[int]) -> list[facts.Fact]:
        strays = []
        for pid in facts.all_pids():
            if pid in known or pid == os.getpid():
                continue
            one = facts.fact(pid)
            if one is not None and (
                (one.session > 1 and one.session in self.executors)
                or (one.pid, one.started) in self._roster
            ):
                strays.append(one)
        return strays

    def look(self) -> tuple[int, bool, bool]:
        """Count, write the roster if it changed: (count, pressure begins, limit reached)."""
        found = self.members()
        count = len(found)
        roster = frozenset((one.pid, one.started) for one in found if one.state not in "ZX")
        if roster != self._roster:
            self._write(roster)
        if not self.limit:
            return count, False, False
        before, self._under_pressure = self._under_pressure, count >= PRESSURE * self.limit
        return count, self._under_pressure and not before, count >= self.limit

    def _write(self, roster: frozenset[tuple[int, int]]) -> None:
        lines = [self._boot, *(f"{pid} {started}" for pid, started in sorted(roster))]
        fresh = f"{ROSTER}.new"
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                data = ("\n".join(lines) + "\n").encode()
                whole = os.write(fd, data) == len(data)
            finally:
                os.close(fd)
            if whole:
                os.replace(fresh, ROSTER)
                self._roster = roster
        except OSError:  # a full disk: the old roster stays, and it is tried again
            if not facts.LINUX:
                self._roster |= roster  # there it is also our memory of strays


def read_roster(folder: str, boot: str) -> list[tuple[int, int]]:
    """(pid, start stamp) of the last roster; empty if there is none or it is of another boot."""
    try:
        with open(os.path.join(folder, ROSTER), encoding="ascii") as file:
            first, *rest = file.read().splitlines() or [""]
    except FileNotFoundError:
        return []
    if first != boot:
        return []
    pairs = [line.split() for line in rest]
    return [(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2]
