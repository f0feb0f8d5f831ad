"""The brain's end of a link.

After a hello the program answers :class:`Identify` with what it holds about the node, and
:class:`Admit` with :meth:`BrainLink.admit` or :meth:`BrainLink.refuse`. Then it makes calls.
A call that has no result when the link ends is listed in :class:`Ended`: it may have run.
On the next link of the same node :meth:`BrainLink.ask` finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from handoff.clock import iso
from handoff.errors import BadRequest, TooLarge, UnsupportedByPeer
from handoff.wire.node.brain_old import Asked, OldCalls, broken
from handoff.wire.node.calls import (
    Call,
    Result,
    check_key,
    checked,
    result_from_json,
    to_json,
)
from handoff.wire.node.closing import Close, close_text, safe
from handoff.wire.node.events import (
    Admit,
    CallEnded,
    CallTold,
    Credential,
    Identify,
    Noticed,
    Outstanding,
    PairAsked,
)
from handoff.wire.node.frames import MESSAGE_LIMIT, Frame, Refused
from handoff.wire.node.greeting import BrainGreeting
from handoff.wire.node.link import Channel
from handoff.wire.node.messages import (
    ASKER,
    PROTOCOL_VERSION,
    Ask,
    Auth,
    AuthErr,
    CallMessage,
    Cancel,
    ErrorMessage,
    Forget,
    Hello,
    HelloErr,
    Message,
    Notice,
    OldExecChunk,
    OldExecResult,
    OldReadResult,
    OldWriteResult,
    Pair,
    PairErr,
    PairOk,
    ResultMessage,
    Signal,
    Told,
)
from handoff.wire.node.options import BrainOptions
from handoff.wire.node.outbox import Ready
from handoff.wire.node.sealing import Ciphers, Random
from handoff.wire.node.streams import FIRST_WINDOW, MOST_WINDOW, Receiving, Sending

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["BrainLink"]

_GREETING_ERRORS = {"opened": HelloErr, "greeted": HelloErr, "authenticating": AuthErr}
_OLD_ANSWERS = frozenset({"exec_result", "exec_chunk", "read_result", "write_result", "error"})
_STATES = frozenset({"running", "done", "never_seen", "unknown_outcome"})


class BrainLink(OldCalls):
    """See :class:`~handoff.wire.node.link.Link` for what drives it."""

    role = "brain"

    def __init__(
        self, options: BrainOptions, clock: Clock, ciphers: Ciphers, random: Random
    ) -> None:
        super().__init__(
            clock, ciphers, random, handshake_s=options.handshake_s, stale_s=options.stale_s
        )
        self._options = options
        self._greeting: BrainGreeting | None = BrainGreeting(options, ciphers, random)
        self._waits_for = ""

    # -- the handshake --------------------------------------------------------------------

    def identify(self, credential: Credential | None) -> None:
        """Answer :class:`Identify`: what is known of that node, None if nothing."""
        if self._waits_for != "identify" or self._greeting is None:
            return
        self._waits_for = ""
        now = iso(self._clock.now_ms())
        try:
            frame = self._greeting.identify(
                credential, self._clock.new_id(), now, self._greeting_frame
            )
        except Refused as refused:
            self._refuse(refused)
            return
        self.session_id = self._greeting.session_id
        self._out.control.append(Ready(frame))
        self._step("hello_ack")

    def admit(self) -> None:
        """Answer :class:`Admit`: the session opens."""
        greeting = self._greeting
        if self._waits_for != "admit" or greeting is None:
            return
        self._waits_for = ""
        self._out.control.append(Ready(self._greeting_frame(greeting.admit())))
        self._greeting = None
        self._open(greeting.frames(), greeting.features, greeting.hello)
        if greeting.features.calls2:
            self._ping()

    def tick(self) -> None:
        """Do what is due by the clock."""
        super().tick()
        due = self._ping_at()
        if due is not None and self._clock.monotonic() >= due:
            self._ping()

    def wake_at(self) -> float | None:
        """When to call :meth:`tick`."""
        return self._ping_at() or super().wake_at()

    def _ping_at(self) -> float | None:
        # A Go node pings by itself and is asked nothing that it does not know.
        if self.state != "open" or self._pinged >= 0 or not self._need_open().calls2:
            return None
        return self._heard + self._stale_s / 2

    def refuse(self, reason: str, detail: str = "") -> None:
        """Answer :class:`Identify`, :class:`Admit` or :class:`PairAsked` with no."""
        self._refuse(Refused(reason, detail))

    def pair_ok(self, answer: PairOk) -> None:
        """Answer :class:`PairAsked`: the key is stored. The link closes."""
        if self._waits_for == "pair":
            self._waits_for = ""
            self._out.control.append(Ready(self._greeting_frame(answer)))
            self._close(Close(1000, "paired"), tell=False)

    def _greet(self, message: Message, frame: Frame) -> None:
        assert isinstance(frame, str)
        greeting = self._greeting
        if self._waits_for or greeting is None:
            raise Refused("unexpected_message")
        if self.state == "opened":
            if isinstance(message, Pair):
                self._step("pair")
                self._waits_for = "pair"
                self._events.append(PairAsked(message))
                return
            if not isinstance(message, Hello):
                raise Refused("expected_hello")
            greeting.take_hello(message, frame)
            self._step("hello")
            self.hello = message
            self._waits_for = "identify"
            self._events.append(Identify(message))
            return
        if not isinstance(message, Auth):
            raise Refused("expected_auth")
        greeting.take_auth(message, frame)
        self._waits_for = "admit"
        self._events.append(Admit(greeting.hello, greeting.features))

    def _refuse(self, refused: Refused) -> None:
        if refused.reason == "malformed_frame" and refused.said is not None:
            if self.state == "opened":
                named = refused.said in {"hello", "pair"}
                refused = Refused("bad_hello" if named else "expected_hello", refused.detail)
            elif self.state == "authenticating":
                named = refused.said == "auth"
                refused = Refused("bad_auth" if named else "expected_auth", refused.detail)
        super()._refuse(refused)
        if self.state == "open" and refused.said is not None:
            self._unreadable(refused)

    def _unreadable(self, refused: Refused) -> None:
        """An answer that can't be read is one all the same: its call does not wait on."""
        number: Any = refused.number
        if isinstance(number, str) and refused.said in _OLD_ANSWERS:
            number = self._old.pop(number, None)
        elif refused.said != "result":
            return
        channel = self._channels.pop(number, None) if type(number) is int else None
        if channel is not None:
            result = broken(f"the answer can't be used: {safe(refused.detail)}")
            self._events.append(CallEnded(number, channel.info.key, result))

    def _last_message(self, close: Close, retry_ms: int) -> Message | None:
        detail = close_text(close.reason, close.detail).partition(": ")[2]
        if self.state == "pairing":
            return PairErr(close.reason, close.code, detail)
        if self.state in {"opened", "greeted"}:
            version = PROTOCOL_VERSION if close.reason == "unsupported_protocol_version" else ""
            return HelloErr(close.reason, close.code, version, detail)
        if self.state == "authenticating":
            return AuthErr(close.reason, close.code, detail)
        return super()._last_message(close, retry_ms)

    # -- calls ----------------------------------------------------------------------------

    def call(
        self,
        call: Call,
        *,
        key: str = "",
        by: str = "",
        window: int = 0,
        deadline_ms: int = 0,
    ) -> int:
        """Send a call; its number on this link. ``key`` is needed unless it only reads.

        Raises:
            BadRequest: the call, or its key, is none.
            TooLarge: it does not fit into a message.
            UnsupportedByPeer: this node can't do it.
            Unreachable: the session is not open.
        """
        features = self._need_open()
        checked(call)
        if key or not call.reads:
            check_key(key)
        if len(by) > ASKER:
            raise BadRequest(f"'by' is longer than {ASKER} characters", field="by")
        number = self._last_id + 1
        if not features.calls2:
            return self._call_old(number, key, call)
        window = self._window(window)
        message = CallMessage(number, call.op, key, to_json(call), window, deadline_ms, by)
        body = self._body(message)
        if len(body) > MESSAGE_LIMIT // 2:
            raise TooLarge(
                f"the call has {len(body)} characters, {MESSAGE_LIMIT // 2} fit into a message",
                remedy="send the content as a stream",
            )
        self._last_id = number
        self._out.bodies.append(body)
        self._add(number, Asked(key, call), window, {}, FIRST_WINDOW)
        return number

    def ask(
        self, call: Call, *, key: str, received: Mapping[str, int] | None = None, window: int = 0
    ) -> int:
        """After a lost link: what became of that call? Answered by :class:`CallTold` and,
        if it ran or runs, by its streams from ``received`` on and its result.

        Raises:
            BadRequest: the key is none.
            UnsupportedByPeer: this node remembers nothing.
            Unreachable: the session is not open.
        """
        features = self._need_open()
        check_key(key)
        if not features.calls2:
            raise UnsupportedByPeer("this node does not remember what it ran")
        offsets = {name: (received or {}).get(name, 0) for name in call.comes()}
        window = self._window(window)
        self._last_id += 1
        number = self._last_id
        self._out.bodies.append(self._body(Ask(number, key, offsets, window)))
        # What goes into the call is known when the node tells how much of it arrived.
        self._add(number, Asked(key, call), window, offsets, -1)
        return number

    def cancel(self, number: int, reason: str = "") -> bool:
        """End a call; its result says how it ended. False: this node can't."""
        if number not in self._channels or not self._need_open().calls2:
            return False
        self._out.control.append(Cancel(number, reason))
        return True

    def signal(self, number: int, signal: int) -> bool:
        """Send a signal to a call's command. False: this node can't."""
        if number not in self._channels or not self._need_open().calls2:
            return False
        self._out.control.append(Signal(number, signal))
        return True

    def forget(self, keys: tuple[str, ...]) -> None:
        """The results of these calls are stored here: the node need not keep them."""
        if keys and self._need_open().calls2:
            self._out.control.append(Forget(keys))

    def give_up(self, number: int) -> None:
        """No longer wait for a call of the old vocabulary; a late answer is ignored."""
        channel = self._channels.pop(number, None)
        if channel is not None:
            self._old.pop(channel.info.old, None)

    @property
    def under_way(self) -> int:
        """How many calls have no result yet."""
        return len(self._channels)

    def _window(self, window: int) -> int:
        return max(1, min(window or self._options.window, MOST_WINDOW))

    def _add(
        self, number: int, asked: Asked, window: int, offsets: Mapping[str, int], first: int
    ) -> None:
        channel = self._channels[number] = Channel(asked)
        for name in asked.call.comes():
            at = offsets.get(name, 0)
            channel.receiving[name] = Receiving(number, name, at, at + window, window)
        if first >= 0:
            for name in asked.call.fed():
                channel.sending[name] = Sending(number, name, 0, first)

    def _outstanding(self) -> tuple[Outstanding, ...]:
        return tuple(
            Outstanding(
                number,
                channel.info.key,
                channel.info.call.op,
                channel.info.call.reads,
                {name: stream.offset for name, stream in channel.receiving.items()},
            )
            for number, channel in self._channels.items()
        )

    # -- answers --------------------------------------------------------------------------

    def _on_result(self, message: ResultMessage) -> None:
        channel = self._channels.pop(message.id, None)
        if channel is None:
            self._odd("a result of no call", str(message.id))
            return
        asked: Asked = channel.info
        result = self._result(asked.call, message)
        for name, receiving in channel.receiving.items():
            sent = message.streams.get(name, receiving.offset)
            if not receiving.ended and sent != receiving.offset:
                result = broken(f"{name} has {sent} bytes, {receiving.offset} came")
        sent_all = dict(message.streams)
        self._events.append(CallEnded(message.id, asked.key, result, message.repeated, sent_all))

    def _result(self, call: Call, message: ResultMessage) -> Result:
        try:
            return result_from_json(type(call), message.ok, message.value)
        except BadRequest as error:
            return broken(f"the answer to '{call.op}' can't be used: {error}")

    def _on_told(self, told: Told) -> None:
        channel = self._channels.get(told.id)
        if channel is None or told.key != channel.info.key:
            self._odd("an answer to no question", f"{told.id} {told.state}")
            return
        state = told.state
        if state not in _STATES:  # whoever asked must not wait for what it would mean
            self._odd("a state of no meaning", f"{told.id} {state}")
            state = "unknown_outcome"
        if state in {"never_seen", "unknown_outcome"}:
            del self._channels[told.id]
        elif state == "running":
            for name in channel.info.call.fed():
                at = max(0, told.received.get(name, 0))
                channel.sending[name] = Sending(told.id, name, at, at + FIRST_WINDOW)
        self._events.append(CallTold(told.id, told.key, state, dict(told.received)))

    def _on_notice(self, notice: Notice) -> None:
        self._events.append(Noticed(notice.kind, dict(notice.body)))

    _HANDLERS: ClassVar[dict[type[Message], Callable[[Any, Any], None]]] = {
        ResultMessage: _on_result,
        Told: _on_told,
        Notice: _on_notice,
        OldExecResult: OldCalls._on_old,
        OldReadResult: OldCalls._on_old,
        OldWriteResult: OldCalls._on_old,
        ErrorMessage: OldCalls._on_old,
        OldExecChunk: OldCalls._on_chunk,
    }
