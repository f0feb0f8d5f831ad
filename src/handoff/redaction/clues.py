"""Secrets that need a closer look than a name beside a sign: values in prose, in another
encoding, and (strictly) whatever looks random.

Rule: a value is judged by its own look here, so ordinary facts must stay: commit ids,
digests, UUIDs, paths, names, versions, numbers with units.
"""

from __future__ import annotations

import base64
import binascii
import re
import urllib.parse
from collections.abc import Iterator
from functools import cache
from math import log2

from handoff.redaction.pairs import WIDE, find_pairs
from handoff.redaction.shapes import Span, find_shapes
from handoff.redaction.view import View, small

#: characters of a value that is judged at all
_SHORT, _LONG = 6, 512
#: characters below which nothing looks random
_RANDOM = 20
# Lengths for which the terms of the entropy are kept.
_TABLED = 128
# (what such a word begins with, the part of it that is searched for)
_STEMS = (
    ((b"password", b"passwd", b"passphrase", b"passcode"), b"pass"), ((b"pwd",), b"pw"),
    ((b"secret",), b"secret"), ((b"token",), b"token"), ((b"credential",), b"cred"),
    ((b"key",), b"key"), ((b"apikey",), b"key"), ((b"pin",), b"pin"),
)  # fmt: skip
_WORD = re.compile(
    r"(?:password|passwd|passphrase|passcode|pwd|secret|token|credential|apikey|key|pin)"
    r"(?:s|'s|’s)?(?![a-z0-9_-]|[.]\w)"
)
# Up to three words, then a value; `is`, `was` and signs make it a statement about it.
_AFTER = re.compile(
    r"(?:[ \t]{1,2}\(?[A-Za-z'’-]{1,20}\)?){0,3}?"
    r"(?P<says>[ \t]{0,2}(?::|=|->|→|\bis\b|\bwas\b|\bare\b)[ \t]{0,2}(?:now|still|just|set to)?[ \t:]{0,2}"
    r"|[ \t]{1,2})"
    r"[\"'`*(]{0,2}(?P<value>[^\s\"'`<>\[\]{}()|" + WIDE + r"]{6,512})"
)
# Characters that decide about a word: the longest, its ending, and what follows.
_WORD_MAX = 16
_SAYS = frozenset({"is", "was", "as", "for"})
# A value is judged by its beginning, and taken out whole.
_JUDGED = 96
# No address, path, placeholder, UUID or name of words.
_KEY_ID_VARIABLE = re.compile(
    r"=[\"']?((?!arn:|[$<{/]|[0-9a-f]{8}-[0-9a-f]{4}-)(?=[^\s\"'`,;]*[0-9])[A-Za-z0-9+/=_.:~-]{14,512})"
)
_KEY_ID = re.compile(r"[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?P<value>[A-Za-z0-9+/=_.~-]{16,512})")
_ID = re.compile(r"(?:[kK][eE][yY]|[tT]oken|TOKEN|[sS]ecret|SECRET)[_-]?(?:id|ID|Id)(?![a-z])")
_PLAIN = re.compile(
    r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z"  # UUID
    r"|(?:sha(?:1|224|256|384|512)|md5)[-:]"  # SRI and digests
    r"|handoff://|https?://|\[redacted|v?[0-9]+(?:[.][0-9]+)+"
    r"|[0-9][0-9.,_]*[a-z%]{0,4}\Z|[a-z_]{1,16}:[0-9]{1,6}(?::|\Z)"  # numbers with their unit
    r"|(?:\.{0,2}/|~/|[a-z]:\\)|\$|<|\{|%[({]"  # paths, placeholders
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.Z+-]*)?\Z")
_DIGESTS = frozenset({32, 40, 56, 64, 96, 128})
_HEX = re.compile(r"[0-9a-f]+\Z|[0-9A-F]+\Z")
_GIT = re.compile(
    r"(?i)(?:commit|head|blob|tree|branch|revision|rev|merge|base|parent|sha-?1?|sha256|digest|"
    r"checksum|hash|md5|fingerprint|integrity|oid|ref|id)s?[\"'`]?[ \t]{0,2}(?:is|at|of|:|=|@)?[ \t\"'`(@]{0,3}\Z"
)
# Characters of the longest such words and signs.
_GIT_MAX = 24
_RUN = re.compile(r"[A-Za-z0-9+/=_.~%-]{20,8192}")
_KINDS = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
    b"A" * 26 + b"a" * 26 + b"0" * 10,
)
_MAYBE_HEX = re.compile(r"[a-z0-9]+\Z|[A-Z0-9]+\Z")
# A part of a word that is longer than chance makes it.
_LONG_PART = re.compile(r"[a-z]{8}|[A-Z]{8}")
_TWO_DIGITS = re.compile(rb"[0-9].*?[0-9]")
_INNER = re.compile(r"[^/=.]{20,}")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# Characters of base64 that are judged as one.
_LONGEST = 8192
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,8192}={0,2}")
# What such base64 looks like: each byte of the text is below 128.
_LETTERS = re.compile(
    rb"\n(?:[CDI-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]){5}"
)
_BASE64_CLASSES = bytes(
    code if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "+/_-") else 0x0A
    for code in range(256)
)
_ESCAPED = re.compile(r"[^\s\"'<>]{0,1024}")
_PAIR = re.compile(r"%[0-9A-Fa-f]{2}")
_UNESCAPED = re.compile(r"[^\s\"'<>]{0,256}\Z")


