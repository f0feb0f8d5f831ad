"""One value, one sequence of bytes; and the digests made of them.

Canonical JSON is UTF-8 without insignificant blanks, with keys in the order of their code
points, integers as the only numbers, and only those escapes that JSON demands (as in
RFC 8785, which sorts by UTF-16 units and knows fractions; neither is needed here). A digest
names its domain, so that equal bytes of different kinds never have equal digests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import NoReturn

from handoff.errors import InputTooLarge, StateInvalid

#: bytes of JSON that are read at all; a state is far smaller
MAX_INPUT = 4 * 1024 * 1024
#: arrays and objects within each other; a state has four
MAX_DEPTH = 32
#: beyond this other programs' numbers are no longer exact
MAX_INTEGER = 2**53 - 1
#: bits of a digest that become an id
ID_BITS = 160


def dumps(value: object) -> bytes:
    """The canonical bytes of a JSON value.

    Raises:
        StateInvalid: it holds a fraction, a number beyond 2**53 - 1, a key that is not text,
            half a surrogate pair, something that JSON does not know, or is too deep.
    """
    _check(value, 0)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise StateInvalid("a text holds half of a surrogate pair, which has no UTF-8") from None


def _check(value: object, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise StateInvalid(f"more than {MAX_DEPTH} arrays and objects lie within each other")
    if value is None or isinstance(value, bool | str):
        return
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise StateInvalid(f"an integer is beyond {MAX_INTEGER}, where numbers become inexact")
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise StateInvalid(f"a key is {type(key).__name__}, not text")
            _check(item, depth + 1)
    else:
        raise StateInvalid(f"{type(value).__name__} has no canonical form")


def loads(data: bytes | str) -> object:
    """Strict JSON: what a lenient parser would guess about is refused.

    Raises:
        InputTooLarge: more than :data:`MAX_INPUT` bytes.
        StateInvalid: not UTF-8, not JSON, a key twice in one object, a fraction, NaN, a
            number too large, or too deep. The text of the error holds nothing of the input.
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if len(raw) > MAX_INPUT:
        raise InputTooLarge(
            f"the JSON has {len(raw)} bytes; {MAX_INPUT} are read", size=len(raw), limit=MAX_INPUT
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StateInvalid(f"not UTF-8: byte {error.start} does not fit") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_no_fraction,
            parse_constant=_no_fraction,
            parse_int=_integer,
        )
    except json.JSONDecodeError as error:
        raise StateInvalid(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise StateInvalid(
            f"more than {MAX_DEPTH} arrays and objects lie within each other"
        ) from None
    _check(value, 0)
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise StateInvalid("an object has the same key twice")
    return made


def _no_fraction(_text: str) -> NoReturn:
    raise StateInvalid("a number is not an integer")


def _integer(text: str) -> int:
    if len(text) > 17:  # 2**53 has 16 digits; a sign may stand before them
        raise StateInvalid(f"an integer is beyond {MAX_INTEGER}, where numbers become inexact")
    return int(text)


def digest(domain: str, data: bytes) -> str:
    """SHA-256 over the domain, a line feed and the bytes, as 64 hex digits."""
    return hashlib.sha256(domain.encode("utf-8") + b"\n" + data).hexdigest()


def content_id(domain: str, parts: Mapping[str, object]) -> str:
    """The id of a content: the first 160 bits of its digest in base32, 32 lower-case letters
    and digits. Equal parts have equal ids, on every machine.

    Raises:
        StateInvalid: the parts have no canonical form.
    """
    raw = bytes.fromhex(digest(domain, dumps(dict(parts))))[: ID_BITS // 8]
    return base64.b32encode(raw).decode("ascii").lower()
