"""The README: its commands work, its tour prints what it shows."""

from __future__ import annotations

import re

from tests.support import examples
from tests.support.markdown import fences

README = examples.ROOT / "README.md"
RUN_TESTS = "scripts/install && scripts/test"


def test_the_tour_prints_what_it_shows() -> None:
    document = examples.parse(README)
    assert len(document.steps) >= 8
    examples.run(document)
    for step in document.steps:
        shown = f"README.md:{step.line}: $ {step.command}\n" + "\n".join(step.actual)
        assert examples.same(step.expected, step.actual), shown
        assert step.code == 0, shown


def test_the_two_commands_stand_on_their_own_lines() -> None:
    """CI takes the second one from here, to the letter."""
    text = README.read_text("utf-8")
    assert re.search(r"(?m)^\$ scripts/install && \.venv/bin/handoff demo$", text)
    assert re.search(rf"(?m)^\$ {re.escape(RUN_TESTS)}$", text)
    assert RUN_TESTS in (examples.ROOT / ".ci" / "run").read_text("utf-8").replace("\\/", "/")
    for command in ("scripts/install", "scripts/test"):
        assert (examples.ROOT / command).is_file()


def test_the_tour_is_whole() -> None:
    """Every command of the main path is shown once."""
    shown = "\n".join(body for kind, body in fences(README.read_text("utf-8")) if kind == "console")
    for command in ("dispatch", "wait", "reply", "diff", "continue", "done"):
        assert re.search(rf"(?m)^\$ handoff {command}\b", shown), command
