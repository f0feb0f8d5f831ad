from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.agentd.dispatching import (
    NAME_COLUMNS,
    DispatchRequest,
    _check_text,
    _texts,
    _title,
)
from handoff.errors import UsageError


@pytest.mark.parametrize(
    ("request_", "plan", "prompt", "title"),
    [
        (DispatchRequest(name=" given "), "# Plan", "", "given"),
        (DispatchRequest(plan_name="docs/2026-01-31-fix-it.md"), "# Plan", "", "fix-it"),
        (DispatchRequest(plan_name="fix.md"), "# Plan", "", "fix"),
        (DispatchRequest(), "\n\n## Do this\nmore", "", "Do this"),
        (DispatchRequest(), "# Plan", "Say so", "Say so"),
        (DispatchRequest(name="a\x1b[31mb"), "", "", "a[31mb"),
        (DispatchRequest(name="\u200b"), "", "", "task"),
        (DispatchRequest(), "###", "", "task"),
    ],
)
def test_titles(request_: DispatchRequest, plan: str, prompt: str, title: str) -> None:
    assert _title(request_, plan, prompt) == title


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=100), st.text(max_size=30))
def test_a_title_fits_and_prints(name: str, plan_name: str) -> None:
    title = _title(DispatchRequest(name=name, plan_name=plan_name), "x", "")
    width = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in title)
    assert title
    assert title.isprintable()
    assert width <= NAME_COLUMNS + 1


@pytest.mark.parametrize("plan", ["!", "/w==", "AA", "é"])
def test_a_plan_that_is_no_text_is_refused(plan: str) -> None:
    with pytest.raises(UsageError):
        _texts(DispatchRequest(plan_b64=plan))


def test_only_a_prompt_may_hold_a_nul() -> None:
    _check_text(DispatchRequest(prompt="a\0b"))
    for bad in (DispatchRequest(model="\0"), DispatchRequest(verify=("true", "a\0"))):
        with pytest.raises(UsageError):
            _check_text(bad)
