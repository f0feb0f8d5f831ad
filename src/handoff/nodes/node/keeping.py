"""The node's side of its keeper: starting it, finding it again, asking it for commands.

Everything that a command wrote is read from the keeper's files; the socket carries orders,
counts and results only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from handoff.errors import (
    Failed,
    LaunchFailed,
    OutcomeUnknown,
    StorageError,
    StorageFull,
    UsageError,
)
from handoff.link.files import locked
from handoff.nodes.node import keeper as program
from handoff.nodes.node.held import mark
from handoff.nodes.node.keeper_files import INFO, read_ends
from handoff.nodes.node.lines import JsonLines
from handoff.nodes.node.spill import read_spill
from handoff.process import sweeping

__all__ = ["Keep", "Order", "Running"]

#: seconds for a keeper to start on a busy machine
START_S = 20.0
#: bytes of one line from the keeper
LINE = 16 << 20
#: in the folder of a command that a killed keeper left, once it was ended
SWEPT = "swept"
STREAMS = ("out", "err")


class Order(NamedTuple):
    """A command to start. ``name``: of its folder, new with every call. ``stdin``: whether
    input follows. ``capacity``: bytes of each stream that are kept. ``leave``: what it
    leaves running is not ended. ``user``: uid, gid and groups to become, or None. ``meta``:
    what its state repeats. ``upto``: see :meth:`Keep.pace`, from the start."""

    name: str
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    stdin: bool = False
    timeout_ms: int = 0
    grace_ms: int = 2000
    capacity: int = 64 << 20
    leave: bool = False
    umask: int = 0o022
    user: tuple[int, int, list[int]] | None = None
    meta: Mapping[str, Any] | None = None
    program: str = ""  # the file to start; "": what ``argv`` names
    control: bool = False
    upto: int = -1


@dataclass(slots=True, eq=False)
class Running:
    """A command that was started, or found again. ``state``: the keeper's last word of it."""

    name: str
    folder: str
    state: dict[str, Any]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    #: how many follow its output, so that it may not run far ahead of them
    followers: int = 0
    #: the last one was lost; until this is over it may come back
    letting_go: asyncio.Task[None] | None = None

    @property
    def done(self) -> bool:
        """Whether its result is known."""
        return bool(self.state.get("done"))

    def total(self, stream: str) -> int:
        """Bytes that it wrote so far; stream: ``out``, ``err`` or ``ctl``."""
        return int(self.state.get(stream, 0))

    def read(self, stream: str, offset: int, count: int) -> tuple[int, bytes]:
        """Kept output from ``offset``, or from the next byte that was kept: (offset, bytes).

        Raises:
            StorageError: the file can't be read.
        """
        path = os.path.join(self.folder, stream)
        try:
            piece = read_spill(path, int(self.state["capacity"]), self.total(stream), offset, count)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}", remedy=f"ls -l {path}") from error
        return piece.offset, piece.data

    async def wait(self, seconds: float | None = None) -> bool:
        """Until something has changed since the last call. False if the time was up."""
        try:
            # not wait_for, which before Python 3.12 makes a task of it
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        except TimeoutError:
            return False
        self.changed.clear()
        return True

    def told(self, state: Mapping[str, Any]) -> None:
        """Something of it. A reply may be taken after what the keeper told later: an end is
        the last word."""
        if not self.done or state.get("done"):
            self.state.update(state)
        self.changed.set()


