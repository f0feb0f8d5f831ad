from __future__ import annotations

import json
import os
from dataclasses import asdict

import pytest
from tests.unit.workspace.conftest import new_task_id
from tests.unit.workspace.repos import (
    advance,
    bare_hub,
    branch_prefix,
    commit,
    init,
    lfs,
    moved_main,
    plain,
    run_git,
    write,
)

from handoff.errors import (
    EmptyRepository,
    GitError,
    NotARepository,
    NotFound,
    UsageError,
    WorkspaceBusy,
    WorkspaceDirty,
    WorkspaceRefused,
)
from handoff.workspace import removal
from handoff.workspace.contract import WorkspaceRequest
from handoff.workspace.plan import plan_workspace
from handoff.workspace.state import branch_of, head_of
from handoff.workspace.worktree import create


def picture(repo):
    return (
        run_git(repo, "for-each-ref"),
        run_git(repo, "worktree", "list", "--porcelain"),
        run_git(repo, "status", "--porcelain", "--untracked-files=all"),
    )


def test_a_plan_changes_nothing_and_is_json(tmp_path, planner):
    repo = plain(tmp_path)
    before = picture(repo)
    plan = planner(repo, title="x")
    assert picture(repo) == before
    assert not (tmp_path / "trees").exists()
    json.dumps(asdict(plan)).encode()
    assert (plan.kind, plan.base_name, plan.makes_branch) == ("managed", "main", True)
    assert plan.notes == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"branch": "a", "new_branch": "b"},
        {"worktree": "/x", "in_place": True},
        {"branch": "main", "base": "main"},
        {"worktree": "relative"},
        {"new_branch": "-x"},
        {"branch": "-x"},
        {"base": "-x"},
        {"base": "--output=x"},
        {"base": "a..b"},
        {"base": "main\n"},
        {"base_commit": "abc"},
        {"base_commit": "HEAD"},
    ],
)
def test_requests_that_contradict_themselves(tmp_path, planner, wrong):
    repo = plain(tmp_path)
    with pytest.raises(UsageError):
        planner(repo, **wrong)


def test_relative_start_is_refused(planner):
    with pytest.raises(UsageError):
        planner("relative")


def test_branch_that_collides_with_our_own_scheme_does_not_stop_dispatch(tmp_path, planner):
    repo = branch_prefix(tmp_path)
    run_git(repo, "branch", "handoff")
    for _ in range(3):
        plan = planner(repo, title="same title")
        assert plan.branch.startswith("handoff-same-title-")
        create(plan)


def test_refusal_leaves_nothing_behind(tmp_path, planner):
    repo = branch_prefix(tmp_path)
    before = picture(repo)
    for name in ("release", "topic/a", "a..b", "HEAD"):
        with pytest.raises((UsageError, WorkspaceRefused)) as caught:
            planner(repo, new_branch=name)
        offer = str(caught.value.details["free_name"])
        plan = planner(repo, new_branch=offer)
        create(plan)
        assert removal.discard(plan).action == "removed"
    assert picture(repo) == before


@pytest.mark.parametrize("name", ["ä/ö", "emoji-🚀", "a" * 250])
def test_odd_valid_names_work_to_the_end(tmp_path, planner, name):
    plan = planner(plain(tmp_path), new_branch=name)
    create(plan)
    assert branch_of(plan.work_dir) == name
    assert removal.remove(plan).action == "removed"


def test_base_is_the_head_of_the_worktree_one_stands_in(tmp_path, planner):
    repo = plain(tmp_path)
    linked = tmp_path / "linked"
    run_git(repo, "worktree", "add", "-q", "-b", "feature", str(linked))
    head = commit(linked, "only here", f_dot_txt="f\n")
    plan = planner(linked / "src")
    assert (plan.base_commit, plan.base_name, plan.start_dir) == (head, "feature", str(linked))
    create(plan)
    assert head_of(plan.work_dir) == head
    run_git(linked, "switch", "-q", "--detach", "HEAD~1")
    detached = planner(linked)
    assert detached.base_commit == run_git(linked, "rev-parse", "HEAD")
    assert detached.base_name.startswith("detached HEAD at ")


def test_in_the_middle_of_a_rebase(tmp_path, planner):
    repo = plain(tmp_path)
    run_git(repo, "branch", "side", "HEAD~1")
    run_git(repo, "switch", "-q", "side")
    commit(repo, "theirs", a_dot_txt="theirs\n")
    run_git(repo, "rebase", "main", check=False)
    plan = planner(repo)
    assert plan.base_commit == head_of(str(repo))
    assert "in the middle of a rebase" in plan.base_name
    assert plan.branch != "HEAD"
    with pytest.raises(WorkspaceRefused, match="rebase"):
        planner(repo, in_place=True, allow_dirty=True)


