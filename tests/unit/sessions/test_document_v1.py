from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.errors import ImportRefused
from handoff.sessions import document_v1
from handoff.sessions import state as states

DOCUMENT = """\
intro line

## Goal

Ship the parser.

Twice.

## Constraints & Preferences

- Never touch `public/api.py`
  and not its tests
- None of it is optional

## Progress

### Done

- None identified.

### In Progress

* the lexer

### Pending

Free text without a bullet

## Key Decisions

1. SQLite

## Critical Context

- plain fact
- Rejected attempt: a regex
- Verification: pytest passed
- Uncertainty: speed
```
## Goal
- not an item
```

## Surprise

- kept as well

## Next Steps

1. run pytest
2. None identified.
"""


def read(text: str) -> dict[str, Any]:
    value: dict[str, Any] = document_v1.read(text)
    return value


def test_each_section_gives_its_list() -> None:
    found = read(DOCUMENT)
    assert found["goal"] == "Ship the parser.\n\nTwice."
    assert found["constraints_preferences"] == [
        "Never touch `public/api.py`\n  and not its tests",
        "None of it is optional",
    ]
    assert found["progress"] == {
        "done": [],
        "in_progress": ["the lexer"],
        "pending": ["Free text without a bullet"],
    }
    assert found["key_decisions"] == ["SQLite"]
    assert found["rejected_attempts"] == ["a regex"]
    assert found["verification"] == ["pytest passed"]
    assert found["uncertainties"] == ["speed\n```\n## Goal\n- not an item\n```"]
    assert found["critical_context"] == [
        "intro line",
        "plain fact",
        "## Surprise",
        "kept as well",
    ]
    assert found["next_steps"] == ["run pytest"]
    assert states.check(found).state["goal"]["text"] == "Ship the parser.\n\nTwice."


@pytest.mark.parametrize(
    "text", ["", "# Notes\n\nno goal", "## Goal\n\n\n## Progress\n- x\n", "{}"]
)
def test_without_a_goal_it_is_no_document(text: str) -> None:
    with pytest.raises(ImportRefused):
        document_v1.read(text)


def test_headings_are_known_in_every_spelling() -> None:
    found = read(
        "## goal\r\nx\r\n##  Constraints and Preferences ##\r\n+ c\r\n## NEXT STEPS\r\n1) n"
    )
    assert found["constraints_preferences"] == ["c"]
    assert found["next_steps"] == ["n"]


LINES = st.sampled_from(
    ["## Goal", "## Progress", "### Done", "## Next Steps", "# x", "## y", "### z", "- a",
     "  b", "1. c", "```", "~~~ q", "text", "", "- Verification: v", "- - nested", "\tindented"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(LINES, max_size=25))
def test_no_word_is_lost(lines: list[str]) -> None:
    text = "\n".join(["## Goal", "the goal", *lines])
    found = read(text)
    kept = repr(found)
    for word in ("# x", "## y", "### z", "text", "nested", "indented", "~~~ q", "b"):
        if any(word in line for line in lines):
            assert word in kept, (word, text, found)
