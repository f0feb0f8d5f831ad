"""Named shell sessions: a shell that keeps its folder, variables and functions between calls.

Only where they are asked for. The shell reads commands from its input and says on a
descriptor of its own how each ended and where it stands, so that nothing of ours is in the
command's output. Commands have no input. A command that does not end in time ends its
session with it, and the result says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from handoff.errors import BadRequest, OutcomeUnknown, UnknownCall
from handoff.nodes.node.execs import Execs, between_signs
from handoff.nodes.node.keeping import Keep, Order, Running
from handoff.nodes.node.streams import Streams
from handoff.wire.node.calls import (
    Exec,
    ExecResult,
    Output,
    ShellClose,
    ShellInfo,
    ShellOpen,
    Shells,
)

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["ShellCalls"]

#: bytes of output kept of a session's streams
CAPACITY = 64 << 20
PIECE = 128 * 1024
_LOOP = """
while IFS= read -r -d '' __handoff_n && IFS= read -r -d '' __handoff_c; do
  eval "$__handoff_c" </dev/null 3>&-
  printf '%s %s %s\\0' "$__handoff_n" "$?" "$PWD" >&3
done
"""
_NAMES = (("stdout", "out"), ("stderr", "err"))


@dataclass(slots=True)
class _Session:
    """One session. ``read``: bytes of its control stream that were looked at."""

    name: str
    running: Running
    started_ms: int
    cwd: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    read: int = 0
    fed: int = 0
    ended_by: str = ""


class ShellCalls:
    """The shell sessions of a node."""

    def __init__(self, execs: Execs, keep: Callable[[], Any], clock: Clock) -> None:
        self._execs = execs
        self._keep = keep
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        #: the sessions in which commands run now, by the keys of their calls
        self._busy: dict[str, _Session] = {}

    async def open(self, key: str, call: ShellOpen) -> ShellInfo:
        """Open a session; one of that name that is open is answered as it is.

        Raises:
            as :meth:`Execs.order` and :meth:`Keep.start`.
        """
        await self.find()
        session = self._sessions.get(call.name)
        if session is not None:
            return _info(session)
        return replace(_info(await self._start(key, call)), opened=True)

    async def find(self) -> None:
        """Take up the sessions that a node before this one had, forget those that ended."""
        keep: Keep = await self._keep()
        for name, session in list(self._sessions.items()):
            if session.running.done or keep.running.get(session.running.name) is None:
                del self._sessions[name]
        for running in keep.running.values():
            meta = running.state.get("meta") or {}
            name = meta.get("shell", "")
            if name and name not in self._sessions and not running.done:
                self._sessions[name] = _Session(
                    name,
                    running,
                    int(meta.get("started_ms", 0)),
                    str(meta.get("cwd", "")),
                    read=running.total("ctl"),
                    fed=int(running.state.get("taken", 0)),
                )

    async def close(self, call: ShellClose) -> bool:
        """End a session and everything in it. False: there is none."""
        await self.find()
        session = self._sessions.pop(call.name, None)
        if session is None:
            return False
        keep: Keep = await self._keep()
        await keep.end(session.running, "cancel", 2000)
        while not session.running.done and not keep.lost.is_set():
            await session.running.wait(1.0)
        return True

    async def list(self) -> Shells:
        """The open sessions."""
        await self.find()
        return Shells(tuple(_info(one) for _, one in sorted(self._sessions.items())))

    async def cancel(self, key: str, grace_ms: int) -> bool:
        """End a command, and the session that it runs in. False: it does not run."""
        session = self._busy.get(key)
        if session is None or session.running.done:
            return False
        keep: Keep = await self._keep()
        session.ended_by = "cancel"
        await keep.end(session.running, "cancel", grace_ms)
        return True

    async def run(self, key: str, call: Exec, streams: Streams) -> ExecResult:
        """Run a command line in a session.

        Raises:
            UnknownCall: the session is not open, or not any more.
            BadRequest: what only a command of its own can have.
        """
        if not call.command or call.stdin != "none" or call.cwd or call.env:
            raise BadRequest(
                "a command in a shell session is a line, without input, folder or variables",
                remedy="use cd and export in the session",
                field="shell",
            )
        await self.find()
        session = self._sessions.get(call.shell)
        if session is None:
            raise UnknownCall(
                f"there is no shell session '{call.shell}'; what it held is lost",
                remedy=f"open it anew: handoff nodes shells NODE open {call.shell}",
            )
        async with session.lock:
            self._busy[key] = session
            try:
                return await self._run(session, call, streams)
            finally:
                del self._busy[key]

    async def _start(self, key: str, call: ShellOpen) -> _Session:
        now = self._clock.now_ms()
        made = self._execs.order(key, Exec(command=":", cwd=call.cwd, env=call.env), now)
        bash = "/bin/bash"
        if not os.access(bash, os.X_OK):
            raise BadRequest("shell sessions need /bin/bash on the node", field="name")
        order = Order(
            made.name,
            [bash, "--noprofile", "--norc", "-c", _LOOP],
            made.cwd,
            made.env,
            stdin=True,
            capacity=CAPACITY,
            user=made.user,
            meta={"key": key, "shell": call.name, "started_ms": now, "cwd": made.cwd},
            control=True,
        )
        keep: Keep = await self._keep()
        running = await keep.start(order)
        running.state["meta"] = dict(order.meta or {})
        session = self._sessions[call.name] = _Session(call.name, running, now, made.cwd)
        return session

    async def _run(self, session: _Session, call: Exec, streams: Streams) -> ExecResult:
        keep: Keep = await self._keep()
        running = session.running
        number = self._clock.new_id()
        began = {name: running.total(inner) for name, inner in _NAMES}
        sent = dict(began)
        text = os.fsencode(f"{number}\0{call.command}\0")
        started = time.monotonic()
        await keep.give(running, session.fed, text, last=False)
        session.fed += len(text)
        until = started + call.timeout_ms / 1000
        listening, ended, why = call.stream, None, "exit"
        while ended is None:
            if listening:
                listening = await _tell(running, streams, began, sent)
            ended = _ended(session, number)
            if ended is not None or running.done:
                break
            if keep.lost.is_set():
                raise OutcomeUnknown("the process that held the shell died", remedy="look first")
            left = until - time.monotonic()
            if left <= 0 and why == "exit":
                why = "timeout"
                await keep.end(running, why, call.grace_ms)
            await running.wait(max(0.01, min(left, 5.0)))
        await keep.drain(running)
        if listening:
            listening = await _tell(running, streams, began, sent)
        return self._result(session, call, began, ended, why, started, streamed=listening)

    def _result(
        self,
        session: _Session,
        call: Exec,
        began: Mapping[str, int],
        ended: tuple[int, str] | None,
        why: str,
        started: float,
        *,
        streamed: bool,
    ) -> ExecResult:
        running = session.running
        note = ""
        code: int | None
        if ended is not None:
            code, session.cwd = ended
        else:
            code = running.state.get("exit_code")
            note = f"the shell session '{session.name}' ended with it; what it held is lost"
            self._sessions.pop(session.name, None)
        number = running.state.get("signal") if ended is None else None
        status = "timeout" if why == "timeout" else "ok" if code == 0 else "error"
        ender = session.ended_by or running.state.get("ended_by", "")
        if ended is None and ender in {"cancel", "revoked", "shutdown"} and why != "timeout":
            status, why, code = "cancelled", ender, None
        outputs = [
            _output(running, inner, began[name], call, streamed=streamed) for name, inner in _NAMES
        ]
        return ExecResult(
            status=status,
            exit_code=None if why == "timeout" else code,
            signal=number,
            stdout=outputs[0],
            stderr=outputs[1],
            duration_ms=round((time.monotonic() - started) * 1000),
            ended_by=why if number is None or why != "exit" else "signal",
            cwd=session.cwd,
            note=note,
        )


def _info(session: _Session) -> ShellInfo:
    return ShellInfo(
        session.name,
        session.running.name,
        int(session.running.state.get("pid", 0)),
        session.cwd,
        session.started_ms,
    )


def _ended(session: _Session, number: str) -> tuple[int, str] | None:
    """The exit code and folder of a command, once the shell has told."""
    running = session.running
    while session.read < running.total("ctl"):
        at, data = running.read("ctl", session.read, PIECE)
        end = data.rfind(b"\0")
        if end < 0:
            return None
        session.read = at + end + 1
        for line in data[:end].split(b"\0"):
            told, _, rest = line.partition(b" ")
            if told.decode("ascii", "replace") == number:
                code, _, cwd = rest.partition(b" ")
                return int(code), os.fsdecode(cwd)
    return None


async def _tell(
    running: Running, streams: Streams, began: Mapping[str, int], sent: dict[str, int]
) -> bool:
    """Send what is new of this command. False: nobody listens any more, or bytes were lost."""
    for name, inner in _NAMES:
        while sent[name] < running.total(inner):
            at, data = running.read(inner, sent[name], PIECE)
            if at != sent[name] or not data:
                return False
            with contextlib.suppress(ConnectionError):
                await streams.send(name, at - began[name], data)
                sent[name] = at + len(data)
                continue
            return False
    return True


def _output(running: Running, inner: str, start: int, call: Exec, *, streamed: bool) -> Output:
    total = running.total(inner) - start
    if streamed or not total:
        return Output(bytes_total=total, streamed=streamed and bool(total))
    if total <= call.head_bytes + call.tail_bytes:
        return Output(bytes_total=total, head=_bytes(running, inner, start, total))
    head = _bytes(running, inner, start, call.head_bytes)
    tail = _bytes(running, inner, start + total - call.tail_bytes, call.tail_bytes)
    return Output(total, between_signs(head, end=True), between_signs(tail, end=False))


def _bytes(running: Running, inner: str, offset: int, count: int) -> bytes:
    parts = []
    while count > 0:
        at, data = running.read(inner, offset, count)
        if not data or at != offset:
            break
        parts.append(data)
        offset, count = offset + len(data), count - len(data)
    return b"".join(parts)
