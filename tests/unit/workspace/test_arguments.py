"""Whatever text comes from outside: a typed error or an answer, and nothing is changed."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.workspace.conftest import new_task_id
from tests.unit.workspace.repos import names, run_git

from handoff.errors import HandoffError
from handoff.workspace.contract import WorkspaceRequest
from handoff.workspace.identity import identify
from handoff.workspace.own import raw_range
from handoff.workspace.plan import plan_workspace
from handoff.workspace.reading import read_file
from handoff.workspace.review import diff_stream
from handoff.workspace.setup import plan_setup
from handoff.workspace.verify import verify_claim

TEXT = st.one_of(
    st.text(max_size=40),
    st.text(alphabet=st.characters(codec=None, categories=["Cs", "Cc", "L", "P"]), max_size=12),
    st.sampled_from(
        ["-", "--", "--output=x", "--help", "-x", "@{-1}", "HEAD", ":/x", "^x", "work"]
    ),
    st.from_regex(r"--?[a-z-]{1,20}=?[a-z/]{0,10}", fullmatch=True),
)


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    return names(tmp_path_factory.mktemp("arguments"))


def picture(repo):
    tree = sorted(os.listdir(repo)) + sorted(os.listdir(repo.parent))
    return run_git(repo, "for-each-ref"), run_git(repo, "worktree", "list"), tree


@settings(max_examples=30)
@given(which=st.sampled_from(["base", "branch", "new_branch", "base_commit"]), text=TEXT)
@example(which="base", text="\ud800")
@example(which="new_branch", text="a\0b")
def test_names_of_branches_and_bases(repo, which, text):
    before = picture(repo)
    request = WorkspaceRequest(
        task_id=new_task_id(),
        start_dir=str(repo),
        worktrees_dir=str(repo.parent / "trees"),
        **{which: text},
    )
    try:
        plan = plan_workspace(request, lambda _path: None)
    except HandoffError as error:
        assert str(error)
    else:
        assert len(plan.base_commit) == 40
        assert not plan.branch.startswith("-")
    assert picture(repo) == before


@settings(max_examples=50)
@given(text=TEXT)
@example(text="\ud800")
@example(text="a\0b")
def test_paths_and_revisions(repo, text):
    before = picture(repo)
    span = raw_range(str(repo), "main", "work")
    for call in (
        lambda: read_file(str(repo), text),
        lambda: read_file(str(repo), text, commit="work"),
        lambda: read_file(str(repo), "x", commit=text),
        lambda: b"".join(diff_stream(str(repo), span, [text])),
        lambda: raw_range(str(repo), text, "work"),
        lambda: plan_setup(str(repo), str(repo.parent), [text]),
        lambda: identify("/" + text),
    ):
        try:
            call()
        except HandoffError as error:
            str(error).encode("utf-8")
    assert picture(repo) == before


@settings(max_examples=30)
@given(commit=TEXT, branch=TEXT)
def test_claims(repo, commit, branch):
    head = run_git(repo, "rev-parse", "work")
    claim = {"commit": commit, "branch": branch}
    found = verify_claim(str(repo), str(repo), "work", head, claim)
    assert found.code in {"unknown_commit", "no_commit_claimed"}
