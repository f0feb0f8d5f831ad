"""A search finds what holds the text: no more, no less, whatever index there is."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.sessions import catalogue
from handoff.sessions.catalogue import Entry, Filter

# A document has no NUL in it; what is asked for may have.
_SIGNS = st.one_of(
    st.sampled_from("abAB \n\"'*-:ßİ"),
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"),
)
_TEXT = st.text(alphabet=_SIGNS, max_size=12)
_QUERY = st.text(alphabet=st.one_of(_SIGNS, st.just("\0")), min_size=1, max_size=12)


def filled(texts: list[str], *, trigrams: bool = True) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    catalogue._create(db)
    if not trigrams:
        with contextlib.suppress(sqlite3.OperationalError):
            db.execute("DROP TABLE found")
    for number, text in enumerate(texts):
        made = {"created_at": number // 2, "source": {"session_id": f"s{number % 3}"}}
        catalogue._insert(db, Entry("p", f"h{number:03}", made, text))
    return db


def all_of(db: sqlite3.Connection, wanted: Filter, limit: int) -> tuple[list[str], set[int]]:
    """The ids on all pages, and what the pages said about their number."""
    names, totals, after = [], set(), None
    while True:
        rows, total = catalogue.page(db, wanted, after, limit)
        totals.add(total)
        names += [row.ref.rpartition("/")[2] for row, _ in rows]
        if len(rows) < limit:
            return names, totals
        after = rows[-1][1]


@settings(max_examples=200, deadline=None)
@given(st.lists(_TEXT, max_size=8), _QUERY, st.integers(1, 4), st.booleans(), st.booleans())
def test_a_search_finds_what_holds_the_text(
    texts: list[str], query: str, limit: int, trigrams: bool, one: bool
) -> None:
    held = query.replace("\0", "")
    texts = [f"{text}{held if number % 3 == 0 else ''}{text}" for number, text in enumerate(texts)]
    wanted = Filter(session_id="s0" if one else "", query=query)
    with contextlib.closing(filled(texts, trigrams=trigrams)) as db:
        names, totals = all_of(db, wanted, limit)
    expected = [
        (-(number // 2), f"h{number:03}")
        for number, text in enumerate(texts)
        if catalogue.fold(query) in catalogue.fold(f"\n{text}") and (not one or number % 3 == 0)
    ]
    assert names == [name for _, name in sorted(expected)]
    assert totals == {len(expected)}


@pytest.mark.parametrize("wanted", [Filter(), Filter(query="abc"), Filter("p", query="a")])
def test_past_the_last_page_the_number_is_still_told(wanted: Filter) -> None:
    with contextlib.closing(filled(["abc", "abcd", "abcde"])) as db:
        assert catalogue.page(db, wanted, (-1, ""), 5) == ([], 3)
        assert catalogue.page(db, wanted._replace(query="zzz"), None, 5) == ([], 0)
