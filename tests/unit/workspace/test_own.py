from __future__ import annotations

import os

import pytest
from tests.unit.workspace.repos import (
    advance,
    commit,
    moved_main,
    plain,
    run_git,
    write,
)

from handoff.errors import NotFound, UsageError
from handoff.workspace import refs, removal
from handoff.workspace.own import keep_range, own_range, range_of, raw_range
from handoff.workspace.state import head_of
from handoff.workspace.verify import leave_out, verify_claim
from handoff.workspace.worktree import create


def work(plan, name, text="mine\n"):
    with open(os.path.join(plan.work_dir, name), "w") as file:
        file.write(text)
    run_git(plan.work_dir, "add", "-A")
    run_git(plan.work_dir, "commit", "-q", "-m", f"add {name}")
    return head_of(plan.work_dir)


def span(plan, **more):
    values = {
        "recorded_base": plan.base_commit,
        "base_name": plan.base_name,
        "branch": plan.branch,
        "work_dir": plan.work_dir,
        **more,
    }
    return own_range(plan.project.common_dir, plan.task_id, **values)


def changed(plan, found):
    out = run_git(plan.project.root, "diff", "--no-renames", "--name-only", found.base, found.head)
    return out.split("\n") if out else []


@pytest.fixture
def clone(tmp_path):
    return moved_main(tmp_path)


def test_plain_work(clone, planner):
    plan = planner(clone)
    create(plan)
    assert span(plan).base == span(plan).head == plan.base_commit
    head = work(plan, "mine.txt")
    found = span(plan)
    assert (found.base, found.head, found.moved) == (plan.base_commit, head, "")


@pytest.mark.parametrize("how", ["rebase", "merge", "pull-rebase", "pull-merge"])
@pytest.mark.parametrize("pushed", [False, True])
def test_base_that_moved_is_left_out(tmp_path, clone, planner, how, pushed):
    plan = planner(clone)
    create(plan)
    work(plan, "mine.txt")
    advance(tmp_path, "theirs.txt")
    advance(tmp_path, "theirs2.txt")
    run_git(plan.work_dir, "fetch", "-q")
    {
        "rebase": lambda: run_git(plan.work_dir, "rebase", "-q", "origin/main"),
        "merge": lambda: run_git(plan.work_dir, "merge", "-q", "--no-edit", "origin/main"),
        "pull-rebase": lambda: run_git(plan.work_dir, "pull", "-q", "--rebase", "origin", "main"),
        "pull-merge": lambda: run_git(
            plan.work_dir, "pull", "-q", "--no-rebase", "--no-edit", "origin", "main"
        ),
    }[how]()
    if pushed:
        run_git(plan.work_dir, "push", "-q", "origin", plan.branch)
    found = span(plan)
    assert changed(plan, found) == ["mine.txt"]
    assert "2 commits" in found.moved
    assert "origin/main" in found.moved
    raw = raw_range(str(clone), plan.base_commit, plan.branch)
    assert changed(plan, raw) == ["mine.txt", "theirs.txt", "theirs2.txt"]


def test_task_that_only_moved_to_the_base_did_nothing(tmp_path, clone, planner):
    plan = planner(clone)
    create(plan)
    advance(tmp_path)
    run_git(plan.work_dir, "fetch", "-q")
    run_git(plan.work_dir, "merge", "-q", "--ff-only", "origin/main")
    found = span(plan)
    assert changed(plan, found) == []
    assert "1 commit" in found.moved


def test_another_branch_merged_is_shown(clone, planner):
    run_git(clone, "switch", "-q", "-c", "work")
    commit(clone, "work", w_dot_txt="w\n")
    run_git(clone, "switch", "-q", "main")
    plan = planner(clone)
    create(plan)
    run_git(plan.work_dir, "merge", "-q", "--ff-only", "work")
    assert changed(plan, span(plan)) == ["w.txt"]


