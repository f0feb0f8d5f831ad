"""What a configuration key can be: its description, its kind, and how its text is read.

The description stands in the ``Annotated`` type of a struct's field
(:mod:`handoff.config`); :func:`fields` and :func:`describe` read it back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

DURATION = "duration"
SIZE = "size"
PATH = "path"
WORDS = "words"
RATIO = "ratio"
COUNT = "count"
REGEX = "regex"


class Key(msgspec.Struct, frozen=True):
    """How a field is read (``kind``) and what it means (``text``). ``secret``: its value
    is never shown, not even in an error. ``choices``: the only legal values. ``idle``: read
    because files of other versions hold it; it has no effect here, and setting it is
    reported."""

    text: str
    kind: str = ""
    secret: bool = False
    choices: tuple[str, ...] = ()
    idle: bool = False


class KeyDoc(msgspec.Struct, frozen=True):
    """One key for people: dotted ``name`` (``NAME`` stands for any name), type, default,
    meaning."""

    name: str
    type: str
    default: str
    text: str


class ConfigWarning(msgspec.Struct, frozen=True):
    """Something that was read over. ``line`` counts from 1; 0 = the file as a whole."""

    key: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


# -- scalars -----------------------------------------------------------------------------

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_BYTES = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30,
}  # fmt: skip
_SIZE_TEXT = re.compile(r"([0-9]+)\s*([A-Za-z]*)")


def parse_duration(text: str) -> float:
    """Seconds of ``90s``, ``2h``, ``1h30m``, ``250ms`` or ``0``.

    Raises:
        ValueError: it is none of these. A number without a unit is refused: whether it
            means seconds or nanoseconds differs between tools.
    """
    if text == "0":
        return 0.0
    total, at = 0.0, 0
    for part in _DURATION_PART.finditer(text):
        if part.start() != at:
            break
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if at != len(text) or not text:
        raise ValueError(f"'{text}' is not a duration such as 90s, 10m or 2h")
    return total


def _parse_size(text: str) -> int:
    found = _SIZE_TEXT.fullmatch(text)
    unit = _BYTES.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise ValueError("expected a size such as 64MiB")
    return int(found[1]) * unit


def _parse_count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("expected a whole number, 0 or more")
    return int(text)


def _parse_ratio(text: str) -> float:
    value = float(text) if re.fullmatch(r"[0-9]*\.?[0-9]+", text) else -1.0
    if not 0 < value < 1:
        raise ValueError("expected a number above 0 and below 1")
    return value


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _parse_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"expected a regular expression ({error})") from None
    return text


def _positive_duration(text: str) -> float:
    try:
        value = parse_duration(text)
    except ValueError:
        raise ValueError("expected a duration such as 90s, 10m or 2h") from None
    if value <= 0:
        raise ValueError("expected a duration above 0")
    return value


def _parse_path(text: str) -> str:
    return os.path.expanduser(text)


PARSERS: dict[str, Callable[[str], Any]] = {
    DURATION: _positive_duration,
    SIZE: _parse_size,
    COUNT: _parse_count,
    RATIO: _parse_ratio,
    REGEX: _parse_regex,
    PATH: _parse_path,
    "bool": _parse_bool,
    "": str,
}


# -- the schema, read off the structs ----------------------------------------------------


class Field(msgspec.Struct, frozen=True):
    """One key: its name, the type of its value, its description and its default."""

    name: str
    type: Any
    key: Key
    default: Any


def fields(cls: type[msgspec.Struct]) -> dict[str, Field]:
    """The keys of a struct by name, read off its annotations."""
    hints = get_type_hints(cls, include_extras=True)
    found: dict[str, Field] = {}
    for info in msgspec.structs.fields(cls):
        hint, key = hints[info.name], Key("")
        if get_origin(hint) is Annotated:
            hint, key = get_args(hint)[0], get_args(hint)[1]
        elif not is_struct(hint):
            continue  # a field without a description is no key
        default = info.default
        if default is msgspec.NODEFAULT:
            default = info.default_factory() if callable(info.default_factory) else None
        found[info.name] = Field(info.name, hint, key, default)
    return found


def is_struct(hint: Any) -> bool:
    """Whether a type is a struct, that is: a mapping of keys."""
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _duration_text(seconds: float) -> str:
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"


def _default_text(field: Field) -> str:
    value = field.default
    if field.key.kind == DURATION:
        return _duration_text(value)
    if field.key.kind == SIZE:
        return f"{value // 2**20}MiB"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(value) + "]"
    if isinstance(value, dict):
        return "{}"
    return str(value) if value != "" else '""'


def type_text(field: Field) -> str:
    """The type of a key for people."""
    kind = field.key.kind
    if field.key.choices:
        return " or ".join(field.key.choices)
    if get_origin(field.type) is tuple:
        return "list or line" if kind == WORDS else "list"
    if get_origin(field.type) is dict:
        return "map"
    return kind or {bool: "true or false", str: "text"}.get(field.type, "number")


def describe(cls: type[msgspec.Struct]) -> list[KeyDoc]:
    """Every key of a struct and of those inside it, in their order."""

    def walk(cls: type[msgspec.Struct], prefix: str) -> Iterator[KeyDoc]:
        for field in fields(cls).values():
            name = prefix + field.name
            inner = get_args(field.type)[1] if get_origin(field.type) is dict else None
            if is_struct(field.type):
                yield from walk(field.type, name + ".")
            elif inner is not None and is_struct(inner):
                yield from walk(inner, f"{name}.NAME.")
            else:
                shown = f"{name}.NAME" if inner else name
                text = field.key.text + ("; no effect in this version" if field.key.idle else "")
                yield KeyDoc(shown, type_text(field), _default_text(field), text)

    return list(walk(cls, ""))
