"""Any sequence of messages, in any state of either end: typed, bounded, never a traceback."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nodelink import (
    BY_KEY,
    BY_TOKEN,
    KEYED,
    TOKEN,
    Raw,
    Wires,
    brain_link,
    node_link,
)

from handoff.clock import FakeClock
from handoff.wire.node import events as ev
from handoff.wire.node.calls import CALLS, CallFailed, Exec, ExecResult, Read, TreePut
from handoff.wire.node.frames import STREAMS, BinaryFrames, Piece, dumps
from handoff.wire.node.link import Link
from handoff.wire.node.messages import MESSAGES
from handoff.wire.node.options import NodeOptions

FIELDS = sorted(
    {f.name for cls in MESSAGES.values() for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
)
#: values that get far: right kinds, known names, numbers at the edges
VALUES = st.sampled_from(
    [
        *(0, 1, 2, 3, -1, 2**32, 2**63 - 1, 2**64, 1.5, True, False, None, "", "x", "lab", TOKEN),
        *(
            "0.1.0",
            "exec",
            "read",
            "stat",
            "write",
            "tree_put",
            "key-0001",
            "stdout",
            "stdin",
            "data",
        ),
        *(
            "running",
            "done",
            "never_seen",
            "ok",
            "error",
            "AAAA",
            "A" * 43,
            "A" * 86,
            "ä",
            "\ud800",
        ),
        *([], ["exec"], ["calls2", "frames2", "e2e2", "keys"], [1], {}, {"path": "/x"}),
        *({"command": "x"}, {"command": "x", "stream": True}, {"stdout": 5}, {"stdin": -5}),
        *({"status": "ok"}, {"code": "x"}, {"a": {"b": [None]}}),
    ]
)
MESSAGE = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.sampled_from([*sorted(MESSAGES), "zzz"]),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6),
)
PIECE = st.builds(
    Piece,
    id=st.integers(0, 4),
    stream=st.sampled_from(STREAMS),
    offset=st.sampled_from([0, 1, 5, 2**63]),
    data=st.binary(max_size=5),
    end=st.booleans(),
)


def frame_of(writer: BinaryFrames | None, item: Any) -> Any:
    if isinstance(item, Piece):
        return writer.write(item) if writer else "nonsense"
    text = json.dumps(item)
    return writer.write(text) if writer else text


def brain_before_hello() -> tuple[Link, BinaryFrames | None]:
    return brain_link(FakeClock()), None


def brain_before_auth() -> tuple[Link, BinaryFrames | None]:
    link = brain_link(FakeClock())
    raw = Raw(link)
    raw.say(dumps({"type": "hello", "protocol_version": "0.1.0", "node_name": "lab"}))
    link.identify(BY_TOKEN)
    raw.heard()
    return link, None


def node_before_ack() -> tuple[Link, BinaryFrames | None]:
    link = node_link(FakeClock(), NodeOptions("lab", token=TOKEN))
    Raw(link).heard()
    return link, None


def node_before_ok() -> tuple[Link, BinaryFrames | None]:
    link, _ = node_before_ack()
    Raw(link).say('{"type":"hello_ack","protocol_version":"0.1.0","session_id":"s"}')
    return link, None


def open_ours(role: str) -> tuple[Link, BinaryFrames | None]:
    wires = Wires(BY_KEY, dataclasses.replace(KEYED, seal=False)).pump()
    for call in (Exec(command="x", stream=True, stdin="stream"), Read("/x"), TreePut("/x")):
        wires.brain.call(call, key="key-0001", window=10)
    wires.brain.ask(Exec(command="x"), key="key-0002")
    wires.pump()
    link, other = (wires.brain, wires.node) if role == "brain" else (wires.node, wires.brain)
    frames = other._out.frames
    assert isinstance(frames, BinaryFrames)
    return link, frames


def open_old(role: str) -> tuple[Link, BinaryFrames | None]:
    wires = Wires(BY_TOKEN, NodeOptions("lab", token=TOKEN, plugin=True)).pump()
    wires.brain.call(Exec(command="x"), key="key-0001")
    return (wires.brain if role == "brain" else wires.node), None


STATES: dict[str, Any] = {
    "brain before hello": brain_before_hello,
    "brain before auth": brain_before_auth,
    "node before hello_ack": node_before_ack,
    "node before auth_ok": node_before_ok,
    "brain open": lambda: open_ours("brain"),
    "node open": lambda: open_ours("node"),
    "brain open, old": lambda: open_old("brain"),
    "node open, old": lambda: open_old("node"),
}


@pytest.mark.parametrize("state", STATES)
@settings(deadline=None, max_examples=60)
@given(items=st.lists(MESSAGE | PIECE, max_size=8), answers=st.lists(st.integers(0, 3)))
def test_any_messages_in_any_state(state: str, items: list[Any], answers: list[int]) -> None:
    link, writer = STATES[state]()
    answers.reverse()
    ends = 0
    for item in items:
        link.receive(frame_of(writer, item))
        for event in link.events():
            ends += isinstance(event, ev.Ended)
            react(link, event, answers.pop() if answers else 0)
        while link.next_frame() is not None:
            pass
    ends += sum(isinstance(event, ev.Ended) for event in link.events())
    assert ends == (link.closing is not None)
    assert link.state in {"opened", "greeted", "authenticating", "pairing", "open", "closing"}
    if link.closing is not None:
        assert len(link.closing.text.encode()) <= 123
        assert 1000 <= link.closing.code < 5000 or not link.closing.ours
    link.tick()
    link.lost(1006)
    assert link.state == "closed"
    assert link.next_frame() is None


def react(link: Any, event: Any, answer: int) -> None:
    """What a program might do."""
    if isinstance(event, ev.Identify):
        link.identify([None, BY_KEY, BY_TOKEN, dataclasses.replace(BY_TOKEN, revoked=True)][answer])
    elif isinstance(event, ev.Admit | ev.PairAsked):
        if answer:
            link.refuse("not_now")
        elif isinstance(event, ev.Admit):
            link.admit()
    elif isinstance(event, ev.StateAsked):
        states = ["running", "done", "never_seen", "unknown_outcome"]
        link.tell(event.id, Exec(command="x", stream=True), states[answer], {"stdin": 3})
    elif isinstance(event, ev.CallAsked):
        assert type(event.call) in CALLS.values()
        for stream in event.call.comes():
            link.send(event.id, stream, b"abc")
        if answer:
            results = (ExecResult("ok", 0), CallFailed("io_error"), ExecResult("timeout"))
            link.finish(event.id, results[answer - 1])
    elif isinstance(event, ev.StreamPiece):
        link.consume(event.id, event.stream, len(event.data))
