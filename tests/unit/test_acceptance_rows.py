"""docs/nodes/acceptance.md has its thirty rows, and names tests that exist."""

from __future__ import annotations

import ast
import re

import pytest
from tests.support.markdown import ROOT

TEXT = (ROOT / "docs" / "nodes" / "acceptance.md").read_text("utf-8")
ROW = re.compile(r"(?m)^\| (\d+) \| (.+?) \| (.+?) \| (.+) \|$")
ROWS = ROW.findall(TEXT)
NAMED = sorted(set(re.findall(r"`(\w+/[\w/.]+\.py::\w+)`", TEXT)))


def test_there_are_thirty_and_each_says_whether_it_holds() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 31))
    for number, _, held, tests in ROWS:
        assert held.split(":")[0].split(";")[0] in {"yes", "partly", "not met"}, number
        if held.startswith("yes"):
            assert "::" in tests, number
        else:
            assert ":" in held, f"{number}: what is missing?"


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
    assert function in {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
