from __future__ import annotations

import copy
import json

import pytest
from tests.unit.sessions import samples

from handoff.errors import ConsentMissing, StateInvalid, TooLarge, UsageError
from handoff.sessions import writer
from handoff.sessions.state import check


def config(**llm: object) -> dict[str, object]:
    return {"plugins": {"entries": {"h": {"llm": llm}}}}


BOTH = {"allow_model_override": True, "allow_provider_override": True}


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, 2), (config(), 2), (config(allow_model_override=True), 1),
        (config(**BOTH | {"allow_provider_override": "yes"}), 1), ({"plugins": []}, 2),
        ({"plugins": {"entries": {"other": {"llm": BOTH}}}}, 2),
    ],
)  # fmt: skip
def test_without_both_consents_nothing_is_asked(given, missing) -> None:
    before = copy.deepcopy(given)
    with pytest.raises(ConsentMissing) as caught:
        writer.require_consent("h", given, accept_cost=True)
    assert len(caught.value.details["keys"]) == missing  # type: ignore[arg-type]
    assert given == before


def test_the_cost_is_accepted_each_time() -> None:
    writer.require_consent("h", config(**BOTH), accept_cost=True)
    with pytest.raises(UsageError, match="cost"):
        writer.require_consent("h", config(**BOTH), accept_cost=False)


def test_a_model_is_named_by_both_names_or_not_at_all() -> None:
    assert writer.require_pair("m", "p")
    assert not writer.require_pair(None, "")
    for pair in (("m", None), (None, "p")):
        with pytest.raises(UsageError):
            writer.require_pair(*pair)


KEY = b"k" * 32


def test_one_changed_byte_ends_the_attribution_and_nothing_else() -> None:
    state = check(samples.full()).state
    token = writer.attribution(state, "modèle/1", "p", KEY)
    assert writer.attribute(state, token, KEY) == ("explicit", "modèle/1", "p", True)
    assert len(writer.attribution(state, "m" * 256, "p" * 256, KEY)) < 1024
    state["context"][0]["text"] += " "
    assert writer.attribute(state, token, KEY).to_json() == {
        "kind": "explicit", "model": "", "provider": "", "attributed": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "ä",
        "\ud800.W10",
        "a" * 64,
        "a" * 64 + ".W10",
        "a" * 64 + ".WzEsMl0",
        "x.!",
        "x.bnVsbA",
    ],
)
def test_a_token_of_somebodys_own_names_nobody(token: str) -> None:
    state = check(samples.full()).state
    assert writer.attribute(state, token, KEY) == ("explicit", "", "", False)


def test_names_and_key_can_not_be_exchanged() -> None:
    state = check(samples.full()).state
    mine, other = (writer.attribution(state, name, "p", KEY) for name in ("m", "n"))
    forged = mine.split(".")[0] + "." + other.split(".")[1]
    assert writer.attribute(state, forged, KEY).attributed is False
    assert writer.attribute(state, mine, b"j" * 32).attributed is False


def test_what_is_sent_is_bounded_and_shown() -> None:
    made = writer.prepare("some evidence")
    assert made.bytes == len(made.prompt.encode())
    assert any(made.sha256 in line for line in writer.cost_notice(made, "m", "p"))
    with pytest.raises(TooLarge):
        writer.prepare("x" * (writer.EVIDENCE_MAX + 1))


@pytest.mark.parametrize("wrap", ["{}", "```json\n{}\n```", "Here it is:\n```\n{}\n```\nDone."])
def test_an_answer_is_read(wrap: str) -> None:
    text = wrap.replace("{}", json.dumps(samples.full()))
    assert writer.accept(text).state == check(samples.full()).state


@pytest.mark.parametrize("text", ["", "no", "```\n{}\n```\n```\n{}\n```", "```\n{}", "{}"])
def test_an_answer_without_a_state_is_refused(text: str) -> None:
    with pytest.raises(StateInvalid):
        writer.accept(text)


def test_the_writer_is_told_every_field() -> None:
    told = writer.instructions()
    for word in ("constraints (<= 128)", "kind=must|must_not|prefer", "progress.done", "why?"):
        assert word in told
