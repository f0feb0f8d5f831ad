from __future__ import annotations

import hashlib
import os

import pytest
from tests.unit.workspace.repos import (
    commit,
    hostile_config,
    init,
    names,
    plain,
    run_git,
    script,
    submodule,
    write,
)

from handoff.errors import NotARepository
from handoff.workspace import state
from handoff.workspace.state import head_of, printable, tree_state


def entries(repo, **more):
    return tree_state(str(repo), **more).dirt.entries


def test_clean(tmp_path):
    repo = plain(tmp_path)
    found = tree_state(str(repo))
    assert (found.exists, found.branch, found.operation) == (True, "main", "")
    assert found.head == head_of(str(repo)) == run_git(repo, "rev-parse", "HEAD")
    assert (found.dirt.total, found.dirt.complete) == (0, True)


def test_gone_or_no_worktree(tmp_path):
    repo = plain(tmp_path)
    assert not tree_state(str(tmp_path / "gone")).exists
    assert not tree_state(str(repo / "src")).exists
    assert not tree_state(str(tmp_path)).exists
    with pytest.raises(NotARepository):
        head_of(str(tmp_path / "gone"))


def test_empty_repository_has_no_head(tmp_path):
    repo = init(tmp_path / "r")
    write(repo, "a", "")
    found = tree_state(str(repo))
    assert (found.head, found.branch, found.dirt.total) == ("", "main", 1)


def test_letters(tmp_path):
    repo = plain(tmp_path)
    commit(repo, "more", c="c\n", d="d\n")
    write(repo, "a.txt", "x")
    write(repo, "c", "staged")
    run_git(repo, "add", "c")
    os.unlink(repo / "d")
    run_git(repo, "mv", "src/b.py", "moved.py")
    write(repo, "new", "n")
    assert {path: letters for letters, path in entries(repo)} == {
        "a.txt": " M",
        "c": "M ",
        "d": " D",
        "moved.py": "A ",
        "src/b.py": "D ",
        "new": "??",
    }


def test_folder_with_many_files_is_one_entry_with_its_count(tmp_path):
    repo = plain(tmp_path)
    folder = repo / "node_modules"
    folder.mkdir()
    for number in range(3000):
        (folder / f"{number}").touch()
    write(repo, "src/few/one", "1")
    write(repo, "src/few/two", "2")
    found = tree_state(str(repo)).dirt
    assert found.entries == (
        ("??", "node_modules/ (3000 files)"),
        ("??", "src/few/one"),
        ("??", "src/few/two"),
    )
    assert (found.total, found.complete) == (3002, True)


def test_limit_keeps_counting(tmp_path):
    repo = plain(tmp_path)
    for number in range(30):
        write(repo, f"f{number:02}", "x")
    found = tree_state(str(repo), 7).dirt
    assert (len(found.entries), found.total, found.complete) == (7, 30, True)


