"""What a text in a state may hold: characters that a person can see, and line ends.

Texts are brought to Unicode's composed form (NFC) and to line feeds. Signs that hide or
reorder what is read are refused by name and place, never taken out in silence: a text that
somebody hid something in is not the text that somebody else saw.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

# Directions and their isolates, zero-width signs, fillers, annotation, tag characters,
# variation selectors that can carry bytes, separators that break lines, noncharacters.
_HIDDEN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_JOINERS = "\u200c\u200d"
_SELECTORS = re.compile("[\ufe00-\ufe0f]")
_KEYCAPS = frozenset("0123456789#*")
_CONTROL_NAMES = {0x00: "NULL", 0x08: "BACKSPACE", 0x1B: "ESCAPE", 0x7F: "DELETE"}


def normal(text: str) -> str:
    """The composed form with line feeds only; what it means stays the same."""
    if text.isascii():
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))


def visible(text: str) -> str:
    """The text in its composed form, with a name in place of each sign that hides, so that it
    may be shown whole; tabs and line feeds stay."""
    kept = normal(text)
    for at, name in reversed(list(hidden(kept))):
        kept = f"{kept[:at]}<{name}>{kept[at + 1 :]}"
    return kept


def hidden(text: str) -> Iterator[tuple[int, str]]:
    """The signs that are refused: (place in characters, name such as
    ``U+202E RIGHT-TO-LEFT OVERRIDE``).

    Joiners between letters that are not ASCII, and a single selector behind a symbol, belong
    to the writing of several scripts and to emoji; these are let through.
    """
    for found in _HIDDEN.finditer(text):
        at, sign = found.start(), found.group()
        if sign in _JOINERS and _joins(text, at):
            continue
        if _SELECTORS.match(sign) and _selects(text, at):
            continue
        yield at, describe(sign)


def _joins(text: str, at: int) -> bool:
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    return (
        bool(before and after)
        and not before.isascii()
        and not after.isascii()
        # a selector may stand between an emoji and its joiner
        and (_HIDDEN.match(before) is None or _SELECTORS.match(before) is not None)
        and _HIDDEN.match(after) is None
    )


def _selects(text: str, at: int) -> bool:
    before = text[at - 1 : at]
    return bool(before) and (
        before in _KEYCAPS or (not before.isascii() and _HIDDEN.match(before) is None)
    )


def no_name(text: str) -> str:
    """Why a text is no name of a model or a provider, which is kept, shown, and given to a
    program as an argument; "" if it is one."""
    from handoff.redaction import looks_secret

    if text.startswith("-") or text != text.strip() or not text.isprintable():
        return "it begins with '-' or a blank, or can't be shown"
    return "it holds a secret" if looks_secret(text) else ""


def describe(sign: str) -> str:
    """A sign by its number and name."""
    number = ord(sign)
    name = unicodedata.name(sign, "") or _CONTROL_NAMES.get(number, "CONTROL CHARACTER")
    return f"U+{number:04X} {name}"


def place(text: str, at: int) -> str:
    """A place for people: line and column, counted from 1."""
    before = text[:at]
    return f"line {before.count(chr(10)) + 1}, column {at - (before.rfind(chr(10)) + 1) + 1}"


def one_line(text: str, limit: int = 200) -> str:
    """A text as one line that is safe on a terminal: control and hidden signs as numbers,
    what is over the limit as an ellipsis. For headers and messages, never for storage."""
    shown = _HIDDEN.sub(lambda m: f"<U+{ord(m.group()):04X}>", text.replace("\t", " "))
    shown = shown.replace("\n", " ⏎ ")
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
