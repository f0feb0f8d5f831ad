from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest
from tests.unit.workspace.repos import (
    build,
    commit,
    hooks,
    hostile_config,
    lfs,
    plain,
    run_git,
    sparse,
    submodule,
    write,
)

from handoff.errors import GitError, NotARepository, RepositoryLocked, WorkspaceRefused
from handoff.workspace import pending, refs, removal, review, verify
from handoff.workspace.identity import list_trees
from handoff.workspace.state import branch_of, head_of, is_worktree, tree_state
from handoff.workspace.worktree import READY, create, erase_folder, is_ready


def picture(repo):
    """All that a refused or undone dispatch must leave alone."""
    return (
        run_git(repo, "for-each-ref"),
        run_git(repo, "worktree", "list", "--porcelain"),
        run_git(repo, "status", "--porcelain", "--untracked-files=all"),
    )


def test_managed_worktree_starts_at_the_head_one_stands_on(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo, title="Fix the thing")
    create(plan)
    assert plan.branch.startswith("handoff/fix-the-thing-")
    assert head_of(plan.work_dir) == run_git(repo, "rev-parse", "HEAD") == plan.base_commit
    assert branch_of(plan.work_dir) == plan.branch
    assert (tmp_path / "trees").stat().st_mode & 0o077 == 0
    assert os.listdir(tmp_path / "trees") == [os.path.basename(plan.work_dir)]
    assert branch_of(str(repo)) == "main"


