"""What goes into one WebSocket message: JSON text, or our binary frames.

Before a session is open, and with every peer that has not named ``frames2``, a frame is one
JSON object as text. With ``frames2`` every frame after ``auth_ok`` is binary::

    byte 0      kind (0 a JSON message, 1 a piece of a stream) | 0x40 end | 0x80 ack wanted
    bytes 1-4   number of the frame, counted from 0 in each direction, its low 32 bits
    kind 1: bytes 5-8 id of the call, 9 stream (0 stdin 1 stdout 2 stderr 3 data),
            10-17 offset of the first byte
    the rest    UTF-8 JSON, or the bytes of the stream

All numbers are big-endian. In a sealed session (``e2e2``) the rest is AES-256-GCM over it,
with the header as associated data and the whole frame number as nonce.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from handoff.errors import BadRequest
from handoff.wire.node.messages import (
    DataMessage,
    Enc,
    Message,
    decode_message,
    encode_message,
)
from handoff.wire.node.sealing import BadSeal, CounterSeal, RandomSeal

__all__ = [
    "STREAMS",
    "BinaryFrames",
    "Frame",
    "Piece",
    "Refused",
    "SealedFrames",
    "TextFrames",
    "dumps",
    "loads",
]

#: a WebSocket message: text or binary
Frame = str | bytes

STREAMS = ("stdin", "stdout", "stderr", "data")
_CODES = {name: code for code, name in enumerate(STREAMS)}

#: bytes of a JSON message within an open session of ours: four pieces of INLINE_LIMIT / 2
#: (both ends of two streams), doubled by JSON at most, and room
MESSAGE_LIMIT = 2 * 1024 * 1024
#: bytes of one piece of a stream
PIECE_LIMIT = 256 * 1024
#: bytes of any frame before the session is open: a full hello has under 2 KiB
GREETING_LIMIT = 8 * 1024
#: bytes of a text frame of the old vocabulary: 10 MiB as base64, twice in a sealed session
OLD_LIMIT = 16 * 1024 * 1024
SEALED_LIMIT = 24 * 1024 * 1024

_HEAD = struct.Struct(">BI")
_PIECE = struct.Struct(">BIIBQ")
_END, _ACK, _KIND = 0x40, 0x80, 0x0F
_COUNT = 0xFFFFFFFF


class Refused(Exception):
    """A frame can't be taken. ``reason``: a key of the closing table. A malformed frame in
    an open session is dropped; after anything else the two sides no longer agree."""

    def __init__(
        self, reason: str, detail: str = "", said: str | None = None, number: object = None
    ) -> None:
        super().__init__(detail or reason)
        self.reason = reason
        self.detail = detail
        #: the type that the message gives itself, if it was JSON at all, and its id
        self.said = said
        self.number = number


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a stream of a call, from ``offset``. ``end``: nothing follows."""

    id: int
    stream: str
    offset: int
    data: bytes | memoryview
    end: bool = False


def dumps(value: Any) -> str:
    """Compact JSON text that is valid UTF-8.

    Raises:
        ValueError: the value holds a number that JSON has not (NaN, infinity).
    """
    made = _ENCODER.encode(value)
    if not made.isascii():
        try:
            made.encode("utf-8")
        except UnicodeEncodeError:
            made = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return made


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def loads(text: str) -> Any:
    """A JSON text as a value.

    Raises:
        Refused: ``malformed_frame``.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise Refused("malformed_frame", "nested too deeply") from None
    except ValueError as error:
        raise Refused("malformed_frame", f"not JSON: {str(error)[:80]}") from None


def _message(value: Any) -> Message:
    """The message, or the refusal of a frame that has none."""
    try:
        return decode_message(value)
    except BadRequest as error:
        said = value if type(value) is dict else {}
        kind, number = str(said.get("type", "")), said.get("id")
        raise Refused("malformed_frame", str(error), kind, number) from error


class TextFrames:
    """JSON text frames, unsealed: the greeting, and sessions without ``frames2``."""

    __slots__ = ("limit",)
    #: whether frames are counted, so that ``ack`` means something
    counted = False

    def __init__(self, limit: int = GREETING_LIMIT) -> None:
        self.limit = limit

    def write(self, item: Message | Piece | str, ack: bool = False) -> Frame:  # noqa: ARG002
        """One frame."""
        return _text(item)

    def read(self, frame: Frame) -> tuple[Message | Piece, bool]:
        """What a frame holds, and whether an ack is wanted.

        Raises:
            Refused: it holds no message.
        """
        if not isinstance(frame, str):
            raise Refused("malformed_frame", "a text frame is expected here")
        if len(frame) > self.limit or (
            not frame.isascii() and len(frame.encode("utf-8", "replace")) > self.limit
        ):
            raise Refused("frame_too_big", f"a frame has at most {self.limit} bytes here")
        return _as_piece(_message(loads(frame))), False


class SealedFrames(TextFrames):
    """JSON text frames of Go node v0.2.0's sealed sessions: only ``enc`` is taken."""

    __slots__ = ("_seal",)

    def __init__(self, seal: RandomSeal) -> None:
        super().__init__(SEALED_LIMIT)
        self._seal = seal

    def write(self, item: Message | Piece | str, ack: bool = False) -> Frame:  # noqa: ARG002
        """One sealed frame; BadSeal ``session_exhausted`` at the end of its key's use."""
        said = _text(item).encode()
        return dumps(encode_message(Enc(data=self._seal.seal(said))))

    def read(self, frame: Frame) -> tuple[Message | Piece, bool]:
        """What a sealed frame holds.

        Raises:
            Refused: it is not sealed, does not open, or holds no message.
        """
        outer, _ = super().read(frame)
        if not isinstance(outer, Enc):
            raise Refused("plaintext_after_key")
        try:
            said = self._seal.open(outer.data).decode("utf-8")
        except BadSeal as error:
            raise Refused(error.reason) from error
        except UnicodeDecodeError:
            raise Refused("malformed_frame", "not UTF-8") from None
        inner = _message(loads(said))
        if isinstance(inner, Enc):
            raise Refused("malformed_frame", "sealed twice")
        return _as_piece(inner), False