def _entropy(value: str) -> float:
    """Bits per character."""
    length = len(value)
    counts = map(value.count, dict.fromkeys(value))
    if length > _TABLED:
        return -sum(n / length * log2(n / length) for n in counts)
    return -sum(map(_terms(length).__getitem__, counts))


@cache
def _terms(length: int) -> list[float]:
    """What a character that stands n times in so many adds, by n."""
    return [0.0, *(n / length * log2(n / length) for n in range(1, length + 1))]


def plain(value: str) -> bool:
    """Whether a value is one of the forms that facts have: UUID, digest with its name,
    address, version, number, date, path, placeholder."""
    return bool(_PLAIN.match(value) or _DATE.match(value))


def mixed(value: str) -> bool:
    """Whether a value next to a secret's word looks like one: digits between letters, or
    letters of both cases and signs between them; no identifier, version or path."""
    if plain(value) or "::" in value or value.count("/") > 1:
        return False
    parts = _PARTS.findall(value)
    digits = sum(part.isdigit() for part in parts)
    letters = len(parts) - digits
    signs = sum(not sign.isalnum() for sign in value)
    if digits == 0:
        return letters >= 3 and signs >= 2 and any(s in "!@#$%^&*+=?" for s in value[:-1])
    if letters == 0:
        return False
    if len(value) < 8:
        return digits >= 2 or (signs > 0 and any(s in "!@#$%^&*+=?" for s in value))
    longest = max(len(part) for part in parts if not part.isdigit())
    if "_" in value or "-" in value or "." in value:
        # Words and one number are a name: `test_login_2`, `gpt-4o-mini`, `python3.11`.
        return (
            digits >= 3 or (digits >= 2 and longest <= 5) or any(s in "!@#$%^&*+=?" for s in value)
        )
    return digits >= 2 or signs > 0 or (letters >= 3 and longest <= 8)


def random(value: str) -> bool:
    """Whether a value looks made by chance: many kinds of signs in no order, and not the
    words and numbers of a name."""
    if len(value) < _RANDOM:
        return False
    bare = value.strip("=._~-")
    if _HEX.match(bare):
        return len(bare) >= 32 and not _is_fact(value) and _entropy(bare) >= 3.0
    return _scattered(bare) and not _is_fact(value) and _entropy(bare) >= 3.4


def _is_fact(value: str) -> bool:
    return plain(value) or value.count("/") > 1 + len(value) // 20


# `x_live_…`: a kind of key, in the middle of a token.
_NAMED_TOKEN = re.compile(
    r"[_-](?:live|test|pat|sat|aat|api|secret|token|LIVE|TEST|PAT|API|SECRET|TOKEN)[_-]"
    r"(?P<rest>[A-Za-z0-9_-]{16,512})"
)
_NAMED_FORM = re.compile(_NAMED_TOKEN.pattern.encode())
_BEFORE = re.compile(r"(?<![A-Za-z0-9_./-])[A-Za-z0-9]{2,12}\Z")


def find_clues(view: View) -> list[Span]:
    """Values in prose beside a word for secrets, and known shapes in base64 or
    percent-escapes."""
    found = [*_told_by_name(view), *_encoded(view)]
    return [*_prose(view), *_key_ids(view), *found] if view.found else found


def _told_by_name(view: View) -> Iterator[Span]:
    """Tokens whose beginning says that they are one, of whatever service."""
    text, joined = view.text, view.joined
    forms = {
        joined[joined.rfind(b"\n", 0, found.start()) + 1 : joined.find(b"\n", found.end())]
        for found in _NAMED_FORM.finditer(joined)
    }
    for first, last in view.runs_of(forms) if forms else ():
        for found in _NAMED_TOKEN.finditer(text, first, last):
            rest = found["rest"]
            if len(set(rest)) >= 8 and _TWO_DIGITS.search(rest.encode()):
                low = max(0, found.start() - 13)
                head = _BEFORE.search(text, low, found.start())
                if head is not None:
                    yield Span(head.start(), found.end(), "token", text[head.start() : found.end()])


