"""Why a turn failed, from what Claude Code says."""

from __future__ import annotations

from typing import Any

import pytest

from handoff.executors import claude_faults as faults
from handoff.wire.claude import Result


def result(text: str | None = None, **changes: Any) -> Result:
    given: dict[str, Any] = {
        "subtype": "success",
        "is_error": True,
        "text": text,
        "terminal_reason": "api_error",
        "stop_reason": "stop_sequence",
        "status": None,
        "errors": (),
        "session_id": None,
        "input_tokens": None,
        "output_tokens": None,
        "cost_usd": None,
    }
    return Result(**{**given, **changes})


@pytest.mark.parametrize(
    ("found", "error", "code"),
    [
        (result("Not logged in · Please run /login"), None, "login"),
        (result("Failed to authenticate. API Error: 401 x", status=401), None, "login"),
        (result("API Error: 403 forbidden", status=403), None, "login"),
        (result("something", status=None), "authentication_failed", "login"),
        (result("API Error: Request rejected (429)", status=429), "rate_limit", "limit"),
        (result("Credit balance is too low"), "billing_error", "limit"),
        (result("Claude usage limit reached"), None, "limit"),
        (result("x", subtype="error_max_budget_usd"), None, "limit"),
        (result("API Error: 529 overloaded", status=529), "server_error", "overloaded"),
        (result("API Error: 503", status=503), None, "overloaded"),
        (result("issue with the selected model (x)", status=404), None, "model"),
        (result("API Error: 500 connection error", status=500), "server_error", "other"),
        (result("Request timed out."), "server_error", "network"),
        (result("API Error: stream idle: no bytes for 10000ms"), "unknown", "network"),
        (result("API Error: Connection error. (ECONNREFUSED)"), None, "network"),
        (result("too long", terminal_reason="prompt_too_long", status=400), None, "cut_short"),
        (result("x"), "max_output_tokens", "cut_short"),
        (result("x", subtype="error_max_turns", terminal_reason="max_turns"), None, "cut_short"),
        (result("flagged", stop_reason="refusal"), "invalid_request", "refused"),
        (result("fine", is_error=False, stop_reason="refusal"), None, "refused"),
        (result("half", is_error=False, stop_reason="max_tokens"), None, "cut_short"),
        (result("API Error: 400 bad", status=400), "invalid_request", "other"),
        (
            result(subtype="error_during_execution", terminal_reason="aborted_streaming"),
            None,
            "cancelled",
        ),
    ],
)
def test_the_code(found: Result, error: str | None, code: str) -> None:
    fault = faults.from_result(found, error, interrupted=False)
    assert fault is not None
    assert fault.code == code
    assert fault.message
    assert fault.status == (found.status if code != "cancelled" else None)


def test_no_failure_is_no_fault() -> None:
    assert faults.from_result(result("ok", is_error=False), None, interrupted=False) is None
    assert faults.from_result(result("ok", is_error=False), "rate_limit", interrupted=True) is None


def test_an_end_that_we_asked_for_is_cancelled_whatever_it_is_called() -> None:
    ended = result(subtype="error_during_execution", terminal_reason=None)
    fault = faults.from_result(ended, None, interrupted=True)
    assert fault is not None
    assert fault.code == "cancelled"
    fault = faults.from_result(ended, None, interrupted=False)
    assert fault is not None
    assert fault.code == "other"


def test_an_error_list_is_the_message_where_there_is_no_text() -> None:
    fault = faults.from_result(
        result(subtype="error_during_execution", errors=("one", "two")), None, interrupted=False
    )
    assert fault is not None
    assert fault.message == "one\ntwo"


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("You've hit your limit · resets 3pm (UTC)", "3pm (UTC)"),
        ("limit reached, resets at Dec 1, 9am (Europe/Berlin)", "Dec 1, 9am (Europe/Berlin)"),
        ("Request rejected (429)", None),
        ("it resets", None),
    ],
)
def test_when_a_limit_ends_is_said_in_its_own_words(text: str, when: str | None) -> None:
    assert faults.resets_at(text) == when
