"""Secrets whose values are known, in all the forms that they travel in."""

from __future__ import annotations

import base64
import html
import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from handoff.redaction.shapes import Span, occurrences
from handoff.redaction.view import Unwrapped, View, run_in

#: characters of a known value below which it is not looked for: too many chance hits
MIN_KNOWN = 6
# Characters of base64 that are the value's own, at least.
_BASE64_CORE = 10
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]{0,4096}")


class _Form(NamedTuple):
    """A known value as it travels. ``encoded``: in base64. ``token``: the same as bytes if
    it can only stand in a long run of token characters, else empty."""

    text: str
    kind: str
    value: str
    encoded: bool
    token: bytes


class Known:
    """Finds known values. ``values``: by a name that becomes the kind of their marks.
    :attr:`ignored`: the names of those that are too short to be looked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._forms: list[_Form] = []
        ignored = []
        for name, value in values.items():
            if len(value.strip()) < MIN_KNOWN:
                ignored.append(name)
            else:
                self._forms += _forms(_kind(name), value)
        self.ignored = tuple(ignored)
        self._forms.sort(key=lambda form: -len(form.text))
        self._worded = not all(form.token for form in self._forms)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def find(self, view: View) -> list[Span]:
        """The known values in a text, also those broken over line ends."""
        text = view.text
        found = list(self._in(text, self._present(text, view.joined)))
        if view.flat is not None:
            found += self._broken(view.flat)
            if self._worded or self._present("", view.joined_signed):
                found += self._broken(view.flat_signed)
        return found

    def _broken(self, flat: Unwrapped | None) -> Iterator[Span]:
        """The known values that are broken over line ends, in one reading."""
        if flat is None:
            return
        for span in self._in(flat.text, self._present(flat.text, flat.joined)):
            if flat.last_break(span.start, span.end):
                start, end = flat.place(span.start), flat.place(span.end - 1) + 1
                yield Span(start, end, span.kind, span.value)

    def _present(self, text: str, joined: bytes) -> list[_Form]:
        """The forms that stand in a text. ``joined``: its runs of token characters."""
        return [
            form
            for form in self._forms
            if (form.token in joined if form.token else form.text in text)
        ]

    @staticmethod
    def _in(text: str, forms: list[_Form]) -> Iterator[Span]:
        for form in forms:
            for at in occurrences(text, form.text):
                start, end = at, at + len(form.text)
                if form.encoded:
                    # The characters around it hold the rest of its first and last bytes,
                    # and what it was joined with.
                    while start > 0 and at - start < 4096 and _BASE64.match(text[start - 1])[0]:  # type: ignore[index]
                        start -= 1
                    end = _BASE64.match(text, end).end()  # type: ignore[union-attr]
                yield Span(start, end, form.kind, form.value)


def _kind(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:48] or "known"


def _forms(kind: str, value: str) -> list[_Form]:
    """A value in the forms that it travels in."""
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
        *(
            _Form(form, kind, value, False, run_in(form))
            for form in plain
            if len(form) >= MIN_KNOWN
        ),
        *(_Form(form, kind, value, True, run_in(form)) for form in encoded - plain),
    ]
