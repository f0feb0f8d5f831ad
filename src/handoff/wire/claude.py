"""Claude Code's stream-json protocol, sans-I/O: one JSON object a line, both ways.

:func:`decode` turns a line of the executor's standard output into one of the messages
of :mod:`handoff.wire.claude_messages` and never raises: what is no JSON, no object or of an unknown type comes back as
:class:`Strange`. Fields that are missing or of the wrong type become None or empty; a
message that can't be acted on without such a field is Strange.

The encoders return whole lines, newline included.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from handoff.wire.claude_messages import (
    Answered,
    AskCancelled,
    AskOther,
    AskTool,
    Background,
    Compacted,
    Delta,
    Message,
    MessageBegun,
    Notice,
    Quiet,
    RateLimit,
    Refused,
    Result,
    Results,
    Retry,
    Said,
    Status,
    Strange,
    ToolProgress,
    ToolResult,
    ToolUse,
    TurnBegun,
)

__all__ = [
    "SAMPLE",
    "Answered",
    "AskCancelled",
    "AskOther",
    "AskTool",
    "Background",
    "Compacted",
    "Delta",
    "Message",
    "MessageBegun",
    "Notice",
    "Quiet",
    "RateLimit",
    "Refused",
    "Result",
    "Results",
    "Retry",
    "Said",
    "Status",
    "Strange",
    "ToolProgress",
    "ToolResult",
    "ToolUse",
    "TurnBegun",
    "allow",
    "answer",
    "decode",
    "deny",
    "encode_text",
    "initialize",
    "interrupt",
    "parse_object",
    "prompt",
    "unsupported",
]

#: how much of a strange line is kept, in characters
SAMPLE = 200

#: known types and subtypes that carry nothing for us
QUIET_TYPES = frozenset(
    {
        "auth_status",
        "conversation_reset",
        "keep_alive",
        "prompt_suggestion",
        "streamlined_text",
        "streamlined_tool_use_summary",
        "tool_use_summary",
        "transcript_mirror",
    }
)
QUIET_SUBTYPES = frozenset(
    {
        "commands_changed",
        "files_persisted",
        "hook_progress",
        "hook_response",
        "hook_started",
        "local_command_output",
        "post_turn_summary",
        "session_state_changed",
        "task_notification",
        "task_progress",
        "task_started",
        "task_updated",
        "thinking_tokens",
    }
)


# -- reading -----------------------------------------------------------------------------


def decode(line: bytes) -> Message:
    """The message in one line. Never raises."""
    body = parse_object(line)
    if body is None:
        return Strange("not JSON", _sample(line))
    kind = _text(body, "type")
    if kind is None:
        return Strange("no type", _sample(line))
    reader = _READERS.get(kind)
    if reader is None:
        return Quiet() if kind in QUIET_TYPES else Strange(_name(kind), _sample(line))
    message = reader(body)
    return message if message is not None else Strange(_name(kind), _sample(line))


def parse_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object in line, or None. Its strings can always be encoded as UTF-8."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError):
        # Node writes half of a surrogate pair as \udXXX when it cuts a string in the
        # middle of a character. Strict parsers refuse the whole line; losing a permission
        # request for that would leave the executor waiting for ever.
        try:
            found = _scrub(json.loads(line.decode("utf-8", "replace"), parse_constant=_refuse))
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _scrub(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    if isinstance(value, dict):
        return {_scrub(key): _scrub(item) for key, item in value.items()}
    return value


def _sample(line: bytes) -> str:
    return line[: SAMPLE * 4].decode("utf-8", "replace")[:SAMPLE]


def _name(text: str) -> str:
    """A type name as it may be shown: short and without odd characters."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-/.") else "?" for c in text)[:60]


def _text(body: dict[str, Any], key: str) -> str | None:
    value = body.get(key)
    return value if isinstance(value, str) else None


