"""What the finders ask about a text, each question answered once.

Most text holds nothing, so the finders begin with what is cheap for a whole text at once:
where a word stands at all, and which different runs of token characters there are. These
look-ups go through a copy in ASCII, in which every other character is a question mark, so
that a place in the copy is the place in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from handoff.redaction.runs import SHORTEST, TOKEN, Broken, classes, form, joined, runs_in

Value = TypeVar("Value")

# Kelvin sign and dotted I: the two characters outside of ASCII whose small letter is in it.
_FOLDED = (("\u0130", "i"), ("\u212a", "k"))
#: characters of a name before and behind a word in it
NAME_MAX = 64
_NAME = classes(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")

#: words whose places can be asked for. None stands inside of another, nor overlaps itself
WORDS = (
    b"auth", b"basic", b"bearer", b"cookie", b"cred", b"jwt", b"key", b"pass", b"pat", b"pin",
    b"pw", b"secret", b"sessionid", b"sig", b"token", b"://", b" -u", b"-user",
)  # fmt: skip
# How they are searched for: from a letter on that is rare in texts, and not in the rest of
# the word. (A search that literally begins with one letter takes less time than one for a
# whole word.) What it matches, without lookbehinds, tells the word and the letters before.
_BY_LETTER = tuple(
    map(
        re.compile,
        (
            rb"k(?:ey|(?<=tok)en|(?<=cook)ie)", rb"p(?:ass|at|in|w)", rb"c(?:red|(?<=sec)ret)",
            rb"b(?:earer|asic)", rb"u(?<=au)th", rb"g(?<=sig)", rb"jwt", rb"://", rb"sessionid",
        ),
    )
)  # fmt: skip
_MATCHED = {
    b"ken": (b"token", 2), b"kie": (b"cookie", 3), b"cret": (b"secret", 2), b"uth": (b"auth", 1),
    b"g": (b"sig", 2),
}  # fmt: skip
_OPTION = re.compile(rb"-u(?:ser)?")
# In a shorter text one search for all of them takes less time.
_FEW = 512
_ANY = re.compile(b"|".join(re.escape(word) for word in WORDS))


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
        lower = self.copy.lower()
        if not self.text.isascii() and any(sign in self.text for sign, _ in _FOLDED):
            return _folded(self.text).encode("ascii", "replace").lower()
        return lower

    @once
    def found(self) -> dict[bytes, list[int]]:
        """Where those of :data:`WORDS` stand that are here, whatever their case."""
        lower = self.lower
        found: dict[bytes, list[int]] = {}
        if len(lower) < _FEW:
            match = _ANY.search(lower)
            while match is not None:
                found.setdefault(match.group(), []).append(match.start())
                match = _ANY.search(lower, match.start() + 1)
            return found
        matched: defaultdict[bytes, list[int]] = defaultdict(list)
        for sought in _BY_LETTER:
            for match in sought.finditer(lower):
                matched[match[0]].append(match.start())
        for part, places in matched.items():
            word, before = _MATCHED.get(part, (part, 0))
            found[word] = [place - before for place in places] if before else places
        for match in _OPTION.finditer(lower):
            at, end = match.span()
            if end - at > 2:
                found.setdefault(b"-user", []).append(at)
            if lower[at - 1 : at] == b" ":
                found.setdefault(b" -u", []).append(at - 1)
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
    def _classes(self) -> bytes:
        return self.copy.translate(TOKEN)

    @once
    def runs(self) -> list[tuple[int, int]]:
        """All runs of token characters that are long enough for a token."""
        return runs_in(self._classes)

    @once
    def forms(self) -> bytes:
        """The copy with one digit for all."""
        return form(self.copy)

    @once
    def joined(self) -> bytes:
        """The different forms of the runs as one text, each ended by a line feed."""
        forms = self.forms
        return joined({forms[start:end] for start, end in self.runs})

    def runs_of(self, wanted: Collection[bytes]) -> list[tuple[int, int]]:
        """The runs of these forms."""
        forms = self.forms
        return [run for run in self.runs if forms[run[0] : run[1]] in wanted]

    @once
    def broken(self) -> Broken | None:
        """The runs that line ends break, if there may be such."""
        if b"\n" not in self.copy:
            return None
        broken = Broken(self.text, self.copy, self._classes)
        return broken or None

    @once
    def names(self) -> bytes:
        """The text by its signs: ``a`` for those that a name is made of, else a blank."""
        return self.copy.translate(_NAME)

    def name_start(self, at: int) -> int:
        """Where the name around a word begins, at most 64 characters before it."""
        low = max(0, at - NAME_MAX)
        return self.names.rfind(b" ", low, at) + 1 or low

    def name_end(self, at: int) -> int:
        """Where the name that goes on at ``at`` ends, at most 64 characters behind it."""
        high = at + NAME_MAX
        end = self.names.find(b" ", at, high)
        return end if end >= 0 else min(len(self.names), high)

    def window(self, start: int, end: int) -> View:
        """A part of the text. What was judged is kept."""
        made = View(self.text[start:end])
        made.random, made.suspects, made.encoded = self.random, self.suspects, self.encoded
        if "found" in self.__dict__:
            made.__dict__["found"] = _cut_places(self.found, start, end)
        if "runs" in self.__dict__:
            made.__dict__["runs"] = _cut_runs(self.runs, start, end)
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


def _cut_places(found: dict[bytes, list[int]], low: int, high: int) -> dict[bytes, list[int]]:
    """The places of words in a window."""
    cut = {}
    for word, places in found.items():
        first = bisect_left(places, low)
        last = bisect_left(places, high - len(word) + 1, first)
        if first < last:
            cut[word] = [at - low for at in places[first:last]]
    return cut


def _cut_runs(runs: list[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    """The runs in a window: those at its edges as far as they are in it."""
    first = max(0, bisect_left(runs, (low, 0)) - 1)
    last = bisect_left(runs, (high, 0), first)
    cut = [(start - low, end - low) for start, end in runs[first:last]]
    if cut and cut[0][0] < 0:
        cut[:1] = [(0, cut[0][1])] if cut[0][1] >= SHORTEST else []
    if cut and cut[-1][1] > high - low:
        start = cut[-1][0]
        cut[-1:] = [(start, high - low)] if high - low - start >= SHORTEST else []
    return cut


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
