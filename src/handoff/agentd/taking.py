"""One record of an executor's journal: what it means for the task.

Called by the task's actor, which commits what comes of it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from handoff.agentd import tickets, turns
from handoff.agentd.core import Core
from handoff.agentd.journal import LineReader
from handoff.executors import contract
from handoff.executors.contract import PermissionAsked
from handoff.gate.examine import examine
from handoff.process.contract import Record, Shim
from handoff.store.sql import Q

if TYPE_CHECKING:
    from handoff.agentd.actor import Actor

log = logging.getLogger("handoff.actor")


async def take_record(actor: Actor, lines: LineReader, record: Record) -> None:
    """Take one record of the newest run's journal: change the core, commit nothing."""
    core = actor.core
    match record.kind:
        case "stdout":
            for line in lines.feed(record.offset, record.end, record.data):
                await _take_line(actor, line)
            if lines.oversized and core.run_alive:
                limit = actor.services.config.limits.line
                turns.too_large(core, lines.oversized, limit)
                core.save_driver()
        case "stderr":
            run = core.touch_run()
            redact = actor.services.redact_text
            run.stderr_tail = lines.errors.feed(record.data, run.stderr_tail, redact)
        case "exited":
            code = int(record.data.decode() or "0")
            turns.run_exited(core, code)
        case "pressure":
            core.event("resource_pressure", {"used": int(record.data.decode() or "0")})
        case "swept":
            count = int(record.data.decode() or "0")
            if count:
                text = f"{count} processes that the executor left behind were ended"
                core.event("progress", {"text": text})
        case _:
            pass
    lines.passed(record.end)
    actor.last_activity = actor.services.clock.monotonic()


async def _take_line(actor: Actor, line: bytes) -> None:
    core = actor.core
    if core.driver is None:
        return
    try:
        outputs = core.driver.feed(line)
    except Exception as error:  # a driver's fault costs its line, not the task
        log.exception("driver of task %s", actor.task_id)
        outputs = [contract.Unrecognised(f"{type(error).__name__} in the driver")]
    for output in outputs:
        if isinstance(output, contract.Send):
            core.send(output.data)
        elif isinstance(output, PermissionAsked):
            await _take_permission(actor, output)
        else:
            turns.take(core, [output])
    core.save_driver()


async def _take_permission(actor: Actor, asked: PermissionAsked) -> None:
    core = actor.core
    if core.terminal or not core.turn_open:
        # Nobody will rule on it any more: the executor must not wait for ever.
        core.command(lambda driver: driver.command(contract.Deny(asked.id, "the turn is over")))
        return
    if core.must_turn().state == "starting":
        core.move_turn("executor_took_prompt")
    examined = await asyncio.to_thread(examine, asked, work_dir=core.task.work_dir)
    granted = _grant(actor, core, examined.fingerprint) if examined.reusable else None
    tickets.open_gate(core, asked, examined, granted)


def _grant(actor: Actor, core: Core, fingerprint: str) -> str | None:
    for ticket in core.tickets.values():
        if ticket.fingerprint == fingerprint and ticket.state == "open":
            return None
    where = {"task_id": core.task.id, "fingerprint": fingerprint}
    row = actor.services.store.reader().execute(Q["grant_find"], where).fetchone()
    return str(row[1]) if row else None


def sent(core: Core, *, run_id: str, number: int, ticket_id: str | None) -> None:
    """The shim has written an input."""
    core.change.sent.append((run_id, number))
    if ticket_id is not None:
        tickets.delivered(core, ticket_id)


def run_gone(core: Core, *, run_id: str, why: str) -> None:
    """A run's journal has come to its end."""
    if core.run is not None and core.run.id == run_id:
        turns.run_exited(core, None, why)


def gone(shim: Shim, exited: bool) -> str:
    """Why a run is over whose journal says nothing of it, or "" if it does."""
    return "" if exited else f"the shim of the executor (pid {shim.shim_pid}) died without a word"
