"""From an executor's words to a :class:`~handoff.executors.contract.Fault`.

Executors tell why they failed in prose, with codes that mean different things in each of
them. The rules look for what a person can act on: log in, wait for a limit, choose another
model. What fits no rule is ``other``, with the executor's own words.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from handoff.clock import iso
from handoff.executors.contract import Fault

#: a number in this range is taken for a time in seconds since 1970: from 2001 to 2286
EPOCH_BEGINS, EPOCH_ENDS = 10**9, 10**10
#: characters of a fault's message
_MESSAGE = 2000

#: Order matters: a limit is often told with the code of a missing login.
_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (code, re.compile(pattern, re.IGNORECASE))
    for code, pattern in (
        (
            "limit",
            (
                r"rate[ _-]?limit|usage[ _-]limit|limit (?:was )?reached|hit your (?:\w+ )?limit"
                r"|quota|too many requests|\b429\b|insufficient[ _](?:credit|balance|funds)"
                r"|credit balance|billing|payment required|resource[ _]exhausted|\b402\b"
            ),
        ),
        (
            "login",
            (
                r"authentication (?:is )?required|auth[ _]required|not (?:logged|signed) in"
                r"|log ?in (?:again|required|first)|please (?:log|sign) ?in|run /login"
                r"|(?:invalid|missing|no|incorrect|expired)[ _](?:x-)?(?:api[ _-]?key|credential|token)"
                r"|api key (?:is )?(?:not|missing|required|invalid)|unauthori[sz]ed|\b401\b"
                r"|(?:token|session|login|credentials?) (?:has |have |is |was )?expired"
                r"|authentication[ _](?:failed|error)|permission_denied.*api key"
            ),
        ),
        (
            "model",
            (
                r"model[ _]not[ _]found|unknown model|no such model|invalid model"
                r"|model .{0,80}(?:does not exist|is not (?:configured|available|supported|found))"
                r"|unsupported (?:format of )?model|not a valid model"
            ),
        ),
        (
            "cut_short",
            (
                r"prompt is too long|context[ _](?:length|window)|maximum context"
                r"|max[ _](?:output[ _])?tokens|token limit|incomplete response"
                r"|max[ _]turns?\b|turn limit"
            ),
        ),
        ("refused", r"\brefus(?:al|ed to)|content[ _]policy|safety|violat\w+ .{0,40}polic"),
        ("overloaded", r"overloaded|high demand|\b529\b|\b503\b|service unavailable|capacity"),
        (
            "network",
            (
                r"econnrefused|enotfound|econnreset|etimedout|eai_again|fetch failed"
                r"|network error|connection (?:error|refused|reset|closed|timed)|getaddrinfo"
                r"|\bdns\b|socket hang up|stream (?:disconnected|idle|closed)|transport error|timed? ?out"
                r"|certificate|\b(?:tls|proxy)\b"
            ),
        ),
    )
)

_RESET = re.compile(
    r"\b(?:(?:try again|retry|available again|renews?)[ :]+(?:(?P<in1>in) |at |on |after )"
    r"|resets?[ :]+(?:(?P<in2>in) |at |on |after )?)"
    r"(?P<when>(?:[^.;,\n()\]}\"|]|\.(?=\d)){1,80})",
    re.IGNORECASE,
)
_STATUS = re.compile(
    r"(?:status(?: code)?|http|api error)\D{0,3}\b(?P<status>[1-5]\d\d)\b", re.IGNORECASE
)


def classify(message: str, *, default: str = "other", status: int | None = None) -> Fault:
    """The fault that a message tells. ``default``: the code if no rule fits."""
    text = message.strip() or "no reason was given"
    if status is None:
        found = _STATUS.search(text)
        status = int(found["status"]) if found else None
    code = _by_rule(text) or _by_status(status) or default
    return Fault(
        code, shorten(text), resets_at=resets_at(text) if code == "limit" else None, status=status
    )


def from_rpc(code: int, message: str, data: Any) -> Fault:
    """The fault of a JSON-RPC error that ended a turn or refused a session."""
    text, status = _told(message, data)
    defaults = {
        -32000: "login",  # ACP: authentication required
        -32003: "limit",  # grok: rate limited
        -32800: "cancelled",
        -32601: "protocol",
        -32602: "protocol",
        -32600: "protocol",
        -32700: "protocol",
    }
    return classify(text, default=defaults.get(code, "other"), status=status)


def with_login(fault: Fault, command: str) -> Fault:
    """The fault, and how to log in if that is what is missing."""
    if fault.code != "login" or not command or command in fault.message:
        return fault
    return msgspec.structs.replace(fault, message=f"{fault.message} (log in with: {command})")


def resets_at(text: str) -> str | None:
    """When a limit ends, in the executor's own words, or None if it does not say. A bare
    number gets its meaning: seconds to wait (as in HTTP), or seconds since 1970."""
    found = _RESET.search(text)
    if found is None:
        return None
    when = found["when"].strip().rstrip("'`")
    if when.isascii() and when.isdigit():
        if EPOCH_BEGINS <= int(when) < EPOCH_ENDS:
            return iso(int(when) * 1000)
        if "after" in found.group().lower():
            return f"in {when} s"
    return f"in {when}" if found["in1"] or found["in2"] else when


def last_paragraph(text: str) -> str:
    """The last paragraph of a text; of an error in JSON, its message."""
    told = text.strip().rpartition("\n\n")[2].strip()
    try:
        body = json.loads(told)
    except (ValueError, RecursionError):
        return told
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else told


def shorten(text: str, limit: int = _MESSAGE) -> str:
    """A message of bounded length; what was cut says so."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 40]} [… {len(text) - limit + 40} characters left out]"


def _told(message: str, data: Any) -> tuple[str, int | None]:
    """The error's words without repetition, and the HTTP status in its data."""
    parts = [message]
    status = None
    if isinstance(data, str):
        parts.append(data)
    elif isinstance(data, dict):
        for key in ("message", "details", "detail", "reason", "error"):
            value = data.get(key)
            if isinstance(value, str):
                parts.append(value)
            elif isinstance(value, dict):
                parts.append(str(value.get("message") or json.dumps(value)))
        kind = data.get("errorKind")
        if isinstance(kind, str) and kind not in ("unknown", ""):
            parts.append(kind)
        number = data.get("http_status") or data.get("statusCode")
        status = number if type(number) is int else None
    if len(parts) > 1 and parts[0].rstrip(". ").lower() == "internal error":
        parts = parts[1:]
    parts[0] = parts[0].removeprefix("Internal error: ")
    seen: list[str] = []
    for part in parts:
        if part and not any(part in other for other in seen):
            seen.append(part)
    return ": ".join(seen), status


def _by_rule(text: str) -> str | None:
    for code, pattern in _RULES:
        if pattern.search(text):
            return code
    return None


def _by_status(status: int | None) -> str | None:
    if status is None:
        return None
    return {401: "login", 402: "limit", 429: "limit", 503: "overloaded", 529: "overloaded"}.get(
        status
    )
