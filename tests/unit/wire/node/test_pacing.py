from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.wire.node.frames import PIECE_LIMIT
from handoff.wire.node.pacing import LEAST, MOST, START, Pace

KIB = 1024


class Path:
    """A path of so many bytes a second and so much delay, with a queue that never drops."""

    def __init__(self, rate: float, delay: float) -> None:
        self.rate = rate
        self.delay = delay
        self.now = 0.0
        self.free_at = 0.0
        self.acks: deque[tuple[float, int]] = deque()
        self.pace = Pace()
        self.total = 0
        self.worst_queue = 0.0

    def send_while_open(self) -> None:
        while self.pace.open:
            size = self.pace.piece
            ack = self.pace.wants_ack(size)
            self.pace.sent(size, ack, self.now)
            self.total += size
            self.free_at = max(self.free_at, self.now) + size / self.rate
            if ack:
                self.acks.append((self.free_at + self.delay, self.total))

    def run(self, seconds: float, settle: float) -> int:
        """Bytes sent from ``settle`` on; remembers the longest queue in that time."""
        end = self.now + seconds
        from_there = 0
        while self.now < end:
            self.send_while_open()
            if self.now >= settle:
                self.worst_queue = max(self.worst_queue, self.free_at - self.now)
            else:
                from_there = self.total
            assert self.acks, "a full pace waits for an ack that will come"
            self.now, total = self.acks.popleft()
            assert self.pace.acked(total, self.now)
        return self.total - from_there


def test_a_fast_path_is_filled() -> None:
    path = Path(rate=400 * 1024 * KIB, delay=0.001)
    path.run(2.0, 1.0)
    assert path.pace.bound == MOST
    assert path.pace.piece == PIECE_LIMIT


@pytest.mark.parametrize("rate", [200 * KIB, 1024 * KIB, 4096 * KIB])
def test_a_slow_path_is_filled_and_its_queue_kept_short(rate: int) -> None:
    path = Path(rate=rate, delay=0.02)
    sent = path.run(60.0, 20.0)
    assert sent >= 0.9 * rate * 38
    assert path.worst_queue < 0.6, "what is urgent would wait that long"


def test_a_long_path_is_filled() -> None:
    path = Path(rate=20 * 1024 * KIB, delay=0.15)
    assert path.run(30.0, 15.0) >= 0.9 * path.rate * 14


def test_a_path_that_becomes_slow_is_noticed() -> None:
    path = Path(rate=100 * 1024 * KIB, delay=0.002)
    path.run(2.0, 0.0)
    path.rate = 200 * KIB
    path.run(60.0, path.now + 70)
    path.worst_queue = 0.0
    path.run(10.0, path.now)
    assert path.worst_queue < 0.7


def test_it_never_waits_for_an_ack_that_nobody_was_asked_for() -> None:
    """A bound that shrank below what is under way, with no mark among it."""
    pace = Pace()
    pace.sent(START // 4 - 1, False, 0.0)
    pace.bound = LEAST
    assert pace.open
    assert pace.wants_ack(1)


@given(st.lists(st.tuples(st.integers(1, 300_000), st.floats(0, 2)), max_size=60))
def test_it_always_comes_to_rest_and_goes_on(steps: list[tuple[int, float]]) -> None:
    pace, now, sent = Pace(), 0.0, 0
    marks: deque[int] = deque()
    for size, seconds in steps:
        now += seconds
        if pace.open:
            ack = pace.wants_ack(size)
            pace.sent(size, ack, now)
            sent += size
            if ack:
                marks.append(sent)
        elif marks:
            assert pace.acked(marks.popleft(), now)
        assert pace.open or marks
        assert LEAST <= pace.bound <= MOST
        assert 8 * KIB <= pace.piece <= PIECE_LIMIT


def test_acks_of_what_was_not_sent_are_told() -> None:
    pace = Pace()
    pace.sent(100, True, 0.0)
    assert not pace.acked(101, 1.0)
    assert not pace.acked(-1, 1.0)
    assert pace.acked(100, 1.0)
    assert not pace.acked(99, 1.0)
    assert pace.on_the_way == 0


def test_a_clock_that_stands_still_does_no_harm() -> None:
    pace = Pace()
    for _ in range(100):
        pace.sent(START, True, 5.0)
        assert pace.acked(pace._sent, 5.0)
    assert pace.bound >= START
