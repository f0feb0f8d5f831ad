from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff import errors
from handoff.errors import HandoffError, all_errors, from_json

CLASSES = sorted(all_errors().values(), key=lambda cls: cls.code)
TREE = re.compile(r"^    [│ ├└─]*(?P<name>\w+) +(?P<code>\w+) +(?P<http>\d{3}) +(?P<exit>\d+)")


def documented() -> dict[str, tuple[str, int, int]]:
    rows = {}
    for line in (errors.__doc__ or "").splitlines():
        match = TREE.match(line)
        if match:
            rows[match["name"]] = (match["code"], int(match["http"]), int(match["exit"]))
    return rows


def test_the_tree_at_the_top_is_the_tree() -> None:
    real = {cls.__name__: (cls.code, cls.http, cls.exit_code) for cls in CLASSES}
    del real["HandoffError"]
    assert documented() == real


def test_the_printed_indentation_is_the_inheritance() -> None:
    above: list[tuple[int, str]] = [(-1, "HandoffError")]
    for line in (errors.__doc__ or "").splitlines():
        match = TREE.match(line)
        if not match:
            continue
        depth = match.start("name")
        while above[-1][0] >= depth:
            above.pop()
        assert getattr(errors, match["name"]).__mro__[1].__name__ == above[-1][1]
        above.append((depth, match["name"]))


def test_everything_public_is_exported_and_sorted() -> None:
    expected = {cls.__name__ for cls in CLASSES} | {"all_errors", "from_json"}
    assert set(errors.__all__) == expected
    assert errors.__all__ == sorted(errors.__all__)


def test_codes_are_unique() -> None:
    queue, seen = [HandoffError], []
    while queue:
        cls = queue.pop()
        if "code" in vars(cls):
            seen.append(cls.code)
        queue.extend(cls.__subclasses__())
    assert len(seen) == len(set(seen))


def test_a_class_without_a_code_of_its_own_does_not_take_its_bases_place() -> None:
    class Inner(errors.TooLarge):
        """It is too large in a way of its own."""

    assert all_errors()["too_large"] is errors.TooLarge
    assert type(from_json(Inner("x").to_json(), 413)) is errors.TooLarge


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.code)
def test_an_error_says_something_even_without_a_cause(cls: type[HandoffError]) -> None:
    error = cls()
    assert str(error) == error.cause
    assert error.cause
    assert "\n" not in error.cause


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.code)
def test_the_wire_form_comes_back_as_the_same_class(cls: type[HandoffError]) -> None:
    sent = cls("it broke", remedy="handoff status", path="/x", count=3)
    body = json.loads(json.dumps(sent.to_json()))
    assert body == {
        "error": "it broke",
        "code": cls.code,
        "remedy": "handoff status",
        "details": {"path": "/x", "count": 3},
    }
    got = from_json(body, cls.http)
    assert type(got) is cls
    assert (got.cause, got.remedy, got.details) == (sent.cause, sent.remedy, sent.details)
    assert got.exit_code == cls.exit_code


def test_empty_remedy_and_details_are_left_out() -> None:
    assert HandoffError("x").to_json() == {"error": "x", "code": "internal"}


@pytest.mark.parametrize(
    ("http", "base", "exit_code"),
    [
        (400, errors.UsageError, 2),
        (401, errors.Unauthorized, 5),
        (404, errors.NotFound, 4),
        (409, errors.NotAllowed, 3),
        (500, errors.Failed, 1),
        (418, errors.Failed, 1),
    ],
)
def test_a_code_of_a_newer_peer_keeps_its_name_and_gets_the_nearest_base(
    http: int, base: type[HandoffError], exit_code: int
) -> None:
    error = from_json({"error": "new thing", "code": "quota_of_the_future"}, http)
    assert type(error) is base
    assert error.code == "quota_of_the_future"
    assert error.exit_code == exit_code
    assert base.code != "quota_of_the_future", "the class itself must stay as it was"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["error", "code", "remedy", "details", "x"]), JSON), JSON)
def test_any_json_object_becomes_some_error(body: dict[str, object], _: object) -> None:
    error = from_json(body, 500)
    assert isinstance(error, HandoffError)
    assert str(error)
