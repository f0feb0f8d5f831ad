"""Secrets that tell themselves by what stands beside them: ``password=…``, headers, URLs
with credentials, options of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from handoff.redaction.shapes import Span, boundary
from handoff.redaction.view import View
from handoff.redaction.wrapped import BROKEN_LOGIN, onward

_VALUE_MAX = 1024

#: parts of a name that make its value a secret
_SECRET = frozenset(
    {
        "pass", "passwd", "password", "passphrase", "passcode", "pwd", "pw", "secret", "secrets",
        "token", "credential", "credentials", "cred", "creds", "auth", "authorization",
        "authtoken", "apikey", "accesskey", "privatekey", "secretkey", "signingkey", "bearer",
        "cookie", "sessionid", "sig", "jwt", "pat",
    }
)  # fmt: skip
#: two parts in a row that do
_SECRET_TWO = frozenset(
    (first, "key")
    for first in ("api", "access", "private", "secret", "signing", "encryption", "account", "auth",
                  "master", "shared", "service", "deploy", "license", "subscription")
)  # fmt: skip
#: last parts of a name that make it a fact about a secret
_FACT = frozenset(
    {
        "count", "counts", "limit", "limits", "type", "types", "name", "names", "id", "ids", "file",
        "files", "path", "paths", "dir", "url", "uri", "host", "ttl", "expiry", "expires",
        "expiration", "length", "len", "size", "method", "methods", "rate", "policy", "mode",
        "enabled", "disabled", "header", "headers", "field", "prefix", "suffix", "env", "var",
        "ref", "version", "at", "in", "ms", "seconds", "usage", "used", "hash", "hashes", "digest",
        "sha", "sha1", "sha256", "sha512", "checksum", "fingerprint", "provider", "scope", "scopes",
        "format", "regex", "pattern", "class", "cls", "error", "errors", "status", "state",
        "required", "strength", "min", "max", "budget", "arn", "label", "description", "hint",
        "docs", "time", "date", "age", "index", "position", "kind", "source", "store", "manager",
        "service", "endpoint", "realm", "user", "username", "schema", "py", "js", "ts", "tsx", "go",
        "md", "txt", "json", "yaml", "yml", "toml", "sh", "rs", "java", "rb", "php", "c", "h",
        "html", "css", "lock", "cfg", "conf", "log", "sql", "xml", "proto",
    }
)  # fmt: skip
_STRONG = frozenset(
    {"pass", "passwd", "password", "passphrase", "passcode", "pwd", "secret", "apikey"}
)

# (a word in the name, the part of it that is searched for)
_KEYWORDS = (
    (b"pass", b"pass"), (b"pwd", b"pw"), (b"secret", b"secret"), (b"token", b"token"),
    (b"cred", b"cred"), (b"auth", b"auth"), (b"key", b"key"), (b"cookie", b"cookie"),
    (b"sessionid", b"sessionid"), (b"sig", b"sig"), (b"jwt", b"jwt"), (b"bearer", b"bearer"),
    (b"_pw", b"pw"), (b"_pat", b"pat"), (b"-pat", b"pat"),
)  # fmt: skip

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_BETWEEN = re.compile(
    r"""\\{0,3}["'`]?\]?[ \t]{0,8}(?P<sign>:=|=>|==?|:(?!:)|%3[aAdD])[ \t]{0,8}(?P<below>\r?\n[ \t]{1,64})?"""
    r"""|(?P<prose>[ \t]{1,2}(?:is|was|are)(?:[ \t]{0,2}:)?[ \t]{1,2})"""
    r"""|(?P<blank>[ \t]{1,4})"""
)
# What that can start with: nothing else needs a closer look.
_FOLLOWS = frozenset("\\\"'`] \t:=%")
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token|digest|negotiate|apikey|bot)[ \t]{1,4}")
_QUOTED = re.compile(
    r"""(?P<slash>\\{0,3})(?P<quote>["'`])(?P<value>(?:\\.|[^"'`\\\n]|(?!(?P=quote))["'`]){1,1024}?)"""
    r"""(?:(?P=slash)(?P=quote)|(?=\n|\Z))"""
)
# Signs that end a word in scripts without blanks.
WIDE = "，。、；：！？（）「」『』《》【】“”"
_BARE = re.compile(rf"[^\s\"'`<>&\\\[\]{{}}(){WIDE}]{{1,1024}}")
_BARE_SAID = re.compile(rf"[^\s\"'`<>\\{WIDE}]{{1,1024}}")
_LINE_VALUE = re.compile(r"[^\n\"'`<>\\]{1,1024}")
_BLOCK = re.compile(
    r"[|>][+-]?[0-9]?[ \t]{0,8}\r?\n(?P<body>(?:[ \t]+[^\n]{1,512}(?:\n|\Z)){1,24})"
)
_PLACEHOLDER = re.compile(
    r"(?i)\$|\{|<|%[({]|\[redacted:|\*{3,}\Z|x{3,}\Z|\.{3}|…|your[-_ ]|example\Z|changeme\Z|"
    r"placeholder|dummy\Z|sha(?:1|256|384|512)[-:]|redacted|todo\Z"
)
_CODE_WORD = re.compile(
    r"(?i)(?:none|null|nil|true|false|str|string|bytes|int|float|bool|boolean|number|object|any|"
    r"undefined|required|optional|self|this|void|list|dict|array|text|char|varchar|date|time|"
    r"password|passwd|secret|token|tokens|key|bearer|basic|auth|yes|no|on|off|default|unknown|"
    r"invalid|missing|expired|and|or|not|the|a|an)\Z"
)
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z_]*(?:(?:\.|::|->)[A-Za-z_][A-Za-z0-9_]*)+\Z")
# A part of a dotted value that no name has: letters and digits, and long.
_LONG_PART = re.compile(
    r"(?<![A-Za-z0-9_-])(?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[A-Za-z0-9_-]{16,}"
)
_DOTTED_CODE = re.compile(r"[a-z_][a-z0-9_]{0,30}(?:\.[a-z_][a-z0-9_]{0,30})+\Z")
_COOKIE = re.compile(r"[^\s=;,\"'<>()\[\]{}]{1,128}=[^\s=]")
_NUMBER = re.compile(r"[-+]?[0-9][0-9_,.]*(?:[a-zA-Z%]{0,3})\Z")
_PATH = re.compile(r"(?:\.{0,2}/|~/|[A-Za-z]:\\)[^\s=]*\Z|[\w.-]+/[\w./-]+\.[a-z0-9]{1,5}\Z")
_URL_LOGIN = re.compile(r"([^\s/?#:@\"'`<>\[\]]{0,256}):([^\s/?#\"'`<>]{1,512})@")
_URL_TOKEN = re.compile(r"([A-Za-z0-9_.~%-]{16,512})@")
# Characters from the colon of an address to the `@` behind its credentials.
_LOGIN_MAX = 1024
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]{12,1024}={0,4}")
_BASIC = re.compile(r"[A-Za-z0-9+/]{12,1024}={0,2}(?![A-Za-z0-9+/=])")
_LOGIN_OPTION = re.compile(r"(?:=|[ \t]{1,4})[\"']?[^\s:\"']{1,128}:([^\s\"']{1,512})")
_LINE_END = re.compile(r"[ \t,;]{0,4}(?:\r?\n|\Z)")
_CALL = re.compile(r"\b(?:curl|wget|https?|xh|ftp|lftp|svn)\b")
_NETRC = re.compile(r"(?:login|machine|account)\s{1,8}\S{1,128}\s{1,8}\Z")


