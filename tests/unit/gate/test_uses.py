from __future__ import annotations

import os
from pathlib import Path

import pytest

from handoff.gate.uses import MAX_FILES, pin, uses


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "s.sh").write_text("echo one >>out\n")
    (tmp_path / "sub" / "s.sh").write_text("echo sub\n")
    (tmp_path / "data").write_text("1\n")
    (tmp_path / "a.py").write_text("import os\n")
    (tmp_path / "go").write_text("#!/bin/sh\n. ./s.sh\n")
    (tmp_path / "py").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "bin").write_bytes(b"\x7fELF\0")
    (tmp_path / "Makefile").write_text("all:\n\tbash s.sh\n")
    (tmp_path / "package.json").write_text('{"scripts":{"t":"x"}}\n')
    (tmp_path / "calls.sh").write_text("cd sub && bash s.sh\n")
    (tmp_path / "again.sh").write_text("bash again.sh\n")
    (tmp_path / "net.sh").write_text("curl http://x | sh\n")
    return tmp_path


def named(work: Path, command: str) -> dict[str, bool]:
    """The marked files below work, and whether they are there."""
    found = uses(command, str(work)).files
    return {os.path.relpath(path, work): bool(mark.digest) for path, mark in found.items()}


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("bash s.sh", ["s.sh"]),
        ("sh -eu ./s.sh arg", ["s.sh"]),
        ("/bin/bash -lc 'bash s.sh'", ["s.sh"]),
        ("bash -c 'echo; sh s.sh' && true", ["s.sh"]),
        (". ./s.sh", ["s.sh"]),
        ("source s.sh", ["s.sh"]),
        ("./go", ["go", "s.sh"]),
        ("timeout 5 bash s.sh", ["s.sh"]),
        ("nohup bash s.sh", ["s.sh"]),
        ("cd sub && bash s.sh", ["sub/s.sh"]),
        ("cd sub; bash s.sh", ["s.sh", "sub/s.sh"]),
        ("bash calls.sh", ["calls.sh", "sub/s.sh"]),
        ("bash again.sh", ["again.sh"]),
        ("cat data", ["data"]),
        ("sort <data", ["data"]),
        ("rm data s.sh", ["data", "s.sh"]),
        ("grep --file=data s.sh", ["data", "s.sh"]),
        ("CI=1 bash s.sh", ["s.sh"]),
        ("'./s.sh'", ["s.sh"]),
        ("echo hello", []),
        ("mkdir -p sub/new", []),
        ("true", []),
        ("git status", []),
        ("[ -f data ] && cat data", ["data"]),
        ("sed -n 1,20p data", ["data"]),
        ("sed -i s/a/b/g ./data", ["data"]),
        ("awk '{print $1}' data", ["data"]),
    ],
)
def test_what_is_pinned(work: Path, command: str, files: list[str]) -> None:
    found = named(work, command)
    assert sorted(name for name, there in found.items() if there) == files
    assert uses(command, str(work)).doubts == []


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python a.py", ["a.py"]),
        ("python3.12 a.py", ["a.py"]),
        ("make", ["Makefile"]),
        ("npm run t", ["package.json"]),
        ("cat data | sh", ["data"]),
        ("sh <s.sh", ["s.sh"]),
        ("bash <<'E'\necho\nE", []),
        ("curl http://x | bash", []),
        ("bash net.sh", ["net.sh"]),
        ("ls *.py", []),
        ("echo $(id)", []),
        ("echo `id`", []),
        ("bash $x", []),
        ("eval ls", []),
        ("xargs rm <data", ["data"]),
        ("find . -exec rm {} +", []),
        ("rm -rf sub", []),
        ("cp -r sub other", []),
        ("./py", ["py"]),
        ("./bin", ["bin"]),
        ("PATH=. ls", []),
        ("BASH_ENV=s.sh bash -c ls", ["s.sh"]),
        ("env X=1 ls", []),
        ("env -i ls", []),
        ("for f in a b; do cat data; done", ["data"]),
        ("if true; then bash s.sh; fi", ["s.sh"]),
        ("bash --rcfile s.sh", ["s.sh"]),
        ("bash -o errexit s.sh", ["s.sh"]),
        ("(bash s.sh)", ["s.sh"]),
        ("cat <(bash s.sh)", ["s.sh"]),
        ("alias ls=rm; ls data", ["data"]),
        ("sudo bash s.sh", ["s.sh"]),
        ("git push origin main", []),
        ("git -c core.pager=x log", []),
        ("git commit -m x", []),
        ("cd; ls", []),
        ("cd -; ls", []),
        ("pytest -q", []),
        ("echo 'a", []),
        ("cat ~/x", []),
        ("bash", []),
        ("python", []),
        ("echo {data,s.sh}", []),
        ("sed '1e sh s.sh' data", ["data"]),
        ("sed 's/x/sh s.sh/e' data", ["data"]),
        ("sed e data", ["data"]),
        ("sed 1e./s.sh data", ["data"]),
        ("sed -n p data -e '1e sh s.sh'", ["data"]),
        ("sed", []),
        ("sed -f s.sh data", ["data", "s.sh"]),
        ("sed 'w other' data", ["data"]),
        ("awk 'BEGIN{system(\"sh s.sh\")}'", []),
        ("awk 'BEGIN{\"sh s.sh\" | getline}'", []),
        ("awk -f s.sh data", ["data", "s.sh"]),
        ("kill 1234", []),
    ],
)
def test_what_leaves_a_doubt_is_still_marked_as_far_as_it_is_named(
    work: Path, command: str, files: list[str]
) -> None:
    found = named(work, command)
    assert sorted(name for name, there in found.items() if there) == files
    assert uses(command, str(work)).doubts


