"""The state machine of the Desktop page, as node runs it."""

from __future__ import annotations

import copy
import json
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

DRIVER = pathlib.Path(__file__).with_name("flow_driver.mjs")
ROOT = pathlib.Path(__file__).parents[3]
SKIP = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
pytestmark = SKIP
REF = "handoff://" + "a" * 32 + "/" + "b" * 32
CAPTURE = {
    "runtime": "r1",
    "session": "s1",
    "profile": "default",
    "activeProfile": "default",
    "connection": "local",
    "activeConnection": "local",
    "mode": "local",
    "gateway": "open",
    "busy": False,
}
FORM = {"workspace": "/w", "model": "", "provider": ""}
IDS = {"request": "desk-request-1", "attempt": "desk-attempt-1"}
LOST = {"ok": False, "lost": True, "code": "unreachable", "message": "gone"}
WRITER = {"writerModel": "m", "writerProvider": "p"}


class Node:
    """The modules in one node process."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            ["node", str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, call: str, *args: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps({"call": call, "args": args}) + "\n")
        self.process.stdin.flush()
        told = json.loads(self.process.stdout.readline())
        assert "error" not in told, told["error"]
        return told["value"]

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    running = Node()
    yield running
    running.close()


def run(node: Node, *events: dict[str, Any], state: Any = None) -> tuple[Any, list[Any]]:
    """The state after these events, and the effects of the last."""
    state = state or node("initial")
    effects: list[Any] = []
    for event in events:
        told = node("next", state, event)
        assert told["intact"]
        state, effects = told["state"], told["effects"]
    return state, effects


def prepare(**more: Any) -> dict[str, Any]:
    return {
        "type": "prepare",
        "form": {**FORM, **more},
        "capture": CAPTURE,
        "ids": IDS,
        "saved": None,
        "locale": "en",
        "now": 1000,
    }


def captured(**reply: Any) -> dict[str, Any]:
    told = {"ok": True, "profile": "default", "writer": {"allowed": False, "keys": ["k"]}, **reply}
    return {"type": "captured", "attempt": IDS["attempt"], "reply": told, "capture": CAPTURE}


def status(state: str, **more: Any) -> dict[str, Any]:
    allowed = {
        "prepared": ["open", "abandon"],
        "requested": ["wait"],
        "session_identified": ["read", "abandon"],
        "acknowledged": ["confirm", "abandon"],
    }
    return {
        "ok": True,
        "state": state,
        "ref": REF,
        "prompt": "not_sent" if state == "prepared" else "sent",
        "allowed_next": allowed.get(state, []),
        **more,
    }


FROZEN = {
    "source_session": "s1",
    "workspace": "/w",
    "workspace_resolved": "/real/w",
    "route": {"model": "m", "provider": "p", "origin": "observed"},
}


def polled(state: str, now: int = 2000, **more: Any) -> dict[str, Any]:
    reply = {"ok": True, "status": status(state, **more), "frozen": FROZEN}
    return {"type": "polled", "attempt": IDS["attempt"], "reply": reply, "now": now}


UNKNOWN = {
    "type": "polled",
    "attempt": IDS["attempt"],
    "reply": {"ok": False, "code": "unknown_attempt"},
    "now": 2000,
}
SENT = {"type": "asked", "attempt": IDS["attempt"], "outcome": "sent"}
OPEN = {"type": "open", "capture": CAPTURE}
BEGUN = {
    "type": "begun",
    "attempt": IDS["attempt"],
    "reply": {
        "ok": True,
        "prompt": "PROMPT",
        "workspace": "/real/w",
        "route": {"model": "m", "provider": "p"},
        "status": status("requested"),
    },
}
MADE = {
    "type": "created",
    "attempt": IDS["attempt"],
    "outcome": "made",
    "session": "s2",
    "runtime": "r2",
}
IDENTIFIED = {
    "type": "identified",
    "attempt": IDS["attempt"],
    "reply": status("session_identified", prompt="prompt_uncertain"),
}
SUBMITTED = {"type": "submitted", "attempt": IDS["attempt"], "outcome": "sent"}
TO_PREPARED = (prepare(), captured(), SENT, polled("prepared"))


def saved_of(effects: list[Any]) -> Any:
    return [one["value"] for one in effects if one["do"] == "save"][-1]


# -- one handoff, from end to end ---------------------------------------------------------------


def test_a_press_looks_first_then_saves_then_asks_once(node: Node) -> None:
    state, effects = run(node, prepare())
    assert state["stage"] == "checking"
    assert effects == [
        {
            "do": "rest",
            "action": "capture",
            "then": "captured",
            "attempt": IDS["attempt"],
            "args": {"session": "s1", "workspace": "/w"},
        }
    ]
    state, effects = run(node, captured(), state=state)
    assert state["stage"] == "asking"
    assert [one["do"] for one in effects] == ["save", "ask"]
    assert effects[0]["must"] is True
    assert effects[0]["value"]["ask"]["attempt"] == IDS["attempt"]
    assert effects[1]["runtime"] == "r1"


def test_opening_is_intent_then_session_then_identity_then_prompt(node: Node) -> None:
    state, effects = run(node, *TO_PREPARED, OPEN)
    assert [one["do"] for one in effects] == ["save", "rest"]
    assert effects[0]["must"] is True
    assert effects[1]["args"] == {
        "attempt_id": IDS["attempt"],
        "ref": REF,
        "workspace": "/w",
    }
    state, effects = run(node, BEGUN, state=state)
    assert effects[-1]["do"] == "create"
    assert effects[-1]["params"] == {"cwd": "/real/w", "model": "m", "provider": "p"}
    state, effects = run(node, MADE, state=state)
    assert effects[-1]["args"] == {"attempt_id": IDS["attempt"], "session": "s2"}
    state, effects = run(node, IDENTIFIED, state=state)
    assert effects[-1] == {
        "do": "submit",
        "attempt": IDS["attempt"],
        "runtime": "r2",
        "text": "PROMPT",
    }
    state, effects = run(node, SUBMITTED, state=state)
    assert [one["do"] for one in effects] == ["save", "rest", "focus"]
    marked = {
        "type": "marked",
        "attempt": IDS["attempt"],
        "reply": status("session_identified"),
    }
    state, _ = run(node, marked, state=state)
    assert state["stage"] == "opened"


# -- the message to the source chat ---------------------------------------------------------------


@given(
    workspace=st.text(min_size=1, max_size=60),
    model=st.text(max_size=20),
    writer=st.text(max_size=20),
    italian=st.booleans(),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_value_can_break_out_of_its_line(
    node: Node, workspace: str, model: str, writer: str, italian: bool
) -> None:
    ask = {
        **IDS,
        "workspace": workspace,
        "model": model,
        "provider": model,
        "writerModel": writer,
        "writerProvider": writer,
        "locale": "it" if italian else "en",
    }
    text = node("askText", ask)
    assert text.isascii()
    lines = text.split("\n")
    calls = [json.loads(line) for line in lines[2:-1]]
    assert all(call["workspace"] == workspace for call in calls)
    assert [call["action"] for call in calls] == [
        "evidence",
        *(["summarize"] if writer else []),
        "create",
        "prepare_open",
    ]
    assert calls[-1]["attempt_id"] == IDS["attempt"]
    assert calls[-1]["surface"] == "desktop"
    assert calls[-1].get("model", "") == model
    assert calls[-1].get("locale") == ("it" if italian else None)
    assert calls[-2]["request_id"] == IDS["request"]
    assert len(lines) == 3 + len(calls)


def test_the_calls_are_those_that_sessions_takes(node: Node) -> None:
    from handoff.sessions.actions import check

    ask = {**IDS, "workspace": "/w", "model": "m", "provider": "p", **WRITER, "locale": "it"}
    for line in node("askText", ask).split("\n")[2:-1]:
        call = json.loads(line)
        action = call.pop("action")
        if action == "create":
            call["state"] = {}
        if action == "prepare_open":
            call["ref"] = REF
        assert check(action, call)


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"runtime": ""}, "no_chat"),
        ({"session": ""}, "chat_not_saved"),
        ({"busy": True}, "chat_busy"),
        ({"gateway": "connecting"}, "gateway_closed"),
        ({"profile": "bob"}, "other_profile"),
        ({"profile": ""}, "profile_unknown"),
        ({"activeProfile": ""}, "profile_unknown"),
        ({"connection": "elsewhere"}, "other_connection"),
        ({"connection": ""}, "connection_unknown"),
        ({"activeConnection": ""}, "connection_unknown"),
        ({"mode": "remote"}, "remote_gateway"),
        ({"mode": ""}, "remote_gateway"),
    ],
)
def test_a_chat_that_does_not_fit_is_refused_before_anything(
    node: Node, change: dict[str, Any], code: str
) -> None:
    event = {**prepare(), "capture": {**CAPTURE, **change}}
    state, effects = run(node, event)
    assert (state["stage"], state["refusal"]["code"], effects) == ("idle", code, [])
    late = {**captured(), "capture": {**CAPTURE, **change}}
    state, effects = run(node, prepare(), late)
    assert (state["stage"], state["refusal"]["code"], effects) == ("idle", code, [])


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({"workspace": ""}, "workspace_relative"),
        ({"workspace": "w"}, "workspace_relative"),
        ({"workspace": "/w\nrm"}, "workspace_lines"),
        ({"workspace": "/w\0"}, "workspace_lines"),
        ({"model": "m"}, "model_half"),
        ({"provider": "p"}, "model_half"),
        ({"writerModel": "m", "acceptCost": True}, "writer_half"),
        (WRITER, "writer_cost"),
        ({**WRITER, "acceptCost": "yes"}, "writer_cost"),
    ],
)
def test_a_form_that_is_wrong_is_refused(node: Node, form: dict[str, Any], code: str) -> None:
    state, effects = run(node, prepare(**form))
    assert (state["stage"], state["refusal"]["code"], effects) == ("idle", code, [])


def test_another_writer_needs_the_owners_consent(node: Node) -> None:
    event = prepare(**WRITER, acceptCost=True)
    state, effects = run(node, event, captured())
    assert (state["stage"], effects) == ("idle", [])
    assert state["refusal"]["keys"] == ["k"]
    state, effects = run(node, event, captured(writer={"allowed": True, "keys": []}))
    assert state["stage"] == "asking"
    assert '"accept_cost":true' in effects[1]["text"]


@pytest.mark.parametrize("reply", [LOST, {"ok": False, "code": "source_unbound"}, None])
def test_what_the_back_end_refuses_is_not_asked(node: Node, reply: Any) -> None:
    state, effects = run(node, prepare(), {**captured(), "reply": reply})
    assert (state["stage"], effects) == ("idle", [])
    assert state["refusal"]["code"] in ("unreachable", "source_unbound")


def test_a_back_end_of_another_profile_is_not_asked(node: Node) -> None:
    state, effects = run(node, prepare(), captured(profile="bob"))
    assert (state["stage"], state["refusal"]["code"], effects) == ("idle", "other_profile", [])


def test_a_focus_that_moved_meanwhile_is_not_asked(node: Node) -> None:
    moved = {**captured(), "capture": {**CAPTURE, "session": "s9", "runtime": "r9"}}
    state, effects = run(node, prepare(), moved)
    assert (state["stage"], state["refusal"]["code"], effects) == ("idle", "focus_changed", [])


@pytest.mark.parametrize(
    ("frozen", "code"),
    [
        ({"source_session": "s9"}, "frozen_differs"),
        ({"workspace": "/x", "workspace_resolved": "/x"}, "frozen_differs"),
        ({"route": {"model": "x", "provider": "p"}}, "frozen_differs"),
    ],
)
def test_an_attempt_that_was_frozen_otherwise_is_not_opened(
    node: Node, frozen: dict[str, Any], code: str
) -> None:
    other = polled("prepared")
    other["reply"]["frozen"] = {**FROZEN, **frozen}
    start = prepare(model="m", provider="p")
    state, effects = run(node, start, captured(), SENT, other, OPEN)
    assert (state["stage"], state["refusal"]["code"], effects) == ("prepared", code, [])


@pytest.mark.parametrize(
    "change",
    [
        {"profile": "bob"},
        {"connection": "c2"},
        {"profile": "bob", "activeProfile": "bob"},
        {"connection": "c2", "activeConnection": "c2"},
        {"gateway": "closed"},
    ],
)
def test_opening_needs_the_same_profile_and_connection(node: Node, change: dict[str, Any]) -> None:
    event = {**OPEN, "capture": {**CAPTURE, **change}}
    state, effects = run(node, *TO_PREPARED, event)
    assert (state["stage"], effects) == ("prepared", [])
    assert state["refusal"]["code"]


# -- the outcome is not known ---------------------------------------------------------------------


def test_a_turn_that_was_certainly_not_sent_leaves_nothing(node: Node) -> None:
    event = {**SENT, "outcome": "refused", "message": "no such session"}
    state, effects = run(node, prepare(), captured(), event)
    assert (state["stage"], state["ask"]) == ("idle", None)
    assert effects == [{"do": "save", "value": None}]


def test_a_turn_of_unknown_fate_blocks_until_a_person_looked(node: Node) -> None:
    state, _ = run(node, prepare(), captured(), {**SENT, "outcome": "unknown"})
    assert state["stage"] == "ask_uncertain"
    for event in (prepare(), OPEN, {"type": "fresh"}, {"type": "discard"}, SENT, captured()):
        assert run(node, event, state=state)[0]["stage"] == "ask_uncertain"
    assert run(node, polled("prepared"), state=state)[0]["stage"] == "prepared"
    assert run(node, {"type": "discard", "looked": True}, state=state)[0]["stage"] == "idle"


def test_waiting_ends_in_inspection_and_never_in_asking_again(node: Node) -> None:
    wait = node("constants")["WAIT"]
    state, effects = run(node, prepare(), captured(), SENT, UNKNOWN)
    assert (state["stage"], effects) == ("asked", [])
    state, effects = run(node, {**UNKNOWN, "now": 1000 + wait + 1}, state=state)
    assert state["stage"] == "ask_uncertain"
    assert [one["do"] for one in effects] == ["save"]


@pytest.mark.parametrize(
    ("reply", "stage"),
    [
        (LOST, "open_uncertain"),
        ({"ok": False, "code": "internal", "retry": "after_inspection"}, "open_uncertain"),
        ({"ok": False, "code": "already_reserved", "retry": "after_inspection"}, "open_uncertain"),
        ({"ok": False, "code": "preflight_refused", "retry": "never"}, "prepared"),
        ({"ok": False, "code": "attempt_conflict", "retry": "never"}, "prepared"),
        (None, "open_uncertain"),
    ],
)
def test_an_intent_of_unknown_fate_is_looked_up(node: Node, reply: Any, stage: str) -> None:
    state, effects = run(node, *TO_PREPARED, OPEN, {**BEGUN, "reply": reply})
    assert state["stage"] == stage
    assert [one["do"] for one in effects] == ["save", "rest"]
    assert effects[1]["action"] == "attempt"


@pytest.mark.parametrize(
    ("event", "stage", "action"),
    [
        ({**MADE, "outcome": "unknown"}, "open_uncertain", "attempt"),
        ({**MADE, "session": ""}, "open_uncertain", "attempt"),
        ({**MADE, "runtime": ""}, "open_uncertain", "attempt"),
        ({**MADE, "outcome": "refused", "message": "full"}, "opening", "open_failed"),
    ],
)
def test_a_session_that_may_not_exist(node: Node, event: Any, stage: str, action: str) -> None:
    state, effects = run(node, *TO_PREPARED, OPEN, BEGUN, event)
    assert state["stage"] == stage
    assert effects[-1]["action"] == action


def test_a_proved_failure_ends_the_attempt(node: Node) -> None:
    state, _ = run(node, *TO_PREPARED, OPEN, BEGUN, {**MADE, "outcome": "refused", "message": "x"})
    failed = {"type": "failed", "attempt": IDS["attempt"], "reply": status("launch_failed")}
    state, _ = run(node, failed, state=state)
    assert state["stage"] == "ended"
    assert state["refusal"]["code"] == "create_refused"
    assert run(node, {"type": "fresh"}, state=state)[0]["stage"] == "idle"


@pytest.mark.parametrize("outcome", ["unknown", "refused"])
def test_a_lost_prompt_is_shown_and_never_sent_again(node: Node, outcome: str) -> None:
    events = (*TO_PREPARED, OPEN, BEGUN, MADE, IDENTIFIED, {**SUBMITTED, "outcome": outcome})
    state, effects = run(node, *events)
    assert state["stage"] == "prompt_uncertain"
    assert state["prompt"] == "PROMPT"
    assert all(one["do"] in ("save", "rest") for one in effects)
    for event in (OPEN, SUBMITTED, IDENTIFIED, prepare(), {"type": "fresh"}):
        assert run(node, event, state=state)[0]["stage"] == "prompt_uncertain"
    state, _ = run(node, polled("handoff_read"), state=state)
    assert state["stage"] == "opened"


def test_a_page_that_can_not_save_does_nothing(node: Node) -> None:
    state, _ = run(node, prepare(), captured(), {"type": "save_failed"})
    assert (state["stage"], state["refusal"]["code"]) == ("idle", "storage_failed")
    state, _ = run(node, *TO_PREPARED, OPEN, {"type": "save_failed"})
    assert (state["stage"], state["refusal"]["code"]) == ("prepared", "storage_failed")


# -- a reload, at every step --------------------------------------------------------------------------


PATH = (*TO_PREPARED, OPEN, BEGUN, MADE, IDENTIFIED, SUBMITTED)
AFTER = [
    None,  # prepare: nothing was saved yet
    "ask_uncertain",
    "asked",
    "prepared",
    "open_uncertain",
    "open_uncertain",
    "open_uncertain",
    "prompt_uncertain",
    "prompt_uncertain",
]


@pytest.mark.parametrize("count", range(1, len(PATH) + 1))
def test_a_reload_asks_the_journal_and_nobody_else(node: Node, count: int) -> None:
    state, saved = node("initial"), None
    for event in PATH[:count]:
        told = node("next", state, event)
        state = told["state"]
        for effect in told["effects"]:
            if effect["do"] == "save":
                saved = effect["value"]
    again, effects = run(node, {"type": "restore", "saved": saved})
    wanted = AFTER[count - 1]
    if wanted is None:
        assert (again["stage"], effects) == ("idle", [])
        return
    assert again["stage"] == wanted
    assert [one["do"] for one in effects] == ["save", "rest"]
    assert effects[1]["action"] == "attempt"
    assert again["ask"]["attempt"] == IDS["attempt"]
    # what was under way in the window before is not taken for this one's
    for late in (SENT, BEGUN, MADE, IDENTIFIED, SUBMITTED, captured()):
        assert run(node, late, state=again)[0] == again


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["format", "stage", "step", "ask", "ref", "destination", "attempt", "at"]
                ),
                inner,
                max_size=8,
            )
        ),
        max_leaves=12,
    )
)
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_spoilt_store_begins_anew(node: Node, saved: Any) -> None:
    state, effects = run(node, {"type": "restore", "saved": saved})
    assert state["stage"] == "idle"
    assert effects in ([], [{"do": "save", "value": None}])


def test_each_part_of_what_is_saved_is_checked(node: Node) -> None:
    state, effects = run(node, prepare(), captured())
    whole = saved_of(effects)
    assert node("readSaved", whole)
    for spoil in (
        lambda one: one.update(format=2),
        lambda one: one.update(stage="flying"),
        lambda one: one.update(step=7),
        lambda one: one.update(ref=None),
        lambda one: one.update(ask=None),
        lambda one: one.update(destination="s2"),
        lambda one: one.update(destination={"session": 1, "runtime": "r"}),
        lambda one: one["ask"].update(attempt="../../etc"),
        lambda one: one["ask"].update(request="short"),
        lambda one: one["ask"].update(at="now"),
        lambda one: one["ask"].pop("workspace"),
        lambda one: one["ask"].update(profile=None),
    ):
        spoilt = copy.deepcopy(whole)
        spoil(spoilt)
        assert node("readSaved", spoilt) is None
    del state


# -- other windows and other attempts -----------------------------------------------------------------


def test_a_window_that_is_behind_takes_over_what_another_did(node: Node) -> None:
    _, effects = run(node, prepare(), captured(), SENT)
    behind = {**prepare(), "saved": saved_of(effects)}
    behind["ids"] = {"request": "desk-request-2", "attempt": "desk-attempt-2"}
    state, effects = run(node, behind)
    assert state["stage"] == "asked"
    assert state["refusal"]["code"] == "other_window"
    assert state["ask"]["attempt"] == IDS["attempt"]
    assert all(one["do"] in ("save", "rest") for one in effects)
    state, effects = run(node, *TO_PREPARED)
    mine = saved_of(effects)
    _, effects = run(node, {**OPEN, "saved": mine}, state=state)
    other, effects = run(node, {**OPEN, "saved": saved_of(effects)}, state=state)
    assert other["refusal"]["code"] == "other_window"
    assert other["stage"] == "open_uncertain"
    assert run(node, {**OPEN, "saved": None}, state=state)[1] == []


def test_what_belongs_to_another_attempt_changes_nothing(node: Node) -> None:
    for count in range(1, len(PATH)):
        state, _ = run(node, *PATH[:count])
        for event in PATH[count:]:
            if "attempt" in event:
                assert run(node, {**event, "attempt": "other-one"}, state=state) == (state, [])


@given(
    count=st.integers(0, len(PATH)),
    event=st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["", "constructor", "__proto__", "toString", "nonsense", "ASKED"]
            )
            | st.text(max_size=8).filter(lambda text: text not in TYPES)
        }
    ),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_an_unknown_event_changes_nothing(node: Node, count: int, event: Any) -> None:
    state, _ = run(node, *PATH[:count])
    assert run(node, event, state=state) == (state, [])


TYPES = {
    "restore", "prepare", "captured", "asked", "save_failed", "poll", "polled", "stop_waiting",
    "discard", "fresh", "open", "begun", "created", "failed", "identified", "submitted", "marked",
    "decide", "decided",
}  # fmt: skip


# -- what a person decides ------------------------------------------------------------------------------


def test_only_what_the_journal_allows_is_offered(node: Node) -> None:
    state, _ = run(node, *TO_PREPARED)
    assert node("decisions", state) == ["recover", "abandon"]
    assert run(node, {"type": "decide", "action": "confirm"}, state=state) == (state, [])
    busy, effects = run(node, {"type": "decide", "action": "abandon", "reason": "why"}, state=state)
    assert effects[0]["args"] == {"attempt_id": IDS["attempt"], "reason": "why"}
    assert run(node, OPEN, state=busy) == (busy, [])
    done = {
        "type": "decided",
        "action": "abandon",
        "attempt": IDS["attempt"],
        "reply": status("abandoned"),
    }
    ended, _ = run(node, done, state=busy)
    assert ended["stage"] == "ended"
    assert node("decisions", ended) == []


def test_a_refused_decision_is_told(node: Node) -> None:
    state, _ = run(node, *TO_PREPARED, {"type": "decide", "action": "abandon", "reason": "x"})
    refused = {
        "type": "decided",
        "action": "abandon",
        "attempt": IDS["attempt"],
        "reply": {"ok": False, "code": "already_reserved", "message": "it is open"},
    }
    state, _ = run(node, refused, state=state)
    assert (state["refusal"]["code"], state["busy"]) == ("already_reserved", "")


def test_a_session_that_was_made_can_be_written_down(node: Node) -> None:
    """Its id was heard; that the journal has it was not."""
    state, _ = run(node, *TO_PREPARED, OPEN, BEGUN, MADE, {**IDENTIFIED, "reply": LOST})
    state, _ = run(node, polled("requested"), state=state)
    assert node("decisions", state) == ["recover", "open_created"]
    state, effects = run(node, {"type": "decide", "action": "open_created"}, state=state)
    assert effects[0]["args"] == {"attempt_id": IDS["attempt"], "session": "s2"}
    done = {**IDENTIFIED, "type": "decided", "action": "open_created"}
    state, effects = run(node, done, state=state)
    assert state["stage"] == "prompt_uncertain"
    assert [one["do"] for one in effects] == ["save"]
    state, _ = run(node, *TO_PREPARED, OPEN, BEGUN, {**MADE, "outcome": "unknown"})
    state, _ = run(node, polled("requested"), state=state)
    assert node("decisions", state) == ["recover"]


@pytest.mark.parametrize(("alive", "offered"), [(None, True), (True, False), (False, False)])
def test_where_nothing_can_tell_a_persons_word_is_asked(
    node: Node, alive: bool | None, offered: bool
) -> None:
    other = polled("requested", reservation={"owner_alive": alive})
    state, _ = run(node, *TO_PREPARED, other)
    assert ("abandon" in node("decisions", state)) is offered
    event = {"type": "decide", "action": "abandon", "reason": "r", "gone": True}
    _, effects = run(node, event, state=state)
    assert bool(effects) is offered
    if offered:
        assert effects[0]["args"]["owner_is_gone"] is True


def test_recovery_brings_the_prompt(node: Node) -> None:
    state, _ = run(node, *TO_PREPARED, {"type": "decide", "action": "recover"})
    reply = {"ok": True, "status": status("prepared"), "events": [], "prompt": "P"}
    event = {"type": "decided", "action": "recover", "attempt": IDS["attempt"], "reply": reply}
    state, _ = run(node, event, state=state)
    assert (state["prompt"], state["recovery"]["events"]) == ("P", [])


# -- texts -----------------------------------------------------------------------------------------------


def test_the_two_buttons_have_their_italian_names(node: Node) -> None:
    words = node("texts")
    assert words["it"] == {
        "prepare": "Prepara handoff dalla chat",
        "open": "Apri nuova sessione",
    }
    assert node("said", "it-IT", ["prepare", "title"]) == ["Prepara handoff dalla chat", "Handoff"]
    assert node("said", "italics", ["prepare"]) == ["Prepare handoff from chat"]
    assert node("said", "", ["open", "no_such_text"]) == ["Open new session", "no_such_text"]


def test_every_stage_and_refusal_has_its_text(node: Node) -> None:
    words = node("texts")["en"]
    source = (ROOT / "src/handoff/plugins/hermes_handoff/dashboard/flow.mjs").read_text()
    assert all(f"stage_{stage}" in words for stage in node("constants")["STAGES"])
    codes = set(re.findall(r"(?:refusal\(|return |\? )'([a-z_]+)'", source))
    codes -= {*node("constants")["STAGES"], "attempt", "ask", "save", "it"}
    assert len(codes) > 20
    assert not {code for code in codes if f"refusal_{code}" not in words}
    used = set()
    for name in ("dashboard/panel.mjs", "dashboard/index.js", "desktop/plugin.js"):
        text = (ROOT / "src/handoff/plugins/hermes_handoff" / name).read_text()
        used |= set(re.findall(r"\bsay\('([a-z_]+)'\)", text))
    assert used <= set(words)


def test_the_desktop_file_holds_the_modules_as_they_are() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/gen-desktop", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


# -- any order of anything --------------------------------------------------------------------------------


DECISIONS = ("recover", "abandon", "confirm", "adopt", "open_created")


class Window:
    """One window: a state, and requests whose answers have not come yet."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state = world.node("initial")
        self.pending: list[Callable[[], None]] = []
        self.send({"type": "restore", "saved": copy.deepcopy(world.store)})

    def send(self, event: dict[str, Any]) -> None:
        told = self.world.node("next", self.state, event)
        assert told["intact"]
        self.state = told["state"]
        for effect in told["effects"]:
            if effect["do"] == "save":
                if self.world.full:
                    self.send({"type": "save_failed"})
                    if effect.get("must"):
                        return
                else:
                    self.world.store = copy.deepcopy(effect["value"])
            else:
                if effect["do"] == "ask" or effect.get("action") == "open_begin":
                    assert self.world.store["ask"]["attempt"] == effect["attempt"]
                self.pending.append(lambda effect=effect: self.world.perform(self, effect))


