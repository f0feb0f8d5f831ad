"""All tasks of this machine: their actors, the queue and recovery."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import Any

from handoff.agentd import dispatching, outcome, turns
from handoff.agentd.actor import Actor
from handoff.agentd.core import EXECUTOR, Core
from handoff.agentd.dispatching import Accepted
from handoff.agentd.effects import Effects
from handoff.agentd.services import Services
from handoff.errors import ExecutorGone, Failed, HandoffError, StorageError, UnknownTask
from handoff.executors.contract import Fault, TurnEnded
from handoff.ids import check_prefix, resolve
from handoff.process import supervisor
from handoff.store.commit import Change
from handoff.store.sql import Q

log = logging.getLogger("handoff.machine")

#: seconds that an executor has to react to an interrupt before its process is ended
INTERRUPT_S = 5.0
#: tasks recovered at the same time
RECOVERY_WIDTH = 16
#: seconds that recovery waits for one task's shim
RECOVER_S = 10.0
#: seconds until a place that could not be given is given again
ADMIT_AGAIN_S = 1.0


class Machine:
    """The tasks of one data directory."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.actors: dict[str, Actor] = {}
        self.effects: dict[str, Effects] = {}
        self.recovering = True
        self.started = services.clock.monotonic()
        self.started_ms = services.clock.now_ms()
        #: where this agentd listens, as its endpoint file tells
        self.endpoint: dict[str, object] = {}
        self._admitted: set[str] = set()
        self._creating: dict[str, asyncio.Task[str]] = {}

    # -- life ----------------------------------------------------------------------------

    def load(self) -> None:
        """Make the actor of every task that is open or has something due. Before anybody
        is let in, so that no task can get two."""
        conn = self.services.store.reader()
        for query in ("tasks_open", "runs_not_ended", "outbox_tasks"):
            for (task_id,) in conn.execute(Q[query]).fetchall():
                if task_id not in self.actors:
                    self._make_actor(task_id)

    async def recover(self) -> None:
        """Take up every task where the last agentd left it."""
        width = asyncio.Semaphore(RECOVERY_WIDTH)

        async def one(actor: Actor) -> None:
            async with width:
                taking = asyncio.create_task(self._recover_task(actor))
                await asyncio.wait({taking}, timeout=RECOVER_S)
                if not taking.done():
                    # Its shim lives and does not answer: it is waited for beside the rest.
                    log.warning("the shim of task %s does not answer", actor.task_id)
                    taking.add_done_callback(_report)
                elif not taking.cancelled() and (error := taking.exception()) is not None:
                    log.error("task %s could not be taken up", actor.task_id, exc_info=error)
                actor.core.set_phase(_phase_after_restart(actor.core))
                self.effects[actor.task_id].start()

        await asyncio.gather(*(one(actor) for actor in list(self.actors.values())))

    def ready(self) -> None:
        """Recovery is over: new tasks may start."""
        self.recovering = False
        for accepted in dispatching.unfinished(self.services):
            self._begin_create(accepted)
        self.admit()

    async def close(self) -> None:
        """Let go of everything; executors live on."""
        for creating in self._creating.values():
            creating.cancel()
        for effects in self.effects.values():
            await effects.close()
        for actor in self.actors.values():
            await actor.close()

    async def _recover_task(self, actor: Actor) -> None:
        core = actor.core
        if core.task.state == "pending" and (
            core.effects or core.run is not None or core.task.workspace_state != "planned"
        ):
            self._admitted.add(actor.task_id)
        run = core.run
        if run is not None and run.state in ("alive", "ending"):
            await self._find_run(actor)

    async def _find_run(self, actor: Actor) -> None:
        """Find the executor that outlived the last agentd, or what it left."""
        run = actor.core.must_run()
        if actor.driver_fault:
            await actor.call(partial(_undrivable, why=actor.driver_fault))
            return
        run_dir = self.services.places.run_dir(actor.task_id, run.id)
        try:
            actor.follow(await supervisor.attach(run_dir, run.id))
            return
        except ExecutorGone:
            pass
        try:
            actor.follow(supervisor.remains(run_dir, run.id))
        except ExecutorGone as error:
            await actor.call(partial(turns.run_exited, code=None, why=error.cause))

    def _make_actor(self, task_id: str) -> Actor:
        actor = Actor(task_id, self.services)
        actor.on_commit = self._committed
        actor.start()
        self.actors[task_id] = actor
        self.effects[task_id] = Effects(actor)
        return actor

    def _committed(self, actor: Actor, change: Change) -> None:
        effects = self.effects.get(actor.task_id)
        if effects is not None:
            effects.committed(change)
        if change.task_changed:
            self.admit()

    # -- finding -------------------------------------------------------------------------

    def resolve(self, prefix: str) -> str:
        """The full id of the task that a prefix names.

        Raises:
            UnknownTask, AmbiguousId, UsageError
        """
        wanted = check_prefix(prefix)
        if wanted in self.actors:
            return wanted
        rows = self.services.store.reader().execute(
            Q["task_ids_by_prefix"], {"low": wanted, "high": wanted + "g"}
        )
        return resolve(wanted, [row[0] for row in rows.fetchall()], UnknownTask)

    def actor(self, task_id: str) -> Actor:
        """The actor of a task; one that is over gets one again while somebody needs it."""
        known = self.actors.get(task_id)
        if known is not None:
            return known
        actor = self._make_actor(task_id)
        self.effects[task_id].start()
        return actor

    def shims(self) -> dict[int, str]:
        """The pid of each live shim and its run."""
        return {
            a.shim.shim_pid: a.shim.run_id
            for a in self.actors.values()
            if a.shim is not None and a.core.run is not None and a.core.run.state != "ended"
        }

    def report_refused(self, run_id: str, what: str, pid: int) -> None:
        """A process of a run tried to act as coordinator: its task's coordinator learns."""
        for actor in self.actors.values():
            if actor.core.run is not None and actor.core.run.id == run_id:
                payload: dict[str, object] = {"call": what, "pid": pid}
                self._spawn(actor.call(partial(_refused, payload=payload)))

    async def interrupt(self, actor: Actor, who: str) -> None:
        """End the running turn by the executor's own protocol and, if it does not react,
        by ending its process.

        Raises:
            NotAllowed: no turn is running.
        """
        number = actor.core.must_turn().number
        await actor.call(lambda core: turns.interrupt(core, who))

        async def insist() -> None:
            await asyncio.sleep(INTERRUPT_S)
            await actor.call(lambda core: turns.insist(core, number))

        self._spawn(insist())

    async def resume(self, task_id: str, *, force: bool, who: str) -> dict[str, object]:
        """Look again at a task that seems stuck. Returns the report of the API."""
        actor = self.actor(task_id)
        core = actor.core
        unsent = [t for t in core.tickets.values() if t.state == "answered"]
        if core.run is not None and core.run.state in ("alive", "ending"):
            alive = actor.shim is not None and await actor.shim.alive()
            if not alive:
                await self._find_run(actor)
        gone = not actor.core.run_alive
        report: dict[str, object] = {
            "task": task_id,
            "redelivered": len(unsent) if not gone else 0,
            "executor_gone": gone,
            "reconciled": False,
            "turn_ended": False,
            "emitted": 0,
            "forced": False,
            "note": "",
        }
        if force and actor.state in ("running", "waiting_answer"):
            before = actor.core.task.last_seq
            await actor.call(partial(_force_review, who=who))
            report |= {"forced": True, "turn_ended": True}
            report["emitted"] = int(actor.core.task.last_seq > before)
        elif gone and actor.state in ("running", "waiting_answer"):
            report["note"] = "the executor is gone; its turn is being closed"
        return {**report, "state": actor.state}

    def settled(self, task_id: str) -> bool:
        """Whether nothing is due for the task."""
        effects = self.effects.get(task_id)
        return effects is None or effects.idle

    async def retire(self, actor: Actor) -> None:
        """A task that is over and has nothing left to do needs no actor."""
        self.actors.pop(actor.task_id, None)
        effects = self.effects.pop(actor.task_id)
        await effects.close()
        await actor.close()
        self._admitted.discard(actor.task_id)
        self.services.hub.forget(actor.task_id)

    # -- dispatch ------------------------------------------------------------------------

    async def dispatch(self, request_id: str, body: bytes, actor: str) -> str:
        """Accept a dispatch and make its task; the same key gives the same task.

        The task is made even if the caller goes away while it waits.

        Raises:
            HandoffError: what is wrong; under the same key always the same.
        """
        accepted = await dispatching.accept(self.services, request_id, body, actor)
        if accepted.state == "refused" and accepted.error is not None:
            raise accepted.error
        if accepted.state == "created":
            return accepted.task_id
        return await asyncio.shield(self._begin_create(accepted))

    def _begin_create(self, accepted: Accepted) -> asyncio.Task[str]:
        running = self._creating.get(accepted.request_id)
        if running is None:
            running = asyncio.create_task(self._create(accepted))
            # A caller that has gone does not look at the outcome; the database has it.
            running.add_done_callback(partial(self._created, accepted.request_id))
            self._creating[accepted.request_id] = running
        return running

    def _created(self, request_id: str, running: asyncio.Task[str]) -> None:
        self._creating.pop(request_id, None)
        if not running.cancelled() and (error := running.exception()):
            log.info("dispatch %s refused: %s", request_id, error)

    async def _create(self, accepted: Accepted) -> str:
        try:
            task_id = await dispatching.create(self.services, accepted)
        except HandoffError as error:
            await dispatching.refuse(self.services, accepted, error)
            raise
        except Exception as error:  # an unforeseen fault is an answer too, not a hung caller
            log.exception("dispatch %s", accepted.request_id)
            typed = Failed(f"agentd could not make the task: {type(error).__name__}: {error}")
            await dispatching.refuse(self.services, accepted, typed)
            raise typed from error
        self._make_actor(task_id)
        self.effects[task_id].start()
        self.admit()
        return task_id

    # -- queue ---------------------------------------------------------------------------

    @property
    def limit(self) -> int:
        """How many tasks may run at once."""
        return self.services.config.max_running or max(2, os.cpu_count() or 2)

    def running(self) -> int:
        """How many tasks run, or are being started."""
        return sum(1 for actor in list(self.actors.values()) if self._holds_place(actor))

    def _holds_place(self, actor: Actor) -> bool:
        if actor.state == "pending":
            return actor.task_id in self._admitted
        return actor.state in ("running", "waiting_answer")

    def queue(self) -> list[Actor]:
        """Tasks that wait for a place, first in line first. Other threads may ask."""
        waiting = [
            a
            for a in list(self.actors.values())
            if a.state == "pending" and a.task_id not in self._admitted
        ]
        return sorted(waiting, key=lambda a: a.core.task.number)

    def position(self, task_id: str) -> int | None:
        """The place in the queue, from 1, or None if the task does not wait."""
        for index, actor in enumerate(self.queue()):
            if actor.task_id == task_id:
                return index + 1
        return None

    def admit(self) -> None:
        """Give free places to those who wait."""
        if self.recovering:
            return
        free = self.limit - self.running()
        for index, actor in enumerate(self.queue()):
            if index < free:
                self._admitted.add(actor.task_id)
                self._spawn(self._admit(actor))
            elif actor.core.phase != "queued":
                actor.core.set_phase("queued")
                self._spawn(actor.call(partial(_queued, position=index + 1 - max(free, 0))))

    async def _admit(self, actor: Actor) -> None:
        try:
            await actor.call(turns.admit)
        except HandoffError as error:
            self._admitted.discard(actor.task_id)
            if isinstance(error, StorageError):
                asyncio.get_running_loop().call_later(ADMIT_AGAIN_S, self.admit)
            raise

    def _spawn(self, coroutine: object) -> None:
        task = asyncio.ensure_future(coroutine)  # type: ignore[call-overload]
        task.add_done_callback(_report)


