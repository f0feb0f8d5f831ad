"""docs/sessions/requirements.md names each requirement once, and tests that pytest finds."""

from __future__ import annotations

import functools
import re
import subprocess
import sys

import pytest
from tests.support.markdown import ROOT

TEXT = (ROOT / "docs" / "sessions" / "requirements.md").read_text("utf-8")
ROWS = {
    match[1]: (match[2].strip(), match[3].strip())
    for match in re.finditer(r"(?m)^\| (R\d\d) \| (.*?) \| (.*) \|$", TEXT)
}
#: the register has gaps where its parts end
NUMBERS = [*range(1, 25), *range(30, 35), *range(40, 48), *range(50, 65), *range(70, 78)]
NAMED = sorted(
    set(re.findall(r"`((?:unit|integration|faults|acceptance|live|contract)/[\w/.]+::\w+)`", TEXT))
)


@functools.cache
def collected() -> frozenset[str]:
    """Every test that pytest finds in the files that are named, without its parameters."""
    files = sorted({f"tests/{name.partition('::')[0]}" for name in NAMED})
    missing = [path for path in files if not (ROOT / path).is_file()]
    assert not missing
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *files],
        cwd=ROOT, capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = re.findall(r"(?m)^tests/([\w/.]+::\w+)", done.stdout)
    return frozenset(found)


def test_every_requirement_has_its_row() -> None:
    assert list(ROWS) == [f"R{number:02}" for number in NUMBERS]
    assert len(re.findall(r"(?m)^\| R\d\d \|", TEXT)) == len(NUMBERS)


@pytest.mark.parametrize("number", sorted(ROWS))
def test_a_requirement_has_tests_or_says_that_it_is_not_met(number: str) -> None:
    _, tests = ROWS[number]
    if tests.startswith("not met: "):
        assert len(tests) > len("not met: ") + 20, "say why"
        return
    assert re.fullmatch(r"`[\w/.]+::test_\w+`(<br>`[\w/.]+::test_\w+`)*", tests), tests
    for name in re.findall(r"`([\w/.]+::test_\w+)`", tests):
        assert name in collected(), f"{number}: pytest finds no {name}"


def test_a_test_that_does_not_exist_would_be_noticed() -> None:
    assert "unit/sessions/test_requirements.py::test_nothing_of_this_name" not in collected()
    assert len(collected()) > 200


def test_the_figures_at_the_top_are_right() -> None:
    unmet = [number for number, (_, tests) in ROWS.items() if tests.startswith("not met")]
    found = re.search(r"(?m)^(\d+) requirements: (\d+) with tests, (\d+) not met(: (.*))?\.$", TEXT)
    assert found
    assert [int(found[n]) for n in (1, 2, 3)] == [len(ROWS), len(ROWS) - len(unmet), len(unmet)]
    assert (found[5] or "none") == (", ".join(unmet) or "none")


# -- what the README says of sessions ----------------------------------------------------------


def test_each_claim_of_the_readme_has_requirements_that_are_met() -> None:
    """A claim stands in the README's list about sessions with the requirements behind it."""
    readme = (ROOT / "README.md").read_text("utf-8")
    section = re.search(r"(?ms)^## Sessions$(.*?)^## ", readme)
    assert section
    claims = re.findall(r"(?m)^- (.*)$", section[1])
    assert len(claims) >= 5
    for claim in claims:
        behind = re.search(r"<!-- (R\d\d(?: R\d\d)*) -->$", claim)
        assert behind, f"no requirement behind: {claim}"
        for number in behind[1].split():
            assert not ROWS[number][1].startswith("not met"), f"{claim}: {number} is not met"
