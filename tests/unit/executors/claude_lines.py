"""Lines as Claude Code writes them, for the tests of its driver."""

from __future__ import annotations

import json
from typing import Any

SESSION = "5f0c7d6e-0000-4000-8000-000000000001"


def line(**body: Any) -> bytes:
    return json.dumps(body).encode()


def ready() -> bytes:
    body = {"claude_code_version": "2.1.332", "current_permission_mode": "default"}
    response = {"subtype": "success", "request_id": "handoff-1", "response": body}
    return line(type="control_response", response=response)


def init(session_id: str = SESSION, mode: str = "default") -> bytes:
    return line(
        type="system", subtype="init", session_id=session_id, model="m", permissionMode=mode
    )


def said(text: str, message_id: str = "m1", parent: str | None = None) -> bytes:
    message = {"id": message_id, "content": [{"type": "text", "text": text}]}
    return line(type="assistant", message=message, parent_tool_use_id=parent)


def calls(tool: str, given: Any, call: str = "t1", parent: str | None = None) -> bytes:
    block = {"type": "tool_use", "id": call, "name": tool, "input": given}
    message = {"id": "m1", "content": [block]}
    return line(type="assistant", message=message, parent_tool_use_id=parent)


def asks(tool: str, given: Any, request_id: str = "q1", call: str | None = "t1") -> bytes:
    request = {
        "subtype": "can_use_tool",
        "tool_name": tool,
        "input": given,
        "tool_use_id": call,
    }
    return line(type="control_request", request_id=request_id, request=request)


def done(call: str = "t1", text: str = "ok", failed: bool = False) -> bytes:
    block = {
        "type": "tool_result",
        "tool_use_id": call,
        "content": text,
        "is_error": failed,
    }
    return line(type="user", message={"role": "user", "content": [block]})


def result(text: str | None = "the end", **rest: Any) -> bytes:
    body = {"subtype": "success", "is_error": False, "terminal_reason": "completed", **rest}
    return line(type="result", result=text, **body)


def event(**event: Any) -> bytes:
    return line(type="stream_event", event=event, parent_tool_use_id=None)


def starts(message_id: str = "m1") -> bytes:
    return event(type="message_start", message={"id": message_id})


def delta(text: str) -> bytes:
    return event(type="content_block_delta", delta={"type": "text_delta", "text": text})