def test_empty_repository(tmp_path, planner):
    repo = init(tmp_path / "empty")
    with pytest.raises(EmptyRepository) as caught:
        planner(repo)
    assert "commit --allow-empty" in caught.value.remedy
    with pytest.raises(EmptyRepository):
        planner(repo, in_place=True)


def test_no_repository(tmp_path, planner):
    with pytest.raises(NotARepository):
        planner(tmp_path)


def test_bare_hub_has_nothing_to_work_in_place(tmp_path, planner):
    hub = bare_hub(tmp_path)
    with pytest.raises(WorkspaceRefused):
        planner(hub, in_place=True)
    assert planner(hub / "main", in_place=True).work_dir == str(hub / "main")


def test_dirt_is_told_or_refused(tmp_path, planner):
    repo = plain(tmp_path)
    write(repo, "new.txt", "x")
    write(repo, "a.txt", "y")
    plan = planner(repo)
    assert (plan.dirty_count, set(plan.dirty_files)) == (2, {"a.txt", "new.txt"})
    assert any("2 uncommitted changes" in note for note in plan.notes)
    with pytest.raises(WorkspaceDirty, match=r"a\.txt") as caught:
        planner(repo, in_place=True)
    assert "--allow-dirty" in caught.value.remedy
    allowed = planner(repo, in_place=True, allow_dirty=True)
    create(allowed)
    assert (repo / "new.txt").read_text() == "x"
    assert branch_of(str(repo)) == allowed.branch


def test_busy_by_canonical_path(tmp_path):
    repo = plain(tmp_path)
    os.symlink(repo, tmp_path / "link")
    asked = []

    def busy(path):
        asked.append(path)
        return "task 1234"

    for more in ({"in_place": True}, {"worktree": f"{tmp_path}/link/"}):
        request = WorkspaceRequest(
            task_id=new_task_id(),
            start_dir=str(tmp_path / "link" / "src"),
            worktrees_dir=str(tmp_path / "trees"),
            **more,
        )
        with pytest.raises(WorkspaceBusy, match="task 1234"):
            plan_workspace(request, busy)
    assert asked == [str(repo), str(repo)]


def test_user_worktree_has_to_be_one_of_the_project(tmp_path, planner):
    repo = plain(tmp_path / "one")
    other = plain(tmp_path / "two")
    with pytest.raises(WorkspaceRefused, match="another repository"):
        planner(repo, worktree=str(other))
    with pytest.raises(WorkspaceRefused, match="not the top"):
        planner(repo, worktree=str(repo / "src"))
    with pytest.raises(NotARepository):
        planner(repo, worktree=str(tmp_path / "gone"))


def test_existing_branch_checked_out_elsewhere_is_named(tmp_path, planner):
    repo = plain(tmp_path)
    with pytest.raises(WorkspaceRefused, match="checked out in") as caught:
        planner(repo, branch="main")
    assert str(repo) in str(caught.value)
    assert planner(repo, branch="main", in_place=True).previous == "main"


def test_missing_branch_names_the_remote_one(tmp_path, planner):
    clone = moved_main(tmp_path)
    run_git(clone, "push", "-q", "origin", "HEAD:refs/heads/only-there")
    run_git(clone, "fetch", "-q")
    with pytest.raises(NotFound) as caught:
        planner(clone, branch="only-there")
    assert "origin/only-there" in str(caught.value)
    plan = planner(clone, new_branch="only-there", base="origin/only-there")
    create(plan)
    assert run_git(plan.work_dir, "config", "--get-regexp", "^branch.only", check=False) == ""
    with pytest.raises(NotFound):
        planner(clone, branch="nowhere")


def test_base_by_name_is_a_commit_id_and_ambiguity_is_refused(tmp_path, planner):
    repo = plain(tmp_path)
    run_git(repo, "branch", "v1")
    assert planner(repo, base="v1").base_commit == head_of(str(repo))
    run_git(repo, "tag", "v1", "HEAD~1")
    with pytest.raises(UsageError, match="ambiguous") as caught:
        planner(repo, base="v1")
    assert "refs/heads/v1" in str(caught.value)
    plan = planner(repo, base="refs/tags/v1")
    assert plan.base_commit == run_git(repo, "rev-parse", "HEAD~1")
    create(plan)
    assert head_of(plan.work_dir) == plan.base_commit
    with pytest.raises(NotFound):
        planner(repo, base="nothing")