def _refused(core: Core, *, payload: dict[str, object]) -> None:
    core.event("actor_refused", payload, EXECUTOR)


def _force_review(core: Core, *, who: str) -> None:
    """Close the turn whatever the executor does, and keep its session."""
    core.event("progress", {"text": "the coordinator closed the turn by force"}, who)
    turns.end_run(core)
    state = core.must_turn().state
    if state == "asking":
        outcome.close_turn(core, "closed by the coordinator with a question open")
    elif state == "verifying":
        why = "closed by the coordinator before it was verified"
        core.give_up_effects(frozenset({"verify"}), why)
        outcome.close_turn(core, why)
    else:
        turns.drop_guidance(core, "the turn was closed by force")
        fault = Fault(code="cancelled", message="closed by force")
        turns.turn_rested(core, TurnEnded(text="", fault=fault))


def _undrivable(core: Core, *, why: str) -> None:
    """A process lives that this agentd can't talk to: it is ended, and its turn with it."""
    turns.end_run(core)
    turns.drop_guidance(core, "the executor can't be followed any more")
    message = f"the executor can't be followed any more: {why}"
    turns.turn_rested(core, TurnEnded(text="", fault=Fault(code="protocol", message=message)))


def _queued(core: Core, *, position: int) -> None:
    core.event("queue_changed", {"position": position})


def _phase_after_restart(core: Core) -> str:
    if core.open_tickets():
        return "waiting"
    if core.task.state in ("running", "waiting_answer"):
        return "model"
    return "idle"


def _report(task: asyncio.Future[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("%s", error, exc_info=None if isinstance(error, HandoffError) else error)
