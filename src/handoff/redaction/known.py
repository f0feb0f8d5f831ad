"""Secrets whose values are known, in all the forms that they travel in."""

from __future__ import annotations

import base64
import html
import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from handoff.redaction.runs import Unwrapped, form, run_in
from handoff.redaction.shapes import Span, occurrences
from handoff.redaction.view import View

#: characters of a known value below which it is not looked for: too many chance hits
MIN_KNOWN = 6
# Characters of base64 that are the value's own, at least.
_BASE64_CORE = 10
_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]{0,4096}")


class _Form(NamedTuple):
    """A known value as it travels. ``encoded``: in base64. ``token``: its form if it can
    only stand in a long run of token characters, else empty."""

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
        self._forms.sort(key=lambda one: -len(one.text))
        self._worded = not all(one.token for one in self._forms)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def find(self, view: View) -> list[Span]:
        """The known values in a text, also those broken over line ends."""
        text = view.text
        found = list(self._in(text, self._present(text, view.joined)))
        if view.broken is None:
            return found
        present = self._present("", view.broken.joined)
        if self._worded:
            for flat in view.broken.whole():
                found += self._broken(flat, self._present(flat.text, view.broken.joined))
        elif present:
            sought = [one.token for one in present]
            joined = view.broken.joined.split(b"\n")
            forms = [word for word in joined if any(one in word for one in sought)]
            for flat in view.broken.of(forms):
                found += self._broken(flat, present)
        return found

    def _broken(self, flat: Unwrapped, forms: list[_Form]) -> Iterator[Span]:
        """The known values that are broken over line ends, in one reading."""
        for span in self._in(flat.text, forms):
            if flat.last_break(span.start, span.end):
                start, end = flat.place(span.start), flat.place(span.end - 1) + 1
                yield Span(start, end, span.kind, span.value)

    def _present(self, text: str, joined: bytes) -> list[_Form]:
        """The values that may stand in a text. ``joined``: the forms of its runs."""
        return [
            one for one in self._forms if (one.token in joined if one.token else one.text in text)
        ]

    @staticmethod
    def _in(text: str, forms: list[_Form]) -> Iterator[Span]:
        for one in forms:
            for at in occurrences(text, one.text):
                start, end = at, at + len(one.text)
                if one.encoded:
                    # The characters around it hold the rest of its first and last bytes,
                    # and what it was joined with.
                    while start > 0 and at - start < 4096 and _BASE64.match(text[start - 1])[0]:  # type: ignore[index]
                        start -= 1
                    end = _BASE64.match(text, end).end()  # type: ignore[union-attr]
                yield Span(start, end, one.kind, one.value)


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
            _Form(text, kind, value, False, form(run_in(text)))
            for text in plain
            if len(text) >= MIN_KNOWN
        ),
        *(_Form(text, kind, value, True, form(run_in(text))) for text in encoded - plain),
    ]
