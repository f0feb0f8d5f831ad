from __future__ import annotations

from typing import Any

import pytest
from tests.unit.sessions import samples

from handoff.errors import StateInvalid
from handoff.sessions.claims import aged, inherit
from handoff.sessions.state import State, check


def state(**done: object) -> State:
    value = samples.full()
    value["lineage"] = {}
    value["progress"]["done"][0] |= done
    return check(value).state


def bases(made: State) -> dict[str, str]:
    return {
        item["id"]: item["basis"]
        for items in (made["constraints"], made["context"], *made["progress"].values())
        for item in items
    }


def nothing(_item: dict[str, Any]) -> bool:
    return False


def test_what_the_record_before_held_already_is_inherited() -> None:
    parent, made = state(), state()
    found = aged(made, parent, nothing)
    assert {name for name, basis in bases(found.state).items() if basis == "inherited"} == {
        "p1", "w1", "t1", "x1",
    }  # fmt: skip
    assert found.state["lineage"]["inherited_ids"] == ["p1", "w1", "t1", "x1"]
    assert {note.code for note in found.changes} == {"basis_inherited"}
    assert "/progress/done/0/basis" in {note.pointer for note in found.changes}
    assert bases(made)["p1"] == "observed", "what was given stays as it is"
    check(found.state)


def test_a_rule_is_in_force_and_no_claim_to_be_checked() -> None:
    found = aged(state(), state(), nothing)
    assert (bases(found.state)["c1"], bases(found.state)["c2"]) == ("reported", "observed")


def test_what_this_session_shows_or_says_anew_is_not_inherited() -> None:
    found = aged(state(), state(), lambda item: item["id"] == "p1")
    assert bases(found.state)["p1"] == "observed"
    found = aged(state(text="Wrote lexer.py and its tests"), state(), nothing)
    assert bases(found.state)["p1"] == "observed", "another claim under the same id"
    assert aged(state(), None, nothing).changes == ()


def test_what_moves_on_within_the_progress_is_the_same_claim() -> None:
    parent, value = state(), samples.full()
    value["lineage"] = {}
    moved = value["progress"]["pending"].pop()
    value["progress"]["done"].append({**moved, "basis": "reported"})
    found = aged(check(value).state, parent, nothing)
    assert bases(found.state)["t1"] == "inherited"


def test_what_is_inherited_stays_so_until_it_is_shown_again() -> None:
    child = inherit(state(), "handoff://p/h")
    assert child["lineage"]["depth"] == 1
    assert "p1" in child["lineage"]["inherited_ids"]
    assert child["progress"]["done"][0]["basis"] == "inherited"
    child["progress"]["done"][0]["basis"] = "observed"
    assert bases(aged(child, None, nothing).state)["p1"] == "inherited"
    assert bases(aged(child, None, lambda _item: True).state)["p1"] == "observed"


def test_an_id_of_several_lists_names_no_claim() -> None:
    value = samples.full()
    value["lineage"] = {}
    value["questions"][0]["id"] = "p1"
    made = check(value).state
    found = aged(made, made, nothing)
    assert "p1" not in found.state["lineage"]["inherited_ids"]
    check(found.state)


def test_a_chain_has_an_end() -> None:
    made = state()
    for _ in range(64):
        made = inherit(made, "handoff://p/h")
    with pytest.raises(StateInvalid):
        inherit(made, "handoff://p/h")
