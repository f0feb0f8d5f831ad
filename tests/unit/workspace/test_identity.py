from __future__ import annotations

import hashlib
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.workspace.repos import build, moved_main, plain, run_git, submodule

from handoff.errors import DubiousOwnership, NotARepository
from handoff.workspace.identity import identify, list_trees, locate, normalise_origin, project_id


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/Own/Name.git",
        "https://github.com/Own/Name",
        "https://GITHUB.com/Own/Name.git/",
        "http://user:token@github.com/Own/Name",
        "git@github.com:Own/Name.git",
        "github.com:Own/Name",
        "ssh://git@github.com/Own/Name.git",
        "ssh://git@github.com:22/Own/Name.git",
        "git://github.com:9418/Own/Name.git",
        " https://github.com/Own/Name.git\n",
    ],
)
def test_all_ways_to_write_an_address_are_one(url):
    assert normalise_origin(url) == "github.com/Own/Name"


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("/srv/git/x.git", "/srv/git/x"),
        ("file:///srv/git/x.git", "/srv/git/x"),
        ("../x", "../x"),
        ("ssh://git@[::1]:2222/x.git", "[::1]/x"),
        ("git@[fe80::1]:x.git", "[fe80::1]/x"),
        ("host:22/x", "host/22/x"),
        ("https://h/a@b/c.git", "h/a@b/c"),
        ("", ""),
    ],
)
def test_other_addresses(url, want):
    assert normalise_origin(url) == want


@given(st.text(max_size=60))
def test_normalising_never_fails_and_gives_an_id(url):
    assert len(project_id(normalise_origin(url), "/root")) == 16


def test_id_is_the_digest_of_the_origin(tmp_path):
    repo = plain(tmp_path)
    run_git(repo, "remote", "add", "origin", "https://me:secret@Example.com/a/b.git")
    found = identify(str(repo))
    assert found.project_id == hashlib.sha256(b"example.com/a/b").hexdigest()[:16]
    assert found.origin_url == "https://Example.com/a/b.git"
    assert (found.name, found.root, found.bare) == ("plain", str(repo), False)


def test_same_project_from_everywhere(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    run_git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    os.symlink(repo, tmp_path / "link")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    want = identify(str(repo))
    for place in (repo / "src", tmp_path / "linked", tmp_path / "linked/src", tmp_path / "link"):
        assert identify(str(place)) == want
    assert locate(str(tmp_path / "linked/src")).top == str(tmp_path / "linked")
    assert want.project_id == project_id("", str(repo))


@pytest.mark.parametrize("name", ["bare-hub", "bare-plain"])
def test_hub_is_the_project_of_its_worktrees(tmp_path, name):
    hub = build(name, tmp_path)
    want = identify(str(hub))
    assert want.bare
    assert want.name == "hub"
    for place in (hub / "main", hub / "main" / "src"):
        assert identify(str(place)) == want


def test_submodule_is_a_project_of_its_own(tmp_path):
    repo = submodule(tmp_path)
    inner = identify(str(repo / "vendor/lib"))
    assert inner.root == str(repo / "vendor/lib")
    assert inner.project_id != identify(str(repo)).project_id


def test_git_folder_elsewhere(tmp_path):
    run_git(tmp_path, "init", "-q", "--separate-git-dir", str(tmp_path / "store"), "tree")
    assert identify(str(tmp_path / "tree")).root == str(tmp_path / "tree")


def test_clone_and_its_origin_url(tmp_path):
    clone = moved_main(tmp_path)
    assert identify(str(clone)).origin_url == f"{tmp_path}/origin.git"


@pytest.mark.parametrize("name", ['it\'s a "repo"\nx', "blank and ä", "-rf"])
def test_odd_folder_names(tmp_path, name):
    repo = plain(tmp_path)
    moved = tmp_path / name
    os.rename(repo, moved)
    run_git(moved, "worktree", "add", "-q", "-b", "b", f"{moved}\nlinked")
    assert identify(str(moved)).root == str(moved)
    assert [tree.path for tree in list_trees(str(moved))] == [str(moved), f"{moved}\nlinked"]


def test_no_repository(tmp_path):
    with pytest.raises(NotARepository):
        identify(str(tmp_path))
    with pytest.raises(NotARepository):
        identify(str(tmp_path / "gone"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a repository away")
def test_somebody_elses_repository_is_named_and_left_alone(tmp_path):
    repo = plain(tmp_path)
    subprocess.run(["chown", "-R", "65534:65534", str(repo)], check=True)
    with pytest.raises(DubiousOwnership, match="nobody"):
        identify(str(repo))
    found = subprocess.run(
        ["find", str(repo), "-user", "root"], capture_output=True, check=True
    ).stdout
    assert found == b""
