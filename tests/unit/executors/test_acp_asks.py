from __future__ import annotations

import pytest
from tests.unit.executors.acp_peer import ONCE, Peer, working

from handoff.errors import NotAllowed
from handoff.executors.contract import (
    Allow,
    Answer,
    AskClosed,
    Deny,
    Noticed,
    PermissionAsked,
    PromptTaken,
    QuestionAsked,
    TurnEnded,
    Unrecognised,
)

# -- permissions ---------------------------------------------------------------------------


def test_a_permission_is_allowed_by_kind_once():
    peer = working()
    (taken, asked) = peer.permission(rawInput={"command": "rm -rf build", "cwd": "/w"})
    assert taken == PromptTaken()
    assert asked == PermissionAsked(
        id="0",
        tool="execute",
        kind="execute",
        title="rm -rf build",
        text="rm -rf build",
        raw='{"command": "rm -rf build", "cwd": "/w"}',
        command="rm -rf build",
        cwd="/w",
        tool_call_id="c1",
    )
    peer.do(Allow("0"))
    assert peer.sent[-1] == {
        "jsonrpc": "2.0",
        "id": 0,
        "result": {"outcome": {"outcome": "selected", "optionId": "a"}},
    }


def test_a_denial_is_once_too_and_its_reason_is_not_sent():
    peer = working()
    peer.permission(number="id-text")
    peer.do(Deny("s:id-text", "because"))
    assert peer.sent[-1]["id"] == "id-text"
    assert peer.sent[-1]["result"] == {"outcome": {"outcome": "selected", "optionId": "b"}}
    assert not peer.driver.carries_reason


def test_without_a_way_to_allow_once_nothing_is_allowed():
    peer = working()
    *_, asked = peer.permission(options=[o for o in ONCE if o["kind"] != "allow_once"])
    assert "can't be allowed once" in asked.text
    with pytest.raises(NotAllowed, match="no way to allow this once"):
        peer.do(Allow("0"))
    # It still waits, and can be denied.
    peer.do(Deny("0"))
    assert peer.sent[-1]["result"]["outcome"]["optionId"] == "b"


def test_without_a_way_to_deny_once_it_is_cancelled():
    peer = working()
    peer.permission(options=[ONCE[2], {"optionId": "n", "kind": "reject_always", "name": "Never"}])
    peer.do(Deny("0"))
    assert peer.sent[-1]["result"] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize("command", [Allow("0"), Deny("0"), Answer("0", (("x",),))])
def test_an_answer_is_given_once(command):
    peer = working()
    peer.permission()
    peer.do(Allow("0"))
    sent = len(peer.sent)
    with pytest.raises(NotAllowed):
        peer.do(command)
    assert len(peer.sent) == sent


def test_a_permission_is_not_answered_and_a_question_not_allowed():
    peer = working()
    peer.permission()
    with pytest.raises(NotAllowed, match="this is a permission"):
        peer.do(Answer("0", (("yes",),)))
    question = {"message": "Which?", "requestedSchema": {"properties": {"q": {"type": "string"}}}}
    peer.feed({"id": 1, "method": "elicitation/create", "params": question})
    for command in (Allow("1"), Deny("1")):
        with pytest.raises(NotAllowed, match="this is a question"):
            peer.do(command)


def test_several_permissions_wait_and_are_answered_in_any_order():
    peer = working()
    for number in range(3):
        peer.permission(number, call=f"c{number}")
    for number in (2, 0, 1):
        peer.do(Allow(str(number)))
    assert [m["id"] for m in peer.sent if "result" in m] == [2, 0, 1]


def test_evidence_for_an_answer_is_an_update_of_that_call_after_it():
    peer = working()
    peer.update("tool_call", toolCallId="c1", title="t", status="pending")
    peer.update("tool_call", toolCallId="c2", title="t", status="pending")
    peer.permission(0, call="c1")
    assert peer.update("tool_call_update", toolCallId="c1", status="in_progress")[:-1] == []
    peer.do(Allow("0"))
    peer.update("tool_call_update", toolCallId="c2", status="completed")
    assert not [o for o in peer.out if isinstance(o, AskClosed)]
    out = peer.update("tool_call_update", toolCallId="c1", status="completed")
    assert AskClosed("0", "acknowledged") in out


def test_the_end_of_the_turn_acknowledges_answers_and_withdraws_questions():
    peer = working()
    peer.permission(0, call="c1")
    peer.permission(1, call="c2")
    peer.do(Allow("0"))
    out = peer.answer("session/prompt", {"stopReason": "end_turn"})
    assert [o for o in out if isinstance(o, AskClosed)] == [
        AskClosed("0", "acknowledged", "the turn ended"),
        AskClosed("1", "withdrawn", "the turn ended"),
    ]
    assert isinstance(out[-1], TurnEnded)


def test_the_executor_may_withdraw_what_it_asked():
    peer = working()
    peer.permission()
    out = peer.feed({"method": "$/cancel_request", "params": {"requestId": 0}})
    assert out == [AskClosed("0", "withdrawn", "the executor withdrew it")]
    assert peer.sent[-1]["result"] == {"outcome": {"outcome": "cancelled"}}
    assert peer.feed({"method": "$/cancel_request", "params": {"requestId": [0]}}) == []


def test_what_is_asked_outside_a_turn_is_refused():
    peer = Peer()
    peer.ready()
    (notice,) = peer.permission()
    assert isinstance(notice, Noticed)
    assert peer.sent[-1]["result"] == {"outcome": {"outcome": "cancelled"}}


