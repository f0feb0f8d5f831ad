"""From a document back to its state.

The reader knows only what the renderer writes. At the end it renders what it read and
compares: one byte of difference, and the document is refused.
"""

from __future__ import annotations

import re
from typing import Any

from handoff.errors import HandoffError, InputTooLarge, StateInvalid
from handoff.sessions import document
from handoff.sessions.document import BAR, NONE, NOTICE, SECTIONS, TITLE, UNSTATED
from handoff.sessions.schema import LISTS, SCHEMA
from handoff.sessions.state import State, check

#: bytes of a document that is read at all: a state of 256 KiB has a document of about as much
MAX_DOCUMENT = 2 * 1024 * 1024

_ID = re.compile(r"\[([^\]]*)\] ")
_FLAGS = re.compile(r"\(([^)]*)\) ")
_SUB = re.compile(r"  - (?P<name>[a-z ]+): (?P<text>.*)\Z", re.DOTALL)
_EVIDENCE = re.compile(r"\((?P<flags>[^)]*)\) (?P<id>.*)\Z", re.DOTALL)
_MS = re.compile(r"([0-9]{1,16})ms\Z")


class _Lines:
    """The document's lines, one after the other."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.at = 0

    def peek(self) -> str:
        return self.lines[self.at] if self.at < len(self.lines) else ""

    def take(self) -> str:
        line = self.peek()
        self.at += 1
        return line

    def expect(self, line: str) -> None:
        if self.at >= len(self.lines) or self.lines[self.at] != line:
            raise self.wrong(f"'{line or 'a blank line'}' must stand here")
        self.at += 1

    def wrong(self, message: str) -> StateInvalid:
        return StateInvalid(
            f"this is no document of ours: line {self.at + 1}: {message}",
            remedy="take the record's own document; edits belong into a new state",
            line=self.at + 1,
        )

    def text(self, first: str) -> str:
        """A text whose first line is known, with the lines behind bars that follow."""
        parts = [first]
        while self.peek() == BAR or self.peek().startswith(BAR + " "):
            parts.append(self.take()[len(BAR) + 1 :])
        return "\n".join(parts)


def parse(text: str) -> State:
    """The state that this document was rendered from. A header before the title is skipped.

    Raises:
        StateInvalid: it is not, byte for byte, what the renderer writes.
        InputTooLarge: over :data:`MAX_DOCUMENT` bytes.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_DOCUMENT:
        raise InputTooLarge(f"a document has at most {MAX_DOCUMENT} bytes", limit=MAX_DOCUMENT)
    lines = _Lines(text)
    for line in (TITLE, NOTICE, f"> schema: {SCHEMA}", ""):
        lines.expect(line)
    raw: dict[str, Any] = {"schema": SCHEMA, "progress": {}}
    decisions: dict[int, dict[str, Any]] = {}
    for heading, parts in SECTIONS:
        lines.expect(heading)
        lines.expect("")
        for title, path in parts:
            if title:
                lines.expect(title)
                lines.expect("")
            if path == "goal":
                raw["goal"] = _goal(lines)
            elif path == "lineage":
                raw["lineage"] = _lineage(lines)
            elif path.startswith("decisions/"):
                _decisions(lines, path, decisions)
            else:
                _list(lines, path, raw)
            lines.expect("")
    raw["decisions"] = [item for _, item in sorted(decisions.items())]
    try:
        state = check(raw).state
    except HandoffError as error:
        raise StateInvalid(
            f"this is no document of ours: {error}", remedy=error.remedy, **error.details
        ) from error
    if document.render(state) != text:
        raise StateInvalid(
            "this is no document of ours: its state would be written otherwise",
            remedy="take the record's own document; edits belong into a new state",
        )
    return state


def _goal(lines: _Lines) -> dict[str, Any]:
    line = lines.take()
    if not line.startswith("- goal: "):
        lines.at -= 1
        raise lines.wrong("the goal must stand here")
    goal: dict[str, Any] = {"text": lines.text(line[len("- goal: ") :]), "done_when": []}
    while (sub := _SUB.match(lines.peek())) is not None:
        lines.take()
        goal["done_when"].append(lines.text(sub["text"]))
    return goal


