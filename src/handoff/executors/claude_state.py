"""What the driver of Claude Code remembers, and commits with every line."""

from __future__ import annotations

from typing import Literal

import msgspec

from handoff.wire import claude as wire

VERSION = 1


class Ask(msgspec.Struct):
    """A request of the executor that waits for us, or for proof that it has our answer.

    ``decided``: "" while it waits. ``reply``: the reason of a denial; for a question its
    answers, one a question.
    """

    kind: Literal["permission", "question"]
    raw: str
    tool_use_id: str | None
    questions: tuple[str, ...] = ()
    decided: Literal["", "allow", "deny", "answer"] = ""
    reply: tuple[str, ...] = ()

    def line(self, request_id: str) -> bytes:
        """Our decision as the executor reads it."""
        if self.decided == "allow":
            return wire.allow(request_id, self.raw)
        if self.decided == "deny":
            return wire.deny(request_id, self.reply[0])
        answers = dict(zip(self.questions, self.reply, strict=True))
        return wire.answer(request_id, self.raw, answers)


class Stream(msgspec.Struct):
    """The message that streams now: what was already said need not be said again."""

    message_id: str
    said: bool = False
    thought: bool = False


class State(msgspec.Struct):
    """All that a driver knows. ``phase``: ``over`` when no prompt can come any more.
    ``queued``: the prompt that waits for the session. ``background``: tasks that run beside
    the conversation. ``closed``: ids of the last requests that are settled. ``parents``:
    open tool call -> the sub-agent's. ``tail``: the end of the main agent's last message.
    """

    version: int = VERSION
    phase: Literal["new", "opening", "ready", "over"] = "new"
    cwd: str = ""
    session_id: str = ""
    resume: bool = False
    model: str | None = None
    instructions: str = ""
    sent: int = 0
    queued: str | None = None
    turn: bool = False
    taken: bool = False
    interrupted: bool = False
    background: int = 0
    asks: dict[str, Ask] = {}
    closed: list[str] = []
    parents: dict[str, str | None] = {}
    streams: dict[str, Stream] = {}
    tail: str = ""
    tail_id: str = ""
    error: str | None = None
    resets: str | None = None
