"""One field of a state: what stands there, checked and in its normal form.

Nothing here raises. A fault is written down with its JSON pointer and checking goes on, so
that a writer learns all of them at once. A fault never repeats the value: it may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from handoff.redaction import looks_secret
from handoff.sessions import text as texts
from handoff.sessions.schema import EVIDENCE, TEXT_SOFT, Field

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}\Z")
_HASH = re.compile(r"[0-9a-f]{64}\Z")
_COMMIT = re.compile(r"[0-9a-f]{7,64}\Z")
_TIME = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::(?:[0-5][0-9]|60)(?:\.[0-9]{1,9})?)?"
    r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?\Z"
)
#: milliseconds since 1970 of the last day of 9999
_TIME_MAX = 253_402_300_799_999
_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z_]{0,31}\Z")
#: hidden signs named in one text
_SIGNS_SHOWN = 4


class Note(NamedTuple):
    """Something about one place of a state. ``pointer``: RFC 6901. ``code``: for programs.
    ``message``: for people; it holds no text of the state."""

    pointer: str
    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        """As an object."""
        return {"pointer": self.pointer, "code": self.code, "message": self.message}


class Notes:
    """What was found in one check: faults, warnings, and what was changed."""

    def __init__(self) -> None:
        self.faults: list[Note] = []
        self.warnings: list[Note] = []
        self.changes: list[Note] = []

    def fault(self, pointer: str, code: str, message: str) -> None:
        """The state can't be taken."""
        self.faults.append(Note(pointer, code, message))

    def warn(self, pointer: str, code: str, message: str) -> None:
        """The state can be taken, and could be better."""
        self.warnings.append(Note(pointer, code, message))

    def change(self, pointer: str, code: str, message: str) -> None:
        """The state is taken in another form than it came in."""
        self.changes.append(Note(pointer, code, message))


def shown_key(key: str, number: int) -> str:
    """A key that nobody expected, for a pointer: as it is if it is a plain word, else by its
    number, since somebody may have put a secret there."""
    if _PLAIN_KEY.match(key) and not looks_secret(key):
        return key
    return f"(key {number + 1})"


def read_object(
    value: object, fields: Mapping[str, Field], pointer: str, notes: Notes
) -> dict[str, object]:
    """An object with these fields in its normal form, or {} with faults."""
    if not isinstance(value, dict):
        notes.fault(pointer, "type", f"{_kind(value)} stands where an object must")
        return {}
    for number, key in enumerate(value):
        if key not in fields:
            known = ", ".join(fields)
            notes.fault(
                f"{pointer}/{shown_key(key, number)}",
                "unknown_key",
                f"no such field; there are {known}",
            )
    made: dict[str, object] = {}
    for name, field in fields.items():
        given = value.get(name)
        here = f"{pointer}/{name}"
        if given is None:
            if field.need:
                notes.fault(here, "missing", "this field must be there")
            elif field.kind in {"texts", "ids", "evidence"}:
                made[name] = []
            elif field.otherwise is not None:
                made[name] = field.otherwise
            continue
        checked = read(given, field, here, notes)
        if checked is not None:
            made[name] = checked
    return made


def read(value: object, field: Field, pointer: str, notes: Notes) -> object:
    """A value in its normal form; ``None`` if it has a fault, or says nothing (an optional
    text without a letter)."""
    kind = field.kind
    if kind in {"texts", "ids", "evidence"}:
        return _list(value, field, pointer, notes)
    if kind == "integer":
        return _integer(value, field, pointer, notes)
    if kind == "flag":
        if isinstance(value, bool):
            return value
        notes.fault(pointer, "type", f"{_kind(value)} stands where true or false must")
        return None
    if kind == "time" and isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= _TIME_MAX:
            return value
        notes.fault(pointer, "time", "not a time in milliseconds since 1970")
        return None
    if not isinstance(value, str):
        notes.fault(pointer, "type", f"{_kind(value)} stands where a text must")
        return None
    return _string(value, field, pointer, notes)


def _string(value: str, field: Field, pointer: str, notes: Notes) -> object:
    kind = field.kind
    if kind == "choice":
        if value in field.choices:
            return value
        notes.fault(pointer, "choice", "must be one of " + ", ".join(field.choices))
        return None
    if kind in _GRAMMARS:
        pattern, meant = _GRAMMARS[kind]
        if pattern.match(value):
            return value
        notes.fault(pointer, kind, f"must be {meant}")
        return None
    text = value if kind == "path" else texts.normal(value)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > field.limit:
        notes.fault(pointer, "too_large", f"{size} bytes; the limit is {field.limit}")
        return None
    found = list(texts.hidden(text))
    if found:
        signs = [f"{name} at {texts.place(text, at)}" for at, name in found[:_SIGNS_SHOWN]]
        more = f" and {len(found) - _SIGNS_SHOWN} more" if len(found) > _SIGNS_SHOWN else ""
        notes.fault(pointer, "hidden_sign", "; ".join(signs) + more)
        return None
    if kind in {"line", "path"} and ("\n" in text or "\t" in text):
        notes.fault(pointer, "one_line", "must be one line without tabs")
        return None
    if not text.strip():
        if field.need:
            notes.fault(pointer, "blank", "there is no letter in it")
        return None
    if kind == "path":
        return _path(text, pointer, notes)
    if size > TEXT_SOFT and field.limit > TEXT_SOFT:
        notes.warn(pointer, "long_text", f"{size} bytes; up to {TEXT_SOFT} is read with care")
    return text


_GRAMMARS: dict[str, tuple[re.Pattern[str], str]] = {
    "id": (_ID, "up to 64 letters, digits, '.', '_', ':', '-', with a letter or digit first"),
    "hash": (_HASH, "64 lower-case hex digits"),
    "commit": (_COMMIT, "7 to 64 lower-case hex digits"),
    "time": (_TIME, "a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970"),
}


def _path(path: str, pointer: str, notes: Notes) -> object:
    parts = path.split("/")
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:[\\/]", path):
        notes.fault(pointer, "path", "must be relative to the workspace")
    elif ".." in parts:
        notes.fault(pointer, "path", "must not leave the workspace by '..'")
    elif ".git" in parts:
        notes.fault(pointer, "path", "git's own files are no files of the workspace")
    elif "" in parts or "." in parts:
        notes.fault(pointer, "path", "must be in its shortest form, without '.' and empty parts")
    else:
        return path
    return None


def _integer(value: object, field: Field, pointer: str, notes: Notes) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        notes.fault(pointer, "type", f"{_kind(value)} stands where an integer must")
    elif abs(value) > field.limit or (value < 0 and field.otherwise is not None):
        low = 0 if field.otherwise is not None else -field.limit
        notes.fault(pointer, "range", f"must lie between {low} and {field.limit}")
    else:
        return value
    return None


def _list(value: object, field: Field, pointer: str, notes: Notes) -> object:
    if not isinstance(value, list):
        notes.fault(pointer, "type", f"{_kind(value)} stands where a list must")
        return None
    if len(value) > field.limit:
        notes.fault(pointer, "too_many", f"{len(value)} entries; the limit is {field.limit}")
        return None
    made: list[object] = []
    for number, entry in enumerate(value):
        here = f"{pointer}/{number}"
        if field.kind == "evidence":
            made.append(read_object(entry, EVIDENCE, here, notes))
            continue
        one = Field("id" if field.kind == "ids" else "text", need=True)
        checked = read(entry, one, here, notes)
        if checked is not None:
            made.append(checked)
    return made


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "an integer", str: "a text", list: "a list"}
    return names.get(type(value), "an object" if isinstance(value, dict) else "a fraction")
