"""What is looked up once must be what looking at the text itself would give."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handoff.redaction import shapes, view
from handoff.redaction.runs import SHORTEST, form
from handoff.redaction.view import WORDS, View

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
    assert View(text).name_start(at) == start
    assert View(text).name_end(at + length) == rest.end()


@settings(max_examples=400, deadline=None)
@given(_TEXTS, st.integers(0, 600), st.integers(0, 600), st.booleans())
def test_what_is_kept_in_a_window_is_as_if_looked_up_anew(
    text: str, low: int, high: int, long: bool
) -> None:
    text = text + " " * 600 if long else text
    low, high = sorted((low % (len(text) + 1), high % (len(text) + 1)))
    seen = View(text)
    assert seen.runs is not None
    assert seen.found is not None
    same(seen.window(low, high), View(text[low:high]))


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


# The two readings of a text without the line ends inside of words, as plainly as it can be
# said: `+` and `-` at the start of a line are signs only before a blank, or always.
_END = r"(?:(?<=[A-Za-z0-9_+/=.:@~-])\n|(?<=[A-Za-z0-9_+/=.:@~-])\r\n)[ \t]{0,64}"
_READINGS = [
    re.compile(_END + r"(?:[>|*#][ \t]{0,4}|[+-][ \t]{1,4})?(?=[A-Za-z0-9_+/=.~-])"),
    re.compile(_END + r"(?:[>|*+#-][ \t]{0,4})?(?=[A-Za-z0-9_+/=.~-])"),
]
_RUN = re.compile(r"[A-Za-z0-9_+/=.:@~%-]{" + str(SHORTEST) + ",}")


def slow_flats(text: str) -> list[tuple[str, list[int]]]:
    """Each reading, and the place in the text of each of its signs."""
    flats = []
    for reading in _READINGS:
        gone = {at for found in reading.finditer(text) for at in range(*found.span())}
        places = [at for at in range(len(text)) if at not in gone]
        flats.append(("".join(text[at] for at in places), places))
    return flats


@example("a-b_c\n+d-e_f\r\n  g-h_i")
@example("aaaaaaaaaaaa\nbbb")
@example("x\n+y\n-z\n+x\n+y\n-z\n+x\n+y\n-z\n+x\n+y\n-z")
@settings(max_examples=500, deadline=None)
@given(_TEXTS)
def test_all_runs_that_line_ends_break_are_known(text: str) -> None:
    broken = View(text).broken
    words = broken.joined.split(b"\n")[:-1] if broken is not None else []
    runs = {
        (flat.text[slice(*flat.run)], flat.place(flat.run[0])): flat
        for flat in (broken.of(words) if broken is not None else ())
    }
    for flat, places in slow_flats(text):
        for found in _RUN.finditer(flat):
            start, end = found.span()
            if places[end - 1] - places[start] == end - 1 - start:
                continue  # no line end in it
            assert form(found.group().encode()) in words
            there = runs[found.group(), places[start]]
            low = there.run[0]
            mapped = [there.place(low + at) for at in range(end - start)]
            assert mapped == places[start:end]
            ends = [at for at in range(1, end - start) if mapped[at] != mapped[at - 1] + 1]
            assert ends == [at for at in range(1, end - start) if there.breaks_at(low + at)]
            assert there.last_break(*there.run) == low + ends[-1]


@settings(max_examples=300, deadline=None)
@given(_TEXTS)
def test_every_place_of_a_text_without_gaps_is_the_same_sign(text: str) -> None:
    broken = View(text).broken
    if broken is None:
        assert all(flat == text for flat, _ in slow_flats(text))
        return
    whole = broken.whole()
    for flat in [*whole, *broken.of(broken.joined.split(b"\n"))]:
        assert [text[flat.place(at)] for at in range(len(flat.text))] == list(flat.text)
    assert {flat.text for flat in whole} == {flat for flat, _ in slow_flats(text)}


@pytest.mark.parametrize("length", [0, 4000])
@settings(max_examples=200, deadline=None)
@given(text=_TEXTS)
def test_the_anchors_that_are_there_are_all_found(text: str, length: int) -> None:
    joined = form((text + " " + "q" * length).encode("ascii", "replace"))
    present = [anchor for anchor, _, _ in shapes._present(joined)]
    expected = [anchor for anchor, _ in shapes._ANCHORS if form(anchor.encode()) in joined]
    assert present == expected


@settings(max_examples=300, deadline=None)
@given(_TEXTS)
def test_whatever_a_shape_matches_is_suspected_by_its_form(text: str) -> None:
    forms, anchors = shapes._suspects(View(text).joined)
    for run in View(text).runs:
        word = text[slice(*run)]
        for anchor, shape in shapes._ANCHORS:
            if any(shape.pattern.match(word, at) for at in shapes.occurrences(word, anchor)):
                assert form(word.encode()) in forms
                assert (anchor, shape) in anchors
