"""Turns: how they begin, what the executor says in them, and how they come to rest.

When the executor rests, its last message is searched for a trailer; a question opens a
ticket, anything else has git and the verify commands looked at (the ``verify`` effect)
before :mod:`handoff.agentd.outcome` says what the end means.
"""

from __future__ import annotations

import json

from handoff.agentd import tickets
from handoff.agentd.core import (
    AGENTD,
    EVENT_TEXT,
    EXECUTOR,
    Core,
    clip,
    count_unrecognised,
    error_payload,
    fault_json,
)
from handoff.agentd.journal import STDERR_TAIL
from handoff.agentd.outcome import end_turn, fail_turn
from handoff.errors import HandoffError, NotAllowed
from handoff.executors import contract
from handoff.executors.contract import Driver, Fault, Interrupt, Output, Prompt, Session
from handoff.executors.turn import Ask, Claim, guidance, parse_trailer
from handoff.ids import short
from handoff.store.records import RunRow, TurnRow

#: effects that only make sense while the turn that asked for them is open
TURN_EFFECTS = frozenset({"prepare", "start_run", "verify"})

WORKING = frozenset({"starting", "working"})


# -- beginning ---------------------------------------------------------------------------


def admit(core: Core) -> None:
    """The machine has a place for the task: make its workspace."""
    if core.task.state != "pending":
        return  # stopped while it waited
    core.effect("prepare")
    core.set_phase("starting", "making the workspace")


def prepared(core: Core, effect_id: int, start_head: str, notes: list[str]) -> None:
    """The workspace is there."""
    core.settle_effect(effect_id)
    if core.terminal:
        return  # stopped meanwhile: its clean-up is due
    core.task.workspace_state = "ready"
    core.change.task_changed = True
    core.touch_turn().start_head = start_head
    for note in notes:
        core.event("progress", {"text": note})
    begin_run(core, core.prompt(core.must_turn().number))


def begin_run(core: Core, prompt: str) -> None:
    """Intend a new process of the executor, with that prompt as its first."""
    run = RunRow(
        id=core.clock.new_id(),
        task_id=core.task.id,
        state="intended",
        created_at=core.clock.now_ms(),
        pending_prompt=prompt,
    )
    core.run = run
    core.driver = None
    core.tools.clear()
    core.touch_run()
    core.touch_turn().run_id = run.id
    core.effect("start_run", run_id=run.id)
    core.set_phase("starting", "starting the executor")


def run_started(
    core: Core, effect_id: int, driver: Driver, session: Session, facts: dict[str, str]
) -> None:
    """The process runs: begin the handshake.

    A resumed session must first show whether its context is still there, so its prompt is
    held back until :class:`~handoff.executors.contract.SessionReady`.
    """
    core.settle_effect(effect_id)
    if core.must_run().state != "intended":
        return  # given up meanwhile: it gets no prompt, and its end is due
    core.driver = driver
    core.move_run("started")
    core.task.executor_path = facts.get("path", "")
    core.task.executor_version = facts.get("version", core.task.executor_version)
    core.change.task_changed = True
    if core.task.state == "pending":
        core.move_task("executor_took_plan")
    take(core, core.command(lambda d: d.open(session)))
    if session.resume is None:
        _flush_prompt(core)


def start_failed(core: Core, effect_id: int, error: HandoffError) -> None:
    """The workspace or the process could not be made. A task that never ran is over; one
    that ran before rests in review."""
    core.settle_effect(effect_id, "given_up", clip(error.cause, 500))
    if core.run is not None and core.run.state != "ended":
        core.move_run("start_failed" if core.run.state == "intended" else "ended")
        core.effect("end_run", run_id=core.run.id)  # what a dead shim may have left
    if core.task.state != "pending":
        fail_turn(core, Fault(code="start", message=error.cause), error)
        return
    end_turn(core, {"code": error.code})
    core.move_task("start_failed")
    tickets.void_all(core, "the task could not be started")
    core.event("failed", {**error_payload(error), "fail_reason": clip(error.cause)})
    core.effect("cleanup", discard=True)
    core.set_phase("idle")


def send_prompt(core: Core, text: str, ticket_id: str | None = None) -> None:
    """Give the executor a prompt, by a new process where none is left."""
    if core.run_alive:
        take(core, core.command(lambda driver: driver.command(Prompt(text)), ticket_id))
        core.set_phase("model")
    else:
        begin_run(core, text)