class BinaryFrames:
    """``frames2``: numbered binary frames, sealed if seals are given."""

    __slots__ = ("_in", "_open", "_out", "_seal", "limit")
    counted = True

    def __init__(self, seal: CounterSeal | None = None, opener: CounterSeal | None = None) -> None:
        self._seal = seal
        self._open = opener
        self._in = 0
        self._out = 0
        self.limit = MESSAGE_LIMIT + 64

    def write(self, item: Message | Piece | str, ack: bool = False) -> Frame:
        """The next frame of this direction: send it before any later one."""
        number = self._out
        self._out += 1
        flags = _ACK if ack else 0
        if isinstance(item, Piece):
            flags |= 1 | (_END if item.end else 0)
            code = _CODES[item.stream]
            head = _PIECE.pack(flags, number & _COUNT, item.id, code, item.offset)
            body = item.data
        else:
            head = _HEAD.pack(flags, number & _COUNT)
            body = _text(item).encode()
        if self._seal is not None:
            body = self._seal.seal(number, head, body)
        return b"".join((head, body))

    def read(self, frame: Frame) -> tuple[Message | Piece, bool]:
        """What the next frame of the other direction holds, and whether it wants an ack.

        Raises:
            Refused: it is not the next, was changed, or holds no message.
        """
        if isinstance(frame, str):
            raise Refused("plaintext_after_key" if self._open else "malformed_frame", "text")
        size = len(frame)
        if size > self.limit:
            raise Refused("frame_too_big", f"a frame has at most {self.limit} bytes here")
        if size < _HEAD.size:
            raise Refused("malformed_frame", "shorter than its header")
        flags, number = _HEAD.unpack_from(frame)
        kind = flags & _KIND
        head = _PIECE.size if kind == 1 else _HEAD.size
        if kind > 1 or size < head:
            raise Refused("malformed_frame", "no kind of frame that is known here")
        if number != self._in & _COUNT:
            raise Refused("sequence_gap", f"frame {number} where {self._in & _COUNT} was next")
        body: bytes | memoryview = memoryview(frame)[head:]
        if self._open is not None:
            try:
                body = self._open.open(self._in, frame[:head], memoryview(frame)[head:])
            except BadSeal as error:
                raise Refused(error.reason) from error
        self._in += 1
        ack = bool(flags & _ACK)
        if kind == 1:
            _, _, number, code, offset = _PIECE.unpack_from(frame)
            if code >= len(STREAMS) or len(body) > PIECE_LIMIT:
                raise Refused("bad_stream", "no such stream, or too much at once")
            return Piece(number, STREAMS[code], offset, body, bool(flags & _END)), ack
        try:
            return _as_piece(_message(loads(str(body, "utf-8")))), ack
        except UnicodeDecodeError:
            raise Refused("malformed_frame", "not UTF-8") from None


def _text(item: Message | Piece | str) -> str:
    """An item as JSON; a text is one that was written before."""
    if isinstance(item, str):
        return item
    if isinstance(item, Piece):
        item = DataMessage(item.id, item.stream, item.offset, bytes(item.data), item.end)
    return dumps(encode_message(item))


def _as_piece(message: Message) -> Message | Piece:
    if isinstance(message, DataMessage):
        if message.stream not in _CODES or len(message.data) > PIECE_LIMIT:
            raise Refused("bad_stream", "no such stream, or too much at once")
        return Piece(message.id, message.stream, message.offset, message.data, message.end)
    return message
