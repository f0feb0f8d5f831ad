"""Output kept within a limit: exact counts, its start and its end, each byte in its place."""

from __future__ import annotations

import os
import pathlib
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.nodes.node.spill import HEAD, LEAST, Spill, read_spill


def pattern(start: int, count: int) -> bytes:
    """Bytes that tell where they are from."""
    return b"".join(b"%07d\n" % n for n in range(start // 8, (start + count) // 8 + 1))[
        start % 8 : start % 8 + count
    ]


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 3 * LEAST),
    st.lists(st.integers(0, 4 * LEAST), max_size=12),
    st.integers(0, 10 * LEAST),
    st.integers(0, 2 * LEAST),
)
def test_what_is_read_stood_there(limit: int, writes: list[int], offset: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out")
        spill = Spill(path, limit)
        for size in writes:
            spill.write(pattern(spill.total, size))
        total = sum(writes)
        assert spill.total == total
        at, data = read_spill(path, limit, total, offset, count)
        assert at >= min(offset, total)
        assert data == pattern(at, len(data))
        kept = spill.limit - spill.limit // HEAD
        if offset <= total and (offset < spill.limit // HEAD or offset >= total - kept):
            assert at == offset
        if at < total and count:
            assert data
        spill.close()
        assert not os.path.exists(path) or os.path.getsize(path) <= spill.limit


def test_a_disk_that_takes_nothing_stops_nobody(tmp_path: pathlib.Path) -> None:
    spill = Spill(str(tmp_path / "no" / "such"), 100_000)
    spill.write(b"x" * 5000)
    assert (spill.total, spill.lost, spill.error) == (5000, 5000, "ENOENT")
    assert read_spill(str(tmp_path / "none"), 100_000, 5000, 10, 10) == (10, bytes(10))
