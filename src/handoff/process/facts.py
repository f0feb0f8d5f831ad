"""What the kernel says about processes, with nothing but the standard library.

The shim loads this module too, so it stays small: Linux is read from ``/proc``; macOS is
asked through ``libproc`` (:mod:`handoff.process.facts_darwin`), which is imported there only.

A *start stamp* is an opaque integer of the kernel (Linux: clock ticks since boot; macOS:
microseconds since 1970). ``(boot, pid, stamp)`` never names two processes. A process that
has died and was not yet reaped (a zombie) counts as dead everywhere but in :func:`fact`.
"""

from __future__ import annotations

import os
import sys

LINUX = sys.platform == "linux"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NamedTuple

    class Fact(NamedTuple):
        """One process: ids, start stamp, state letter, session id."""

        pid: int
        ppid: int
        started: int
        state: str
        session: int
else:
    from collections import namedtuple

    Fact = namedtuple("Fact", "pid ppid started state session")  # noqa: PYI024

#: the longest command that is shown to people, in characters
COMMAND_SHOWN = 160


def boot_id() -> str:
    """A text that changes with every boot, and with the pid namespace that pids are of."""
    if LINUX:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip() + " " + os.readlink("/proc/self/ns/pid")
    from handoff.process import facts_darwin

    return facts_darwin.boot_id()


def fact(pid: int) -> Fact | None:
    """The process with that pid, zombies included; None if there is none."""
    if not LINUX:
        from handoff.process import facts_darwin

        found = facts_darwin.fact(pid)
        return None if found is None else Fact(*found)
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        raw = os.read(fd, 2048)
    except OSError:  # ESRCH: it died between open and read
        return None
    finally:
        os.close(fd)
    # "pid (comm) state ppid pgrp session ...": comm may hold blanks and parentheses
    fields = raw[raw.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Fact(pid, int(fields[1]), int(fields[19]), fields[0].decode(), int(fields[3]))


def living(pid: int, started: int) -> bool:
    """Whether exactly that process still runs (a zombie does not)."""
    found = fact(pid)
    return found is not None and found.started == started and found.state not in "ZX"


def all_pids() -> list[int]:
    """Every pid that is visible now."""
    if LINUX:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    from handoff.process import facts_darwin

    return facts_darwin.all_pids()


def _children_by_file(pid: int) -> list[int] | None:
    """Children from ``/proc/<pid>/task/*/children``; None where the kernel lacks it."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for thread in threads:
        try:
            fd = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}"):
                return None
            continue
        except OSError:
            continue
        try:
            while chunk := os.read(fd, 65536):
                found += [int(word) for word in chunk.split()]
        except OSError:
            pass  # the thread ended while it was read; what was read still counts
        finally:
            os.close(fd)
    return found


def descendants(root: int, *, thorough: bool = False) -> list[Fact]:
    """Everything below root (root itself left out), parents before children.

    thorough: look at every process of the machine. Otherwise only root's branch is read,
    which costs a few microseconds a process but may miss one that moves at that instant.
    """
    if not thorough and LINUX:
        quick = _descend(root, _children_by_file)
        if quick is not None:
            return quick
    by_parent: dict[int, list[int]] = {}
    facts: dict[int, Fact] = {}
    for pid in all_pids():
        found = fact(pid)
        if found is not None:
            facts[pid] = found
            by_parent.setdefault(found.ppid, []).append(pid)
    return _descend(root, lambda pid: by_parent.get(pid, []), facts) or []


def _descend(
    root: int,
    children: Callable[[int], list[int] | None],
    known: dict[int, Fact] | None = None,
) -> list[Fact] | None:
    seen = {root}
    found: list[Fact] = []
    queue = [root]
    while queue:
        below = children(queue.pop())
        if below is None:
            return None
        for pid in below:
            if pid in seen:
                continue
            seen.add(pid)
            one = known.get(pid) if known is not None else fact(pid)
            if one is not None:
                found.append(one)
                queue.append(pid)
    return found


def in_tree_of(pid: int, root: int) -> bool:
    """Whether pid is root's descendant, as its chain of parents tells."""
    for _ in range(4096):  # longer than any real chain; a loop cannot happen but must end
        found = fact(pid)
        if found is None or found.ppid <= 0:
            return False
        if found.ppid == root:
            return True
        pid = found.ppid
    return False


def command_of(pid: int, limit: int = COMMAND_SHOWN) -> str:
    """The command line for people, at most limit characters, on one line."""
    if not LINUX:
        from handoff.process import facts_darwin

        return facts_darwin.command_of(pid)[:limit]
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            raw = file.read(4 * limit)
        if not raw:
            with open(f"/proc/{pid}/comm", "rb") as file:
                raw = b"[" + file.read(64).strip() + b"]"
    except OSError:
        return ""
    text = raw.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def has_mark(pid: int, mark: bytes) -> bool:
    """Whether the environment that pid was started with holds exactly ``NAME=value``.

    False also where it may not be read (another user's process).
    """
    if not LINUX:
        from handoff.process import facts_darwin

        return facts_darwin.has_mark(pid, mark)
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            raw = file.read()
    except OSError:
        return False
    return raw.startswith(mark + b"\0") or b"\0" + mark + b"\0" in raw + b"\0"


def ages(facts: Iterable[Fact]) -> list[float]:
    """Seconds since each was started."""
    if LINUX:
        with open("/proc/uptime", "rb") as file:
            up = float(file.read().split()[0])
        tick = os.sysconf("SC_CLK_TCK")
        return [max(0.0, up - one.started / tick) for one in facts]
    import time

    now = time.time()
    return [max(0.0, now - one.started / 1e6) for one in facts]
