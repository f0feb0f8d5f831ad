"""Lines from records: nothing lost, nothing twice, from any committed position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.agentd.journal import STDERR_TAIL, LineReader, Position
from handoff.redaction import Redactor

Chunks = list[bytes]


def records(chunks: Chunks) -> list[tuple[int, int, bytes]]:
    """(offset, end, data) with a header of 10 bytes each."""
    made, at = [], 0
    for chunk in chunks:
        made.append((at, at + 10 + len(chunk), chunk))
        at += 10 + len(chunk)
    return made


@given(
    st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\x00", b"\n")), max_size=30),
    st.integers(0, 30),
)
def test_a_restart_anywhere_gives_the_same_lines(chunks: Chunks, stop: int) -> None:
    whole = b"".join(chunks).split(b"\n")[:-1]
    first = LineReader(Position(0), 1000)
    lines: list[bytes] = []
    rows = records(chunks)
    for row in rows[:stop]:
        lines += first.feed(*row)
    second = LineReader(first.position, 1000)
    for row in rows:
        if row[0] >= first.position.offset:
            lines += second.feed(*row)
    assert lines == whole


@given(st.lists(st.sampled_from([b"ab\n", b"c", b"\n", b"x" * 40, b"y" * 40 + b"\nz\n"])))
def test_a_long_line_is_dropped_and_told_and_the_next_one_is_whole(chunks: Chunks) -> None:
    reader = LineReader(Position(0), 30)
    lines: list[bytes] = []
    for row in records(chunks):
        lines += reader.feed(*row)
    whole = b"".join(chunks).split(b"\n")
    assert lines == [line for line in whole[:-1] if len(line) <= 30]
    if any(len(line) > 30 for line in whole):
        assert reader.oversized > 30


def test_other_records_move_the_position_only_between_lines() -> None:
    reader = LineReader(Position(0), 100)
    reader.feed(0, 20, b"half a line")
    reader.passed(30)
    assert reader.position == Position(0)
    reader.feed(30, 50, b" done\nnext")
    assert reader.position == Position(30, 6)


_ERRORS = "starting\nDB_PASSWORD=hunter2-\u00e4-Tq9 key ghp_" + "a1B2" * 9 + "\nfailed\n"


@pytest.mark.parametrize("cut", range(1, len(_ERRORS.encode())))
def test_a_secret_that_two_records_share_does_not_pass(cut: int) -> None:
    redact = Redactor(b"k").redact
    data = _ERRORS.encode()
    reader = LineReader(Position(0), 1000)
    kept = ""
    for part in (data[:cut], data[cut:]):
        kept = reader.errors.feed(part, kept, redact)
    assert kept == redact(_ERRORS)


def test_the_end_of_standard_error_is_bounded_and_goes_on_after_a_stop() -> None:
    redact = Redactor(b"k").redact
    reader = LineReader(Position(0), 1000)
    kept = ""
    for number in range(3000):
        kept = reader.errors.feed(b"line %d of it\n" % number, kept, redact)
    assert len(kept) == STDERR_TAIL
    assert kept.endswith("line 2998 of it\nline 2999 of it\n")
    after = LineReader(Position(0), 1000).errors.feed(b"the end\n", kept, redact)
    assert after == (kept + "the end\n")[-STDERR_TAIL:]
