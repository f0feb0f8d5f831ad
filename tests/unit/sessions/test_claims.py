from __future__ import annotations

import pytest
from tests.unit.sessions import samples

from handoff.errors import StateInvalid
from handoff.sessions.claims import Fact, inherit, settle, unfounded
from handoff.sessions.state import check

FACTS = [Fact("tool", "call-7", samples.SHA), Fact("message", "m (1) ] x"), Fact("message", "m9")]


def state(**evidence: object):
    value = samples.full()
    value["lineage"] = {}
    value["progress"]["done"][0] |= evidence
    return check(value).state


def basis(settled) -> str:
    return settled.state["progress"]["done"][0]["basis"]


def test_a_claim_with_its_evidence_stays() -> None:
    settled = settle(state(), FACTS)
    assert basis(settled) == "observed"
    assert [n.pointer for n in settled.changes] == ["/constraints/1/basis"]
    assert unfounded(state(), FACTS) == []


@pytest.mark.parametrize(
    ("one", "code"),
    [
        ({"kind": "message", "id": "nowhere"}, "no_such_evidence"),
        ({"kind": "tool", "id": "m9"}, "no_such_evidence"),
        ({"kind": "tool", "id": "call-7", "sha256": "0" * 64}, "other_content"),
    ],
)
def test_a_claim_without_its_evidence_is_lowered_and_named(one, code) -> None:
    made = state(evidence=[one])
    settled = settle(made, FACTS)
    assert basis(settled) == "reported"
    assert "/progress/done/0/basis" in {n.pointer for n in settled.changes}
    assert [(n.pointer, n.code) for n in unfounded(made, FACTS)] == [
        ("/progress/done/0/evidence/0", code)
    ]
    assert made["progress"]["done"][0]["basis"] == "observed"


def test_only_the_tool_says_verified() -> None:
    made = state(basis="verified")
    assert basis(settle(made, FACTS)) == "observed"
    assert basis(settle(made, FACTS, verified=["/progress/done/0"])) == "verified"


def test_a_constraint_of_a_message_that_is_not_there_is_reported() -> None:
    value = samples.full()
    value["constraints"][0] |= {
        "basis": "observed", "evidence": [{"kind": "message", "id": "none"}],
    }  # fmt: skip
    made = check(value).state
    assert settle(made, FACTS).state["constraints"][0]["basis"] == "reported"


def test_what_is_inherited_stays_so_until_it_is_shown_again() -> None:
    child = inherit(state(), "handoff://p/h")
    assert child["lineage"]["depth"] == 1
    assert "p1" in child["lineage"]["inherited_ids"]
    assert child["progress"]["done"][0]["basis"] == "inherited"
    child["progress"]["done"][0]["basis"] = "observed"
    assert basis(settle(child, [])) == "inherited"
    assert basis(settle(child, FACTS)) == "observed"


def test_a_chain_has_an_end() -> None:
    made = state()
    for _ in range(64):
        made = inherit(made, "handoff://p/h")
    with pytest.raises(StateInvalid):
        inherit(made, "handoff://p/h")
