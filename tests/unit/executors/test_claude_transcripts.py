"""Recorded conversations with the real Claude Code, played through the driver.

The driver takes the place of the recorded client: it gets the recorded decisions as
commands and has to send, byte for byte in meaning, what the client sent.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.executors import claude_lines as lines

from handoff.executors.claude import ClaudeDriver
from handoff.executors.contract import (
    Allow,
    Answer,
    AskClosed,
    Command,
    Deny,
    Interrupt,
    Output,
    PermissionAsked,
    Prompt,
    PromptTaken,
    QuestionAsked,
    Retrying,
    Send,
    Session,
    SessionReady,
    StartFailed,
    Text,
    ToolCall,
    TurnEnded,
    Unrecognised,
)

FOLDER = pathlib.Path(__file__).parents[2] / "contract" / "transcripts" / "claude"
FILES = sorted(FOLDER.glob("*/*.jsonl"))
NAMES = [str(path.relative_to(FOLDER)) for path in FILES]


class Replay:
    """One transcript, played. ``reload``: the driver is saved and loaded at every step."""

    def __init__(self, path: pathlib.Path, *, reload: bool = False) -> None:
        self.path = path
        self.entries = [json.loads(line) for line in path.read_text().splitlines()]
        self.reload = reload
        self.driver = ClaudeDriver()
        self.seen: list[Output] = []
        self.sent: list[Any] = []

    def run(self) -> Replay:
        resumed = self.path.stem in ("resumed", "session-gone")
        resume = self._session_id() if resumed else None
        self._take(self.driver.open(Session(cwd="/tree", new_id=self._session_id(), resume=resume)))
        recorded = 1
        for entry in self.entries[1:]:
            message = entry["msg"]
            recorded += entry["dir"] == "send"
            if entry["dir"] == "recv":
                self._step()
                self._take(self.driver.feed(json.dumps(message).encode()))
            elif entry["dir"] == "exit":
                self._take(self.driver.exited(*message))
            elif len(self.sent) < recorded:  # else the driver sent it by itself
                self._step()
                self._take(self.driver.command(_command(message)))
        return self

    def _session_id(self) -> str:
        return next(
            found
            for entry in self.entries
            if isinstance(entry["msg"], dict) and (found := entry["msg"].get("session_id"))
        )

    def _step(self) -> None:
        if self.reload:
            self.driver = ClaudeDriver.load(self.driver.dump())

    def _take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                self.sent.append(json.loads(output.data))
            else:
                self.seen.append(output)

    def all(self, kind: type[Any]) -> list[Any]:
        return [output for output in self.seen if isinstance(output, kind)]


def _command(message: Any) -> Command:
    """The command behind a line that the client sent."""
    if message["type"] == "user":
        return Prompt(message["message"]["content"])
    if message["type"] == "control_request":
        return Interrupt()
    response = message["response"]
    decision = response["response"]
    if decision["behavior"] == "deny":
        return Deny(response["request_id"], decision["message"])
    given = decision["updatedInput"]
    if "answers" in given:
        texts = [question["question"] for question in given["questions"]]
        answers = tuple((given["answers"][text],) for text in texts)
        return Answer(response["request_id"], answers)
    return Allow(response["request_id"])


def play(name: str, **options: Any) -> Replay:
    return Replay(FOLDER / "2.1.332" / f"{name}.jsonl", **options).run()


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_the_driver_sends_what_was_sent_and_knows_every_line(path: pathlib.Path) -> None:
    replay = Replay(path).run()
    recorded = [entry["msg"] for entry in replay.entries if entry["dir"] == "send"]
    assert replay.sent == recorded
    assert replay.all(Unrecognised) == []
    ended = len(replay.all(TurnEnded)) + len(replay.all(StartFailed))
    assert ended == sum(message["type"] == "user" for message in recorded) or "gone" in path.name
    assert len(replay.all(AskClosed)) == len(
        replay.all(PermissionAsked) + replay.all(QuestionAsked)
    )


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_saving_and_loading_between_any_two_lines_changes_nothing(path: pathlib.Path) -> None:
    plain, reloaded = Replay(path).run(), Replay(path, reload=True).run()
    assert reloaded.seen == plain.seen
    assert reloaded.sent == plain.sent
    assert reloaded.driver.dump() == plain.driver.dump()


def test_a_gated_turn() -> None:
    replay = play("gated-turn")
    assert [type(o) for o in replay.seen[:2]] == [SessionReady, PromptTaken]
    assert [p.tool for p in replay.all(PermissionAsked)] == ["Write", "Bash"]
    assert len(replay.all(QuestionAsked)) == 1
    assert {closed.how for closed in replay.all(AskClosed)} == {"acknowledged"}
    assert "".join(text.text for text in replay.all(Text)) == "I write a file.All done."
    assert replay.all(TurnEnded) == [TurnEnded("All done.", None, "completed")]
    last = {call.id: call for call in replay.all(ToolCall)}
    assert [call.status for call in last.values()] == [
        "completed",
        "failed",
        "completed",
        "completed",
    ]


def test_a_sub_agent() -> None:
    replay = play("sub-agent")
    [outer] = [call for call in replay.all(ToolCall) if call.kind == "think"]
    assert [p.parent for p in replay.all(PermissionAsked)] == [outer.id]
    assert [t.text for t in replay.all(Text) if t.parent] == ["the sub-agent is done"]
    assert replay.all(TurnEnded)[0].text == "the end"


def test_requests_in_parallel() -> None:
    replay = play("parallel")
    assert len(replay.all(PermissionAsked)) == 2
    assert {closed.how for closed in replay.all(AskClosed)} == {"acknowledged"}


def test_an_interrupt_with_a_request_open() -> None:
    replay = play("interrupt-pending")
    assert [closed.how for closed in replay.all(AskClosed)] == ["withdrawn"]
    first, second = replay.all(TurnEnded)
    assert first.fault.code == "cancelled"
    assert second == TurnEnded("still here", None, "completed")


def test_a_resumed_session_and_one_that_is_gone() -> None:
    assert play("resumed").all(SessionReady)[0].context == "resumed"
    [failed] = play("session-gone").all(StartFailed)
    assert failed.lost


def test_a_retry() -> None:
    [retry] = play("retry").all(Retrying)
    assert (retry.attempt, retry.limit, retry.reason) == (1, 10, "server_error (HTTP 500)")


def test_failures_are_named_one_by_one() -> None:
    ends = play("failures").all(TurnEnded)
    assert [end.fault and end.fault.code for end in ends] == [
        "login",
        "limit",
        "overloaded",
        "model",
        "other",
        "cut_short",
        "other",
        "cut_short",
        "refused",
        None,
    ]


def test_a_killed_process() -> None:
    replay = play("killed")
    assert replay.all(AskClosed)[-1].how == "withdrawn"
    assert replay.all(TurnEnded)[-1].fault.code == "crash"


LINES = [
    json.dumps(entry["msg"]).encode()
    for path in FILES
    for entry in map(json.loads, path.read_text().splitlines())
    if entry["dir"] == "recv"
]
COMMANDS = st.one_of(
    st.builds(Prompt, st.text(max_size=5)),
    st.just(Interrupt()),
    st.sampled_from([Allow, Deny]),
    st.binary(max_size=40),
    st.integers(0, len(LINES) - 1),
    st.tuples(st.integers(0, len(LINES) - 1), st.integers(0, 3000), st.binary(max_size=3)),
)


@settings(max_examples=150)
@given(st.booleans(), st.lists(COMMANDS, max_size=60))
def test_whatever_comes_in_whatever_order_it_neither_raises_nor_depends_on_memory(
    working: bool, steps: list[Any]
) -> None:
    kept, reloaded = ClaudeDriver(), ClaudeDriver()
    session = Session(cwd="/tree", new_id="n")
    assert kept.open(session) == reloaded.open(session)
    pending: list[str] = []
    before = [lines.ready(), Prompt("go"), lines.init()] if working else []
    for step in before + steps:
        reloaded = ClaudeDriver.load(reloaded.dump())
        results = []
        for driver in (kept, reloaded):
            try:
                results.append(_do(driver, step, pending))
            except Exception as error:
                assert type(error).__name__ == "NotAllowed", repr(error)
                results.append([type(error).__name__])
        assert results[0] == results[1]
        for output in results[0]:
            if isinstance(output, PermissionAsked | QuestionAsked):
                assert output.id not in pending, "an id is asked for once"
                pending.append(output.id)
            if isinstance(output, AskClosed):
                pending.remove(output.id)
            if isinstance(output, TurnEnded):
                assert not pending, "nothing waits after its turn"
    assert kept.dump() == reloaded.dump()


def _do(driver: ClaudeDriver, step: Any, pending: list[str]) -> list[Any]:
    if isinstance(step, bytes):
        return list(driver.feed(step))
    if isinstance(step, int):
        return list(driver.feed(LINES[step]))
    if isinstance(step, tuple):
        index, at, junk = step
        line = LINES[index]
        return list(driver.feed(line[:at] + junk + line[at + len(junk) :]))
    if isinstance(step, type):
        return list(driver.command(step(pending[0] if pending else "nobody")))
    return list(driver.command(step))
