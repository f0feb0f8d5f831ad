"""Text in, text without secrets out; whole or in pieces, with the same result.

Three stages follow each other: values that are known exactly (in all the forms that they
travel in), shapes, and pairs. Each replaces what it finds by a mark,
``[redacted:<kind>:<tag>]``. The tag is four hex digits of a keyed hash: equal secrets
have equal marks within one redactor, and nobody without its key can try values against
them. Marks are left alone by every stage, so redacting twice changes nothing more.

A stage is a stream: it holds text back while what follows could still decide about it
(normally the last two lines, at most :data:`~handoff.redaction.shapes.REACH` characters)
and lets the rest go. Whole texts take the same path, so it can't matter how a text was
cut.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from handoff.redaction.clues import find_clues, find_random
from handoff.redaction.known import Known
from handoff.redaction.pairs import find_pairs
from handoff.redaction.shapes import (
    KEY_END,
    REACH,
    Span,
    find_shapes,
)
from handoff.redaction.view import View, blot

#: a mark, as every stage recognises it
MARK = re.compile(r"\[redacted:[a-z0-9-]{1,48}:[0-9a-f]{4}\]")
#: what a redactor looks for, each more than the one before
MODES = ("plain", "standard", "strict")
# How far a stage looks back from where something starts.
_CONTEXT = 1536
_STEP = 4096
_STICKY = re.compile(r"[ \t]|[ \t]*(?:[>|+*#-][ \t]?)?[^ \t\n]*\r?\n\Z")
# A finding that needs its neighbour to be a mark, whose neighbour needs one, and so on.
_ROUNDS = 8

_Find = Callable[[View], list[Span]]


class _Stage:
    """One stage as a stream."""

    def __init__(self, find: _Find, mark: Callable[[Span], str]) -> None:
        self._find = find
        self._mark = mark
        self._text = ""
        self._seen = 0  # starts below this place are decided
        self._done = 0  # text below this place was given out

    def feed(self, text: str) -> str:
        """More text; gives what is decided."""
        self._text += text
        settled = _settled(self._text)
        # Within a long line each step looks at all that is held: steps have a least length.
        within = settled == len(self._text) - REACH
        enough = self._seen + _STEP if within else self._seen
        return self._advance(settled) if settled > enough else ""

    def close(self) -> str:
        """The end of the text; gives the rest."""
        out = self._advance(len(self._text))
        self._text, self._seen, self._done = "", 0, 0
        return out

    def whole(self, text: str, view: View) -> tuple[str, View]:
        """A whole text at once: what feeding and closing would give, of a fresh stage.
        ``view``: of the text with its marks blotted out; what comes back has its own."""
        parts, done = [], 0
        spans, lengths = [], []
        for span in self._all(view):
            if span.end > done:
                mark = self._mark(span)
                start = max(span.start, done)
                parts += [text[done:start], mark]
                spans.append((start, span.end))
                lengths.append(len(mark))
                done = span.end
        if not parts:
            return text, view
        made = "".join([*parts, text[done:]])
        return made, view.swapped(blotted(made), spans, lengths)

    def _all(self, view: View) -> list[Span]:
        """All findings, in order; those as well that are only found once their neighbours
        are marks, so that a second pass has nothing to add."""
        new = self._in(view, 0, len(view.text))
        spans = new
        for _ in range(_ROUNDS):
            if not new:
                break
            view = view.blotted(_merged(new))
            new = [
                span
                for start, end in _around(new, len(view.text))
                for span in self._in(view, start, end)
            ]
            spans = spans + new
        return sorted(spans, key=lambda span: (span.start, -span.end))

    def _in(self, view: View, start: int, end: int) -> list[Span]:
        """The findings in a window that hold no mark. Near its edges, where there is text
        beyond, the window can't tell."""
        hidden = view.text
        whole = end - start == len(hidden)
        low = start + _CONTEXT if start else 0
        high = end - _CONTEXT if end < len(hidden) else end
        found = []
        for span in self._find(view if whole else view.window(start, end)):
            moved = span._replace(start=span.start + start, end=span.end + start)
            if low <= moved.start and moved.end <= high and "[[" not in hidden[slice(*moved[:2])]:
                found.append(moved)
        return found

    def _advance(self, settled: int) -> str:
        text = self._text
        parts = []
        for span in self._all(View(blotted(text))):
            if not self._seen <= span.start < settled or span.end <= self._done:
                continue
            start = max(span.start, self._done)
            parts += [text[self._done : start], self._mark(span)]
            self._done = span.end
        if self._done < settled:
            parts.append(text[self._done : settled])
            self._done = settled
        keep = max(settled - _CONTEXT, 0)
        self._text = text[keep:]
        self._seen = settled - keep
        self._done -= keep
        return "".join(parts)


def _settled(text: str) -> int:
    """Below which place nothing that may follow can change what is found.

    A finding reaches over one line end at most, except through lines without blanks
    (a token broken over many lines), indented lines (a block in YAML) and private keys.
    """
    place = text.rfind("\n") + 1
    floor = max(len(text) - REACH, 0)
    while place > floor:
        start = text.rfind("\n", 0, place - 1) + 1
        sticky = _STICKY.match(text[start:place])
        place = start
        if not sticky:
            break
    if place > floor:
        place = text.rfind("\n", 0, place - 1) + 1
    last = 0
    for found in KEY_END.finditer(text, floor):
        last = found.end()
    begun = text.find("-----BEGIN ", max(floor, last), place)
    if begun >= 0:
        place = begun
    return max(place, floor)


