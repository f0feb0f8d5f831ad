"""Codex's threads: ``<home>/sessions/<year>/<month>/<day>/rollout-<time>-<thread>.jsonl``.

Seen in 0.17x, and in earlier ones alike: each line has ``timestamp``, ``type``, ``payload``.
``session_meta`` names the thread, its folder and provider; ``turn_context`` the model;
``response_item`` is what the model's API was given or gave: ``message`` (role ``developer``,
``user``, ``assistant``), ``function_call``, ``custom_tool_call``, ``local_shell_call`` and their
outputs; ``compacted`` a summary. A thread's first lines of role ``user`` are the program's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from handoff.errors import NotFound
from handoff.sessions.host_store import Message, Session
from handoff.sessions.transcripts import Files, Found, Line, calls_of, ms, unread

__all__ = ["CodexFiles", "opened"]

_NAME = re.compile(r"rollout-.{19}-([0-9a-f-]{36})\.jsonl\Z")
#: how texts of role user begin that are the program's, where nothing says whose they are
_OWN = re.compile(
    r"\s*(?:# AGENTS\.md instructions|<(?:environment_context|user_instructions|permissions|"
    r"INSTRUCTIONS|skill|skills_instructions|turn_aborted|user_shell_command|apps_instructions|"
    r"subagent_notification|model_switch|collaboration_mode)\b)",
    re.IGNORECASE,
)
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call",
          "web_search_call")  # fmt: skip


_GIVEN = ("arguments", "input", "action")


@contextmanager
def opened(env: Mapping[str, str]) -> Iterator[CodexFiles]:
    """The threads of the user whose environment this is. Raises: NotFound."""
    home = env.get("CODEX_HOME") or os.path.join(env.get("HOME", ""), ".codex")
    if not os.path.isabs(home):
        raise NotFound("HOME is not set", remedy="set HOME")
    yield CodexFiles("Codex", home)


class CodexFiles(Files):
    """Its files, also those of archived threads."""

    def every(self) -> Iterator[tuple[str, str]]:
        """(thread id, path) of all files."""
        for name, depth in (("sessions", 3), ("archived_sessions", 3)):
            for entry in self.walk(os.path.join(self.root, name), depth):
                if found := _NAME.match(entry.name):
                    yield found[1], entry.path

    def parse(self, session_id: str, lines: Iterable[Line]) -> Found | None:
        """The thread out of its lines; None if the file says that it is another's."""
        messages: list[Message] = []
        tools: dict[str, str] = {}
        meta: Mapping[str, Any] = {}
        model, started = "", 0
        for line in lines:
            if line.fault:
                messages.append(unread(session_id, line))
                continue
            payload = line.value.get("payload")
            if not isinstance(payload, Mapping):
                continue
            at, kind = ms(line.value.get("timestamp")), line.value.get("type")
            started = started or at
            if kind == "session_meta" and not meta:
                meta = payload
                if _text(meta.get("id")) != session_id:
                    return None
            elif kind == "turn_context":
                model = _text(payload.get("model")) or model
            elif kind == "compacted" and _text(payload.get("message")):
                text = _text(payload["message"])
                messages.append(Message(f"line-{line.number}", session_id, "system", text, at))
            elif kind == "response_item":
                made = _message(session_id, line.number, at, payload, tools)
                messages += [made] if made else []
        if not meta:
            return None
        session = Session(
            session_id,
            "",
            model,
            _text(meta.get("model_provider")),
            _text(meta.get("cwd")),
            "" if not isinstance(meta.get("source"), str) else str(meta["source"]),
            ms(meta.get("timestamp")) or started,
            0,
            len(messages),
            "",
        )
        return Found(session, messages)


def _message(
    session_id: str, number: int, at: int, payload: Mapping[str, Any], tools: dict[str, str]
) -> Message | None:
    kind = payload.get("type")
    key = _text(payload.get("id")) or f"line-{number}"
    if kind == "message":
        role, text = _text(payload.get("role")), _joined(payload.get("content"))
        if role == "user" and not _by_user(payload, text):
            role = "system"
        role = role if role in ("user", "assistant") else "system"
        return Message(key, session_id, role, text, at)
    if kind in _CALLS:
        name = _text(payload.get("name")) or str(kind).removesuffix("_call")
        tools[_text(payload.get("call_id"))] = name
        given = next((payload[key] for key in _GIVEN if key in payload), "")
        return Message(key, session_id, "assistant", "", at, "", calls_of([(name, given)]))
    if isinstance(kind, str) and kind.endswith("_call_output"):
        name = tools.get(_text(payload.get("call_id")), "")
        return Message(key, session_id, "tool", _joined(payload.get("output")), at, name)
    return None


def _by_user(payload: Mapping[str, Any], text: str) -> bool:
    """Whether the user said it: as newer versions say themselves, else by how it begins."""
    passed = payload.get("internal_chat_message_metadata_passthrough")
    kinds = passed.get("content_item_kinds") if isinstance(passed, Mapping) else None
    if isinstance(kinds, list) and kinds:
        return any(isinstance(one, str) and one.startswith("user.") for one in kinds)
    return _OWN.match(text) is None


def _joined(content: object) -> str:
    """The texts of a content in parts, of a text, or of an output that wraps one."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return _joined(content.get("content") or content.get("output"))
    if isinstance(content, list):
        texts = [_text(part.get("text")) for part in content if isinstance(part, Mapping)]
        return "\n".join(text for text in texts if text)
    return ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
