"""What Claude Code's tools mean in Handoff's vocabulary: pure functions over tool inputs."""

from __future__ import annotations

from typing import Any

import msgspec

from handoff.executors.contract import Choice, FileEdit, PlanStep, Question
from handoff.wire import claude as wire

#: tool name -> kind of :class:`~handoff.executors.contract.ToolCall`
KINDS = {
    "Agent": "think",
    "AskUserQuestion": "other",
    "Bash": "execute",
    "BashOutput": "read",
    "Edit": "edit",
    "Glob": "search",
    "Grep": "search",
    "KillShell": "execute",
    "LS": "search",
    "Monitor": "execute",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "NotebookRead": "read",
    "PowerShell": "execute",
    "Read": "read",
    "Task": "think",
    "TodoWrite": "think",
    "ToolSearch": "search",
    "WebFetch": "fetch",
    "WebSearch": "fetch",
    "Write": "write",
}

#: inputs that name a file or folder
_PATH_KEYS = ("file_path", "notebook_path", "path")

TITLE = 120


class Described(msgspec.Struct, frozen=True):
    """A tool call, described. ``title`` at most 120 characters, one line; ``text`` is
    everything that a person has to read before allowing it."""

    kind: str
    title: str
    text: str
    command: str | None
    paths: tuple[str, ...]
    edits: tuple[FileEdit, ...]


def describe(tool: str, given: dict[str, Any], raw: str) -> Described:
    """The call of ``tool`` with input ``given`` (``raw``: the same as JSON text)."""
    kind = KINDS.get(tool, "other")
    command = _text(given, "command") if kind == "execute" else None
    paths = tuple(p for p in (_text(given, key) for key in _PATH_KEYS) if p)
    edits = _edits(tool, given)
    if command is not None:
        head, body = command, ""
        rest = {k: v for k, v in given.items() if k != "command"}
        if rest:
            body = wire.encode_text(rest)
    elif edits:
        head = paths[0] if paths else tool
        body = "\n\n".join(_edit_text(edit) for edit in edits)
        known = {"content", "old_string", "new_string", "new_source", "edits", *_PATH_KEYS}
        rest = {k: v for k, v in given.items() if k not in known}
        if rest:
            body += f"\n\n{wire.encode_text(rest)}"
    else:
        named = (_text(given, key) for key in ("url", "query", "pattern", "plan", "description"))
        head = next((t for t in (*paths, *named) if t), "")
        body = raw
    title = _one_line(head if command is not None else f"{tool} {head}".strip())
    text = head if command is not None else f"{tool}: {head}" if head else tool
    return Described(kind, title, f"{text}\n\n{body}" if body else text, command, paths, edits)


def questions(given: dict[str, Any]) -> tuple[Question, ...]:
    """The questions of an ``AskUserQuestion`` call; () if there is none to be read."""
    found = []
    for entry in _list(given, "questions"):
        if not isinstance(entry, dict):
            continue
        text = _text(entry, "question")
        if not text:
            continue
        choices = tuple(
            Choice(label, _text(option, "description") or "")
            for option in _list(entry, "options")
            if isinstance(option, dict) and (label := _text(option, "label"))
        )
        found.append(
            Question(
                text=text,
                header=_text(entry, "header") or "",
                choices=choices,
                multiple=entry.get("multiSelect") is True,
            )
        )
    return tuple(found)


def plan(tool: str, given: dict[str, Any]) -> tuple[PlanStep, ...] | None:
    """The to-do list that a ``TodoWrite`` call sets, or None for any other call."""
    if tool != "TodoWrite":
        return None
    return tuple(
        PlanStep(text, _text(entry, "status") or "")
        for entry in _list(given, "todos")
        if isinstance(entry, dict) and (text := _text(entry, "content"))
    )


def _edits(tool: str, given: dict[str, Any]) -> tuple[FileEdit, ...]:
    path = _text(given, "file_path") or _text(given, "notebook_path")
    if path is None:
        return ()
    if tool == "Write":
        return (FileEdit(path, None, _text(given, "content"), whole=True),)
    if tool == "Edit":
        return (FileEdit(path, _text(given, "old_string"), _text(given, "new_string")),)
    if tool == "NotebookEdit":
        return (FileEdit(path, None, _text(given, "new_source")),)
    if tool == "MultiEdit":
        return tuple(
            FileEdit(path, _text(entry, "old_string"), _text(entry, "new_string"))
            for entry in _list(given, "edits")
            if isinstance(entry, dict)
        ) or (FileEdit(path),)
    return ()


def _edit_text(edit: FileEdit) -> str:
    new = edit.new if edit.new is not None else "(not told)"
    if edit.whole or edit.old is None:
        return f"--- new content\n{new}"
    return f"--- replaced\n{edit.old}\n--- by\n{new}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE else line[: TITLE - 1] + "…"


def _text(given: dict[str, Any], key: str) -> str | None:
    value = given.get(key)
    return value if isinstance(value, str) else None


def _list(given: dict[str, Any], key: str) -> list[Any]:
    value = given.get(key)
    return value if isinstance(value, list) else []
