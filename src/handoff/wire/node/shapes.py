"""Frozen dataclasses as JSON objects, both ways, from their annotations alone.

A class lists its fields with the annotations named in :data:`KINDS`; :func:`decode` reads
them from an object whose further keys are ignored, :func:`encode` writes them back. A field
with a default is left out when it holds it, unless its metadata says ``always``.

Two kinds carry what JSON text can't. ``Text`` is a name or an argument of the operating
system: ``str`` in Python with undecodable bytes as lone surrogates (``os.fsdecode``).
``Data`` is ``bytes``. Both are plain JSON text where they are UTF-8, and otherwise the
object ``{"b64": "…"}`` with standard padded base64: marked, never replaced.
``B64`` is bytes that are always base64 text, as the fields named ``…_b64`` demand.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from handoff.errors import BadRequest

__all__ = ["B64", "Data", "Text", "decode", "encode", "text"]

#: a path, argument or variable; lone surrogates stand for bytes that are not UTF-8
Text = str
#: bytes that are JSON text where they are UTF-8
Data = bytes
#: bytes that are base64 in JSON, always
B64 = bytes

T = TypeVar("T")


def text(limit: int, default: Any = dataclasses.MISSING, *, always: bool = False) -> Any:
    """A field whose text has at most ``limit`` characters, or whose list has."""
    return dataclasses.field(default=default, metadata={"limit": limit, "always": always})


def always(default: Any) -> Any:
    """A field that is written even when it holds its default."""
    return dataclasses.field(default=default, metadata={"always": True})


class Kind(NamedTuple):
    """``take``: from JSON, raising TypeError or ValueError. ``give``: to JSON."""

    take: Callable[[Any], Any]
    give: Callable[[Any], Any]


def _take_str(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("a text")
    if not value.isascii():
        _bytes_of(value)
    return value


def _bytes_of(value: str) -> bytes:
    # JSON can write half of a surrogate pair, which is no character and can't be sent on
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("Unicode text") from None


def _take_int(value: Any) -> int:
    if type(value) is not int:
        if type(value) is float and value.is_integer() and abs(value) < 2**53:
            return int(value)
        raise TypeError("a whole number")
    if not -(2**63) <= value < 2**63:
        raise ValueError("a number of 64 bits")
    return value


def _take_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError("true or false")
    return value


def _b64(value: Any) -> bytes:
    if type(value) is not str:
        raise TypeError("base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("base64 text") from None


def _give_b64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _marked(value: Any) -> bytes:
    if not isinstance(value, dict) or "b64" not in value:
        raise TypeError('a text, or {"b64": …}')
    return _b64(value["b64"])


def _take_text(value: Any) -> str:
    if type(value) is str:
        return _take_str(value)
    return _marked(value).decode("utf-8", "surrogateescape")


def _give_text(value: str) -> Any:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return {"b64": _give_b64(value.encode("utf-8", "surrogateescape"))}
    return value


def _take_data(value: Any) -> bytes:
    if type(value) is str:
        return _bytes_of(value)
    return _marked(value)


#: what JSON writes as six characters
_CONTROLS = bytes(set(range(32)) - set(b"\b\t\n\f\r"))


def _give_data(value: bytes) -> Any:
    if len(value) - len(value.translate(None, _CONTROLS)) > len(value) // 8:
        return {"b64": _give_b64(value)}  # base64 adds a third, escapes would add more
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": _give_b64(value)}


def _take_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("an object")
    return value


#: how deep an object without a class of its own may be nested, so that writing it again
#: can't run out of stack where reading it did not
DEPTH = 32


def _take_any(value: Any) -> dict[str, Any]:
    """An object whose content is not known here: shallow, and of texts that can be sent on."""
    _check_any(_take_object(value), DEPTH)
    return value  # type: ignore[no-any-return]


def _check_any(value: Any, left: int) -> None:
    if not left:
        raise ValueError(f"nested less than {DEPTH} deep")
    inner = value
    if isinstance(value, dict):
        for key in value:
            if not key.isascii():
                _bytes_of(key)
        inner = value.values()
    for item in inner:
        kind = type(item)
        if kind is str:
            if not item.isascii():
                _bytes_of(item)
        elif kind is list or isinstance(item, dict):
            _check_any(item, left - 1)


def _give_str(value: str) -> str:
    """A text for people; what is no character in it (half of a name that is not UTF-8) is
    shown as its bytes, so that the other side can take it."""
    if value.isascii():
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        shown = _ESCAPED.sub(lambda half: f"\\x{ord(half[0]) - 0xDC00:02x}", value)
        return shown.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


_ESCAPED = re.compile("[\udc80-\udcff]")


class Given(dict[str, Any]):
    """What :func:`encode` has made: it can be sent as it is."""

    __slots__ = ()


def _give_any(value: Any) -> Any:
    kind = type(value)
    if kind is Given:
        return value
    if kind is str:
        return _give_str(value)
    if isinstance(value, Mapping):
        return {_give_str(str(key)): _give_any(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_give_any(item) for item in value]
    return value


def _same(value: Any) -> Any:
    return value


def _each(kind: Kind) -> Kind:
    def take(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise TypeError("a list")
        return tuple([kind.take(item) for item in value])

    def give(value: Any) -> list[Any]:
        return [kind.give(item) for item in value]

    return Kind(take, give)


def _values(kind: Kind) -> Kind:
    def take(value: Any) -> dict[str, Any]:
        return {_take_str(key): kind.take(item) for key, item in _take_object(value).items()}

    def give(value: Any) -> dict[str, Any]:
        return {key: kind.give(item) for key, item in value.items()}

    return Kind(take, give)


def _maybe(kind: Kind) -> Kind:
    return Kind(
        lambda value: None if value is None else kind.take(value),
        lambda value: None if value is None else kind.give(value),
    )


_STR = Kind(_take_str, _give_str)
_INT = Kind(_take_int, _same)
_TEXT = Kind(_take_text, _give_text)

#: annotation -> how it goes over the wire; a class that was decoded before is one too
KINDS: dict[str, Kind] = {
    "str": _STR,
    "int": _INT,
    "bool": Kind(_take_bool, _same),
    "Text": _TEXT,
    "Data": Kind(_take_data, _give_data),
    "B64": Kind(_b64, _give_b64),
    "int | None": _maybe(_INT),
    "str | None": _maybe(_STR),
    "Text | None": _maybe(_TEXT),
    "tuple[str, ...]": _each(_STR),
    "tuple[int, ...]": _each(_INT),
    "tuple[Text, ...]": _each(_TEXT),
    "Mapping[str, Any]": Kind(_take_any, _give_any),
    "Mapping[str, str]": _values(_STR),
    "Mapping[str, Text]": _values(_TEXT),
    "Mapping[str, int]": _values(_INT),
}


class _Written(NamedTuple):
    """How a field is written."""

    name: str
    give: Callable[[Any], Any]
    always: bool
    default: Any


class _Shape(NamedTuple):
    """``read``: field -> how it is taken, and its limit. ``needed``: must be there."""

    read: dict[str, tuple[Callable[[Any], Any], int]]
    needed: tuple[str, ...]
    written: tuple[_Written, ...]


_COMPILED: dict[type, _Shape] = {}


def shape(cls: type[T]) -> type[T]:
    """Class decorator: its name may be used as an annotation in later shapes."""
    kind = Kind(lambda value: decode(cls, _take_object(value)), encode)
    KINDS[cls.__name__] = kind
    KINDS[f"{cls.__name__} | None"] = _maybe(kind)
    KINDS[f"tuple[{cls.__name__}, ...]"] = _each(kind)
    return cls


def _compiled(cls: type) -> _Shape:
    found = _COMPILED.get(cls)
    if found is None:
        found = _COMPILED[cls] = _compile(cls)
    return found


def _compile(cls: type) -> _Shape:
    read, needed, written = {}, [], []
    for f in dataclasses.fields(cls):
        kind = KINDS[str(f.type)]
        default = f.default
        if f.default_factory is not dataclasses.MISSING:
            default = f.default_factory()
        always = bool(f.metadata.get("always"))
        if default is dataclasses.MISSING:
            needed.append(f.name)
            always = True
        read[f.name] = (kind.take, int(f.metadata.get("limit", 0)))
        written.append(_Written(f.name, kind.give, always, default))
    return _Shape(read, tuple(needed), tuple(written))


def decode(cls: type[T], value: Mapping[str, Any]) -> T:
    """The object as ``cls``; keys that the class does not have are ignored.

    Raises:
        BadRequest: a required field is missing, or one that is known is of the wrong kind
            or too long; details hold ``field``.
    """
    read, needed, _ = _compiled(cls)
    found: dict[str, Any] = {}
    for name, given in value.items():
        how = read.get(name)
        if how is None:
            continue
        take, limit = how
        try:
            taken = take(given)
        except (TypeError, ValueError) as error:
            raise BadRequest(f"'{name}' must be {error}", field=name) from None
        except BadRequest as error:
            raise BadRequest(f"in '{name}': {error}", field=name) from None
        if limit and len(taken) > limit:
            raise BadRequest(f"'{name}' is longer than {limit}", field=name)
        found[name] = taken
    for name in needed:
        if name not in found:
            raise BadRequest(f"'{name}' is missing", field=name)
    return cls(**found)


def encode(value: Any) -> dict[str, Any]:
    """The JSON object of a shape; what holds its default is left out."""
    found = Given()
    for name, give, always, default in _compiled(type(value)).written:
        held = getattr(value, name)
        if always or (held is not default and held != default):
            found[name] = give(held)
    return found
