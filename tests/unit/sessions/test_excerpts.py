from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from handoff.sessions import excerpts
from handoff.sessions.host_store import Message


def said(*texts: str, role: str = "assistant") -> Iterator[Message]:
    return (Message(str(n), "s", role, text, n) for n, text in enumerate(texts, 1))


def shown(found: list[excerpts.Excerpt]) -> str:
    return "\n".join(one.text for one in found)


def test_a_line_that_names_something_is_found_in_a_sea_of_noise() -> None:
    noise = "it went on and nothing happened\n" * 50
    texts = [noise] * 500
    texts[250] = noise + "I decided to use src/lexer/part_7.py because it is faster.\n" + noise
    found = excerpts.pick(said(*texts), 4096, 10)
    assert [one.message.id for one in found] == ["251"]
    assert shown(found) == "I decided to use src/lexer/part_7.py because it is faster."


def test_what_was_settled_comes_before_what_was_only_named() -> None:
    many = [f"GET /assets/page_{n}.js 200" for n in range(400)]
    many[123] = "E4711: src/store.py failed with exit code 137"
    assert "E4711" in shown(excerpts.pick(said(*many), 700, 12))


def test_the_same_again_takes_no_room() -> None:
    found = excerpts.pick(said(*["reading src/store.py"] * 300), 4096, 100)
    assert len(found) == 1


def test_no_part_of_a_session_takes_all_the_room() -> None:
    early = [f"error in src/early/part_{n}.py" for n in range(1000)]
    late = ["nothing here"] * 999 + ["src/late/part_1.py"]
    assert "late" in shown(excerpts.pick(said(*early, *late), 1500, 100))


def test_what_is_shown_elsewhere_is_left_out() -> None:
    assert excerpts.pick(said("see a/b.py"), 4096, 10, without={"1"}) == []


@given(st.lists(st.text(max_size=400), max_size=30), st.integers(0, 2000), st.integers(0, 9))
def test_the_bounds_hold_for_whatever_was_said(texts: list[str], limit: int, most: int) -> None:
    found = excerpts.pick(said(*texts), limit, most)
    assert len(found) <= most
    assert sum(len(one.text.encode()) for one in found) <= limit
    ids = [int(one.message.id) for one in found]
    assert ids == sorted(set(ids))


def test_many_long_lines_are_bounded() -> None:
    line = "x" * 300_000 + " src/a.py"
    found = excerpts.pick(said(*["y/z " + line] * 200), 24 * 1024, 100)
    assert all(len(one.text.encode()) <= excerpts.LINE for one in found)
