"""Decoding that keeps what is sound.

Peers add fields, change types and leave things out. A field that is unknown is ignored; a
field of the wrong type takes its default, if it has one; an element of the wrong type is
left out of its list. Only a required field that is missing or wrong makes the whole value
unusable.
"""

from __future__ import annotations

import types
import typing
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def lenient(kind: type[T], value: Any) -> T | None:
    """The value as ``kind`` (a msgspec struct), or None if it can't be one."""
    try:
        converted: T = _convert(kind, value)
    except (msgspec.ValidationError, RecursionError):
        return None
    return converted


def _convert(kind: Any, value: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
            return _struct(kind, value)
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if origin in (list, tuple) and isinstance(value, list):
            kept = [item for item in (_maybe(args[0], v) for v in value) if item is not _WRONG]
            return tuple(kept) if origin is tuple else kept
        if origin is types.UnionType or origin is typing.Union:
            for inner in args:
                found = _maybe(inner, value)
                if found is not _WRONG and inner is not type(None):
                    return found
        raise


def _struct(kind: type[msgspec.Struct], value: dict[str, Any]) -> msgspec.Struct:
    sound: dict[str, Any] = {}
    for spec in msgspec.structs.fields(kind):
        if spec.encode_name not in value:
            if spec.required:
                raise msgspec.ValidationError(f"'{spec.encode_name}' is missing")
            continue
        converted = _maybe(spec.type, value[spec.encode_name])
        if converted is not _WRONG:
            sound[spec.name] = converted
        elif spec.required:
            raise msgspec.ValidationError(f"'{spec.encode_name}' is wrong")
    return kind(**sound)


class _Wrong:
    pass


_WRONG = _Wrong()


def _maybe(kind: Any, value: Any) -> Any:
    try:
        return _convert(kind, value)
    except msgspec.ValidationError:
        return _WRONG
