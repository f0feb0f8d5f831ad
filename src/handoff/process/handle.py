"""One run as agentd sees it: a connection to its shim, and its journal on disk."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from handoff.errors import ActorRefused, ExecutorGone, ProtocolViolation, StorageError, TooLarge
from handoff.process import facts, journal, sweeping
from handoff.process.contract import Proc, Record
from handoff.process.shim import INFO

log = logging.getLogger(__name__)

SOCKET = "s"
#: pauses between tries to reach a shim that lives but does not answer, in seconds
_RETRY_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
#: seconds beyond the grace in which a shim has to have ended its tree
_END_SLACK_S = 8.0
#: the longest line a shim sends: a tree of very many processes
_MAX_LINE = 64 << 20


class Info(msgspec.Struct, frozen=True):
    """``shim.json``: who holds the run."""

    run_id: str
    pid: int
    started: int
    boot: str
    cgroup: str = ""

    @classmethod
    def load(cls, run_dir: Path) -> Info:
        """Read it. Raises FileNotFoundError, or StorageError if it is not whole."""
        try:
            return msgspec.json.decode((run_dir / INFO).read_bytes(), type=cls)
        except msgspec.DecodeError as error:
            raise StorageError(f"{run_dir / INFO} can't be read: {error}") from error

    def lives(self) -> bool:
        """Whether that very process still runs."""
        return self.boot == facts.boot_id() and facts.living(self.pid, self.started)


class RunHandle:
    """The ``Shim`` of the contract. Made by ``supervisor.start``, ``attach``, ``remains``."""

    def __init__(self, run_dir: Path, info: Info) -> None:
        self.run_id = info.run_id
        self.run_dir = run_dir
        self.shim_pid = info.pid
        #: bytes of a last record that the shim's death cut; known once records() has ended
        self.torn_bytes = 0
        self._info = info
        self._end = 0
        self._exact = False
        self._gone = not info.lives()
        self._closed = False
        self._refused = ""
        self._changed = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None
        self._tender: asyncio.Task[None] | None = None
        self._asked: dict[int, tuple[bytes, asyncio.Future[dict[str, Any]]]] = {}
        self._next_id = 1

    # -- the connection ------------------------------------------------------------------

    async def connect(self) -> None:
        """Tend a connection from now on; returns when it stands, or the shim is dead."""
        if self._tender is None and not self._gone:
            standing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._tender = asyncio.create_task(self._tend(standing), name=f"run {self.run_id}")
            try:
                await standing
            except asyncio.CancelledError:
                await self.close()
                raise
        if self._refused:
            raise ActorRefused(f"the shim of run {self.run_id} refused: {self._refused}")

    async def _tend(self, standing: asyncio.Future[None]) -> None:
        """Keep connected while the shim lives."""
        tries = 0
        try:
            while True:
                try:
                    reader, self._writer = await self._open()
                except OSError:
                    if not self._info.lives():
                        break
                    # It is starting, ending, or its socket's name was taken away (it
                    # makes a new one). The journal can be read meanwhile.
                    self._exact = False
                    self._notify()
                    await asyncio.sleep(_RETRY_S[min(tries, len(_RETRY_S) - 1)])
                    tries += 1
                    continue
                tries += 1
                if await self._greeted(reader):
                    tries = 0
                    for line, _ in self._asked.values():
                        self._writer.write(line)
                    if not standing.done():
                        standing.set_result(None)
                    await self._listen(reader)
                self._drop_writer()
                if self._refused:
                    break
        finally:
            self._drop_writer()
            if not self._closed and not self._refused:
                self._gone = True
            for _, answer in self._asked.values():
                if not answer.done():
                    answer.set_result({"error": "gone"})
            self._asked.clear()
            if not standing.done():
                standing.set_result(None)
            self._notify()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if sys.platform != "linux":
            return await asyncio.open_unix_connection(self.run_dir / SOCKET, limit=_MAX_LINE)
        folder = os.open(self.run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # short, however long run_dir is
            path = f"/proc/self/fd/{folder}/{SOCKET}"
            return await asyncio.open_unix_connection(path, limit=_MAX_LINE)
        finally:
            os.close(folder)

    async def _greeted(self, reader: asyncio.StreamReader) -> bool:
        """Whether the shim let us in."""
        message = await _next_message(reader)
        if message is None:
            return False
        if "hello" not in message:
            self._refused = str(message.get("refused") or message)
            return False
        self._grow(int(message["hello"]["end"]))
        return True

    def _grow(self, end: int) -> None:
        self._end = max(self._end, end)
        self._exact = True
        self._notify()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Take messages until the connection ends."""
        while (message := await _next_message(reader)) is not None:
            if "end" in message:
                self._grow(int(message["end"]))
            elif (found := self._asked.pop(int(message["id"]), None)) and not found[1].done():
                found[1].set_result(message)

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send a request, again after a lost connection, until it is answered.

        Raises:
            ExecutorGone: the shim is dead.
        """
        if self._gone or self._closed or self._tender is None:
            raise self._gone_error()
        ident = self._next_id
        self._next_id += 1
        line = json.dumps({"op": op, "id": ident, **fields}).encode() + b"\n"
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[ident] = (line, answer)
        try:
            if self._writer is not None:
                self._writer.write(line)
            reply = await answer
        finally:
            self._asked.pop(ident, None)
        error = reply.get("error")
        if error == "gone":
            raise self._gone_error()
        if error == "gap":
            raise ProtocolViolation(
                f"input {fields.get('n')} leaves a gap: {reply.get('written')} was written last",
                written=reply.get("written"),
            )
        if error == "busy":
            raise TooLarge("the executor does not read its input and too much waits already")
        if error is not None:
            raise ProtocolViolation(f"the shim refused '{op}': {reply.get('why', error)}")
        return reply

    def _gone_error(self) -> ExecutorGone:
        return ExecutorGone(f"the process of run {self.run_id} has ended", run_id=self.run_id)

    # -- the contract --------------------------------------------------------------------

    async def send(self, number: int, data: bytes) -> int:
        """Write input ``number`` unless it was written before. See the contract."""
        try:
            body = {"text": data.decode()}
        except UnicodeDecodeError:
            body = {"b64": b64encode(data).decode()}
        return int((await self._ask("input", n=number, **body))["written"])

    async def ack(self, offset: int) -> None:
        """Everything below offset is committed elsewhere: its segments may go."""
        if self._gone:
            journal.trim(str(self.run_dir), offset)
            return
        try:
            await self._ask("ack", offset=offset)
        except ExecutorGone:
            journal.trim(str(self.run_dir), offset)

    async def records(self, offset: int) -> AsyncIterator[Record]:
        """Records from offset on, waiting for more until the shim is gone.

        Raises:
            StorageError: the journal is damaged, or offset is none of its records' starts.
        """
        reader = journal.Reader(str(self.run_dir))
        try:
            while True:
                changed, gone = self._changed, self._gone
                upto = self._end if self._exact and not gone else None
                try:
                    batch, offset = reader.read(offset, upto=upto, settled=gone)
                except (journal.Damaged, OSError) as error:
                    raise StorageError(f"run {self.run_id}: {error}", offset=offset) from error
                for at, end, kind, at_ms, data in batch:
                    yield Record(at, end, kind, at_ms, data)  # type: ignore[arg-type]
                if batch:
                    continue
                if gone:
                    self._report_torn(reader.torn, reader.missing)
                    return
                if self._closed:
                    return
                await changed.wait()
        finally:
            reader.close()

    def _report_torn(self, torn: int, missing: int) -> None:
        self.torn_bytes = torn
        if missing:
            log.warning(
                "the journal of run %s ends %d bytes before what was read of it already: "
                "the machine went down meanwhile",
                self.run_id,
                missing,
                extra={"action": "journal_short", "run_id": self.run_id},
            )
        if torn:
            log.warning(
                "the last record of run %s was cut by its shim's death: %d bytes left out",
                self.run_id,
                torn,
                extra={"action": "journal_torn", "run_id": self.run_id},
            )

    async def end(self, grace_s: float) -> list[Proc]:
        """TERM, wait, KILL until the tree is empty. Returns what is still alive then.

        Also right when the shim is dead, or does not react (then it is killed first): what
        carries the run's mark or stands in its roster is ended.
        """
        try:
            async with asyncio.timeout(grace_s + _END_SLACK_S):
                reply = await self._ask("end", grace=grace_s)
                return procs(reply["tree"])
        except (ExecutorGone, TimeoutError):
            return await sweeping.sweep(self.run_id, self.run_dir, grace_s=grace_s)

    async def tree(self) -> list[Proc]:
        """The executor and all its descendants, now."""
        try:
            return procs((await self._ask("tree"))["tree"])
        except ExecutorGone:
            return await asyncio.to_thread(sweeping.left_behind, self.run_id, self.run_dir)

    async def alive(self) -> bool:
        """Whether the shim lives."""
        return not self._gone and self._info.lives()

    async def close(self) -> None:
        """Let go of the connection; the shim and its executor live on."""
        self._closed = True
        tender, self._tender = self._tender, None
        if tender is not None:
            tender.cancel()
            await asyncio.wait([tender])
        self._notify()


async def _next_message(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next line as a message, None at the end of the connection."""
    try:
        line = await reader.readline()
    except (OSError, ValueError):  # broken, or a line beyond our limit: connect anew
        return None
    return msgspec.json.decode(line, type=dict) if line.endswith(b"\n") else None


def procs(rows: list[list[Any]]) -> list[Proc]:
    """The shim's rows as processes."""
    return [Proc(*row) for row in rows]
