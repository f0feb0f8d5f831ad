"""The shim's loop: one executor, its pipes, its descendants, its clients.

One thread, one ``poll``. Nothing here blocks but the poll itself. The life of a holder:

1. *running*: output goes to the journal, numbered input to the executor;
2. the executor exits (``exited`` is written), or somebody asks for the end, or the process
   count passes its limit;
3. *ending*: TERM to everything, the grace, then KILL again and again until the kernel says
   that no child is left (we are the subreaper, so that means no descendant is left);
4. ``swept`` is written, clients are told, and the shim exits.

Standard library only.
"""

from __future__ import annotations

import os
import select
import signal
import time
from binascii import Error as BadBase64
from binascii import a2b_base64
from functools import partial

from handoff.process import facts
from handoff.process.door import Door, Link
from handoff.process.feed import Feed
from handoff.process.intake import (
    CHUNK,
    MAX_BACKLOG,
    STDERR_RATE,
    STDERR_UNACKED,
    Stderr,
    read_some,
)
from handoff.process.journal import SEGMENT_BYTES, Writer
from handoff.process.signalling import send_signal
from handoff.process.tally import Tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from handoff.process.spawn import Child

#: seconds between looks at the tree: roster, process limit, our socket's name
WATCH_S = 1.0
#: seconds between kill rounds, of rounds in a row at newcomers, between tries at a full disk
KILL_ROUND_S = 0.02
KILL_BURST_S = 0.2
DISK_RETRY_S = 0.2
#: seconds of killing after which a client that asked for the end is told what still lives
STUBBORN_S = 5.0
#: seconds that clients get to read the last words
FAREWELL_S = 1.0
#: the most that is read from a pipe after its process died: a pipe's largest usual size
_DRAIN = 1 << 20
_IN = select.POLLIN | select.POLLHUP | select.POLLERR


