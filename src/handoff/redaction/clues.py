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
from math import log2

from handoff.redaction.pairs import WIDE, find_pairs
from handoff.redaction.shapes import Span, find_shapes, occurrences, unwrapped

#: characters of a value that is judged at all
_SHORT, _LONG = 6, 512
_STEMS = ("pass", "pwd", "secret", "token", "credential", "key", "apikey", "pin")
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
_SAYS = frozenset({"is", "was", "as", "for"})
# A value is judged by its beginning, and taken out whole.
_JUDGED = 96
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
_RUN = re.compile(r"[A-Za-z0-9+/=_.~%-]{20,8192}")
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,8192}={0,2}")
_WRAPPED = re.compile(r"[A-Za-z0-9+/_-]{40}={0,2}\r?\n[ \t>|]{0,16}[A-Za-z0-9+/_-]{4}")
_ESCAPED = re.compile(r"[^\s\"'<>]{0,1024}")
_PAIR = re.compile(r"[0-9A-Fa-f]{2}")
_UNESCAPED = re.compile(r"[^\s\"'<>]{0,256}\Z")


def _entropy(value: str) -> float:
    counts: dict[str, int] = {}
    for sign in value:
        counts[sign] = counts.get(sign, 0) + 1
    return -sum(n / len(value) * log2(n / len(value)) for n in counts.values())


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
    if plain(value) or len(value) < 20 or value.count("/") > 1 + len(value) // 20:
        return False
    bare = value.strip("=._~-")
    if _HEX.match(bare):
        return len(bare) >= 32 and _entropy(bare) >= 3.0
    parts = _PARTS.findall(bare)
    digits = sum(part.isdigit() for part in parts)
    if digits < 2 or digits == len(parts):
        return False
    letters = [part for part in parts if not part.isdigit()]
    mean = sum(map(len, letters)) / len(letters)
    longest = max(map(len, letters))
    return mean <= 3.2 and longest <= 7 and _entropy(bare) >= 3.4


def find_clues(text: str) -> list[Span]:
    """Values in prose beside a word for secrets, and known shapes in base64 or
    percent-escapes."""
    return [*_prose(text), *_key_ids(text), *_encoded(text)]


def find_random(text: str) -> list[Span]:
    """Whatever looks random, with no clue at all. Commit ids and digests stay where a word
    before them says what they are."""
    found = []
    for run in _RUN.finditer(text):
        start, value = _trimmed(run.start(), run.group())
        if not random(value):
            # `a/b/c=VALUE`, `x.y.VALUE`: each part by itself
            found += [span for span in _inner(start, value) if not _git(text, span)]
            continue
        span = Span(start, start + len(value), "random", value)
        if not _git(text, span):
            found.append(span)
    return found


def _inner(start: int, value: str) -> Iterator[Span]:
    if "/" not in value and "=" not in value and "." not in value:
        return
    for part in re.finditer(r"[^/=.]+", value):
        if random(part.group()):
            yield Span(start + part.start(), start + part.end(), "random", part.group())


def _git(text: str, span: Span) -> bool:
    if _HEX.match(span.value) is None or len(span.value) not in _DIGESTS:
        return False
    before = text[max(0, span.start - 48) : span.start]
    return _GIT.search(before) is not None


def _trimmed(start: int, value: str) -> tuple[int, str]:
    cut = value.lstrip(".=/~%-")
    return start + len(value) - len(cut), cut.rstrip(".~%-")


def _prose(text: str) -> Iterator[Span]:
    lower = text.replace("\u0130", "i").lower()
    for word in _words(lower):
        after = _AFTER.match(text, word.end())
        if after is not None:
            value = after["value"].rstrip(".,;:!?*")
            clear = bool(after["says"].strip())
            weak = word.group().startswith(("key", "pin", "token"))
            head = value[:_JUDGED]
            good = mixed(head) and ((clear and not weak) or _firm(head))
            span = Span(after.start("value"), after.start("value") + len(value), "prose", value)
            if len(value) >= _SHORT and good and not _digest(text, span):
                yield span
        yield from _told_before(text, word.start())


def _told_before(text: str, at: int) -> Iterator[Span]:
    """``VALUE is the token``: the value before a word for secrets."""
    if at < 2 or text[at - 1] not in " \t":
        return
    window = text[max(0, at - 600) : at]
    parts = window[window.rfind("\n") + 1 :].split()[-5:]
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


def _words(lower: str) -> Iterator[re.Match[str]]:
    for stem in _STEMS:
        for at in occurrences(lower, stem):
            # `sort_key` and `api-token` are names: pairs are judged elsewhere.
            if at and (lower[at - 1].isalnum() or lower[at - 1] in "_-"):
                continue
            found = _WORD.match(lower, at)
            if found is not None:
                yield found


def _digest(text: str, span: Span) -> bool:
    """A hex value of a digest's length, or a short commit id behind its word."""
    if _HEX.match(span.value) is None:
        return False
    return len(span.value) in _DIGESTS or _git_word(text, span)


def _git_word(text: str, span: Span) -> bool:
    return _GIT.search(text[max(0, span.start - 48) : span.start]) is not None


def _firm(value: str) -> bool:
    """Stronger than :func:`mixed`, where the words around it prove little."""
    parts = _PARTS.findall(value)
    digits = sum(part.isdigit() for part in parts)
    letters = [part for part in parts if not part.isdigit()]
    return len(value) >= 8 and digits >= 2 and len(letters) >= 2 and max(map(len, letters)) <= 7


def _key_ids(text: str) -> Iterator[Span]:
    for name in _ID.finditer(text):
        found = _KEY_ID.match(text, name.end())
        if found is None:
            continue
        value = found["value"]
        if not plain(value) and _firm(value) and not (_HEX.match(value) and len(value) in _DIGESTS):
            yield Span(found.start("value"), found.end("value"), "key-id", value)


def _encoded(text: str) -> Iterator[Span]:
    for found in _BASE64.finditer(text):
        if _in_base64(found.group()):
            yield Span(found.start(), found.end(), "encoded", found.group())
    for flat in unwrapped(text) if _WRAPPED.search(text) else ():
        for found in _BASE64.finditer(flat.text):
            if flat.last_break(found.start(), found.end()) and _in_base64(found.group()):
                start, end = flat.place(found.start()), flat.place(found.end() - 1) + 1
                yield Span(start, end, "encoded", found.group())
    until = 0
    for at in occurrences(text, "%"):
        if at < until or not _PAIR.match(text, at + 1):
            continue
        head = _UNESCAPED.search(text[max(0, at - 256, until) : at])
        start = at - len(head.group()) if head is not None else at
        run = _ESCAPED.match(text, at)
        until = run.end() if run is not None else at + 1
        value = text[start:until]
        if find_shapes(urllib.parse.unquote(value)) and not find_shapes(value):
            yield Span(start, until, "encoded", value)


def _in_base64(run: str) -> bool:
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
    text = raw.decode("ascii")
    return bool(find_shapes(text)) or bool(find_pairs(text))


_TEXT = re.compile(rb"[\t\n\r -~]{12,}\Z")