def test_existing_branch_shows_the_third_commit_only(clone, planner):
    run_git(clone, "switch", "-q", "-c", "feature")
    commit(clone, "one", one_dot_txt="1\n")
    commit(clone, "two", two_dot_txt="2\n")
    run_git(clone, "switch", "-q", "main")
    plan = planner(clone, branch="feature")
    create(plan)
    work(plan, "three.txt")
    found = span(plan)
    assert changed(plan, found) == ["three.txt"]
    assert found.base == plan.base_commit


def test_existing_branch_that_merges_the_main_line(tmp_path, clone, planner):
    run_git(clone, "switch", "-q", "-c", "feature")
    commit(clone, "one", one_dot_txt="1\n")
    run_git(clone, "switch", "-q", "main")
    plan = planner(clone, branch="feature")
    create(plan)
    advance(tmp_path)
    run_git(plan.work_dir, "fetch", "-q")
    run_git(plan.work_dir, "merge", "-q", "--no-edit", "origin/main")
    work(plan, "mine.txt")
    found = span(plan)
    assert changed(plan, found) == ["mine.txt"]
    assert run_git(clone, "cat-file", "-t", found.base) == "tree"
    refs.record_refs(str(clone), plan.task_id, found.base, found.head)
    assert removal.remove(plan).action == "removed"
    again = span(plan)
    assert (again.base, again.head) == (found.base, found.head)


def test_amend_and_branch_rename(clone, planner):
    plan = planner(clone)
    create(plan)
    work(plan, "mine.txt")
    run_git(plan.work_dir, "commit", "-q", "--amend", "-m", "better")
    run_git(plan.work_dir, "branch", "-m", "renamed")
    assert changed(plan, span(plan)) == ["mine.txt"]


def test_work_stays_visible_after_merge_and_removal(clone, planner):
    plan = planner(clone)
    create(plan)
    work(plan, "mine.txt")
    found = span(plan)
    refs.record_refs(str(clone), plan.task_id, found.base, found.head)
    run_git(clone, "merge", "-q", "--no-ff", "--no-edit", plan.branch)
    assert changed(plan, span(plan)) == ["mine.txt"]
    assert removal.remove(plan).action == "removed"
    run_git(clone, "branch", "-q", "-D", plan.branch)
    run_git(clone, "gc", "-q", "--prune=now")
    assert changed(plan, span(plan)) == ["mine.txt"]


@pytest.mark.parametrize("trick", ["push", "move-local-main", "backup-branch"])
def test_work_can_not_be_hidden_by_moving_the_base(clone, planner, trick):
    run_git(clone, "switch", "-q", "--detach")
    plan = planner(clone, base="main")
    create(plan)
    work(plan, "hidden.txt")
    if trick == "push":
        run_git(plan.work_dir, "push", "-q", "origin", "HEAD:main")
    elif trick == "move-local-main":
        run_git(plan.work_dir, "branch", "-q", "-f", "main", "HEAD")
    else:
        run_git(plan.work_dir, "branch", "backup")
    work(plan, "seen.txt")
    assert changed(plan, span(plan)) == ["hidden.txt", "seen.txt"]


def test_second_turn_after_the_first_was_merged(clone, planner):
    plan = planner(clone)
    create(plan)
    work(plan, "first.txt")
    found = span(plan)
    refs.record_refs(str(clone), plan.task_id, found.base, found.head)
    run_git(clone, "merge", "-q", plan.branch)
    work(plan, "second.txt")
    assert changed(plan, span(plan)) == ["first.txt", "second.txt"]


def test_in_place_work(clone, planner):
    commit(clone, "users own", users_dot_txt="u\n")
    plan = planner(clone, in_place=True)
    create(plan)
    write(clone, "mine.txt", "m")
    commit(clone, "mine")
    assert changed(plan, span(plan)) == ["mine.txt"]


def test_two_upstreams_merged(tmp_path, clone, planner):
    plan = planner(clone)
    create(plan)
    advance(tmp_path)
    commit(clone, "local", local_dot_txt="l\n")
    run_git(plan.work_dir, "fetch", "-q")
    run_git(plan.work_dir, "merge", "-q", "--no-edit", "origin/main")
    run_git(plan.work_dir, "merge", "-q", "--no-edit", "main")
    work(plan, "mine.txt")
    found = span(plan)
    assert changed(plan, found) == ["mine.txt"]
    assert "2 commits" in found.moved


