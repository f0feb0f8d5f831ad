"""Why a turn of Claude Code failed, from the words and numbers that it gives."""

from __future__ import annotations

import re

from handoff.executors.contract import Fault
from handoff.wire.claude import Result

#: error kinds of ``assistant`` and ``api_retry`` messages
_KINDS = {
    "authentication_failed": "login",
    "billing_error": "limit",
    "max_output_tokens": "cut_short",
    "model_not_found": "model",
    "overloaded": "overloaded",
    "rate_limit": "limit",
}
_STATUS = {401: "login", 403: "login", 402: "limit", 429: "limit", 503: "overloaded"}
_TERMINAL = {
    "blocking_limit": "limit",
    "max_turns": "cut_short",
    "model_error": "model",
    "prompt_too_long": "cut_short",
}
_SUBTYPES = {
    "error_max_budget_usd": "limit",
    "error_max_turns": "cut_short",
}
_WORDS = (
    (r"please run /login|not logged in|invalid api key|oauth token", "login"),
    (r"usage limit|hit your limit|limit reached|credit balance|quota", "limit"),
    (r"selected model|model.{0,40}not (exist|found|available)", "model"),
    (r"overloaded", "overloaded"),
    (r"timed? ?out|stream idle|connection (error|reset|refused|closed)", "network"),
    (r"socket|econn|enotfound|etimedout|network|fetch failed", "network"),
)
_RESETS = re.compile(r"\bresets?\b\s+(?:at\s+)?([^\n·|]{2,80})", re.IGNORECASE)

NO_SESSION = "No conversation found"


def from_result(result: Result, error: str | None, interrupted: bool) -> Fault | None:
    """The fault of a finished turn, or None if the executor reports none.

    Args:
        result: what ended the turn. A ``subtype`` "success" may be a failure.
        error: the kind of the last API error that the turn showed.
        interrupted: whether we asked for the end.
    """
    reason = result.terminal_reason or ""
    failed = result.is_error or result.subtype != "success"
    if not failed and result.stop_reason not in ("refusal", "max_tokens"):
        return None
    if reason.startswith("aborted") or (interrupted and result.subtype != "success"):
        return Fault("cancelled", "The turn was interrupted.")
    text = (result.text or "\n".join(result.errors) or reason or result.subtype).strip()
    return Fault(
        code=_code(result, error, text),
        message=text,
        resets_at=resets_at(text),
        status=result.status,
    )


def _code(result: Result, error: str | None, text: str) -> str:
    if result.stop_reason == "refusal":
        return "refused"
    if result.stop_reason == "max_tokens":
        return "cut_short"
    known = (
        _TERMINAL.get(result.terminal_reason or "")
        or _SUBTYPES.get(result.subtype)
        or _KINDS.get(error or "")
        or _STATUS.get(result.status or 0)
    )
    if known:
        return known
    if result.status == 529:
        return "overloaded"
    words = from_words(text)
    if result.status is not None and words == "network":
        return "other"  # the server did answer, with that status
    return words


def from_words(text: str) -> str:
    """The fault code that the executor's sentence speaks of, else ``other``."""
    for pattern, code in _WORDS:
        if re.search(pattern, text, re.IGNORECASE):
            return code
    return "other"


def resets_at(text: str) -> str | None:
    """When a limit ends, in the executor's own words."""
    found = _RESETS.search(text)
    return found.group(1).strip(" .") if found else None


def at_start(text: str, code: int | None) -> Fault:
    """The fault of a process that ended before its session was ready.

    ``text``: what it wrote to standard error; ``code``: its exit code, negative for a
    signal, None if nobody knows.
    """
    said = text.strip()
    words = from_words(said)
    kind = words if words in ("login", "model") else "start"
    ended = exit_text(code)
    message = f"Claude Code ended before it was ready ({ended})"
    return Fault(kind, f"{message}: {said}" if said else f"{message}.")


def exit_text(code: int | None) -> str:
    """How a process ended, for people."""
    if code is None:
        return "nobody saw how"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
