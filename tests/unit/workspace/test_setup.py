from __future__ import annotations

import os

import pytest
from tests.unit.workspace.repos import commit, plain, write

from handoff.errors import ConfigError, TooLarge, WorkspaceRefused
from handoff.workspace import setup
from handoff.workspace.setup import copy_files, plan_setup
from handoff.workspace.worktree import create


@pytest.fixture
def trees(tmp_path, planner):
    repo = plain(tmp_path)
    commit(repo, "ignore", _dot_gitignore=".env*\nlocal/\n*.key\n")
    write(repo, ".env", "SECRET=1\n").chmod(0o600)
    write(repo, ".env.test", "T=1\n")
    write(repo, "local/deep/a.cfg", "a\n")
    write(repo, "local/b.cfg", "b\n")
    plan = planner(repo)
    create(plan)
    return repo, plan.work_dir


def test_files_patterns_and_folders(trees):
    repo, work = trees
    copied = copy_files(str(repo), work, [".env*", "local"])
    assert copied == [".env", ".env.test", "local/b.cfg", "local/deep/a.cfg"]
    with open(os.path.join(work, "local/deep/a.cfg")) as file:
        assert file.read() == "a\n"
    assert os.stat(os.path.join(work, ".env")).st_mode & 0o777 == 0o600
    assert copy_files(str(repo), work, [".env*", "local"]) == []


def test_nothing_is_replaced_and_the_plan_tells(trees):
    repo, work = trees
    with open(os.path.join(work, ".env"), "w") as file:
        file.write("mine")
    plan = plan_setup(str(repo), work, [".env", "nothing.*"])
    assert (plan.copies, plan.present, plan.unmatched) == ((), (".env",), ("nothing.*",))
    copy_files(str(repo), work, [".env"])
    with open(os.path.join(work, ".env")) as file:
        assert file.read() == "mine"


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../x", "a/../../x", "", "a\0b"])
def test_patterns_outside_the_project(trees, pattern):
    repo, work = trees
    with pytest.raises(ConfigError):
        plan_setup(str(repo), work, [pattern])


def test_link_out_of_the_project_is_refused(trees, tmp_path):
    repo, work = trees
    (tmp_path / "outside.key").write_text("k")
    os.symlink(tmp_path / "outside.key", repo / "x.key")
    os.symlink(tmp_path, repo / "local" / "up")
    plan = plan_setup(str(repo), work, ["*.key", "local/up/outside.key"])
    assert plan.copies == ()
    assert {path for path, _ in plan.refused} == {"x.key", "local/up/outside.key"}


def test_link_out_of_the_worktree_is_not_written_through(trees, tmp_path):
    repo, work = trees
    (tmp_path / "outside").mkdir()
    os.symlink(tmp_path / "outside", os.path.join(work, "local"))
    with pytest.raises(WorkspaceRefused):
        copy_files(str(repo), work, ["local"])
    assert list((tmp_path / "outside").iterdir()) == []


def test_gits_folder_and_fifos_are_left_out(trees):
    repo, work = trees
    os.mkfifo(repo / "local" / "pipe")
    plan = plan_setup(str(repo), work, [".git", "local"])
    assert not any(path.startswith(".git/") for path in plan.copies)
    assert [path for path, _ in plan.refused] == ["local/pipe"]


def test_too_many_files(trees, monkeypatch):
    repo, work = trees
    monkeypatch.setattr(setup, "FILE_LIMIT", 1)
    with pytest.raises(TooLarge):
        plan_setup(str(repo), work, ["local", ".env*"])