def find_random(view: View) -> list[Span]:
    """Whatever looks random, with no clue at all. Commit ids and digests stay where a word
    before them says what they are."""
    text, judged, suspects = view.text, view.random, view.suspects
    kinds = view.copy.translate(_KINDS)
    there = {kinds[first:last] for first, last in view.runs}
    for one in there.difference(suspects):
        suspects[one] = _may_be_random(one)
    there = {one for one in there if suspects[one]}
    found = []
    for first, last in view.runs if there else ():
        if kinds[first:last] not in there:
            continue
        for run in _RUN.finditer(text, first, last):
            start, value = _trimmed(run.start(), run.group())
            for at, part in _random_parts(start, value, judged):
                span = Span(at, at + len(part), "random", part)
                if not _git(text, span):
                    found.append(span)
    return found


def _may_be_random(kinds: bytes) -> bool:
    """Whether anything in a run may look random. ``kinds``: the run with one sign for all
    digits, one for small and one for capital letters."""
    if len(kinds) < _RANDOM or kinds.count(b"0") < 2:
        return False
    for run in _RUN.finditer(kinds.decode()):
        value = _trimmed(0, run.group())[1]
        for part in (value, *_INNER.findall(value)):
            bare = part.strip("=._~-")
            if _scattered(bare) or (len(bare) >= 32 and _MAYBE_HEX.match(bare)):
                return True
    return False


def _scattered(bare: str) -> bool:
    """Whether what follows what is as in something that is made by chance. (The same for a
    value and for its kinds.)"""
    if _LONG_PART.search(bare):
        return False
    parts = _PARTS.findall(bare)
    letters = [part for part in parts if not part.isdigit()]
    if len(parts) - len(letters) < 2 or not letters:
        return False
    mean = sum(map(len, letters)) / len(letters)
    return mean <= 3.2 and max(map(len, letters)) <= 7


def _random_parts(start: int, value: str, judged: dict[str, bool]) -> Iterator[tuple[int, str]]:
    """What looks random: the value, or of `a/b/c=VALUE` and `x.y.VALUE` each part by itself."""

    def judge(one: str) -> bool:
        known = judged.get(one)
        if known is None:
            known = judged[one] = random(one)
        return known

    if judge(value):
        yield start, value
    elif "/" in value or "=" in value or "." in value:
        for part in _INNER.finditer(value):
            if judge(part.group()):
                yield start + part.start(), part.group()


def _git(text: str, span: Span) -> bool:
    if _HEX.match(span.value) is None or len(span.value) not in _DIGESTS:
        return False
    before = text[max(0, span.start - _GIT_MAX) : span.start]
    return _GIT.search(before) is not None


def _trimmed(start: int, value: str) -> tuple[int, str]:
    cut = value.lstrip(".=/~%-")
    return start + len(value) - len(cut), cut.rstrip(".~%-")


def _prose(view: View) -> Iterator[Span]:
    text = view.text
    for at, word in _words(view):
        after = _AFTER.match(text, at + len(word))
        if after is not None:
            value = after["value"].rstrip(".,;:!?*")
            head = value[:_JUDGED]
            phrase = word.startswith("passphrase") and _phrase(value)
            if len(value) >= _SHORT and (phrase or mixed(head)):
                clear = bool(after["says"].strip())
                weak = word.startswith(("key", "pin", "token"))
                span = Span(after.start("value"), after.start("value") + len(value), "prose", value)
                if ((clear and not weak) or phrase or _firm(head)) and not _digest(text, span):
                    yield span
        yield from _told_before(text, at)


def _phrase(value: str) -> bool:
    """Words joined by signs, with a digit and letters of both cases among them."""
    both = not value.islower() and not value.isupper()
    return len(value) >= 12 and both and any(s.isdigit() for s in value) and not plain(value)


def _told_before(text: str, at: int) -> Iterator[Span]:
    """``VALUE is the token``: the value before a word for secrets."""
    if at < 2 or text[at - 1] not in " \t":
        return
    window = text[max(0, at - 600) : at]
    parts = window[window.rfind("\n") + 1 :].rsplit(None, 5)[-5:]
    for number in range(len(parts) - 1, 0, -1):
        if parts[number] in _SAYS:
            value = parts[number - 1].strip("\"'`<>[]{}()|" + WIDE)
            head = value[:_JUDGED]
            if not (8 <= len(value) <= _LONG and _firm(head) and mixed(head)):
                return
            start = text.rfind(value, max(0, at - 600), at)
            span = Span(start, start + len(value), "prose", value)
            if not _digest(text, span):
                yield span
            return


def _words(view: View) -> Iterator[tuple[int, str]]:
    text, lower = view.text, view.lower
    for stems, part in _STEMS:
        before = stems[0].find(part)
        for place in view.places(part):
            at = place - before
            if at < 0 or not lower.startswith(stems, at):
                continue
            # `sort_key` and `api-token` are names: pairs are judged elsewhere.
            if at and (text[at - 1].isalnum() or text[at - 1] in "_-"):
                continue
            found = _WORD.match(small(text[at : at + _WORD_MAX]))
            if found is not None:
                yield at, found.group()


