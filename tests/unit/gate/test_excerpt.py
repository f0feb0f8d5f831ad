from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.gate.contract import Examined, Verdict
from handoff.gate.excerpt import LIMIT, excerpt, excerpt_of, visible

LEFT_OUT = re.compile(r"\n\[… (\d+) characters, (\d+) lines left out …\]\n")


def test_a_short_text_stays_as_it_is() -> None:
    text = "make test\n\nexit 3\n    indented, kept\n"
    short = excerpt(text)
    assert (short.text, short.short, short.characters, short.lines) == (text, False, len(text), 4)


def test_nothing() -> None:
    assert excerpt("") == excerpt("", 80)
    assert (excerpt("").text, excerpt("").lines, excerpt("x").lines, excerpt("x\n").lines) == (
        "",
        0,
        1,
        1,
    )


def test_a_tail_pushed_away_by_blank_lines_is_shown() -> None:
    short = excerpt("ls" + "\n" * 5000 + "touch deceived-by-tail")
    assert short.text == "ls\n[… 4999 blank lines …]\ntouch deceived-by-tail"
    assert short.short
    assert short.characters == 2 + 5000 + 22


@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", "\u3000", "\u2800", "\u2003"])
def test_a_tail_pushed_away_by_blanks_is_shown(blank: str) -> None:
    short = excerpt("ls" + blank * 5000 + "; touch deceived")
    assert short.text == "ls[… 5000 blanks …]; touch deceived"
    assert short.short


def test_blank_lines_that_hold_blanks_are_blank_lines() -> None:
    short = excerpt("a\n" + "   \t \n" * 40 + "b\r\n\r\n \r\nc")
    assert short.text == "a\n[… 40 blank lines …]\nb\n[… 2 blank lines …]\nc"


def test_a_tail_pushed_away_by_other_text_is_shown_and_the_rest_counted() -> None:
    text = "ls\n" + "# filler\n" * 1000 + "touch deceived"
    short = excerpt(text)
    assert len(short.text) <= LIMIT
    assert short.text.startswith("ls\n# filler")
    assert short.text.endswith("\ntouch deceived")
    found = LEFT_OUT.search(short.text)
    assert found is not None
    head, tail = LEFT_OUT.split(short.text)[0], LEFT_OUT.split(short.text)[-1]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert int(found[1]) == len(text) - len(head) - len(tail)
    assert int(found[2]) == text[len(head) : len(text) - len(tail)].count("\n")


def test_blanks_and_filler_together() -> None:
    text = "ls " + "x" * 2000 + " " * 9000 + "\n" * 9000 + "rm it"
    short = excerpt(text)
    assert short.text.endswith("[… 9000 blanks …]\n[… 8999 blank lines …]\nrm it")


def test_a_window_that_starts_in_blanks_counts_them_whole() -> None:
    text = "a" * 1000 + " " * 9000 + "b" * 20
    assert excerpt(text).text.endswith("[… 9000 blanks …]" + "b" * 20)


def test_what_is_not_seen_becomes_visible() -> None:
    short = excerpt("a\x1b[2Kb\u202ec\u200bd\re\x07f\u2066g\ufeffh\x85i\u2028j\x00")
    assert short.text == (
        "a⟨U+001B⟩[2Kb⟨U+202E⟩c⟨U+200B⟩d⟨U+000D⟩e⟨U+0007⟩f⟨U+2066⟩g⟨U+FEFF⟩h⟨U+0085⟩i⟨U+2028⟩j⟨U+0000⟩"
    )
    assert visible("a\u202eb\r\nc\td") == "a⟨U+202E⟩b\nc\td"


def test_half_a_surrogate_pair_can_be_printed() -> None:
    assert excerpt("a\ud800b").text == "a⟨U+D800⟩b"
    excerpt("a\ud800b").text.encode()


def test_marks_can_not_be_forged() -> None:
    forged = "ls [… 3 blanks …] ⟨U+0041⟩ x"
    shown = excerpt(forged).text
    assert "[…" not in shown
    assert shown == "ls ⟨U+005B⟩… 3 blanks …] ⟨U+27E8⟩U+0041⟩ x"


