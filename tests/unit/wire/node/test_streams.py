from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.wire.node.frames import Piece, Refused
from handoff.wire.node.streams import HIGH_WATER, LOW_WATER, Receiving, Sending, Turns


@given(
    parts=st.lists(st.binary(max_size=50), max_size=20),
    most=st.lists(st.integers(1, 60), min_size=1, max_size=10),
    grants=st.lists(st.integers(0, 80), max_size=30),
)
def test_bytes_leave_in_order_within_credit(
    parts: list[bytes], most: list[int], grants: list[int]
) -> None:
    sending = Sending(1, "stdout", 7, 7)
    for part in parts:
        sending.add(part)
    sending.ended = True
    whole, got, ends = b"".join(parts), b"", 0
    receiving = Receiving(1, "stdout", 7, 7, 1)
    for at, grant in enumerate([*grants, 10_000, 10_000]):
        sending.upto = receiving.upto = sending.upto + grant
        while sending.ready:
            piece = sending.take(most[at % len(most)])
            receiving.take(piece)
            got += bytes(piece.data)
            ends += piece.end
            assert whole.startswith(got)
            assert len(got) + 7 == sending.offset <= sending.upto
    assert got == whole
    assert ends == 1
    assert sending.over
    assert receiving.ended


def test_water_marks_speak_once() -> None:
    sending = Sending(1, "data", 0, 1 << 40)
    sending.add(bytes(HIGH_WATER))
    assert not sending.full
    sending.add(b"x")
    assert sending.full
    while sending.pending > LOW_WATER:
        assert not sending.drained()
        sending.take(64 * 1024)
    assert sending.drained()
    assert not sending.drained()


def test_a_stopped_stream_holds_nothing() -> None:
    sending = Sending(1, "data", 0, 10)
    sending.add(bytes(100))
    sending.take(5)
    sending.stop()
    sending.add(bytes(100))
    assert (sending.pending, sending.ready, sending.over) == (0, False, True)


@pytest.mark.parametrize(
    "piece",
    [
        Piece(1, "data", 1, b"x"),
        Piece(1, "data", 0, b"x" * 11),
        Piece(1, "data", 11, b""),
    ],
)
def test_a_receiver_takes_what_it_granted_and_where_it_stands(piece: Piece) -> None:
    receiving = Receiving(1, "data", 0, 10, 10)
    with pytest.raises(Refused):
        receiving.take(piece)
    receiving.take(Piece(1, "data", 0, b"x" * 10, end=True))
    with pytest.raises(Refused, match="had ended"):
        receiving.take(Piece(1, "data", 10, b""))


@given(st.lists(st.integers(0, 30), max_size=40))
def test_credit_never_goes_back_nor_beyond_the_window(sizes: list[int]) -> None:
    receiving = Receiving(1, "data", 0, 64, 64)
    for size in sizes:
        room = min(size, receiving.upto - receiving.offset)
        receiving.take(Piece(1, "data", receiving.offset, bytes(room)))
        before = receiving.upto
        granted = receiving.consume(room)
        assert granted in {0, receiving.upto}
        assert receiving.upto >= before
        assert receiving.upto <= receiving.consumed + 64
        # whoever consumes everything is never left without credit
        assert receiving.upto > receiving.offset


def test_turns_are_fair_and_nobody_stands_in_line_twice() -> None:
    turns = Turns()
    streams = [Sending(n, "data", 0, 1 << 30) for n in range(3)]
    for stream in streams:
        stream.add(bytes(100))
        turns.enter(stream)
        turns.enter(stream)
    order = []
    while (stream := turns.next()) is not None:
        order.append(stream.id)
        stream.take(25)
        turns.enter(stream)
    assert order == [0, 1, 2] * 4
    assert not turns