def _flush_prompt(core: Core) -> None:
    run = core.must_run()
    text = run.pending_prompt
    if not text:
        return
    run.pending_prompt = ""
    answered = [t for t in core.tickets.values() if not t.ask_id and t.state == "answered"]
    ticket_id = answered[-1].id if answered else None
    take(core, core.command(lambda driver: driver.command(Prompt(text)), ticket_id))
    core.set_phase("model")


def continue_(core: Core, text: str, start_head: str, actor: str) -> None:
    """The coordinator has more to say: the next turn.

    Raises:
        BadTransition: the task does not rest in review.
    """
    core.move_task("continued")
    number = core.must_turn().number + 1
    core.turn = TurnRow(
        task_id=core.task.id,
        number=number,
        state="starting",
        actor=actor,
        started_at=core.clock.now_ms(),
        start_head=start_head,
        run_id=core.run.id if core.run else "",
    )
    core.touch_turn()
    core.change.prompts.append((number, text))
    core.event("continued", {"turn": number, "instructions": clip(text, EVENT_TEXT)}, actor)
    core.frame("prompt", {"text": text, "actor": actor})
    send_prompt(core, text)


# -- what the driver says ------------------------------------------------------------------


def take(core: Core, outputs: list[Output]) -> None:
    """Take observations that need nothing from outside (permissions need an examination
    first: the actor calls :func:`handoff.agentd.tickets.open_gate` for those)."""
    for output in outputs:
        match output:
            case contract.Text():
                kind = "thought" if output.thought else "text"
                core.text_frame(kind, output.text, output.parent)
                _working(core)
            case contract.ToolCall():
                _tool(core, output)
            case contract.QuestionAsked():
                _working(core)
                tickets.open_question(core, output)
            case contract.AskClosed():
                tickets.closed(core, output)
            case contract.TurnEnded():
                turn_rested(core, output)
            case contract.PromptTaken():
                _working(core)
            case contract.SessionReady():
                _session_ready(core, output)
            case contract.StartFailed():
                _start_failed(core, output)
            case _:
                _take_minor(core, output)


def _take_minor(core: Core, output: Output) -> None:
    match output:
        case contract.Retrying():
            told = f"attempt {output.attempt}" + (f" of {output.limit}" if output.limit else "")
            core.frame("retry", {"attempt": output.attempt, "reason": output.reason})
            core.event(
                "progress",
                {
                    "text": f"the executor tries its model again ({told}): {clip(output.reason, 500)}",
                    "attempt": output.attempt,
                    "limit": output.limit,
                    "delay_s": output.delay_s,
                },
                EXECUTOR,
            )
        case contract.PlanChanged():
            steps: list[object] = [{"text": s.text, "status": s.status} for s in output.steps]
            core.frame("plan", {"steps": steps})
        case contract.UsageSeen():
            core.frame(
                "usage",
                {
                    "input_tokens": output.input_tokens,
                    "output_tokens": output.output_tokens,
                    "cost_usd": output.cost_usd,
                },
            )
        case contract.Noticed():
            core.frame("notice", {"text": output.text})
        case contract.Unrecognised():
            if count_unrecognised(core.touch_run(), output.what) == 1:
                core.event(
                    "unrecognised",
                    {"what": clip(output.what, 200), "sample": clip(output.sample, 200)},
                    EXECUTOR,
                )
        case _:
            raise AssertionError(f"no place for {type(output).__name__}")


def _working(core: Core) -> None:
    """The executor acts on its prompt."""
    if core.turn is not None and core.turn.state == "starting":
        core.move_turn("executor_took_prompt")
    tickets.acknowledge_left_questions(core)
    if core.phase in ("starting", "idle"):
        core.set_phase("model")


def _tool(core: Core, call: contract.ToolCall) -> None:
    _working(core)
    data: dict[str, object] = {"id": call.id, "status": call.status}
    for name in ("kind", "title", "command", "input", "output", "parent"):
        value = getattr(call, name)
        if value is not None:
            data[name] = clip(value, 16_000)
    if call.paths:
        data["paths"] = list(call.paths)
    core.frame("tool", data)
    if call.status in ("pending", "running"):
        core.tools[call.id] = call.command or call.title or core.tools.get(call.id, "a tool")
        if not core.open_tickets():
            core.set_phase("tool", core.tools[call.id])
    else:
        core.tools.pop(call.id, None)
        if not core.tools and not core.open_tickets():
            core.set_phase("model")