class Keep:
    """A connection to the keeper of a folder.

    Raises (every request):
        OutcomeUnknown: the keeper went away before it answered.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.running: dict[str, Running] = {}
        self.lost = asyncio.Event()
        """Set when the keeper is gone; a new :class:`Keep` is needed then."""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._lines: JsonLines | None = None

    @classmethod
    async def open(cls, folder: str) -> Keep:
        """Connect to the folder's keeper, which is started if there is none.

        Raises:
            LaunchFailed, StorageError: it can't be started.
        """
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise _no_room(error.errno, folder) from error
        until = time.monotonic() + START_S
        while True:
            keep = cls(folder)
            # one that lives makes its socket's name anew in a moment: to start another, which
            # ends at once, would only take time from it
            if not await keep._connect() and not locked(os.path.join(folder, INFO)):
                await keep._sweep()
                await keep._start()
            try:
                if keep._lines is not None or await keep._connect():
                    await keep._learn()
                    return keep
            except OutcomeUnknown:  # it was just dying
                await keep.close()
            # another's may be a moment behind
            if time.monotonic() > until:
                raise LaunchFailed("the keeper does not answer", remedy="hermes-node doctor")
            await asyncio.sleep(0.01)

    @classmethod
    async def attach(cls, folder: str) -> Keep | None:
        """Connect to the folder's keeper; None if there is none."""
        keep = cls(folder)
        try:
            if not await keep._connect():
                return None
            await keep._learn()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OutcomeUnknown:  # it was just ending
            await keep.close()
            return None
        return keep

    async def start(self, order: Order) -> Running:
        """Start a command.

        Raises:
            UsageError: there is no such program or folder; details hold ``code`` (126 or
                127, as a shell would say).
            StorageFull, StorageError: its folder can't be made. Nothing was started.
            OutcomeUnknown: a command of that name was started before, or may have been.
        """
        told = order._asdict()
        told["stdin"] = "open" if order.stdin else "null"
        told["argv"], told["env"] = list(order.argv), dict(order.env)
        made = Running(
            order.name, os.path.join(self.folder, order.name), {"capacity": order.capacity}
        )
        self.running[order.name] = made  # its end may be told before the answer is read
        try:
            reply = await self._ask({"start": told})
        except BaseException:
            self.running.pop(order.name, None)
            raise
        if "pid" in reply:
            made.state.setdefault("pid", reply["pid"])
            return made
        del self.running[order.name]
        if "refused" in reply:
            code, reason = reply["refused"]
            raise UsageError(reason, remedy="look at the command and its folder", code=code)
        if "failed" in reply:
            raise _no_room(reply["failed"], made.folder)
        if "known" in reply:
            raise OutcomeUnknown(f"{order.name} was started before", remedy="look at its result")
        raise Failed(f"the keeper refused: {reply.get('bad', reply)}")

    async def give(self, running: Running, offset: int, data: bytes, *, last: bool) -> int:
        """Input for a command. offset: of ``data`` in its whole input. Returns how much was
        taken so far; waits while the command does not read.

        Raises:
            UsageError: bytes before the offset are missing, or nobody reads any more.
        """
        encoded = base64.b64encode(data).decode()
        order = {"name": running.name, "offset": offset, "b64": encoded, "last": last}
        pause = 0.002
        while True:
            reply = await self._ask({"input": order})
            if "taken" in reply:
                # told here too: who asks after a lost link goes by it, and the keeper tells of
                # input only beside what the command writes
                running.state["taken"] = int(reply["taken"])
                return int(reply["taken"])
            if reply.get("refused") != "busy":
                why = reply.get("refused", "gone")
                raise UsageError(f"the command takes no input: {why}", reason=why)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.1)

    async def end(self, running: Running, why: str, grace_ms: int) -> None:
        """TERM, grace, KILL to everything of it; the result tells when it is over."""
        await self._ask({"end": {"name": running.name, "why": why, "grace_ms": grace_ms}})

    async def pace(self, running: Running, out: int, err: int) -> None:
        """Let it write so many bytes of each stream and then wait; -1 lets it write on."""
        await self._ask({"pace": {"name": running.name, "out": out, "err": err}})

    async def refresh(self, running: Running) -> None:
        """Learn where it stands now."""
        await self._ask({"state": {"name": running.name}})

    async def drain(self, running: Running) -> None:
        """Everything that it has written until now is counted after this."""
        await self._ask({"drain": {"name": running.name}})

    async def signal(self, running: Running, number: int) -> bool:
        """A signal to the command's own process. False: it is gone."""
        reply = await self._ask({"signal": {"name": running.name, "signal": number}})
        return bool(reply.get("ok"))

    async def forget(self, running: Running) -> bool:
        """Drop a finished command and its output. False: it is not finished."""
        reply = await self._ask({"forget": {"name": running.name}})
        if "busy" in reply:
            return False
        self.running.pop(running.name, None)
        return True

    async def stop(self) -> None:
        """End everything, and the keeper."""
        with contextlib.suppress(OutcomeUnknown):
            await self._ask({"stop": {}})
        await self.lost.wait()

    async def close(self) -> None:
        """Leave the keeper alone with what runs."""
        if self._lines is not None:
            self._lines.close()
            self._gone()
            await asyncio.sleep(0)

    async def _connect(self) -> bool:
        # the address is short whatever the folder is called
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            place = f"/proc/self/fd/{fd}" if sys.platform == "linux" else self.folder
            try:
                _, self._lines = await asyncio.get_running_loop().create_unix_connection(
                    lambda: JsonLines(self._heard, self._gone, LINE),
                    os.path.join(place, program.SOCKET),
                )
            except OSError:
                return False
        finally:
            os.close(fd)
        return True

    async def _start(self) -> None:
        source = pathlib.Path(program.__file__)
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", str(source), self.folder),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
        )
        assert child.stdout is not None
        try:
            # to its end, which comes as soon as the keeper is at work: the pipe is let go of
            line = await asyncio.wait_for(child.stdout.read(), START_S)
        except TimeoutError as error:
            raise LaunchFailed("the keeper did not start", remedy="hermes-node doctor") from error
        finally:
            await child.wait()  # it is a parent for a moment only
        said = json.loads(line) if line else {}
        if "failed" in said:
            raise _no_room(said["failed"], self.folder)
        if not said:
            raise LaunchFailed("the keeper broke as it started", remedy="hermes-node doctor")

    async def _sweep(self) -> None:
        """End what a keeper that was killed left running: nobody holds it any more. A keeper
        that lives, and can't be reached at this moment, still holds its own."""
        if locked(os.path.join(self.folder, INFO)):
            return
        try:
            ended = read_ends(self.folder)
        except OSError as error:
            raise _no_room(error.errno, self.folder) from error
        for name in os.listdir(self.folder):
            inner = os.path.join(self.folder, name)
            if name in ended or name.startswith(".") or not os.path.isdir(inner):
                continue
            if not os.path.exists(os.path.join(inner, SWEPT)):
                await asyncio.to_thread(
                    sweeping.end_all, sweeping.Quarry(mark(self.folder, name), None), 1.0
                )
                _swept(inner)

    async def _learn(self) -> None:
        """What it holds already."""
        after, more = "", True
        while more:
            page = await self._ask({"list": {"after": after}})
            states = page.get("states", [])
            for state in states:
                after = name = state["name"]
                found = self.running.setdefault(
                    name, Running(name, os.path.join(self.folder, name), {})
                )
                found.told(state)
            more = bool(states) and page.get("more") is True

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._lines is None or self.lost.is_set():
            raise _gone()
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._lines.send({"id": number, **request})
        try:
            await self._lines.room()
            return await answer
        finally:
            self._waiting.pop(number, None)

    def _gone(self) -> None:
        self.lost.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_gone())
        for running in self.running.values():
            running.changed.set()

    def _heard(self, message: dict[str, Any]) -> None:
        if "state" in message:  # at once, before what the keeper tells next
            running = self.running.get(message["state"]["name"])
            if running is not None:
                running.told(message["state"])
        if "id" in message:
            answer = self._waiting.get(message["id"])
            if answer is not None and not answer.done():
                answer.set_result(message)
        elif "grew" in message:
            running = self.running.get(message["grew"])
            if running is not None and not running.done:
                running.told({name: message[name] for name in ("out", "err", "ctl")})
        elif "ended" in message:
            running = self.running.get(message["ended"]["name"])
            if running is not None:
                running.told(message["ended"])


def _swept(folder: str) -> None:
    """Nothing of that command lives. Its folder stays, so that it starts never again; its
    output, which nobody can ask for any more, goes."""
    with contextlib.suppress(OSError):
        os.close(os.open(os.path.join(folder, SWEPT), os.O_WRONLY | os.O_CREAT, 0o600))
        for name in (*STREAMS, "ctl"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))


def _gone() -> OutcomeUnknown:
    return OutcomeUnknown("the node's keeper went away", remedy="hermes-node doctor")


def _no_room(code: str | int | None, path: str) -> Failed:
    import errno

    name = errno.errorcode.get(code, "EIO") if isinstance(code, int) else str(code)
    number = getattr(errno, name, errno.EIO)
    says = os.strerror(number)
    if number in {errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}:
        return LaunchFailed(
            f"the node has no room for another command: {says}; nothing was started",
            remedy="ask again when fewer run there: handoff nodes jobs",
        )
    if number in {errno.ENOSPC, errno.EDQUOT}:
        return StorageFull(f"{path}: {says}; nothing was started", remedy="df -h -i", path=path)
    return StorageError(f"{path}: {says}; nothing was started", remedy=f"ls -ld {path}", path=path)
