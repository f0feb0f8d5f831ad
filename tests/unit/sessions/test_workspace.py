from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.unit.sessions.records_kit import repository, run_git

from handoff.errors import GitError, TimedOut, UsageError, WorkspaceMissing
from handoff.sessions.workspace import bind


def test_worktrees_share_an_anchor_and_clones_do_not(tmp_path: Path) -> None:
    one = repository(tmp_path / "one")
    run_git(one, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "side")
    run_git(tmp_path, "clone", "-q", str(one), str(tmp_path / "clone"))
    (one / "sub").mkdir()
    main, tree = bind(str(one)), bind(str(tmp_path / "tree"))
    assert main.anchor == str(one / ".git")
    assert (tree.anchor_sha256, tree.branch) == (main.anchor_sha256, "side")
    assert bind(str(one / "sub")).anchor_sha256 == main.anchor_sha256
    assert bind(str(tmp_path / "clone")).anchor_sha256 != main.anchor_sha256
    assert (main.branch, main.head) == ("main", run_git(one, "rev-parse", "HEAD"))
    assert str(tmp_path) not in str(main.portable())


def test_an_inherited_git_dir_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = repository(tmp_path / "other")
    plain = tmp_path / "plain"
    plain.mkdir()
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    found = bind(str(plain))
    assert (found.kind, found.anchor) == ("directory", str(plain))


def test_a_repository_that_git_refuses_is_no_plain_folder(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    (broken / ".git").mkdir(parents=True)
    with pytest.raises(GitError):
        bind(str(broken))
    (broken / "below").mkdir()
    with pytest.raises(GitError):
        bind(str(broken / "below"))


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_git_that_hangs_is_ended_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    tool = tmp_path / "bin" / "git"
    tool.parent.mkdir()
    trap = "trap '' TERM\n" if stubborn else ""
    tool.write_text(f"#!/bin/sh\n{trap}echo $$ >{tmp_path}/pid\nwhile :; do sleep 1; done\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    begun = time.monotonic()
    with pytest.raises(TimedOut):
        bind(str(tmp_path))
    assert time.monotonic() - begun <= 3.2
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("path", ["", "relative", "/a\0b", "/a\nb"])
def test_only_absolute_paths(path: str) -> None:
    with pytest.raises(UsageError):
        bind(path)


def test_a_missing_workspace_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceMissing) as gone:
        bind(str(tmp_path / "gone"))
    assert gone.value.exit_code == 3
    assert "another folder of the same project" in gone.value.remedy


def test_a_programme_of_the_repository_is_not_run(tmp_path: Path) -> None:
    one = repository(tmp_path / "one")
    run_git(one, "config", "core.fsmonitor", f"touch {tmp_path}/ran")
    run_git(one, "config", "core.hooksPath", str(tmp_path))
    bind(str(one))
    assert not (tmp_path / "ran").exists()
