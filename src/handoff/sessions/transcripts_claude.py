"""Claude Code's sessions: ``<config>/projects/<folder>/<session>.jsonl``, one line an entry.

Seen in 2.1: entries of type ``user`` and ``assistant`` hold a ``message`` of the model's API
(content is a text, or parts: ``text``, ``tool_use``, ``tool_result``, ``thinking``), ``uuid``,
``timestamp``, ``cwd``. A tool's result is an entry of type ``user``. ``isSidechain``: a
sub-agent's; ``isMeta``, ``isCompactSummary``: the program's own words. All other types are
its book-keeping. A compacted session goes on in the same file, one that was cleared in a new
one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from handoff.errors import NotFound
from handoff.sessions.host_store import Message, Session
from handoff.sessions.transcripts import Files, Found, Line, calls_of, ms, unread

__all__ = ["ClaudeFiles", "opened"]

#: how parts begin that the program adds to what the user says, or makes of a command
_OWN = (
    "<system-reminder>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "<command-name>",
    "<command-message>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<task-notification>",
    "[Request interrupted by user",
)


@contextmanager
def opened(env: Mapping[str, str]) -> Iterator[ClaudeFiles]:
    """The sessions of the user whose environment this is. Raises: NotFound."""
    home = env.get("CLAUDE_CONFIG_DIR") or os.path.join(env.get("HOME", ""), ".claude")
    if not os.path.isabs(home):
        raise NotFound("HOME is not set", remedy="set HOME")
    yield ClaudeFiles("Claude Code", os.path.join(home, "projects"))


class ClaudeFiles(Files):
    """Its files."""

    def every(self) -> Iterator[tuple[str, str]]:
        """(session id, path) of all files."""
        for entry in self.walk(self.root, 1):
            yield entry.name.removesuffix(".jsonl"), entry.path

    def parse(self, session_id: str, lines: Iterable[Line]) -> Found | None:
        """The session out of its lines."""
        messages: list[Message] = []
        tools: dict[str, str] = {}
        seen: set[str] = set()
        model, cwd, started, title = "", "", 0, ""
        for line in lines:
            if line.fault:
                messages.append(unread(session_id, line))
                continue
            entry = line.value
            started = started or ms(entry.get("timestamp"))
            title = _text(entry.get("customTitle")) or title
            if entry.get("type") not in ("user", "assistant") or entry.get("isSidechain") is True:
                continue
            key = _text(entry.get("uuid")) or f"line-{line.number}"
            if key in seen:  # a resumed session may repeat what it took over
                continue
            seen.add(key)
            cwd = _text(entry.get("cwd")) or cwd
            message = entry.get("message")
            if not isinstance(message, Mapping):
                continue
            if entry["type"] == "assistant":
                model = _text(message.get("model")) or model
            messages += _messages(session_id, key, entry, message, tools)
        if not seen and not messages:
            return None
        session = Session(session_id, "", model, "", cwd, "", started, 0, len(messages), title)
        return Found(session, messages)


def _messages(
    session_id: str,
    key: str,
    entry: Mapping[str, Any],
    message: Mapping[str, Any],
    tools: dict[str, str],
) -> list[Message]:
    """An entry as messages: its text, and each tool's result as one of its own."""
    at, kind = ms(entry.get("timestamp")), str(entry["type"])
    own = entry.get("isMeta") is True or entry.get("isCompactSummary") is True
    said: list[str] = []
    told: list[str] = []
    results: list[tuple[str, str]] = []
    called: list[tuple[str, object]] = []
    for part in _parts(message.get("content")):
        what = part.get("type")
        if what == "text":
            text = _text(part.get("text"))
            (told if kind == "user" and (own or text.lstrip().startswith(_OWN)) else said).append(
                text
            )
        elif what == "tool_use":
            name = _text(part.get("name"))
            tools[_text(part.get("id"))] = name
            called.append((name, part.get("input")))
        elif what == "tool_result":
            name = tools.get(_text(part.get("tool_use_id")), "")
            results.append((name, _joined(part.get("content"))))
    made: list[tuple[str, str, str, str]] = []
    if said or called:
        made.append((kind, "\n".join(said), "", calls_of(called)))
    if told:
        made.append(("system", "\n".join(told), "", ""))
    made += [("tool", text, name, "") for name, text in results]
    return [
        Message(f"{key}#{number}" if number else key, session_id, role, text, at, tool, calls)
        for number, (role, text, tool, calls) in enumerate(made)
    ]


def _parts(content: object) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return [part for part in content if isinstance(part, Mapping)]
    return []


def _joined(content: object) -> str:
    return "\n".join(_text(part.get("text")) for part in _parts(content) if part.get("text"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
