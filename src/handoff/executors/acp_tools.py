"""Tool calls of ACP agents: what they are about, from wherever each agent says it."""

from __future__ import annotations

import json
import shlex
from typing import Any, Literal

from handoff.executors.contract import FileEdit, ToolCall
from handoff.wire.acp import ToolContent, ToolFields
from handoff.wire.lenient import lenient

#: characters of one output or input that go into an observation
_SHOWN = 64 * 1024

_KINDS = frozenset(
    ("read", "edit", "write", "delete", "move", "search", "execute", "fetch", "think", "other")
)
_WRITE_NAMES = frozenset(("write", "write_file", "writefile", "create", "create_file"))
_PATH_KEYS = ("file_path", "filePath", "path", "filepath", "notebook_path", "target_file")
_STATUS: dict[str, Literal["pending", "running", "completed", "failed"]] = {
    "pending": "pending",
    "in_progress": "running",
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "failed",
}

Json = dict[str, Any]


def fields_of(update: Json) -> ToolFields:
    """The tool call of an update or a permission request."""
    return lenient(ToolFields, update) or ToolFields()


def merged(remembered: Json | None, update: Json) -> Json:
    """What is known of a call: the update's own words before those remembered."""
    if not remembered:
        return dict(update)
    said = {key: value for key, value in update.items() if value not in (None, {}, [], "")}
    return {**remembered, **said}


def name_of(tool: ToolFields) -> str:
    """The tool's own name, or the nearest thing that the agent says."""
    meta = tool.meta or {}
    raw = tool.raw_input if isinstance(tool.raw_input, dict) else {}
    vendor, claude = meta.get("x.ai/tool"), meta.get("claudeCode")
    candidates = (
        tool.name,
        vendor.get("name") if isinstance(vendor, dict) else None,
        claude.get("toolName") if isinstance(claude, dict) else None,
        meta.get("toolName"),
        raw.get("tool") if isinstance(raw.get("tool"), str) else None,
        raw.get("variant") if isinstance(raw.get("variant"), str) else None,
        tool.kind,
        tool.title,
    )
    return next((str(c) for c in candidates if isinstance(c, str) and c), "other")


def kind_of(tool: ToolFields) -> str | None:
    """The kind in our vocabulary, None if the agent does not say."""
    if tool.kind in ("edit", None) and name_of(tool).lower() in _WRITE_NAMES:
        return "write"
    if tool.kind is None:
        raw = tool.raw_input if isinstance(tool.raw_input, dict) else {}
        if isinstance(raw.get("command"), (str, list)):
            return "execute"
        if isinstance(raw.get("content"), str) and _path_in(raw) is not None:
            return "write"
        return None
    return tool.kind if tool.kind in _KINDS else "other"


def command_of(tool: ToolFields) -> str | None:
    """The shell command, if it is one. A list of words becomes a quoted line."""
    for source in _inputs(tool):
        command = source.get("command", source.get("cmd"))
        if isinstance(command, str) and command:
            return command
        if isinstance(command, list) and command and all(isinstance(w, str) for w in command):
            return shlex.join(command)
    return None


def cwd_of(tool: ToolFields) -> str | None:
    """Where the command would run, as far as the agent says."""
    for source in _inputs(tool):
        for key in ("cwd", "workdir", "directory"):
            if isinstance(source.get(key), str) and source[key]:
                return str(source[key])
    return None


def paths_of(tool: ToolFields) -> tuple[str, ...]:
    """Files that the call names, each once, in the agent's own spelling."""
    found: list[str] = [
        part.path for part in tool.content or [] if part.type == "diff" and part.path
    ]
    found += [place.path for place in tool.locations or []]
    for source in _inputs(tool):
        named = _path_in(source)
        found += [named] if named is not None else []
        for key in ("paths", "files"):
            listed = source.get(key)
            found += [p for p in listed if isinstance(p, str)] if isinstance(listed, list) else []
        changes = source.get("changes")
        found += [str(path) for path in changes] if isinstance(changes, dict) else []
    return tuple(dict.fromkeys(path for path in found if path))


