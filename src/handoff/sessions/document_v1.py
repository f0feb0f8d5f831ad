"""Reading the Markdown documents of version 1 into a state: everything in them, nothing more.

Such a document has the level-two headings Goal, Constraints & Preferences, Progress (with
Done, In Progress, Pending), Key Decisions, Critical Context and Next Steps; what stands under
them is bullets, numbers, or free text. Its format never said where an item ends, so this
reads with tolerance: whatever fits no list becomes an item of the context, word for word.
Headings within a code fence are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from handoff.errors import ImportRefused
from handoff.sessions.schema import V1_LISTS
from handoff.sessions.text import normal

__all__ = ["read"]

_HEADING = re.compile(r"(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*\Z")
_ITEM = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])[ \t]+(?=\S)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)\Z")
#: what its renderer wrote for an empty list
_NONE = "None identified."
#: what its renderer put before the lists that it folded into the context
_PREFIXES = (
    ("Rejected attempt: ", "rejected_attempts"),
    ("Verification: ", "verification"),
    ("Uncertainty: ", "uncertainties"),
)
#: (level, heading) -> the list that its items belong to; "" for none of their own
_SECTIONS = {
    (2, "goal"): "goal",
    (2, "constraints & preferences"): "constraints_preferences",
    (2, "progress"): "",
    (3, "done"): "done",
    (3, "in progress"): "in_progress",
    (3, "pending"): "pending",
    (2, "key decisions"): "key_decisions",
    (2, "critical context"): "critical_context",
    (2, "next steps"): "next_steps",
}


def read(text: str) -> dict[str, object]:
    """The state of version 1 that a document holds; the caller checks it.

    Raises:
        ImportRefused: there is no goal in it.
    """
    found: dict[str, list[str]] = {name: [] for name in (*V1_LISTS, "done", "in_progress",
                                                         "pending", "goal")}  # fmt: skip
    for name, body in _sections(normal(text)):
        if name == "goal":
            found["goal"] += [body] if body else []
            continue
        for item in _items(body):
            where, rest = name or "critical_context", item
            if where == "critical_context":
                where, rest = _folded(item)
            if rest.strip() and rest != _NONE:
                found[where].append(rest)
    if not found["goal"]:
        raise ImportRefused(
            "that is no handoff document: it has no goal under '## Goal'",
            remedy="handoff session import --help",
        )
    goal = found.pop("goal")
    return {
        "schema_version": 1,
        "goal": "\n\n".join(goal),
        "progress": {key: found.pop(key) for key in ("done", "in_progress", "pending")},
        **found,
    }


def _folded(item: str) -> tuple[str, str]:
    """The list that an item of the context came from, and its text."""
    for prefix, name in _PREFIXES:
        if item.startswith(prefix):
            return name, item.removeprefix(prefix)
    return "critical_context", item


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """(list, body) in order. A heading that the format does not know stays in its body."""
    name, lines, fence = "", list[str](), ""
    for line in text.split("\n"):
        fence = _fence(line, fence)
        found = None if fence else _HEADING.match(line)
        level, title = (len(found[1]), found[2]) if found else (0, "")
        title = re.sub(r"\s+", " ", title.replace(" and ", " & ")).casefold()
        known = _SECTIONS.get((level, title))
        if found is not None and (known is not None or level <= 2):
            yield name, "\n".join(lines).strip("\n")
            # An unknown section keeps its heading, as the first words of its text.
            name, lines = known or "", [] if known is not None else [line]
        else:
            lines.append(line)
    yield name, "\n".join(lines).strip("\n")


def _fence(line: str, fence: str) -> str:
    """The fence that is open behind this line, or ""."""
    found = _FENCE.match(line)
    if found is None:
        return fence
    if not fence:
        return found[1] if found[1][0] == "~" or "`" not in found[2] else ""
    closes = found[1][0] == fence[0] and len(found[1]) >= len(fence) and not found[2].strip()
    return "" if closes else fence


def _items(body: str) -> Iterator[str]:
    """The items of a section: a bullet with what belongs to it, or a run of free text."""
    if not body.strip():
        return
    item: list[str] = []
    fence = ""
    for line in body.split("\n"):
        bullet = None if fence else _ITEM.match(line)
        fence = _fence(line, fence)
        if bullet is not None:
            yield from _one(item)
            item = [line[bullet.end() :]]
        else:
            item.append(line)
    yield from _one(item)


def _one(lines: list[str]) -> Iterator[str]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield text
