"""Patterns of paths: what they name, and in what time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.nodes.node.globs import compile_pattern, path_expression


def fits_name(pattern: str, name: str) -> bool:
    """The plain meaning, tried out in every way."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(fits_name(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in {"?", name[0]} and fits_name(pattern[1:], name[1:])


def fits(patterns: list[str], names: list[str]) -> bool:
    if not patterns:
        return not names
    if patterns[0] == "**":
        if len(patterns) == 1:
            return bool(names)
        return any(fits(patterns[1:], names[at:]) for at in range(len(names) + 1))
    return bool(names) and fits_name(patterns[0], names[0]) and fits(patterns[1:], names[1:])


NAMES = st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=5)
PATTERNS = st.lists(
    st.one_of(st.just("**"), st.text("ab*?", min_size=1, max_size=4)), min_size=1, max_size=5
)


@given(PATTERNS, NAMES)
def test_a_pattern_names_what_it_says(patterns: list[str], names: list[str]) -> None:
    made = re.compile(path_expression("/".join(patterns)), re.DOTALL)
    found = made.fullmatch("/" + "/".join(names)) is not None
    assert found is fits(patterns, names)


@given(PATTERNS, NAMES, st.booleans())
def test_a_policys_pattern_names_the_place_and_what_is_below(
    patterns: list[str], names: list[str], fold: bool
) -> None:
    made = compile_pattern("/x/" + "/".join(patterns), "/home/u", fold=fold)
    found = made.rest.fullmatch("/" + "/".join(names)) is not None
    base = [one for one in made.base.split("/") if one][1:]
    rest = patterns[len(base) :]
    while rest and rest[-1] == "**":  # what is below is named anyway
        rest.pop()
    assert found is any(fits(rest, names[:count]) for count in range(len(names) + 1))


@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 60 + "b",
        "/".join(["**", "*a*"] * 30) + "/b",
        "/".join(["**"] * 400) + "/b",
        "*" * 2000 + "b",
        "/".join(["**", "a"] * 60) + "/b",
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    made = re.compile(path_expression(pattern), re.DOTALL)
    began = time.process_time()
    assert made.fullmatch("/" + "/".join(["a" * 40] * 40)) is None
    assert made.fullmatch("/" + "a" * 255) is None
    assert time.process_time() - began < 2
