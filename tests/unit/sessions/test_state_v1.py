from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.errors import StateInvalid
from handoff.sessions import state as states
from handoff.sessions.state_v1 import packed, split


def v1(**more: Any) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "goal": "g",
        "constraints_preferences": [],
        "progress": {"done": [], "in_progress": [], "pending": []},
        "key_decisions": [],
        "rejected_attempts": [],
        "verification": [],
        "critical_context": [],
        "uncertainties": [],
        "next_steps": [],
        **more,
    }


@pytest.mark.parametrize(
    ("name", "path"),
    [("constraints_preferences", "constraints"), ("next_steps", "next_steps"),
     ("uncertainties", "uncertainties"), ("critical_context", "context")],
)  # fmt: skip
def test_as_many_items_as_version_1_allows_stay_whole(name: str, path: str) -> None:
    texts = [f"item-{number:03}" for number in range(256)]
    state = states.check(v1(**{name: texts}, goal="g" * 5000)).state
    held = "\n".join(item["text"] for item in states.items(state, path))
    assert [text for text in held.split("\n") if text.startswith("item-")] == texts
    assert states.items(state, "context" if path != "context" else path)[0]["text"] == "g" * 5000


def test_faults_have_pointers() -> None:
    with pytest.raises(StateInvalid) as caught:
        states.check(v1(next_steps=["", "x"], more=1, progress={"done": None}))
    pointers = {fault["pointer"] for fault in caught.value.details["faults"]}
    assert {"/next_steps/0", "/more", "/progress/done", "/progress/pending"} <= pointers


@given(st.lists(st.text("ab", min_size=1, max_size=5), max_size=40), st.integers(1, 50))
def test_packing_keeps_every_text_in_order(texts: list[str], limit: int) -> None:
    made = packed(texts, limit)
    assert "\n".join(made).split("\n") == (texts or [""])
    assert len(made) <= limit


@given(st.text("aé\n ", max_size=200), st.integers(4, 64))
def test_pieces_are_within_the_limit_and_make_the_whole(text: str, limit: int) -> None:
    pieces = split(text, limit)
    assert all(len(piece.encode()) <= limit for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
