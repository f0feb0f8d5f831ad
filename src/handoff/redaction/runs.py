"""Runs of token characters: where they stand, and which of them line ends break.

A token is nothing but such a run, or stands inside of one, and a text has few different
runs, again and again. Fewer still if their digits are all the same one: a run is known by
this *form*, and what no form can hold need not be looked for in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat

_TOKEN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+/=.:@~%-"


def classes(members: bytes) -> bytes:
    """A table for ``bytes.translate`` that tells these signs (``a``) from others (blank)."""
    return bytes(0x61 if code in members else 0x20 for code in range(256))


TOKEN = classes(_TOKEN)
_FORM = bytes.maketrans(b"123456789", b"000000000")
#: characters of the shortest token (slack's)
SHORTEST = 15
# With its literal beginning this is found five times as fast as by a count.
_RUNS = re.compile(b"a" * SHORTEST + b"a*")

# A line end inside of a word, with the quote or list sign that begins the next line. `+`
# and `-` may be such a sign (in a difference) or the word's own: both readings are tried,
# and this is the first, in which they are signs only before a blank.
_GAP = re.compile(
    rb"\n(?:(?<=[A-Za-z0-9_+/=.:@~-]\n)|(?<=[A-Za-z0-9_+/=.:@~-]\r\n))[ \t]{0,64}+"
    rb"(?:[>|*#][ \t]{0,4}+|[+-][ \t]{1,4}+)?(?=[A-Za-z0-9_+/=.~-])"
)
_SIGNS = b"+-"
_FIRST = frozenset(_TOKEN) - frozenset(b":@%")
_CR = 0x0D
# What is kept around a run: more than anything that decides about a token in it looks at.
_BEFORE, _BEHIND = 16, 2


def form(copy: bytes) -> bytes:
    """The same with one digit for all."""
    return copy.translate(_FORM)


def runs_in(classes: bytes) -> list[tuple[int, int]]:
    """Where runs of token characters stand that are long enough for a token. ``classes``:
    the signs of a text by :data:`TOKEN`."""
    return [found.span() for found in _RUNS.finditer(classes)]


def run_in(text: str) -> bytes:
    """The text as bytes if it is nothing but one run of token characters, else nothing."""
    copy = text.encode("ascii", "replace")
    return copy if runs_in(copy.translate(TOKEN)) == [(0, len(copy))] else b""


def joined(words: Iterable[bytes]) -> bytes:
    """Words as one text, each ended by a line feed."""
    return b"\n".join([*words, b""])


class Unwrapped:
    """A part of a text without these gaps (line ends, with the signs that follow), and the
    way back to places of the text itself."""

    def __init__(
        self, text: str, gaps: Sequence[tuple[int, int]], low: int = 0, high: int | None = None
    ) -> None:
        parts, at = [], low
        for start, end in gaps:
            parts.append(text[at:start])
            at = end
        self.text = "".join([*parts, text[at:high]])
        self._starts = [0, *accumulate(map(len, parts))]
        self._shifts = list(accumulate((end - start for start, end in gaps), initial=low))
        #: where the run stands that this was made for
        self.run = (0, len(self.text))

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


class Broken:
    """The runs of a text that line ends break, in both readings of signs.

    ``copy``: the text in ASCII; ``classes``: its signs by :data:`TOKEN`.
    """

    def __init__(self, text: str, copy: bytes, classes: bytes) -> None:
        self._text = text
        self._copy = copy
        gaps = [found.span() for found in _GAP.finditer(copy)]
        if gaps and b"\r" in copy:
            gaps = [(start - (copy[start - 1] == _CR), end) for start, end in gaps]
        self._gaps = gaps
        # (first gap, last gap, where the run starts, where it ends)
        self._runs: list[tuple[int, int, int, int]] = []
        # forms of both readings, and the numbers of the runs that have them
        self._forms: dict[bytes, list[int]] = {}
        if gaps:
            self._collect(form(copy), classes)

    def __bool__(self) -> bool:
        return bool(self._gaps)

    def _collect(self, forms: bytes, classes: bytes) -> None:
        starts = [start for start, _ in self._gaps]
        lows = map(classes.rfind, repeat(b" "), repeat(0), starts)
        highs = map(classes.find, repeat(b" "), (end for _, end in self._gaps))
        nexts = [*starts[1:], -2]
        first, begin, number, size = -1, 0, -1, len(forms)
        runs, known = self._runs, self._forms
        for (start, end), low, high, following in zip(self._gaps, lows, highs, nexts, strict=True):
            number += 1
            if high == following:  # it goes on over the next line end as well
                if first < 0:
                    first, begin = number, low + 1
            elif first >= 0:
                self._add(forms, first, number, begin, high if high >= 0 else size)
                first = -1
            elif (high if high >= 0 else size) - end + start - low > SHORTEST:
                if forms[end] in _SIGNS:
                    self._add(forms, number, number, low + 1, high if high >= 0 else size)
                    continue
                # Of the few things that are done for each line, this is the dearest.
                word = forms[low + 1 : start] + forms[end : high if high >= 0 else size]
                known.setdefault(word, []).append(len(runs))
                runs.append((number, number, low + 1, high if high >= 0 else size))

    def _add(self, forms: bytes, first: int, last: int, low: int, high: int) -> None:
        gaps = self._gaps[first : last + 1]
        parts, at, signed = [], low, False
        for start, end in gaps:
            parts.append(forms[at:start])
            at = end
            signed = signed or forms[end] in _SIGNS
        word = b"".join([*parts, forms[at:high]])
        if len(word) < SHORTEST:
            return
        number = len(self._runs)
        self._runs.append((first, last, low, high))
        self._forms.setdefault(word, []).append(number)
        if signed:
            word = b"".join(
                forms[start:end] for start, end in _between(self._signed(gaps), low, high)
            )
            self._forms.setdefault(word, []).append(number)

    def _signed(self, gaps: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The gaps of the other reading: with a sign that begins a line."""
        copy, made = self._copy, []
        for start, end in gaps:
            own = copy[end] in _SIGNS and end + 1 < len(copy) and copy[end + 1] in _FIRST
            if own and not copy[start:end].strip():
                end += 1
            made.append((start, end))
        return made

    @property
    def joined(self) -> bytes:
        """The different forms as one text."""
        return joined(self._forms)

    def of(self, forms: Iterable[bytes]) -> list[Unwrapped]:
        """The runs of these forms, each in the readings that it has."""
        numbers = sorted({number for one in forms for number in self._forms.get(one, ())})
        made = []
        for number in numbers:
            first, last, low, high = self._runs[number]
            gaps = self._gaps[first : last + 1]
            made.append(self._around(gaps, low, high))
            signed = self._signed(gaps)
            if signed != gaps:
                made.append(self._around(signed, low, high))
        return made

    def _around(self, gaps: Sequence[tuple[int, int]], low: int, high: int) -> Unwrapped:
        start = max(0, low - _BEFORE)
        made = Unwrapped(self._text, gaps, start, high + _BEHIND)
        behind = min(len(self._text), high + _BEHIND) - high
        made.run = (low - start, len(made.text) - behind)
        return made

    def whole(self) -> list[Unwrapped]:
        """The whole text in the readings that it has."""
        if not self._gaps:
            return []
        signed = self._signed(self._gaps)
        readings = [self._gaps] if signed == self._gaps else [self._gaps, signed]
        return [Unwrapped(self._text, gaps) for gaps in readings]


def _between(gaps: Iterable[tuple[int, int]], low: int, high: int) -> Iterable[tuple[int, int]]:
    at = low
    for start, end in gaps:
        yield at, start
        at = end
    yield at, high
