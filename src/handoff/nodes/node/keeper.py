"""The keeper: ``python -I -S keeper.py DIR``, the small process that holds a node's commands.

It outlives the node's own process: commands go on, and their output and results are found
by the next one. It is the subreaper of everything that they start. One thread, one
``poll``. In DIR, which only its user can read:

``s``              the Unix socket, for the node's user alone
``keeper.json``    pid, start stamp, boot; locked while the keeper lives
``<name>/``        one folder a call: ``out``, ``err``
``ends.jsonl``     how they ended: see :mod:`handoff.nodes.node.keeper_files`

Requests, one JSON object a line, each with an ``id`` that its reply repeats:

``start {name, argv, cwd, env, stdin, timeout_ms, grace_ms, capacity, leave, umask, user, meta,
upto, control}``
    ``name``: the folder; making it is what says that this call starts now, and never again.
    ``stdin``: ``null`` (its end at once) or ``open``. ``capacity``: bytes kept of each
    stream. ``leave``: what it leaves running stays. ``meta``: repeated with the state.
    ``upto``: as ``pace`` has it, from the start. ``control``: what it writes to descriptor 3
    is kept as ``ctl``. Reply: ``pid``, or ``refused`` with a shell's code and a reason, or ``failed`` with an errno (nothing was started), or
    ``known`` (a folder of that name exists).
``input {name, offset, b64, last}``      reply: ``taken``, or ``refused``
``pace {name, out, err}``                bytes of each stream to take and no more, -1 for all of
    them, as it is while no node is connected; reply: ``state``
``end {name, why, grace_ms}``            TERM, grace, KILL to the whole tree; reply: ``ok``
``signal {name, signal}``                to the command's own process; reply: ``ok``
``state {name}``                         reply: ``state``
``list {after}``                         reply: ``states``, ordered by name, a page of them
    from the name after that one; ``more`` if it is not the last
``drain {name}``                         take what stands in its pipes; reply: ``state``
``forget {name}``                        a finished call's folder goes; reply: ``ok``
``stop {}``                              ends everything, then the keeper

What is started has a ``cwd`` without links, and, where it is not to be looked up, its file
as ``program``.

Pushed: ``{"grew": name, "out": n, "err": n, "ctl": n}`` as output comes, ``{"ended": state}``.

Standard library only; its modules are found by path, as the shim's are.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from handoff.nodes.node.held import Held
    from handoff.process.door import Link

SOCKET = "s"
#: seconds that a keeper with nothing to keep waits for a node
IDLE_S = 60.0
#: seconds at most between looks at its own socket's name
WATCH_S = 5.0
#: commands of one page of the list
PAGE = 200
#: seconds that the word of a start waits for the word of its end, which most often comes at
#: once: to be woken twice costs the node more than a short command
TOGETHER_S = 0.002
FAILED = 4


def _find_siblings() -> None:
    """Make what the keeper needs importable without running the packages' own code."""
    here = os.path.dirname(os.path.abspath(__file__))
    above = os.path.dirname(os.path.dirname(here))
    for name, folder in (
        ("handoff", above),
        ("handoff.process", os.path.join(above, "process")),
        ("handoff.nodes", os.path.dirname(here)),
        ("handoff.nodes.node", here),
    ):
        package = type(sys)(name)
        package.__path__ = [folder]
        sys.modules[name] = package


