from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff import ids
from handoff.errors import AmbiguousId, NotFound, UnknownTask, UsageError

UUIDS = st.uuids(version=4).map(str)


def test_short_is_the_first_eight() -> None:
    assert ids.short("0123abcd-ffff-4fff-8fff-ffffffffffff") == "0123abcd"


@pytest.mark.parametrize("text", ["abcd", "ABCD", "  abcd-12 ", "0" * 36])
def test_prefixes_are_cleaned(text: str) -> None:
    assert ids.check_prefix(text) == text.strip().lower()


@pytest.mark.parametrize("text", ["", "abc", "   a  ", "wxyz", "abcg", "ab/cd", "abc\n1", "åbcd"])
def test_what_can_be_no_id_is_a_usage_error_that_names_it(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        ids.check_prefix(text)
    assert text in str(caught.value)
    assert caught.value.remedy == "handoff tasks"


@given(st.lists(UUIDS, min_size=1, max_size=20, unique=True), st.data())
def test_any_unique_prefix_finds_its_id(candidates: list[str], data: st.DataObject) -> None:
    wanted = data.draw(st.sampled_from(candidates))
    length = data.draw(st.integers(ids.MIN_PREFIX, 36))
    prefix = wanted[:length]
    fitting = [c for c in candidates if c.startswith(prefix)]
    if len(fitting) == 1:
        assert ids.resolve(prefix, candidates) == wanted
    else:
        with pytest.raises(AmbiguousId) as caught:
            ids.resolve(prefix, candidates)
        assert caught.value.details["candidates"] == sorted(fitting)


def test_an_exact_match_wins_over_longer_ones() -> None:
    assert ids.resolve("abcd", ["abcdef", "abcd"]) == "abcd"


def test_nothing_fitting_is_the_class_asked_for() -> None:
    with pytest.raises(NotFound) as caught:
        ids.resolve("abcd", [])
    assert type(caught.value) is NotFound
    with pytest.raises(UnknownTask):
        ids.resolve("abcd", [str(uuid.UUID(int=1))], UnknownTask)


def test_a_long_list_of_fitting_ids_is_cut_in_the_sentence_and_in_the_details() -> None:
    many = [f"abcd{n:04d}" for n in range(50)]
    with pytest.raises(AmbiguousId) as caught:
        ids.resolve("abcd", many)
    assert str(caught.value).count("abcd0") == 5
    assert caught.value.details["candidates"] == many[:20]