def test_base_only_on_the_remote_is_fetched_alone(tmp_path, planner):
    clone = moved_main(tmp_path)
    head = advance(tmp_path)
    run_git(tmp_path / "origin.git", "branch", "fresh", head)
    run_git(tmp_path / "origin.git", "branch", "noise", head)
    before = run_git(clone, "for-each-ref")
    plan = planner(clone, base="fresh")
    assert (plan.base_commit, plan.base_name) == (head, "origin/fresh")
    assert run_git(clone, "for-each-ref") == before
    assert not (clone / ".git" / "FETCH_HEAD").exists()
    create(plan)
    assert head_of(plan.work_dir) == head


def test_base_on_a_remote_that_is_away(tmp_path, planner):
    clone = moved_main(tmp_path)
    run_git(clone, "push", "-q", "origin", "HEAD:refs/heads/known")
    run_git(clone, "fetch", "-q")
    os.rename(tmp_path / "origin.git", tmp_path / "away")
    plan = planner(clone, base="known")
    assert any("as last fetched" in note for note in plan.notes)
    with pytest.raises(GitError):
        planner(clone, base="unknown")


def test_base_on_two_remotes_is_ambiguous(tmp_path, planner):
    clone = moved_main(tmp_path)
    run_git(clone, "remote", "add", "second", str(tmp_path / "origin.git"))
    run_git(clone, "push", "-q", "origin", "HEAD:refs/heads/both")
    run_git(clone, "fetch", "-q", "--all")
    with pytest.raises(UsageError, match="origin/both, second/both"):
        planner(clone, base="both")


def test_base_commit_as_the_coordinator_saw_it(tmp_path, planner):
    clone = moved_main(tmp_path)
    old = run_git(clone, "rev-parse", "HEAD~1")
    assert planner(clone, base_commit=old).base_commit == old
    new = advance(tmp_path)
    assert planner(clone, base_commit=new).base_commit == new
    with pytest.raises((NotFound, GitError)):
        planner(clone, base_commit="f" * 40)


def test_base_behind_its_upstream_is_told(tmp_path, planner):
    clone = moved_main(tmp_path)
    advance(tmp_path)
    run_git(clone, "fetch", "-q")
    assert any("1 commit behind origin/main" in note for note in planner(clone).notes)


def test_base_ahead_counts_the_main_trees_head(tmp_path, planner):
    repo = plain(tmp_path)
    assert planner(repo, base="HEAD~1").base_ahead == 1


def test_in_place_would_rewrite_filtered_files(tmp_path, planner):
    repo = lfs(tmp_path)
    run_git(repo, "config", "--remove-section", "filter.lfs")
    run_git(repo, "switch", "-q", "-c", "other")
    write(repo, "model.bin", "another\n")
    commit(repo, "other")
    run_git(repo, "switch", "-q", "main")
    run_git(repo, "config", "filter.lfs.smudge", "cat")
    with pytest.raises(WorkspaceRefused, match="filter"):
        planner(repo, branch="other", in_place=True)
    planner(repo, branch="other")


def test_partial_clone_gets_its_blobs(tmp_path, planner):
    moved_main(tmp_path)
    origin = tmp_path / "origin.git"
    run_git(origin, "config", "uploadpack.allowFilter", "true")
    args = ["clone", "-q", "--filter=blob:none", "--no-checkout", f"file://{origin}", "partial"]
    run_git(tmp_path, *args)
    plan = planner(tmp_path / "partial")
    create(plan)
    assert os.path.exists(os.path.join(plan.work_dir, "a.txt"))


def test_taken_folder_gets_the_long_name(tmp_path, planner):
    repo = plain(tmp_path)
    task = new_task_id()
    (tmp_path / "trees" / task[:8]).mkdir(parents=True)
    assert planner(repo, task_id=task).work_dir == str(tmp_path / "trees" / task)


def test_odd_repository_folder(tmp_path, planner):
    repo = plain(tmp_path)
    moved = tmp_path / 'it\'s a "repo"\nx'
    os.rename(repo, moved)
    plan = planner(moved)
    create(plan)
    assert head_of(plan.work_dir) == plan.base_commit
    assert removal.remove(plan).action == "removed"


def test_branch_held_for_a_worktree_that_is_gone(tmp_path, planner):
    repo = plain(tmp_path)
    run_git(repo, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    os.rename(tmp_path / "side", tmp_path / "moved")
    with pytest.raises(WorkspaceRefused, match="gone") as caught:
        planner(repo, branch="side")
    assert "worktree prune" in caught.value.remedy
