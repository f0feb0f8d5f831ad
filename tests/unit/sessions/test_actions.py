from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.errors import UsageError
from handoff.sessions import actions
from handoff.sessions.actions import ACTIONS, MODEL_ACTIONS, TOOL_SCHEMA, check

REF = "handoff://" + "a" * 32 + "/" + "b" * 32
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from([REF, "/tmp", "attempt-0001", "\0", "\ud800", "a" * 5000]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def faults(action: str, given: Any) -> list[tuple[str, str]]:
    with pytest.raises(UsageError) as caught:
        check(action, given)
    found = caught.value.details["faults"]
    assert isinstance(found, list)
    return [(one["pointer"], one["code"]) for one in found]


@given(st.sampled_from([*ACTIONS, "", "nope"]), VALUES)
def test_whatever_comes_is_taken_or_refused_with_a_reason(action: str, given: Any) -> None:
    try:
        found = check(action, given)
    except UsageError as error:
        json.dumps(error.to_json()).encode()
        assert action not in ACTIONS or error.details["faults"]
    else:
        assert set(found) <= set(ACTIONS[action].args)


@given(
    st.sampled_from(list(ACTIONS)).flatmap(
        lambda action: st.tuples(
            st.just(action),
            st.fixed_dictionaries({}, optional=dict.fromkeys(ACTIONS[action].args, VALUES)),
        )
    )
)
def test_known_keys_with_any_values(call: tuple[str, dict[str, Any]]) -> None:
    action, arguments = call
    try:
        found = check(action, arguments)
    except UsageError as error:
        for one in error.details["faults"]:  # type: ignore[attr-defined]
            assert set(one) == {"pointer", "code", "message"}
            pointer = one["pointer"].split("/")
            assert len(pointer) < 2 or pointer[1] in ACTIONS[action].args
    else:
        for name, arg in ACTIONS[action].args.items():
            assert name in found or not arg.need


def test_all_faults_are_told_at_once() -> None:
    assert faults("prepare_open", {"ref": REF[:-1], "workspace": "w", "page": 1, "model": "m"}) == [
        ("/page", "unknown_key"),
        ("/ref", "wrong_value"),
        ("/workspace", "wrong_value"),
        ("/attempt_id", "missing"),
        ("/provider", "missing"),
    ]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"ref": REF + "?x"}, ("/ref", "wrong_value")),
        ({"ref": REF + "\n"}, ("/ref", "wrong_value")),
        ({"ref": 7}, ("/ref", "wrong_type")),
        ({"ref": REF, "page": 0}, ("/page", "wrong_value")),
        ({"ref": REF, "page": True}, ("/page", "wrong_type")),
        ({"ref": REF, "page": 1.0}, ("/page", "wrong_type")),
        ({"ref": REF, "attempt_id": "short"}, ("/attempt_id", "wrong_value")),
        ({"ref": REF, "attempt_id": "a-\ud800aaaaaa"}, ("/attempt_id", "wrong_value")),
        ({"ref": REF, "workspace": "/a\nb"}, ("/workspace", "wrong_value")),
        ({"ref": REF, "workspace": "/a\0b"}, ("/workspace", "wrong_value")),
        ({"ref": REF, "workspace": "/" + "a" * 5000}, ("/workspace", "too_large")),
    ],
)
def test_each_kind_of_fault_has_its_pointer(
    arguments: dict[str, Any], fault: tuple[str, str]
) -> None:
    assert faults("read", arguments) == [fault]


def test_a_path_of_other_bytes_is_a_path() -> None:
    path = "/tmp/\udcff"
    assert check("list", {"workspace": path}) == {"workspace": path}


def test_a_long_list_of_faults_is_cut_and_counted() -> None:
    with pytest.raises(UsageError) as caught:
        check("list", {f"k{n}": n for n in range(50)})
    assert len(caught.value.details["faults"]) == actions.FAULTS  # type: ignore[arg-type]
    assert caught.value.details["total"] == 50


def test_the_schema_has_what_every_host_understands() -> None:
    text = json.dumps(TOOL_SCHEMA)
    for word in ("oneOf", "anyOf", "allOf", "$ref", "if"):
        assert f'"{word}"' not in text
    assert TOOL_SCHEMA["required"] == ["action"]
    assert TOOL_SCHEMA["additionalProperties"] is False
    assert TOOL_SCHEMA["properties"]["action"]["enum"] == list(MODEL_ACTIONS)
    assert len(text) < 8000


def test_a_model_is_offered_nothing_that_is_a_persons() -> None:
    assert {"confirm", "abandon", "adopt", "purge", "prune", "export", "import"}.isdisjoint(
        MODEL_ACTIONS
    )
    described = TOOL_SCHEMA["properties"]["action"]["description"]
    for name in MODEL_ACTIONS:
        assert f"{name}(" in described
        for key in ACTIONS[name].args:
            assert key in TOOL_SCHEMA["properties"]


def test_no_argument_says_who_calls() -> None:
    """The session that speaks comes from the host: a key for it would be a way to lie."""
    for name in MODEL_ACTIONS:
        assert not {"session_id", "caller", "person", "profile"} & set(ACTIONS[name].args), name