def find_pairs(view: View) -> list[Span]:
    """All secrets that their surroundings give away."""
    if not view.found:
        return []
    text = view.text
    found = list(_urls(view))
    found += _schemes(view)
    found += _logins(view)
    seen: set[int] = set()
    judged: dict[str, tuple[bool, bool]] = {}
    for word, part in _KEYWORDS:
        until = 0
        for at in view.places_by(word, part) if view.places(part) else ():
            if at < until:
                continue  # inside of a value that is taken out whole
            end = view.name_end(at + len(word))
            if text[end : end + 1] not in _FOLLOWS:
                continue
            start = view.name_start(at)
            if start < at and start and text[start - 1] == "\\" and text[start] in "nrt":
                start += 1
            if start in seen:
                continue
            seen.add(start)
            name = text[start:end].strip("-.")
            secret, strong = judged.get(name) or judged.setdefault(name, _secret_name(name))
            if not secret:
                continue
            for span in _named(text, start, end, strong):
                found.append(span)
                if text[span.start - 1] not in "\"'`":
                    until = span.end if " " not in span.value else until
    return [onward(text, span) for span in found] if "\n" in text else found


def _secret_name(name: str) -> tuple[bool, bool]:
    """Whether a name makes its value a secret, and whether strongly so (then a plain word
    is one, too)."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    while parts and parts[-1].isdigit():
        parts.pop()
    if not parts or parts[-1] in _FACT:
        return False, False
    if "pass" in parts[:-1]:
        # `pass_context`, `pass_rate`: only at the end of a name it means a password.
        parts = [part for part in parts if part != "pass"]
    if len(parts) > 1 and parts[-1] == "signature":  # of a signed address, not of a function
        return True, False
    secret = not _SECRET.isdisjoint(parts) or any(pair in _SECRET_TWO for pair in pairwise(parts))
    return secret, secret and not _STRONG.isdisjoint(parts)


def _named(text: str, start: int, end: int, strong: bool) -> Iterator[Span]:
    name = text[start:end].strip("-.")
    between = _BETWEEN.match(text, end)
    if between is None:
        return
    at = between.end()
    option = text[start:end].startswith("-")
    if between["blank"] is not None:
        netrc = name == "password" and _NETRC.search(text[max(0, start - 300) : start])
        if not option and not netrc:
            return
    kind = _kind(name)
    below = between["below"] is not None
    whole = not below and (
        (kind == "authorization" and between["sign"] is not None)
        or (kind == "cookie" and between["sign"] == ":" and _COOKIE.match(text, at) is not None)
    )
    block = _BLOCK.match(text, at) if between["sign"] == ":" else None
    if block is not None:
        yield Span(block.start("body"), block.end("body"), kind, block["body"])
        return
    prose = between["prose"] is not None
    scheme = _SCHEME.match(text, at)
    if scheme is not None and not whole:
        at = scheme.end()
    quoted = _QUOTED.match(text, at)
    if quoted is not None:
        value, first = quoted["value"], quoted.start("value")
        inner = _SCHEME.match(value)
        if inner is not None:
            value, first = value[inner.end() :], first + inner.end()
        if (below and not _LINE_END.match(text, quoted.end())) or value[:1] in ",;:)]} ":
            return  # other code: the quote before it closed a text, as in `'Password: '`
        closed = text[quoted.end() - 1] == quoted["quote"]
        if not closed and " " in value:
            return
        if _is_secret(value, strong=strong and closed and not prose, quoted=True):
            yield Span(first, first + len(value), kind, value)
        return
    if whole:
        if scheme is not None:
            at = scheme.end()
        line = _LINE_VALUE.match(text, at)
        value = line.group().rstrip() if line is not None else ""
        if len(value) >= 6 and not _PLACEHOLDER.match(value) and not _CODE_WORD.match(value):
            yield Span(at, at + len(value), kind, value)
        return
    bare = (_BARE_SAID if prose else _BARE).match(text, at)
    if bare is None:
        return
    if text[bare.end() : bare.end() + 1] == "(" or (
        below and not _LINE_END.match(text, bare.end())
    ):
        return
    value = bare.group().rstrip(",;.:!?")
    if " " in between.group() and _DOTTED_CODE.match(value) and not _LONG_PART.search(value):
        return
    # `NAME=value` without blanks is a variable of a shell or an env file.
    upper = name.isupper() and between.group() == "="
    if _is_secret(value, strong=upper or (option and strong), quoted=False):
        yield Span(at, at + len(value), kind, value)


def _kind(name: str) -> str:
    parts = {part.lower() for part in _PARTS.findall(name)}
    for kinds, kind in (
        ({"authorization"}, "authorization"),
        ({"cookie"}, "cookie"),
        ({"pass", "passwd", "password", "passphrase", "passcode", "pwd", "pw"}, "password"),
        ({"secret", "secrets"}, "secret"),
        ({"token", "authtoken", "jwt", "pat", "bearer"}, "token"),
        ({"key", "apikey", "accesskey", "privatekey", "secretkey", "signingkey"}, "key"),
    ):
        if parts & kinds:
            return kind
    return "credential"


def _is_secret(value: str, *, strong: bool, quoted: bool) -> bool:
    """Whether a value beside a secret's name is one: no placeholder, code, number or path."""
    if len(value) < 4 or _PLACEHOLDER.match(value) or _CODE_WORD.match(value):
        return False
    if _NUMBER.match(value) and not (strong and len(value) >= 6):
        return value.isdigit() and len(value) >= 16  # longer than a time in microseconds is not
    if _PATH.match(value) and not strong:
        return False
    if strong:
        return not value.startswith(("$", "%", "<", "{", "("))
    if not quoted and "://" in value:
        return False
    if not quoted and _DOTTED.match(value) and not _LONG_PART.search(value):
        return False
    if " " in value:
        return False
    has_digit = any(map(str.isdigit, value))
    bare = value.replace("_", "").replace("-", "").replace(".", "")
    has_sign = bool(bare) and not bare.isalnum()
    has_both = any(map(str.islower, value)) and any(map(str.isupper, value))
    if len(value) < 8:
        return has_digit and (has_sign or has_both or value[:1].isalpha())
    return has_digit or has_sign or (has_both and len(value) >= 16)


