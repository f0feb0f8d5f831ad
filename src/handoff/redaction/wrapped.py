"""Secrets that their surroundings give away and that go on behind a line end.

A program that wraps lines breaks a value anywhere. The first part has its name beside it; the
second one has nothing, so it counts only if both look as random as no word of a text does.
"""

from __future__ import annotations

import re
from itertools import pairwise

from handoff.redaction.shapes import Span

__all__ = ["BROKEN_LOGIN", "onward"]

#: credentials in a URL that are broken once, up to the sign before the host
BROKEN_LOGIN = re.compile(
    r"([^\s/?#:@\"'`<>\[\]]{0,256}):"
    r"((?![0-9]+\r?\n)[^\s/?#@.\"'`<>]{1,256}\r?\n[^\s/?#@.\"'`<>]{1,256})@(?=[\w.-])"
)
_TAIL = re.compile(r"\r?\n(?P<tail>[A-Za-z0-9+/_-]{6,512}={0,2}!?)(?=[\s\"'`@;,)|]|\Z)")
_HEX = re.compile(r"[0-9a-f]+\Z|[0-9A-F]+\Z")
#: what ends a name within a value, as in a cookie
_LAST = re.compile(r"[\s=;,:]")
#: changes between small and capital letters, digits and signs, per sign
_MIXED = 0.32


def onward(text: str, span: Span) -> Span:
    """The finding with what of it stands on the next line, if anything does."""
    found = _TAIL.match(text, span.end)
    if found is None:
        return span
    tail, head = found["tail"], _LAST.split(span.value)[-1]
    if not _random(head + tail, 4, 2) or not _random(tail, 3, 1):
        return span
    return Span(span.start, found.end("tail"), span.kind, span.value + tail)


def _random(word: str, least: int, digits: int) -> bool:
    """Whether a word is like nothing that anybody typed: small and capital letters and
    digits that alternate, at least so many times, with so many digits. Digests and ids in
    hex are not."""
    numbers = sum(sign.isdigit() for sign in word)
    if numbers < digits or _HEX.match(word) or numbers + word.count("-") == len(word):
        return False
    kinds = [_kind(sign) for sign in word]
    changes = sum(one != other for one, other in pairwise(kinds))
    share = _MIXED if {"u", "l"} <= set(kinds) else 2 * _MIXED
    if numbers == 1:  # as in the names of things: OAuth2Client
        share += 0.1
    return changes >= least and changes >= share * len(word)


def _kind(sign: str) -> str:
    if sign.isdigit():
        return "d"
    return "u" if sign.isupper() else "l" if sign.islower() else "s"
