"""Running commands for a brain: what is started, what is told meanwhile, what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pwd
import time
from collections.abc import Callable, Mapping
from typing import Any

from handoff.errors import (
    BadRequest,
    FileMissing,
    HandoffError,
    NotARegularFile,
    OutcomeUnknown,
    PathNotAllowed,
    UnknownCall,
    UsageError,
)
from handoff.nodes.node import commands, paths
from handoff.nodes.node.keeping import Keep, Order, Running
from handoff.nodes.node.policy import Policy
from handoff.nodes.node.retention import kept, surplus
from handoff.nodes.node.streams import Streams
from handoff.nodes.node.telling import AHEAD, CAPACITY, INNER, Telling, kept_range
from handoff.nodes.told import shown
from handoff.wire.node.calls import (
    HEAD_BYTES,
    TAIL_BYTES,
    CallFailed,
    Exec,
    ExecResult,
    JobInfo,
    Jobs,
    Output,
    Range,
    to_json,
)

__all__ = ["Execs", "folder_name"]

#: bytes of input that are handed on at a time
PIECE = 128 * 1024
_INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
#: commands after which what is kept is looked through, besides now and then
CLEAN_STARTS = 50


def folder_name(key: str) -> str:
    """What the keeper calls the call of that key."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


class Execs:
    """The commands of a node.

    keep: how to reach the keeper, started anew if it is gone. environ: the node's own
    environment, of which commands see a few variables.
    """

    def __init__(
        self,
        keep: Callable[[], Any],
        policy: Callable[[], Policy],
        home: str,
        environ: Mapping[str, str],
    ) -> None:
        self._keep = keep
        self._policy = policy
        self._home = home
        self._environ = environ
        self._started = 0
        self._cleaning: asyncio.Task[None] | None = None

    def order(self, key: str, call: Exec, now_ms: int) -> Order:
        """What will be started.

        Raises:
            FileMissing, NotARegularFile: the folder to start in is none.
            PathNotAllowed: the policy keeps commands from starting there.
            BadRequest: the user to run as does not exist.
        """
        policy = self._policy()
        place = paths.locate(call.cwd or "~", self._home)
        if not os.path.isdir(place.real):
            if not os.path.lexists(place.real):
                raise FileMissing(f"the folder {place.shown} does not exist", remedy="give another")
            raise NotARegularFile(f"{place.shown} is no folder", remedy="give another")
        ruled = policy.may_start_in(place.real)
        if not ruled.allowed:
            raise PathNotAllowed(
                f"commands may not start in {place.shown}: {ruled.reason}",
                remedy="hermes-node policy",
                path=place.shown,
                rule=ruled.rule,
            )
        env = {name: self._environ[name] for name in _INHERITED if name in self._environ}
        env["PATH"] = commands.fixed_path(env.get("PATH", ""))
        user = None
        if policy.run_as:
            user = _user(policy.run_as, env)
        env |= {"HOME": env.get("HOME", self._home), "TERM": "dumb", "SHELL": shell()}
        env |= {"PWD": place.real, **call.env}
        argv, program = call.argv or (shell(), "-c", call.command), ""
        if not call.shell and policy.may_run(call.argv or call.command, call.env).named:
            words = call.argv or commands.plain(call.command) or ()
            program = commands.find_program(words[0], env["PATH"]) if words else ""
            argv = tuple(words) if program else argv
        return Order(
            name=folder_name(key),
            argv=argv,
            cwd=place.real,
            env=env,
            stdin=call.stdin != "none",
            timeout_ms=call.timeout_ms,
            grace_ms=call.grace_ms,
            capacity=CAPACITY,
            upto=AHEAD if call.stream else -1,
            user=user,
            meta={"key": key, "command": shown(call), "started_ms": now_ms, "job": call.job},
            program=program,
        )

    async def start(self, key: str, call: Exec, now_ms: int) -> Running:
        """Start a command. Raises as :meth:`order` and :meth:`Keep.start`."""
        order = self.order(key, call, now_ms)
        keep: Keep = await self._keep()
        self._started += 1
        if not self._started % CLEAN_STARTS and (self._cleaning is None or self._cleaning.done()):
            self._cleaning = asyncio.create_task(self._clean(now_ms))
        running = await keep.start(order)
        running.state["meta"] = dict(order.meta or {})
        if call.stdin == "given":
            await self._give(keep, running, 0, call.stdin_data, last=True)
        return running

    async def follow(
        self,
        running: Running,
        call: Exec,
        streams: Streams,
        offsets: Mapping[str, int] | None = None,
    ) -> ExecResult:
        """Feed it and tell of it until it ends. offsets: what of each stream was told before.

        Raises:
            OutcomeUnknown: the keeper died meanwhile.
        """
        feeding = None
        if call.stdin == "stream":
            feeding = asyncio.create_task(self._feed(running, streams))
        sent = {name: (offsets or {}).get(name, 0) for name in INNER}
        telling = Telling(running, streams, sent, self._keep)
        listening = call.stream
        try:
            if listening:
                await telling.begin(fresh=offsets is None)
            while True:
                over = running.done  # only then all that is to be told is there
                if listening and not (listening := await telling.more()):
                    await telling.end(lost=True)
                if over:
                    break
                if not running.done:
                    await running.wait(5.0)
                    await self._alive(running)
        finally:
            if listening:
                await telling.end()
            if feeding is not None:
                feeding.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await feeding
        told = call.stream and listening
        whole = {name: told and telling.told(name) for name in sent}
        return result(running, call.head_bytes, call.tail_bytes, whole)

    async def ended(
        self, running: Running, args: Mapping[str, Any]
    ) -> tuple[bool, ExecResult | CallFailed]:
        """The answer to a command of an earlier process, once it has ended. args: its call's."""
        try:
            while not running.done:
                await running.wait(5.0)
                await self._alive(running)
        except HandoffError as error:
            return False, CallFailed.of(error)
        head, tail = args.get("head_bytes", HEAD_BYTES), args.get("tail_bytes", TAIL_BYTES)
        return True, result(running, int(head), int(tail))

    async def cancel(self, key: str, why: str, grace_ms: int = 2000) -> bool:
        """End a running command. False: it does not run."""
        keep: Keep = await self._keep()
        running = keep.running.get(folder_name(key))
        if running is None or running.done:
            return False
        await keep.end(running, why, grace_ms)
        return True

    async def signal(self, key: str, number: int) -> bool:
        """A signal to the command itself. False: it does not run."""
        keep: Keep = await self._keep()
        running = keep.running.get(folder_name(key))
        return running is not None and not running.done and await keep.signal(running, number)

    async def found(self, key: str) -> Running | None:
        """A command that runs, or whose output is still kept."""
        keep: Keep = await self._keep()
        return keep.running.get(folder_name(key))

    async def output(self, spill: str, offset: int, length: int) -> Range:
        """Kept output by its id.

        Raises:
            UnknownCall: it is not kept any more.
            BadRequest: no such id.
        """
        name, _, stream = spill.partition(".")
        if stream not in {"out", "err"}:
            raise BadRequest(f"'{spill}' is no id of an output", field="spill")
        keep: Keep = await self._keep()
        running = keep.running.get(name)
        if running is None:
            raise UnknownCall("that output is not kept any more", remedy="run it again")
        return await kept_range(self._keep, running, stream, offset, length)

    async def tail(self, job: str, stream: str, offset: int, length: int) -> Range:
        """A piece of a job's output. Raises UnknownCall."""
        return await kept_range(
            self._keep, await self.running_job(job), INNER[stream], offset, length
        )

    async def jobs(self) -> Jobs:
        """All jobs, the newest first."""
        keep: Keep = await self._keep()
        found = [info(one) for one in keep.running.values() if _meta(one).get("job")]
        return Jobs(tuple(sorted(found, key=lambda one: one.started_ms, reverse=True)))

    async def running_job(self, job: str) -> Running:
        """A job that is known. Raises UnknownCall."""
        found = await self.found(job)
        if found is None or not _meta(found).get("job"):
            raise UnknownCall(f"there is no job {job}", remedy="list the jobs", key=job)
        return found

    async def wait_job(self, job: str, timeout_ms: int) -> JobInfo:
        """A job's state when it is done, or when the time is up. Raises UnknownCall."""
        running = await self.running_job(job)
        until = time.monotonic() + timeout_ms / 1000
        while not running.done and (left := until - time.monotonic()) > 0:
            await running.wait(min(left, 5.0))
            await self._alive(running)
        return info(running)

    async def forget(self, job: str) -> bool:
        """Drop a finished job. False: it still runs. Raises UnknownCall."""
        running = await self.running_job(job)
        keep: Keep = await self._keep()
        return await keep.forget(running)

    async def clean(self, now_ms: int) -> None:
        """Forget finished commands that are too many, too old or too large together."""
        keep: Keep = await self._keep()
        for name in surplus(kept(keep.running.values()), now_ms):
            found = keep.running.get(name)
            if found is not None:
                await keep.forget(found)

    async def _clean(self, now_ms: int) -> None:
        with contextlib.suppress(HandoffError):  # the keeper is gone, and what it kept is known
            await self.clean(now_ms)

    async def close(self) -> None:
        """Let go."""
        if self._cleaning is not None:
            self._cleaning.cancel()
            await asyncio.gather(self._cleaning, return_exceptions=True)

    async def _alive(self, running: Running) -> None:
        """Raise OutcomeUnknown if the keeper that held the command is gone."""
        if running.done:
            return
        keep: Keep = await self._keep()
        if keep.running.get(running.name) is not running:
            raise OutcomeUnknown(
                "the process that held the command died; it was ended with it",
                remedy="look at what the command has done before you run it again",
            )

    async def _feed(self, running: Running, streams: Streams) -> None:
        offset = int(running.state.get("taken", 0))
        while not running.done:
            try:
                data = await streams.receive()
            except ConnectionError:  # the rest may come with a new link
                return
            keep: Keep = await self._keep()
            await self._give(keep, running, offset, data, last=not data)
            offset += len(data)
            if not data:
                return

    @staticmethod
    async def _give(keep: Keep, running: Running, offset: int, data: bytes, *, last: bool) -> None:
        """Input; a command that does not read it is no error."""
        with contextlib.suppress(OutcomeUnknown):
            for at in range(0, max(len(data), 1), PIECE):
                part = data[at : at + PIECE]
                end = last and at + PIECE >= len(data)
                try:
                    await keep.give(running, offset + at, part, last=end)
                except UsageError:
                    return


