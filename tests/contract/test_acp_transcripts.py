"""Recorded conversations with real agents, one set per agent and version.

Beside each transcript lies what the driver has to observe in it, line by line. The tests by
name say what matters; the comparison with the file catches everything else.
"""

from __future__ import annotations

import pytest
from tests.contract.replay import TRANSCRIPTS, Replay, lines_of

from handoff.executors.contract import (
    AskClosed,
    Noticed,
    PermissionAsked,
    PromptTaken,
    QuestionAsked,
    Retrying,
    SessionReady,
    Text,
    TurnEnded,
    Unrecognised,
)

NAMES = sorted(path.stem for path in TRANSCRIPTS.glob("*.jsonl"))


def of(kind, name):
    return [one for one in Replay(name).observed if isinstance(one, kind)]


def sent_results(name):
    return [m["result"] for m in Replay(name).sent if "result" in m]


@pytest.mark.parametrize("name", NAMES)
def test_observes_exactly_what_was_written_down(name):
    expected = (TRANSCRIPTS / f"{name}.expected").read_text().splitlines()
    assert lines_of(Replay(name).observed) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_driver_loaded_after_every_step_observes_and_sends_the_same(name):
    plain, reloaded = Replay(name), Replay(name, reload=True)
    assert reloaded.observed == plain.observed
    assert reloaded.sent == plain.sent


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_the_recorded_versions_is_unrecognised(name):
    assert of(Unrecognised, name) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_ask_is_closed_once_and_every_turn_ends_once(name):
    observed = Replay(name).observed
    open_asks: set[str] = set()
    turn = False
    for one in observed:
        if isinstance(one, PromptTaken):
            assert not turn
            turn = True
        elif isinstance(one, PermissionAsked | QuestionAsked):
            assert one.id not in open_asks
            open_asks.add(one.id)
        elif isinstance(one, AskClosed):
            open_asks.remove(one.id)
        elif isinstance(one, TurnEnded):
            assert turn and not open_asks
            turn = False


@pytest.mark.parametrize("name", NAMES)
def test_no_answer_of_ours_is_an_always(name):
    played = Replay(name)
    for message in played.sent:
        chosen = (message.get("result") or {}).get("outcome")
        if not isinstance(chosen, dict) or chosen.get("outcome") != "selected":
            continue
        options = played._requests[message["id"]]["params"]["options"]
        kinds = {o["optionId"]: o["kind"] for o in options}
        assert kinds[chosen["optionId"]] in ("allow_once", "reject_once")


@pytest.mark.parametrize(
    ("name", "agent", "version"),
    [
        ("opencode-basic", "OpenCode", "1.18.33"),
        ("grok-basic", None, "1.0.41"),
        ("gemini-basic", "Gemini CLI", "0.61.0"),
        ("kimi-basic", "Kimi Code CLI", "2.1.0"),
        ("hermes-basic", "hermes-agent", "0.19.0"),
        ("claude-acp-basic", "Claude Agent", "0.101.0"),
        ("codex-acp-basic", "Codex", "2.6.0"),
    ],
)
def test_a_whole_gated_turn(name, agent, version):
    (ready,) = of(SessionReady, name)
    assert (ready.agent, ready.version, ready.context) == (agent, version, "new")
    commands = [asked.command for asked in of(PermissionAsked, name)]
    assert "rm -rf build" in commands
    (ended,) = of(TurnEnded, name)
    assert ended.fault is None and ended.stop_reason == "end_turn"
    assert {closed.how for closed in of(AskClosed, name)} <= {"acknowledged", "withdrawn"}


@pytest.mark.parametrize("name", ["claude-acp-basic", "codex-acp-basic", "kimi-basic"])
def test_a_question_by_form_is_asked_and_answered_in_the_turn(name):
    (asked,) = of(QuestionAsked, name)
    (question,) = asked.questions
    assert question.text == "Which driver?"
    assert [c.label for c in question.choices] == ["pgx", "gorm"]
    (answer,) = [r for r in sent_results(name) if "action" in r]
    assert answer["action"] == "accept"
    assert list(answer["content"].values()) == ["pgx"]


