"""What the end of a turn means.

An end is never believed: it is ``completed`` only if the executor claims it, git bears the
claim out, and the verify commands agree. Everything else is ``turn_failed`` with a code;
what was claimed and what was found stand side by side in the event.
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
    error_payload,
    fault_json,
    fault_of,
)
from handoff.errors import HandoffError
from handoff.executors.contract import Fault
from handoff.executors.turn import Claim, parse_trailer


def verified(core: Core, effect_id: int, result: dict[str, object]) -> None:
    """Git and the verify commands have been looked at.

    ``result``: ``found`` (a :class:`~handoff.workspace.contract.Finding` as JSON) and
    ``verify`` (a list of ``{command, exit_code, seconds, timed_out, tail}``).
    """
    core.settle_effect(effect_id)
    turn = core.must_turn()
    if turn.state != "verifying" or core.terminal:
        return
    found = result["found"]
    assert isinstance(found, dict)
    checks = result.get("verify") or []
    assert isinstance(checks, list)
    fault = fault_of(turn.fault)
    trailer = parse_trailer(turn.final_text)
    claim = trailer if isinstance(trailer, Claim) else None
    code, reason = _judge(fault, claim, found, checks)
    outcome: dict[str, object] = {
        "turn": turn.number,
        "code": code,
        "branch": str(found.get("branch", "")),
        "commit": str(found.get("head", "")),
        "claim": None
        if claim is None
        else {"branch": claim.branch, "commit": claim.commit, "summary": clip(claim.summary)},
        "found": found,
        "verify": checks,
    }
    if code == "verified":
        assert claim is not None
        outcome["summary"] = clip(claim.summary)
        rest(core, "completed", outcome)
        return
    outcome |= {
        "reason": clip(reason),
        "fail_reason": clip(reason),
        "fault": None if fault is None else json.loads(fault_json(fault) or "null"),
        "text": clip(turn.final_text[-EVENT_TEXT:]),
    }
    rest(core, "turn_failed", outcome)


def _judge(
    fault: Fault | None, claim: Claim | None, found: dict[str, object], checks: list[object]
) -> tuple[str, str]:
    """The code of the turn's end and one line of why."""
    seen = _seen(found)
    if fault is not None:
        when = f" (resets: {fault.resets_at})" if fault.resets_at else ""
        return fault.code, f"{fault.message}{when}; {seen}"
    if claim is None:
        return "no_claim", f"the executor stopped without claiming an end; {seen}"
    code = str(found.get("code"))
    nothing_new = not found.get("commits") and not _dirt_total(found)
    if code != "verified" and not (code == "no_commit_claimed" and nothing_new):
        return code, str(found.get("why") or code)
    failed = [c for c in checks if isinstance(c, dict) and c.get("exit_code") != 0]
    if failed:
        names = ", ".join(f"'{c['command']}' ({_how(c)})" for c in failed)
        return "verify_failed", f"verify commands failed: {names}"
    return "verified", ""


def _how(check: dict[str, object]) -> str:
    return "timed out" if check.get("timed_out") else f"exit {check.get('exit_code')}"


def _dirt_total(found: dict[str, object]) -> int:
    dirt = found.get("dirt")
    return int(dirt.get("total") or 0) if isinstance(dirt, dict) else 0


def _seen(found: dict[str, object]) -> str:
    commits = int(str(found.get("commits") or 0))
    dirt = _dirt_total(found)
    if not commits and not dirt:
        return "nothing was changed"
    parts = [f"{commits} new commit{'s' if commits != 1 else ''}" if commits else ""]
    parts.append(f"{dirt} uncommitted path{'s' if dirt != 1 else ''}" if dirt else "")
    return " and ".join(p for p in parts if p) + " found"


def rest(core: Core, event: str, outcome: dict[str, object]) -> None:
    """The turn is over, as ``event`` with that payload: the task waits for review."""
    tickets.void_all(core, "the turn ended")
    unknown = json.loads(core.run.unrecognised) if core.run is not None else {}
    if unknown:
        outcome = {**outcome, "unrecognised": unknown}
    end_turn(core, outcome)
    if core.task.state in ("running", "waiting_answer"):
        core.move_task("turn_rested")
    core.frame(
        "turn_end",
        {"code": outcome.get("code"), "event": event, "reason": outcome.get("reason", "")},
    )
    core.event(event, outcome, EXECUTOR if event == "completed" else AGENTD)
    core.set_phase("idle")


def end_turn(core: Core, outcome: dict[str, object]) -> None:
    """Close the turn, if it is open."""
    if core.turn_open:
        turn = core.touch_turn()
        turn.outcome = json.dumps(outcome, ensure_ascii=False)
        turn.ended_at = core.clock.now_ms()
        core.move_turn("ended")


def fail_turn(core: Core, fault: Fault, error: HandoffError) -> None:
    """The turn is over before the executor could take part in it."""
    outcome: dict[str, object] = {
        **error_payload(error),
        "code": fault.code,
        "fail_reason": clip(fault.message),
        "fault": {"code": fault.code, "message": clip(fault.message)},
        "turn": core.must_turn().number,
        "claim": None,
        "found": {},
    }
    rest(core, "turn_failed", outcome)


def close_turn(core: Core, why: str) -> None:
    """End a turn that waits for the answer to a question it left, or for being verified."""
    rest(
        core,
        "turn_failed",
        {
            "turn": core.must_turn().number,
            "code": "cancelled",
            "reason": why,
            "fail_reason": why,
            "claim": None,
            "found": {},
            "fault": None,
        },
    )
