from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.executors.faults import classify, from_rpc, last_paragraph, resets_at, shorten


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("usage limit reached, resets at 15:00", "limit"),
        ("You've hit your weekly limit · resets 3pm", "limit"),
        ("Error: 429 Too Many Requests", "limit"),
        ("Your credit balance is too low", "limit"),
        ("RESOURCE_EXHAUSTED: quota exceeded", "limit"),
        ("Authentication required", "login"),
        ("Please log in to continue", "login"),
        ("Not logged in · Please run /login", "login"),
        ("Invalid API key provided", "login"),
        ("OAuth token has expired", "login"),
        ("API Error: 401 Unauthorized", "login"),
        ('Model "stub-2" is not configured in config.toml.', "model"),
        ("model not found: stub-2", "model"),
        ("Unsupported format of modelId: stub-2. Expected: modelId[effort].", "model"),
        ("prompt is too long: 210000 tokens > 200000 maximum", "cut_short"),
        ("Incomplete response returned, reason: max_output_tokens", "cut_short"),
        ("The model refused to answer; refusal", "refused"),
        ("Overloaded (529)", "overloaded"),
        ("We’re currently experiencing high demand, which may cause errors.", "overloaded"),
        ("connect ECONNREFUSED 127.0.0.1:9", "network"),
        ("stream disconnected before completion: Transport error", "network"),
        ("stub error 400", "other"),
        ("Permission denied to write the file", "other"),
        ("", "other"),
    ],
)
def test_finds_what_a_person_can_act_on(message, code):
    assert classify(message).code == code


@pytest.mark.parametrize(
    ("code", "message", "data", "expected"),
    [
        (-32000, "Authentication required", None, ("login", "Authentication required", None)),
        # The code of a missing login is also used for anything else.
        (-32000, "usage limit reached", None, ("limit", "usage limit reached", None)),
        (-32000, "Something", None, ("login", "Something", None)),
        (-32003, "Rate limited", "API error (status 429 Too Many Requests)", ("limit", None, 429)),
        (-32603, "Internal error", {"details": "boom"}, ("other", "boom", None)),
        (
            -32603,
            "Internal error",
            {"message": "API error (status 400 Bad Request)", "http_status": 400},
            ("other", "API error (status 400 Bad Request)", 400),
        ),
        (-32603, "Internal error: stub", {"errorName": "APIError"}, ("other", "stub", None)),
        (-32601, "Method not found", None, ("protocol", "Method not found", None)),
        (-32800, "gone", None, ("cancelled", "gone", None)),
        (-32603, "Internal error", None, ("other", "Internal error", None)),
        (-32603, "Internal error", {"error": {"message": "deep"}}, ("other", "deep", None)),
        (-32603, "x", {"statusCode": 503}, ("overloaded", "x", 503)),
        (-32603, "x", {"statusCode": True}, ("other", "x", None)),
    ],
)
def test_reads_a_json_rpc_error(code, message, data, expected):
    fault = from_rpc(code, message, data)
    assert (fault.code, fault.status) == (expected[0], expected[2])
    if expected[1] is not None:
        assert fault.message == expected[1]


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("usage limit reached, resets at 15:00", "15:00"),
        ("resets 3pm (Europe/Berlin)", "3pm"),
        ("limit reached: try again in 20 minutes.", "in 20 minutes"),
        ("Please retry after 3.5 s", "3.5 s"),
        ("resets in 2h", "in 2h"),
        ("too many requests: retry after 60", "in 60 s"),
        ("usage limit reached, resets at 1790000000", "2026-09-21T14:13:20.000Z"),
        ("limit reached", None),
        ("try again", None),
    ],
)
def test_a_reset_time_is_the_executors_own_words(text, when):
    assert resets_at(text) == when


def test_a_reset_time_is_told_for_limits_only():
    assert classify("usage limit reached, resets at 15:00").resets_at == "15:00"
    assert classify("network error, try again in 5 s").resets_at is None


def test_a_long_message_says_how_much_was_cut():
    short = shorten("x" * 5000)
    assert len(short) < 2100
    assert "characters left out" in short
    assert shorten("x" * 2000) == "x" * 2000


def test_last_paragraph():
    assert last_paragraph("Warning: y\n\nstream closed\n\n") == "stream closed"
    assert last_paragraph('a\n\n{"error": {"message": "m"}}') == "m"
    assert last_paragraph('a\n\n{"error": 5}') == '{"error": 5}'
    assert last_paragraph("") == ""


@given(st.text(), st.integers(), st.none() | st.text() | st.dictionaries(st.text(), st.text()))
def test_any_error_becomes_a_fault_with_words(message, code, data):
    fault = from_rpc(code, message, data)
    assert fault.code and fault.message