def _session_ready(core: Core, ready: contract.SessionReady) -> None:
    run = core.touch_run()
    run.context = ready.context
    core.task.session_id = ready.session_id
    if ready.version:
        core.task.executor_version = ready.version
    core.change.task_changed = True
    core.event(
        "executor_started",
        {
            "session": ready.session_id,
            "context": ready.context,
            "model": ready.model,
            "agent": ready.agent,
            "version": ready.version or core.task.executor_version,
            "path": core.task.executor_path,
        },
        EXECUTOR,
    )
    if run.pending_prompt and ready.context == "lost":
        run.pending_prompt = _with_context(core, run.pending_prompt)
        core.event(
            "progress",
            {"text": "the executor lost its earlier session: the plan was sent again"},
        )
    _flush_prompt(core)


def _start_failed(core: Core, failed: contract.StartFailed) -> None:
    """The executor will never be ready. If only its session is gone, a process without one
    takes the prompt, with the plan before it; else the turn has failed."""
    turn = core.must_turn()
    if failed.lost and core.task.session_id and turn.state in WORKING and not core.terminal:
        core.task.session_id = ""
        core.change.task_changed = True
        core.event(
            "progress",
            {"text": "the executor's earlier session is gone: it begins anew, with the plan"},
        )
        prompt = core.must_run().pending_prompt or core.prompt(turn.number)
        end_run(core)
        begin_run(core, _with_context(core, prompt))
        return
    turn_rested(core, contract.TurnEnded(text="", fault=failed.fault))
    end_run(core)


def _with_context(core: Core, text: str) -> str:
    return (
        f"{core.prompt(1)}\n\n"
        "You worked on this before, in a session that is lost. What you committed is on the "
        f"current branch ({core.task.branch}): look at it first. Then:\n\n{text}"
    )


# -- end ---------------------------------------------------------------------------------


def turn_rested(core: Core, ended: contract.TurnEnded) -> None:
    """The executor rests: relay what it could not be told, open the question it left, or
    have the turn verified."""
    turn = core.turn
    if turn is None or turn.state not in WORKING or core.terminal:
        return
    for ticket in list(core.tickets.values()):
        if ticket.ask_id:
            tickets.closed(core, contract.AskClosed(ticket.ask_id, "withdrawn", "the turn ended"))
    core.tools.clear()
    tickets.acknowledge_left_questions(core)
    fault = ended.fault
    trailer = parse_trailer(ended.text)
    reasons = json.loads(turn.guidance)
    if reasons and (fault is None or fault.code == "cancelled") and not isinstance(trailer, Claim):
        _relay_guidance(core, reasons)
        return
    drop_guidance(core, "the turn ended before the reason could be sent")
    if fault is None and isinstance(trailer, Ask):
        core.move_turn("question_left" if turn.state == "working" else "executor_rested")
        if turn.state == "verifying":
            core.move_turn("question_left")
        tickets.open_left_question(core, trailer.question)
        return
    turn.final_text = ended.text
    turn.fault = fault_json(fault)
    core.move_turn("executor_rested")
    core.effect("verify", turn=turn.number)
    core.set_phase("tool", "verifying the turn")


def _relay_guidance(core: Core, reasons: list[dict[str, str]]) -> None:
    turn = core.touch_turn()
    turn.guidance = "[]"
    if turn.state == "starting":
        core.move_turn("executor_took_prompt")
    core.move_turn("guidance_sent")
    text = guidance([one["reason"] for one in reasons])
    core.event(
        "deny_guidance_relayed",
        {"refs": [one["ref"] for one in reasons], "reason": clip(text)},
    )
    core.frame("prompt", {"text": text, "actor": AGENTD})
    send_prompt(core, text)


def drop_guidance(core: Core, cause: str) -> None:
    """Reasons of denials that the executor will not get: its coordinator learns."""
    reasons = json.loads(core.must_turn().guidance)
    if not reasons:
        return
    core.touch_turn().guidance = "[]"
    core.event(
        "deny_guidance_dropped",
        {
            "refs": [one["ref"] for one in reasons],
            "reason": clip("; ".join(one["reason"] for one in reasons)),
            "cause": cause,
            "hint": f"handoff continue {short(core.task.id)} TEXT",
        },
    )


