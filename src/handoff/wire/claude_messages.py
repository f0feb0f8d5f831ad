"""What Claude Code says, as messages: one struct for each thing that matters to us.

:mod:`handoff.wire.claude` reads lines into them.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Quiet(msgspec.Struct, frozen=True):
    """A known message that carries nothing for us."""


class Strange(msgspec.Struct, frozen=True):
    """Something this version does not know. ``what`` names it without its content."""

    what: str
    sample: str


class Answered(msgspec.Struct, frozen=True):
    """The executor's answer to a control request of ours. ``error`` "" = success."""

    request_id: str
    error: str
    body: dict[str, Any]


class AskTool(msgspec.Struct, frozen=True):
    """``can_use_tool``: the executor waits for a decision. ``input`` is the tool's whole
    input, ``raw`` the same as JSON text: what we send back with an allow is what will be
    used, so exactly what was shown is sent back."""

    request_id: str
    tool: str
    input: dict[str, Any]
    raw: str
    tool_use_id: str | None
    description: str
    reason: str | None
    blocked_path: str | None


class AskOther(msgspec.Struct, frozen=True):
    """A control request that we do not serve."""

    request_id: str
    subtype: str


class AskCancelled(msgspec.Struct, frozen=True):
    """``control_cancel_request``: the executor no longer waits for that answer."""

    request_id: str


class TurnBegun(msgspec.Struct, frozen=True):
    """``system/init``: sent at the start of every turn."""

    session_id: str
    model: str | None
    version: str | None
    mode: str | None


class Retry(msgspec.Struct, frozen=True):
    """``system/api_retry``. ``delay_ms`` until the next attempt."""

    attempt: int
    limit: int | None
    delay_ms: float | None
    status: int | None
    error: str


class Status(msgspec.Struct, frozen=True):
    """``system/status``; ``mode`` only when the permission mode changed."""

    status: str | None
    mode: str | None


class Notice(msgspec.Struct, frozen=True):
    """Something the executor tells a person."""

    text: str


class Compacted(msgspec.Struct, frozen=True):
    """``system/compact_boundary``: the conversation was summarised to fit."""


class Refused(msgspec.Struct, frozen=True):
    """``system/permission_denied``: the executor denied a tool call without asking us."""

    tool: str
    tool_use_id: str | None
    message: str


class Background(msgspec.Struct, frozen=True):
    """``system/background_tasks_changed``: how many tasks run beside the conversation."""

    count: int


class RateLimit(msgspec.Struct, frozen=True):
    """``rate_limit_event``. ``resets_at``: seconds since 1970 UTC."""

    status: str
    resets_at: int | None
    kind: str | None


class MessageBegun(msgspec.Struct, frozen=True):
    """A model message starts to stream."""

    message_id: str
    parent: str | None


class Delta(msgspec.Struct, frozen=True):
    """A piece of streamed text."""

    text: str
    thought: bool
    parent: str | None


class ToolUse(msgspec.Struct, frozen=True):
    """One tool call of an assistant message."""

    id: str
    name: str
    input: dict[str, Any]


class Said(msgspec.Struct, frozen=True):
    """``assistant``: content blocks of a message, whole. ``error``: the kind of API error
    that the executor writes as if the model had said it."""

    message_id: str
    parent: str | None
    texts: tuple[str, ...]
    thoughts: tuple[str, ...]
    tools: tuple[ToolUse, ...]
    error: str | None


class ToolResult(msgspec.Struct, frozen=True):
    """The outcome of one tool call, as the model sees it."""

    tool_use_id: str
    text: str
    failed: bool


class Results(msgspec.Struct, frozen=True):
    """``user``: tool results (and text that the executor itself put in)."""

    results: tuple[ToolResult, ...]
    parent: str | None


class ToolProgress(msgspec.Struct, frozen=True):
    """``tool_progress``: a long tool call is running."""

    tool_use_id: str


class Result(msgspec.Struct, frozen=True):
    """``result``: the turn is over. ``subtype`` "success" may still be a failure: then
    ``is_error`` is set. Token counts and cost are those of the whole process."""

    subtype: str
    is_error: bool
    text: str | None
    terminal_reason: str | None
    stop_reason: str | None
    status: int | None
    errors: tuple[str, ...]
    session_id: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


Message = (
    Quiet
    | Strange
    | Answered
    | AskTool
    | AskOther
    | AskCancelled
    | TurnBegun
    | Retry
    | Status
    | Notice
    | Compacted
    | Refused
    | Background
    | RateLimit
    | MessageBegun
    | Delta
    | Said
    | Results
    | ToolProgress
    | Result
)
