"""Frames as plain text: the same bytes for the same frame, each time."""

from __future__ import annotations

from typing import Any

from handoff.gate.excerpt import visible


def render_frame(kind: str, data: dict[str, Any]) -> bytes:
    """One frame of the live view. Control characters of the model are made visible."""
    return _render(kind, data).encode()


def _render(kind: str, data: dict[str, Any]) -> str:
    match kind:
        case "text":
            return _safe(data.get("text"))
        case "prompt":
            return f"\n>> {_safe(data.get('text'))}\n"
        case "tool":
            what = data.get("command") or data.get("title") or ""
            if data.get("status") in ("pending", "running"):
                return f"\n-> {_safe(what)}\n" if what else ""
            return f"\n<- {_safe(what)} {data.get('status')}\n"
        case "ticket":
            return f"\n?? ticket {data.get('ref')}: {_safe(data.get('text'))}\n"
        case "answer":
            said = data.get("decision") or data.get("answer") or ""
            return f"\n!! ticket {data.get('ref')}: {_safe(said)}\n"
        case "retry":
            return f"\n.. retry: {_safe(data.get('reason'))}\n"
        case "notice":
            return f"\n.. {_safe(data.get('text'))}\n"
        case "turn_end":
            return f"\n== {data.get('event')} ({data.get('code')}) {_safe(data.get('reason'))}\n"
        case _:
            return ""


def _safe(value: object) -> str:
    text = str(value or "")
    return "\n".join(visible(line) for line in text.split("\n"))
