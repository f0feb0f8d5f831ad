from __future__ import annotations

import os

import pytest
from tests.unit.workspace.repos import plain, run_git

from handoff.workspace import removal
from handoff.workspace.state import head_of
from handoff.workspace.verify import verify_claim
from handoff.workspace.worktree import create, erase_folder


@pytest.fixture
def plan(tmp_path, planner):
    plan = planner(plain(tmp_path))
    create(plan)
    return plan


def check(plan, claim, start=None):
    return verify_claim(
        plan.work_dir, plan.project.root, plan.branch, start or plan.base_commit, claim
    )


def work(plan, message="work"):
    run_git(plan.work_dir, "commit", "-q", "--allow-empty", "-m", message)
    return head_of(plan.work_dir)


def test_verified(plan):
    head = work(plan)
    found = check(plan, {"commit": head, "branch": plan.branch})
    assert (found.code, found.commits, found.new_commits) == ("verified", 1, (head,))
    assert (found.head, found.branch) == (head, plan.branch)
    assert check(plan, {"commit": head}).code == "verified"
    assert check(plan, {"commit": head.upper(), "branch": f"refs/heads/{plan.branch}"}).code == (
        "verified"
    )


def test_fabricated_also_when_it_begins_like_the_real_one(plan):
    head = work(plan)
    for claim in ("f" * 40, head[:20] + "0" * 20, head[:6], "", "HEAD~0x", "main", "--help"):
        found = check(plan, {"commit": claim})
        assert found.code == ("unknown_commit" if claim else "no_commit_claimed"), claim


def test_abbreviation_is_resolved_and_shown(plan):
    head = work(plan)
    found = check(plan, {"commit": head[:7]})
    assert found.code == "verified"
    assert head in found.why


def test_branch_called_like_an_abbreviation_does_not_count(plan):
    head = work(plan)
    run_git(plan.work_dir, "branch", "abcdef1", head)
    assert check(plan, {"commit": "abcdef1"}).code == "unknown_commit"


def test_sibling_is_named(plan):
    work(plan)
    run_git(plan.work_dir, "switch", "-q", "-c", "sibling")
    other = work(plan, "elsewhere")
    run_git(plan.work_dir, "switch", "-q", plan.branch)
    found = check(plan, {"commit": other})
    assert (found.code, found.found_on) == ("not_on_branch", ("sibling",))
    assert "sibling" in found.why


def test_commit_on_no_branch(plan):
    lonely = work(plan)
    run_git(plan.work_dir, "reset", "-q", "--hard", "HEAD~1")
    found = check(plan, {"commit": lonely})
    assert (found.code, found.found_on) == ("not_on_branch", ())


@pytest.mark.parametrize("claim", [None, {}, {"commit": ""}, {"commit": "none"}, {"commit": 7}])
def test_nothing_claimed(plan, claim):
    head = work(plan)
    found = check(plan, claim)
    assert found.code == ("no_claim" if claim is None else "no_commit_claimed")
    assert (found.head, found.commits) == (head, 1)


def test_wrong_branch_claimed(plan):
    head = work(plan)
    found = check(plan, {"commit": head, "branch": "main"})
    assert found.code == "wrong_branch"
    assert "main" in found.why


def test_renamed_branch_and_switched_tree(plan):
    head = work(plan)
    run_git(plan.work_dir, "switch", "-q", "-c", "other")
    assert check(plan, {"commit": head}).code == "wrong_branch"
    run_git(plan.work_dir, "switch", "-q", "--detach")
    assert "detached" in check(plan, {"commit": head}).why
    run_git(plan.work_dir, "switch", "-q", plan.branch)
    run_git(plan.work_dir, "branch", "-m", "renamed")
    found = check(plan, {"commit": head})
    assert (found.code, "renamed" in found.found_on) == ("not_on_branch", True)


def test_old_commit_is_not_this_turns_work(plan):
    first = work(plan)
    found = check(plan, {"commit": first}, start=first)
    assert (found.code, found.commits) == ("not_new", 0)
    assert check(plan, {"commit": plan.base_commit}).code == "not_new"


def test_earlier_commit_of_the_same_turn(plan):
    first = work(plan)
    work(plan)
    found = check(plan, {"commit": first})
    assert (found.code, found.commits) == ("verified", 2)
    assert "1 more" in found.why


def test_tag_and_tree_ids_are_no_commits(plan):
    tree = run_git(plan.work_dir, "rev-parse", "HEAD^{tree}")
    assert check(plan, {"commit": tree}).code == "unknown_commit"
    run_git(plan.work_dir, "tag", "-a", "-m", "t", "t1")
    tag = run_git(plan.work_dir, "rev-parse", "t1")
    assert check(plan, {"commit": tag}).code == "unknown_commit"


def test_dirt_is_in_the_finding(plan):
    head = work(plan)
    with open(os.path.join(plan.work_dir, "left"), "w"):
        pass
    assert check(plan, {"commit": head}).dirt.entries == (("??", "left"),)


def test_workspace_gone_still_tells_about_the_branch(plan):
    head = work(plan)
    erase_folder(plan.work_dir)
    found = check(plan, {"commit": head})
    assert (found.code, found.head, found.commits) == ("workspace_gone", head, 1)


def test_no_lazy_fetch_runs_a_program_of_the_repository(plan, tmp_path):
    root = plan.project.root
    for key, value in {
        "extensions.partialClone": "evil",
        "remote.evil.url": str(tmp_path / "nowhere"),
        "remote.evil.promisor": "true",
        "remote.evil.uploadpack": f"touch '{tmp_path}/ran.log' #",
    }.items():
        run_git(root, "config", key, value)
    run_git(root, "config", "core.repositoryFormatVersion", "1")
    assert check(plan, {"commit": "f" * 40}).code == "unknown_commit"
    assert not (tmp_path / "ran.log").exists()


def test_another_repository_in_its_place_verifies_nothing(plan):
    os.unlink(os.path.join(plan.work_dir, ".git"))
    run_git(plan.work_dir, "init", "-q", "-b", plan.branch)
    head = work(plan)
    found = check(plan, {"commit": head, "branch": plan.branch})
    assert found.code == "workspace_gone"
    assert "another repository" in found.why
    assert found.head == plan.base_commit
    kept = removal.remove(plan)
    assert (kept.action, kept.reason) == ("kept", "not_managed")
