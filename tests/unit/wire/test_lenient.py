from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from handoff.wire.lenient import lenient


class Inner(msgspec.Struct, frozen=True, rename="camel"):
    some_id: str
    note: str | None = None


class Outer(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    count: int = 7
    inner: Inner | None = None
    many: list[Inner] = []
    pair: tuple[int, ...] = ()


def test_sound_values_are_taken_whole():
    assert lenient(Outer, {"name": "a", "count": 2, "inner": {"someId": "x"}}) == Outer(
        "a", 2, Inner("x")
    )


def test_unknown_fields_are_ignored():
    assert lenient(Outer, {"name": "a", "new": [1]}) == Outer("a")


def test_a_wrong_field_takes_its_default():
    assert lenient(Outer, {"name": "a", "count": "many"}) == Outer("a")
    assert lenient(Outer, {"name": "a", "inner": 5, "many": {}}) == Outer("a")


def test_wrong_elements_are_left_out():
    value = {"name": "a", "many": [{"someId": "x"}, 5, {}, {"someId": "y", "note": 1}]}
    assert lenient(Outer, value) == Outer("a", many=[Inner("x"), Inner("y")])
    assert lenient(Outer, {"name": "a", "pair": [1, "2", 3]}) == Outer("a", pair=(1, 3))


def test_a_wrong_required_field_spoils_the_value():
    assert lenient(Outer, {}) is None
    assert lenient(Outer, {"name": 5}) is None
    assert lenient(Outer, "name") is None
    assert lenient(Outer, {"name": "a", "inner": {"note": "n"}}) == Outer("a")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "count", "inner", "many", "pair", "someId", "note"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(_json)
def test_never_raises(value):
    found = lenient(Outer, value)
    assert found is None or isinstance(found.name, str)
