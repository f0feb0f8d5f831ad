"""docs/reliability.md names tests that exist, and counts right."""

from __future__ import annotations

import ast
import re

import pytest
from tests.support.markdown import ROOT

TEXT = (ROOT / "docs" / "reliability.md").read_text("utf-8")
ROW = re.compile(
    r"(?m)^\| (?P<number>[A-H]\d+|[NS]\d+) \|(?P<wrong>.*?)\|(?P<holds>.*)\|(?P<tests>.*?)\|$"
)
ROWS = [match.groupdict() for match in ROW.finditer(TEXT)]
NAMED = re.findall(r"`((?:unit|contract|integration|faults|acceptance|live)/[\w/.]+::\w+)`", TEXT)


def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


@pytest.mark.parametrize("name", sorted(set(NAMED)))
def test_a_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    assert (ROOT / "tests" / path).is_file(), name
    assert function in functions(path), name


def test_every_row_has_tests_or_says_that_it_has_none() -> None:
    assert len(ROWS) > 130
    for row in ROWS:
        tests = row["tests"].strip()
        if tests == "does not apply":
            assert row["holds"].strip().startswith("Not in this version"), row["number"]
        elif tests != "none yet":
            assert re.fullmatch(r"`[\w/.]+::test_\w+`(<br>`[\w/.]+::test_\w+`)*", tests), row


def test_the_numbers_run_on_without_a_gap() -> None:
    for letter in "ABCDEFGHNS":
        numbers = [int(r["number"][1:]) for r in ROWS if r["number"][0] == letter]
        assert numbers == list(range(1, len(numbers) + 1)), letter


def test_the_figures_at_the_top_are_right() -> None:
    open_rows = [r["number"] for r in ROWS if r["tests"].strip() == "none yet"]
    elsewhere = [r["number"] for r in ROWS if r["tests"].strip() == "does not apply"]
    found = re.search(
        r"(?m)^(\d+) classes: (\d+) with tests, (\d+) that have no place in this version, "
        r"and (\d+) without a test yet: (.*)\.$",
        TEXT,
    )
    assert found
    assert [int(found[n]) for n in (1, 2, 3, 4)] == [
        len(ROWS),
        len(ROWS) - len(open_rows) - len(elsewhere),
        len(elsewhere),
        len(open_rows),
    ]
    assert found[5] == (", ".join(open_rows) or "none")


def test_each_promise_of_security_has_its_row() -> None:
    promised = re.findall(r"(?m)\| (S\d+) \|$", (ROOT / "SECURITY.md").read_text("utf-8"))
    assert promised == [r["number"] for r in ROWS if r["number"].startswith("S")]
