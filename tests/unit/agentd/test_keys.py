from __future__ import annotations

import pytest
from starlette.requests import Request
from tests.unit.agentd.harness import Box

from handoff.agentd.core import Core
from handoff.agentd.keys import Key
from handoff.errors import OutcomeUnknown, UsageError


def key(box: Box, text: str, operation: str) -> Key:
    headers = [(b"handoff-request", text.encode())] if text else []
    return Key(box.store, Request({"type": "http", "headers": headers}), operation)


def record(box: Box, one: Key) -> None:
    def add(core: Core) -> None:
        core.event("progress", {})
        core.change.request = one.record({"ok": True})

    box.step(add)


def test_a_key_gives_its_answer_again_and_to_its_call_alone(box: Box) -> None:
    first = key(box, "k", "stop a")
    assert first.answer() is None
    record(box, first)
    assert key(box, "k", "stop a").answer() == {"ok": True, "repeated": True}
    with pytest.raises(UsageError):
        key(box, "k", "stop b").answer()


def test_two_calls_of_two_tasks_can_not_share_a_key_at_once(box: Box) -> None:
    record(box, key(box, "k", "stop a"))
    before = box.types()
    with pytest.raises(UsageError):
        record(box, key(box, "k", "stop b"))
    assert box.types() == before


async def test_what_was_begun_is_not_begun_again(box: Box) -> None:
    await key(box, "k", "run a").begin(box.clock, "look")
    with pytest.raises(OutcomeUnknown):
        await key(box, "k", "run a").begin(box.clock, "look")
    with pytest.raises(UsageError):
        await key(box, "k", "run b").begin(box.clock, "look")


async def test_no_key_is_always_new(box: Box) -> None:
    for _ in range(2):
        none = key(box, "", "run a")
        assert none.answer() is None
        assert none.record({}) is None
        await none.begin(box.clock, "look")
