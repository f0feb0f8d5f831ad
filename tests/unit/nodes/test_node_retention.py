"""What a node forgets of finished commands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from handoff.nodes.node import retention
from handoff.nodes.node.retention import ALWAYS, BYTES, COMMANDS, JOBS, Kept, surplus

NOW = 10**12


def test_count_age_and_bytes_are_bounded() -> None:
    jobs = [Kept(f"j{at:04d}", True, NOW - at, 1) for at in range(JOBS + 5)]
    assert surplus(jobs, NOW) == [f"j{at:04d}" for at in range(JOBS + 4, JOBS - 1, -1)]
    plain = [Kept(f"c{at:05d}", False, NOW - at, 1) for at in range(COMMANDS + 2)]
    assert surplus([*plain, *jobs[:3]], NOW) == [f"c{COMMANDS + 1:05d}", f"c{COMMANDS:05d}"]
    old = [Kept(f"o{at:03d}", True, at, 1) for at in range(ALWAYS + 2)]
    assert surplus(old, NOW) == ["o000", "o001"]
    hour = [Kept(f"h{at:03d}", False, NOW - retention.KEEP_MS - 1, 1) for at in range(ALWAYS + 1)]
    assert len(surplus(hour, NOW)) == 1
    large = [
        Kept("job-new", True, NOW, BYTES // 2),
        Kept("job-old", True, NOW - 9, BYTES // 2),
        Kept("command", False, NOW, 1),
    ]
    assert surplus(large, NOW) == ["command"]


@given(
    st.lists(
        st.builds(
            Kept,
            st.text("ab", min_size=8, max_size=8),
            st.booleans(),
            st.integers(0, 2 * NOW),
            st.integers(0, BYTES),
        ),
        unique_by=lambda one: one.name,
        max_size=60,
    ),
    st.integers(0, 2 * NOW),
)
def test_whatever_the_clock_says_the_bytes_are_bounded(kept: list[Kept], now: int) -> None:
    gone = set(surplus(kept, now))
    left = [one for one in kept if one.name not in gone]
    assert sum(one.size for one in left) <= BYTES
    assert surplus(left, now) == []
