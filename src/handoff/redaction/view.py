"""What the finders ask about a text, each question answered once.

Most text holds nothing, so the finders begin with what is cheap for a whole text at once:
where a word stands at all, and which different runs of token characters there are (a token
is nothing but such a run, and the same few runs come again and again). These look-ups go
through a copy in ASCII, in which every other character is a question mark, so that a place
in the copy is the place in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")

# Kelvin sign and dotted I: the two characters outside of ASCII whose small letter is in it.
_FOLDED = (("\u0130", "i"), ("\u212a", "k"))
_TOKEN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+/=.:@~%-"
_NAME = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."


def _classes(members: bytes) -> bytes:
    return bytes(0x61 if code in members else 0x20 for code in range(256))


_TOKEN_CLASSES, _NAME_CLASSES = _classes(_TOKEN), _classes(_NAME)
#: characters of the shortest token (slack's)
SHORTEST = 15
# With its literal beginning this is found five times as fast as by a count.
_RUNS = re.compile(b"a" * SHORTEST + b"a*")

#: words whose places can be asked for. None stands inside of another, nor overlaps itself
WORDS = (
    b"auth", b"basic", b"bearer", b"cookie", b"cred", b"jwt", b"key", b"pass", b"pat", b"pin",
    b"pw", b"secret", b"sessionid", b"sig", b"token", b"://", b" -u", b"-user",
)  # fmt: skip


def _by_letter(letter: bytes) -> re.Pattern[bytes]:
    """All words that start with this letter. (Literally beginning with it, this takes less
    time than a search for a single word.)"""
    ends = b"|".join(re.escape(word[1:]) for word in WORDS if word.startswith(letter))
    return re.compile(re.escape(letter) + b"(?:" + ends + b")")


_BY_LETTER = [_by_letter(letter) for letter in sorted({word[:1] for word in WORDS})]
# In a shorter text one search for all of them takes less time.
_FEW = 512
_ANY = re.compile(b"|".join(re.escape(word) for word in WORDS))

# A line end inside of a word, with the quote or list sign that begins the next line. `+`
# and `-` may be such a sign (in a difference) or the word's own: both readings are tried.
_AT_END = r"(\n(?:(?<=[A-Za-z0-9_+/=.:@~-]\n)|(?<=[A-Za-z0-9_+/=.:@~-]\r\n))[ \t]{0,64}"
_BREAK = re.compile(
    _AT_END + r"(?:[>|*#][ \t]{0,4}|[+-][ \t]{1,4})?)(?=[A-Za-z0-9_+/=.~-])",
)
_BREAK_SIGNED = re.compile(_AT_END + r"(?:[>|+*#-][ \t]{0,4})?)(?=[A-Za-z0-9_+/=.~-])")
_SIGN = re.compile(r"[+-][A-Za-z0-9_+/=.~-]")
_SIGNED = re.compile(r"\n[ \t]{0,64}[+-][A-Za-z0-9_+/=.~-]")


def runs_of(copy: bytes) -> list[tuple[int, int]]:
    """Where runs of token characters stand that are long enough for a token."""
    return [found.span() for found in _RUNS.finditer(copy.translate(_TOKEN_CLASSES))]


def run_in(text: str) -> bytes:
    """The text as bytes if it is nothing but one run of token characters, else nothing."""
    copy = text.encode("ascii", "replace")
    return copy if runs_of(copy) == [(0, len(copy))] else b""


class once(Generic[Value]):  # noqa: N801 - it is used as a decorator
    """A property that is worked out at the first look. (The one of functools takes a lock,
    which costs as much as looking through a short text.)"""

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Value:
        value = instance.__dict__[self._name] = self._make(instance)
        return value


class View:
    """A text to look through. What was marked before is blotted out in it by ``[``."""

    def __init__(self, text: str) -> None:
        self.text = text
        #: whether it is known that no token is broken over a line end
        self.unbroken = False
        #: what was judged here before: values, whether they look random; runs, whether there
        #: is such a value in them; base64, whether a secret stands in it
        self.random: dict[str, bool] = {}
        self.suspects: dict[bytes, bool] = {}
        self.encoded: dict[str, bool] = {}

    @once
    def copy(self) -> bytes:
        """The text in ASCII, place by place."""
        return self.text.encode("ascii", "replace")

    @once
    def lower(self) -> bytes:
        """The same in small letters."""
        if self.text.isascii():
            return self.copy.lower()
        return _folded(self.text).encode("ascii", "replace").lower()

    @once
    def found(self) -> dict[bytes, list[int]]:
        """Where those of :data:`WORDS` stand that are here, whatever their case."""
        lower = self.lower
        found: dict[bytes, list[int]] = {}
        if len(self.text) < _FEW:
            match = _ANY.search(lower)
            while match is not None:
                found.setdefault(match.group(), []).append(match.start())
                match = _ANY.search(lower, match.start() + 1)
            return found
        for sought in _BY_LETTER:
            for match in sought.finditer(lower):
                found.setdefault(match.group(), []).append(match.start())
        return found

    def places(self, word: bytes) -> Sequence[int]:
        """Where one of :data:`WORDS` stands."""
        return self.found.get(word, ())

    def places_by(self, word: bytes, part: bytes) -> Sequence[int]:
        """As :meth:`places`, for a word that one of them is a part of."""
        places = self.places(part)
        if not places or word == part:
            return places
        before, lower = word.find(part), self.lower
        return [
            at - before for at in places if at >= before and lower.startswith(word, at - before)
        ]

    @once
    def runs(self) -> list[tuple[int, int]]:
        """All runs of token characters that are long enough for a token."""
        return runs_of(self.copy)

    @once
    def words(self) -> frozenset[bytes]:
        """The different runs."""
        copy = self.copy
        return frozenset([copy[start:end] for start, end in self.runs])

    @once
    def joined(self) -> bytes:
        """The different runs as one text, each ended by a line feed."""
        return b"\n".join([*self.words, b""])

    @once
    def flat(self) -> Unwrapped | None:
        """The text without the line ends inside of words, if there are such."""
        if "\n" not in self.text:
            return None
        flat = Unwrapped(self.text, _BREAK)
        return flat if flat.wrapped else None

    @once
    def flat_signed(self) -> Unwrapped | None:
        """The other reading, in which signs after these line ends are none of the words'."""
        if self.flat is None or not _SIGNED.search(self.text):
            return None
        return Unwrapped(self.text, _BREAK_SIGNED)

    @once
    def joined_signed(self) -> bytes:
        """The different runs of the other reading that are not in the first."""
        if self.flat is None or not _SIGNED.search(self.text):
            return b""
        return self.flat.joined_signed()

    def flats(self) -> list[Unwrapped]:
        """The readings that there are."""
        return [flat for flat in (self.flat, self.flat_signed) if flat is not None]

    @once
    def _names(self) -> bytes:
        return self.copy.translate(_NAME_CLASSES)

    def name(self, at: int, length: int) -> tuple[int, int]:
        """The whole name around a word, at most 64 characters more on each side."""
        names = self._names
        low, high = max(0, at - 64), min(len(names), at + length + 64)
        start = names.rfind(b" ", low, at) + 1
        end = names.find(b" ", at + length, high)
        return start or low, end if end >= 0 else high

    def window(self, start: int, end: int) -> View:
        """A part of the text. What was judged is kept."""
        made = View(self.text[start:end])
        made.random, made.suspects, made.encoded = self.random, self.suspects, self.encoded
        return made

    def blotted(self, spans: Sequence[tuple[int, int]]) -> View:
        """The text without these places (in order, apart): nothing is found in them any
        more. What is known of the rest is kept."""
        return self._derived(blot(self.text, spans), spans, None)

    def swapped(self, text: str, spans: Sequence[tuple[int, int]], lengths: list[int]) -> View:
        """The text after these places (in order, apart) were changed for others of these
        lengths in which nothing is found."""
        longer = (new - (end - start) for (start, end), new in zip(spans, lengths, strict=True))
        return self._derived(text, spans, list(accumulate(longer, initial=0)))

    def _derived(
        self, text: str, spans: Sequence[tuple[int, int]], shifts: Sequence[int] | None
    ) -> View:
        made = View(text)
        made.unbroken = self.unbroken
        made.random, made.suspects, made.encoded = self.random, self.suspects, self.encoded
        if "found" in self.__dict__:
            made.__dict__["found"] = {
                word: _kept(at, len(word), spans, shifts) for word, at in self.found.items()
            }
        if "runs" in self.__dict__:
            made.__dict__["runs"] = _kept_runs(self.runs, spans, shifts)
        return made


def small(text: str) -> str:
    """A text in small letters, at the same length."""
    return _folded(text).lower()


def _folded(text: str) -> str:
    for sign, letter in _FOLDED:
        text = text.replace(sign, letter)
    return text


def _kept(
    places: list[int],
    length: int,
    spans: Sequence[tuple[int, int]],
    shifts: Sequence[int] | None = None,
) -> list[int]:
    """The places of a word of that length that touch no span, moved by what the spans
    before them became longer."""
    kept, number, count = [], 0, len(spans)
    for at in places:
        while number < count and spans[number][1] <= at:
            number += 1
        if number < count and spans[number][0] < at + length:
            continue
        kept.append(at + shifts[number] if shifts is not None else at)
    return kept


def _kept_runs(
    runs: list[tuple[int, int]],
    spans: Sequence[tuple[int, int]],
    shifts: Sequence[int] | None,
) -> list[tuple[int, int]]:
    """What is left of runs outside of the spans and is long enough for a token."""
    kept, number, count = [], 0, len(spans)
    for start, end in runs:
        while number < count and spans[number][1] <= start:
            number += 1
        at = start
        for inside in range(number, count):
            low, high = spans[inside]
            if low >= end:
                break
            if low - at >= SHORTEST:
                moved = shifts[inside] if shifts is not None else 0
                kept.append((at + moved, low + moved))
            at = max(at, high)
            number = inside + 1 if high <= end else inside
        if end - at >= SHORTEST:
            moved = shifts[number] if shifts is not None else 0
            kept.append((at + moved, end + moved))
    return kept


def blot(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text with these places blotted out, as marks would, at the same length."""
    parts, at = [], 0
    for start, end in sorted(spans):
        if end > at:
            parts += [text[at : max(start, at)], "[" * (end - max(start, at))]
            at = end
    return "".join([*parts, text[at:]]) if parts else text


class Unwrapped:
    """A text without the line ends (and quote signs) that stand inside of words, and the
    way back to places of the text itself."""

    def __init__(self, text: str, broken: re.Pattern[str]) -> None:
        parts = broken.split(text)
        if "\r" in text:
            for number in range(0, len(parts) - 1, 2):
                if parts[number].endswith("\r"):
                    parts[number] = parts[number][:-1]
                    parts[number + 1] = "\r" + parts[number + 1]
        self.text = "".join(parts[::2])
        self._starts = [0, *accumulate(map(len, parts[:-1:2]))]
        self._gaps = parts[1::2]
        self._shifts = [0, *accumulate(map(len, self._gaps))]

    @property
    def wrapped(self) -> bool:
        """Whether there is any such line end."""
        return len(self._starts) > 1

    def place(self, at: int) -> int:
        """The place in the text itself."""
        return at + self._shifts[bisect_right(self._starts, at) - 1]

    def breaks_at(self, at: int) -> bool:
        """Whether a line end was taken out at that place."""
        return self._starts[bisect_right(self._starts, at) - 1] == at and at > 0

    def last_break(self, start: int, end: int) -> int:
        """Where the last part of ``[start, end)`` begins if a line end was taken out
        inside of it, else 0."""
        number = bisect_right(self._starts, end - 1) - 1
        return self._starts[number] if self._starts[number] > start else 0

    @once
    def runs(self) -> list[tuple[int, int]]:
        """The runs of token characters, long enough for a token, that were broken."""
        starts, number, count = self._starts, 1, len(self._starts)
        broken = []
        for start, end in runs_of(self.text.encode("ascii", "replace")):
            while number < count and starts[number] <= start:
                number += 1
            if number == count:
                break
            if starts[number] < end:
                broken.append((start, end))
        return broken

    @once
    def joined(self) -> bytes:
        """The different runs of these as one text, each ended by a line feed."""
        text = self.text
        words = {text[start:end] for start, end in self.runs}
        return "\n".join([*words, ""]).encode("ascii", "replace")

    def joined_signed(self) -> bytes:
        """The same without the signs that begin lines, for runs that have such."""
        text, starts = self.text, self._starts
        words = set()
        for start, end in self.runs:
            low, high = bisect_right(starts, start), bisect_right(starts, end - 1)
            signs = [starts[number] for number in range(low, high) if self._sign(number)]
            if signs:
                cuts = [start, *(at + more for at in signs for more in (0, 1)), end]
                words.add("".join(text[a:b] for a, b in zip(cuts[::2], cuts[1::2], strict=True)))
        return "\n".join([*words, ""]).encode("ascii", "replace") if words else b""

    def _sign(self, number: int) -> bool:
        """Whether that line begins with a sign that the other reading takes out."""
        at = self._starts[number]
        return (
            _SIGN.match(self.text, at) is not None
            and not self.breaks_at(at + 1)
            and not self._gaps[number - 1].strip()
        )