def test_groks_question_is_answered_by_its_text():
    answers = [r for r in sent_results("grok-question") if "outcome" in r]
    assert answers[0] == {"outcome": "accepted", "answers": {"Which driver?": "pgx"}}


def test_a_write_of_gemini_and_claude_shows_the_file():
    write = of(PermissionAsked, "gemini-basic")[0]
    assert [(e.path, e.new) for e in write.edits] == [("/home/me/project/notes.txt", "hi\n")]
    write = of(PermissionAsked, "claude-acp-basic")[0]
    assert write.kind == "write" and write.edits[0].whole


def test_a_denial_that_ends_the_turn_says_so():
    ended = of(TurnEnded, "grok-reject-reason")[0]
    assert ended.fault is not None and ended.fault.code == "cancelled"
    assert "denial" in ended.fault.message


def test_a_turn_goes_on_after_a_denial_where_the_agent_goes_on():
    first = of(TurnEnded, "claude-acp-deep")[0]
    assert (first.text, first.fault) == ("understood", None)


def test_an_interrupt_withdraws_what_is_pending():
    closed = of(AskClosed, "claude-acp-deep")
    assert [c.id for c in closed if c.how == "withdrawn"] == ["5"]
    ended = [e for e in of(TurnEnded, "claude-acp-deep") if e.fault is not None]
    assert {e.fault.message for e in ended} == {"interrupted"}


def test_codex_reports_a_failed_turn_as_ended_and_it_is_told_as_failed():
    (ended,) = of(TurnEnded, "codex-acp-err-429")
    assert ended.stop_reason == "end_turn"
    assert ended.fault is not None
    assert (ended.fault.code, ended.fault.status) == ("limit", 429)
    (ended,) = of(TurnEnded, "codex-acp-err-400")
    assert ended.fault is not None and ended.fault.message == "stub error 400"


def test_codex_recovering_is_no_failure():
    for name in ("codex-acp-err-500x1", "codex-acp-err-drop"):
        (ended,) = of(TurnEnded, name)
        assert ended.fault is None and ended.text == "recovered"


def test_groks_retries_are_told():
    attempts = [(r.attempt, r.limit) for r in of(Retrying, "grok-err-500")]
    assert attempts == [(n, 15) for n in range(1, 6)]


@pytest.mark.parametrize(
    ("name", "code", "status"),
    [
        ("grok-err-429", "limit", 429),
        ("grok-err-400", "other", 400),
        ("opencode-err-429", "limit", None),
        ("opencode-err-malformed", "other", None),
        ("claude-acp-err-400", "other", 400),
    ],
)
def test_errors_of_a_turn_become_faults(name, code, status):
    (ended,) = of(TurnEnded, name)
    assert ended.fault is not None
    assert (ended.fault.code, ended.fault.status) == (code, status)


@pytest.mark.parametrize(
    "name", ["grok-session-load", "opencode-session-load", "kimi-session-load"]
)
def test_the_history_of_a_loaded_session_is_not_new_text(name):
    (ready,) = of(SessionReady, name)
    assert ready.context == "resumed"
    assert "".join(t.text for t in of(Text, name)) == "resumed"


def test_a_session_that_cant_be_loaded_is_told_and_a_new_one_is_asked_for():
    played = Replay("gemini-session-load")
    (notice,) = [o for o in played.observed if isinstance(o, Noticed)]
    assert "Invalid session identifier" in notice.text
    assert played.sent[-1]["method"] == "session/new"


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("claude-acp-basic", "default"),
        ("codex-acp-basic", "workspace-write"),
        ("gemini-basic", "default"),
        ("kimi-basic", "default"),
        ("hermes-basic", "default"),
    ],
)
def test_the_asking_mode_is_set_before_the_first_prompt(name, mode):
    methods = [m.get("method") for m in Replay(name).sent]
    assert methods.index("session/set_mode") < methods.index("session/prompt")
    params = Replay(name).sent[methods.index("session/set_mode")]["params"]
    assert params["modeId"] == mode
