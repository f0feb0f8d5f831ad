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

import base64
import hashlib
import html
import json
import re
import urllib.parse
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from handoff.redaction.clues import find_clues, find_random
from handoff.redaction.pairs import find_pairs
from handoff.redaction.shapes import (
    KEY_END,
    REACH,
    Span,
    find_shapes,
    occurrences,
    unwrapped,
)

#: a mark, as every stage recognises it
MARK = re.compile(r"\[redacted:[a-z0-9-]{1,48}:[0-9a-f]{4}\]")
#: characters of a known value below which it is not looked for: too many chance hits
MIN_KNOWN = 6
#: what a redactor looks for, each more than the one before
MODES = ("plain", "standard", "strict")
# How far a stage looks back from where something starts.
_CONTEXT = 1536
_STICKY = re.compile(r"[ \t]|[ \t]*(?:[>|+*#-][ \t]?)?[^ \t\n]*\r?\n\Z")
# A finding that needs its neighbour to be a mark, whose neighbour needs one, and so on.
_ROUNDS = 8
_BASE64_CORE = 10
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]{0,4096}")

_Find = Callable[[str], list[Span]]


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
        return self._advance(settled) if settled > self._seen else ""

    def close(self) -> str:
        """The end of the text; gives the rest."""
        out = self._advance(len(self._text))
        self._text, self._seen, self._done = "", 0, 0
        return out

    def whole(self, text: str) -> str:
        """A whole text at once: what feeding and closing would give, of a fresh stage."""
        parts, done = [], 0
        for span in self._all(text):
            if span.end > done:
                parts += [text[done : max(span.start, done)], self._mark(span)]
                done = span.end
        return "".join([*parts, text[done:]]) if parts else text

    def _all(self, text: str) -> list[Span]:
        """All findings, in order; those as well that are only found once their neighbours
        are marks, so that a second pass has nothing to add."""
        marks = [found.span() for found in MARK.finditer(text)]
        hidden = _masked(text, marks) if marks else text
        new = self._in(hidden, 0, len(hidden))
        spans = new
        for _ in range(_ROUNDS):
            if not new:
                break
            hidden = _masked(hidden, [(span.start, span.end) for span in new])
            new = [
                span
                for start, end in _around(new, len(hidden))
                for span in self._in(hidden, start, end)
            ]
            spans = spans + new
        return sorted(spans, key=lambda span: (span.start, -span.end))

    def _in(self, hidden: str, start: int, end: int) -> list[Span]:
        """The findings in a window that hold no mark. Near its edges, where there is text
        beyond, the window can't tell."""
        low = start + _CONTEXT if start else 0
        high = end - _CONTEXT if end < len(hidden) else end
        found = []
        for span in self._find(hidden[start:end] if end - start < len(hidden) else hidden):
            moved = span._replace(start=span.start + start, end=span.end + start)
            if low <= moved.start and moved.end <= high and "[[" not in hidden[slice(*moved[:2])]:
                found.append(moved)
        return found

    def _advance(self, settled: int) -> str:
        text = self._text
        parts = []
        for span in self._all(text):
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


def _masked(text: str, places: list[tuple[int, int]]) -> str:
    """The text with these places blotted out, as marks would, at the same length."""
    parts, at = [], 0
    for start, end in sorted(places):
        if end > at:
            parts += [text[at : max(start, at)], "[" * (end - max(start, at))]
            at = end
    return "".join([*parts, text[at:]])


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
            :data:`MIN_KNOWN` characters are not looked for (:attr:`ignored` names them).
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
        self.ignored: tuple[str, ...] = ()
        self._forms: list[tuple[str, str, str, bool]] = []
        ignored = []
        for name, value in (known or {}).items():
            if len(value.strip()) < MIN_KNOWN:
                ignored.append(name)
            else:
                self._forms += _forms(_kind(name), value)
        self.ignored = tuple(ignored)
        self._forms.sort(key=lambda form: -len(form[0]))

    def redact(self, text: str) -> str:
        """The text without its secrets."""
        for stage in self._stages():
            text = stage.whole(text)
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
        if self._forms:
            finders.insert(0, self._find_known)
        return [_Stage(find, self._mark) for find in finders]

    def allowance(self, value: str) -> str:
        """What allows this value: a keyed hash of 32 hex digits, for ``allow``."""
        raw = b"allow\n" + value.encode("utf-8", "surrogatepass")
        return hashlib.blake2s(raw, key=self._key, digest_size=16).hexdigest()

    def _but_facts(self, find: _Find) -> _Find:
        def found(text: str) -> list[Span]:
            return [
                span
                for span in find(text)
                if span.value not in self._shield and self.allowance(span.value) not in self._allow
            ]

        return found

    def _mark(self, span: Span) -> str:
        digest = hashlib.blake2s(span.value.encode("utf-8", "surrogatepass"), key=self._key)
        return f"[redacted:{span.kind}:{digest.hexdigest()[:4]}]"

    def _find_known(self, text: str) -> list[Span]:
        found = [span for span, _ in self._known_in(text)]
        for flat in unwrapped(text):
            for span, _ in self._known_in(flat.text):
                if flat.last_break(span.start, span.end):
                    start, end = flat.place(span.start), flat.place(span.end - 1) + 1
                    found.append(Span(start, end, span.kind, span.value))
        return found

    def _known_in(self, text: str) -> Iterable[tuple[Span, str]]:
        for form, kind, value, encoded in self._forms:
            if form not in text:
                continue
            for at in occurrences(text, form):
                start, end = at, at + len(form)
                if encoded:
                    # The characters around it hold the rest of its first and last bytes,
                    # and what it was joined with.
                    while start > 0 and at - start < 4096 and _BASE64.match(text[start - 1])[0]:  # type: ignore[index]
                        start -= 1
                    end = _BASE64.match(text, end).end()  # type: ignore[union-attr]
                yield Span(start, end, kind, value), form


def _kinds(text: str) -> list[str]:
    return [mark.split(":")[1] for mark in MARK.findall(text)]


def _kind(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:48] or "known"


def _forms(kind: str, value: str) -> list[tuple[str, str, str, bool]]:
    """A value in the forms that it travels in: (form, kind, value, base64 or not)."""
    plain = {
        value,
        value.strip(),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(value)[1:-1])[1:-1],
        urllib.parse.quote(value, safe=""),
        urllib.parse.quote(value),
        urllib.parse.quote_plus(value),
        re.sub("%[0-9A-F]{2}", lambda m: m.group().lower(), urllib.parse.quote(value, safe="")),
        html.escape(value),
        value.replace("'", "'\\''"),
        value.encode().hex(),
        value.encode().hex().upper(),
    }
    raw = value.encode("utf-8", "surrogatepass")
    encoded = set()
    for offset, skip in ((0, 0), (1, 2), (2, 3)):
        text = base64.b64encode(b"\0" * offset + raw).rstrip(b"=").decode("ascii")[skip:]
        whole = text[:-1] if (len(raw) + offset) % 3 else text
        if len(whole) >= _BASE64_CORE:
            encoded |= {whole, whole.replace("+", "-").replace("/", "_")}
    return [
        *((form, kind, value, False) for form in plain if len(form) >= MIN_KNOWN),
        *((form, kind, value, True) for form in encoded - plain),
    ]


def looks_secret(text: str) -> bool:
    """Whether a text holds anything that looks like a secret, known values aside."""
    return bool(find_shapes(text)) or bool(find_pairs(text))
