from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.link.ciphers import CIPHERS
from handoff.wire.node.frames import (
    GREETING_LIMIT,
    PIECE_LIMIT,
    STREAMS,
    BinaryFrames,
    Piece,
    Refused,
    SealedFrames,
    TextFrames,
    dumps,
    loads,
)
from handoff.wire.node.messages import DataMessage, Ping, ResultMessage
from handoff.wire.node.sealing import (
    BadSeal,
    CounterSeal,
    RandomSeal,
    b64url,
    from_b64url,
    hkdf,
)

KEYS = bytes(32), bytes(range(32))


def seal(key: bytes) -> CounterSeal:
    return CounterSeal(CIPHERS.aead(key))


def pairs() -> dict[str, tuple[Any, Any]]:
    """A writing and a reading end of each kind."""
    count = iter(range(1 << 20))
    one, two = KEYS
    return {
        "text": (TextFrames(1 << 24), TextFrames(1 << 24)),
        "sealed text": (
            SealedFrames(RandomSeal(CIPHERS.aead(one), lambda n: next(count).to_bytes(n, "big"))),
            SealedFrames(RandomSeal(CIPHERS.aead(one), bytes)),
        ),
        "binary": (BinaryFrames(), BinaryFrames()),
        "sealed binary": (
            BinaryFrames(seal(one), seal(two)),
            BinaryFrames(seal(two), seal(one)),
        ),
    }


PIECES = st.builds(
    Piece,
    id=st.integers(0, 2**32 - 1),
    stream=st.sampled_from(STREAMS),
    offset=st.integers(0, 2**63 - 1),
    data=st.binary(max_size=200),
    end=st.booleans(),
)
ITEMS = st.lists(
    PIECES | st.builds(Ping, ts=st.text(st.characters(exclude_categories=["Cs"]), max_size=32)),
    max_size=5,
)


@given(ITEMS)
def test_what_is_written_is_read(items: list[Any]) -> None:
    for writer, reader in pairs().values():
        for item in items:
            found, ack = reader.read(writer.write(item))
            if isinstance(found, Piece):
                found = Piece(found.id, found.stream, found.offset, bytes(found.data), found.end)
            assert found == item
            assert ack is False


def test_a_body_that_was_written_before_goes_as_it_is() -> None:
    body = dumps({"type": "result", "id": 7, "ok": True})
    for writer, reader in pairs().values():
        assert reader.read(writer.write(body))[0] == ResultMessage(7, True)


def test_binary_frames_are_what_the_document_says() -> None:
    frames = BinaryFrames()
    assert frames.write(Ping("T")) == b"\0" + bytes(4) + b'{"type":"ping","ts":"T"}'
    piece = Piece(5, "stderr", 1 << 40, b"abc", end=True)
    head = struct.pack(">BIIBQ", 1 | 0x40 | 0x80, 1, 5, 2, 1 << 40)
    assert frames.write(piece, True) == head + b"abc"
    reader = BinaryFrames()
    reader.read(b"\0" + bytes(4) + b'{"type":"ping"}')
    found, ack = reader.read(head + b"abc")
    assert (found.end, ack, bytes(found.data)) == (True, True, b"abc")


def test_an_ack_is_asked_for_in_any_kind_of_frame() -> None:
    writer, reader = BinaryFrames(), BinaryFrames()
    assert reader.read(writer.write(Ping(), True)) == (Ping(), True)


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_frame_is_read_or_refused(frame: Any) -> None:
    for _, reader in pairs().values():
        try:
            reader.read(frame)
        except Refused as refused:
            assert refused.reason in {
                *("malformed_frame", "plaintext_after_key", "sequence_gap"),
                *("bad_seal", "bad_stream", "frame_too_big"),
            }


@given(head=st.binary(min_size=1, max_size=1), rest=st.binary(max_size=40))
def test_any_frame_with_the_right_number_is_read_or_refused(head: bytes, rest: bytes) -> None:
    try:
        BinaryFrames().read(head + bytes(4) + rest)
    except Refused:
        pass


@given(st.text(max_size=40).map(lambda t: '{"type":"enc","data":"' + t + '"}'))
def test_any_sealed_text_is_read_or_refused(frame: str) -> None:
    with pytest.raises(Refused):
        pairs()["sealed text"][1].read(frame)


