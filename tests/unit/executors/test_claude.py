"""The driver of Claude Code, line by line, and how the program is started."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from tests.unit.executors import claude_lines as lines

from handoff.errors import NotAllowed
from handoff.executors.claude import ClaudeDriver, launch
from handoff.executors.contract import (
    Allow,
    Answer,
    AskClosed,
    Deny,
    FileEdit,
    Interrupt,
    LaunchRequest,
    Noticed,
    Output,
    PermissionAsked,
    PlanChanged,
    PlanStep,
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
    UsageSeen,
)

QUESTIONS = {
    "questions": [
        {
            "question": "Which driver?",
            "header": "Driver",
            "options": [{"label": "pgx", "description": "fast"}, {"label": "gorm"}, {"x": 1}, 7],
        },
        {"question": "Which colours?", "multiSelect": True, "options": []},
    ]
}


def opened(**session: Any) -> ClaudeDriver:
    driver = ClaudeDriver()
    driver.open(Session(cwd="/w", new_id=lines.SESSION, **session))
    return driver


def working(**session: Any) -> ClaudeDriver:
    """A driver in the middle of a turn."""
    driver = opened(**session)
    driver.feed(lines.ready())
    driver.command(Prompt("go"))
    driver.feed(lines.init())
    return driver


def sent(outputs: list[Output]) -> list[Any]:
    return [json.loads(output.data) for output in outputs if isinstance(output, Send)]


def only(outputs: list[Output], kind: type[Any]) -> Any:
    [found] = [output for output in outputs if isinstance(output, kind)]
    return found


# -- starting ----------------------------------------------------------------------------


def request(**changes: Any) -> LaunchRequest:
    given = {"program": "/bin/claude", "cwd": "/w", "scratch": "/s", "new_id": lines.SESSION}
    return LaunchRequest(**{**given, **changes})


def test_the_gate_is_shut_at_launch() -> None:
    made = launch(request(model="opus", instructions="Stay on your branch."))
    words = made.argv
    assert words[0] == "/bin/claude"
    assert "--setting-sources=" in words
    assert "--strict-mcp-config" in words
    assert words[words.index("--permission-mode") + 1] == "manual"
    assert words[words.index("--permission-prompt-tool") + 1] == "stdio"
    assert words[words.index("--model") + 1] == "opus"
    assert f"--session-id={lines.SESSION}" in words
    off = words[words.index("--disallowedTools") + 1].split(",")
    assert {"EnterWorktree", "CronCreate", "SendMessage"} <= set(off)
    assert made.env["CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"] == "1"
    assert "CLAUDECODE" in made.unset
    assert made.instructed
    assert "Stay on your branch." in made.files["instructions.md"]
    assert not any("Stay on" in word for word in words), "argv can be read by everybody"
    assert words[words.index("--append-system-prompt-file") + 1] == "/s/instructions.md"


def test_a_session_is_resumed_instead_of_named() -> None:
    words = launch(request(resume="old")).argv
    assert "--resume=old" in words
    assert not any(word.startswith("--session-id") for word in words)
    assert "--model" not in words


def test_the_settings_of_the_user_win_over_our_own_limits() -> None:
    made = launch(request(env={"CLAUDE_STREAM_IDLE_TIMEOUT_MS": "60000", "OTHER": "x"}))
    assert made.env["CLAUDE_STREAM_IDLE_TIMEOUT_MS"] == "60000"
    assert made.env["OTHER"] == "x"


# -- the session -------------------------------------------------------------------------


def test_a_prompt_waits_for_the_session() -> None:
    driver = ClaudeDriver()
    first = driver.open(Session(cwd="/w", new_id=lines.SESSION))
    assert sent(first)[0]["request"]["subtype"] == "initialize"
    assert driver.command(Prompt("go")) == []
    out = driver.feed(lines.ready())
    assert out[0] == SessionReady(lines.SESSION, "new", None, "claude", "2.1.332")
    assert sent(out)[0]["message"] == {"role": "user", "content": "go"}
    assert driver.feed(lines.init()) == [PromptTaken()]


def test_instructions_that_were_not_given_at_launch_go_before_the_first_prompt() -> None:
    driver = opened(instructions="Be careful.")
    driver.feed(lines.ready())
    out = driver.command(Prompt("go"))
    assert sent(out)[0]["message"]["content"] == "Be careful.\n\ngo"
    driver.feed(lines.result())
    assert sent(driver.command(Prompt("more")))[0]["message"]["content"] == "more"


def test_a_resumed_session_says_so() -> None:
    driver = opened(resume="old")
    assert driver.feed(lines.ready())[0] == SessionReady(
        "old", "resumed", None, "claude", "2.1.332"
    )


def test_another_session_id_than_expected_is_told() -> None:
    driver = opened()
    driver.feed(lines.ready())
    driver.command(Prompt("go"))
    assert only(driver.feed(lines.init("another")), SessionReady).session_id == "another"


def test_a_session_that_is_gone_can_be_begun_anew() -> None:
    text = "No conversation found with session ID: old"
    driver = opened(resume="old")
    driver.command(Prompt("go"))
    out = driver.feed(
        lines.result(None, subtype="error_during_execution", is_error=True, errors=[text])
    )
    failed = only(out, StartFailed)
    assert failed.lost
    assert failed.fault.message == text
    assert driver.exited(1, text) == [], "it is told once"


def test_the_same_from_standard_error_alone() -> None:
    out = opened(resume="old").exited(1, "No conversation found with session ID: old\n")
    assert only(out, StartFailed).lost
    assert not only(opened().exited(1, "No conversation found"), StartFailed).lost


@pytest.mark.parametrize(
    ("code", "stderr", "fault", "word"),
    [
        (1, "Error: Session ID x is already in use.", "start", "exit code 1"),
        (-9, "", "start", "signal 9"),
        (None, "", "start", "nobody saw how"),
        (1, "Invalid API key · Please run /login", "login", "login"),
    ],
)
def test_a_process_that_ends_before_it_is_ready(
    code: int | None, stderr: str, fault: str, word: str
) -> None:
    driver = opened()
    driver.command(Prompt("go"))
    failed = only(driver.exited(code, stderr), StartFailed)
    assert failed.fault.code == fault
    assert word in failed.fault.message


def test_a_refused_handshake() -> None:
    driver = opened()
    response = {"subtype": "error", "request_id": "handoff-1", "error": "too old"}
    out = driver.feed(lines.line(type="control_response", response=response))
    assert only(out, StartFailed).fault.code == "protocol"


def test_a_mode_that_does_not_ask_is_told() -> None:
    driver = opened()
    driver.feed(lines.ready())
    driver.command(Prompt("go"))
    out = driver.feed(lines.init(mode="bypassPermissions"))
    assert "bypassPermissions" in only(out, Noticed).text
    out = driver.feed(lines.line(type="system", subtype="status", permissionMode="acceptEdits"))
    assert "acceptEdits" in only(out, Noticed).text


# -- permissions -------------------------------------------------------------------------


def test_a_command_is_asked_for_allowed_and_acknowledged() -> None:
    driver = working()
    driver.feed(lines.calls("Bash", {"command": "rm -rf build"}))
    asked = only(driver.feed(lines.asks("Bash", {"command": "rm -rf build"})), PermissionAsked)
    assert asked == PermissionAsked(
        id="q1",
        tool="Bash",
        kind="execute",
        title="rm -rf build",
        text="rm -rf build",
        raw='{"command":"rm -rf build"}',
        command="rm -rf build",
        cwd="/w",
        tool_call_id="t1",
    )
    out = driver.command(Allow("q1"))
    assert sent(out)[0]["response"]["response"] == {
        "behavior": "allow",
        "updatedInput": {"command": "rm -rf build"},
    }
    assert ToolCall("t1", "running") in out
    assert driver.feed(lines.done()) == [
        AskClosed("q1", "acknowledged"),
        ToolCall("t1", "completed", output="ok"),
    ]


def test_a_denial_reaches_the_model_with_its_reason() -> None:
    driver = working()
    driver.feed(lines.asks("Bash", {"command": "ls"}))
    [out] = sent(driver.command(Deny("q1", "use git clean")))
    assert out["response"]["response"] == {"behavior": "deny", "message": "use git clean"}
    assert driver.feed(lines.done(failed=True))[0] == AskClosed("q1", "acknowledged")


def test_a_denial_without_a_reason_says_who_denied() -> None:
    driver = working()
    driver.feed(lines.asks("Bash", {"command": "ls"}))
    [out] = sent(driver.command(Deny("q1")))
    assert "coordinator" in out["response"]["response"]["message"]


def test_progress_of_a_long_command_is_proof_of_the_answer() -> None:
    driver = working()
    driver.feed(lines.asks("Bash", {"command": "make"}))
    progress = lines.line(type="tool_progress", tool_use_id="t1", elapsed_time_seconds=30)
    assert driver.feed(progress) == [], "it was not answered yet"
    driver.command(Allow("q1"))
    assert driver.feed(progress) == [AskClosed("q1", "acknowledged")]


def test_an_ask_is_answered_once() -> None:
    driver = working()
    driver.feed(lines.asks("Bash", {"command": "ls"}))
    driver.command(Allow("q1"))
    before = driver.dump()
    for again in (Allow("q1"), Deny("q1"), Answer("q1", (("x",),)), Allow("nobody")):
        with pytest.raises(NotAllowed):
            driver.command(again)
    assert driver.dump() == before


def test_an_ask_that_comes_again_gets_the_same_answer_again() -> None:
    driver = working()
    asks = lines.asks("Bash", {"command": "ls"})
    driver.feed(asks)
    assert driver.feed(asks) == [], "it still waits"
    [answer] = sent(driver.command(Deny("q1", "no")))
    assert sent(driver.feed(asks)) == [answer]
    driver.feed(lines.done())
    [late] = sent(driver.feed(asks))
    assert late["response"]["response"]["behavior"] == "deny", "what is settled stays settled"


def test_an_ask_outside_a_turn_is_denied() -> None:
    driver = working()
    driver.feed(lines.result())
    out = driver.feed(lines.asks("Bash", {"command": "ls"}))
    assert sent(out)[0]["response"]["response"]["behavior"] == "deny"
    assert only(out, Noticed)


def test_requests_in_parallel_are_kept_apart() -> None:
    driver = working()
    driver.feed(lines.asks("Bash", {"command": "one"}, "q1", "t1"))
    driver.feed(lines.asks("Bash", {"command": "two"}, "q2", "t2"))
    [out] = sent(driver.command(Allow("q2")))
    assert out["response"]["response"]["updatedInput"] == {"command": "two"}
    assert driver.feed(lines.done("t2"))[0] == AskClosed("q2", "acknowledged")
    driver.command(Deny("q1"))
    assert driver.feed(lines.done("t1"))[0] == AskClosed("q1", "acknowledged")


def test_an_ask_that_is_taken_back() -> None:
    driver = working()
    driver.feed(lines.asks("Bash", {"command": "ls"}))
    cancel = lines.line(type="control_cancel_request", request_id="q1")
    assert only(driver.feed(cancel), AskClosed).how == "withdrawn"
    assert driver.feed(cancel) == []
    with pytest.raises(NotAllowed):
        driver.command(Allow("q1"))


def test_an_ask_that_the_executor_went_past() -> None:
    driver = working()
    driver.feed(lines.asks("Bash", {"command": "ls"}))
    assert driver.feed(lines.done(failed=True))[0].how == "withdrawn"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("tool", "given", "edits"),
    [
        (
            "Write",
            {"file_path": "/w/a", "content": "x"},
            (FileEdit("/w/a", None, "x", whole=True),),
        ),
        (
            "Edit",
            {"file_path": "/w/a", "old_string": "x", "new_string": "y", "replace_all": True},
            (FileEdit("/w/a", "x", "y"),),
        ),
        (
            "MultiEdit",
            {
                "file_path": "/w/a",
                "edits": [
                    {"old_string": "1", "new_string": "2"},
                    {"old_string": "3", "new_string": "4"},
                ],
            },
            (FileEdit("/w/a", "1", "2"), FileEdit("/w/a", "3", "4")),
        ),
        (
            "NotebookEdit",
            {"notebook_path": "/w/a", "new_source": "x", "cell_id": "7"},
            (FileEdit("/w/a", None, "x"),),
        ),
        ("MultiEdit", {"file_path": "/w/a", "edits": 7}, (FileEdit("/w/a"),)),
    ],
)
def test_a_write_names_its_file_and_its_change(
    tool: str, given: dict[str, Any], edits: tuple[FileEdit, ...]
) -> None:
    asked = only(working().feed(lines.asks(tool, given)), PermissionAsked)
    assert asked.paths == ("/w/a",)
    assert asked.edits == edits
    assert asked.kind in ("write", "edit")
    assert json.loads(asked.raw) == given
    for edit in edits:
        assert (edit.new or "") in asked.text
        assert (edit.old or "") in asked.text
    for key in set(given) - {"edits"}:
        assert str(given[key]) in asked.text or json.dumps(given[key]) in asked.text


@pytest.mark.parametrize(
    ("tool", "given", "kind"),
    [
        ("WebFetch", {"url": "https://example.invalid/x", "prompt": "read"}, "fetch"),
        ("WebSearch", {"query": "weather"}, "fetch"),
        ("Read", {"file_path": "/etc/passwd"}, "read"),
        ("mcp__tracker__close", {"issue": "A-1", "force": True}, "other"),
        ("Bash", {"command": "make\nmake install", "timeout": 5}, "execute"),
        ("Bash", {"command": 7}, "execute"),
        ("ExitPlanMode", {"plan": "1. do it"}, "other"),
    ],
)
def test_everything_that_is_asked_for_is_shown_in_full(
    tool: str, given: dict[str, Any], kind: str
) -> None:
    asked = only(working().feed(lines.asks(tool, given)), PermissionAsked)
    assert (asked.tool, asked.kind) == (tool, kind)
    for value in given.values():
        shown = value if isinstance(value, str) else json.dumps(value)
        assert shown in asked.text
    assert "\n" not in asked.title
    assert len(asked.title) <= 120


def test_a_request_of_a_sub_agent_names_it() -> None:
    driver = working()
    driver.feed(lines.calls("Task", {"prompt": "help"}, "outer"))
    driver.feed(lines.calls("Bash", {"command": "ls"}, "inner", parent="outer"))
    asked = only(driver.feed(lines.asks("Bash", {"command": "ls"}, "q", "inner")), PermissionAsked)
    assert asked.parent == "outer"


def test_a_control_request_that_nobody_serves_is_refused() -> None:
    body = {"subtype": "hook_callback", "callback_id": "x"}
    out = working().feed(lines.line(type="control_request", request_id="z", request=body))
    assert sent(out)[0]["response"]["subtype"] == "error"
    assert only(out, Unrecognised).what == "control_request/hook_callback"


# -- questions ---------------------------------------------------------------------------


def test_questions_are_answered_by_their_text() -> None:
    driver = working()
    asked = only(driver.feed(lines.asks("AskUserQuestion", QUESTIONS)), QuestionAsked)
    assert [q.text for q in asked.questions] == ["Which driver?", "Which colours?"]
    assert [c.label for c in asked.questions[0].choices] == ["pgx", "gorm"]
    assert [q.multiple for q in asked.questions] == [False, True]
    [out] = sent(driver.command(Answer("q1", (("my own",), ("red", "blue")))))
    assert out["response"]["response"]["updatedInput"] == {
        **QUESTIONS,
        "answers": {"Which driver?": "my own", "Which colours?": "red, blue"},
    }
    assert driver.feed(lines.done())[0] == AskClosed("q1", "acknowledged")


def test_a_question_takes_no_verdict_and_every_question_wants_its_answer() -> None:
    driver = working()
    driver.feed(lines.asks("AskUserQuestion", QUESTIONS))
    with pytest.raises(NotAllowed):
        driver.command(Allow("q1"))
    with pytest.raises(NotAllowed):
        driver.command(Answer("q1", (("one",),)))
    assert sent(driver.command(Deny("q1", "decide yourself")))


def test_a_permission_takes_no_answer() -> None:
    driver = working()
    driver.feed(lines.asks("Bash", {"command": "ls"}))
    with pytest.raises(NotAllowed):
        driver.command(Answer("q1", (("yes",),)))


@pytest.mark.parametrize("given", [{}, {"questions": [{"question": 7}, None]}])
def test_a_question_that_can_not_be_read_does_not_leave_it_waiting(given: Any) -> None:
    out = working().feed(lines.asks("AskUserQuestion", given))
    assert sent(out)[0]["response"]["response"]["behavior"] == "deny"
    assert only(out, Unrecognised)


# -- what the model says and does --------------------------------------------------------


def test_streamed_text_is_told_once() -> None:
    driver = working()
    driver.feed(lines.starts("m1"))
    assert driver.feed(lines.delta("Hel")) == [Text("Hel")]
    assert driver.feed(lines.delta("lo")) == [Text("lo")]
    assert driver.feed(lines.said("Hello", "m1")) == []
    assert driver.feed(lines.said("not streamed", "m2")) == [Text("not streamed")]


def test_thoughts_are_told_apart() -> None:
    driver = working()
    driver.feed(lines.starts())
    thought = {"type": "thinking_delta", "thinking": "hm"}
    out = driver.feed(lines.event(type="content_block_delta", delta=thought))
    assert out == [Text("hm", thought=True)]
    message = {"id": "m1", "content": [{"type": "thinking", "thinking": "hm"}]}
    assert driver.feed(lines.line(type="assistant", message=message)) == []


def test_text_of_a_sub_agent_is_not_the_answer() -> None:
    driver = working()
    assert driver.feed(lines.said("inner", "m9", parent="outer")) == [Text("inner", parent="outer")]
    driver.feed(lines.said("outer words", "m1"))
    driver.feed(lines.said("inner again", "m9", parent="outer"))
    assert only(driver.feed(lines.result(None)), TurnEnded).text == "outer words"


def test_a_to_do_list_is_a_plan() -> None:
    todos = [{"content": "one", "status": "completed"}, {"content": "two"}, {"x": 1}]
    out = working().feed(lines.calls("TodoWrite", {"todos": todos}))
    assert only(out, PlanChanged).steps == (PlanStep("one", "completed"), PlanStep("two", ""))


def test_a_tool_call_from_start_to_end() -> None:
    driver = working()
    begun = only(driver.feed(lines.calls("Bash", {"command": "ls"})), ToolCall)
    assert (begun.status, begun.kind, begun.command) == ("pending", "execute", "ls")
    ended = only(driver.feed(lines.done(text="no such file", failed=True)), ToolCall)
    assert (ended.id, ended.status, ended.output) == ("t1", "failed", "no such file")


def test_retries_are_told() -> None:
    out = working().feed(
        lines.line(
            type="system",
            subtype="api_retry",
            attempt=2,
            max_retries=10,
            retry_delay_ms=1059,
            error_status=529,
            error="overloaded",
        )
    )
    assert out == [Retrying(2, 10, 1.059, "overloaded (HTTP 529)")]


def test_what_is_unknown_is_counted() -> None:
    assert only(working().feed(b"not json"), Unrecognised).what == "not JSON"
    assert only(working().feed(b'{"type":"hologram"}'), Unrecognised).what == "hologram"
    assert working().feed(b"  ") == []


def test_a_denial_of_its_own_is_told() -> None:
    body = {"type": "system", "subtype": "permission_denied", "tool_name": "Bash", "message": "no"}
    assert "Bash" in only(working().feed(lines.line(**body)), Noticed).text


# -- the end of a turn -------------------------------------------------------------------


def test_a_turn_ends_with_its_last_words_and_its_cost() -> None:
    driver = working()
    usage = {"m": {"inputTokens": 5, "outputTokens": 7}}
    out = driver.feed(lines.result("done", modelUsage=usage, total_cost_usd=0.25))
    assert out == [UsageSeen(5, 7, 0.25), TurnEnded("done", None, "completed")]
    driver.command(Prompt("more"))


def test_the_last_words_are_bounded_and_stay_text() -> None:
    end = only(working().feed(lines.result("é" * 20_000)), TurnEnded)
    assert 16_000 < len(end.text.encode()) <= 16 * 1024
    assert set(end.text) == {"é"}


def test_two_turns_at_once_are_refused() -> None:
    driver = working()
    before = driver.dump()
    with pytest.raises(NotAllowed):
        driver.command(Prompt("more"))
    assert driver.dump() == before


def test_what_waits_is_closed_with_the_turn() -> None:
    driver = working()
    driver.feed(lines.asks("Bash", {"command": "one"}, "q1", "t1"))
    driver.feed(lines.asks("Bash", {"command": "two"}, "q2", "t2"))
    driver.command(Allow("q2"))
    out = driver.feed(lines.result())
    closed = {o.id: o.how for o in out if isinstance(o, AskClosed)}
    assert closed == {"q1": "withdrawn", "q2": "acknowledged"}


def test_an_answer_without_proof_is_not_called_acknowledged_when_the_turn_failed() -> None:
    driver = working()
    driver.feed(lines.asks("Bash", {"command": "one"}))
    driver.command(Allow("q1"))
    out = driver.feed(lines.result("boom", is_error=True, terminal_reason="api_error"))
    assert only(out, AskClosed).how == "withdrawn"


def test_work_in_the_background_keeps_the_turn_open() -> None:
    driver = working()
    changed = {"type": "system", "subtype": "background_tasks_changed"}
    driver.feed(lines.line(**changed, tasks=[{"task_id": "a"}]))
    out = driver.feed(lines.result("started it"))
    assert not [o for o in out if isinstance(o, TurnEnded)]
    assert only(out, Noticed)
    driver.feed(lines.line(**changed, tasks=[]))
    driver.feed(lines.init())
    assert only(driver.feed(lines.result("all of it")), TurnEnded).text == "all of it"


def test_a_result_that_nobody_asked_for_ends_nothing() -> None:
    driver = working()
    driver.feed(lines.result())
    out = driver.feed(lines.result("once more"))
    assert not [o for o in out if isinstance(o, TurnEnded)]


def test_a_process_that_dies_in_a_turn() -> None:
    driver = working()
    driver.feed(lines.said("I was about to"))
    driver.feed(lines.asks("Bash", {"command": "ls"}))
    out = driver.exited(-9, "Killed\n")
    assert only(out, AskClosed).how == "withdrawn"
    end = only(out, TurnEnded)
    assert end.text == "I was about to"
    assert end.fault.code == "crash"
    assert "signal 9" in end.fault.message
    assert "Killed" in end.fault.message
    with pytest.raises(NotAllowed):
        driver.command(Prompt("go"))


def test_a_process_that_ends_at_rest_is_no_failure() -> None:
    driver = working()
    driver.feed(lines.result())
    assert driver.exited(0, "") == []


# -- interrupting ------------------------------------------------------------------------


def test_an_interrupt_is_a_request_and_its_result_a_cancelled_turn() -> None:
    driver = working()
    [out] = sent(driver.command(Interrupt()))
    assert out["request"] == {"subtype": "interrupt"}
    body = {"subtype": "error_during_execution", "is_error": True}
    end = only(driver.feed(lines.result(None, **body, terminal_reason="aborted_tools")), TurnEnded)
    assert end.fault.code == "cancelled"


def test_an_interrupt_before_the_prompt_was_sent() -> None:
    driver = opened()
    driver.command(Prompt("go"))
    end = only(driver.command(Interrupt()), TurnEnded)
    assert end.fault.code == "cancelled"
    assert sent(driver.feed(lines.ready())) == [], "the prompt is not sent any more"


def test_an_interrupt_that_came_before_the_turn_is_sent_again() -> None:
    driver = opened()
    driver.feed(lines.ready())
    driver.command(Prompt("go"))
    assert sent(driver.command(Interrupt()))
    [again] = sent(driver.feed(lines.init()))
    assert again["request"] == {"subtype": "interrupt"}
    assert sent(driver.feed(lines.starts())) == []


def test_an_interrupt_at_rest_does_nothing() -> None:
    driver = working()
    driver.feed(lines.result())
    assert driver.command(Interrupt()) == []


# -- state -------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"{}x", b'{"version": 99}', b'{"asks": 3}'])
def test_a_foreign_state_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        ClaudeDriver.load(data)


def test_no_module_of_the_driver_reads_a_clock_or_a_file() -> None:
    folder = pathlib.Path(__file__).parents[3] / "src" / "handoff"
    for name in ("wire/claude.py", "executors/claude_driver.py", "executors/claude_tools.py"):
        source = (folder / name).read_text()
        for word in ("import time", "import os", "import random", "open(", "socket"):
            assert word not in source.replace("def open(", ""), f"{name}: {word}"
