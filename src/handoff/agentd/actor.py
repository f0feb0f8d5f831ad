"""One actor per task: one asyncio task, one inbox, everything about that task.

An input is a function of the task's :class:`~handoff.agentd.core.Core`. The actor runs it,
commits what it changed in one transaction, and only then lets anything act on it: waiting
callers, subscribers, the executor's input, effects. If the function raises, or the commit
fails, the core is thrown away and loaded again: nothing happened.

Records of the executor's journal come through the same inbox, as a token; the bytes wait
beside it, bounded, so that a busy executor slows its reader down and not the daemon.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from handoff.agentd import taking, turns
from handoff.agentd.core import Core
from handoff.agentd.hub import Hub
from handoff.agentd.journal import LineReader, Position
from handoff.agentd.services import Services
from handoff.crashpoints import reach
from handoff.errors import (
    ExecutorGone,
    HandoffError,
    StorageError,
    TooLarge,
    UnknownTask,
    Unreachable,
)
from handoff.executors import contract
from handoff.executors.contract import Driver
from handoff.lifecycle import terminal
from handoff.process.contract import Record, Shim
from handoff.store import commit
from handoff.store.commit import Change
from handoff.store.sql import Q

log = logging.getLogger("handoff.actor")

T = TypeVar("T")

#: bytes of journal that wait for the actor before its reader pauses
PENDING_BYTES = 1 << 20
#: bytes of journal taken in one transaction
BATCH_BYTES = 256 * 1024
#: characters that are looked through for secrets without a thread
REDACT_INLINE = 16 * 1024
#: seconds between attempts while the database can't be written
RETRY_S = 1.0
#: seconds that a shim may take to acknowledge that journal may go
ACK_S = 5.0


class _Call:
    __slots__ = ("fn", "future")

    def __init__(self, fn: Callable[[Core], Any], future: asyncio.Future[Any]) -> None:
        self.fn = fn
        self.future = future


class Actor:
    """The actor of one task. Start with :meth:`start`; stop with :meth:`close`."""

    def __init__(self, task_id: str, services: Services) -> None:
        self.task_id = task_id
        self.services = services
        self.core: Core = None  # type: ignore[assignment]  # loaded by start()
        #: the task's state as it was last committed: what others may act on. The core may
        #: be ahead of it, and may yet be thrown away.
        self.state = ""
        self.shim: Shim | None = None
        self.last_activity = services.clock.monotonic()
        self.on_commit: Callable[[Actor, Change], None] = lambda _actor, _change: None
        self._inbox: asyncio.Queue[_Call | None] = asyncio.Queue()
        self._loop_task: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._sender: asyncio.Task[None] | None = None
        self._records: deque[Record] = deque()
        self._record_bytes = 0
        self._token_queued = False
        self._room = asyncio.Event()
        self._lines = LineReader(Position(0), services.config.limits.line)
        self._unsent: deque[tuple[int, bytes, str | None]] = deque()
        self._unsent_news = asyncio.Event()
        self._stuck_at: tuple[int, int] = (-1, 0)
        #: take records one by one, because one of them can't be stored
        self._careful = False
        #: why the driver of the run that lives could not be loaded
        self.driver_fault = ""
        self._busy = False
        self._closed = False

    @property
    def hub(self) -> Hub:
        """Where news of tasks are made known."""
        return self.services.hub

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        """Load the task and begin to take inputs.

        Raises:
            UnknownTask: the database does not hold it.
        """
        self._load()
        self._loop_task = asyncio.create_task(self._loop(), name=f"actor-{self.task_id[:8]}")

    async def close(self) -> None:
        """Stop taking inputs. The executor lives on. Whoever still waits is told."""
        self._closed = True
        for task in (self._reader, self._sender, self._loop_task):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        while not self._inbox.empty():
            item = self._inbox.get_nowait()
            if item is not None and not item.future.done():
                item.future.set_exception(self._closed_error())
        if self.shim is not None:
            await self.shim.close()

    @property
    def idle(self) -> bool:
        """Whether nobody waits for a decision."""
        return not self._busy and self._inbox.empty()

    def _closed_error(self) -> Unreachable:
        return Unreachable(
            f"agentd lets go of task {self.task_id[:8]} at this moment: try again",
            remedy="handoff status",
        )

    def _load(self) -> None:
        loaded = self.services.store.read(lambda conn: commit.load(conn, self.task_id))
        if loaded is None:
            raise UnknownTask(f"no task has the id {self.task_id}", remedy="handoff tasks")
        driver: Driver | None = None
        if loaded.run is not None and loaded.run.state != "ended" and loaded.run.driver:
            driver = self._load_driver(loaded.task.executor, loaded.run.driver)
        self.state = loaded.task.state
        previous = self.core
        self.core = Core(loaded, driver, self.services.clock, self._prompt)
        if previous is not None:
            self.core.phase, self.core.phase_detail = previous.phase, previous.phase_detail
            self.core.tools = previous.tools

    def _load_driver(self, executor: str, saved: str) -> Driver | None:
        """The driver as it was saved; None if this agentd can't go on with it: the agent
        was taken out of the configuration, say."""
        try:
            driver = self.services.executors.get(executor).load_driver(saved.encode())
        except Exception as error:  # one task must not keep agentd from all the others
            log.warning("driver of task %s: %s", self.task_id, error)
            self.driver_fault = str(error) or type(error).__name__
            return None
        self.driver_fault = ""
        return driver

    def _prompt(self, turn: int) -> str:
        return commit.prompt(self.services.store.reader(), self.task_id, turn)

    # -- inputs --------------------------------------------------------------------------

    async def call(self, fn: Callable[[Core], T]) -> T:
        """Run a decision in the actor's turn; returns once it is committed.

        Raises:
            HandoffError: what the decision raised, or StorageError. Nothing happened then.
        """
        if self._closed:
            raise self._closed_error()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._inbox.put_nowait(_Call(fn, future))
        return await future

    async def _loop(self) -> None:
        while True:
            self._busy = False
            item = await self._inbox.get()
            self._busy = True
            if item is not None:
                await self._take_call(item)
                continue
            self._token_queued = False
            try:
                await self._take_records()
            except Exception:  # whatever it is, the next input finds an actor
                log.exception("records of task %s", self.task_id)
                await asyncio.sleep(RETRY_S)
                await self._read_again()

    async def _take_call(self, item: _Call) -> None:
        if item.future.cancelled():
            return  # nobody wants it any more: what it was to change has lost its meaning
        try:
            result = item.fn(self.core)
            await self._commit()
        except asyncio.CancelledError:
            if not item.future.done():
                item.future.set_exception(self._closed_error())
            raise
        except HandoffError as error:
            await self._forget_change(error)
            if not item.future.done():
                item.future.set_exception(error)
        except Exception as error:  # a fault of ours must not end the task's actor
            log.exception("a decision of task %s failed", self.task_id)
            await self._forget_change(error)
            if not item.future.done():
                item.future.set_exception(error)
        else:
            if not item.future.done():
                item.future.set_result(result)

    async def _forget_change(self, error: Exception) -> None:
        """Go back to what the database holds, waiting for it if it can't be read."""
        while True:
            try:
                self._load()
                break
            except StorageError:
                await asyncio.sleep(RETRY_S)
        if isinstance(error, StorageError):
            # What was read since the last commit has to be read again.
            self._follow_again()
        # An effect that was to be given up is due again.
        self.on_commit(self, Change())

    async def _read_again(self) -> None:
        """Go back to what the database holds, and read the journal from there."""
        await self._forget_change(StorageError(""))

    def _follow_again(self) -> None:
        if (
            self.shim is not None
            and self._is_of_this_run()
            and self.core.must_run().state != "ended"
        ):
            self.follow(self.shim)

    async def _commit(self) -> None:
        change = self.core.change
        if change.empty:
            return
        self.core.change = Change()
        now = self.services.clock.now_ms()
        task = self.core.task
        await self._redact(change)
        committed = await self.services.store.write(
            lambda conn: commit.apply(conn, task, change, now)
        )
        self.state = task.state
        self.core.effects.extend(committed.effects)
        for run_id, number, data, ticket_id in change.inputs:
            if self.core.run is not None and run_id == self.core.run.id:
                self._unsent.append((number, data, ticket_id))
        if change.inputs:
            self._unsent_news.set()
        self.hub.publish(
            self.task_id, committed.events, committed.frames, ended=terminal(self.state)
        )
        self.on_commit(self, change)

    async def _redact(self, change: Change) -> None:
        """Take secrets out; a long text in a thread, so that nobody else waits for it."""
        told = [data for _, data in change.frames] + [payload for _, _, payload in change.events]
        size = sum(len(v) for data in told for v in data.values() if isinstance(v, str))
        if size > REDACT_INLINE:
            await asyncio.to_thread(self.services.redact, change)
        else:
            self.services.redact(change)

    # -- the executor's process ----------------------------------------------------------

    def follow(self, shim: Shim) -> None:
        """Read the run's journal from the committed position, and send what is unsent."""
        run = self.core.must_run()
        for task in (self._reader, self._sender):
            if task is not None:
                task.cancel()
        self.shim = shim
        self._records.clear()
        self._record_bytes = 0
        start = Position(run.read_offset, run.read_skip)
        self._lines = LineReader(start, self.services.config.limits.line)
        rows = self.services.store.reader().execute(Q["inputs_unsent"], {"run_id": run.id})
        self._unsent = deque(rows.fetchall())
        self._unsent_news.set()
        self._reader = asyncio.create_task(self._read(shim, start), name="journal-reader")
        self._sender = asyncio.create_task(self._send(shim, run.id), name="input-sender")

    async def _read(self, shim: Shim, start: Position) -> None:
        exited, why = False, ""
        try:
            async for record in shim.records(start.offset):
                exited = exited or record.kind == "exited"
                self._records.append(record)
                self._record_bytes += len(record.data) + 64
                self._queue_token()
                while self._record_bytes > PENDING_BYTES:
                    self._room.clear()
                    await self._room.wait()
        except HandoffError as error:
            log.warning("journal of task %s: %s", self.task_id, error)
            why = error.cause
        while self._records:
            self._room.clear()
            await self._room.wait()
        gone = partial(taking.run_gone, run_id=shim.run_id, why=why or taking.gone(shim, exited))
        await self.call(gone)
        await shim.close()

    def _queue_token(self) -> None:
        if not self._token_queued:
            self._token_queued = True
            self._inbox.put_nowait(None)

    async def drained(self, limit_s: float) -> None:
        """Wait until the journal of a process that has ended was taken to its end."""
        if self._reader is not None:
            await asyncio.wait({self._reader}, timeout=limit_s)

    async def _send(self, shim: Shim, run_id: str) -> None:
        while True:
            while self._unsent:
                number, data, ticket_id = self._unsent[0]
                reach("input.before_send")
                try:
                    await shim.send(number, data)
                except ExecutorGone:
                    return  # the reader sees the end of the process and tells
                except TooLarge:
                    await asyncio.sleep(RETRY_S)  # the executor does not read: it may yet
                    continue
                except HandoffError:
                    log.exception("input %d of run %s was refused", number, run_id)
                    return
                self._unsent.popleft()
                reach("input.sent")
                await self.call(
                    partial(taking.sent, run_id=run_id, number=number, ticket_id=ticket_id)
                )
            self._unsent_news.clear()
            if not self._unsent:
                await self._unsent_news.wait()

    # -- records -------------------------------------------------------------------------

    async def _take_records(self) -> None:
        taken, lines, record = 0, self._lines, None
        while self._records and taken < (1 if self._careful else BATCH_BYTES):
            record = self._records[0]
            if self._is_of_this_run():
                try:
                    await taking.take_record(self, self._lines, record)
                except HandoffError as error:
                    await self._give_up_record(record, error)
                    return
                except Exception as error:  # one bad record must not stop the task for ever
                    log.exception("record %d of task %s", record.offset, self.task_id)
                    await self._give_up_record(record, error)
                    return
                if self._lines is not lines:
                    # Followed anew meanwhile, from the last commit on: that reader brings
                    # these records again.
                    await self._read_again()
                    return
            self._records.popleft()
            self._record_bytes -= len(record.data) + 64
            taken += len(record.data) + 64
        self._keep_position()
        try:
            await self._commit()
        except StorageError as error:
            log.warning("task %s can't be written: %s", self.task_id, error)
            await asyncio.sleep(RETRY_S)
            await self._forget_change(error)
            return
        except Exception as error:  # a row that the database does not take
            log.exception("records of task %s up to %s", self.task_id, record)
            if self._careful and record is not None:
                await self._give_up_record(record, error)
            else:
                self._careful = True  # one by one: the next failure names its record
                await self._read_again()
            return
        self._careful = self._careful and record is not None and record.offset < self._stuck_at[0]
        await self._acknowledge()
        if self._record_bytes <= PENDING_BYTES:
            self._room.set()
        if self._records:
            self._queue_token()

    def _is_of_this_run(self) -> bool:
        """Whether what is read is the newest run's. An earlier one, that is still being
        ended, says nothing any more that matters to its successor."""
        run = self.core.run
        return run is not None and self.shim is not None and self.shim.run_id == run.id

    async def _acknowledge(self) -> None:
        """Let the shim drop what is committed. It can wait: a shim that does not answer
        must not keep the task's coordinator waiting."""
        run, shim = self.core.run, self.shim
        if run is None or shim is None or shim.run_id != run.id:
            return
        try:
            async with asyncio.timeout(ACK_S):
                await shim.ack(run.read_offset)
        except (TimeoutError, HandoffError, OSError) as error:
            log.warning("journal of task %s was not trimmed: %s", self.task_id, error)

    async def _give_up_record(self, record: Record, error: Exception) -> None:
        """A record can't be taken: try again from the database's state; the third time,
        leave its line out and say so."""
        offset, times = self._stuck_at
        self._stuck_at = (record.offset, times + 1 if offset == record.offset else 1)
        await self._forget_change(error)
        shim = self.shim
        if shim is None:
            return
        if self._stuck_at[1] >= 3 and self.core.run is not None:
            what = f"{type(error).__name__} in agentd"
            turns.take(self.core, [contract.Unrecognised(what)])
            run = self.core.touch_run()
            run.read_offset, run.read_skip = record.end, 0
            await self._commit()
        self.follow(shim)
        self._room.set()

    def _keep_position(self) -> None:
        run = self.core.run
        if run is None or not self._is_of_this_run():
            return
        position = self._lines.position
        if (run.read_offset, run.read_skip) != position:
            run.read_offset, run.read_skip = position
            self.core.touch_run()
