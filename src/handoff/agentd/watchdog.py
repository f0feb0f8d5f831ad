"""Looks at every task now and then: silent ones are reported, idle executors ended, tasks
that are over let go of.

What silence means depends on the phase. While a tool runs, nobody expects the executor to
speak, and the limit is long; while only the model is waited for, it is short; while a
person is waited for, there is none. A report says what is known: the phase, the tool, since
when, and which processes wait. It is repeated after another limit without a sign of life.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from typing import TYPE_CHECKING

from handoff.agentd import turns
from handoff.agentd.core import Core
from handoff.clock import iso
from handoff.ids import short
from handoff.lifecycle import terminal
from handoff.process.contract import Proc
from handoff.store.sql import Q

if TYPE_CHECKING:
    from handoff.agentd.actor import Actor
    from handoff.agentd.machine import Machine
    from handoff.agentd.services import Services
    from handoff.config import Config

log = logging.getLogger("handoff.watchdog")

#: seconds between two looks; less where a limit is shorter than a few of them
TICK_S = 5.0
#: seconds that a look at one task's processes may take
LOOK_S = 5.0
#: seconds that an executor at rest is kept, so that `continue` needs no new process
IDLE_EXECUTOR_S = 900.0
#: milliseconds that idempotency keys are kept
KEYS_KEPT_MS = 24 * 3600 * 1000
#: seconds that the clock may step back unnoticed (time servers correct by less)
CLOCK_SLACK_S = 60.0
#: waiting processes that a report names, each with those that wait for it
PROCESSES_NAMED = 10


class Watchdog:
    """The watchdog of one machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.clock = machine.services.clock
        self._told: dict[str, float] = {}
        clock_behind(machine.services)
        self._offset = self._wall_offset()
        self._forgot_ms = 0

    async def watch(self) -> None:
        """Look for ever."""
        config = self.machine.services.config
        pause = min(TICK_S, stall_limit(config, "model") / 4, stall_limit(config, "tool") / 4)
        while True:
            await asyncio.sleep(pause)
            for actor in list(self.machine.actors.values()):
                try:
                    await self.look_at(actor)
                except Exception:  # the watchdog outlives whatever it finds
                    log.exception("task %s", actor.task_id)
            self._check_clock()
            try:
                await self._forget_keys()
            except Exception:  # a full disk must not end the watch
                log.exception("old keys")

    def _wall_offset(self) -> float:
        return self.clock.now_ms() / 1000 - self.clock.monotonic()

    def _check_clock(self) -> None:
        """Say it when somebody sets the clock back. Nothing depends on it: order is by
        number, limits are measured on a clock that can't be set."""
        offset = self._wall_offset()
        back = self._offset - offset
        self._offset = offset
        if back > CLOCK_SLACK_S:
            warn_clock(self.machine.services, back)

    async def look_at(self, actor: Actor) -> None:
        """Do what one task needs."""
        core = actor.core
        idle_s = self.clock.monotonic() - actor.last_activity
        if terminal(actor.state):
            channel = self.machine.services.hub.channel(actor.task_id)
            idle = self.machine.effects[actor.task_id].idle
            if idle and actor.idle and not channel.subscribers and idle_s > TICK_S:
                self._told.pop(actor.task_id, None)
                await self.machine.retire(actor)
        elif actor.state == "waiting_review":
            if core.run_alive and idle_s > IDLE_EXECUTOR_S:
                await actor.call(_end_idle)
        else:
            await self._check_stall(actor, idle_s)

    async def _check_stall(self, actor: Actor, idle_s: float) -> None:
        core = actor.core
        if actor.state != "running" or core.phase not in ("model", "tool", "starting"):
            return
        limit = stall_limit(self.machine.services.config, core.phase)
        now = self.clock.monotonic()
        if idle_s < limit or now - self._told.get(actor.task_id, now - limit) < limit:
            return
        self._told[actor.task_id] = now
        procs: list[Proc] = []
        if actor.shim is not None:
            with contextlib.suppress(TimeoutError):  # told without them
                async with asyncio.timeout(LOOK_S):
                    procs = await actor.shim.tree()
        payload: dict[str, object] = {
            "phase": core.phase,
            "detail": core.phase_detail,
            "since": iso(self.clock.now_ms() - round(idle_s * 1000)),
            "idle_s": round(idle_s),
            "idle": duration(idle_s),
            "last_seq": core.task.last_seq,
            "processes": [_proc(p) for p in waiting(procs)],
            "hint": f"handoff attach {short(actor.task_id)}",
        }
        await actor.call(lambda core: core.event("stalled", payload))

    async def _forget_keys(self) -> None:
        now = self.clock.now_ms()
        if abs(now - self._forgot_ms) < KEYS_KEPT_MS // 24:
            return
        self._forgot_ms = now

        def forget(conn: sqlite3.Connection) -> None:
            for query in ("dispatches_forget", "requests_forget"):
                conn.execute(Q[query], {"before": now - KEYS_KEPT_MS})

        await self.machine.services.store.write(forget)


def clock_behind(services: Services) -> float:
    """Seconds by which the clock is behind the newest event on record; says so if that is
    more than a little."""
    row = services.store.reader().execute(Q["event_newest_time"]).fetchone()
    behind = 0.0 if row is None else (int(row[0]) - services.clock.now_ms()) / 1000
    if behind > CLOCK_SLACK_S:
        warn_clock(services, behind)
    return behind


def warn_clock(services: Services, seconds: float) -> None:
    """The clock of the machine was set back."""
    text = (
        f"the clock was set back by {duration(seconds)}: times on record are later than now; "
        "the order of events is by their numbers and holds"
    )
    if text not in services.warnings:
        services.warnings.append(text)
    log.warning("%s", text, extra={"action": "clock_set_back"})


def stall_limit(config: Config, phase: str) -> float:
    """Seconds of silence after which a task in that phase is reported."""
    if phase == "tool":
        return config.stalltimeout
    return min(config.stalltimeout, config.stallmodel)


def waiting(procs: list[Proc]) -> list[Proc]:
    """What the executor waits for: the youngest leaves of its tree (they are what is really
    waited for), each after the processes that wait for it in turn. The executor itself is
    left out unless there is nothing else."""
    known = {p.pid: p for p in procs}
    parents = {p.ppid for p in procs}
    leaves = sorted((p for p in procs if p.pid not in parents), key=lambda p: p.age_s)
    chosen: dict[int, Proc] = {}
    for leaf in leaves[:PROCESSES_NAMED]:
        chain = [leaf]
        while (parent := known.get(chain[-1].ppid)) is not None and parent not in chain:
            chain.append(parent)
        # The last one is the executor, or an orphan that lost its parents.
        for proc in reversed(chain[:-1] or chain):
            chosen.setdefault(proc.pid, proc)
    below = [p for p in chosen.values() if p.ppid in known]
    return below or list(chosen.values())


def duration(seconds: float) -> str:
    """Seconds as ``1h2m`` or ``3m4s`` or ``5s``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _end_idle(core: Core) -> None:
    """End an executor that rests; its session is loaded again when it is needed."""
    if core.task.state == "waiting_review":
        turns.end_run(core)


def _proc(proc: Proc) -> dict[str, object]:
    return {"pid": proc.pid, "ppid": proc.ppid, "command": proc.command, "age_s": round(proc.age_s)}
