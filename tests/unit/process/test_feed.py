from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from handoff.process import feed
from handoff.process.feed import Feed


class Pipe:
    """A feed into a pipe whose other end is read on demand."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(self.reader, False)
        self.written: list[int] = []
        self.told: list[tuple[int, str]] = []
        self.feed = Feed(writer, self.written.append)

    def offer(self, number: int, data: bytes) -> None:
        self.feed.offer(number, data, lambda problem: self.told.append((number, problem)))

    def take(self, most: int = 1 << 20) -> bytes:
        try:
            return os.read(self.reader, most)
        except BlockingIOError:
            return b""

    def take_all(self) -> bytes:
        found = b""
        while True:
            self.feed.push()
            data = self.take()
            if not data:
                return found
            found += data

    def close(self) -> None:
        self.feed.close()
        os.close(self.reader)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    found = Pipe()
    yield found
    found.close()


def test_in_order_and_each_once(pipe: Pipe):
    pipe.offer(1, b"a")
    pipe.offer(1, b"again")
    pipe.offer(3, b"gap")
    pipe.offer(2, b"b")
    pipe.offer(0, b"never")
    assert pipe.take() == b"ab"
    assert pipe.told == [(1, ""), (1, ""), (3, "gap"), (2, ""), (0, "")]
    assert pipe.written == [1, 2] and pipe.feed.written == 2


def test_what_the_pipe_does_not_take_waits(pipe: Pipe):
    big = os.urandom(1 << 18)
    pipe.offer(1, big)
    pipe.offer(2, b"small")
    pipe.offer(1, b"other words, the same number")
    assert pipe.feed.waiting and pipe.told == [] and pipe.written == []
    assert pipe.take_all() == big + b"small"
    assert pipe.told == [(1, ""), (1, ""), (2, "")] and not pipe.feed.waiting


def test_a_reader_that_is_gone(pipe: Pipe):
    pipe.offer(1, b"x" * (1 << 18))
    pipe.offer(2, b"y")
    os.close(pipe.reader)
    pipe.feed.push()
    assert pipe.told == [(1, "gone"), (2, "gone")]
    pipe.offer(3, b"z")
    pipe.offer(1, b"z")
    assert pipe.told[2:] == [(3, "gap"), (1, "gone")] and pipe.written == []
    pipe.reader = os.open("/dev/null", os.O_RDONLY)


def test_too_much_that_waits_is_refused(pipe: Pipe, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(feed, "MAX_WAITING", 300_000)
    pipe.offer(1, b"x" * 299_999)
    pipe.offer(2, b"x" * 10)
    assert pipe.told == [(2, "busy")]
    assert len(pipe.take_all()) == 299_999
    pipe.offer(2, b"x" * 400_000)  # one alone may be longer
    assert len(pipe.take_all()) == 400_000 and pipe.written == [1, 2]


class Feeding(RuleBasedStateMachine):
    """Offers of any number and size, reads of any size: a prefix of the truth, once."""

    def __init__(self) -> None:
        super().__init__()
        self.pipe = Pipe()
        self.accepted: list[bytes] = []
        self.seen = b""

    @rule(step=st.integers(-2, 2), size=st.integers(0, 70_000))
    def offer(self, step: int, size: int) -> None:
        number = len(self.accepted) + step
        data = bytes([65 + number % 26]) * size
        if step == 1:
            self.accepted.append(data)
        self.pipe.offer(number, data)
        if step == 2:
            assert self.pipe.told[-1] == (number, "gap")

    @rule(most=st.integers(1, 100_000))
    def read(self, most: int) -> None:
        self.seen += self.pipe.take(most)
        self.pipe.feed.push()

    @invariant()
    def a_prefix_of_what_was_accepted(self) -> None:
        assert b"".join(self.accepted).startswith(self.seen)
        assert self.pipe.written == list(range(1, self.pipe.feed.written + 1))

    def teardown(self) -> None:
        self.seen += self.pipe.take_all()
        assert self.seen == b"".join(self.accepted)
        assert self.pipe.feed.written == len(self.accepted)
        self.pipe.close()


TestFeeding = Feeding.TestCase
