"""What a node does with a call: once, under its policy, written down before and after.

The order is always the same: the key is looked up, the call is noted as running, the policy
rules, the audit gets its first row, it is done, the answer is stored, the audit gets its
second row. Without a place to write, nothing is done. A call that was noted and has no
answer when the node starts again is asked after at the keeper; what nobody knows is told as
``unknown_outcome``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from handoff.errors import (
    HandoffError,
    OutcomeUnknown,
    PolicyDenied,
)
from handoff.nodes import told
from handoff.nodes.audit import Audit
from handoff.nodes.node import machine
from handoff.nodes.node.asked import Known, Who, as_cut, failed, not_here, whole
from handoff.nodes.node.asked import row as asked_row
from handoff.nodes.node.calls_journal import CALLS, CallsJournal, Seen
from handoff.nodes.node.execs import Execs, folder_name
from handoff.nodes.node.execs import info as job_info
from handoff.nodes.node.filecalls import FileCalls, aside
from handoff.nodes.node.files import Files
from handoff.nodes.node.finding import Finding
from handoff.nodes.node.keeping import Keep
from handoff.nodes.node.looks import Looks
from handoff.nodes.node.machine import Settings
from handoff.nodes.node.ruling import PolicyNow, rule
from handoff.nodes.node.shells import ShellCalls
from handoff.nodes.node.streams import NoStreams, Streams
from handoff.nodes.node.telling import retold
from handoff.nodes.node.treecalls import TreeCalls
from handoff.wire.node import calls
from handoff.wire.node.calls import Call, CallFailed, Exec, ExecResult, Result

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["Engine", "Known", "Settings", "Who"]

log = logging.getLogger("handoff.node")

#: an upload that was cut is kept that long
KEEP_UPLOAD_MS = 7 * 24 * 3600 * 1000


class Engine:
    """The calls of one node."""

    def __init__(
        self,
        settings: Settings,
        audit: Audit,
        clock: Clock,
        environ: Mapping[str, str],
    ) -> None:
        self._set = settings
        self._audit = audit
        self._clock = clock
        self._started_ms = clock.now_ms()
        self.policy = PolicyNow(settings.folder, settings.policy, settings.home, settings.allowed)
        self.journal = CallsJournal(os.path.join(settings.folder, CALLS))
        self._keep: Keep | None = None
        self._keep_lock = asyncio.Lock()
        self._execs = Execs(self._keeper, self.policy, settings.home, environ)
        self._shells = ShellCalls(self._execs, self._keeper, clock)
        self._files = FileCalls(self.policy, settings.home, self.journal, clock)
        self._trees = TreeCalls(self.policy, settings.home)
        self._finding = Finding(Files(self.policy, settings.home))
        self._under_way: dict[str, asyncio.Future[tuple[bool, Result]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._looks = Looks(audit, self.policy, settings.home)

    async def open(self) -> None:
        """Take up what the process before this one left. Raises StorageError or LaunchFailed
        if the keeper can't be started."""
        await self._keeper()
        for seen in self.journal.running():
            self._task(self._take_up(seen))
        with contextlib.suppress(HandoffError):  # a full disk must not keep a node away
            await self.clean()

    async def close(self, *, stop: bool) -> None:
        """Let go. stop: end every command, and the keeper; otherwise they go on."""
        await aside(self._finding.close)
        self._looks.close()
        await self._execs.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._keep is not None:
            if stop:
                await self._keep.stop()
            await self._keep.close()
        self.journal.close()

    def running(self) -> int:
        """How many commands run now."""
        keep = self._keep
        return sum(not one.done for one in keep.running.values()) if keep is not None else 0

    async def clean(self) -> None:
        """Drop what was kept long enough."""
        now = self._clock.now_ms()
        self.journal.prune(now)
        await aside(self._files.clean, now - KEEP_UPLOAD_MS)
        await self._execs.clean(now)

    async def call(
        self,
        key: str,
        call: Call,
        who: Who,
        streams: Streams | None = None,
        tell: Callable[[Result], None] | None = None,
    ) -> tuple[bool, Result]:
        """Carry out a call, or tell what came of it before. Never raises a HandoffError:
        what goes wrong is the answer. (True, result) or (False, CallFailed).

        tell: given a command's answer before that is written down here; until it is, the
        keeper still has it."""
        lines = streams or NoStreams()
        try:
            if call.reads:
                return True, await self._looks.noted(
                    key, call, who, lambda: self._read(call, lines)
                )
            return await self._once(key, call, who, lines, tell)
        except Exception as error:
            return False, failed(key, call, error)

    def at_once(self, key: str, call: Call, who: Who) -> tuple[bool, Result] | None:
        """The answer to a call that looks at what is near, as :meth:`call` would give it; None
        if it has to be waited for."""
        try:
            answer = self._looks.at_once(key, call, who)
        except Exception as error:
            return False, failed(key, call, error)
        return None if answer is None else (True, answer)

    async def cancel(self, key: str, why: str = "cancel", grace_ms: int = 2000) -> bool:
        """End a call that runs. False: it does not, or it is none that can be ended."""
        ended = await self._execs.cancel(key, why, grace_ms)
        return ended or await self._shells.cancel(key, grace_ms)

    async def signal(self, key: str, number: int) -> bool:
        """Send a signal to a call's command. False: it does not run."""
        return await self._execs.signal(key, number)

    def known(self, key: str) -> Known:
        """What is known of a call: ``never_seen``, ``running``, ``done`` or
        ``unknown_outcome``."""
        seen = self.journal.find(key)
        if seen is None:
            return Known("never_seen")
        call = calls.call_from_json(seen.op, whole(seen))
        if seen.state == "done":
            if not seen.ok and seen.answer.get("code") == OutcomeUnknown.code:
                return Known("unknown_outcome", call)
            return Known("done", call)
        if key in self._under_way:
            return Known("running", call)
        return Known("unknown_outcome", call)

    def received(self, key: str) -> dict[str, int]:
        """How much of the streams into a call has arrived."""
        if self._keep is None:
            return {}
        running = self._keep.running.get(folder_name(key))
        return {"stdin": int(running.state.get("taken", 0))} if running is not None else {}

    async def resume(
        self, key: str, call: Call, offsets: Mapping[str, int], streams: Streams
    ) -> tuple[bool, Result]:
        """The streams of a known call from ``offsets`` on, and its answer when it is over."""
        told: ExecResult | None = None
        streamed = isinstance(call, Exec) and call.stream and not call.job
        if isinstance(call, Exec) and not call.job and (streamed or call.stdin == "stream"):
            # what can't be told any more is in the answer: as unknown, or by range
            with contextlib.suppress(HandoffError):
                running = await self._execs.found(key)
                if running is not None:
                    told = await self._execs.follow(running, call, streams, offsets)
        ok, answer = await self._ended(key, call)
        if streamed and isinstance(answer, ExecResult):
            answer = retold(answer, told, offsets)
        return ok, answer

    async def _ended(self, key: str, call: Call) -> tuple[bool, Result]:
        """The answer to a call that was noted, when there is one."""
        ended = self._under_way.get(key)
        if ended is not None:
            with contextlib.suppress(asyncio.CancelledError):
                return await asyncio.shield(ended)
        seen = self.journal.find(key)
        if seen is None or seen.state != "done":
            unknown = OutcomeUnknown("the node was ended while it carried out this call", key=key)
            return False, CallFailed.of(unknown)
        return seen.ok, calls.result_from_json(type(call), seen.ok, seen.answer)

    async def _once(
        self,
        key: str,
        call: Call,
        who: Who,
        streams: Streams,
        tell: Callable[[Result], None] | None,
    ) -> tuple[bool, Result]:
        digest = calls.digest(call)
        args = {
            name: value
            for name, value in calls.to_json(call).items()
            if name not in {"data", "stdin_data", "old", "new"}
        }
        seen = self.journal.begin(key, digest, call.op, self._clock.now_ms(), args)
        if seen is not None:
            ok, known = await self._again(seen, call)  # its streams went to whoever asked first
            return ok, known.untold() if isinstance(known, ExecResult) else known
        ended: asyncio.Future[tuple[bool, Result]] = asyncio.get_running_loop().create_future()
        self._under_way[key] = ended
        try:
            row = asked_row(key, call, who)
            try:
                ruled = rule(self.policy(), self.journal, self._clock, call, digest)
                self._audit.row("call", **row, **ruled)
            except HandoffError as error:
                self.journal.drop(key)  # nothing was done: the key may be used again
                with contextlib.suppress(HandoffError):
                    self._audit.row("call", **row, verdict="deny", code=error.code)
                ended.set_result((False, CallFailed.of(error, retry_safe=True)))
                return ended.result()
            try:
                answer = await self._do(key, call, streams)
            except ConnectionError as error:
                return self._cut(key, call, row, error)
            if tell is not None and isinstance(answer[1], ExecResult):
                tell(answer[1])
            self._written(key, answer, row)
            ended.set_result(answer)
            return answer
        finally:
            self._under_way.pop(key, None)
            if not ended.done():
                ended.cancel()

    def _written(self, key: str, answer: tuple[bool, Result], row: Mapping[str, Any]) -> None:
        """Note what came of a call. It was done: a disk that is full by now takes nothing from
        the answer, only from what can be said to whoever asks later."""
        try:
            self.journal.end(key, ok=answer[0], answer=calls.to_json(answer[1]))
        except HandoffError as error:
            log.warning("the answer to %s can't be kept: %s", key, error)
        try:
            self._audit.row("result", **row, **told.outcome(answer[1]))
        except HandoffError as error:
            log.warning("the end of %s can't be audited: %s", key, error)

    def _cut(
        self, key: str, call: Call, row: dict[str, Any], error: ConnectionError
    ) -> tuple[bool, Result]:
        """The link was lost, or the call cancelled, before all its bytes had come."""
        written = "nothing was written" if isinstance(call, calls.Write) else "the rest is missing"
        lost = as_cut(error, written)
        if isinstance(call, calls.Write):  # a file is written whole or not at all
            self.journal.drop(key)
            failed = CallFailed.of(lost, retry_safe=True)
        else:
            failed = CallFailed.of(lost)
            self.journal.end(key, ok=False, answer=calls.to_json(failed))
        self._audit.row("result", **row, status="failed", code=lost.code)
        return False, failed

    async def _do(self, key: str, call: Call, streams: Streams) -> tuple[bool, Result]:
        try:
            return True, await self._change(key, call, streams)
        except HandoffError as error:
            return False, CallFailed.of(error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except OSError as error:
            failed = HandoffError(f"the node could not do it: {error.strerror or error}")
            return False, CallFailed.of(failed)

    async def _again(self, seen: Seen, call: Call) -> tuple[bool, Result]:
        """The answer to a call that was made before."""
        running = self._under_way.get(seen.key)
        if running is not None:
            with contextlib.suppress(asyncio.CancelledError):
                return await asyncio.shield(running)
        found = self.journal.find(seen.key)
        if found is None or found.state == "running":
            raise OutcomeUnknown(
                "the node was ended while it carried out this call",
                remedy="look at what it has done before you ask again with a new key",
                key=seen.key,
            )
        return found.ok, calls.result_from_json(type(call), found.ok, found.answer)

    async def _read(self, call: Call, streams: Streams) -> Result:
        """A call that changes nothing."""
        if not self.policy().enabled and not isinstance(call, calls.GetPolicy):
            raise PolicyDenied("this node is switched off by its policy")
        match call:
            case calls.ReadOutput():
                return await self._execs.output(call.spill, call.offset, call.length)
            case calls.JobList():
                return await self._execs.jobs()
            case calls.JobWait():
                return await self._execs.wait_job(call.job, call.timeout_ms)
            case calls.JobTail():
                return await self._execs.tail(call.job, call.stream, call.offset, call.length)
            case calls.ShellList():
                return await self._shells.list()
            case calls.Read():
                return await self._files.read(call, streams)
            case calls.TreeManifest():
                return await self._trees.manifest(call, streams)
            case calls.TreeGet():
                return await self._trees.get(call, streams)
            case calls.Grep():
                return await self._finding.grep(call)
            case calls.GetFacts():
                return machine.facts(self._set, self.policy, self._clock, self._started_ms)
            case calls.GetPolicy():
                return machine.policy_view(self.policy())
        plain: dict[type[Call], Callable[[Any], Result]] = {
            calls.Stat: self._files.stat,
            calls.List: self._files.list,
            calls.Glob: self._finding.glob,
            calls.Hash: self._files.hash,
            calls.TransferStat: self._files.transfer,
        }
        work = plain.get(type(call))
        if work is None:
            raise not_here(call)
        return await aside(work, call)

    async def _change(self, key: str, call: Call, streams: Streams) -> Result:
        """A call that changes something; it has been noted and allowed."""
        match call:
            case calls.Exec() if call.shell:
                return await self._shells.run(key, call, streams)
            case calls.ShellOpen():
                return await self._shells.open(key, call)
            case calls.ShellClose():
                return calls.Done(changed=await self._shells.close(call))
            case calls.Exec():
                running = await self._execs.start(key, call, self._clock.now_ms())
                if call.job:
                    return job_info(running)
                return await self._execs.follow(running, call, streams)
            case calls.JobKill():
                job = await self._execs.running_job(call.job)
                await self._execs.cancel(call.job, "cancel", call.grace_ms)
                del job
                return await self._execs.wait_job(call.job, call.grace_ms + 5000)
            case calls.JobForget():
                return calls.Done(changed=await self._execs.forget(call.job))
            case calls.Write():
                return await self._files.write(key, call, streams)
            case calls.TreePut():
                return await self._trees.put(call, streams)
            case calls.Edit():
                return await aside(self._files.edit, key, call)
        plain: dict[type[Call], Callable[[Any], Result]] = {
            calls.Mkdir: self._files.make,
            calls.Move: self._files.move,
            calls.Delete: self._files.delete,
            calls.SetMeta: self._files.set_meta,
        }
        work = plain.get(type(call))
        if work is None:
            raise not_here(call)
        return await aside(work, call)

    async def _take_up(self, seen: Seen) -> None:
        """A call that the process before this one did not end."""
        running = await self._execs.found(seen.key) if seen.op == "exec" else None
        if running is None:
            unknown = OutcomeUnknown(
                "the node was ended while it carried out this call",
                remedy="look at what it has done before you ask again with a new key",
                key=seen.key,
            )
            answer: tuple[bool, Result] = False, CallFailed.of(unknown)
        elif seen.args.get("job"):
            answer = True, job_info(running)  # its start is the call, not its end
        else:
            ended: asyncio.Future[tuple[bool, Result]] = asyncio.get_running_loop().create_future()
            self._under_way[seen.key] = ended
            try:
                answer = await self._execs.ended(running, seen.args)
                self._written(seen.key, answer, {"request_id": seen.key, "op": seen.op})
                ended.set_result(answer)
                return
            finally:
                self._under_way.pop(seen.key, None)
                if not ended.done():
                    ended.cancel()
        self._written(seen.key, answer, {"request_id": seen.key, "op": seen.op})

    async def _keeper(self) -> Keep:
        """The keeper, started anew if it is gone."""
        async with self._keep_lock:
            if self._keep is not None:
                if not self._keep.lost.is_set():
                    return self._keep
                await self._keep.close()
            self._keep = await Keep.open(os.path.join(self._set.folder, "calls"))
            self._task(self._watch(self._keep))
            return self._keep

    async def _watch(self, keep: Keep) -> None:
        """What a keeper held must not go on when that was killed: the next one ends it."""
        await keep.lost.wait()
        with contextlib.suppress(HandoffError):  # a call says so
            await self._keeper()

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