def _around(spans: list[Span], length: int) -> list[tuple[int, int]]:
    """Windows around findings that hold whatever could depend on them, merged."""
    windows: list[tuple[int, int]] = []
    for span in sorted(spans):
        start = max(0, span.start - REACH // 2 - 2 * _CONTEXT)
        end = min(length, span.end + REACH // 2 + 2 * _CONTEXT)
        if windows and start <= windows[-1][1]:
            windows[-1] = (windows[-1][0], max(end, windows[-1][1]))
        else:
            windows.append((start, end))
    return windows


def _merged(spans: list[Span]) -> list[tuple[int, int]]:
    """The places of findings in order, those that overlap as one."""
    places: list[tuple[int, int]] = []
    for start, end in sorted((span.start, span.end) for span in spans):
        if places and start <= places[-1][1]:
            places[-1] = (places[-1][0], max(end, places[-1][1]))
        else:
            places.append((start, end))
    return places


def blotted(text: str) -> str:
    """A text with its marks blotted out."""
    return blot(text, [found.span() for found in MARK.finditer(text)])


class Stream:
    """A text that arrives in pieces. Obligation: :meth:`close` gives the rest."""

    def __init__(self, stages: list[_Stage]) -> None:
        self._stages = stages

    def feed(self, text: str) -> str:
        """More text, cut anywhere; gives redacted text, possibly none yet."""
        for stage in self._stages:
            text = stage.feed(text)
        return text

    def close(self) -> str:
        """The end of the text; gives what was held back. The stream may be used again."""
        text = ""
        for stage in self._stages:
            text = stage.feed(text) + stage.close()
        return text


class Redactor:
    """Takes secrets out of text.

    Args:
        key: makes the tags of the marks; keep it secret, and the same for as long as
            equal secrets shall have equal marks.
        known: values that are secret for sure, by a name that becomes the kind of their
            marks (``OPENAI_API_KEY`` -> ``openai-api-key``). Values shorter than
            :data:`~handoff.redaction.known.MIN_KNOWN` characters are not looked for
            (:attr:`ignored` names them).
        mode: one of :data:`MODES`. ``plain`` finds known values, shapes and pairs;
            ``standard`` also values in prose and in other encodings; ``strict`` also
            whatever looks random.
        allow: values that are no secrets, by their :meth:`allowance`: the list tells
            nobody the values.
        shield: texts that are facts for sure, such as the commit ids that the caller has
            collected. A known value is taken out all the same.

    Raises:
        ValueError: there is no such mode.
    """

    def __init__(
        self,
        key: bytes,
        known: Mapping[str, str] | None = None,
        *,
        mode: str = "plain",
        allow: Collection[str] = (),
        shield: Collection[str] = (),
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"a redactor's mode is one of {', '.join(MODES)}")
        self._key = hashlib.blake2s(key).digest()
        self.mode = mode
        self._allow = frozenset(allow)
        self._shield = frozenset(shield)
        self._known = Known(known or {})
        self.ignored = self._known.ignored

    def redact(self, text: str) -> str:
        """The text without its secrets."""
        view = View(blotted(text))
        for stage in self._stages():
            text, view = stage.whole(text, view)
        return text

    def count(self, text: str) -> dict[str, int]:
        """How many secrets of which kind redacting would take out; marks that are there
        already are not counted."""
        before = Counter(_kinds(text))
        after = Counter(_kinds(self.redact(text)))
        return dict(sorted((after - before).items()))

    def stream(self) -> Stream:
        """A new stream with this redactor's values and key."""
        return Stream(self._stages())

    def _stages(self) -> list[_Stage]:
        finders: list[_Find] = [find_shapes, find_pairs]
        if self.mode != "plain":
            finders.append(find_clues)
        if self.mode == "strict":
            finders.append(find_random)
        if self._allow or self._shield:
            finders = [self._but_facts(find) for find in finders]
        if self._known:
            finders.insert(0, self._known.find)
        return [_Stage(find, self._mark) for find in finders]

    def allowance(self, value: str) -> str:
        """What allows this value: a keyed hash of 32 hex digits, for ``allow``."""
        raw = b"allow\n" + value.encode("utf-8", "surrogatepass")
        return hashlib.blake2s(raw, key=self._key, digest_size=16).hexdigest()

    def _but_facts(self, find: _Find) -> _Find:
        def found(view: View) -> list[Span]:
            return [
                span
                for span in find(view)
                if span.value not in self._shield and self.allowance(span.value) not in self._allow
            ]

        return found

    def _mark(self, span: Span) -> str:
        digest = hashlib.blake2s(span.value.encode("utf-8", "surrogatepass"), key=self._key)
        return f"[redacted:{span.kind}:{digest.hexdigest()[:4]}]"


def _kinds(text: str) -> list[str]:
    return [mark.split(":")[1] for mark in MARK.findall(text)]


def looks_secret(text: str) -> bool:
    """Whether a text holds anything that looks like a secret, known values aside."""
    view = View(text)
    return bool(find_shapes(view)) or bool(find_pairs(view))