def _lineage(lines: _Lines) -> dict[str, Any]:
    line = lines.take()
    depth = line.removeprefix("- depth: ")
    made: dict[str, Any] = {"depth": int(depth) if re.match(r"[0-9]{1,3}\Z", depth) else -1}
    while (sub := _SUB.match(lines.peek())) is not None:
        lines.take()
        if sub["name"] == "parent":
            made["parent_ref"] = sub["text"]
        else:
            made["inherited_ids"] = sub["text"].split(", ")
    return made


def _list(lines: _Lines, path: str, raw: dict[str, Any]) -> None:
    owner, _, name = path.rpartition("/")
    target = raw["progress"] if owner else raw
    if lines.peek() == UNSTATED and path == "omissions":
        lines.take()
        return
    target[name] = []
    if lines.peek() == NONE:
        lines.take()
        return
    while lines.peek():
        target[name].append(_item(lines, path)[0])


def _item(lines: _Lines, path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """One item, and the flags of its first line as they stand there."""
    if not lines.peek().startswith("- "):
        raise lines.wrong("an item must stand here")
    name, rest = document.group(path), lines.peek()[2:]
    main = document.MAIN.get(name, "text")
    item: dict[str, Any] = {}
    if "id" in LISTS["decisions" if name == "decisions" else path].fields:
        found = _ID.match(rest)
        if found is None:
            raise lines.wrong("an item begins with its id in brackets")
        item["id"], rest = found[1], rest[found.end() :]
    flags: dict[str, str] = {}
    if name in document.FLAGS or name == "decisions":
        found = _FLAGS.match(rest)
        if found is None:
            raise lines.wrong("an item of this list has its facts in brackets")
        flags, rest = _flags(found[1]), rest[found.end() :]
    lines.take()
    item[main] = lines.text(rest)
    fields = LISTS["decisions" if path.startswith("decisions/") else path].fields
    for name, value in flags.items():
        if name in fields:
            item[name] = _value(value, fields[name].kind)
    while (sub := _SUB.match(lines.peek())) is not None:
        lines.take()
        name, text = sub["name"].replace(" ", "_"), lines.text(sub["text"])
        kind = fields[name].kind if name in fields else ""
        if kind == "texts":
            item.setdefault(name, []).append(text)
        elif kind == "ids":
            item[name] = text.split(", ")
        elif kind == "evidence":
            item.setdefault(name, []).append(_pointer(text, lines))
        else:
            item[name] = text
    return item, flags


def _decisions(lines: _Lines, path: str, found: dict[int, dict[str, Any]]) -> None:
    if lines.peek() == NONE:
        lines.take()
        return
    while lines.peek():
        item, flags = _item(lines, path)
        number = flags.get("number", "")
        if not re.match(r"[0-9]{1,4}\Z", number) or int(number) in found:
            raise lines.wrong("a decision has its number in the list")
        old = path == "decisions/old"
        item["status"] = "superseded" if old else "active"
        if old:
            item["text"] = "\n".join(line[2:-2] for line in item["text"].split("\n"))
        found[int(number)] = item


def _flags(text: str) -> dict[str, str]:
    found = {}
    for flag in text.split("; "):
        name, sign, value = flag.partition(": ")
        if sign:
            found[name.replace(" ", "_")] = value
    return found


def _value(text: str, kind: str) -> object:
    if kind == "flag":
        return {"yes": True, "no": False}.get(text, text)
    if kind == "integer":
        return int(text) if re.match(r"-?[0-9]{1,10}\Z", text) else text
    milliseconds = _MS.match(text) if kind == "time" else None
    if milliseconds is not None:
        return int(milliseconds[1])
    return text


def _pointer(text: str, lines: _Lines) -> dict[str, Any]:
    found = _EVIDENCE.match(text)
    if found is None:
        raise lines.wrong("evidence has its kind in brackets")
    made: dict[str, Any] = {"id": found["id"]}
    for name, value in _flags(found["flags"]).items():
        made[name] = _value(value, "time" if name == "at" else "line")
    return made
