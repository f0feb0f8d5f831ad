"""The part of a brain's end that speaks the old vocabulary, to Go nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

from handoff.errors import Unreachable
from handoff.wire.node import oldcalls
from handoff.wire.node.calls import Call, CallFailed, Exec, Read, ReadResult, Result
from handoff.wire.node.closing import safe
from handoff.wire.node.events import CallEnded, Oddity, StreamPiece
from handoff.wire.node.features import Features
from handoff.wire.node.link import Channel, Link
from handoff.wire.node.messages import ErrorMessage, OldExecChunk

__all__ = ["Asked", "OldCalls", "broken"]


class Asked(NamedTuple):
    """A call under way. ``old``: its id in the old vocabulary. ``chunks``: its pieces."""

    key: str
    call: Call
    old: str = ""
    chunks: oldcalls.Chunks | None = None


def broken(cause: str) -> CallFailed:
    """The failure that stands for an answer which can't be one."""
    return CallFailed("protocol_violation", cause)


class OldCalls(Link):
    """Calls of the old vocabulary, by the id that they have there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._last_id = 0
        self._old: dict[str, int] = {}

    def _need_open(self) -> Features:
        if self.state != "open" or self.features is None:
            raise Unreachable("the link to the node is not open")
        return self.features

    def _call_old(self, number: int, key: str, call: Call) -> int:
        old = self._clock.new_id()
        body = self._body(oldcalls.to_old(call, old))
        chunks = None
        if isinstance(call, Exec) and self._need_open().chunks:
            chunks = oldcalls.Chunks(call)
        self._last_id = number
        self._out.bodies.append(body)
        self._old[old] = number
        self._channels[number] = Channel(Asked(key, call, old, chunks))
        return number

    def _on_old(self, message: Any) -> None:
        number = self._old.pop(message.id, None)
        channel = self._channels.pop(number, None) if number is not None else None
        if number is None or channel is None:
            what = "an error of no call" if isinstance(message, ErrorMessage) else "a late answer"
            reason = getattr(message, "reason", "")
            self._odd(what, f"{message.type} {message.id} {reason}")
            return
        asked: Asked = channel.info
        result = oldcalls.from_old_result(asked.call, message)
        if isinstance(asked.call, Read) and asked.call.stream and isinstance(result, ReadResult):
            self._events.append(StreamPiece(number, "data", result.data, True))
        self._events.append(CallEnded(number, asked.key, result))

    def _on_chunk(self, message: OldExecChunk) -> None:
        number = self._old.get(message.id)
        channel = self._channels.get(number) if number is not None else None
        chunks = channel.info.chunks if channel else None
        if number is None or channel is None or chunks is None:
            # The Go node sends one more piece when a command ends after its time limit.
            self._events.append(Oddity("a piece of no call", safe(message.id, 64)))
            return
        if not chunks.take(message.seq, message.data):
            self._finish_chunks(number, channel, broken("a piece of the output is missing"))
            return
        call: Exec = channel.info.call
        if call.stream and message.data:
            self._events.append(StreamPiece(number, "stdout", message.data, False))
        if not message.more:
            result = chunks.result(
                message.status,
                message.exit_code,
                message.duration_ms,
                truncated=message.truncated,
                streamed=call.stream,
            )
            if call.stream:
                self._events.append(StreamPiece(number, "stdout", b"", True))
            self._finish_chunks(number, channel, result)

    def _finish_chunks(self, number: int, channel: Channel, result: Result) -> None:
        del self._channels[number]
        self._old.pop(channel.info.old, None)
        self._events.append(CallEnded(number, channel.info.key, result))
