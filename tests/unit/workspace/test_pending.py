from __future__ import annotations

import json
import os

import pytest
from tests.unit.workspace.repos import (
    NAMES,
    hostile_config,
    names,
    plain,
    run_git,
    sparse,
    submodule,
    write,
)

from handoff.errors import NotFound
from handoff.workspace import pending
from handoff.workspace.pending import quoted, uncommitted, uncommitted_stream


def patch(repo, *paths, mode="patch"):
    return b"".join(uncommitted_stream(str(repo), paths, mode=mode))


def test_clean_tree_is_empty(tmp_path):
    repo = plain(tmp_path)
    assert patch(repo) == b""
    assert uncommitted(str(repo)).changes == ()


def test_staged_unstaged_and_untracked_are_all_shown(tmp_path):
    repo = plain(tmp_path)
    write(repo, "a.txt", "a\nb\nstaged\n")
    run_git(repo, "add", "a.txt")
    write(repo, "src/b.py", "print(2)\n")
    write(repo, "new/deep.txt", "one\ntwo")
    text = patch(repo)
    assert b"+staged" in text
    assert b"+print(2)" in text
    assert b"+two\n\\ No newline at end of file" in text
    by_path = {c.path: c for c in uncommitted(str(repo)).changes}
    assert (by_path["new/deep.txt"].status, by_path["new/deep.txt"].added) == ("untracked", 2)
    assert [c.path for c in uncommitted(str(repo), ["new"]).changes] == ["new/deep.txt"]
    assert patch(repo, "src/b.py").count(b"diff --git") == 1
    with pytest.raises(NotFound):
        uncommitted(str(repo), ["nothing"])


def test_the_patch_applies_whatever_the_names(tmp_path):
    source = names(tmp_path / "one")
    for raw in NAMES:
        path = os.path.join(os.fsencode(source), raw)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(b"text of " + raw.replace(b"\n", b" "))
    write(source, "empty", "")
    write(source, "run.sh", "#!/bin/sh\n").chmod(0o755)
    os.symlink("run.sh", source / "link")
    (tmp_path / "p").write_bytes(patch(source))
    other = names(tmp_path / "two")
    run_git(other, "apply", "--whitespace=nowarn", str(tmp_path / "p"))
    for raw in [*NAMES, b"empty", b"run.sh"]:
        with open(os.path.join(os.fsencode(other), raw), "rb") as file:
            got = file.read()
        with open(os.path.join(os.fsencode(source), raw), "rb") as file:
            assert got == file.read()
    assert os.readlink(other / "link") == "run.sh"
    assert os.access(other / "run.sh", os.X_OK)


def test_patch_is_what_git_would_write(tmp_path):
    repo = plain(tmp_path)
    write(repo, "with blank.txt", "x\n")
    write(repo, 'quo"te', "y\n")
    ours = patch(repo)
    run_git(repo, "add", "-A")
    theirs = run_git(repo, "-c", "core.quotePath=false", "diff", "--cached", "--full-index")
    drop = [line for line in theirs.split("\n") if not line.startswith("index ")]
    assert ours.decode().rstrip("\n").split("\n") == drop


def test_settings_do_not_hide_or_run_anything(tmp_path):
    repo = hostile_config(tmp_path)
    (tmp_path / "ran.log").unlink(missing_ok=True)
    (tmp_path / "hide-all").write_text("*\n")
    write(repo, "a.txt", "one\nTWO\nthree\n")
    write(repo, "untracked.txt", "u\n")
    text = patch(repo)
    assert b"--- a/a.txt\n+++ b/a.txt" in text
    assert b" one\n-two\n+TWO\n three\n" in text
    assert b"+u\n" in text
    assert not (tmp_path / "ran.log").exists()


def test_sparse_checkout_shows_only_what_changed(tmp_path):
    repo = sparse(tmp_path)
    write(repo, "app/f1.txt", "y\n")
    write(repo, "app/new.txt", "n\n")
    assert [c.path for c in uncommitted(str(repo)).changes] == ["app/f1.txt", "app/new.txt"]


def test_limits_are_told(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    monkeypatch.setattr(pending, "FILE_LIMIT", 5)
    monkeypatch.setattr(pending, "SIZE_LIMIT", 100)
    for number in range(9):
        write(repo, f"many/f{number}", "x\n")
    write(repo, "big", "y" * 101)
    found = uncommitted(str(repo))
    assert (len(found.changes), found.left_out) == (5, 5)
    text = patch(repo)
    assert b"(not shown: 101 bytes)" in text
    assert b"5 more untracked files are not shown" in text
    shown = json.loads(patch(repo, mode="json"))
    assert shown["left_out"] == 5


def test_binary_fifo_and_links_out(tmp_path):
    repo = plain(tmp_path)
    write(repo, "b", b"a\0b")
    os.symlink("/etc/passwd", repo / "out")
    os.mkfifo(repo / "pipe")
    text = patch(repo)
    assert b"Binary files /dev/null and b/b differ" in text
    assert b"+/etc/passwd\n\\ No newline" in text
    assert b"root:" not in text


def test_dirt_in_a_submodule_is_shown(tmp_path):
    repo = submodule(tmp_path)
    write(repo, "vendor/lib/new.txt", "x\n")
    found = uncommitted(str(repo)).to_json()
    assert found["submodules"] == ["vendor/lib"]
    assert found["entries"] == [["??", "vendor/lib/new.txt"]]
    assert [f["path"] for f in found["files"]] == ["vendor/lib/new.txt"]
    assert b"+++ b/vendor/lib/new.txt" in patch(repo)


def test_changes_inside_a_submodule_are_shown_with_their_whole_names(tmp_path):
    repo = submodule(tmp_path)
    write(repo, "vendor/lib/lib.h", "#define LIB 2\n")
    write(repo, "main.c", "int other;\n")
    assert patch(repo, mode="name_only").split() == [b"main.c", b"vendor/lib/lib.h"]
    text = patch(repo)
    assert b"--- a/main.c\n" in text
    assert b"--- a/vendor/lib/lib.h\n+++ b/vendor/lib/lib.h\n" in text
    assert b"+#define LIB 2\n" in text
    one = patch(repo, "vendor/lib/lib.h")
    assert one.count(b"diff --git") == 1
    assert b"+#define LIB 2\n" in one


def test_embedded_repository_is_named(tmp_path):
    repo = plain(tmp_path)
    plain(repo / "inner")
    assert b"inner/plain/" in patch(repo)
    assert patch(repo, mode="name_only") == b"inner/plain/\n"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain", b"plain"),
        (b"\xc3\xa4", b"\xc3\xa4"),
        (b'a"b', b'"a\\"b"'),
        (b"a\nb\x01\x7f", b'"a\\nb\\001\\177"'),
    ],
)
def test_quoting(raw, shown):
    assert quoted(raw) == shown