# -- processes ---------------------------------------------------------------------------


def end_run(core: Core) -> None:
    """Have the executor's process and all its descendants ended."""
    if core.run is not None and core.run.state in ("intended", "alive"):
        core.move_run("ending" if core.run.state == "alive" else "ended")
        core.effect("end_run", run_id=core.run.id)


def run_exited(core: Core, code: int | None, why: str = "") -> None:
    """The executor's process has ended, by itself or by us."""
    run = core.run
    if run is None or run.state == "ended":
        return
    run.exit_code = code
    stderr_tail = (why or run.stderr_tail)[-STDERR_TAIL:]
    outputs = core.driver.exited(code, stderr_tail) if core.driver is not None else []
    core.save_driver()
    core.move_run("ended")
    core.driver = None
    if code is None:
        # Its shim is gone too: what it left behind has no holder, and has to be found.
        core.effect("end_run", run_id=run.id)
    take(core, [o for o in outputs if not isinstance(o, contract.Send)])
    tickets.void_run(core, run.id, "the executor has ended")
    if core.turn is not None and core.turn.state in WORKING and core.turn.run_id == run.id:
        told = "unknown how" if code is None else f"exit code {code}"
        tail = f": {stderr_tail[-500:].strip()}" if stderr_tail.strip() else ""
        fault = Fault(code="crash", message=f"the executor ended in its turn ({told}){tail}")
        turn_rested(core, contract.TurnEnded(text="", fault=fault))


def too_large(core: Core, size: int, limit: int) -> None:
    """The executor sent a message over the limit: this turn can't be followed."""
    fault = Fault(
        code="protocol",
        message=f"the executor sent a message of over {limit >> 20} MiB (at least {size} bytes)",
    )
    end_run(core)
    for ticket in list(core.tickets.values()):
        if ticket.ask_id:
            tickets.closed(core, contract.AskClosed(ticket.ask_id, "withdrawn", "turn ended"))
    turn_rested(core, contract.TurnEnded(text="", fault=fault))


def interrupt(core: Core, actor: str) -> None:
    """End the running turn, keep the session.

    Raises:
        NotAllowed: the executor does not work on anything.
    """
    if core.turn is None or core.turn.state not in WORKING or not core.run_alive:
        raise NotAllowed(
            "no turn is running: there is nothing to interrupt",
            remedy=f"handoff show {short(core.task.id)}",
            state=core.task.state,
        )
    core.touch_turn().guidance = "[]"
    core.event("interrupted", {"turn": core.must_turn().number}, actor)
    take(core, core.command(lambda driver: driver.command(Interrupt())))


def insist(core: Core, turn_number: int) -> None:
    """The executor did not react to an interrupt: end its process, which its session
    outlives, and with it the turn."""
    turn = core.turn
    if turn is None or turn.number != turn_number or turn.state not in WORKING:
        return
    end_run(core)
    drop_guidance(core, "the turn was interrupted")
    message = "interrupted; the executor did not react and was ended"
    turn_rested(core, contract.TurnEnded(text="", fault=Fault("cancelled", message)))


def stop(core: Core, actor: str) -> None:
    """The coordinator gives the task up.

    Raises:
        BadTransition: the task is over already.
    """
    core.move_task("stopped")
    _wind_up(core, "the task was stopped", discard=False)
    core.event("failed", {"reason": "stopped", "fail_reason": "stopped by the coordinator"}, actor)


def done(core: Core, note: str, actor: str) -> None:
    """The coordinator accepts the task.

    Raises:
        BadTransition: the task does not rest in review.
    """
    core.move_task("accepted")
    core.task.done_note = note
    _wind_up(core, "the task was accepted", discard=False)
    core.event("archived", {"note": note}, actor)


def _wind_up(core: Core, why: str, *, discard: bool) -> None:
    core.give_up_effects(TURN_EFFECTS, why)
    tickets.void_all(core, why)
    end_turn(core, {"code": "stopped", "reason": why})
    end_run(core)
    core.effect("cleanup", discard=discard)
    core.set_phase("idle")