def _dict(body: dict[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _list(body: dict[str, Any], key: str) -> list[Any]:
    value = body.get(key)
    return value if isinstance(value, list) else []


def _number(body: dict[str, Any], key: str) -> float | None:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # JSON has integers that no float holds
    return value if abs(value) < 1e15 else None


def _int(body: dict[str, Any], key: str) -> int | None:
    value = _number(body, key)
    return int(value) if value is not None else None


def _control_response(body: dict[str, Any]) -> Message | None:
    answer = _dict(body, "response")
    request_id = _text(answer, "request_id")
    if request_id is None:
        return None
    error = ""
    if answer.get("subtype") != "success":
        error = _text(answer, "error") or "refused without a reason"
    return Answered(request_id, error, _dict(answer, "response"))


def _control_request(body: dict[str, Any]) -> Message | None:
    request_id = _text(body, "request_id")
    request = _dict(body, "request")
    subtype = _text(request, "subtype")
    if request_id is None:
        return None
    tool = _text(request, "tool_name")
    given = request.get("input")
    if subtype != "can_use_tool" or tool is None or not isinstance(given, dict):
        return AskOther(request_id, _name(subtype or "none"))
    return AskTool(
        request_id=request_id,
        tool=tool,
        input=given,
        raw=encode_text(given),
        tool_use_id=_text(request, "tool_use_id"),
        description=_text(request, "description") or "",
        reason=_text(request, "decision_reason"),
        blocked_path=_text(request, "blocked_path"),
    )


def _cancel(body: dict[str, Any]) -> Message | None:
    request_id = _text(body, "request_id")
    return AskCancelled(request_id) if request_id is not None else None


def _system(body: dict[str, Any]) -> Message | None:
    subtype = _text(body, "subtype") or ""
    if subtype == "init":
        session_id = _text(body, "session_id")
        if session_id is None:
            return None
        return TurnBegun(
            session_id,
            _text(body, "model"),
            _text(body, "claude_code_version"),
            _text(body, "permissionMode"),
        )
    if subtype == "status":
        return Status(_text(body, "status"), _text(body, "permissionMode"))
    if subtype == "api_retry":
        return Retry(
            _int(body, "attempt") or 0,
            _int(body, "max_retries"),
            _number(body, "retry_delay_ms"),
            _int(body, "error_status"),
            _text(body, "error") or "error",
        )
    if subtype == "permission_denied":
        return Refused(
            _text(body, "tool_name") or "?",
            _text(body, "tool_use_id"),
            _text(body, "message") or "",
        )
    if subtype == "background_tasks_changed":
        return Background(len(_list(body, "tasks")))
    if subtype == "compact_boundary":
        return Compacted()
    if subtype in ("informational", "model_refusal_no_fallback", "model_fallback"):
        text = _text(body, "content")
        return Notice(text) if text else Quiet()
    if subtype in QUIET_SUBTYPES:
        return Quiet()
    return Strange(_name(f"system/{subtype}"), _sample(encode_text(body).encode()))


def _rate_limit(body: dict[str, Any]) -> Message | None:
    info = _dict(body, "rate_limit_info")
    return RateLimit(
        _text(info, "status") or "", _int(info, "resetsAt"), _text(info, "rateLimitType")
    )


def _stream_event(body: dict[str, Any]) -> Message | None:
    event = _dict(body, "event")
    parent = _text(body, "parent_tool_use_id")
    kind = event.get("type")
    if kind == "message_start":
        return MessageBegun(_text(_dict(event, "message"), "id") or "", parent)
    if kind == "content_block_delta":
        delta = _dict(event, "delta")
        if delta.get("type") == "text_delta":
            return Delta(_text(delta, "text") or "", thought=False, parent=parent)
        if delta.get("type") == "thinking_delta":
            return Delta(_text(delta, "thinking") or "", thought=True, parent=parent)
    return Quiet()


def _assistant(body: dict[str, Any]) -> Message | None:
    message = _dict(body, "message")
    texts: list[str] = []
    thoughts: list[str] = []
    tools: list[ToolUse] = []
    for block in _list(message, "content"):
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "text":
            texts.append(_text(block, "text") or "")
        elif kind == "thinking":
            thoughts.append(_text(block, "thinking") or "")
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            found = _text(block, "id")
            if found is not None:
                tools.append(ToolUse(found, _text(block, "name") or "?", _dict(block, "input")))
    return Said(
        message_id=_text(message, "id") or "",
        parent=_text(body, "parent_tool_use_id"),
        texts=tuple(texts),
        thoughts=tuple(thoughts),
        tools=tuple(tools),
        error=_text(body, "error"),
    )


def _user(body: dict[str, Any]) -> Message | None:
    results = []
    for block in _list(_dict(body, "message"), "content"):
        if not isinstance(block, dict) or block.get("type") != "tool_result":
            continue
        found = _text(block, "tool_use_id")
        if found is not None:
            text = _result_text(block.get("content"))
            results.append(ToolResult(found, text, block.get("is_error") is True))
    return Results(tuple(results), _text(body, "parent_tool_use_id"))


def _result_text(content: Any) -> str:
    """A tool result as text; what is no text is named in brackets."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    pieces = []
    for block in content:
        if isinstance(block, dict):
            kind = _text(block, "type") or "?"
            text = _text(block, "text")
            pieces.append(text if text is not None else f"[{_name(kind)}]")
    return "\n".join(pieces)


def _tool_progress(body: dict[str, Any]) -> Message | None:
    found = _text(body, "tool_use_id")
    return ToolProgress(found) if found is not None else None


def _result(body: dict[str, Any]) -> Message | None:
    used: list[int] = []
    made: list[int] = []
    for figures in _dict(body, "modelUsage").values():
        if not isinstance(figures, dict):
            continue
        sent = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        used += [n for n in (_int(figures, key) for key in sent) if n is not None]
        made += [n for n in (_int(figures, "outputTokens"),) if n is not None]
    return Result(
        subtype=_text(body, "subtype") or "",
        is_error=body.get("is_error") is True,
        text=_text(body, "result"),
        terminal_reason=_text(body, "terminal_reason"),
        stop_reason=_text(body, "stop_reason"),
        status=_int(body, "api_error_status"),
        errors=tuple(e for e in _list(body, "errors") if isinstance(e, str)),
        session_id=_text(body, "session_id"),
        input_tokens=sum(used) if used else None,
        output_tokens=sum(made) if made else None,
        cost_usd=_number(body, "total_cost_usd"),
    )


_READERS = {
    "assistant": _assistant,
    "control_cancel_request": _cancel,
    "control_request": _control_request,
    "control_response": _control_response,
    "rate_limit_event": _rate_limit,
    "result": _result,
    "stream_event": _stream_event,
    "system": _system,
    "tool_progress": _tool_progress,
    "user": _user,
}


# -- writing -----------------------------------------------------------------------------


def encode_text(value: Any) -> str:
    """A decoded JSON value as JSON text on one line."""
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, RecursionError):  # integers of more than 64 bits
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _line(body: dict[str, Any]) -> bytes:
    return msgspec.json.encode(body) + b"\n"


def initialize(request_id: str) -> bytes:
    """The first line: the answer says that the session is ready."""
    request = {"subtype": "initialize", "hooks": None}
    return _line({"type": "control_request", "request_id": request_id, "request": request})


def interrupt(request_id: str) -> bytes:
    """End the running turn; what waits for an answer is withdrawn."""
    request = {"subtype": "interrupt"}
    return _line({"type": "control_request", "request_id": request_id, "request": request})


def prompt(text: str) -> bytes:
    """A message of the user: begins a turn."""
    return _line(
        {
            "type": "user",
            "session_id": "",
            "parent_tool_use_id": None,
            "message": {"role": "user", "content": text},
        }
    )


def allow(request_id: str, raw: str) -> bytes:
    """Allow a tool call, once, with exactly that input (:attr:`AskTool.raw`)."""
    given = msgspec.Raw(raw.encode())
    return _success(request_id, {"behavior": "allow", "updatedInput": given})


def deny(request_id: str, reason: str) -> bytes:
    """Deny a tool call; the model reads the reason and goes on."""
    return _success(request_id, {"behavior": "deny", "message": reason})


def answer(request_id: str, raw: str, answers: dict[str, str]) -> bytes:
    """Answer ``AskUserQuestion`` (asked with input ``raw``): question text -> answer."""
    given = parse_object(raw.encode()) or {}
    return allow(request_id, encode_text({**given, "answers": answers}))


def unsupported(request_id: str, subtype: str) -> bytes:
    """Refuse a control request that we do not serve, so that nobody waits for it."""
    response = {
        "subtype": "error",
        "request_id": request_id,
        "error": f"'{subtype}' is not supported here",
    }
    return _line({"type": "control_response", "response": response})


def _success(request_id: str, response: dict[str, Any]) -> bytes:
    body = {"subtype": "success", "request_id": request_id, "response": response}
    return _line({"type": "control_response", "response": body})