class World:
    """The journal, the store of the page, the source chat, and all windows."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.store: Any = None
        self.full = False
        self.clock = 1000
        self.presses = 0
        self.asked: dict[str, int] = {}
        self.journal: dict[str, dict[str, Any]] = {}
        self.made: dict[str, int] = {}
        self.submitted: dict[str, int] = {}
        self.fate = "sent"

    def perform(self, window: Window, effect: dict[str, Any]) -> None:
        attempt, kind = effect.get("attempt", ""), effect["do"]
        if kind == "ask":
            if self.fate != "refused":
                self.asked[attempt] = self.asked.get(attempt, 0) + 1
            window.send({"type": "asked", "attempt": attempt, "outcome": self.fate})
        if kind == "create":
            if self.fate != "refused":
                self.made[attempt] = self.made.get(attempt, 0) + 1
            outcome = "made" if self.fate == "sent" else self.fate
            window.send({**MADE, "attempt": attempt, "outcome": outcome})
        if kind == "submit":
            if self.fate != "refused":
                self.submitted[attempt] = self.submitted.get(attempt, 0) + 1
            window.send({"type": "submitted", "attempt": attempt, "outcome": self.fate})
        if kind == "rest":
            reply = self.rest(effect["action"], attempt)
            if self.fate == "unknown":
                reply = LOST
            event = {"type": effect["then"], "attempt": attempt, "action": effect["action"]}
            window.send({**event, "reply": reply, "capture": CAPTURE, "now": self.clock})

    def status(self, attempt: str) -> dict[str, Any]:
        row = self.journal[attempt]
        told = status(row["state"], ref=REF)
        told["prompt"] = row["prompt"] if row["state"] == "session_identified" else told["prompt"]
        return told

    def rest(self, action: str, attempt: str) -> dict[str, Any]:
        if action == "capture":
            return captured()["reply"]  # type: ignore[no-any-return]
        row = self.journal.get(attempt)
        if row is None:
            return {"ok": False, "code": "unknown_attempt"}
        if action == "attempt":
            return {"ok": True, "status": self.status(attempt), "frozen": FROZEN}
        if action == "open_begin":
            if row["state"] != "prepared":
                return {"ok": False, "code": "already_reserved", "retry": "after_inspection"}
            row["state"] = "requested"
            return {**BEGUN["reply"], "status": self.status(attempt)}  # type: ignore[dict-item]
        if action == "open_created" and row["state"] == "requested":
            row.update(state="session_identified", prompt="prompt_uncertain")
        if action == "open_submitted":
            row["prompt"] = "sent"
        if action == "open_failed":
            row["state"] = "launch_failed"
        if action == "abandon":
            row["state"] = "abandoned"
        if action == "recover":
            return {"ok": True, "status": self.status(attempt), "events": [], "prompt": "P"}
        return self.status(attempt)


class PageMachine(RuleBasedStateMachine):
    """Two windows, lost answers, refusals, a full store, reloads, in any order."""

    node: Node

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.node)
        self.windows = [Window(self.world), Window(self.world)]

    which = st.integers(0, 1)

    @rule(which=which)
    def press_prepare(self, which: int) -> None:
        self.world.presses += 1
        number = self.world.presses
        ids = {"request": f"desk-request-{number}", "attempt": f"desk-attempt-{number}"}
        event = {**prepare(), "ids": ids, "saved": copy.deepcopy(self.world.store)}
        self.windows[which].send({**event, "now": self.world.clock})

    @rule(which=which)
    def press_open(self, which: int) -> None:
        self.windows[which].send({**OPEN, "saved": copy.deepcopy(self.world.store)})

    @rule(which=which, fate=st.sampled_from(["sent", "sent", "sent", "refused", "unknown"]))
    def answer(self, which: int, fate: str) -> None:
        pending = self.windows[which].pending
        if pending:
            self.world.fate = fate
            pending.pop(0)()
            self.world.fate = "sent"

    @rule(which=which)
    def go_on(self, which: int) -> None:
        """Whatever comes next if all goes well."""
        window = self.windows[which]
        if window.pending:
            window.pending.pop(0)()
        elif window.state["stage"] == "idle":
            self.press_prepare(which)
        elif window.state["stage"] == "prepared":
            self.press_open(which)
        else:
            self.source_prepares()
            window.send({"type": "poll"})

    @rule(which=which, carried_out=st.booleans())
    def reload(self, which: int, carried_out: bool) -> None:
        old = self.windows[which]
        new = Window(self.world)
        if carried_out:  # what was on its way arrives, and nobody hears the answer
            full, store = self.world.full, copy.deepcopy(self.world.store)
            for one in old.pending[:1]:
                one()
            self.world.full, self.world.store = full, store
        self.windows[which] = new

    @rule()
    def source_prepares(self) -> None:
        for attempt in self.world.asked:
            row = {"state": "prepared", "prompt": "not_sent"}
            self.world.journal.setdefault(attempt, row)

    @precondition(lambda self: self.world.journal)
    @rule(state=st.sampled_from(["handoff_read", "acknowledged", "closed"]))
    def destination_goes_on(self, state: str) -> None:
        for attempt, row in self.world.journal.items():
            if self.world.submitted.get(attempt) and row["state"] in (
                "session_identified",
                "handoff_read",
                "acknowledged",
            ):
                row["state"] = state

    @rule(which=which, event=st.sampled_from(["poll", "stop_waiting", "fresh", "discard"]))
    def press(self, which: int, event: str) -> None:
        self.windows[which].send({"type": event, "looked": True})

    @rule(which=which, action=st.sampled_from(DECISIONS))
    def decide(self, which: int, action: str) -> None:
        self.windows[which].send({"type": "decide", "action": action, "reason": "r"})

    @rule(full=st.booleans())
    def store(self, full: bool) -> None:
        self.world.full = full

    @rule(by=st.integers(1, 10**6))
    def time(self, by: int) -> None:
        self.world.clock += by

    @invariant()
    def nothing_happens_twice(self) -> None:
        for counted in (self.world.asked, self.world.made, self.world.submitted):
            assert all(number == 1 for number in counted.values()), counted
        assert sum(self.world.asked.values()) <= self.world.presses

    @invariant()
    def the_stage_is_one_of_them(self) -> None:
        for window in self.windows:
            assert window.state["stage"] in STAGES
            if window.state["stage"] != "idle":
                assert window.state["ask"]


STAGES = [
    "idle", "checking", "asking", "asked", "ask_uncertain", "prepared", "opening",
    "open_uncertain", "prompt_uncertain", "opened", "ended",
]  # fmt: skip


def test_no_order_of_events_does_anything_twice(node: Node) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    machine = type("Machine", (PageMachine,), {"node": node})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=150, stateful_step_count=50, deadline=None)
    )
