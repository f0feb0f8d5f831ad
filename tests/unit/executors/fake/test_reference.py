"""The reference page and the executor agree."""

from __future__ import annotations

import re
from pathlib import Path

from handoff.executors.fake import __main__ as entry
from handoff.executors.fake import script
from handoff.executors.fake.script import MAIN_ARGUMENT, find

PAGE = (Path(__file__).parents[4] / "docs" / "fake-executor.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-z_]+)` \| (.*?) \|", PAGE, re.MULTILINE))


def test_every_step_has_its_row_and_no_row_is_too_many():
    assert set(ROWS) == set(MAIN_ARGUMENT)


def test_the_main_argument_is_the_bold_one():
    for step, arguments in ROWS.items():
        bold = re.findall(r"\*\*`([a-z_]+)`\*\*", arguments)
        assert bold == ([MAIN_ARGUMENT[step]] if step != "ignore_term" else [])


def test_every_option_has_its_row():
    assert entry.__doc__ is not None
    options = set(re.findall(r"--[a-z][a-z-]*", entry.__doc__))
    table = PAGE.partition("## How it is started")[2]
    assert set(re.findall(r"--[a-z][a-z-]*", table)) == options


def test_every_preset_is_named():
    for name in script._PRESETS:
        assert f"`{name}`" in ROWS["preset"] + PAGE


def test_the_examples_are_scripts():
    blocks = re.findall(r"````markdown\n(.*?)````", PAGE, re.DOTALL)
    assert len(blocks) == 1
    turns = find(blocks[0])
    assert turns is not None
    assert [name for name, _ in turns[0]] == ["say", "write", "run", "commit"]
    (lines,) = re.findall(r"```text\n(@@do.*?)```", PAGE, re.DOTALL)
    assert find(lines) is not None