def test_a_permission_shows_what_was_told_of_its_call_before():
    peer = working()
    raw = {"command": "make", "cwd": "/w/sub"}
    peer.update("tool_call", toolCallId="c1", title="make", kind="execute", rawInput=raw)
    params = {"toolCall": {"toolCallId": "c1"}, "options": ONCE}
    (asked,) = peer.feed({"id": 4, "method": "session/request_permission", "params": params})
    assert (asked.command, asked.cwd, asked.kind) == ("make", "/w/sub", "execute")


@pytest.mark.parametrize(
    "params",
    [{}, {"toolCall": {}}, {"toolCall": 5, "options": ONCE}, {"toolCall": {}, "options": "x"}],
)
def test_a_permission_that_nobody_can_answer_is_cancelled_and_counted(params):
    peer = working()
    out = peer.feed({"id": 0, "method": "session/request_permission", "params": params})
    assert [o for o in out if isinstance(o, Unrecognised)]
    assert peer.sent[-1]["result"] == {"outcome": {"outcome": "cancelled"}}


# -- questions -----------------------------------------------------------------------------


def form(properties, **more):
    return {"message": "Which?", "requestedSchema": {"properties": properties}, **more}


def ask(peer, params, method="elicitation/create"):
    out = peer.feed({"id": 0, "method": method, "params": params})
    return next(o for o in out if isinstance(o, QuestionAsked))


CHOICE = {
    "type": "string",
    "oneOf": [{"const": "p", "title": "Pgx"}, {"const": "g", "title": "Gorm"}],
}


@pytest.mark.parametrize(
    ("properties", "answers", "content"),
    [
        ({"q": CHOICE}, (("Pgx",),), {"q": "p"}),
        ({"q": CHOICE}, (("something else",),), {"q": "something else"}),
        ({"q": CHOICE, "q_custom": {"type": "string"}}, (("x",),), {"q_custom": "x"}),
        ({"q": {"type": "string"}}, (("free",),), {"q": "free"}),
        (
            {"q": {"type": "array", "items": {"anyOf": CHOICE["oneOf"]}}},
            (("Pgx", "Gorm"),),
            {"q": ["p", "g"]},
        ),
        ({"q": {"type": "boolean"}}, (("yes",),), {"q": True}),
        ({"q": {"type": "integer"}}, (("12",),), {"q": 12}),
        ({"q": {"type": "string", "enum": ["a", "b"]}}, (("b",),), {"q": "b"}),
        ({"a": CHOICE, "b": CHOICE}, (("Pgx",), ("Gorm",)), {"a": "p", "b": "g"}),
    ],
)
def test_a_form_is_answered(properties, answers, content):
    peer = working()
    ask(peer, form(properties))
    peer.do(Answer("0", answers))
    assert peer.sent[-1]["result"] == {"action": "accept", "content": content}


def test_a_form_that_wants_a_number_says_so_and_still_waits():
    peer = working()
    ask(peer, form({"q": {"type": "integer"}}))
    with pytest.raises(NotAllowed, match="number"):
        peer.do(Answer("0", (("many",),)))
    peer.do(Answer("0", (("3",),)))
    assert peer.sent[-1]["result"]["content"] == {"q": 3}


def test_no_answer_declines_a_form():
    peer = working()
    ask(peer, form({"q": CHOICE}))
    peer.do(Answer("0", ((),)))
    assert peer.sent[-1]["result"] == {"action": "decline"}


def test_a_web_page_is_declined_and_told():
    peer = working()
    params = {"mode": "url", "message": "Sign in", "url": "https://example.invalid"}
    out = peer.feed({"id": 0, "method": "elicitation/create", "params": params})
    assert [o for o in out if isinstance(o, Noticed)]
    assert peer.sent[-1]["result"] == {"action": "decline"}


def test_groks_questions():
    peer = working()
    questions = [
        {"question": "Which?", "options": [{"label": "a"}], "multiSelect": True},
        {"question": "Why?", "options": []},
    ]
    asked = ask(peer, {"questions": questions}, "_x.ai/ask_user_question")
    assert [(q.text, q.multiple) for q in asked.questions] == [("Which?", True), ("Why?", False)]
    peer.do(Answer("0", (("a", "b"), ("so",))))
    assert peer.sent[-1]["result"] == {
        "outcome": "accepted",
        "answers": {"Which?": ["a", "b"], "Why?": "so"},
    }


def qwen_request():
    questions = [{"question": "Which?", "header": "H", "options": [{"label": "a"}]}]
    meta = {"qwenInteractionKind": "user_question", "qwenQuestions": questions}
    return {
        "toolCall": {"toolCallId": "c", "title": "Ask", "_meta": meta},
        "options": ONCE,
    }


def test_qwens_question_is_a_permission_that_carries_answers():
    peer = working()
    asked = ask(peer, qwen_request(), "session/request_permission")
    assert asked.questions[0].text == "Which?"
    peer.do(Answer("0", (("a",),)))
    assert peer.sent[-1]["result"] == {
        "outcome": {"outcome": "selected", "optionId": "a"},
        "answers": {"0": "a"},
    }


def test_a_choice_between_several_ways_to_allow_is_a_question():
    peer = working()
    options = [
        {"optionId": "1", "kind": "allow_once", "name": "Left"},
        {"optionId": "2", "kind": "allow_once", "name": "Right"},
        {"optionId": "3", "kind": "reject_once", "name": "Skip"},
    ]
    params = {"toolCall": {"toolCallId": "c", "title": "Where?"}, "options": options}
    asked = ask(peer, params, "session/request_permission")
    assert [c.label for c in asked.questions[0].choices] == ["Left", "Right"]
    with pytest.raises(NotAllowed, match="'Left', 'Right'"):
        peer.do(Answer("0", (("Up",),)))
    peer.do(Answer("0", (("right",),)))
    assert peer.sent[-1]["result"]["outcome"]["optionId"] == "2"