def test_a_cut_never_splits_what_is_seen_as_one_character() -> None:
    for cluster in ("e\u0301", "👩\u200d👩\u200d👧", "👍🏽", "🇩🇪", "❤\ufe0f", "க\u0bcd"):
        for shift in range(12):
            text = "x" * shift + cluster * 400
            short = excerpt(text)
            head, tail = LEFT_OUT.split(short.text)[0], LEFT_OUT.split(short.text)[-1]
            assert head == "x" * shift + cluster * ((len(head) - shift) // len(cluster))
            assert tail == cluster * (len(tail) // len(cluster))


def test_joiners_inside_other_scripts_stay_and_elsewhere_are_seen() -> None:
    assert excerpt("می\u200cخواهم").text == "می\u200cخواهم"
    assert excerpt("r\u200dm").text == "r⟨U+200D⟩m"


@pytest.mark.parametrize("piece", ["x", "\n", " ", "\x1b", " \n", "\u0301", "[…", "a     ", "\t"])
def test_a_large_text_takes_linear_time(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    start = time.process_time()
    short = excerpt(text)
    assert time.process_time() - start < 5
    assert len(short.text) <= LIMIT


def test_steps_do_not_matter() -> None:
    for shift in range(4080, 4100):
        text = "x" * shift + "م\u200cخ" + "y" * 5000
        assert "⟨" not in excerpt(text, 20_000).text
        for piece, shown in (
            ("[…", "⟨U+005B⟩…"),
            ("👩\u200d👧", "👩\u200d👧"),
            (" " * 99, "[… 99 blanks …]"),
        ):
            text = "x" * shift + piece + "y" * 5000
            assert excerpt(text, 20_000).text == "x" * shift + shown + "y" * 5000
            assert excerpt(text).text.endswith("y" * 200)


@settings(max_examples=400, deadline=None)
@given(
    text=st.text(
        alphabet=st.one_of(st.sampled_from("ab \n\t\r\u0301\u200d\u202e[…⟨👍🏽🇩"), st.characters()),
        max_size=400,
    ),
    limit=st.integers(80, 300),
)
def test_head_and_tail_are_the_text_s_own(text: str, limit: int) -> None:
    short = excerpt(text, limit)
    assert len(short.text) <= limit
    assert short.characters == len(text)
    found = list(LEFT_OUT.finditer(short.text))
    assert len(found) <= 1
    if not short.short:
        assert not found
    if found:
        head, tail = short.text[: found[0].start()], short.text[found[0].end() :]
        assert head
        source = _source(head)
        assert source.match(text)
        assert re.search(_source(tail).pattern + r"\Z", text, re.DOTALL)


def _source(shown: str) -> re.Pattern[str]:
    """A pattern for the texts that are printed like that."""
    out = []
    for part in re.split(r"(\n?\[… \d+ blank(?: line)?s …\]\n?|⟨U\+[0-9A-F]+⟩|\n| )", shown):
        if part.endswith(("blank lines …]\n",)):
            out.append(r"(?:\s*\n)+?")
        elif part.endswith("blanks …]"):
            out.append(r"[\s\u2800\u3164\u115f\u1160\uffa0]+?")
        elif part.startswith("⟨U+"):
            out.append(re.escape(chr(int(part[3:-1], 16))))
        elif part == "\n":
            out.append(r"\r?\n")
        elif part == " ":
            out.append(r"[ \t\u00a0]")
        else:
            out.append(re.escape(part))
    return re.compile("".join(out), re.DOTALL)


def test_a_request_shows_its_command_first() -> None:
    verdict = Verdict(decision="ask", source="policy", why="x")
    base = {"targets": (), "files": (), "fingerprint": "", "reusable": False, "verdict": verdict}
    command = Examined(text="T", command="C", diff="D", **base)
    assert excerpt_of(command).text == "C"
    assert excerpt_of(Examined(text="T", command=None, diff="D", **base)).text == "D"
    assert excerpt_of(Examined(text="T", command=None, diff="", **base)).text == "T"
