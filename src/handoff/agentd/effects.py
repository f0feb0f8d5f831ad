"""What has to be done after a commit: one row of the outbox at a time, in order, until done.

Each effect may be carried out again after a crash, so each of them first looks at what is
there already: a worktree that exists, a shim that lives, a tree that is empty. What it
brings back is an input of the task's actor.

========== ============================================================================
prepare    make the workspace (worktree or branch), copy files, run the set-up command
start_run  start the executor under its shim, begin the handshake
verify     look at git, run the verify commands
end_run    end the executor with all its descendants
cleanup    remove the managed worktree, or go back to the previous branch
========== ============================================================================

The set-up command and the verify commands are the two that may run a second time if the
machine goes down in the middle of them; both are the user's own and said to be repeatable.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from handoff.agentd import outcome, turns
from handoff.agentd.core import Core, clip
from handoff.agentd.launching import Started, launch_run
from handoff.agentd.workspaces import own_work, plan_of
from handoff.config import setup_of
from handoff.crashpoints import reach
from handoff.errors import ExecutorGone, Failed, HandoffError
from handoff.executors.turn import Claim, parse_trailer
from handoff.ids import short
from handoff.process import supervisor
from handoff.process.command import CommandResult, run_command
from handoff.process.contract import Proc
from handoff.store.commit import Change
from handoff.store.records import EffectRow, RunRow, TaskRow
from handoff.store.sql import Q
from handoff.workspace import refs, removal, setup, state, verify, worktree
from handoff.workspace.contract import Finding, Removal

if TYPE_CHECKING:
    from handoff.agentd.actor import Actor

log = logging.getLogger("handoff.effects")

#: how often a failing clean-up is tried before it is left to `handoff reclaim`
ATTEMPTS = 5
#: new processes tried in one go when one dies before it could be spoken to
FRESH_STARTS = 3
#: findings after which the verify commands are worth running
PASSING = frozenset({"verified", "no_commit_claimed"})
#: seconds an executor has between being asked to end and being killed
GRACE_S = 2.0
#: seconds before an effect whose failure could not even be recorded is tried again
PAUSE_S = 1.0
#: seconds that a shim may take to answer before it is ended from outside
ATTACH_S = 5.0
#: seconds that the journal's last records may take after the process has ended
DRAIN_S = 10.0
#: characters of a command's output that its event keeps
TAIL = 2000


class Effects:
    """Carries out the due effects of one task."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self._news = asyncio.Event()
        self._current: tuple[int, asyncio.Task[None]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._fresh_starts = 0

    def start(self) -> None:
        """Begin with what is due."""
        self._news.set()
        self._task = asyncio.create_task(self._loop(), name=f"effects-{self.actor.task_id[:8]}")

    async def close(self) -> None:
        """Stop; what is unfinished stays due."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def idle(self) -> bool:
        """Whether nothing is due."""
        return not self.actor.core.effects and self._current is None

    def committed(self, change: Change) -> None:
        """The actor has committed: there may be news, or the current effect was given up."""
        if self._current is not None:
            effect_id, running = self._current
            if any(one == effect_id and state == "given_up" for one, state, _ in change.settled):
                running.cancel()
        self._news.set()

    async def _loop(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self.actor.core.effects:
                effect = self.actor.core.effects[0]
                running = asyncio.create_task(self._carry_out(effect))
                self._current = (effect.id, running)
                try:
                    await asyncio.wait({running})
                except asyncio.CancelledError:
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                    raise
                finally:
                    self._current = None
                if not running.cancelled() and running.exception() is not None:
                    # Not even the failure could be recorded: the disk is full, say.
                    log.warning("effect %s: %s", effect.kind, running.exception())
                    await asyncio.sleep(PAUSE_S)
            self.actor.services.hub.channel(self.actor.task_id).wake()

    async def _carry_out(self, effect: EffectRow) -> None:
        reach(f"effect.before.{effect.kind}")
        try:
            await self._perform(effect)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a fault must not stop the task's other effects for ever
            log.exception("effect %s of task %s", effect.kind, self.actor.task_id)
            await self._failed(effect, error)

    async def _failed(self, effect: EffectRow, error: Exception) -> None:
        effect.attempts += 1
        text = clip(f"{type(error).__name__}: {error}", 500)
        if effect.attempts < ATTEMPTS:
            await self.actor.call(lambda core: core.change.failed_once.append((effect.id, text)))
            await asyncio.sleep(min(2.0**effect.attempts * 0.25, 10.0))
            return
        await self.actor.call(partial(_give_up, effect=effect, text=text))

    async def _perform(self, effect: EffectRow) -> None:
        payload = json.loads(effect.payload)
        match effect.kind:
            case "prepare":
                await self._prepare(effect)
            case "start_run":
                await self._start_run(effect, str(payload["run_id"]))
            case "verify":
                await self._verify(effect)
            case "end_run":
                await self._end_run(effect, str(payload["run_id"]))
            case "cleanup":
                await self._cleanup(effect, discard=bool(payload.get("discard")))
            case _:
                raise Failed(f"this version knows no effect '{effect.kind}'")

    # -- prepare -------------------------------------------------------------------------

    async def _prepare(self, effect: EffectRow) -> None:
        actor = self.actor
        plan = plan_of(actor.core.task)
        try:
            await asyncio.to_thread(worktree.create, plan)
            reach("prepare.created")
            if plan.kind == "managed" and actor.core.task.use_setup:
                await self._set_up(plan.work_dir, plan.project.root)
            head = await asyncio.to_thread(state.head_of, plan.work_dir)
        except HandoffError as error:
            await actor.call(
                lambda core, e=error: turns.start_failed(core, effect.id, e)  # type: ignore[misc]
            )
            return
        await actor.call(lambda core: turns.prepared(core, effect.id, head, []))

    async def _set_up(self, work_dir: str, root: str) -> None:
        wanted = setup_of(self.actor.services.config, self.actor.core.task.project_name)
        if wanted.copy:
            copied = await asyncio.to_thread(setup.copy_files, root, work_dir, wanted.copy)
            await self.actor.call(
                lambda core: core.event("setup", {"step": "copy", "files": list(copied)[:100]})
            )
        if not wanted.command:
            return
        await self.actor.call(
            lambda core: core.event("setup", {"step": "command", "command": wanted.command})
        )
        result = await self._command(wanted.command, work_dir, wanted.timeout)
        facts = _command_facts(wanted.command, result)
        await self.actor.call(lambda core: core.event("setup", {"step": "ended", **facts}))
        if result.exit_code != 0:
            raise Failed(
                f"the set-up command '{wanted.command}' failed ({_how(result)}): "
                f"{facts['tail'] or 'no output'}",
                remedy="mend setup.command in the configuration, or dispatch with --no-setup",
            )

    async def _command(self, command: str, cwd: str, timeout_s: float) -> CommandResult:
        services = self.actor.services
        return await run_command(
            command,
            cwd=cwd,
            env={**services.environ, "PATH": services.search_path},
            timeout_s=timeout_s,
            limit_bytes=services.config.limits.run_output,
        )

    # -- the executor's process ----------------------------------------------------------

    async def _start_run(self, effect: EffectRow, run_id: str) -> None:
        actor = self.actor
        run = actor.core.run
        if run is None or run.id != run_id or run.state != "intended":
            await actor.call(lambda core: core.settle_effect(effect.id))
            return
        try:
            started = await self._launched(run)
        except ExecutorGone as error:
            self._fresh_starts += 1
            again = self._fresh_starts < FRESH_STARTS
            await actor.call(partial(_start_again, effect=effect, error=error, again=again))
            return
        except HandoffError as error:
            await actor.call(partial(_start_failed, effect=effect, error=error))
            return
        self._fresh_starts = 0
        reach("start_run.started")
        await actor.call(
            lambda core: turns.run_started(
                core, effect.id, started.driver, started.session, started.facts
            )
        )
        actor.follow(started.shim)
        await self._drop_old_runs(run_id)

    async def _launched(self, run: RunRow) -> Started:
        """The run's process. If that is given up meanwhile, it is waited for all the same:
        a shim that is not there yet could not be found by those who have to end it."""
        launching = asyncio.create_task(launch_run(self.actor.services, self.actor.core.task, run))
        try:
            return await asyncio.shield(launching)
        except asyncio.CancelledError:
            await asyncio.wait({launching})
            if not launching.cancelled() and launching.exception() is None:
                await launching.result().shim.close()
            raise

    async def _drop_old_runs(self, run_id: str) -> None:
        """Journals of earlier processes are in the database; their files can go."""
        actor = self.actor
        rows = actor.services.store.reader().execute(Q["run_ids"], {"task_id": actor.task_id})
        for old, state_name in rows.fetchall():
            if old != run_id and state_name == "ended":
                run_dir = actor.services.places.run_dir(actor.task_id, old)
                await asyncio.to_thread(shutil.rmtree, run_dir, ignore_errors=True)

    async def _end_run(self, effect: EffectRow, run_id: str) -> None:
        actor = self.actor
        run_dir = actor.services.places.run_dir(actor.task_id, run_id)
        left = await end_processes(run_id, run_dir)
        reach("end_run.ended")
        if left:
            names = ", ".join(f"{p.pid} ({p.command})" for p in left[:5])
            raise Failed(f"processes of the task are still alive: {names}")
        await actor.drained(DRAIN_S)
        await actor.call(partial(_run_is_gone, effect=effect, run_id=run_id))

    # -- the end of a turn ---------------------------------------------------------------

    async def _verify(self, effect: EffectRow) -> None:
        actor, task, turn = self.actor, self.actor.core.task, self.actor.core.must_turn()
        trailer = parse_trailer(turn.final_text)
        claim = None
        if isinstance(trailer, Claim):
            claim = {"branch": trailer.branch, "commit": trailer.commit}
        try:
            finding = await asyncio.to_thread(
                verify.verify_claim,
                task.work_dir,
                task.repo_path,
                task.branch,
                turn.start_head,
                claim,
            )
        except HandoffError as error:
            finding = Finding(code="git_failed", why=error.cause, head="", branch="", commits=0)
        checks: list[dict[str, object]] = []
        if turn.fault is None and claim is not None and finding.code in PASSING:
            checks = await self._run_checks(json.loads(task.verify), task.work_dir)
        if finding.head and task.base_commit:
            finding = await asyncio.to_thread(_keep_range, task, finding, turn.start_head)
        reach("verify.looked")
        result = {"found": json.loads(json.dumps(asdict(finding))), "verify": checks}
        await actor.call(lambda core: outcome.verified(core, effect.id, result))

    async def _run_checks(self, commands: list[str], cwd: str) -> list[dict[str, object]]:
        facts = []
        for command in commands:
            await self.actor.call(
                lambda core, c=command: core.event(  # type: ignore[misc]
                    "verify", {"command": c, "state": "began"}
                )
            )
            limit = self.actor.services.config.verify_timeout
            result = await self._command(command, cwd, limit)
            fact = _command_facts(command, result)
            facts.append(fact)
            await self.actor.call(
                lambda core, f=fact: core.event("verify", {"state": "ended", **f})  # type: ignore[misc]
            )
        return facts

    # -- the end of a task ---------------------------------------------------------------

    async def _cleanup(self, effect: EffectRow, *, discard: bool) -> None:
        actor = self.actor
        plan = plan_of(actor.core.task)
        try:
            if plan.kind == "managed" or discard:
                act = removal.discard if discard else removal.remove
                ended = await asyncio.to_thread(act, plan)
            else:
                ended = await asyncio.to_thread(removal.restore, plan)
        except HandoffError as error:
            ended = Removal("kept", plan.work_dir, "repo_unreachable", note=error.cause)
        # Sessions and journals serve a task that can go on; this one can't any more.
        await asyncio.to_thread(
            shutil.rmtree, actor.services.places.task_dir(actor.task_id), ignore_errors=True
        )
        reach("cleanup.cleaned")
        await actor.call(partial(_cleaned, effect=effect, ended=ended))


def _keep_range(task: TaskRow, finding: Finding, start_head: str) -> Finding:
    """Keep what is the task's own, so that it can be shown whatever becomes of the branch;
    the finding, with no more commits than those."""
    try:
        span = own_work(task, finding.head)
        refs.record_refs(task.repo_path, task.id, span.base, span.head)
        return verify.leave_out(finding, task.repo_path, start_head, span.shared)
    except HandoffError as error:
        # The branch still has the work; only a diff after its removal would miss it.
        log.warning("task %s: %s", task.id, error)
        return finding


async def end_processes(run_id: str, run_dir: Path) -> list[Proc]:
    """End the run's executor with everything it started, through its shim or, where the
    shim is gone, without. Returns what could not be ended."""
    try:
        async with asyncio.timeout(ATTACH_S):
            handle = await supervisor.attach(run_dir, run_id)
    except (ExecutorGone, TimeoutError):  # gone, or it does not answer
        return await supervisor.sweep(run_id, run_dir, grace_s=GRACE_S)
    try:
        left = await handle.end(GRACE_S)
    except ExecutorGone:
        left = await supervisor.sweep(run_id, run_dir, grace_s=GRACE_S)
    finally:
        await handle.close()
    return left


def _start_failed(core: Core, *, effect: EffectRow, error: HandoffError) -> None:
    turns.start_failed(core, effect.id, error)


def _start_again(core: Core, *, effect: EffectRow, error: HandoffError, again: bool) -> None:
    """The process died before it could be spoken to: nothing was asked of it yet, so a
    fresh one may take its prompt."""
    if not again:
        turns.start_failed(core, effect.id, error)
        return
    core.settle_effect(effect.id, "given_up", error.cause)
    if core.must_run().state != "intended":
        return  # given up meanwhile
    prompt = core.must_run().pending_prompt
    core.effect("end_run", run_id=core.must_run().id)  # what its shim may have left
    core.move_run("start_failed")
    turns.begin_run(core, prompt)


def _run_is_gone(core: Core, *, effect: EffectRow, run_id: str) -> None:
    core.settle_effect(effect.id)
    if core.run is None or core.run.id != run_id:
        core.change.runs_over.append(run_id)
    elif core.run.state == "ending":
        turns.run_exited(core, core.run.exit_code)


def _cleaned(core: Core, *, effect: EffectRow, ended: Removal) -> None:
    core.settle_effect(effect.id)
    if ended.action != "kept":
        core.task.workspace_state = "gone"
        core.change.task_changed = True
        return
    told = f"{ended.work_dir} was kept ({ended.reason})"
    core.event(
        "progress",
        {
            "text": f"{told}: {ended.note}" if ended.note else told,
            "kept": ended.work_dir,
            "reason": ended.reason,
            "entries": [f"{status} {path}" for status, path in ended.entries[:20]],
            "remedy": f"handoff reclaim {short(core.task.id)} --force",
        },
    )


def _give_up(core: Core, *, effect: EffectRow, text: str) -> None:
    core.settle_effect(effect.id, "given_up", text)
    core.event("progress", {"text": f"'{effect.kind}' did not work and was given up: {text}"})
    if effect.kind == "verify" and core.turn is not None and core.turn.state == "verifying":
        finding = Finding(code="git_failed", why=text, head="", branch="", commits=0)
        found = json.loads(json.dumps(asdict(finding)))
        outcome.verified(core, effect.id, {"found": found, "verify": []})
    elif effect.kind in ("prepare", "start_run"):
        turns.start_failed(core, effect.id, Failed(text))


def _how(result: CommandResult) -> str:
    return "timed out" if result.timed_out else f"exit {result.exit_code}"


def _command_facts(command: str, result: CommandResult) -> dict[str, object]:
    tail = (result.tail_out + result.tail_err)[-TAIL:]
    text = tail.decode(errors="replace") if isinstance(tail, bytes) else tail
    return {
        "command": command,
        "exit_code": result.exit_code,
        "timed_out": result.timed_out,
        "seconds": round(result.seconds, 3),
        "tail": text.strip(),
    }


def removal_json(ended: Removal) -> dict[str, object]:
    """How the removal of a worktree ended, for an answer."""
    return {
        "action": ended.action,
        "work_dir": ended.work_dir,
        "reason": ended.reason,
        "note": ended.note,
        "entries": [{"status": status, "path": path} for status, path in ended.entries],
    }
