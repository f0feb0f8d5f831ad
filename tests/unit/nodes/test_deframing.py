"""Frames are cut apart as ``websockets`` does it, wherever the bytes were parted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from handoff.nodes.deframing import SCRATCH, Deframer, framed

LIMIT = 100_000
SIZES = st.sampled_from([0, 1, 125, 126, 127, 4_000, SCRATCH - 14, SCRATCH, 65_535, 65_536, LIMIT])


class Heard:
    """What a deframer gives, in order."""

    def __init__(self, *, masked: bool = True) -> None:
        self.messages: list[bytes] = []
        self.other = b""
        self.deframer = Deframer(masked, lambda data: self.messages.append(bytes(data)), self._more)
        self.deframer.limit = LIMIT

    def _more(self, data: bytes) -> None:
        self.other += data

    def feed(self, data: bytes, step: int) -> None:
        """As a transport does: as much as there is room for, at most ``step`` bytes."""
        while data:
            room = self.deframer.room()
            count = min(len(room), step, len(data))
            assert count
            room[:count] = data[:count]
            data = data[count:]
            self.deframer.filled(count)


def wire(opcode: Opcode, data: bytes, *, masked: bool = True, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=masked)


def some(size: int, number: int) -> bytes:
    return bytes([number + 1]) * size


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just(Opcode.BINARY), SIZES),
            st.tuples(st.just(Opcode.TEXT), SIZES),
            st.tuples(st.sampled_from([Opcode.PING, Opcode.PONG, Opcode.CLOSE]), st.just(5)),
        ),
        max_size=6,
    ),
    st.sampled_from([1, 2, 7, 1_000, SCRATCH, 1 << 20]),
    st.booleans(),
)
def test_messages_come_straight_and_all_else_untouched(
    frames: list[tuple[Opcode, int]], step: int, masked: bool
) -> None:
    if step < 8:
        frames = [(opcode, min(size, 4_000)) for opcode, size in frames]
    heard = Heard(masked=masked)
    sent, other, messages = b"", b"", []
    for number, (opcode, size) in enumerate(frames):
        body = some(size, number)
        frame = wire(opcode, body, masked=masked)
        sent += frame
        if opcode is Opcode.BINARY:
            messages.append(body)
        else:
            other += frame
    heard.feed(sent, step)
    assert heard.messages == messages
    assert heard.other == other


@pytest.mark.parametrize(
    "odd",
    [
        wire(Opcode.BINARY, b"begun", fin=False),
        wire(Opcode.CONT, b"more"),
        wire(Opcode.BINARY, b"bare", masked=False),
        wire(Opcode.BINARY, b"x" * (LIMIT + 1)),
        b"\xc2" + wire(Opcode.BINARY, b"reserved")[1:],
        b"\x83" + wire(Opcode.BINARY, b"no such opcode")[1:],
        b"GET / HTTP/1.1\r\n\r\n",
        bytes([0x82, 0xFF, *[0xFF] * 8, 1, 2, 3, 4]),
    ],
    ids=["begun", "more", "bare", "large", "reserved", "unknown", "http", "huge"],
)
@pytest.mark.parametrize("step", [1, 5, SCRATCH])
def test_from_what_is_odd_on_all_is_passed_on(odd: bytes, step: int) -> None:
    if len(odd) > 1000 and step < SCRATCH:
        odd = odd[:2000]
    heard = Heard()
    after = wire(Opcode.BINARY, b"after")
    heard.feed(wire(Opcode.BINARY, b"before") + odd + after, step)
    assert heard.messages == [b"before"]
    assert heard.other == odd + after


def test_it_can_be_told_to_pass_all_on() -> None:
    heard = Heard()
    frames = [wire(Opcode.BINARY, some(size, 3)) for size in (10, 70_000, 20)]
    heard.feed(frames[0], 100)
    heard.feed(frames[1][:40_000], SCRATCH)
    heard.deframer.straight = False  # what is under way is still a message
    heard.feed(frames[1][40_000:], SCRATCH)
    heard.feed(frames[2], 3)
    assert [len(one) for one in heard.messages] == [10, 70_000]
    assert heard.other == frames[2]


@given(SIZES, st.booleans())
def test_what_is_framed_the_library_reads(size: int, masked: bool) -> None:
    reader = StreamReader()
    reader.feed_data(framed(some(size, 7), masked))
    parser = Frame.parse(reader.read_exact, mask=masked)
    with pytest.raises(StopIteration) as done:
        next(parser)
    frame = done.value.value
    assert (frame.opcode, frame.fin, bytes(frame.data)) == (Opcode.BINARY, True, some(size, 7))
    assert not reader.buffer