def test_time_limit_is_told(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    write(repo, "new", "x")
    real = run_git(repo, "--exec-path")
    script(
        tmp_path / "bin" / "git",
        f'case "$*" in status*) sleep 100;; esac\nexec {real}/git "$@"\n',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    found = tree_state(str(repo), time_limit=0.5)
    assert found.exists
    assert found.head
    assert not found.dirt.complete


def test_count_limit_says_at_least(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    monkeypatch.setattr(state, "COUNT_LIMIT", 20)
    for number in range(40):
        write(repo, f"many/{number}", "")
    found = tree_state(str(repo)).dirt
    assert found.entries == (("??", "many/ (at least 20 files)"),)
    assert not found.complete


@pytest.mark.parametrize(
    ("operation", "steps"),
    [
        ("merge", [("merge", "side")]),
        ("rebase", [("rebase", "side")]),
        ("cherry-pick", [("cherry-pick", "side")]),
        ("revert", [("revert", "--no-commit", "HEAD~1"), ("revert", "--continue")]),
        ("bisect", [("bisect", "start", "HEAD", "HEAD~1")]),
    ],
)
def test_operation_under_way(tmp_path, operation, steps):
    repo = plain(tmp_path)
    run_git(repo, "branch", "side")
    commit(repo, "ours", a_dot_txt="ours\n")
    commit(repo, "again", a_dot_txt="again\n")
    run_git(repo, "switch", "-q", "side")
    commit(repo, "theirs", a_dot_txt="theirs\n")
    run_git(repo, "switch", "-q", "main")
    for step in steps:
        run_git(repo, *step, check=False, GIT_EDITOR="false")
    assert tree_state(str(repo)).operation == operation


def test_conflict_is_shown(tmp_path):
    repo = plain(tmp_path)
    run_git(repo, "switch", "-q", "-c", "side")
    commit(repo, "theirs", a_dot_txt="theirs\n")
    run_git(repo, "switch", "-q", "main")
    commit(repo, "ours", a_dot_txt="ours\n")
    run_git(repo, "merge", "-q", "side", check=False)
    assert entries(repo) == (("UU", "a.txt"),)


def test_detached_in_a_rebase_is_no_branch_called_head(tmp_path):
    repo = plain(tmp_path)
    run_git(repo, "switch", "-q", "--detach")
    assert tree_state(str(repo)).branch == ""


def test_settings_neither_hide_nor_run_anything(tmp_path):
    repo = hostile_config(tmp_path)
    (tmp_path / "hide-all").write_text("*\n")
    (tmp_path / "ran.log").unlink(missing_ok=True)
    write(repo, "a.txt", "changed\n")
    write(repo, "new", "n")
    assert entries(repo) == ((" M", "a.txt"), ("??", "new"))
    assert not (tmp_path / "ran.log").exists()


def test_filters_of_a_submodule_do_not_run(tmp_path):
    repo = submodule(tmp_path)
    inner = repo / "vendor/lib"
    log = tmp_path / "ran.log"
    run_git(inner, "config", "filter.evil.clean", f"echo x >>'{log}'; cat")
    run_git(inner, "config", "core.fsmonitor", f"echo x >>'{log}'")
    write(inner, ".gitattributes", "* filter=evil\n")
    write(inner, "lib.h", "changed\n")
    log.unlink(missing_ok=True)
    found = tree_state(str(repo)).dirt
    assert (" M", "vendor/lib/lib.h") in found.entries
    assert found.submodules == ("vendor/lib",)
    assert not log.exists()


def test_new_commit_in_a_submodule(tmp_path):
    repo = submodule(tmp_path)
    run_git(repo / "vendor/lib", "commit", "-q", "--allow-empty", "-m", "x")
    found = tree_state(str(repo)).dirt
    assert found.entries == ((" M", "vendor/lib"),)
    assert found.submodules == ("vendor/lib",)


def test_names_of_any_kind(tmp_path):
    repo = names(tmp_path)
    raw = os.path.join(os.fsencode(repo), b"raw-\xff")
    with open(raw, "wb"):
        pass
    write(repo, "new\nline", "")
    assert set(entries(repo)) == {("??", "raw-\\xff"), ("??", "new\nline")}
    assert printable("ä") == "ä"


def test_a_look_changes_nothing(tmp_path):
    repo = plain(tmp_path)
    os.utime(repo / "a.txt", (1, 1))
    index = repo / ".git" / "index"
    before = (index.read_bytes(), index.stat().st_mtime_ns)
    tree_state(str(repo))
    assert (index.read_bytes(), index.stat().st_mtime_ns) == before


def test_an_index_lock_does_not_stop_a_look(tmp_path):
    repo = plain(tmp_path)
    (repo / ".git" / "index.lock").touch()
    assert tree_state(str(repo)).dirt.total == 0


@pytest.mark.parametrize("bit", ["--assume-unchanged", "--skip-worktree"])
def test_changes_that_git_was_told_not_to_look_at(tmp_path, bit):
    repo = plain(tmp_path)
    run_git(repo, "update-index", bit, "a.txt", "src/b.py")
    assert entries(repo) == ()
    write(repo, "a.txt", "hidden work")
    assert run_git(repo, "status", "--porcelain") == ""
    assert entries(repo) == ((" M", "a.txt"),)


def test_content_in_place_of_an_lfs_pointer_is_not_a_change(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    content = b"model" * 1000
    pointer = (
        "version https://git-lfs.github.com/spec/v1\n"
        f"oid sha256:{hashlib.sha256(content).hexdigest()}\nsize {len(content)}\n"
    )
    write(repo, ".gitattributes", "*.bin filter=lfs\n")
    write(repo, "model.bin", pointer)
    write(repo, "other.bin", pointer)
    write(repo, "plain.bin", "no pointer\n")
    commit(repo, "lfs")
    config = tmp_path / "config"
    config.write_text(f'[filter "lfs"]\n\tclean = touch {tmp_path}/ran.log\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    write(repo, "model.bin", content)
    write(repo, "other.bin", content[:-1] + b"x")
    write(repo, "plain.bin", "changed\n")
    assert entries(repo) == ((" M", "other.bin"), (" M", "plain.bin"))
    assert not (tmp_path / "ran.log").exists()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    assert (" M", "model.bin") in entries(repo)