def _meta(running: Running) -> Mapping[str, Any]:
    found = running.state.get("meta")
    return found if isinstance(found, Mapping) else {}


def info(running: Running) -> JobInfo:
    """A job as others see it."""
    meta = _meta(running)
    return JobInfo(
        job=meta.get("key", ""),
        state="done" if running.done else "running",
        command=meta.get("command", ""),
        started_ms=meta.get("started_ms", 0),
        pid=int(running.state.get("pid", 0)),
        stdout_bytes=running.total("out"),
        stderr_bytes=running.total("err"),
        result=to_json(result(running)) if running.done else {},
    )


def result(
    running: Running, head: int = 0, tail: int = 0, streamed: Mapping[str, bool] | None = None
) -> ExecResult:
    """What came of a command that has ended."""
    state = running.state
    code, number = state.get("exit_code"), state.get("signal")
    why = state.get("ended_by") or ("exit" if number is None else "signal")
    status = {"timeout": "timeout", "cancel": "cancelled", "revoked": "cancelled"}.get(why)
    if why == "shutdown":
        status = "cancelled"
    if status is None:
        status = "ok" if code == 0 else "error"
    lost = int(state.get("lost", 0))
    note = f"{lost} bytes of output could not be kept: {state.get('error')}" if lost else ""
    sides = streamed or {}
    return ExecResult(
        status=status,
        exit_code=code,
        signal=number,
        stdout=_output(running, "out", head, tail, streamed=sides.get("stdout", False)),
        stderr=_output(running, "err", head, tail, streamed=sides.get("stderr", False)),
        duration_ms=int(state.get("duration_ms", 0)),
        ended_by=why,
        still_holding=bool(state.get("still_holding")),
        killed=int(state.get("left_behind", 0)),
        note=note,
    )