def test_history_cut_below_the_base_is_told(clone, planner):
    plan = planner(clone)
    create(plan)
    run_git(plan.work_dir, "reset", "-q", "--hard", "HEAD~1")
    work(plan, "mine.txt")
    found = span(plan)
    assert changed(plan, found) == ["mine.txt"]
    assert found.recorded_base == plan.base_commit


def test_base_in_words_is_no_ref(clone, planner):
    run_git(clone, "switch", "-q", "--detach")
    plan = planner(clone)
    assert plan.base_name.startswith("detached HEAD")
    create(plan)
    work(plan, "mine.txt")
    assert changed(plan, span(plan)) == ["mine.txt"]


def test_everything_gone_is_said(tmp_path, planner):
    repo = plain(tmp_path)
    plan = planner(repo)
    with pytest.raises(NotFound, match="both gone"):
        span(plan)
    with pytest.raises(NotFound):
        raw_range(str(repo), "--output=x", "main")


def test_range_of_a_plan_outlives_the_in_place_tree(clone, planner):
    plan = planner(clone, in_place=True)
    create(plan)
    write(clone, "mine.txt", "m")
    head = commit(clone, "mine")
    kept = keep_range(plan)
    assert (kept.base, kept.head) == (plan.base_commit, head)
    assert removal.restore(plan).action == "restored"
    commit(clone, "users own later", users_dot_txt="u\n")
    again = range_of(plan)
    assert (again.base, again.head) == (kept.base, kept.head)


def test_record_refs_wants_full_ids(clone, planner):
    plan = planner(clone)
    create(plan)
    with pytest.raises(UsageError):
        refs.record_refs(str(clone), plan.task_id, "HEAD", plan.base_commit)
    with pytest.raises(UsageError):
        refs.record_refs(str(clone), "../x", plan.base_commit, plan.base_commit)
    refs.record_refs(str(clone), plan.task_id, plan.base_commit, plan.base_commit)
    refs.forget_refs(str(clone), plan.task_id)
    refs.forget_refs(str(clone), plan.task_id)
    assert "refs/handoff" not in run_git(clone, "for-each-ref")


def test_no_merge_driver_of_the_repository_runs(tmp_path, clone, planner):
    run_git(clone, "switch", "-q", "-c", "feature")
    commit(clone, "one", a_dot_txt="a\nb\nfeature\n", _dot_gitattributes="* merge=evil\n")
    run_git(clone, "switch", "-q", "main")
    plan = planner(clone, branch="feature")
    create(plan)
    advance(tmp_path, "a.txt")
    run_git(plan.work_dir, "fetch", "-q")
    run_git(plan.work_dir, "merge", "-q", "-X", "ours", "--no-edit", "origin/main")
    run_git(clone, "config", "merge.evil.driver", f"touch '{tmp_path}/ran.log'")
    found = span(plan)
    assert "can't be told apart" in found.moved
    assert not (tmp_path / "ran.log").exists()


@pytest.mark.parametrize(("how", "own"), [("rebase", 1), ("merge", 2)])
def test_a_turn_made_only_what_it_made(tmp_path, clone, planner, how, own):
    plan = planner(clone)
    create(plan)
    start = head_of(plan.work_dir)
    work(plan, "mine.txt")
    advance(tmp_path, "one.txt")
    advance(tmp_path, "two.txt")
    run_git(plan.work_dir, "fetch", "-q")
    run_git(plan.work_dir, how, "-q", "origin/main")
    head = head_of(plan.work_dir)
    repo = plan.project.common_dir
    claim = {"commit": head, "branch": plan.branch}
    found = verify_claim(plan.work_dir, repo, plan.branch, start, claim)
    found = leave_out(found, repo, start, span(plan).shared)
    assert (found.code, found.commits, len(found.new_commits)) == ("verified", own, own)
    assert "2 came in from elsewhere" in found.why
