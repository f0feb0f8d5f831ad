"""Running one command to its end, and everything that it started with it.

For ``run``, verify commands, set-up commands and the like: bounded in time and memory, in a
session of its own, with no input. When the command itself has ended, or its time is up, or
the caller is cancelled, whatever it left behind is ended too (TERM, grace, KILL): members of
its session, processes that carry its mark, and their descendants.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from handoff.process import facts, reaping
from handoff.process.contract import Proc
from handoff.process.spawn import Refused, explain, find
from handoff.process.sweeping import Quarry, end_all

#: called with 1 or 2 and bytes as they come; what it returns is awaited before more is read
OnOutput = Callable[[int, bytes], Awaitable[None] | None]

#: output kept for the result, in bytes for each of the two streams
LIMIT_BYTES = 1 << 20
_CHUNK = 1 << 16
#: seconds for the pipes to run dry after the last process has ended
_DRAIN_S = 1.0


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended.

    ``exit_code``: the command's own; 128 + n if signal n ended it; 124 if its time was up;
    126 or 127 if it could not be started (``tail_err`` says why). ``signal``: the signal
    that ended it, 0 for none. ``tail_out``, ``tail_err``: the last bytes of each stream.
    ``dropped_bytes``: what came before those tails. ``left``: processes that could not be
    ended.
    """

    exit_code: int
    signal: int
    timed_out: bool
    tail_out: bytes
    tail_err: bytes
    dropped_bytes: int
    seconds: float
    left: tuple[Proc, ...] = ()


class _Tail:
    """The last bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._kept += data
        if len(self._kept) > 2 * self._limit + _CHUNK:
            del self._kept[: len(self._kept) - self._limit]

    def kept(self) -> bytes:
        return bytes(self._kept[max(0, len(self._kept) - self._limit) :])


async def run_command(
    command: Sequence[str] | str,
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    timeout_s: float | None = None,
    on_output: OnOutput | None = None,
    limit_bytes: int = LIMIT_BYTES,
    grace_s: float = 3.0,
    mark: str | None = None,
) -> CommandResult:
    """Run command (an argv, or text for ``/bin/sh -c``) and wait until nothing of it is left.

    env: the whole environment. mark: the run id that its processes carry in
    ``HANDOFF_RUN``, so that ``sweeping.sweep`` finds them should this process die; one is
    made up if not given. A command that can't be started is a result, not an error.
    If on_output raises, the command is ended and the exception passed on.
    """
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    began = time.monotonic()
    try:
        running = _Running(argv, str(cwd), env, mark or secrets.token_hex(16), limit_bytes)
    except OSError as error:
        reason = _refused(argv[0], str(cwd), env, error)
        return CommandResult(
            reason.code, 0, False, b"", f"{reason.reason}\n".encode(), 0, time.monotonic() - began
        )
    timed_out = False
    try:
        timed_out = await running.until_exit(on_output, timeout_s)
    finally:
        await _undisturbed(running.clean(grace_s))
    return running.result(timed_out, time.monotonic() - began)


def _refused(program: str, cwd: str, env: Mapping[str, str], error: OSError) -> Refused:
    path = find(program, env.get("PATH", ""), cwd)
    return explain("exec" if os.path.isdir(cwd) else "cwd", error.errno or 0, path, cwd)


class _Running:
    """A started command with our ends of its pipes. Raises OSError if it can't start."""

    def __init__(
        self, argv: list[str], cwd: str, env: Mapping[str, str], mark: str, limit: int
    ) -> None:
        self._mark = mark
        self._popen = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**env, "HANDOFF_RUN": mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self._pipes = (self._popen.stdout, self._popen.stderr)
        self._pid = self._popen.pid
        # not collected before clean(), so that its pid stays its own until then
        self._exited = reaping.ended_uncollected(self._pid)
        found = facts.fact(self._pid)
        self._since = found.started if found is not None else 0
        self._tails = _Tail(limit), _Tail(limit)
        self._pumps: list[asyncio.Task[None]] = []
        self._left: list[Proc] = []
        self._code: int | None = None

    async def until_exit(self, on_output: OnOutput | None, timeout_s: float | None) -> bool:
        """Pump output until the command's own process ends. Returns whether its time was up."""
        self._pumps = [
            asyncio.create_task(_pump(pipe, number, tail, on_output))
            for number, (pipe, tail) in enumerate(zip(self._pipes, self._tails, strict=True), 1)
        ]
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._exited.done():
            rest = None if until is None else until - time.monotonic()
            if rest is not None and rest <= 0:
                return True
            waited: list[asyncio.Future[Any]] = [self._exited]
            waited += [pump for pump in self._pumps if not pump.done()]
            await asyncio.wait(waited, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failed()
        return False

    def _raise_failed(self) -> None:
        for pump in self._pumps:
            if pump.done() and not pump.cancelled():
                pump.result()

    async def clean(self, grace_s: float) -> None:
        """End everything that is left, let the pipes run dry, collect the process."""
        quarry = Quarry(self._mark, None, session=self._pid, since=self._since)
        self._left = await asyncio.to_thread(end_all, quarry, grace_s)
        pending = [pump for pump in self._pumps if not pump.done()]
        if pending:
            await asyncio.wait(pending, timeout=_DRAIN_S)
        for pump in pending:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for pipe in self._pipes:
            pipe.close()
        if not self._left:
            await self._exited
        self._code = reaping.collected(self._pid, self._exited)
        # collected here: subprocess must neither look again nor complain
        self._popen.returncode = self._code if self._code is not None else -9

    def result(self, timed_out: bool, seconds: float) -> CommandResult:
        """What to tell. Raises what on_output raised."""
        self._raise_failed()
        code = self._code if self._code is not None else -9
        out, err = (tail.kept() for tail in self._tails)
        return CommandResult(
            exit_code=124 if timed_out else code if code >= 0 else 128 - code,
            signal=max(0, -code),
            timed_out=timed_out,
            tail_out=out,
            tail_err=err,
            dropped_bytes=sum(tail.total for tail in self._tails) - len(out) - len(err),
            seconds=seconds,
            left=tuple(self._left),
        )


async def _pump(pipe: IO[bytes], number: int, tail: _Tail, on_output: OnOutput | None) -> None:
    """Read pipe to its end. While on_output's answer is awaited nothing is read."""
    loop = asyncio.get_running_loop()
    fd = pipe.fileno()
    os.set_blocking(fd, False)
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        while True:
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                ready.clear()
                await ready.wait()
                continue
            if not data:
                return
            tail.add(data)
            if on_output is not None:
                answer = on_output(number, data)
                if inspect.isawaitable(answer):
                    await answer
            await asyncio.sleep(0)  # a flood must not keep the loop from everybody else
    finally:
        loop.remove_reader(fd)


async def _undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Await work to its end even if we are cancelled meanwhile; then be cancelled."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
