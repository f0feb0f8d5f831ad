"""One command in the keeper's hands: its pipes, its limits, its end.

A command runs until it exits, its time is up, or somebody asks for its end. What it left
running then is ended as well (TERM, a grace, KILL) unless it was asked to be left. Standard
library only; nothing here blocks.
"""

from __future__ import annotations

import fcntl
import os
import signal

from handoff.nodes.node.spill import Spill
from handoff.process import facts
from handoff.process.signalling import send_signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from handoff.process.spawn import Child

#: bytes that are read from a pipe at a time
CHUNK = 1 << 20
#: seconds that what a command wrote may take to arrive after it exited
LINGER_S = 0.25
#: seconds between looks at what is to end
KILL_ROUND_S = 0.02
#: bytes of input that may wait for a slow command
MAX_INPUT = 1 << 20
_F_SETPIPE_SZ = 1031  # <linux/fcntl.h>


class Held:
    """A running command.

    folder: its own, made by the keeper: there go ``out`` and ``err``. order: as :mod:`handoff.nodes.node.keeper` says.
    """

    def __init__(
        self, name: str, folder: str, order: dict[str, Any], child: Child, now: float
    ) -> None:
        self.name = name
        self.folder = folder
        self.child = child
        self._meta = order.get("meta") or {}
        self._mark = b"HANDOFF_RUN=" + os.fsencode(mark(os.path.dirname(folder), name))
        self._stdin = child.stdin
        self._pending = bytearray()
        self._close_after = order.get("stdin") != "open"
        self.taken = 0
        """Bytes of input that were taken, written or not."""
        capacity = int(order["capacity"])
        self.out = Spill(os.path.join(folder, "out"), capacity)
        self.err = Spill(os.path.join(folder, "err"), capacity)
        self.ctl = Spill(os.path.join(folder, "ctl"), capacity)
        self.pipes = {child.stdout: self.out, child.stderr: self.err}
        if child.control >= 0:
            self.pipes[child.control] = self.ctl
        for fd in self.pipes:
            widen(fd)
        self.pace(order.get("upto", -1), order.get("upto", -1))
        self._began = now
        self._deadline = now + order["timeout_ms"] / 1000 if order.get("timeout_ms") else None
        self._grace_s = order.get("grace_ms", 3000) / 1000
        self._leave = bool(order.get("leave"))
        self.exit: tuple[int | None, int | None] | None = None
        """Code and signal of the command itself, once it has exited."""
        self.ended_by = ""
        self.still_holding = False
        self.left = 0
        self.done = False
        """The result is known; what is left of it is ended still, if anything is."""
        self.swept = False
        self._linger: float | None = None
        self._kill_at: float | None = None
        self._look_at: float | None = None
        self._termed: set[tuple[int, int]] = set()
        self._duration = 0.0
        self._known: set[tuple[int, int]] = set()

    # what comes and goes through pipes

    def pace(self, out: int, err: int) -> None:
        """Take no more than so many bytes of each stream, until told otherwise (-1: all)."""
        self.out.upto, self.err.upto = int(out), int(err)

    def reads(self, fd: int) -> bool:
        """Whether that pipe is read now. What a command leaves when it exits is read at once."""
        spill = self.pipes[fd]
        return spill.upto < 0 or spill.total < spill.upto or self.exit is not None

    def read(self, fd: int) -> None:
        """Take what is in a pipe now, at most a chunk; close it at its end."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.pipes[fd].write(data)
        else:
            self.drop(fd)

    def drain(self) -> None:
        """Take everything that is in the pipes now."""
        for fd in list(self.pipes):
            spill = self.pipes[fd]
            before = -1
            while fd in self.pipes and spill.total != before:
                before = spill.total
                self.read(fd)

    def drop(self, fd: int) -> None:
        """Listen to that pipe no more."""
        self.pipes.pop(fd).close()
        os.close(fd)

    def offer(self, offset: int, data: bytes, *, last: bool) -> str:
        """Take input. offset: how many bytes came before, so that what is sent twice is taken
        once. Returns "" or why not: ``gap``, ``gone``, ``busy``."""
        if offset > self.taken:
            return "gap"
        fresh = data[self.taken - offset :]
        if fresh:
            if self._stdin < 0:
                return "gone"
            if len(self._pending) + len(fresh) > MAX_INPUT:
                return "busy"
            self._pending += fresh
            self.taken += len(fresh)
        self._close_after = self._close_after or last
        self.push()
        return ""

    @property
    def wants_input(self) -> int:
        """The descriptor that input waits for, -1 if none does."""
        return self._stdin if self._pending else -1

    def push(self) -> None:
        """Write what the command's input takes now."""
        if self._stdin < 0:
            return
        try:
            while self._pending:
                del self._pending[: os.write(self._stdin, self._pending[:CHUNK])]
        except BlockingIOError:
            return
        except OSError:  # it does not read any more
            self._pending.clear()
            self._close_after = True
        if self._close_after:
            os.close(self._stdin)
            self._stdin = -1

    # how it ends

    def exited(self, status: int, now: float) -> None:
        """The command itself has ended."""
        code = os.waitstatus_to_exitcode(status)
        self.exit = (code, None) if code >= 0 else (None, -code)
        self._duration = now - self._began
        self._linger = now + LINGER_S
        self._pending.clear()
        self._close_after = True
        self.push()

    def end(
        self, why: str, now: float, grace_s: float | None = None, *, last: bool = False
    ) -> None:
        """TERM to everything of it, KILL after the grace. The first reason counts. last: also
        to what it was allowed to leave."""
        if not self.ended_by and self.exit is None:
            self.ended_by = why
        if last and self.left and self.swept:
            self.swept, self._kill_at = False, None
        if self._kill_at is None:
            self._kill_at = now + (self._grace_s if grace_s is None else grace_s)
            self._look_at = now

    def signal(self, number: int) -> bool:
        """A signal to the command itself. Returns whether it still runs."""
        found = facts.fact(self.child.pid)
        if self.exit is not None or found is None:
            return False
        return send_signal(found.pid, found.started, number)

    def next_time(self) -> float | None:
        """When :meth:`tick` has something to do, on the keeper's clock."""
        times = [self._look_at, self._linger if not self.done else None]
        if self.exit is None and self._kill_at is None:
            times.append(self._deadline)
        return min((one for one in times if one is not None), default=None)

    def tick(self, now: float) -> None:
        """Whatever is due."""
        late = self._deadline is not None and now >= self._deadline
        if late and self.exit is None and self._kill_at is None:
            self.end("timeout", now)
        if self._look_at is not None and now >= self._look_at:
            self._chase(now)
        if self.exit is not None and not self.done:
            over = self._linger is not None and now >= self._linger
            if not self.pipes or over:
                self._finish(now)

    def members(self, *, thorough: bool = False) -> list[facts.Fact]:
        """What lives of it: its session, its descendants, what carries its mark. thorough:
        miss none that moves at that instant."""
        tree = facts.descendants(os.getpid(), thorough=thorough or not facts.LINUX)
        mine: set[int] = set()
        found = []
        for one in tree:  # parents come before children
            if one.state in "ZX":
                continue
            if (
                one.pid == self.child.pid
                or (one.session > 1 and one.session == self.child.pid)
                or one.ppid in mine
                or (one.pid, one.started) in self._known
                or facts.has_mark(one.pid, self._mark)
            ):
                mine.add(one.pid)
                found.append(one)
        self._known |= {(one.pid, one.started) for one in found}
        return found

    def _finish(self, now: float) -> None:
        """The result is known; see to what was left behind."""
        held = bool(self.pipes)
        found = self.members(thorough=held)
        self.still_holding = held
        self.left = len(found)
        self.done = True
        self._linger = None
        for fd in list(self.pipes) if not self._leave else []:
            self.drop(fd)
        for spill in (self.out, self.err, self.ctl):
            spill.close()
        if not found or self._leave:
            self.swept = True
            for fd in list(self.pipes):
                self.drop(fd)
        else:
            self.end("", now)

    def _chase(self, now: float) -> None:
        found = self.members() or self.members(thorough=True)
        if not found:
            self._look_at = None
            self.swept = self.exit is not None
            return
        killing = self._kill_at is not None and now >= self._kill_at
        for one in found:
            if killing or (one.pid, one.started) not in self._termed:
                self._termed.add((one.pid, one.started))
                send_signal(one.pid, one.started, signal.SIGKILL if killing else signal.SIGTERM)
        self._look_at = now + KILL_ROUND_S

    # what others may know

    def state(self) -> dict[str, Any]:
        """Where it stands."""
        code, number = self.exit or (None, None)
        return {
            "name": self.name,
            "meta": self._meta,
            "pid": self.child.pid,
            "running": self.exit is None,
            "done": self.done,
            "exit_code": code,
            "signal": number,
            "ended_by": self.ended_by,
            "still_holding": self.still_holding,
            "left_behind": self.left,
            "duration_ms": round(self._duration * 1000),
            "taken": self.taken,
            "out": self.out.total,
            "err": self.err.total,
            "ctl": self.ctl.total,
            "lost": self.out.lost + self.err.lost,
            "error": self.out.error or self.err.error,
            "capacity": self.out.limit,
        }


def mark(folder: str, name: str) -> str:
    """What all processes of a call carry in ``HANDOFF_RUN``. Two nodes of one machine may have
    a call of the same name: their keepers' folders differ."""
    place = os.stat(folder)
    return f"{name}.{place.st_dev:x}.{place.st_ino:x}"


def widen(fd: int) -> None:
    """Let a pipe hold a chunk, so that a busy command waits less (Linux)."""
    if facts.LINUX:
        try:
            fcntl.fcntl(fd, _F_SETPIPE_SZ, CHUNK)
        except OSError:  # over the user's limit: the usual size does
            pass
