from __future__ import annotations

import os

import pytest
from tests.unit.workspace.repos import (
    NAMES,
    commit,
    names,
    plain,
    run_git,
    sparse,
    submodule,
    symlinks,
    write,
)

from handoff.errors import HandoffError, NotFound, UsageError, WorkspaceRefused
from handoff.workspace.reading import read_file


@pytest.mark.parametrize("path", ["real/ok.txt", "in/ok.txt", "in-file"])
def test_files_and_links_within_the_tree(tmp_path, path):
    repo = symlinks(tmp_path)
    assert read_file(str(repo), path).data == b"ok\n"


@pytest.mark.parametrize("path", ["out-file", "out/secret", "two-hop", "abs", "up/outside/secret"])
def test_links_out_of_the_tree_are_refused(tmp_path, path):
    repo = symlinks(tmp_path)
    with pytest.raises(WorkspaceRefused, match="leads out") as caught:
        read_file(str(repo), path)
    assert "secret" not in str(caught.value).replace(path, "")


@pytest.mark.parametrize(
    ("path", "words"),
    [("loop-a", "loop"), ("pipe", "FIFO"), ("real", "folder"), ("in", "folder")],
)
def test_what_is_no_file_is_refused_at_once(tmp_path, path, words):
    repo = symlinks(tmp_path)
    with pytest.raises(WorkspaceRefused, match=words):
        read_file(str(repo), path)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../outside/secret", "real/../../x", "a\0b"])
def test_paths_that_are_none(tmp_path, path):
    repo = symlinks(tmp_path)
    with pytest.raises(UsageError):
        read_file(str(repo), path)


@pytest.mark.parametrize("path", [".git/config", ".GIT/config", "conf"])
def test_gits_own_folder_is_not_read(tmp_path, path):
    repo = plain(tmp_path)
    os.symlink(".git/config", repo / "conf")
    with pytest.raises(UsageError):
        read_file(str(repo), path)


def test_missing_file(tmp_path):
    repo = plain(tmp_path)
    for path in ("nothing", "a.txt/x", "src/nothing/x"):
        with pytest.raises(NotFound):
            read_file(str(repo), path)
    with pytest.raises(NotFound):
        read_file(str(repo), "nothing", commit="HEAD")


@pytest.mark.parametrize("raw", NAMES)
def test_every_name_from_commit_and_worktree(tmp_path, raw):
    repo = names(tmp_path)
    run_git(repo, "merge", "-q", "--ff-only", "work")
    want = b"content of " + raw.replace(b"\n", b" ") + b"\n"
    assert read_file(str(repo), os.fsdecode(raw)).data == want
    assert read_file(str(repo), os.fsdecode(raw), commit="work").data == want


def test_sparse_absent_file_comes_from_the_commit(tmp_path):
    repo = sparse(tmp_path)
    found = read_file(str(repo), "docs/f1.txt")
    assert found.data == b"docs 1\n"
    assert found.source == run_git(repo, "rev-parse", "HEAD")


def test_deleted_file_is_not_given_as_if_it_were_there(tmp_path):
    repo = plain(tmp_path)
    os.unlink(repo / "a.txt")
    with pytest.raises(NotFound):
        read_file(str(repo), "a.txt")


def test_ranges_and_notice(tmp_path):
    repo = plain(tmp_path)
    data = bytes(range(256)) * 2000
    write(repo, "big", data)
    head = commit(repo, "big")
    for more in ({}, {"commit": head}):
        part = read_file(str(repo), "big", offset=100_000, limit=70_000, **more)
        assert part.data == data[100_000:170_000]
        assert (part.cut, part.size) == (True, len(data))
        assert part.notice == f"bytes 100000 to 170000 of {len(data)}"
        whole = read_file(str(repo), "big", **more)
        assert (whole.data, whole.cut, whole.notice) == (data, False, "")
        assert read_file(str(repo), "big", offset=len(data) + 5, **more).data == b""


def test_commit_kinds(tmp_path):
    repo = submodule(tmp_path)
    with pytest.raises(WorkspaceRefused, match="submodule"):
        read_file(str(repo), "vendor/lib", commit="HEAD")
    with pytest.raises(WorkspaceRefused, match="folder"):
        read_file(str(repo), "vendor", commit="HEAD")
    with pytest.raises(NotFound):
        read_file(str(repo), "main.c", commit="--help")


def test_every_error_is_typed(tmp_path):
    repo = symlinks(tmp_path)
    for name in os.listdir(repo):
        try:
            read_file(str(repo), name)
        except HandoffError as error:
            assert str(error)