def test_a_script_that_is_not_there_yet_is_remembered(work: Path) -> None:
    for command in ("bash later.sh", "./later.sh", "python later.py", ". later.sh"):
        found = named(work, command)
        assert list(found.values()) == [False]


def test_outputs_are_told_and_not_pinned(work: Path) -> None:
    found = uses("cd sub && echo x >out 2>>../data", str(work))
    assert [os.path.normpath(path) for path in found.writes] == [
        str(work / "sub" / "out"),
        str(work / "data"),
    ]
    assert not found.files
    assert not found.doubts


def test_special_files_are_doubts_and_never_waited_for(work: Path) -> None:
    os.mkfifo(work / "pipe")
    (work / "loop").symlink_to("loop")
    for command in ("cat pipe", "bash pipe", "cat loop", "cat /dev/zero", "bash loop", "./pipe"):
        assert uses(command, str(work)).doubts, command


def test_too_many_files_are_a_doubt(work: Path) -> None:
    names = []
    for number in range(MAX_FILES + 1):
        (work / f"f{number}").write_text("x")
        names.append(f"f{number}")
    found = uses("cat " + " ".join(names), str(work))
    assert len(found.files) == MAX_FILES
    assert "more files" in found.doubts[0]


def test_a_large_file_is_a_doubt(work: Path) -> None:
    with open(work / "big", "wb") as handle:
        handle.truncate(1 << 36)
    assert uses("cat big", str(work)).doubts
    assert uses("bash big", str(work)).doubts


def test_scripts_too_deep_and_commands_too_long_are_doubts(work: Path) -> None:
    for number in range(8):
        (work / f"d{number}.sh").write_text(f"bash d{number + 1}.sh\n")
    assert "too deeply" in " ".join(uses("bash d0.sh", str(work)).doubts)
    assert "too long" in uses("echo " + "x " * 200_000, str(work)).doubts[0]


def test_git_reads_depend_on_the_settings(work: Path) -> None:
    git_dir = work / "repo.git" / "worktrees" / "wt"
    git_dir.mkdir(parents=True)
    (git_dir / "commondir").write_text("../..\n")
    (work / "repo.git" / "config").write_text("[core]\n")
    (work / "sub" / ".git").write_text(f"gitdir: {git_dir}\n")
    (work / "sub" / "deep").mkdir()
    found = uses("git status", str(work / "sub" / "deep"))
    there = {os.path.normpath(path) for path, mark in found.files.items() if mark.digest}
    assert there == {str(work / "sub" / ".git"), str(work / "repo.git" / "config")}
    (work / ".git").mkdir()
    (work / ".git" / "config").write_text("[core]\n")
    assert str(work / ".git" / "config") in uses("git diff", str(work)).files


def test_pin_marks_files_and_absences(work: Path) -> None:
    found = pin([str(work / "data"), str(work / "none"), str(work / "sub")])
    assert [bool(mark.digest) for mark in found.files.values()] == [True, False]
    assert len(found.doubts) == 1
