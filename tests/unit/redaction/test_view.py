"""What is looked up once must be what looking at the text itself would give."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handoff.redaction import shapes, view
from handoff.redaction.view import SHORTEST, WORDS, View

_PIECES = st.one_of(
    st.sampled_from([word.decode() for word in WORDS]),
    st.sampled_from([word.decode().upper() for word in WORDS]),
    st.sampled_from(["to\u212aen", "s\u0130g", "\u017fecret", "é", "\ud800", "日本", "a" * 15]),
    st.sampled_from(["\n", "\r\n", "\r", " ", "\n+", "\n-", "\n> ", "\n  ", "[", "x", "7", "-"]),
    st.sampled_from([anchor for shape in shapes.SHAPES for anchor in shape.anchors]),
    st.text(alphabet="abcXYZ019_-./+=:@~%[", min_size=1, max_size=24),
)
_TEXTS = st.lists(_PIECES, max_size=24).map("".join)


def slow_places(text: str, word: str) -> list[int]:
    lower = text.replace("\u0130", "i").lower()
    return [at for at in range(len(lower)) if lower.startswith(word, at)]


@settings(max_examples=300, deadline=None)
@given(_TEXTS, st.booleans())
def test_places_are_those_of_the_text_in_small_letters(text: str, long: bool) -> None:
    text = text + " " * 600 if long else text
    seen = View(text)
    for word in WORDS:
        assert list(seen.places(word)) == slow_places(text, word.decode()), word
    for word, part in ((b"apikey", b"key"), (b"_pat", b"pat"), (b"bearer ", b"bearer")):
        assert list(seen.places_by(word, part)) == slow_places(text, word.decode()), word


def test_no_word_hides_another() -> None:
    # One search finds all words with the same first letter, one after the other.
    for one in WORDS:
        for at in range(1, len(one)):
            assert not any(
                word[: len(one) - at] == one[at:][: len(word)]
                for word in WORDS
                if (word[0] == one[0])
            )


@settings(max_examples=300, deadline=None)
@given(_TEXTS)
def test_runs_are_the_runs(text: str) -> None:
    pattern = re.compile(r"[A-Za-z0-9_+/=.:@~%-]{" + str(SHORTEST) + ",}")
    assert View(text).runs == [found.span() for found in pattern.finditer(text)]


@settings(max_examples=300, deadline=None)
@given(_TEXTS, st.data())
def test_a_name_is_what_its_characters_say(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, min(3, len(text) - at)))
    start = at
    while start > 0 and at - start < 64 and re.match("[A-Za-z0-9_.-]", text[start - 1]):
        start -= 1
    rest = re.compile("[A-Za-z0-9_.-]{0,64}").match(text, at + length)
    assert rest is not None
    assert View(text).name(at, length) == (start, rest.end())


@st.composite
def cut(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    """A text, and places in it that are in order and apart."""
    text = draw(_TEXTS)
    ends = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    return text, list(zip(ends[::2], ends[1::2], strict=False))


def same(made: View, fresh: View) -> None:
    assert made.text == fresh.text
    assert made.runs == fresh.runs
    assert sorted(made.joined.split(b"\n")) == sorted(fresh.joined.split(b"\n"))
    for word in WORDS:
        assert list(made.places(word)) == list(fresh.places(word)), word


@settings(max_examples=400, deadline=None)
@given(cut())
def test_what_is_kept_after_blotting_out_is_as_if_looked_up_anew(
    given_: tuple[str, list[tuple[int, int]]],
) -> None:
    text, spans = given_
    seen = View(text)
    assert seen.runs is not None
    for word in WORDS:
        seen.places(word)
    same(seen.blotted(spans), View(view.blot(text, spans)))


@settings(max_examples=400, deadline=None)
@given(cut(), st.integers(1, 60))
def test_what_is_kept_after_marking_is_as_if_looked_up_anew(
    given_: tuple[str, list[tuple[int, int]]], length: int
) -> None:
    text, spans = given_
    seen = View(text)
    assert seen.runs is not None
    for word in WORDS:
        seen.places(word)
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], "[" * length]
        at = end
    made = "".join([*parts, text[at:]])
    same(seen.swapped(made, spans, [length] * len(spans)), View(made))


@example("a-b_c\n+d-e_f\r\n  g-h_i")
@settings(max_examples=300, deadline=None)
@given(_TEXTS)
def test_every_place_of_a_flat_text_is_the_same_sign(text: str) -> None:
    for flat in View(text).flats():
        assert [text[flat.place(at)] for at in range(len(flat.text))] == list(flat.text)
        for start, end in flat.runs:
            assert flat.last_break(start, end)
            assert end - start >= SHORTEST


@settings(max_examples=300, deadline=None)
@given(_TEXTS)
def test_the_other_reading_holds_nothing_that_its_runs_do_not_tell(text: str) -> None:
    seen = View(text)
    first = set(seen.flat.joined.split(b"\n")) if seen.flat is not None else set()
    signed = set(seen.joined_signed.split(b"\n"))
    for run in seen.flat_signed.joined.split(b"\n") if seen.flat_signed is not None else ():
        assert run in first | signed


@pytest.mark.parametrize("length", [0, 4000])
@settings(max_examples=200, deadline=None)
@given(text=_TEXTS)
def test_the_anchors_that_are_there_are_all_found(text: str, length: int) -> None:
    joined = (text + " " + "q" * length).encode("ascii", "replace")
    present = [anchor for anchor, _ in shapes._present(joined)]
    assert present == [anchor for anchor, _ in shapes._ANCHORS if anchor.encode() in joined]
