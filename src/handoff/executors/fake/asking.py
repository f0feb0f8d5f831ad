"""The ways in which the fake executor asks the coordinator something."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from handoff.executors.fake.peer import Pending
from handoff.executors.fake.turn import EndTurn, Turn

Args = dict[str, Any]


def ask(turn: Turn, args: Args) -> None:
    """Ask the coordinator, inside the turn where the client can, else by the trailer."""
    question = str(args.get("question", args.get("text", "")))
    via = str(args.get("via", "elicitation" if turn.elicits else "trailer"))
    if via == "trailer":
        start = "\n" if turn.line_open else ""
        turn.say(start + json.dumps({"ask": question}) + "\n")
        raise EndTurn("end_turn")
    call = turn.begin("other", question, {"question": question})
    answers = _ASKS[via](turn, args, question, call)
    turn.log("answered", answers=answers)
    turn.progress(call, "completed", json.dumps(answers, ensure_ascii=False))
    told = ", ".join(answers) if answers else "nothing"
    turn.say(f"The answer is: {told}\n")


def _options(args: Args) -> list[Args]:
    out = []
    for option in args.get("options") or args.get("choices") or []:
        if isinstance(option, dict):
            out.append({"label": str(option.get("label")), **option})
        else:
            out.append({"label": str(option)})
    return out


def _ask_form(turn: Turn, args: Args, question: str, call: str) -> list[str]:
    field: Args = {"type": "string", "title": str(args.get("header", "Answer"))}
    choices = [
        {"const": o["label"], "title": o["label"], "description": o.get("description", "")}
        for o in _options(args)
    ]
    if choices and args.get("multiple"):
        field = {**field, "type": "array", "items": {"anyOf": choices}}
    elif choices:
        field["oneOf"] = choices
    params = {
        "mode": "form",
        "sessionId": turn.session.session_id,
        "toolCallId": call,
        "message": question,
        "requestedSchema": {
            "type": "object",
            "properties": {
                "question_0": field,
                "question_0_custom": {"type": "string", "title": "Other"},
            },
        },
    }
    result = _wait(turn, turn.peer.request("elicitation/create", params), call)
    content = result.get("content") if result.get("action") == "accept" else None
    answers: list[str] = []
    for key in ("question_0", "question_0_custom"):
        value = content.get(key) if isinstance(content, dict) else None
        answers += value if isinstance(value, list) else [str(value)] if value is not None else []
    return answers


def _ask_xai(turn: Turn, args: Args, question: str, call: str) -> list[str]:
    params = {
        "sessionId": turn.session.session_id,
        "toolCallId": call,
        "questions": [
            {
                "question": question,
                "options": [
                    {"label": o["label"], "description": o.get("description", "")}
                    for o in _options(args)
                ],
                "multiSelect": bool(args.get("multiple", False)),
            }
        ],
        "mode": "default",
    }
    result = _wait(turn, turn.peer.request("_x.ai/ask_user_question", params), call)
    if result.get("outcome") != "accepted":
        return []
    value = result.get("answers", {}).get(question)
    return [str(v) for v in value] if isinstance(value, list) else [str(value)]


def _ask_as_permission(turn: Turn, args: Args, question: str, call: str) -> list[str]:
    options = [
        {"optionId": f"choice_{n}", "kind": "allow_once", "name": o["label"]}
        for n, o in enumerate(_options(args))
    ]
    options.append({"optionId": "skip", "kind": "reject_once", "name": "Skip"})
    params = {
        "sessionId": turn.session.session_id,
        "toolCall": {"toolCallId": call, "title": question, "kind": "other"},
        "options": options,
    }
    result = _wait(turn, turn.peer.request("session/request_permission", params), call)
    chosen = result.get("outcome", {}).get("optionId")
    return [o["name"] for o in options if o["optionId"] == chosen and chosen != "skip"]


def _wait(turn: Turn, pending: Pending, call: str) -> Args:
    pending.done.wait()
    if pending.cancelled or turn.cancelled.is_set():
        turn.progress(call, "failed", "cancelled")
        raise EndTurn("cancelled")
    return pending.result if isinstance(pending.result, dict) else {}


_ASKS: dict[str, Callable[[Turn, Args, str, str], list[str]]] = {
    "elicitation": _ask_form,
    "xai": _ask_xai,
    "permission": _ask_as_permission,
}