def edits_of(tool: ToolFields) -> tuple[FileEdit, ...]:
    """What the call would do to files, from its diffs or its input."""
    edits = [_edit(part, tool) for part in tool.content or [] if part.type == "diff" and part.path]
    if edits:
        return tuple(edits)
    for source in _inputs(tool):
        path = _path_in(source)
        if path is None:
            continue
        if isinstance(source.get("content"), str):
            return (FileEdit(path, None, source["content"], whole=True),)
        for old, new in (("old_string", "new_string"), ("oldString", "newString"), ("old", "new")):
            if isinstance(source.get(new), str):
                before = source.get(old)
                return (FileEdit(path, before if isinstance(before, str) else None, source[new]),)
    return ()


def text_of(tool: ToolFields) -> str:
    """The text that the call's content holds."""
    parts = [part.content.text for part in tool.content or [] if part.content is not None]
    return "\n".join(part for part in parts if part)


def raw_of(tool: ToolFields) -> str:
    """The tool's input as JSON text, in full; "" if the agent gives none."""
    if tool.raw_input in (None, {}, ""):
        streamed = _streamed(tool)
        return "" if streamed is None else json.dumps(streamed, ensure_ascii=False)
    return json.dumps(tool.raw_input, ensure_ascii=False)


def observed(update: Json, known: Json, parent: str | None, *, starts: bool) -> ToolCall:
    """The observation for an update; ``known``: the call with this update merged in."""
    tool, whole = fields_of(update), fields_of(known)
    status = _STATUS.get(tool.status or "")
    if status is None:
        status = "pending" if starts else _STATUS.get(whole.status or "", "running")
    over = status in ("completed", "failed")
    output = None if starts or (not over and text_of(tool).startswith("{")) else _output(tool)
    given = raw_of(tool)
    return ToolCall(
        id=tool.tool_call_id,
        status=status,
        kind=kind_of(whole) if tool.kind is not None or starts else None,
        title=tool.title,
        command=command_of(tool),
        paths=paths_of(tool),
        input=_bounded(given) if given else None,
        output=output,
        parent=parent,
    )


def _edit(part: ToolContent, tool: ToolFields) -> FileEdit:
    raw = tool.raw_input if isinstance(tool.raw_input, dict) else {}
    whole = part.new_text is not None and part.new_text == raw.get("content")
    return FileEdit(part.path or "", part.old_text, part.new_text, whole=whole)


def _inputs(tool: ToolFields) -> list[Json]:
    """Everywhere that agents put a tool's arguments."""
    found: list[Json] = []
    raw = tool.raw_input
    if isinstance(raw, dict):
        found.append(raw)
        for key in ("arguments", "args", "input"):
            if isinstance(raw.get(key), dict):
                found.append(raw[key])
    if not found:
        streamed = _streamed(tool)
        found += [streamed] if streamed is not None else []
    return found


def _streamed(tool: ToolFields) -> Json | None:
    """Arguments that are told as text: Kimi gives the input itself only after it asked."""
    if tool.raw_input not in (None, {}, "") or tool.raw_output is not None:
        return None
    text = text_of(tool).strip()
    if not text.startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _path_in(source: Json) -> str | None:
    for key in _PATH_KEYS:
        if isinstance(source.get(key), str) and source[key]:
            return str(source[key])
    return None


def _output(tool: ToolFields) -> str | None:
    text = text_of(tool)
    if not text:
        raw = tool.raw_output
        if isinstance(raw, dict):
            raw = raw.get("output", raw.get("stdout"))
        text = raw if isinstance(raw, str) else ""
    return _bounded(text) if text else None


def _bounded(text: str) -> str:
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out]\n{text[-half:]}"
