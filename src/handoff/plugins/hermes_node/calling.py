"""One call from a tool of the host's: its key, who asks, and how long it is waited for.

The host tells the ids of a tool call to its middleware, not to the tool, so they are noted
there for the time of the call. From them comes the key of what changes something: the same
tool call of the same request to the model is the same call for the node, whoever repeats it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from handoff.errors import Failed, HandoffError, OutcomeUnknown, TimedOut
from handoff.nodes.client import BrainClient, new_key

__all__ = ["Answer", "Ask", "around", "ask", "key_of"]

#: the ids of the tool call that runs in this context
_IDS: ContextVar[Mapping[str, str] | None] = ContextVar("hermes_node_ids", default=None)
_NAMES = ("session_id", "turn_id", "api_request_id", "tool_call_id")
#: seconds between looks at whether the user has interrupted
LOOK_S = 0.1
#: seconds that a cancelled call may take to end
CANCEL_S = 15.0
#: seconds that the brain may take to hear of it
TELL_S = 5.0
#: what a client thread makes of an answer
Answer = tuple[bool, dict[str, Any]]


def around(*, next_call: Callable[..., Any], args: Any = None, **told: Any) -> Any:
    """The host's middleware around every tool: remembers the ids, changes nothing."""
    ids = {name: str(told.get(name) or "") for name in _NAMES}
    token = _IDS.set(ids)
    try:
        return next_call(args)
    finally:
        _IDS.reset(token)


def key_of(op: str, target: str, args: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The key of a call. ``given``: what the host handed to the tool.

    Made from the host's ids where they name one request to the model and one call in it; a
    model's own call id alone may come again for another call. Otherwise it is new.
    """
    told = _IDS.get() or {}
    ids = {name: str(given.get(name) or told.get(name) or "") for name in _NAMES}
    if not (ids["tool_call_id"] and (ids["api_request_id"] or ids["turn_id"])):
        return new_key()
    what = [*(ids[name] for name in _NAMES), op, target, dict(args)]
    text = json.dumps(what, sort_keys=True, default=str)
    return "call-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


@dataclass
class Ask:
    """A call. ``limit_s``: how long it is waited for, 0: until it ends. ``feed``: its stream
    into the node; ``pieces``: told of the streams out of it."""

    target: str
    op: str
    args: Mapping[str, Any]
    key: str = ""
    by: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0
    limit_s: float = 0
    pieces: Callable[[str, bytes], None] | None = None
    feed: Iterator[bytes] | None = None
    reads: bool = False


def ask(client: BrainClient, call: Ask) -> Answer:
    """Make a call and wait for it. When the user interrupts the host, the call is cancelled
    on the node, and its result is waited for a little.

    Raises:
        HandoffError: the request was refused.
        Failed: a reading call was interrupted.
        TimedOut: a reading call took longer than its limit.
        OutcomeUnknown: another did.
    """
    made: list[Answer | BaseException] = []

    def work() -> None:
        try:
            made.append(
                client.call(
                    call.target,
                    call.op,
                    call.args,
                    key=call.key,
                    by=call.by,
                    wait_s=call.wait_s,
                    pieces=call.pieces,
                    feed=call.feed,
                )
            )
        except BaseException as error:
            made.append(error)

    thread = threading.Thread(target=work, name="hermes-node-call", daemon=True)
    thread.start()
    until = time.monotonic() + call.limit_s + call.wait_s if call.limit_s else float("inf")
    asked = _interrupted()
    try:
        while thread.is_alive() and time.monotonic() < until:
            thread.join(LOOK_S)
            if thread.is_alive() and asked():
                if call.reads:  # nothing comes of it, whenever it answers
                    raise Failed(f"interrupted before {call.target} answered", remedy="ask again")
                _cancel(client, call.key)
                until, asked = min(until, time.monotonic() + CANCEL_S), _never
    except BaseException:  # Ctrl-C: what it started must not go on alone
        _cancel(client, call.key)
        raise
    if not made:
        _late(client, call)
    (answer,) = made
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _late(client: BrainClient, call: Ask) -> None:
    _cancel(client, call.key)
    if call.reads:
        raise TimedOut(
            f"{call.target} has not answered within {call.limit_s:g} s",
            remedy="ask again, with a longer timeout_ms",
        )
    raise OutcomeUnknown(
        f"{call.target} has not answered in time; it may have been done",
        remedy="ask again with the same key: that does nothing twice",
        key=call.key,
    )


def _cancel(client: BrainClient, key: str) -> None:
    if key:
        with contextlib.suppress(HandoffError, OSError):
            client.ask("cancel", key=key, within_s=TELL_S)


def _never() -> bool:
    return False


def _interrupted() -> Callable[[], bool]:
    """How to ask the host whether the user interrupts this thread's work."""
    try:
        found = importlib.import_module("tools.interrupt").is_interrupted
    except Exception:  # an import of the host's may throw anything: then it can't be asked
        return _never

    def look() -> bool:
        try:
            return bool(found())
        except Exception:
            return False

    return look