def test_create_twice_changes_nothing(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    create(plan)
    write(tmp_path / "trees" / os.path.basename(plan.work_dir), "work.txt", "precious")
    before = picture(repo)
    create(plan)
    assert picture(repo) == before
    assert tree_state(plan.work_dir).dirt.entries == (("??", "work.txt"),)


def test_existing_branch(tmp_path, planner):
    repo = plain(tmp_path)
    run_git(repo, "branch", "feature", "HEAD~1")
    plan = planner(repo, branch="feature")
    assert not plan.makes_branch
    create(plan)
    assert branch_of(plan.work_dir) == "feature"
    assert head_of(plan.work_dir) == run_git(repo, "rev-parse", "HEAD~1")
    assert removal.discard(plan).action == "removed"
    assert run_git(repo, "branch", "--list", "feature").strip() == "feature"


def test_a_tag_of_the_same_name_does_not_mislead(tmp_path, planner):
    repo = plain(tmp_path)
    run_git(repo, "branch", "thing")
    run_git(repo, "tag", "thing", "HEAD~1")
    plan = planner(repo, branch="thing")
    create(plan)
    assert branch_of(plan.work_dir) == "thing"
    assert head_of(plan.work_dir) == run_git(repo, "rev-parse", "refs/heads/thing")


def test_branch_made_by_somebody_else_meanwhile_is_kept(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo, new_branch="mine")
    run_git(repo, "branch", "mine")
    before = picture(repo)
    with pytest.raises(WorkspaceRefused, match="meanwhile"):
        create(plan)
    assert picture(repo) == before


def test_existing_branch_that_moved_meanwhile_is_refused(tmp_path, planner):
    repo = plain(tmp_path)
    run_git(repo, "branch", "feature")
    plan = planner(repo, branch="feature")
    run_git(repo, "branch", "-f", "feature", "HEAD~1")
    before = picture(repo)
    with pytest.raises(WorkspaceRefused, match="moved"):
        create(plan)
    assert picture(repo) == before


def test_foreign_folder_in_the_way_is_kept(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    before = picture(repo)
    os.makedirs(plan.work_dir)
    write(tmp_path, f"trees/{os.path.basename(plan.work_dir)}/theirs", "x")
    with pytest.raises(WorkspaceRefused, match="not a worktree"):
        create(plan)
    assert picture(repo) == before
    assert os.listdir(plan.work_dir) == ["theirs"]


def test_failed_checkout_leaves_nothing(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo, new_branch="mine")
    before = picture(repo)
    blob = run_git(repo, "rev-parse", "HEAD:a.txt")
    os.unlink(repo / ".git" / "objects" / blob[:2] / blob[2:])
    with pytest.raises(GitError) as caught:
        create(plan)
    assert "leftovers" not in caught.value.details
    assert picture(repo)[:2] == before[:2]
    assert os.listdir(tmp_path / "trees") == []


def test_no_hook_runs(tmp_path, planner):
    repo = hooks(tmp_path)
    plan = planner(repo)
    assert len(plan.skipped_hooks) == 3
    assert any("post-checkout" in note for note in plan.notes)
    create(plan)
    in_place = planner(repo, in_place=True)
    create(in_place)
    assert removal.restore(in_place).action == "restored"
    assert removal.remove(plan).action == "removed"
    assert not (tmp_path / "ran.log").exists()


def test_hooks_of_the_users_own_folder_are_named_and_left_out(tmp_path, planner, monkeypatch):
    repo = hooks(tmp_path)
    os.rename(repo / ".git" / "hooks", tmp_path / "my-hooks")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text(f"[core]\n\thooksPath = {tmp_path}/my-hooks\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    plan = planner(repo)
    assert [os.path.dirname(h) for h in plan.skipped_hooks] == [f"{tmp_path}/my-hooks"] * 3
    create(plan)
    assert not (tmp_path / "ran.log").exists()


def test_lfs_pointers_stay_and_are_not_modified(tmp_path, planner):
    repo = lfs(tmp_path)
    plan = planner(repo)
    (tmp_path / "ran.log").unlink(missing_ok=True)
    assert any("LFS" in note and "git lfs pull" in note for note in plan.notes)
    create(plan)
    with open(os.path.join(plan.work_dir, "model.bin")) as file:
        assert file.readline().startswith("version https://git-lfs")
    os.utime(os.path.join(plan.work_dir, "model.bin"), (1, 1))
    assert tree_state(plan.work_dir).dirt.total == 0
    assert removal.remove(plan).action == "removed"
    assert not (tmp_path / "ran.log").exists()


def test_sparse_checkout_is_carried_over(tmp_path, planner):
    repo = sparse(tmp_path)
    patterns = (repo / ".git" / "info" / "sparse-checkout").read_text()
    plan = planner(repo)
    assert plan.sparse
    create(plan)
    assert os.listdir(plan.work_dir) == sorted([".git", "app"]) or set(
        os.listdir(plan.work_dir)
    ) == {".git", "app"}
    assert tree_state(plan.work_dir).dirt.total == 0
    commit_dir = plan.work_dir
    write(tmp_path / "trees" / os.path.basename(commit_dir), "app/new.txt", "n\n")
    run_git(commit_dir, "add", "app/new.txt")
    run_git(commit_dir, "commit", "-qm", "new")
    changed = run_git(repo, "diff", "--name-only", f"{plan.base_commit}..{plan.branch}")
    assert changed == "app/new.txt"
    assert removal.remove(plan).action == "removed"
    assert (repo / ".git" / "info" / "sparse-checkout").read_text() == patterns
    assert not (repo / "docs").exists()
    assert tree_state(str(repo)).dirt.total == 0


def test_sparse_in_place(tmp_path, planner):
    repo = sparse(tmp_path)
    plan = planner(repo, in_place=True)
    create(plan)
    commit(repo, "new", app__new_dot_txt="n\n")
    assert removal.restore(plan).action == "restored"
    assert not (repo / "docs").exists()
    assert tree_state(str(repo)).dirt.total == 0


@pytest.mark.parametrize("where", ["hub", "hub/main", "hub/main/src"])
def test_bare_hub(tmp_path, planner, where):
    build("bare-hub", tmp_path)
    plan = planner(tmp_path / where)
    create(plan)
    assert head_of(plan.work_dir) == run_git(tmp_path / "hub" / "main", "rev-parse", "HEAD")
    assert removal.remove(plan).action == "removed"


def test_bare_repository_as_folder(tmp_path, planner):
    build("bare-plain", tmp_path)
    plan = planner(tmp_path / "hub.git")
    create(plan)
    assert head_of(plan.work_dir) == plan.base_commit
    assert removal.discard(plan).action == "removed"


def test_in_place_goes_back_to_the_branch(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo, in_place=True, title="t")
    create(plan)
    create(plan)
    assert branch_of(str(repo)) == plan.branch
    head = commit(repo, "work", w_dot_txt="w\n")
    assert removal.restore(plan).action == "restored"
    assert branch_of(str(repo)) == "main"
    assert run_git(repo, "rev-parse", plan.branch) == head
    assert removal.restore(plan).action == "already_there"


def test_in_place_goes_back_to_a_detached_commit(tmp_path, planner):
    repo = plain(tmp_path)
    run_git(repo, "switch", "-q", "--detach", "HEAD~1")
    here = head_of(str(repo))
    plan = planner(repo, in_place=True)
    assert plan.base_commit == here
    create(plan)
    commit(repo, "work")
    assert removal.restore(plan).action == "restored"
    assert head_of(str(repo)) == here
    assert branch_of(str(repo)) == ""


def test_restore_keeps_dirt_and_says_what(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo, in_place=True)
    create(plan)
    write(repo, "a.txt", "changed")
    kept = removal.restore(plan)
    assert (kept.action, kept.reason, kept.entries) == ("kept", "dirty", ((" M", "a.txt"),))
    assert branch_of(str(repo)) == plan.branch


def test_restore_leaves_a_tree_that_somebody_switched(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo, in_place=True)
    create(plan)
    run_git(repo, "switch", "-q", "-c", "elsewhere")
    assert removal.restore(plan).reason == "switched_away"
    assert branch_of(str(repo)) == "elsewhere"


def test_in_place_with_an_index_lock_is_undone(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo, in_place=True)
    before = picture(repo)
    (repo / ".git" / "index.lock").touch()
    with pytest.raises(RepositoryLocked) as caught:
        create(plan)
    assert "index.lock" in str(caught.value)
    assert "rm " in caught.value.remedy
    (repo / ".git" / "index.lock").unlink()
    assert picture(repo) == before


def test_user_worktree(tmp_path, planner):
    repo = plain(tmp_path)
    theirs = tmp_path / "theirs"
    run_git(repo, "worktree", "add", "-q", "-b", "side", str(theirs))
    plan = planner(repo, worktree=str(theirs), new_branch="task")
    assert (plan.kind, plan.work_dir, plan.previous) == ("user", str(theirs), "side")
    create(plan)
    assert branch_of(str(theirs)) == "task"
    assert removal.remove(plan).reason == "not_managed"
    assert removal.discard(plan).action == "restored"
    assert branch_of(str(theirs)) == "side"
    assert run_git(repo, "branch", "--list", "task") == ""


def test_discard_takes_back_branch_and_tree(tmp_path, planner):
    repo = plain(tmp_path)
    before = picture(repo)
    plan = planner(repo, new_branch="mine")
    create(plan)
    assert removal.discard(plan).action == "removed"
    assert picture(repo) == before
    assert removal.discard(plan).action == "already_absent"
    again = planner(repo, new_branch="mine")
    create(again)


def test_discard_keeps_a_branch_with_work(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo, new_branch="mine")
    create(plan)
    run_git(plan.work_dir, "commit", "-q", "--allow-empty", "-m", "work")
    outcome = removal.discard(plan)
    assert outcome.action == "removed"
    assert "mine" in outcome.note
    assert run_git(repo, "branch", "--list", "mine").strip() == "mine"


def test_discard_before_create_touches_nothing(tmp_path, planner):
    repo = plain(tmp_path)
    run_git(repo, "branch", "other")
    plan = planner(repo, new_branch="mine")
    run_git(repo, "branch", "mine")
    before = picture(repo)
    assert removal.discard(plan).action == "already_absent"
    assert picture(repo) == before


def test_remove_keeps_dirt_by_name_and_force_removes(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    create(plan)
    write(tmp_path, f"trees/{os.path.basename(plan.work_dir)}/left.txt", "x")
    kept = removal.remove(plan)
    assert (kept.action, kept.reason, kept.entries) == ("kept", "dirty", (("??", "left.txt"),))
    assert removal.remove(plan, force=True).action == "removed"
    assert removal.remove(plan).action == "already_absent"


def test_remove_keeps_the_commits_of_a_detached_head(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    create(plan)
    run_git(plan.work_dir, "switch", "-q", "--detach")
    run_git(plan.work_dir, "commit", "-q", "--allow-empty", "-m", "lonely")
    head = head_of(plan.work_dir)
    assert removal.remove(plan).action == "removed"
    assert refs.read(str(repo), plan.task_id, "head") == head


def test_remove_in_the_middle_of_a_merge_keeps(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    create(plan)
    run_git(repo, "commit", "-q", "--allow-empty", "-m", "theirs")
    run_git(plan.work_dir, "commit", "-q", "--allow-empty", "-m", "ours")
    run_git(plan.work_dir, "merge", "-q", "--no-commit", "main")
    assert removal.remove(plan).reason == "operation"


def test_folder_deleted_by_hand_is_pruned_and_only_that_one(tmp_path, planner):
    repo = plain(tmp_path)
    plan, other = planner(repo), planner(repo)
    create(plan)
    create(other)
    erase_folder(plan.work_dir)
    erase_folder(other.work_dir)
    assert removal.remove(plan).action == "pruned"
    paths = [tree.path for tree in list_trees(str(repo))]
    assert plan.work_dir not in paths
    assert other.work_dir in paths


def test_locked_by_somebody_is_kept(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    create(plan)
    run_git(repo, "worktree", "lock", "--reason", "mine", plan.work_dir)
    kept = removal.remove(plan)
    assert (kept.reason, "mine" in kept.note) == ("locked", True)


def test_repository_that_moved_away_is_reported(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    create(plan)
    os.rename(repo, tmp_path / "elsewhere")
    assert removal.remove(plan).reason == "repo_unreachable"
    assert os.path.isdir(plan.work_dir)


def test_read_only_ignored_folder_does_not_stop_removal(tmp_path, planner):
    repo = plain(tmp_path)
    commit(repo, "ignore", _dot_gitignore="cache/\n")
    plan = planner(repo)
    create(plan)
    cache = os.path.join(plan.work_dir, "cache", "mod")
    os.makedirs(cache)
    with open(os.path.join(cache, "f"), "w"):
        pass
    os.chmod(cache, 0o555)
    assert removal.remove(plan).action == "removed"
    assert not os.path.exists(plan.work_dir)


def test_submodules_are_named_and_a_clean_one_does_not_stop_removal(tmp_path, planner):
    repo = submodule(tmp_path)
    plan = planner(repo)
    assert plan.missing_submodules == ("vendor/lib",)
    assert any("vendor/lib" in n and "git submodule update --init" in n for n in plan.notes)
    create(plan)
    assert os.listdir(os.path.join(plan.work_dir, "vendor/lib")) == []
    populate(plan.work_dir)
    assert tree_state(plan.work_dir).dirt.total == 0
    assert removal.remove(plan).action == "removed"


def populate(work_dir):
    allow = ("-c", "protocol.file.allow=always")
    run_git(work_dir, *allow, "submodule", "-q", "update", "--init")


def test_file_in_a_submodule_is_shown_and_kept(tmp_path, planner):
    repo = submodule(tmp_path)
    plan = planner(repo)
    create(plan)
    populate(plan.work_dir)
    with open(os.path.join(plan.work_dir, "vendor/lib/new.txt"), "w"):
        pass
    state = tree_state(plan.work_dir)
    assert state.dirt.entries == (("??", "vendor/lib/new.txt"),)
    assert state.dirt.submodules == ("vendor/lib",)
    kept = removal.remove(plan)
    assert (kept.reason, kept.entries) == ("submodule_work", (("??", "vendor/lib/new.txt"),))


@pytest.mark.parametrize("deinit", [False, True])
def test_commit_in_a_submodule_that_exists_nowhere_else_is_kept(tmp_path, planner, deinit):
    repo = submodule(tmp_path)
    plan = planner(repo)
    create(plan)
    populate(plan.work_dir)
    sub = os.path.join(plan.work_dir, "vendor/lib")
    run_git(sub, "switch", "-q", "-c", "work")
    run_git(sub, "commit", "-q", "--allow-empty", "-m", "precious")
    head = head_of(sub)
    run_git(sub, "switch", "-q", "--detach", "HEAD~1")
    if deinit:
        run_git(plan.work_dir, "submodule", "-q", "deinit", "-f", "vendor/lib")
    kept = removal.remove(plan)
    assert kept.reason == "submodule_work"
    assert kept.entries[0][0] == head[:10]
    assert removal.remove(plan, force=True).action == "removed"


def test_many_at_once_in_one_repository(tmp_path, planner):
    repo = plain(tmp_path)
    plans = [planner(repo, title=f"t{n}") for n in range(6)]
    errors = []

    def go(plan):
        try:
            create(plan)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=go, args=(plan,)) for plan in plans * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(is_ready(plan) for plan in plans)
    assert len(list_trees(str(repo))) == 7


def test_two_that_want_one_branch(tmp_path, planner):
    repo = plain(tmp_path)
    first, second = planner(repo, new_branch="x"), planner(repo, new_branch="x")
    create(first)
    with pytest.raises(WorkspaceRefused):
        create(second)
    assert is_worktree(first.work_dir)
    assert not os.path.exists(second.work_dir)


def test_half_made_tree_is_made_again(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    create(plan)
    git_dir = run_git(plan.work_dir, "rev-parse", "--absolute-git-dir")
    os.unlink(os.path.join(git_dir, READY))
    os.unlink(os.path.join(plan.work_dir, "a.txt"))
    with open(os.path.join(git_dir, "index.lock"), "w"):
        pass
    create(plan)
    assert tree_state(plan.work_dir).dirt.total == 0
    assert len(list_trees(str(repo))) == 2


def test_a_task_id_is_started_once(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    create(plan)
    commit(repo, "later")
    other = replace(
        plan,
        base_commit=head_of(str(repo)),
        branch="handoff/other",
        work_dir=plan.work_dir + "x",
    )
    with pytest.raises(WorkspaceRefused, match="already started"):
        create(other)
    assert is_ready(plan)


def test_a_whole_life_under_hostile_settings_runs_nothing(tmp_path, planner, monkeypatch):
    repo = hostile_config(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text((repo / "gitconfig").read_text())
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    (tmp_path / "hide-all").write_text("*\n")
    log = tmp_path / "ran.log"
    log.unlink(missing_ok=True)
    plan = planner(repo)
    create(plan)
    assert not log.exists()
    run_git(plan.work_dir, "-c", "core.hooksPath=/dev/null", "merge", "-q", "--ff-only", "work")
    log.unlink(missing_ok=True)
    found = verify.verify_claim(
        plan.work_dir, str(repo), plan.branch, plan.base_commit, {"commit": head_of(plan.work_dir)}
    )
    assert (found.code, found.commits) == ("verified", 2)
    span = review.keep_range(plan)
    assert [c.path for c in review.files(str(repo), span)] == ["a.txt", "moved.txt"]
    write(tmp_path, f"trees/{os.path.basename(plan.work_dir)}/left.txt", "x\n")
    assert b"+x" in b"".join(pending.uncommitted_stream(plan.work_dir))
    kept = removal.remove(plan)
    assert kept.entries == (("??", "left.txt"),)
    os.unlink(os.path.join(plan.work_dir, "left.txt"))
    assert removal.remove(plan).action == "removed"
    in_place = planner(repo, in_place=True)
    create(in_place)
    assert removal.restore(in_place).action == "restored"
    assert not log.exists()


def test_sparse_linked_worktree_is_carried_over(tmp_path, planner):
    repo = sparse(tmp_path)
    linked = tmp_path / "linked"
    run_git(repo, "worktree", "add", "-q", "-b", "side", str(linked))
    run_git(linked, "sparse-checkout", "set", "--cone", "docs")
    plan = planner(linked)
    create(plan)
    assert set(os.listdir(plan.work_dir)) == {".git", "docs"}
    assert tree_state(plan.work_dir).dirt.total == 0
    assert not (repo / "docs").exists()


def test_dirt_in_the_way_of_a_switch_is_named_and_kept(tmp_path, planner):
    repo = plain(tmp_path)
    write(repo, "a.txt", "my work")
    plan = planner(repo, in_place=True, allow_dirty=True, base="HEAD~1")
    before = picture(repo)
    with pytest.raises(GitError, match=r"overwritten by checkout: a\.txt"):
        create(plan)
    assert picture(repo) == before
    assert (repo / "a.txt").read_text() == "my work"


def test_worktree_of_a_repository_that_moved(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    create(plan)
    os.rename(repo, tmp_path / "elsewhere")
    with pytest.raises(NotARepository, match="not there any more") as caught:
        head_of(plan.work_dir)
    run_git(tmp_path / "elsewhere", *caught.value.remedy.partition(": git ")[2].split())
    assert head_of(plan.work_dir) == plan.base_commit
