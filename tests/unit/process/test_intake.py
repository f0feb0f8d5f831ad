from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.process.intake import Stderr, read_some


class Journal:
    """As much of a writer as standard error needs."""

    def __init__(self) -> None:
        self.acked = 0
        self.end = 0
        self.records: list[bytes] = []

    def append(self, kind: str, at_ms: int, data: bytes) -> int:
        assert kind == "stderr"
        self.records.append(data)
        self.end += 20 + len(data)
        return self.end

    @property
    def text(self) -> bytes:
        return b"".join(self.records)


def make(rate: int, unacked: int) -> tuple[Journal, Stderr]:
    journal = Journal()
    return journal, Stderr(journal, rate, unacked)  # type: ignore[arg-type]


def test_little_is_kept_as_it_is():
    journal, stderr = make(1000, 10_000)
    stderr.take(b"warning\n", 1.0, 0)
    stderr.mark(0)
    assert journal.records == [b"warning\n"]


def test_a_flood_is_cut_once_and_counted():
    journal, stderr = make(1000, 100_000)
    for n in range(100):
        stderr.take(b"x" * 100, 1.0 + n / 1000, 0)
    stderr.mark(0)
    kept = journal.text.count(b"x")
    assert 1000 <= kept <= 1200
    assert journal.text.count(b"cut here") == 1
    assert f"{10_000 - kept} bytes of stderr were cut".encode() in journal.text


def test_after_a_pause_it_goes_on_and_the_marker_stands_between():
    journal, stderr = make(1000, 100_000)
    stderr.take(b"a" * 1500, 1.0, 0)
    stderr.take(b"b" * 100, 1.05, 0)
    stderr.take(b"c" * 100, 3.0, 0)
    assert re.fullmatch(rb"a{1000}\n\[handoff: 600 bytes .*\]\nc{100}", journal.text)


def test_unacknowledged_it_stops_and_acknowledged_it_goes_on():
    journal, stderr = make(1 << 30, 1000)
    stderr.take(b"a" * 800, 1.0, 0)
    stderr.take(b"b" * 800, 2.0, 0)
    stderr.take(b"c" * 800, 3.0, 0)
    assert journal.text == b"a" * 800 + b"b" * 200
    journal.acked = journal.end
    stderr.take(b"d" * 800, 4.0, 0)
    assert b"1400 bytes" in journal.text and journal.text.endswith(b"d" * 800)


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 3000), st.booleans()), max_size=40))
def test_every_byte_is_kept_or_counted(steps: list[tuple[float, int, bool]]):
    journal, stderr = make(2000, 5000)
    now, given_bytes = 1.0, 0
    for pause, size, ack in steps:
        now += pause
        if ack:
            journal.acked = journal.end
        stderr.take(b"x" * size, now, 0)
        given_bytes += size
    stderr.mark(0)
    cut = sum(int(found) for found in re.findall(rb"handoff: (\d+) bytes", journal.text))
    kept = len(re.sub(rb"\n\[handoff: [^\]]*\]\n", b"", journal.text))
    assert kept + cut == given_bytes


def test_reading(tmp_path: Path):
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    assert read_some(reader) is None
    os.write(writer, b"x")
    assert read_some(reader) == b"x"
    os.close(writer)
    assert read_some(reader) == b""
    os.close(reader)
    folder = os.open(tmp_path, os.O_RDONLY)
    assert read_some(folder) == b""  # an error of the descriptor: there is no more
    os.close(folder)


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_exactly_at_the_bound(size: int):
    journal, stderr = make(1000, 1000)
    stderr.take(b"x" * size, 1.0, 0)
    stderr.mark(0)
    assert journal.text == b"x" * size