def _output(running: Running, name: str, head: int, tail: int, *, streamed: bool) -> Output:
    total = running.total(name)
    spill = f"{running.name}.{name}" if total else ""
    if streamed:
        return Output(bytes_total=total, spill=spill, streamed=True)
    if total <= head + tail:
        whole = _read_all(running, name, 0, total)
        return Output(bytes_total=total, head=whole, spill=spill)
    first = _read_all(running, name, 0, head)
    last = _read_all(running, name, total - tail, tail)
    return Output(total, between_signs(first, end=True), between_signs(last, end=False), spill)


def _read_all(running: Running, name: str, offset: int, count: int) -> bytes:
    parts = []
    while count > 0:
        at, data = running.read(name, offset, count)
        if not data or at != offset:
            break
        parts.append(data)
        offset, count = offset + len(data), count - len(data)
    return b"".join(parts)


def between_signs(data: bytes, *, end: bool) -> bytes:
    """Cut so that no UTF-8 character is parted; what is no UTF-8 stays as it is."""
    if end:
        for back in range(1, min(4, len(data)) + 1):
            lead = data[-back]
            if lead & 0xC0 == 0x80:
                continue
            need = 2 if lead >> 5 == 6 else 3 if lead >> 4 == 14 else 4 if lead >> 3 == 30 else 1
            return data[:-back] if need > back else data
        return data
    for at in range(min(4, len(data))):
        if data[at] & 0xC0 != 0x80:
            return data[at:]
    return data


def shell() -> str:
    """The shell that command lines are for."""
    return "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"


def _user(name: str, env: dict[str, str]) -> tuple[int, int, list[int]]:
    """The ids of the user to become, whose variables take the place of ours."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise BadRequest(
            f"the policy's run_as names '{name}', who is no user here", field="run_as"
        ) from error
    if os.geteuid() not in {0, entry.pw_uid}:
        raise BadRequest("only a node that runs as root can change users", field="run_as")
    env |= {"HOME": entry.pw_dir, "USER": name, "LOGNAME": name}
    return entry.pw_uid, entry.pw_gid, os.getgrouplist(name, entry.pw_gid)
