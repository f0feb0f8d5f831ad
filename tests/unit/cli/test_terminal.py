from __future__ import annotations

import json
import subprocess
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.cli import terminal


@given(st.text(st.characters()))
def test_safe_leaves_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = terminal.safe(text)
    for char in shown:
        assert char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs"), repr(char)
        assert unicodedata.bidirectional(char) not in (
            "LRE",
            "RLE",
            "LRO",
            "RLO",
            "PDF",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        )
    assert "\n" not in terminal.safe_line(text)
    shown.encode()


@given(st.text(st.characters(exclude_categories=["C", "Z"])))
def test_safe_keeps_ordinary_text(text: str) -> None:
    fillers = "\xad\u115f\u1160\u3164\uffa0"
    if not any(char in fillers for char in text):
        assert terminal.safe(text) == text


def test_safe_says_what_was_there() -> None:
    assert (
        terminal.safe("a\x1b[2Jb\r\u202ec\u200bd\udcffe")
        == "a⟨U+001B⟩[2Jb⟨U+000D⟩⟨U+202E⟩c⟨U+200B⟩d⟨0xFF⟩e"
    )
    assert terminal.safe("\U000e0041") == "⟨U+E0041⟩"
    assert terminal.safe_line("a\tb\nc") == "a⟨U+0009⟩b⟨U+000A⟩c"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_safe_is_the_same_json(text: str) -> None:
    line = terminal.json_safe(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(line) == {"a": text}
    assert terminal.safe(line) == line


def test_width_counts_columns() -> None:
    assert terminal.width("abc") == 3
    assert terminal.width("日本") == 4
    assert terminal.width("e\u0301") == 1
    assert terminal.cut("日本語", 5) == "日本…"
    assert terminal.cut("abc", 3) == "abc"
    assert terminal.pad("日", 4) == "日  "


@given(st.text(st.characters(exclude_categories=["C", "M"]), max_size=40), st.integers(1, 30))
def test_cut_keeps_to_the_width(text: str, columns: int) -> None:
    assert terminal.width(terminal.cut(text, columns)) <= columns


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")))
def test_a_quoted_word_is_read_back_by_bash(word: str) -> None:
    quoted = terminal.shell_quote(word)
    assert terminal.safe_line(quoted) == quoted
    done = subprocess.run(
        ["bash", "-c", f"printf %s {quoted}"],
        capture_output=True,
        timeout=10,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.decode() == word


@given(st.integers(0, 4_000_000_000_000))
def test_epoch_reads_what_the_clock_writes(ms: int) -> None:
    from handoff.clock import iso

    assert terminal.epoch(iso(ms)) == pytest.approx(ms / 1000)


def test_local_time_has_its_date_on_another_day() -> None:
    now = time.mktime((2026, 11, 30, 12, 0, 0, 0, 0, -1))
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(now - 60))
    assert terminal.local_time(stamp, now) == "11:59:00"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(now - 86400))
    assert terminal.local_time(stamp, now) == "2026-11-29 12:00"
    assert terminal.local_time("in\x1b an hour") == "in⟨U+001B⟩ an hour"
    assert terminal.ago("soon") == "?"


def test_span_and_size() -> None:
    assert [terminal.span(s) for s in (0, 59, 61, 3661, 90000)] == [
        "0s", "59s", "1m 1s", "1h 1m", "1d 1h",
    ]  # fmt: skip
    assert [terminal.size(n) for n in (0, 1023, 1536, 24 << 20, 1 << 42)] == [
        "0 B", "1023 B", "1.5 KiB", "24.0 MiB", "4096.0 GiB",
    ]  # fmt: skip


def test_table_fits_and_lines_up() -> None:
    rows = [["日本", "x" * 60], ["a", "b"]]
    lines = terminal.table(("N", "TEXT"), rows, limit=40).split("\n")
    assert lines[0] == "N     TEXT"
    assert lines[1] == "日本  " + "x" * 33 + "…"
    assert lines[2] == "a     b"


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tty:
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert terminal.colour("x", "red", stream=Tty()) == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.colour("x", "red", stream=Tty()) == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert terminal.colour("x", "red", stream=Tty()) == "x"
    assert terminal.colour("x", "red", stream=object()) == "x"
