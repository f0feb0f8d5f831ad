"""``session/update`` of ACP agents as observations."""

from __future__ import annotations

import re
from typing import Any

from handoff.executors import acp_state, acp_tools, faults
from handoff.executors.acp_state import State, Turn
from handoff.executors.contract import (
    Fault,
    Output,
    PlanChanged,
    PlanStep,
    Retrying,
    Text,
    Unrecognised,
)
from handoff.wire import acp
from handoff.wire.lenient import lenient

Json = dict[str, Any]

#: updates that show that the agent works on our prompt
WORK = frozenset(
    (
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "usage_update",
    )
)

_ATTEMPT = re.compile(r"(\d{1,6})\s*/\s*(\d{1,6})")


def text(turn: Turn | None, update: Json, parent: str | None, *, thought: bool) -> list[Output]:
    """A chunk of text. Only what the main agent says is kept for the trailer."""
    content = lenient(acp.Content, update.get("content"))
    if content is None:
        return [Unrecognised("chunk without content")]
    said = content.text if content.type == "text" else f"[{content.type[:40]}]"
    if not said:
        return []
    if turn is not None and turn.prompt is not None and parent is None and not thought:
        message = update.get("messageId")
        message = message if isinstance(message, str) else None
        if turn.fresh or message != turn.message:
            turn.tail = ""
        turn.fresh, turn.message = False, message
        turn.tail = (turn.tail + said)[-acp_state.TAIL :]
    return [Text(said, thought, parent)]


def tool(state: State, update: Json, parent: str | None, *, starts: bool) -> list[Output]:
    """A tool call, or a change of one."""
    call = update.get("toolCallId")
    if not isinstance(call, str) or not call:
        return [Unrecognised("tool call without an id")]
    if state.turn is not None and parent is None:
        # What is said after a tool call is another message.
        state.turn.fresh = True
    known = acp_tools.merged(state.calls.get(call), update)
    known.pop("sessionUpdate", None)
    observed = acp_tools.observed(update, known, parent, starts=starts)
    if observed.status in ("completed", "failed"):
        state.calls.pop(call, None)
    elif state.turn is not None:
        state.calls[call] = _kept(known)
        while len(state.calls) > acp_state.CALLS:
            del state.calls[next(iter(state.calls))]
    return [observed]


def plan(update: Json) -> list[Output]:
    """The agent's to-do list, whole."""
    entries = update.get("entries")
    steps = []
    for entry in entries if isinstance(entries, list) else []:
        known = lenient(acp.PlanEntry, entry)
        if known is not None:
            steps.append(PlanStep(known.content, known.status))
    return [PlanChanged(tuple(steps))]


def cost(state: State, update: Json) -> bool:
    """Take the session's cost so far; whether it has changed."""
    told = lenient(acp.Cost, update.get("cost"))
    if told is None or told.currency != "USD" or told.amount == state.cost_usd:
        return False
    state.cost_usd = told.amount
    return True


def mode(update: Json) -> str | None:
    """The mode that the session is in now, None if the update does not say."""
    current = update.get("currentModeId", update.get("modeId"))
    if isinstance(current, str):
        return current
    options = update.get("configOptions")
    for option in options if isinstance(options, list) else []:
        known = lenient(acp.ConfigOption, option)
        if known is not None and "mode" in (known.id, known.category):
            return known.current_value
    return None


def codex(turn: Turn | None, update: Json) -> list[Output]:
    """What codex-acp tells beside the protocol: retries, and that a turn failed.

    It answers a failed turn with ``end_turn``; only its thread's status and the error
    before it say otherwise.
    """
    meta = update.get("_meta")
    told = meta.get("codex") if isinstance(meta, dict) else None
    if not isinstance(told, dict) or turn is None or turn.prompt is None:
        return []
    error, status = told.get("error"), told.get("threadStatus")
    if isinstance(error, dict):
        fault = _codex_fault(error)
        if error.get("willRetry") is True:
            turn.retry = fault
            counted = _ATTEMPT.search(str(error.get("message")))
            attempt, limit = (int(n) for n in counted.groups()) if counted else (1, None)
            return [Retrying(attempt, limit, None, fault.message)]
        turn.fault = fault
    if isinstance(status, dict):
        if status.get("type") == "systemError":
            turn.fault = turn.fault or turn.retry or Fault("other", "")
        else:
            turn.retry = None
    return []


def _codex_fault(error: Json) -> Fault:
    words = [str(error[key]) for key in ("additionalDetails", "message") if error.get(key)]
    info = error.get("codexErrorInfo")
    status = None
    if isinstance(info, dict):
        for inner in info.values():
            number = inner.get("httpStatusCode") if isinstance(inner, dict) else None
            status = number if isinstance(number, int) else status
    elif isinstance(info, str):
        words.append(info)
    return faults.classify(words[0] if words else "", status=status)


def _kept(known: Json) -> Json:
    """A call as it is remembered: without its bulk if that is large."""
    if acp_state.size_of(known) <= acp_state.CALL_BYTES:
        return known
    return {
        key: value
        for key, value in known.items()
        if key in ("toolCallId", "title", "kind", "name", "status")
        and len(str(value)) < acp_state.CALL_BYTES // 8
    }
