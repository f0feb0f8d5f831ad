from __future__ import annotations

import pytest

from handoff.cli.render import clip


def test_the_end_can_not_be_pushed_out_of_sight_by_nothing() -> None:
    text = "echo building" + " " * 3000 + "\n" * 400 + "touch deceived-by-tail"
    assert clip(text, 10, 6) == (
        ["echo building[… 3000 blanks …]", "[… 399 blank lines …]", "touch deceived-by-tail"],
        True,
    )


@pytest.mark.parametrize("nothing", ["\t", "\u00a0", "\u3000", "\u2800", " \u2003"])
def test_whatever_looks_like_nothing_is_counted(nothing: str) -> None:
    shown, short = clip(f"a{nothing * 60}b\n{nothing}\n\n{nothing}{nothing}\nc\n", 10, 6)
    assert short
    assert shown == [f"a[… {len(nothing) * 60} blanks …]b", "[… 3 blank lines …]", "c"]


def test_lines_left_out_are_those_of_the_text() -> None:
    shown, _ = clip("\n".join(["x"] * 30 + [""] * 50 + ["y"] * 30), 10, 6)
    assert shown[10] == "[… 94 lines left out …]"
    assert len(shown) == 17


def test_a_text_can_not_pretend_to_have_gaps() -> None:
    assert clip("a\n[… 3 blank lines …]\nb", 10, 6) == (
        ["a", "⟨U+005B⟩… 3 blank lines …]", "b"],
        False,
    )
