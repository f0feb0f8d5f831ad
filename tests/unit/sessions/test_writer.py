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


def test_one_changed_byte_ends_the_attribution_and_nothing_else() -> None:
    state = check(samples.full()).state
    token = writer.attribution(state)
    assert writer.attribute(state, token, "m", "p") == ("explicit", "m", "p", True)
    state["context"][0]["text"] += " "
    assert writer.attribute(state, token, "m", "p").attributed is False
    assert writer.attribute(state, "ä", "m", "p").attributed is False
    assert writer.attribute(state, None, "m", "p").to_json() == {
        "kind": "chat", "model": "m", "provider": "p", "attributed": False,
    }  # fmt: skip


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