def _urls(view: View) -> Iterator[Span]:
    text, sign = view.text, -1
    for at in view.places(b"://"):
        if sign < at:
            sign = text.find("@", at)
            if sign < 0:
                return
        if sign - at > _LOGIN_MAX:
            continue
        login = _URL_LOGIN.match(text, at + 3)
        if login is not None:
            value = login[2]
            if not _PLACEHOLDER.match(value):
                yield Span(login.start(2), login.end(2), "url-password", value)
            continue
        broken = BROKEN_LOGIN.match(text, at + 3)
        if broken is not None:
            value = broken[2].replace("\r", "").replace("\n", "")
            yield Span(broken.start(2), broken.end(2), "url-password", value)
            continue
        alone = _URL_TOKEN.match(text, at + 3)
        if alone is not None and any(c.isdigit() for c in alone[1]):
            yield Span(alone.start(1), alone.end(1), "url-password", alone[1])


def _schemes(view: View) -> Iterator[Span]:
    """``Bearer …`` and ``Basic …`` without their header."""
    text = view.text
    for word, places, pattern in (
        ("bearer ", view.places_by(b"bearer ", b"bearer"), _BEARER),
        ("basic ", view.places_by(b"basic ", b"basic"), _BASIC),
    ):
        for at in places:
            if not boundary(text, at):
                continue
            match = pattern.match(text, at + len(word))
            if match is None:
                continue
            value = match.group()
            digit = any(map(str.isdigit, value))
            both = any(map(str.islower, value)) and any(map(str.isupper, value))
            if digit and (word == "bearer " or (both and len(value) % 4 == 0)):
                yield Span(match.start(), match.end(), "authorization", value)


def _logins(view: View) -> Iterator[Span]:
    """``-u user:password`` and ``--user user:password``."""
    text = view.text
    for option, places in (
        (" -u", view.places(b" -u")),
        ("--user", view.places_by(b"--user", b"-user")),
        ("--proxy-user", view.places_by(b"--proxy-user", b"-user")),
    ):
        for at in places:
            if not text.startswith(option, at):
                continue  # in capitals
            match = _LOGIN_OPTION.match(text, at + len(option))
            if match is None:
                continue
            low = max(0, at - 300)
            if not _CALL.search(text[max(low, text.rfind("\n", low, at) + 1) : at]):
                continue
            if not _PLACEHOLDER.match(match[1]) and not match[1].isdigit():
                yield Span(match.start(1), match.end(1), "password", match[1])