def _digest(text: str, span: Span) -> bool:
    """A hex value of a digest's length, or a short commit id behind its word."""
    if _HEX.match(span.value) is None:
        return False
    return len(span.value) in _DIGESTS or _git_word(text, span)


def _git_word(text: str, span: Span) -> bool:
    return _GIT.search(text[max(0, span.start - _GIT_MAX) : span.start]) is not None


def _firm(value: str) -> bool:
    """Stronger than :func:`mixed`, where the words around it prove little."""
    parts = _PARTS.findall(value)
    digits = sum(part.isdigit() for part in parts)
    letters = [part for part in parts if not part.isdigit()]
    return len(value) >= 8 and digits >= 2 and len(letters) >= 2 and max(map(len, letters)) <= 7


def _key_ids(view: View) -> Iterator[Span]:
    text, lower = view.text, view.lower
    for stem in (b"key", b"token", b"secret"):
        for at in view.places(stem):
            if not lower.startswith((b"id", b"_id", b"-id"), at + len(stem)):
                continue
            name = _ID.match(text, at)
            if name is None:
                continue
            whole = _KEY_ID_VARIABLE.match(text, name.end()) if name.group().isupper() else None
            if whole is not None:  # as a variable it is half of a pair of credentials
                yield Span(whole.start(1), whole.end(1), "key-id", whole[1])
                continue
            found = _KEY_ID.match(text, name.end())
            if found is None:
                continue
            value = found["value"]
            digest = _HEX.match(value) and len(value) in _DIGESTS
            if not plain(value) and (_firm(value) or random(value)) and not digest:
                yield Span(found.start("value"), found.end("value"), "key-id", value)


def _encoded(view: View) -> Iterator[Span]:
    text, judged = view.text, view.encoded
    forms = _lettered(view.joined)
    for first, last in view.runs_of(forms) if forms else ():
        for found in _BASE64.finditer(text, first, last):
            if _in_base64(found.group(), judged):
                yield Span(found.start(), found.end(), "encoded", found.group())
    if view.broken is not None:
        for flat in view.broken.of(_lettered(view.broken.joined)):
            for found in _BASE64.finditer(flat.text, *flat.run):
                if flat.last_break(*found.span()) and _in_base64(found.group(), judged):
                    start, end = flat.place(found.start()), flat.place(found.end() - 1) + 1
                    yield Span(start, end, "encoded", found.group())
    yield from _escaped(view)


def _lettered(joined: bytes) -> set[bytes]:
    """Those forms of runs that could be text in base64."""
    words = set()
    if len(joined) > _LONGEST:  # longer ones are judged in parts
        words = {word for word in joined.split(b"\n") if len(word) > _LONGEST}
    for found in _LETTERS.finditer(b"\n" + joined.translate(_BASE64_CLASSES)):
        at = found.start()  # one less in `joined`, which has no line feed before it
        words.add(joined[joined.rfind(b"\n", 0, at) + 1 : joined.find(b"\n", at)])
    return words


def _escaped(view: View) -> Iterator[Span]:
    text, until = view.text, 0
    for pair in _PAIR.finditer(text):
        at = pair.start()
        if at < until:
            continue
        head = _UNESCAPED.search(text[max(0, at - 256, until) : at])
        start = at - len(head.group()) if head is not None else at
        run = _ESCAPED.match(text, at)
        until = run.end() if run is not None else at + 1
        value = text[start:until]
        known = view.encoded.get(value)  # base64 has no percent sign
        if known is None:
            unescaped = View(urllib.parse.unquote(value))
            known = bool(find_shapes(unescaped)) and not find_shapes(View(value))
            view.encoded[value] = known
        if known:
            yield Span(start, until, "encoded", value)


def _in_base64(run: str, judged: dict[str, bool]) -> bool:
    found = judged.get(run)
    if found is None:
        found = judged[run] = _judge_base64(run)
    return found


def _judge_base64(run: str) -> bool:
    body = run.rstrip("=")
    if body.islower() or body.isupper() or _HEX.match(body):
        return False
    body = body[: len(body) - (len(body) % 4 == 1)]
    try:
        raw = base64.b64decode(
            body.replace("-", "+").replace("_", "/") + "=" * (-len(body) % 4), validate=True
        )
    except (binascii.Error, ValueError):
        return False
    if not _TEXT.match(raw):
        return False
    view = View(raw.decode("ascii"))
    return bool(find_shapes(view)) or bool(find_pairs(view))


_TEXT = re.compile(rb"[\t\n\r -~]{12,}\Z")
