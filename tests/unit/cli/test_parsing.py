from __future__ import annotations

import pytest

from handoff.cli.parsing import Parser
from handoff.errors import UsageError


@pytest.mark.parametrize(("command", "told"), [("fetch", True), ("wait", False)])
def test_a_name_that_looks_like_a_flag(command: str, told: bool) -> None:
    with pytest.raises(UsageError) as raised:
        Parser(command, "Do it.").parse_args(["-rf"])
    assert ("after '--'" in raised.value.cause) is told


def test_a_misspelt_flag_is_named_and_is_no_name() -> None:
    with pytest.raises(UsageError) as raised:
        Parser("fetch", "Do it.").parse_args(["--jsno"])
    assert "did you mean --json?" in raised.value.cause
    assert "after '--'" not in raised.value.cause