@pytest.mark.parametrize("name", ["text", "sealed text", "binary", "sealed binary"])
def test_limits(name: str) -> None:
    _, reader = pairs()[name]
    frame: Any = "x" * (reader.limit + 1)
    if "binary" in name:
        frame = frame.encode()
    with pytest.raises(Refused) as caught:
        reader.read(frame)
    assert caught.value.reason == "frame_too_big"


def test_a_greeting_is_bounded_in_bytes_not_characters() -> None:
    with pytest.raises(Refused) as caught:
        TextFrames().read('{"type":"' + "ä" * (GREETING_LIMIT // 2) + '"}')
    assert caught.value.reason == "frame_too_big"


def test_a_piece_is_bounded() -> None:
    with pytest.raises(Refused) as caught:
        BinaryFrames().read(BinaryFrames().write(Piece(1, "data", 0, bytes(PIECE_LIMIT + 1))))
    assert caught.value.reason == "bad_stream"
    said = dumps({"type": "data", "id": 1, "stream": "nose"})
    with pytest.raises(Refused):
        TextFrames(1 << 20).read(said)


def test_pieces_are_messages_where_frames_are_text() -> None:
    frame = TextFrames().write(Piece(3, "stdout", 5, b"\xff", end=True))
    assert json.loads(str(frame)) == {
        "type": "data",
        "id": 3,
        "stream": "stdout",
        "offset": 5,
        "data": "/w==",
        "end": True,
    }
    assert DataMessage.type == "data"


def test_numbers_go_on_beyond_what_a_frame_shows() -> None:
    one, two = KEYS
    writer, reader = BinaryFrames(seal(one)), BinaryFrames(seal(two), seal(one))
    writer._out = reader._in = 2**32 - 1
    for _ in range(3):
        assert reader.read(writer.write(Ping()))[0] == Ping()
    # the shown number has begun anew, the nonce has not
    assert writer._out == 2**32 + 2
    replay = BinaryFrames(seal(one))
    replay._out = 2
    with pytest.raises(Refused) as caught:
        reader.read(replay.write(Ping()))
    assert caught.value.reason == "bad_seal"


def test_a_v1_key_is_used_so_often_and_no_more() -> None:
    count = iter(range(1 << 20))
    used = RandomSeal(CIPHERS.aead(KEYS[0]), lambda n: next(count).to_bytes(n, "big"))
    for _ in range(1 << 16):
        used._remember(next(count).to_bytes(12, "big"))
    with pytest.raises(BadSeal) as caught:
        used.seal(b"x")
    assert caught.value.reason == "session_exhausted"
    brain = RandomSeal(CIPHERS.aead(KEYS[0]), bytes, once=False)
    data = brain.seal(b"x")
    assert brain.open(data) == brain.open(data) == b"x"


def test_json_is_strict_both_ways() -> None:
    with pytest.raises(ValueError, match="JSON"):
        dumps({"x": float("nan")})
    for text in ("NaN", "[Infinity]", "", "{", "\ufeff{}", "[" * 100_000, "1" * 5000):
        with pytest.raises(Refused):
            loads(text)
    assert dumps({"a": "ä\ud800"}).isascii()
    assert dumps({"a": "ä"}) == '{"a":"ä"}'


def test_base64url_is_strict() -> None:
    assert from_b64url(b64url(b"\xfb\xff"), 2) == b"\xfb\xff"
    for wrong in ("A", "AA=", "A+/A", "ä", "AA AA", "AAAA\n"):
        with pytest.raises(ValueError, match=r"base64url|bytes"):
            from_b64url(wrong)
    with pytest.raises(ValueError, match="not 3 bytes"):
        from_b64url("AA", 3)


def test_hkdf_is_that_of_the_rfc() -> None:
    """RFC 5869 appendix A.1 and A.3."""
    ikm, salt = b"\x0b" * 22, bytes(range(13))
    info = bytes(range(0xF0, 0xFA))
    assert hkdf(ikm, salt, info, 42).hex() == (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )
    assert hkdf(ikm, b"", b"", 42).hex() == (
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )
