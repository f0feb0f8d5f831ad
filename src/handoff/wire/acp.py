"""The messages of the Agent Client Protocol that Handoff uses.

Only fields that are used are named. All of them decode leniently (:mod:`.lenient`).
"""

from __future__ import annotations

from typing import Any

import msgspec

PROTOCOL_VERSION = 1

Json = dict[str, Any]


class _Camel(msgspec.Struct, frozen=True, rename="camel"):
    pass


# -- answers of the agent ------------------------------------------------------------------


class SessionCapabilities(_Camel, frozen=True):
    """``resume``: a session can be taken up again without its history being told."""

    resume: Json | None = None


class AgentCapabilities(_Camel, frozen=True):
    """``load_session``: a session can be taken up again, its history is told."""

    load_session: bool = False
    session_capabilities: SessionCapabilities = SessionCapabilities()


class AgentInfo(_Camel, frozen=True):
    """Who the agent says it is."""

    name: str = ""
    title: str | None = None
    version: str | None = None


class AuthMethod(_Camel, frozen=True):
    """One way to log in."""

    id: str
    name: str = ""
    description: str | None = None


class Initialized(_Camel, frozen=True):
    """Answer to ``initialize``."""

    protocol_version: int | None = None
    agent_capabilities: AgentCapabilities = AgentCapabilities()
    agent_info: AgentInfo | None = None
    auth_methods: list[AuthMethod] = []
    meta: Json | None = msgspec.field(default=None, name="_meta")


class Mode(_Camel, frozen=True):
    """A mode that the session can be in."""

    id: str


class Modes(_Camel, frozen=True):
    """``modes`` of a session."""

    current_mode_id: str | None = None
    available_modes: list[Mode] = []


class Model(_Camel, frozen=True):
    """A model that the session can use."""

    model_id: str
    name: str | None = None


class Models(_Camel, frozen=True):
    """``models`` of a session."""

    current_model_id: str | None = None
    available_models: list[Model] = []


class ConfigValue(_Camel, frozen=True):
    """One value that a configuration option can take."""

    value: str
    name: str | None = None


class ConfigOption(_Camel, frozen=True):
    """One entry of ``configOptions``."""

    id: str
    category: str | None = None
    current_value: str | None = None
    options: list[ConfigValue] = []


class SessionOpened(_Camel, frozen=True):
    """Answer to ``session/new``, ``session/load`` and ``session/resume``."""

    session_id: str | None = None
    modes: Modes | None = None
    models: Models | None = None
    config_options: list[ConfigOption] = []


class Usage(_Camel, frozen=True):
    """Tokens of one turn."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class PromptDone(_Camel, frozen=True):
    """Answer to ``session/prompt``: the turn is over."""

    stop_reason: str = ""
    usage: Usage | None = None
    meta: Json | None = msgspec.field(default=None, name="_meta")


# -- what the agent tells ------------------------------------------------------------------


class Content(_Camel, frozen=True):
    """A content block. Only text is read; other types are named."""

    type: str = "text"
    text: str = ""
    uri: str | None = None


class ToolContent(_Camel, frozen=True):
    """One entry of a tool call's ``content``: text, a diff or a terminal."""

    type: str = "content"
    content: Content | None = None
    path: str | None = None
    old_text: str | None = None
    new_text: str | None = None


class Location(_Camel, frozen=True):
    """A file that a tool call touches."""

    path: str


class PlanEntry(_Camel, frozen=True):
    """One entry of the agent's to-do list."""

    content: str = ""
    status: str = "pending"


class Cost(_Camel, frozen=True):
    """What the session has cost so far."""

    amount: float
    currency: str = "USD"


class ToolFields(_Camel, frozen=True):
    """A tool call as ``tool_call``, ``tool_call_update`` or in a permission request."""

    tool_call_id: str = ""
    title: str | None = None
    name: str | None = None
    kind: str | None = None
    status: str | None = None
    raw_input: Any = None
    raw_output: Any = None
    content: list[ToolContent] | None = None
    locations: list[Location] | None = None
    meta: Json | None = msgspec.field(default=None, name="_meta")


class Option(_Camel, frozen=True):
    """One answer that a permission request offers."""

    option_id: str
    kind: str
    name: str = ""


class PermissionRequest(_Camel, frozen=True):
    """``session/request_permission``."""

    tool_call: Json
    session_id: str = ""
    options: list[Option] = []
    meta: Json | None = msgspec.field(default=None, name="_meta")


class Elicitation(_Camel, frozen=True):
    """``elicitation/create``."""

    mode: str = "form"
    session_id: str = ""
    tool_call_id: str | None = None
    message: str = ""
    url: str | None = None
    requested_schema: Json = {}


class AskOption(_Camel, frozen=True):
    """One offered answer of :class:`AskQuestion`."""

    label: str
    description: str = ""


class AskQuestion(_Camel, frozen=True):
    """One question in the form that most agents' own question tools share."""

    question: str
    header: str = ""
    options: list[AskOption] = []
    multi_select: bool = False


class AskUser(_Camel, frozen=True):
    """``_x.ai/ask_user_question``."""

    questions: list[AskQuestion]
    session_id: str = ""
    tool_call_id: str | None = None


class RetryState(msgspec.Struct, frozen=True):
    """``retry_state`` of ``_x.ai/session_notification``."""

    attempt: int = 0
    max_retries: int | None = None
    reason: str = ""
    delay_ms: float | None = None


# -- what we send --------------------------------------------------------------------------


def initialize(name: str, version: str) -> Json:
    """Parameters of ``initialize``: no file system, no terminal, forms for questions."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "clientCapabilities": {
            "fs": {"readTextFile": False, "writeTextFile": False},
            "terminal": False,
            "elicitation": {"form": {}},
        },
        "clientInfo": {"name": name, "title": "Handoff", "version": version},
    }


def session(cwd: str, session_id: str | None = None, meta: Json | None = None) -> Json:
    """Parameters of ``session/new``, or of ``session/load`` and ``session/resume``."""
    params: Json = {"cwd": cwd, "mcpServers": []}
    if meta:
        params["_meta"] = meta
    return params if session_id is None else {"sessionId": session_id, **params}


def prompt(session_id: str, text: str) -> Json:
    """Parameters of ``session/prompt``."""
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}


def selected(option_id: str) -> Json:
    """A permission is answered by that option."""
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


def cancelled() -> Json:
    """A permission is given up."""
    return {"outcome": {"outcome": "cancelled"}}
