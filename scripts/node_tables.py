"""The generated parts of docs/protocols/node.md, made from the code (for gen-reference)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from handoff.wire.node import calls, results
from handoff.wire.node.calls import CALLS
from handoff.wire.node.closing import REASONS
from handoff.wire.node.messages import CALLS2, CAPABILITIES, MESSAGES, OLD
from handoff.wire.node.results import Result

_WORDS = {
    "str": "text",
    "Text": "name",
    "Data": "bytes",
    "B64": "base64",
    "int": "number",
    "bool": "true or false",
    "Any": "any",
    "Mapping[str, Any]": "object",
    "Mapping[str, str]": "object of texts",
    "Mapping[str, Text]": "object of names",
    "Mapping[str, int]": "object of numbers",
}


def table(head: list[str], rows: list[list[str]]) -> str:
    """A markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def prose(cls: type[Any]) -> str:
    """A docstring as one line of markdown."""
    text = " ".join((cls.__doc__ or "").split())
    text = re.sub(r":class:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    text = re.sub(r":data:`INLINE_LIMIT`", "256 KiB", text)
    return text.replace("``", "`").replace("|", "\\|")


def kind(annotation: str) -> str:
    """An annotation in words."""
    annotation = annotation.removesuffix(" | None")
    listed = re.fullmatch(r"tuple\[(.+), \.\.\.\]", annotation)
    if listed:
        return f"list of {kind(listed[1])}"
    return _WORDS.get(annotation, f"`{annotation}`")


def fields(cls: type[Any]) -> str:
    """The fields with their kinds and limits; those that must be there are marked."""
    said = []
    for field in dataclasses.fields(cls):
        needed = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        limit = field.metadata.get("limit")
        words = kind(str(field.type)) + (f" ≤ {limit}" if limit else "")
        mark = "\\*" if needed else ""
        said.append(f"`{field.name}`{mark} {words}")
    return ", ".join(said)


def _messages(wanted: Callable[[type[Any]], bool]) -> str:
    rows = [[f"`{name}`", fields(cls), prose(cls)] for name, cls in MESSAGES.items() if wanted(cls)]
    return table(["type", "fields", "meaning"], rows)


def handshake() -> str:
    """The messages that both vocabularies have."""
    return _messages(lambda cls: cls not in CALLS2 and cls not in OLD)


def old() -> str:
    """The messages of the old vocabulary."""
    return _messages(lambda cls: cls in OLD)


def ours() -> str:
    """The messages of ``calls2``."""
    return _messages(lambda cls: cls in CALLS2)


def capabilities() -> str:
    """What a peer may name."""
    return table(
        ["capability", "meaning"], [[f"`{name}`", text] for name, text in CAPABILITIES.items()]
    )


def reasons() -> str:
    """Why a link ends."""
    rows = [
        [f"`{name}`", str(reason.code), "yes" if reason.final else "", reason.text]
        for name, reason in REASONS.items()
    ]
    return table(["reason", "close code", "final", "meaning"], rows)


def operations() -> str:
    """Every call."""
    rows = []
    for op, cls in CALLS.items():
        streams = [f"takes `{cls.takes}`"] if cls.takes else []
        streams += [f"gives `{name}`" for name in cls.gives]
        changes = "" if cls.reads else "yes"
        answer = f"`{cls.result.__name__}`"
        rows.append([f"`{op}`", changes, fields(cls), ", ".join(streams), answer, prose(cls)])
    return table(["op", "key needed", "fields", "streams", "answer", "meaning"], rows)


def answers() -> str:
    """Every answer, and what answers are made of."""
    rows = []
    for name in sorted(vars(results)):
        cls = vars(results)[name]
        made = isinstance(cls, type) and cls.__module__ == results.__name__
        if made and cls is not Result:
            rows.append([f"`{name}`", fields(cls), prose(cls)])
    return table(["answer", "fields", "meaning"], rows)


assert calls.CALLS is CALLS

PARTS: dict[str, Callable[[], str]] = {
    "node-capabilities": capabilities,
    "node-handshake": handshake,
    "node-old": old,
    "node-ours": ours,
    "node-operations": operations,
    "node-answers": answers,
    "node-reasons": reasons,
}
