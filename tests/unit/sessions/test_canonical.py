from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.errors import InputTooLarge, StateInvalid
from handoff.sessions import canonical

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-canonical.MAX_INTEGER, canonical.MAX_INTEGER)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(
        st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(VALUES)
def test_canonical_bytes_are_json_and_come_back(value: object) -> None:
    raw = canonical.dumps(value)
    assert canonical.loads(raw) == value
    assert json.loads(raw) == value
    assert canonical.dumps(canonical.loads(raw)) == raw


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9)))
def test_the_order_of_keys_does_not_matter(value: dict[str, int]) -> None:
    turned = dict(reversed(list(value.items())))
    assert canonical.dumps(turned) == canonical.dumps(value)
    assert canonical.content_id("d", turned) == canonical.content_id("d", value)


def test_the_form_is_fixed() -> None:
    value = {"b": [1, True, None], "a": 'ä"\\\n\x01/', "ﬀ": {}, "𝒳": -5}
    expected = '{"a":"ä\\"\\\\\\n\\u0001/","b":[1,true,null],"ﬀ":{},"𝒳":-5}'
    assert canonical.dumps(value) == expected.encode()


def test_digests_name_their_domain() -> None:
    assert canonical.digest("a", b"x") != canonical.digest("b", b"x")
    # printf 'handoff-state/2\n{}' | sha256sum
    assert canonical.digest("handoff-state/2", b"{}") == (
        "1a59922426e5d6fd2c8e746d0a937c6804e9545981b3ca567be7227c367ccebe"
    )
    identifier = canonical.content_id("d", {"a": 1})
    assert len(identifier) == 32
    assert set(identifier) <= set("abcdefghijklmnopqrstuvwxyz234567")


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    "text",
    [
        "1.5", "1e3", "NaN", "Infinity", "-Infinity", '{"a":1,"a":2}', '{"a":{"b":1,"b":1}}', "",
        "{", "[1,]", "'a'", '"\\ud800"x', str(2**53), "-" + "9" * 5000, deep(40), deep(100_000),
        '{"a":1} x', "\ufeff{}", "[1, 2",
    ],
    ids=range(19),
)  # fmt: skip
def test_lenient_json_is_refused(text: str) -> None:
    with pytest.raises(StateInvalid):
        canonical.loads(text)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(StateInvalid, match="byte 1"):
        canonical.loads(b'"\xff"')


def test_size_is_judged_before_anything_is_read() -> None:
    with pytest.raises(InputTooLarge):
        canonical.loads(b" " * (canonical.MAX_INPUT + 1))


@pytest.mark.parametrize(
    "value", [1.5, {1: 2}, {"a": b"x"}, "\ud800", {"\udfff": 1}, 2**53, object()]
)
def test_what_has_no_form_is_refused(value: object) -> None:
    with pytest.raises(StateInvalid):
        canonical.dumps(value)


def test_an_error_repeats_nothing_of_the_input() -> None:
    with pytest.raises(StateInvalid) as caught:
        canonical.loads('{"password": "hunter2-hunter2" oops')
    assert "hunter2" not in str(caught.value.to_json())
