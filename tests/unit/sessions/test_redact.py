from __future__ import annotations

import base64
import copy
import json

import pytest
from hypothesis import given, settings
from tests.unit.sessions import samples

from handoff.errors import StateInvalid
from handoff.sessions import document
from handoff.sessions.redact import RULES, SessionRedactor
from handoff.sessions.state import check

KEY = b"profile key"
SECRETS = {
    "github-token": "ghp_" + "a1B2c3D4e5" * 4,
    "password": "hunter2-Hunter2",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5NXgL0n3I9PlFUP0THs",
}


def texts() -> dict[str, str]:
    token = SECRETS["github-token"]
    return {
        "goal": f"Use {token} to log in",
        "wrapped": f"the token {token[:20]}\n{token[20:]} works",
        "base64": base64.b64encode(token.encode()).decode(),
        "url": f"https://x:{SECRETS['password']}@host/y",
        "said": f"the password is {SECRETS['password']}",
        "jwt": f"header {SECRETS['jwt']}",
    }


def leaky() -> dict[str, object]:
    state = samples.full()
    given_ = texts()
    state["goal"]["text"] = given_["goal"]
    state["goal"]["done_when"] = [given_["said"]]
    state["constraints"][0]["text"] = given_["wrapped"]
    state["progress"]["done"][0]["text"] = given_["base64"]
    state["decisions"][1]["alternatives"] = [given_["url"]]
    state["rejected"][0]["why"] = given_["jwt"]
    state["verification"][0]["command"] = f"curl -u me:{SECRETS['password']} x"
    state["files"][0]["path"] = f"out/{SECRETS['github-token']}.txt"
    state["files"][0]["note"] = given_["said"]
    state["omissions"][0]["what"] = given_["goal"]
    state["progress"]["done"][0]["evidence"][1]["id"] = SECRETS["github-token"]
    state["lineage"]["parent_ref"] = f"handoff://{SECRETS['github-token']}/x"
    return state


@pytest.mark.parametrize("mode", ["standard", "strict"])
def test_no_field_of_a_state_keeps_a_secret(mode: str) -> None:
    state = check(leaky()).state
    before = copy.deepcopy(state)
    redacted = SessionRedactor(KEY, mode).state(state)
    assert state == before
    shown = json.dumps(redacted.value) + document.render(redacted.value)
    for secret in (*SECRETS.values(), texts()["base64"]):
        assert secret not in shown
        assert secret[-8:] not in shown
    assert redacted.counts["github-token"] >= 4
    assert "/goal/text" in redacted.pointers
    assert "/decisions/1/alternatives/0" in redacted.pointers
    assert RULES == "redaction/2"


def test_the_same_secret_has_the_same_mark_and_another_key_another() -> None:
    first = SessionRedactor(KEY).text(SECRETS["github-token"])
    assert first in SessionRedactor(KEY).text(texts()["goal"])
    assert SessionRedactor(b"another").text(SECRETS["github-token"]) != first


@given(samples.states())
@settings(max_examples=40, deadline=None)
def test_redacting_again_finds_nothing(state) -> None:
    redactor = SessionRedactor(KEY, "strict")
    once = redactor.state(check(state).state)
    assert redactor.state(once.value).findings == ()  # type: ignore[arg-type]
    assert redactor.clean(once.value) or once.value


def test_an_ordinary_state_stays_as_it_is() -> None:
    state = check(samples.full()).state
    for mode in ("standard", "strict"):
        assert SessionRedactor(KEY, mode).state(state).value == state


def test_a_secret_as_an_id_is_refused_by_its_place() -> None:
    state = samples.full()
    state["constraints"][0]["id"] = SECRETS["github-token"]
    with pytest.raises(StateInvalid) as caught:
        SessionRedactor(KEY).state(check(state).state)
    assert [f["pointer"] for f in caught.value.details["faults"]] == ["/constraints/0/id"]  # type: ignore[union-attr]
    assert SECRETS["github-token"] not in json.dumps(caught.value.to_json())


def test_any_value_is_redacted_in_texts_keys_and_pairs() -> None:
    token = SECRETS["github-token"]
    value = {token: 1, "password": "hunter2", "list": [{"x": token}], "n": 5, "note": "plain"}
    redacted = SessionRedactor(KEY).value(value)
    shown = json.dumps(redacted.value)
    assert token not in shown and "hunter2" not in shown
    assert '"note": "plain"' in shown and '"n": 5' in shown
    assert {f.pointer for f in redacted.findings} == {"/(key 1)", "/password", "/list/0/x"}
    assert SessionRedactor(KEY).clean(redacted.value)


def test_a_finding_never_holds_the_secret_or_its_length() -> None:
    short = SessionRedactor(KEY).value(["token: q8Zx77aKq9"]).findings
    long = SessionRedactor(KEY).value(["token: q8Zx77aKq9q8Zx77aKq9q8Zx77aKq9"]).findings
    assert short == long


def test_the_allow_list_and_the_facts_let_through() -> None:
    value = "9f8A7b6C5d4E3f2A1b0cXyZz"
    strict = SessionRedactor(KEY, "strict")
    assert value not in strict.text(value)
    assert SessionRedactor(KEY, "strict", allow=[strict.allowance(value)]).text(value) == value
    assert SessionRedactor(KEY, "strict", facts=[value]).text(value) == value
    with pytest.raises(ValueError, match="standard, strict"):
        SessionRedactor(KEY, "plain")