class Keeper:
    """The loop. Everything in the current folder."""

    def __init__(self, boot: str) -> None:
        import select
        import signal
        import time

        from handoff.nodes.node.keeper_files import Ends, Folders, read_ends
        from handoff.process.door import Door

        self._boot = boot
        self._clock = time.monotonic
        self._door = Door(SOCKET)
        self._poll = select.poll()
        self._in = select.POLLIN | select.POLLHUP | select.POLLERR
        self._out = select.POLLOUT
        self._links: dict[int, Link] = {}
        self._held: dict[str, Held] = {}
        #: those of them that are not over: a thousand finished ones must slow nobody down
        self._live: dict[str, Held] = {}
        self._ends = Ends()
        self._folders = Folders()
        #: the results that keepers before this one wrote down
        self._past = read_ends(".")
        self._by_pid: dict[int, Held] = {}
        self._by_fd: dict[int, Held] = {}
        self._told: dict[str, tuple[int, int, int]] = {}
        self._watched: dict[int, int] = {}
        self._stopping = False
        #: when what was left unsent goes out at the latest, 0 if nothing was
        self._due = 0.0
        self._idle_since = self._clock()
        woken, self._wake = (
            os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else os.pipe()
        )
        for fd in (woken, self._wake):
            os.set_blocking(fd, False)
        self._woken = woken
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        for number in (signal.SIGHUP, signal.SIGINT):  # SIG_IGN would be inherited
            signal.signal(number, lambda *_: None)

    def run(self) -> None:
        """Until nothing is left to keep."""
        while not self._over():
            self._watch()
            for fd, _ in self._poll.poll(self._pause()):
                self._ready(fd)
            self._reap()
            now = self._clock()
            for held in list(self._live.values()):
                self._tick(held, now)
            self._tell()
            self._send_late(now)
            if self._door.lost():
                self._door.reopen()

    def _over(self) -> bool:
        busy = bool(self._live)
        if busy or self._links:
            self._idle_since = self._clock()
        if self._stopping:
            return not busy and not self._strays()
        return self._clock() - self._idle_since > IDLE_S

    def _pause(self) -> float:
        now = self._clock()
        times = [held.next_time() for held in self._live.values()]
        times.append(self._due or None)
        soon = 0.02 if self._stopping else WATCH_S
        due = min((one for one in times if one is not None), default=now + soon)
        return max(0.0, min(due - now, WATCH_S)) * 1000 + 1

    def _watch(self) -> None:
        """Tell poll what we wait for now."""
        wanted = {self._door.fd: self._in, self._woken: self._in}
        for fd, link in self._links.items():
            wanted[fd] = self._in | (self._out if link.outbox and not self._due else 0)
        for held in self._by_pid.values():
            for fd in held.pipes:
                self._by_fd[fd] = held
                if held.reads(fd):
                    wanted[fd] = self._in
            if held.wants_input >= 0:
                wanted[held.wants_input] = self._out
                self._by_fd[held.wants_input] = held
        for fd in self._watched.keys() - wanted.keys():
            self._poll.unregister(fd)
        for fd, events in wanted.items():
            if self._watched.get(fd) != events:
                self._poll.register(fd, events)
        self._watched = wanted

    def _ready(self, fd: int) -> None:
        if fd == self._woken:
            try:
                while os.read(fd, 512):
                    pass
            except BlockingIOError:
                pass
        elif fd == self._door.fd:
            link, _ = self._door.accept()
            if link is not None:
                self._links[link.fd] = link
                link.say({"hello": {"boot": self._boot, "pid": os.getpid()}})
        elif fd in self._links:
            link = self._links[fd]
            link.flush()
            for request in link.receive():
                self._answer(link, request)
            if link.closed:
                del self._links[fd]
                self._forget_fd(fd)
                for held in () if self._links else self._by_pid.values():
                    held.pace(-1, -1)  # nobody listens who could fall behind
        elif fd in self._by_fd:
            held = self._by_fd[fd]
            if fd in held.pipes:
                held.read(fd)
                if fd not in held.pipes:
                    self._forget_fd(fd)
            else:
                held.push()
                if held.wants_input != fd:
                    self._forget_fd(fd)

    def _forget_fd(self, fd: int) -> None:
        self._by_fd.pop(fd, None)
        # closed, and so out of poll's sight; the number may be used again
        if self._watched.pop(fd, None) is not None:
            try:
                self._poll.unregister(fd)
            except KeyError:
                pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            held = self._by_pid.get(pid)
            if held is not None and held.exit is None:
                held.exited(status, self._clock())

    def _tick(self, held: Held, now: float) -> None:
        before, fds = held.done, set(held.pipes)
        held.tick(now)
        for fd in fds - held.pipes.keys():
            self._forget_fd(fd)
        if held.done and not before:
            # told first: whoever asks waits, and the folder alone keeps a second start away
            self._say({"ended": held.state()})
            self._ends.add(held.state())
            self._folders.prepare()
        if held.swept:
            self._by_pid.pop(held.child.pid, None)
            self._live.pop(held.name, None)

    def _tell(self) -> None:
        for held in self._by_pid.values():
            now = (held.out.total, held.err.total, held.ctl.total)
            if self._told.get(held.name) != now and not held.done:
                self._told[held.name] = now
                self._say({"grew": held.name, "out": now[0], "err": now[1], "ctl": now[2]})

    def _send_late(self, now: float) -> None:
        if self._due and now >= self._due:
            self._due = 0.0
            for link in self._links.values():
                link.flush()

    def _say(self, message: dict[str, Any]) -> None:
        for link in self._links.values():
            link.say(message)

    def _stop(self) -> None:
        self._stopping = True
        for held in self._held.values():
            held.end("shutdown", self._clock(), last=True)
            if not held.swept:
                self._live[held.name] = held

    def _strays(self) -> bool:
        """Kill what no command owns to: it is below us, so a command started it."""
        import signal

        from handoff.process import facts
        from handoff.process.signalling import send_signal

        found = [one for one in facts.descendants(os.getpid()) if one.state not in "ZX"]
        for one in found:
            send_signal(one.pid, one.started, signal.SIGKILL)
        return bool(found)

    def _answer(self, link: Link, request: dict[str, Any]) -> None:
        number = request.get("id")
        try:
            reply = self._do(request)
        # a request that can't be met must not end what others run
        except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
            reply = {"bad": f"{type(error).__name__}: {error}"}
        # a start that waits for input must be known before there can be any
        late = "pid" in reply and request["start"].get("stdin") != "open"
        if late and not self._due:
            self._due = self._clock() + TOGETHER_S
        link.say({"id": number, **reply}, now=not late)

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        from binascii import a2b_base64

        if "start" in request:
            return self._start(request["start"])
        if "list" in request:
            return self._list(str(request["list"].get("after", "")))
        if "stop" in request:
            self._stop()
            return {"ok": True}
        for verb in ("input", "pace", "end", "signal", "drain", "state", "forget"):
            if verb not in request:
                continue
            order = request[verb]
            held = self._held.get(order["name"])
            if held is None and order["name"] in self._past:
                if verb in {"state", "drain", "pace"}:
                    return {"state": self._past[order["name"]]}
                if verb == "forget":
                    self._folders.drop(order["name"])
                    del self._past[order["name"]]
                    self._tidy()
                return {"ok": True}
            if held is None:
                return {"unknown": order["name"]}
            if verb == "drain":
                before = set(held.pipes)
                held.drain()
                for fd in before - held.pipes.keys():
                    self._forget_fd(fd)
            if verb == "pace":
                held.pace(order["out"], order["err"])
            if verb in {"state", "drain", "pace"}:
                return {"state": held.state()}
            if verb == "end":
                held.end(str(order["why"]), self._clock(), order.get("grace_ms", 3000) / 1000)
                return {"ok": True}
            if verb == "signal":
                return {"ok": held.signal(int(order["signal"]))}
            if verb == "forget":
                return self._forget(held)
            data = a2b_base64(order.get("b64", ""))
            why = held.offer(int(order["offset"]), data, last=bool(order.get("last")))
            return {"refused": why} if why else {"taken": held.taken}
        raise ValueError("no such request")

    def _list(self, after: str) -> dict[str, Any]:
        names = sorted(name for name in {*self._held, *self._past} if name > after)
        page = [
            self._held[name].state() if name in self._held else self._past[name]
            for name in names[:PAGE]
        ]
        return {"states": page, "more": len(names) > PAGE}

    def _start(self, order: dict[str, Any]) -> dict[str, Any]:
        from handoff.nodes.node.held import Held, mark
        from handoff.process.spawn import Refused, launch

        name = order["name"]
        if not isinstance(name, str) or "/" in name or name.startswith("."):
            raise ValueError("no name of a folder")
        if self._stopping:
            return {"failed": "ESHUTDOWN"}
        import errno

        try:
            if name in self._ends.names and name not in self._held and name not in self._past:
                self._tidy(now=True)  # it was forgotten: its line must not speak for this one
            if not self._folders.make(name):
                return {"known": name}
        except OSError as error:
            return {"failed": errno.errorcode.get(error.errno or 0, "EIO")}
        env = {**order["env"], "HANDOFF_RUN": mark(".", name)}
        user = order.get("user")
        try:
            child = launch(
                order["argv"],
                order["cwd"],
                env,
                order["umask"],
                identity=(user[0], user[1], user[2]) if user else None,
                control=bool(order.get("control")),
                exact=True,
                program=order.get("program", ""),
                bound=False,
            )
        except OSError as error:  # no pipe or process to be had
            self._folders.undo(name)
            return {"failed": errno.errorcode.get(error.errno or 0, "EIO")}
        if isinstance(child, Refused):
            self._folders.undo(name)
            return {"refused": [child.code, child.reason]}
        held = Held(name, os.path.join(os.getcwd(), name), order, child, self._clock())
        self._held[name] = self._live[name] = held
        self._by_pid[child.pid] = held
        held.push()
        return {"pid": child.pid}

    def _forget(self, held: Held) -> dict[str, Any]:
        if not held.swept:
            return {"busy": held.name}
        self._folders.drop(held.name)
        del self._held[held.name]
        self._told.pop(held.name, None)
        self._tidy()
        return {"ok": True}

    def _tidy(self, *, now: bool = False) -> None:
        """Write the ends anew once most of them are of commands that were forgotten."""
        if now or self._ends.stale(len(self._held) + len(self._past)):
            ended = [held.state() for held in self._held.values() if held.done]
            self._ends.keep([*self._past.values(), *ended])


def main() -> int:
    """Run one keeper. Returns the exit code. One line on standard output says how it began:
    ``pid``, ``taken`` (there is a keeper already) or ``failed`` with an errno."""
    os.closerange(3, 1024)
    os.chdir(sys.argv[1])
    if os.fork():
        os._exit(0)  # nobody's child, so that nobody has to collect it
    os.setsid()
    os.umask(0o077)
    from handoff.nodes.node.keeper_files import claim
    from handoff.process import facts, spawn

    try:
        lock = claim()
        if lock is None:
            os.write(1, b'{"taken": true}\n')
            return 0
        if os.path.lexists(SOCKET):
            os.unlink(SOCKET)
        keeper = Keeper(facts.boot_id())
    except OSError as error:
        os.write(1, json.dumps({"failed": error.errno or 0}).encode() + b"\n")
        return FAILED
    spawn.become_subreaper("handoff-keeper")
    os.write(1, json.dumps({"pid": os.getpid()}).encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    keeper.run()
    return 0


if __name__ == "__main__":
    _find_siblings()
    sys.exit(main())
