from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoff.errors import ExecutorMissing
from handoff.process.programs import check_program, find_program, interpreter_missing


def program(path: Path, text: str = "#!/bin/sh\n", mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_bare_name_is_looked_for_in_path(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b" / "agent").mkdir(parents=True)
    wanted = program(tmp_path / "c" / "agent")
    program(tmp_path / "d" / "agent")
    path = ":".join(str(tmp_path / name) for name in "abcd")
    assert find_program("agent", path) == wanted


def test_what_may_not_be_executed_is_passed_over(tmp_path: Path):
    program(tmp_path / "a" / "agent", mode=0o644)
    wanted = program(tmp_path / "b" / "agent")
    assert find_program("agent", f"{tmp_path}/a:{tmp_path}/b") == wanted


@pytest.mark.parametrize("path", ["", ":", ".", "bin", "./bin", "::/nowhere"])
def test_relative_entries_of_path_count_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
):
    program(tmp_path / "agent")
    program(tmp_path / "bin" / "agent")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExecutorMissing, match="'agent' is not installed"):
        find_program("agent", path)


def test_a_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    wanted = program(tmp_path / "my tools" / "agent")
    assert find_program(wanted, "") == wanted
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_program("~/my tools/agent", "") == wanted
    with pytest.raises(ExecutorMissing, match="there is no program"):
        find_program(wanted + "x", "")
    plain = program(tmp_path / "my tools" / "plain", mode=0o644)
    with pytest.raises(ExecutorMissing, match="may not be executed") as caught:
        find_program(plain, "")
    assert caught.value.remedy == f"chmod +x '{plain}'"


@pytest.mark.parametrize(
    ("first", "missing"),
    [
        ("#!/bin/sh", ""),
        ("#!/bin/sh -e", ""),
        ("#! /usr/bin/env sh", ""),
        ("#!/nope/node", "/nope/node"),
        ("#!/usr/bin/env case-node", "case-node"),
        ("#!/usr/bin/env -S case-node --flag", "case-node"),
        ("#!/usr/bin/env -Scase-node --flag", "case-node"),
        ("#!/usr/bin/env --split-string case-node", "case-node"),
        ("#!/usr/bin/env -S A=1 PATH=/nowhere sh", "sh"),
        ("#!/usr/bin/env -i", ""),
        ("#!/usr/bin/env", ""),
        ("#!/nope/env node", "/nope/env"),
        ("\x7fELF", ""),
        ("", ""),
    ],
)
def test_the_interpreter_that_is_missing(tmp_path: Path, first: str, missing: str):
    script = program(tmp_path / "agent", first + "\nrest\n")
    assert interpreter_missing(script, "/usr/bin:/bin") == missing
    if missing:
        with pytest.raises(ExecutorMissing, match=f"its interpreter '{missing}'") as caught:
            check_program(script, "/usr/bin:/bin")
        assert caught.value.details["interpreter"] == missing
        assert "path_dirs" in caught.value.remedy
    else:
        check_program(script, "/usr/bin:/bin")


def test_it_is_found_once_its_folder_is_in_path(tmp_path: Path):
    script = program(tmp_path / "agent", "#!/usr/bin/env case-node\n")
    program(tmp_path / "node" / "case-node")
    check_program(script, f"/usr/bin:{tmp_path}/node")


def test_an_interpreter_that_is_a_script_itself(tmp_path: Path):
    inner = program(tmp_path / "inner", "#!/usr/bin/env case-node\n")
    script = program(tmp_path / "agent", f"#!{inner}\n")
    assert interpreter_missing(script, "/bin") == "case-node"


def test_scripts_that_interpret_each_other_end(tmp_path: Path):
    script = program(tmp_path / "agent", f"#!{tmp_path}/agent\n")
    assert interpreter_missing(script, "/bin") == ""


def test_a_link_is_followed(tmp_path: Path):
    program(tmp_path / "real", "#!/nope/node\n")
    os.symlink("real", tmp_path / "agent")
    assert interpreter_missing(str(tmp_path / "agent"), "") == "/nope/node"
