"""The node's end of a link.

It greets, then turns every call of the brain, in whichever vocabulary, into
:class:`CallAsked`, and what the program makes of it into the brain's own vocabulary. A link
lost does not end a call: the program goes on, keeps the result under the call's key, and
answers :class:`StateAsked` on a later link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from handoff.clock import iso
from handoff.errors import BadRequest, TooLarge, UsageError
from handoff.wire.node import oldcalls
from handoff.wire.node.calls import (
    Call,
    CallFailed,
    Result,
    call_from_json,
    check_key,
    to_json,
)
from handoff.wire.node.closing import Close, heard
from handoff.wire.node.events import (
    CallAsked,
    CancelAsked,
    Forgotten,
    Paired,
    SignalAsked,
    StateAsked,
)
from handoff.wire.node.features import PLUGIN
from handoff.wire.node.frames import MESSAGE_LIMIT, Frame, Refused
from handoff.wire.node.greeting import NodeGreeting
from handoff.wire.node.link import Channel, Link, _code
from handoff.wire.node.messages import (
    LEGACY_FILE_LIMIT,
    Ask,
    AuthErr,
    AuthOk,
    CallMessage,
    Cancel,
    ErrorMessage,
    Forget,
    HelloAck,
    HelloErr,
    Message,
    Notice,
    OldExec,
    OldExecResult,
    OldRead,
    OldWrite,
    Pair,
    PairErr,
    PairOk,
    RateLimit,
    ResultMessage,
    Signal,
    Told,
    Unknown,
)
from handoff.wire.node.options import NodeOptions
from handoff.wire.node.outbox import Ready
from handoff.wire.node.sealing import Ciphers, Random
from handoff.wire.node.streams import FIRST_WINDOW, MOST_WINDOW, WINDOW, Receiving, Sending

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["NodeLink"]

#: calls that may be under way on one link
CALL_LIMIT = 1_000
#: frames a second towards the plugin's server, which closes at 101
PLUGIN_RATE = 90
#: characters of a frame towards an old brain: 16 MiB less what escapes may add
OLD_FRAME = 15 * 1024 * 1024


class _Asked(NamedTuple):
    """A call under way. ``old``: its id in the old vocabulary, None in ours. ``content``:
    what a read of the old vocabulary has collected."""

    key: str
    call: Call
    old: str | None = None
    content: list[bytes] | None = None


class NodeLink(Link):
    """See :class:`~handoff.wire.node.link.Link` for what drives it. The hello is queued at
    once; with ``pair`` that message is sent instead, and the link ends when it is answered."""

    role = "node"

    def __init__(
        self,
        options: NodeOptions,
        clock: Clock,
        ciphers: Ciphers,
        random: Random,
        *,
        pair: Pair | None = None,
    ) -> None:
        super().__init__(
            clock, ciphers, random, handshake_s=options.handshake_s, stale_s=options.stale_s
        )
        self._options = options
        #: the brain's clock as it said, and ours at that moment
        self.brain_time: tuple[str, int] = ("", 0)
        self._greeting: NodeGreeting | None = None
        self._asked: dict[int, _Asked] = {}
        self._last_id = 0
        self._ping_at = 0.0
        self._times: deque[float] | None = None
        if pair is not None:
            self._out.control.append(Ready(self._greeting_frame(pair)))
            self._step("pair")
        else:
            self._greeting = NodeGreeting(options, ciphers, random)
            ts = iso(clock.now_ms())
            hello = self._greeting.make_hello(ts, self._greeting_frame)
            self._out.control.append(Ready(hello))
            self._step("hello")

    # -- time -----------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due by the clock."""
        super().tick()
        now = self._clock.monotonic()
        if self.state == "open" and now >= self._ping_at:
            self._ping_at = now + self._options.ping_s
            self._ping()

    def wake_at(self) -> float | None:
        """When to call :meth:`tick` and to look for frames again."""
        due = super().wake_at()
        if self.state != "open" or due is None:
            return due
        due = min(due, self._ping_at)
        if self._times is not None and self.busy and len(self._times) >= PLUGIN_RATE:
            due = min(due, self._times[0] + 1.0)
        return due

    def next_frame(self) -> Frame | None:
        """The next frame to send, or None: nothing may be sent now."""
        times = self._times
        if times is None or self.state != "open":
            return super().next_frame()
        now = self._clock.monotonic()
        while times and times[0] <= now - 1.0:
            times.popleft()
        if len(times) >= PLUGIN_RATE:
            return None
        frame = super().next_frame()
        if frame is not None:
            times.append(now)
        return frame

    # -- the handshake --------------------------------------------------------------------

    def _greet(self, message: Message, frame: Frame) -> None:
        assert isinstance(frame, str)
        if isinstance(message, HelloErr | AuthErr | PairErr):
            code = message.code or _code(message.reason)
            self._close(heard(code, message.reason or "refused", message.detail), tell=False)
            return
        if self.state == "pairing":
            if not isinstance(message, PairOk):
                raise Refused("unexpected_message")
            self._events.append(Paired(message))
            self._close(Close(1000, "paired"), tell=False)
            return
        greeting = self._greeting
        assert greeting is not None
        if self.state == "greeted":
            if not isinstance(message, HelloAck):
                raise Refused("unexpected_message", f"'{message.type}' instead of hello_ack")
            self.brain_time = (message.server_time, self._clock.now_ms())
            ts = iso(self._clock.now_ms())
            auth = greeting.take_ack(message, frame, ts, self._greeting_frame)
            self.session_id = message.session_id
            self._out.control.append(Ready(auth))
            self._step("hello_ack")
            return
        if not isinstance(message, AuthOk):
            raise Refused("unexpected_message", f"'{message.type}' instead of auth_ok")
        greeting.take_ok(message)
        self._greeting = None
        self._ping_at = self._clock.monotonic() + self._options.ping_s
        if greeting.features.profile == PLUGIN:
            self._times = deque()
        self._open(greeting.frames(), greeting.features, greeting.hello)

    def _reason_lost(self, code: int, text: str) -> str:
        # The plugin's server v0.1.2 closes without a word when a hello has unknown fields.
        if self.state == "greeted" and code == 4003 and not text:
            return "bad_hello"
        return super()._reason_lost(code, text)

    # -- answers --------------------------------------------------------------------------

    def send(self, number: int, stream: str, data: bytes | memoryview) -> bool:
        """Send bytes of a call's stream; False: enough waits, go on after ``Drained``."""
        asked = self._asked.get(number)
        if asked is not None and asked.content is not None:
            if stream == "data" and sum(map(len, asked.content)) <= LEGACY_FILE_LIMIT:
                asked.content.append(bytes(data))
            return True
        return super().send(number, stream, data)

    def finish(self, number: int, result: Result, *, repeated: bool = False) -> None:
        """Answer a call, once. It goes out after the streams of the call, which end with
        it. ``repeated``: nothing was run now."""
        asked = self._asked.pop(number, None)
        channel = self._channels.get(number)
        if asked is None or channel is None:
            return
        if asked.old is not None:
            del self._channels[number]
            self._out.bodies.append(self._old_body(asked, result))
            return
        streams = {
            name: sending.offset + sending.pending for name, sending in channel.sending.items()
        }
        self._hold(number, self._result_body(number, result, streams, repeated))

    def refuse(self, number: int, failed: CallFailed) -> None:
        """Answer a call that is not carried out."""
        self.finish(number, failed)

    def tell(
        self,
        number: int,
        call: Call | None,
        state: str,
        received: Mapping[str, int] | None = None,
    ) -> None:
        """Answer :class:`StateAsked`. ``call``: the one of that key, needed for ``running``
        and ``done``; its streams go on from the offsets asked for, and :meth:`finish`
        follows. ``received``: how much of the streams into it has arrived."""
        channel = self._channels.get(number)
        if channel is None or not isinstance(channel.info, Ask):
            return
        ask = channel.info
        got = dict(received or {})
        self._out.control.append(Told(number, ask.key, state, got))
        if state not in {"running", "done"} or call is None:
            del self._channels[number]
            return
        channel.info = None
        self._asked[number] = _Asked(ask.key, call)
        self._streams(channel, number, call, ask.window, ask.offsets)
        if state == "running":
            for name in call.fed():
                at = got.get(name, 0)
                channel.receiving[name] = Receiving(number, name, at, at + FIRST_WINDOW, WINDOW)

    def notice(self, kind: str, body: Mapping[str, Any]) -> None:
        """Tell the brain of something that no call asked for."""
        if self.state == "open" and self.features is not None and self.features.calls2:
            self._out.bodies.append(self._body(Notice(kind, body)))

    def _result_body(
        self, number: int, result: Result, streams: dict[str, int], repeated: bool
    ) -> str:
        ok = not isinstance(result, CallFailed)
        try:
            body = self._body(ResultMessage(number, ok, to_json(result), streams, repeated))
        except UsageError as error:
            failed = CallFailed("internal", f"the answer can't be written: {error}")
            return self._body(ResultMessage(number, False, to_json(failed), streams, repeated))
        if len(body) > MESSAGE_LIMIT // 2 and len(body.encode()) > MESSAGE_LIMIT:
            failed = CallFailed.of(
                TooLarge("the answer does not fit into a message", remedy="ask for less at once")
            )
            return self._body(ResultMessage(number, False, to_json(failed), streams, repeated))
        return body

    def _old_body(self, asked: _Asked, result: Result) -> str:
        content = b"".join(asked.content or ())
        if len(content) > LEGACY_FILE_LIMIT and not isinstance(result, CallFailed):
            result = CallFailed("file_too_large", "the file has more than 10 MiB")
        assert asked.old is not None
        plugin = self._options.plugin or (
            self.features is not None and self.features.profile == PLUGIN
        )
        message = oldcalls.to_old_result(asked.call, asked.old, result, content, plugin=plugin)
        body = self._body(message)
        while isinstance(message, OldExecResult) and len(body.encode()) > OLD_FRAME:
            message = _halved(message)
            body = self._body(message)
        return body

    # -- calls ----------------------------------------------------------------------------

    def _on_call(self, message: CallMessage) -> None:
        if not self._new_id(message.id):
            return
        channel = self._channels[message.id] = Channel(None)
        try:
            call = call_from_json(message.op, message.args)
            if message.key or not call.reads:
                check_key(message.key)
        except BadRequest as error:
            self._fail(message.id, CallFailed.of(error, retry_safe=True))
            return
        if len(self._asked) >= CALL_LIMIT:
            cause = f"{CALL_LIMIT} calls are under way on this link"
            self._fail(message.id, CallFailed("not_allowed", cause, retry_safe=True))
            return
        self._asked[message.id] = _Asked(message.key, call)
        self._streams(channel, message.id, call, message.window, {})
        for name in call.fed():
            channel.receiving[name] = Receiving(message.id, name, 0, FIRST_WINDOW, WINDOW)
        self._events.append(
            CallAsked(message.id, message.key, call, message.by, max(0, message.deadline_ms))
        )

    def _streams(
        self, channel: Channel, number: int, call: Call, window: int, offsets: Mapping[str, int]
    ) -> None:
        window = max(0, min(window, MOST_WINDOW))
        for name in call.comes():
            at = max(0, offsets.get(name, 0))
            channel.sending[name] = Sending(number, name, at, at + window)

    def _fail(self, number: int, failed: CallFailed) -> None:
        self._hold(number, self._result_body(number, failed, {}, False))

    def _new_id(self, number: int) -> bool:
        """Whether the brain's number for a call or question is a fresh one."""
        if not self._last_id < number < 2**32:
            self._odd("a call whose number was used", str(number))
            return False
        self._last_id = number
        return True

    def _on_cancel(self, cancel: Cancel) -> None:
        if cancel.id in self._asked:
            self._events.append(CancelAsked(cancel.id, cancel.reason))

    def _on_signal(self, signal: Signal) -> None:
        if signal.id in self._asked and 0 < signal.signal < 65:
            self._events.append(SignalAsked(signal.id, signal.signal))

    def _on_ask(self, ask: Ask) -> None:
        if self._new_id(ask.id):
            self._channels[ask.id] = Channel(ask)
            offsets = {name: max(0, at) for name, at in ask.offsets.items()}
            self._events.append(StateAsked(ask.id, ask.key, offsets))

    def _on_forget(self, forget: Forget) -> None:
        self._events.append(Forgotten(forget.keys))

    def _on_old(self, message: OldExec | OldRead | OldWrite) -> None:
        self._last_id += 1
        number = self._last_id
        try:
            call = oldcalls.from_old(message)
        except BadRequest as error:
            self._say_error(message.id, "bad_request", str(error))
            return
        if len(self._asked) >= CALL_LIMIT:
            self._say_error(message.id, "internal_error", "too many calls are under way")
            return
        self._channels[number] = Channel(None)
        content: list[bytes] | None = [] if isinstance(message, OldRead) else None
        self._asked[number] = _Asked("", call, message.id, content)
        self._events.append(CallAsked(number, "", call))

    def _say_error(self, number: str, reason: str, detail: str) -> None:
        body = ErrorMessage(number, oldcalls.CODES[reason], reason, detail)
        self._out.bodies.append(self._body(body))

    def _on_rate_limit(self, message: RateLimit) -> None:
        detail = f"{message.limit_per_second} messages a second"
        self._close(heard(4004, "rate_limit_exceeded", detail), tell=False)

    def _on_unknown(self, unknown: Unknown) -> None:
        super()._on_unknown(unknown)
        if self.features is not None and not self.features.calls2:
            number = unknown.id if isinstance(unknown.id, str) else ""
            self._say_error(number, "unknown_message", unknown.type_name)

    def _refuse(self, refused: Refused) -> None:
        super()._refuse(refused)
        if self.state != "open" or self.features is None:
            return
        number: Any = refused.number
        if not self.features.calls2:
            known = number if isinstance(number, str) else ""
            self._say_error(known, "bad_request", refused.detail[:200])
        elif refused.said == "call" and type(number) is int and self._new_id(number):
            # A call that can't be read is answered all the same: nobody waits for nothing.
            self._channels[number] = Channel(None)
            error = BadRequest(f"the call can't be read: {refused.detail[:200]}")
            self._fail(number, CallFailed.of(error, retry_safe=True))

    def _clear(self) -> None:
        super()._clear()
        self._asked.clear()

    _HANDLERS: ClassVar[dict[type[Message], Callable[[Any, Any], None]]] = {
        CallMessage: _on_call,
        Cancel: _on_cancel,
        Signal: _on_signal,
        Ask: _on_ask,
        Forget: _on_forget,
        OldExec: _on_old,
        OldRead: _on_old,
        OldWrite: _on_old,
        RateLimit: _on_rate_limit,
        Unknown: _on_unknown,
    }


def _halved(message: OldExecResult) -> OldExecResult:
    """The same with half of its output, said to be cut."""
    return OldExecResult(
        message.id,
        message.status,
        message.exit_code,
        message.stdout[: len(message.stdout) // 2],
        message.stderr[: len(message.stderr) // 2],
        message.duration_ms,
        True,
        message.returncode,
    )
