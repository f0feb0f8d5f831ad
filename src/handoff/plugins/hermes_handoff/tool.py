"""The tool ``hermes_handoff``: a call of the model's in, one JSON text out.

Who calls is what the host says: its session id, never an argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from handoff.errors import HandoffError
from handoff.sessions.actions import TOOL, TOOL_SCHEMA

from . import internals
from .runtime import Runtime

__all__ = ["DESCRIPTION", "SCHEMA", "Tool"]

DESCRIPTION = (
    "Semantic handoffs between sessions: gather evidence, create an immutable record, prepare "
    "the one opening that the user starts, and, in a session that was opened by one, read and "
    "acknowledge it. The skill hermes-handoff:handoff says how."
)
#: said beside a command that such a profile does not have
ISOLATED = (
    "This profile runs plugins in a process of their own (plugins.isolation: host). There the "
    "command handoff-open does not exist: its owner has to switch that off before it is run."
)
#: as the host takes it: the function, with a JSON schema for its arguments
SCHEMA: dict[str, Any] = {"name": TOOL, "description": DESCRIPTION, "parameters": TOOL_SCHEMA}


class Tool:
    """Called by the host, from any of its threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __call__(self, args: Any = None, **kwargs: Any) -> str:
        """Do one action; never raises."""
        given = dict(args) if isinstance(args, Mapping) else {}
        action = given.pop("action", "")
        name = action if isinstance(action, str) else ""
        try:
            answer = self._answer(name, given, kwargs)
            return _text(answer)
        except Exception as error:  # the host wants a text, whatever happens
            return _text(_fault(name, error))

    def _answer(self, action: str, given: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        from handoff.sessions import retry
        from handoff.sessions.service import Caller, reply

        from .wording import in_hermes

        session, platform = kwargs.get("session_id"), kwargs.get("platform")
        caller = Caller(
            "hermes",
            session_id=session if isinstance(session, str) else "",
            platform=platform if isinstance(platform, str) else "",
        )
        try:
            service = self._runtime.service(given)
        except HandoffError as error:
            return retry.to_json(error, action)
        answer = in_hermes(reply(service, action, given, caller), service.profile)
        if answer["ok"] and action == "prepare_open" and internals.isolated():
            answer["note"] = f"{ISOLATED} {answer['note']}"
        return answer


def _fault(action: str, error: Exception) -> dict[str, Any]:
    return {
        "ok": False,
        "action": action[:64],
        "code": "internal",
        "message": f"an error of the plugin's own ({type(error).__name__})",
        "retry": "after_inspection",
        "remedy": "hermes handoff-status <attempt>",
        "details": {},
    }


def _text(answer: dict[str, Any]) -> str:
    text = json.dumps(answer, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a character: escaped, the host can send it
        return json.dumps(answer)
    return text