class Holder:
    """Holds one executor until nothing of it is left.

    Args:
        spec: run_id, grace_s, max_procs, cgroup and the limits (see ``supervisor.Limits``).
        door: the open socket.
    """

    def __init__(self, spec: dict[str, Any], door: Door) -> None:
        self.journal = Writer(".", int(spec.get("segment_bytes") or SEGMENT_BYTES))
        self._run_id = str(spec["run_id"])
        self._grace = float(spec["grace_s"])
        self._max_backlog = int(spec.get("max_backlog") or MAX_BACKLOG)
        self._tally = Tally(int(spec["max_procs"]))
        self._cgroup = str(spec.get("cgroup") or "")
        self._stderr = Stderr(
            self.journal,
            int(spec.get("stderr_rate") or STDERR_RATE),
            int(spec.get("stderr_unacked") or STDERR_UNACKED),
        )
        self._door = door
        self._links: dict[int, Link] = {}
        self._poll = select.poll()
        self._watched: dict[int, tuple[int, Callable[[], None]]] = {}
        self._feed = Feed(-1, self._input_written)
        self._out = self._err = -1
        self._executor = 0
        self._exit_code: int | None = None
        self._told_end = 0
        self._term_until = 0.0
        self._ending = False
        self._killing_since = 0.0
        self._met: set[tuple[int, int]] = set()
        self._signalled: set[tuple[int, int]] = set()
        self._end_waiters: list[tuple[Link, Any]] = []
        self._next_watch = 0.0
        self._wake, wake_end = os.pipe()
        for fd in (self._wake, wake_end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        self._term_asked = False
        signal.signal(signal.SIGCHLD, _nothing)
        signal.signal(signal.SIGHUP, _nothing)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_term)

    # -- starting ------------------------------------------------------------------------

    def hold(self, child: Child) -> None:
        """Take over a started executor."""
        self._executor = child.pid
        self._tally.executors.add(child.pid)
        self._feed = Feed(child.stdin, self._input_written)
        self._out, self._err = child.stdout, child.stderr
        self.record("started", b"%d" % child.pid)

    def refused(self, code: int, reason: str) -> None:
        """Record that the executor could not be started."""
        self.record("stderr", f"[handoff: {reason}]\n".encode())
        self._exit_code = code
        self.record("exited", b"%d" % code)
        self._begin_end(0.0)

    def record(self, kind: str, data: bytes) -> None:
        """Append to the journal; clients are told once a turn of the loop."""
        self.journal.append(kind, time.time_ns() // 1_000_000, data)

    # -- the loop ------------------------------------------------------------------------

    def run(self) -> None:
        """Loop until nothing is left of the executor and the journal is on disk."""
        self._watch(self._wake, _IN, self._woken)
        self._watch(self._door.fd, _IN, self._accept)
        while True:
            self._reap()
            now = time.monotonic()
            self._look(now)
            if self._ending and self._end_step(now):
                break
            self._interests()
            self._tell_growth()
            self._turn(self._timeout(now))
        self._finish()

    def _turn(self, timeout_s: float) -> None:
        for fd, _ in self._poll.poll(max(0.0, timeout_s) * 1000):
            entry = self._watched.get(fd)
            if entry is not None:  # an earlier callback of this turn may have let it go
                entry[1]()
        for fd in [fd for fd, link in self._links.items() if link.closed]:
            self._unwatch(fd)
            del self._links[fd]

    def _timeout(self, now: float) -> float:
        """Seconds until something is due."""
        due = self._next_watch - now
        if self.journal.blocked:
            due = min(due, DISK_RETRY_S)
        if self._ending:
            due = min(due, KILL_ROUND_S)
        return due

    def _interests(self) -> None:
        """Tell the poll what we want to hear of, given what we can take."""
        journal = self.journal
        can_take = not journal.blocked or journal.flush()
        stdout = can_take and (journal.backlog < self._max_backlog or self._ending)
        self._want(self._out, _IN if stdout else 0, self._read_out)
        self._want(self._err, _IN if can_take else 0, self._read_err)
        self._want(self._feed.fd, select.POLLOUT if self._feed.waiting else 0, self._push)
        for fd, link in list(self._links.items()):
            if not link.closed:
                events = _IN | (select.POLLOUT if link.outbox else 0)
                self._want(fd, events, partial(self._serve, fd))

    def _want(self, fd: int, events: int, callback: Callable[[], None]) -> None:
        if fd < 0:
            return
        if events:
            self._watch(fd, events, callback)
        else:
            self._unwatch(fd)

    def _watch(self, fd: int, events: int, callback: Callable[[], None]) -> None:
        old = self._watched.get(fd)
        if old is None or old[0] != events:
            self._poll.register(fd, events)
            self._watched[fd] = (events, callback)

    def _unwatch(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._poll.unregister(fd)

    # -- pipes ---------------------------------------------------------------------------

    def _read_out(self) -> None:
        data = read_some(self._out)
        if data:
            self.record("stdout", data)
        elif data is not None:
            self._unwatch(self._out)
            os.close(self._out)
            self._out = -1

    def _read_err(self) -> None:
        data = read_some(self._err)
        if data:
            self._stderr.take(data, time.monotonic(), time.time_ns() // 1_000_000)
        elif data is not None:
            self._unwatch(self._err)
            os.close(self._err)
            self._err = -1

    def _drain(self) -> None:
        """Take what the pipes hold, without waiting, and not for ever."""
        for _ in range(_DRAIN // CHUNK):
            before = self.journal.end
            if self._out >= 0:
                self._read_out()
            if self._err >= 0:
                self._read_err()
            if self.journal.end == before:
                break
        self._stderr.mark(time.time_ns() // 1_000_000)

    def _push(self) -> None:
        fd = self._feed.fd
        self._feed.push()
        if self._feed.fd < 0:
            self._unwatch(fd)

    def _close_feed(self) -> None:
        if self._feed.fd >= 0:
            self._unwatch(self._feed.fd)
            self._feed.close()

    def _input_written(self, number: int) -> None:
        self.record("input", b"%d" % number)

    # -- clients -------------------------------------------------------------------------

    def _accept(self) -> None:
        link, why = self._door.accept()
        if why:
            self.record("stderr", f"[handoff: {why}; refused]\n".encode())
        if link is not None:
            self._links[link.fd] = link
            link.say({"hello": self._state()})

    def _state(self) -> dict[str, Any]:
        return {
            "run_id": self._run_id,
            "pid": os.getpid(),
            "end": self.journal.committed,
            "acked": self.journal.acked,
            "written": self._feed.written,
            "exited": self._exit_code,
            "ending": self._ending,
            "disk": str(self.journal.trouble or ""),
        }

    def _serve(self, fd: int) -> None:
        link = self._links[fd]
        link.flush()
        for request in link.receive():
            try:
                self._answer(link, request)
            except (KeyError, TypeError, ValueError, BadBase64) as error:
                why = f"{type(error).__name__}: {error}"
                link.say({"id": request.get("id"), "error": "bad_request", "why": why})

    def _answer(self, link: Link, request: dict[str, Any]) -> None:
        op, ident = request["op"], request.get("id")
        if op == "input":
            text = request.get("text")
            data = a2b_base64(request["b64"]) if text is None else str(text).encode()

            def done(problem: str) -> None:
                reply = {"error": problem} if problem else {"ok": True}
                link.say({"id": ident, "written": self._feed.written, **reply})

            self._feed.offer(int(request["n"]), data, done)
        elif op == "ack":
            self.journal.ack(int(request["offset"]))
            link.say({"id": ident, "ok": True})
        elif op == "end":
            self._end_waiters.append((link, ident))
            self._begin_end(float(request.get("grace", self._grace)))
        elif op == "tree":
            link.say({"id": ident, "ok": True, "tree": self._tree()})
        elif op in {"ping", "hello"}:
            link.say({"id": ident, "ok": True, "hello": self._state()})
        else:
            link.say({"id": ident, "error": "bad_request", "why": f"no such op: {op}"})

    def _tell_growth(self) -> None:
        """Push the new end, at most once a turn, and only to clients that keep up."""
        grown = self.journal.committed != self._told_end
        self._told_end = self.journal.committed
        for link in self._links.values():
            link.owed = link.owed or grown
            if link.owed and not link.outbox:
                link.owed = False
                link.say({"end": self._told_end})

    # -- the tree ------------------------------------------------------------------------

    def _tree(self) -> list[list[Any]]:
        alive = [one for one in self._tally.members(thorough=True) if one.state not in "ZX"]
        seconds = facts.ages(alive)
        return [
            [one.pid, one.ppid, one.started, facts.command_of(one.pid), round(age, 2)]
            for one, age in zip(alive, seconds, strict=True)
        ]

    def _look(self, now: float) -> None:
        """Once a second: the roster, the process limit, our socket's name."""
        if now < self._next_watch:
            return
        self._next_watch = now + WATCH_S
        count, pressure, over = self._tally.look()
        if pressure:
            self.record("pressure", b"%d" % count)
        if over and not self._ending:
            limit = self._tally.limit
            text = f"[handoff: ended, {count} processes, the limit is {limit}]\n"
            self.record("stderr", text.encode())
            self._begin_end(0.0)
        if self._door.lost():
            self._unwatch(self._door.fd)
            try:
                self._door.reopen()
            except OSError:  # the run's folder is gone: nobody can reach us any more
                pass
            self._watch(self._door.fd, _IN, self._accept)

    def _woken(self) -> None:
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass
        if self._term_asked:
            self._term_asked = False
            self._begin_end(self._grace)

    def _on_term(self, _number: int, _frame: object) -> None:
        self._term_asked = True

    def _reap(self) -> bool:
        """Collect the dead. Returns whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._executor:
                self._executor_exited(os.waitstatus_to_exitcode(status))

    def _executor_exited(self, code: int) -> None:
        self._exit_code = code
        self._executor = 0
        self._close_feed()
        self._drain()
        self.record("exited", b"%d" % code)
        self._begin_end(self._grace)

    def _begin_end(self, grace: float) -> None:
        """Ask everything to end; a shorter grace than the one that runs shortens it."""
        until = time.monotonic() + max(0.0, grace)
        if not self._ending:
            self._ending = True
            self._term_until = until
            self._close_feed()
        self._term_until = min(self._term_until, until)

    def _end_step(self, now: float) -> bool:
        """One round of ending. Returns whether nothing is left."""
        if not self._reap() and not self._tally.members():
            return True
        if now < self._term_until:
            for one in self._tally.members():
                self._signal(one, signal.SIGTERM)
            return False
        if not self._killing_since:
            self._killing_since = now
            self._fence("shut")
        # What forks as fast as it can is met by rounds without a pause: a whole look at the
        # machine takes longer than such a process lives.
        fresh, thorough = 1, True
        while fresh and time.monotonic() < now + KILL_BURST_S:
            fresh = 0
            for one in self._tally.members(thorough=thorough):
                fresh += self._signal(one, signal.SIGKILL)
            self._reap()
            thorough = False
        if now - self._killing_since > STUBBORN_S:
            self._answer_end(self._tree())
        return False

    def _signal(self, one: facts.Fact, number: int) -> bool:
        """Signal one of ours, TERM but once. Returns whether it was not met before."""
        key = (one.pid, one.started)
        fresh = key not in self._met
        if one.state in "ZX" or (number == signal.SIGTERM and key in self._signalled):
            return False
        self._met.add(key)
        # The list was read while processes came and went: ours are those whose parents
        # lead to us now.
        if facts.LINUX and not facts.in_tree_of(one.pid, os.getpid()):
            return fresh
        if send_signal(one.pid, one.started, number):
            self._signalled.add(key)
        return fresh

    def _fence(self, what: str) -> None:
        """Shut or release the run's cgroup, if it has one."""
        if self._cgroup:
            from handoff.process import fence

            getattr(fence, what)(self._cgroup, self._run_id)

    def _answer_end(self, alive: list[list[Any]]) -> None:
        waiters, self._end_waiters = self._end_waiters, []
        for link, ident in waiters:
            link.say({"id": ident, "ok": True, "tree": alive})

    def _finish(self) -> None:
        self._drain()
        ended = len({key for key in self._signalled if key[0] not in self._tally.executors})
        self.record("swept", b"%d" % ended)
        self._fence("release")
        self._answer_end([])  # it may take long until a full disk takes the last records
        while not self.journal.flush() and os.stat(".").st_nlink:
            self._interests()
            self._turn(DISK_RETRY_S)
            self._answer_end([])
        self._tell_growth()
        until = time.monotonic() + FAREWELL_S
        while any(link.outbox for link in self._links.values()) and time.monotonic() < until:
            self._interests()
            self._turn(0.1)
        self._door.close()
        self.journal.close()


def _nothing(_number: int, _frame: object) -> None:
    """A handler, not SIG_IGN: an ignored signal would be inherited by the executor."""
