"""What both ends of a link have in common, without I/O.

A program that holds one end does this, on a WebSocket or anything else that keeps messages
whole and in order:

- hand each message that arrives to :meth:`Link.receive`; call :meth:`Link.lost` when the
  connection is gone, and :meth:`Link.tick` at :meth:`Link.wake_at`;
- after each of these, and after anything else that it asked of the link, take
  :meth:`Link.events`, and send :meth:`Link.next_frame` as long as there is one *and the
  transport has room*: what is urgent goes first, but can't overtake what was handed out;
- once :attr:`Link.closing` is set and no frame is left, close the connection with it, then
  call :meth:`Link.lost`.

Frames leave in three classes: control (ping, credit, ack, cancel, the handshake), then calls
and results in their order, then streams, each in its turn. A result waits for the streams
of its call. Large results and streams wait while too much is under way (:mod:`pacing`).
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from handoff import lifecycle
from handoff.clock import iso
from handoff.errors import BadRequest, UsageError
from handoff.wire.node.closing import NORMAL, REASONS, Close, close_text, heard, reason_of, safe
from handoff.wire.node.events import (
    Drained,
    Ended,
    Event,
    Oddity,
    Opened,
    Outstanding,
    StreamPiece,
    StreamStopped,
)
from handoff.wire.node.features import Features
from handoff.wire.node.frames import (
    BinaryFrames,
    Frame,
    Piece,
    Refused,
    TextFrames,
    dumps,
)
from handoff.wire.node.messages import (
    CALLS2,
    OLD,
    Ack,
    Bye,
    Credit,
    Hello,
    Message,
    Ping,
    Pong,
    StopStream,
    Unknown,
    encode_message,
)
from handoff.wire.node.outbox import Outbox, Ready
from handoff.wire.node.sealing import BadSeal, Ciphers, Random
from handoff.wire.node.streams import MOST_WINDOW, Receiving, Sending

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["Channel", "Link"]

#: frames that may be malformed in one session before the peer is given up
MALFORMED_LIMIT = 1_000


class Channel:
    """One call on this link: its streams and, on the sending side, its result."""

    __slots__ = ("held", "info", "receiving", "sending")

    def __init__(self, info: Any) -> None:
        self.info = info
        self.sending: dict[str, Sending] = {}
        self.receiving: dict[str, Receiving] = {}
        #: the encoded result, until the streams are out
        self.held: str | None = None


class Link(abc.ABC):
    """One end. Use :class:`~handoff.wire.node.brain.BrainLink` or
    :class:`~handoff.wire.node.node.NodeLink`.

    Args:
        clock: monotonic time for what is measured, wall time for what is written.
        ciphers: curves and ciphers.
        random: so many random bytes.
        handshake_s: seconds for each step of the handshake.
        stale_s: seconds without a frame after which the other side is taken for gone.
    """

    role: ClassVar[str] = ""

    def __init__(
        self,
        clock: Clock,
        ciphers: Ciphers,
        random: Random,
        *,
        handshake_s: float,
        stale_s: float,
    ) -> None:
        self._clock = clock
        self._ciphers = ciphers
        self._random = random
        self.state = "opened"
        #: set once: close the connection with its code and text
        self.closing: Close | None = None
        #: known from ``Opened`` on
        self.features: Features | None = None
        self.hello: Hello | None = None
        self.session_id = ""
        #: milliseconds of the last ping's round trip, -1 before one
        self.rtt_ms = -1.0
        self._out = Outbox(clock)
        self._channels: dict[int, Channel] = {}
        self._events: list[Event] = []
        self._handshake_s = handshake_s
        self._stale_s = stale_s
        now = clock.monotonic()
        self._step_by = now + handshake_s
        self._heard = now
        self._arrived = 0
        self._acked = 0
        self._malformed = 0
        self._pinged = -1.0

    # -- what the program around it calls -------------------------------------------------

    def receive(self, frame: Frame) -> None:
        """A message of the other side has arrived."""
        if self.state in {"closing", "closed"}:
            return
        self._heard = self._clock.monotonic()
        try:
            item, ack = self._out.frames.read(frame)
            if self._out.frames.counted:
                self._arrived += len(frame)
                if ack and self._acked != self._arrived:
                    self._acked = self._arrived
                    self._out.ack(self._arrived)
            if isinstance(item, Piece):
                self._take_piece(item)
            elif self.state == "open":
                self._take(item)
            else:
                self._greet(item, frame)
        except Refused as refused:
            self._refuse(refused)

    def lost(self, code: int = 1006, text: str = "") -> None:
        """The connection is gone; with the close frame's code and text if there was one."""
        if self.state == "closed":
            return
        was = self.state
        reason = self._reason_lost(code, text)
        self._advance("lost")
        if was != "closing":
            self.closing = heard(code, reason, text.partition(":")[2].strip())
            self._end(self.closing)
        self._clear()
        self._out.drop(control=True)

    def tick(self) -> None:
        """Do what is due by the clock."""
        now = self._clock.monotonic()
        if self.state == "open":
            if now >= self._heard + self._stale_s:
                self.close("stale", f"nothing was heard for {self._stale_s:g} s")
        elif self.state not in {"closing", "closed"} and now >= self._step_by:
            self._refuse(Refused("handshake_timeout"))

    def wake_at(self) -> float | None:
        """When to call :meth:`tick`, on the monotonic clock; None: never again."""
        if self.state == "open":
            return self._heard + self._stale_s
        return None if self.state in {"closing", "closed"} else self._step_by

    def next_frame(self) -> Frame | None:
        """The next frame to send, or None: nothing may be sent now."""
        try:
            frame, sending = self._out.next(self.state == "open")
        except BadSeal as error:
            self._refuse(Refused(error.reason))
            return None
        if sending is not None:
            if sending.drained():
                self._events.append(Drained(sending.id, sending.stream))
            if sending.over:
                self._release(sending.id)
        return frame

    def events(self) -> list[Event]:
        """What happened since the last call."""
        found, self._events = self._events, []
        return found

    def close(self, reason: str, detail: str = "", *, retry_ms: int = 0) -> None:
        """End the link: say why, send nothing more of what waits."""
        self._close(Close(_code(reason), reason, detail, ours=True), retry_ms=retry_ms)

    @property
    def max_frame(self) -> int:
        """Bytes of the largest frame that is taken now."""
        return self._out.frames.limit

    @property
    def busy(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._out)

    # -- streams --------------------------------------------------------------------------

    def send(self, number: int, stream: str, data: bytes | memoryview) -> bool:
        """Send bytes of a call's stream; False: enough waits, go on after ``Drained``.
        What nobody wants any more is dropped."""
        sending = self._sending(number, stream)
        if sending is None or sending.ended:
            return True
        sending.add(data)
        self._out.turns.enter(sending)
        return not sending.full

    def end(self, number: int, stream: str) -> None:
        """Nothing follows on that stream."""
        sending = self._sending(number, stream)
        if sending is not None and not sending.ended:
            sending.ended = True
            self._out.turns.enter(sending)

    def pending(self, number: int, stream: str) -> int:
        """Bytes of a stream that wait to be sent."""
        sending = self._sending(number, stream)
        return sending.pending if sending else 0

    def consume(self, number: int, stream: str, size: int) -> None:
        """So many bytes of a stream were used: let the other side send as many more."""
        channel = self._channels.get(number)
        receiving = channel.receiving.get(stream) if channel else None
        if receiving is not None:
            upto = receiving.consume(size)
            if upto:
                self._out.control.append(Credit(number, stream, upto))

    def stop_stream(self, number: int, stream: str) -> None:
        """No more of that stream is wanted; the call goes on."""
        channel = self._channels.get(number)
        if channel and channel.receiving.pop(stream, None) is not None:
            self._out.control.append(StopStream(number, stream))

    # -- sending --------------------------------------------------------------------------

    def _body(self, message: Message) -> str:
        """A call or result as JSON.

        Raises:
            UsageError: its values can't be JSON.
        """
        try:
            return dumps(encode_message(message))
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"'{message.type}' can't be written as JSON: {error}") from error

    def _greeting_frame(self, message: Message) -> str:
        frame = TextFrames().write(message)
        assert isinstance(frame, str)
        return frame

    def _hold(self, number: int, body: str) -> None:
        """Send a result once the streams of its call are out."""
        channel = self._channels[number]
        channel.held = body
        for sending in channel.sending.values():
            sending.ended = True
            self._out.turns.enter(sending)
        self._release(number)

    def _release(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is None or channel.held is None:
            return
        if all(sending.over for sending in channel.sending.values()):
            self._out.bodies.append(channel.held)
            del self._channels[number]

    def _sending(self, number: int, stream: str) -> Sending | None:
        channel = self._channels.get(number)
        return channel.sending.get(stream) if channel else None

    # -- receiving ------------------------------------------------------------------------

    @abc.abstractmethod
    def _greet(self, message: Message, frame: Frame) -> None:
        """Take a message of the handshake."""

    def _take(self, message: Message) -> None:
        kind = type(message)
        ours = self.features is not None and self.features.calls2
        if kind in (OLD if ours else CALLS2):
            number = getattr(message, "id", None)
            message = Unknown(message.type, number)
        handler = self._HANDLERS.get(type(message)) or _COMMON.get(type(message))
        if handler is None:
            self._odd("a message that has no place here", message.type)
            return
        try:
            handler(self, message)
        except BadRequest as error:
            self._odd("a message that can't be used", f"{message.type}: {error}")

    _HANDLERS: ClassVar[dict[type[Message], Callable[[Any, Any], None]]] = {}

    def _on_ping(self, ping: Ping) -> None:
        # One answer is enough for pings that came while nothing could be sent.
        if not self._out.waits(Pong):
            self._out.control.append(Pong(ts=iso(self._clock.now_ms()), echo_ts=ping.ts))

    def _ping(self) -> None:
        """Ask for a sign of life, unless one that was asked for is still to be sent."""
        if not self._out.waits(Ping):
            self._pinged = self._clock.monotonic()
            self._out.control.append(Ping(iso(self._clock.now_ms())))

    def _on_pong(self, pong: Pong) -> None:  # noqa: ARG002
        if self._pinged >= 0:
            self.rtt_ms = (self._clock.monotonic() - self._pinged) * 1000
            self._pinged = -1.0

    def _on_bye(self, bye: Bye) -> None:
        code = bye.code or _code(bye.reason)
        reason = bye.reason or "done"
        self._close(heard(code, reason, bye.detail, bye.retry_ms), tell=False)

    def _on_ack(self, ack: Ack) -> None:
        pace = self._out.pace
        if pace is None or not pace.acked(ack.bytes, self._clock.monotonic()):
            self._odd("an ack of what was not sent", str(ack.bytes))

    def _on_credit(self, credit: Credit) -> None:
        sending = self._sending(credit.id, credit.stream)
        if sending is not None:
            most = sending.offset + MOST_WINDOW
            sending.upto = max(sending.upto, min(credit.upto, most))
            self._out.turns.enter(sending)

    def _on_stop(self, stop: StopStream) -> None:
        sending = self._sending(stop.id, stop.stream)
        if sending is not None and not sending.over:
            sending.stop()
            self._events.append(StreamStopped(stop.id, stop.stream))
            self._release(stop.id)

    def _on_unknown(self, unknown: Unknown) -> None:
        self._odd("a message of an unknown type", unknown.type_name)

    def _take_piece(self, piece: Piece) -> None:
        if self.state != "open":
            raise Refused("unexpected_message")
        channel = self._channels.get(piece.id)
        receiving = channel.receiving.get(piece.stream) if channel else None
        if receiving is None:
            return  # of a call or a stream that is over here, and was not yet there
        receiving.take(piece)
        self._events.append(StreamPiece(piece.id, piece.stream, piece.data, piece.end))

    def _odd(self, what: str, detail: str = "") -> None:
        self._events.append(Oddity(what, safe(detail, 200)))
        self._malformed += 1
        if self._malformed > MALFORMED_LIMIT:
            self.close("malformed_frame", "too many of them")

    def _refuse(self, refused: Refused) -> None:
        """A frame can't be taken: drop it in an open session, if both still agree."""
        if self.state == "open" and refused.reason == "malformed_frame":
            self._odd("a malformed frame", refused.detail)
            return
        self._close(Close(_code(refused.reason), refused.reason, refused.detail))

    # -- state ----------------------------------------------------------------------------

    def _advance(self, event: str) -> None:
        self.state = lifecycle.advance("link", self.state, event)

    def _step(self, event: str) -> None:
        """One step of the handshake is done; the next has its own time."""
        self._advance(event)
        self._step_by = self._clock.monotonic() + self._handshake_s

    def _open(self, frames: TextFrames | BinaryFrames, features: Features, hello: Hello) -> None:
        self._advance("auth_ok")
        self._out.open(frames)
        self.features = features
        self.hello = hello
        self._events.append(Opened(self.session_id, features, hello))

    def _close(self, close: Close, *, tell: bool = True, retry_ms: int = 0) -> None:
        if self.state in {"closing", "closed"}:
            return
        last = self._last_message(close, retry_ms) if tell else None
        greeting = self.state != "open"
        self._advance("close")
        self._out.drop()
        if last is not None:
            frame = Ready(self._greeting_frame(last)) if greeting else last
            self._out.control.append(frame)
        self.closing = close
        self._end(close)
        self._clear()

    def _last_message(self, close: Close, retry_ms: int) -> Message | None:
        """What tells the other side why, before the close frame does."""
        if self.state != "open":
            return None
        return Bye(close.reason, close.code, close_text(close.reason, close.detail), retry_ms)

    def _reason_lost(self, code: int, text: str) -> str:
        return reason_of(code, text)

    def _end(self, close: Close) -> None:
        self._events.append(Ended(close, self._outstanding()))

    def _outstanding(self) -> tuple[Outstanding, ...]:
        return ()

    def _clear(self) -> None:
        self._channels.clear()


def _code(reason: str) -> int:
    known = REASONS.get(reason)
    return known.code if known else NORMAL


_COMMON: dict[type[Message], Callable[[Any, Any], None]] = {
    Ping: Link._on_ping,
    Pong: Link._on_pong,
    Bye: Link._on_bye,
    Ack: Link._on_ack,
    Credit: Link._on_credit,
    StopStream: Link._on_stop,
    Unknown: Link._on_unknown,
}
