from __future__ import annotations

import pathlib
import subprocess
import sys

from handoff.cli import main

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_the_reference_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "gen-docs"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_command_and_flag_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for name, made in (pair for one in main.table() for pair in main.parsers(one)):
        section = text.partition(f"### handoff {name}\n")[2].partition("\n### ")[0]
        assert section, name
        for action in made._actions:
            if action.option_strings:
                flag = action.option_strings[-1]
                assert flag in section or flag in (
                    "--agentd",
                    "--target",
                    "--config",
                    "--json",
                    "--help",
                ), (name, flag)
