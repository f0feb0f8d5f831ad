"""agentd's side of the shims: start one, find it again, talk to it, clean up after it.

``start`` and ``attach`` return a :class:`RunHandle`, which is the ``Shim`` of
:mod:`handoff.process.contract`. It costs nothing while the executor is silent: the shim
pushes over its socket. If the connection breaks while the shim lives, it is made again and
what was not answered is sent again; input is numbered, so nothing is written twice.

After the shim's death the journal can still be read: :func:`remains` gives a handle whose
``records`` work, and whose other methods say ``ExecutorGone``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from handoff.errors import (
    ExecutorError,
    ExecutorGone,
    PathTooLong,
    StorageError,
    StorageFull,
    TimedOut,
    UsageError,
)
from handoff.process import facts, fence, reaping, sweeping
from handoff.process.contract import Spec
from handoff.process.handle import SOCKET, Info, RunHandle
from handoff.process.shim import INFO, TAKEN

__all__ = ["Limits", "attach", "remains", "start", "sweep"]

#: seconds in which a shim has to tell that it holds its executor
START_S = 15.0
#: what a fresh pipe takes without blocking, at least
_PIPE_BYTES = 1 << 16
#: sun_path without its final zero: macOS has the smaller one
SUN_PATH = 107 if facts.LINUX else 103
#: it stands in the executor's environment and in file names, and marks what is to be ended
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_SHIM = Path(__file__).with_name("shim.py")


class Limits(msgspec.Struct, frozen=True):
    """Bounds of one journal, in bytes (rates in bytes a second). 0 = the usual."""

    segment_bytes: int = 0
    max_backlog: int = 0
    stderr_rate: int = 0
    stderr_unacked: int = 0


async def start(run_dir: Path, spec: Spec, limits: Limits | None = None) -> RunHandle:
    """Start spec under a shim of its own in run_dir, which is made if need be (0700).

    Idempotent: if run_dir already holds a live shim, that one is attached to and nothing
    is started. An executor that can't be executed is no error here: its journal says
    ``exited`` 127 or 126, after a ``stderr`` record that names the cause.

    Raises:
        UsageError: spec.run_id is empty or holds other than letters, digits and ``._-``.
        ExecutorGone: run_dir held a run already, and its shim is dead. Never a second start.
        PathTooLong: the socket's path can't be used on this system.
        StorageFull, StorageError: run_dir can't be written.
        ExecutorError, TimedOut: the shim itself did not come up; nothing runs.
    """
    if not _RUN_ID.fullmatch(spec.run_id):
        raise UsageError(f"'{spec.run_id}' can't be a run's id")
    check_path(run_dir)
    _make_dir(run_dir)
    if (run_dir / INFO).exists():
        return await attach(run_dir, spec.run_id)
    if not spec.cgroup:
        spec = msgspec.structs.replace(spec, cgroup=fence.enclose(spec.run_id, spec.max_procs))
    body = msgspec.to_builtins(spec) | (msgspec.to_builtins(limits) if limits else {})
    pid, code, said = await _spawn(run_dir, json.dumps(body).encode() + b"\n")
    if code != TAKEN and (not said or "failed" in said):
        fence.release(spec.cgroup, spec.run_id)
    if code == TAKEN:
        return await attach(run_dir, spec.run_id)
    if "failed" in said:
        raise _storage(OSError(said["failed"], ""), run_dir)
    if not said:
        raise ExecutorError(
            f"the shim ended with exit code {code} before it could start the executor: "
            f"{_log_tail(run_dir)}",
            remedy="handoff doctor",
        )
    info = Info.load(run_dir)
    handle = RunHandle(run_dir, info)
    if pid != info.pid:  # cannot happen; told rather than trusted
        raise ExecutorError(f"the run directory belongs to process {info.pid}, not {pid}")
    await handle.connect()
    return handle


async def attach(run_dir: Path, run_id: str) -> RunHandle:
    """The live shim in run_dir.

    Raises:
        ExecutorGone: there is none (any more); :func:`remains` still reads its journal.
        PathTooLong: the socket's path can't be used on this system.
    """
    check_path(run_dir)
    reaping.collect()
    handle = remains(run_dir, run_id)
    await handle.connect()
    if not await handle.alive():
        await handle.close()
        raise ExecutorGone(f"the process of run {run_id} has ended", run_id=run_id)
    return handle


def remains(run_dir: Path, run_id: str) -> RunHandle:
    """A handle on whatever is in run_dir, without a connection: for reading the journal.

    Raises:
        ExecutorGone: no shim ever claimed run_dir, or it is another run's.
        StorageError: what is there can't be read.
    """
    try:
        info = Info.load(run_dir)
    except FileNotFoundError:
        raise ExecutorGone(f"run {run_id} was never started", run_id=run_id) from None
    if info.run_id != run_id:
        raise ExecutorGone(f"the run directory belongs to run {info.run_id}", run_id=run_id)
    return RunHandle(run_dir, info)


def check_path(run_dir: Path) -> None:
    """Raise PathTooLong if a socket in run_dir could not be reached.

    On Linux every length works: the socket is reached through the folder's descriptor.
    """
    length = len(os.fsencode(run_dir / SOCKET))
    if not facts.LINUX and length > SUN_PATH:
        raise PathTooLong(
            f"the socket's path would have {length} bytes, the system allows {SUN_PATH}: "
            f"{run_dir / SOCKET}",
            remedy="set HANDOFF_HOME to a shorter folder",
            length=length,
            limit=SUN_PATH,
        )


def _make_dir(run_dir: Path) -> None:
    try:
        run_dir.parent.mkdir(parents=True, exist_ok=True)
        run_dir.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise _storage(error, run_dir) from error


def _storage(error: OSError, run_dir: Path) -> StorageError:
    import errno

    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return (StorageFull if full else StorageError)(
        f"can't write to {run_dir}: {os.strerror(error.errno or 0)}",
        remedy="make room on that disk" if full else "",
    )


def _log_tail(run_dir: Path) -> str:
    try:
        lines = (run_dir / "shim.log").read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:300] if lines else "it said nothing"


async def _spawn(run_dir: Path, body: bytes) -> tuple[int, int | None, dict[str, Any]]:
    """Run the shim program: (its pid, exit code if it ended, what it said)."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log = os.open(run_dir / "shim.log", flags, 0o600)
    except OSError as error:
        raise _storage(error, run_dir) from error
    spec_read, spec_write = os.pipe()
    said_read, said_write = os.pipe()
    try:
        # Nothing of our own environment: the shim needs none, and it may hold secrets.
        pid = os.posix_spawn(  # noqa: ASYNC221 - returns at once: it waits for nothing
            sys.executable,
            [sys.executable, "-I", "-S", str(_SHIM), str(run_dir)],
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, spec_read, 0),
                (os.POSIX_SPAWN_DUP2, said_write, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsigdef=reaping.ALL_SIGNALS,
            setsigmask=(),
        )
    except OSError as error:
        os.close(spec_write)
        os.close(said_read)
        raise ExecutorError(
            f"can't start the shim with {sys.executable}: {os.strerror(error.errno or 0)}",
            remedy="handoff doctor",
        ) from error
    finally:
        for fd in (spec_read, said_write, log):
            os.close(fd)
    ended = reaping.watch(pid)
    try:
        await _write_spec(spec_write, body)
        async with asyncio.timeout(START_S):
            line = await _read_line(said_read)
            code = None if line else await asyncio.shield(ended)
    except TimeoutError:
        reaping.kill(pid)
        raise TimedOut(f"the shim did not come up within {START_S:g} s") from None
    return pid, code, json.loads(line) if line else {}


async def _write_spec(fd: int, body: bytes) -> None:
    def write() -> None:
        try:
            view = memoryview(body)
            while view:
                view = view[os.write(fd, view) :]
        except BrokenPipeError:
            pass  # the shim ended: its exit code tells
        finally:
            os.close(fd)

    if len(body) <= _PIPE_BYTES and facts.LINUX:
        write()
    else:
        await asyncio.to_thread(write)


async def _read_line(fd: int) -> bytes:
    """The one line that the shim says, b"" if it ends without."""
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    raw = bytearray()
    try:
        while not raw.endswith(b"\n"):
            ready = asyncio.Event()
            loop.add_reader(fd, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(fd)
            chunk = os.read(fd, 4096)
            if not chunk:
                return b""
            raw += chunk
        return bytes(raw)
    finally:
        os.close(fd)


sweep = sweeping.sweep
