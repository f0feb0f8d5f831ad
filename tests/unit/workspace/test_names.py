from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.workspace.repos import branch_prefix, plain, run_git

from handoff.errors import UsageError, WorkspaceRefused
from handoff.workspace import names

GOOD = ["x", "ä/ö", "emoji-🚀", "a" * 250, "a.b", "feature/JIRA-1_x", "a@b", "a+b=c,d", "head"]
BAD = [
    "-x",
    "a..b",
    "@{u}",
    "@{-1}",
    "HEAD",
    "@",
    "refs/heads/y",
    "refs/y",
    "a b",
    "a~1",
    "a^",
    "a:b",
    "a?b",
    "a*",
    "a[b",
    "a\\b",
    "a//b",
    "/a",
    "a/",
    "a.",
    "a.lock",
    "a.lock/b",
    ".a",
    "a/.b",
    "a\nb",
    "a\x7f",
    "a@{b",
    "",
    "a" * 251,
    "ä" * 126,
    "\udcff\udcfe" + "x" * 249,
]


@pytest.mark.parametrize("name", GOOD)
def test_good_names_can_be_made(tmp_path, name):
    repo = plain(tmp_path)
    assert names.why_invalid(name, str(repo)) == ""
    names.check_new(name, str(repo), names.branches(str(repo)))
    run_git(repo, "branch", name)
    assert name in names.branches(str(repo))


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_refused_and_the_offer_works(tmp_path, name):
    repo = plain(tmp_path)
    with pytest.raises(UsageError) as caught:
        names.check_new(name, str(repo), names.branches(str(repo)))
    offer = str(caught.value.details["free_name"])
    assert offer in caught.value.remedy or "'" in caught.value.remedy
    run_git(repo, "branch", offer)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("release", "release/1.0"),
        ("topic/a", "topic"),
        ("topic/a/b", "topic"),
        ("main", "main"),
        ("main/x", "main"),
    ],
)
def test_conflicts_are_named_and_the_offer_works(tmp_path, name, other):
    repo = branch_prefix(tmp_path)
    with pytest.raises(WorkspaceRefused, match=f"'{other}'") as caught:
        names.check_new(name, str(repo), names.branches(str(repo)))
    run_git(repo, "branch", str(caught.value.details["free_name"]))


def test_dangling_symbolic_branch_is_not_ours_to_take(tmp_path):
    repo = plain(tmp_path)
    run_git(repo, "symbolic-ref", "refs/heads/alias", "refs/heads/nothing")
    with pytest.raises(WorkspaceRefused):
        names.check_new("alias", str(repo), names.branches(str(repo)))


def test_case_folding_file_system():
    assert names.conflict("Main", ["main"]) == ""
    assert names.conflict("Main", ["main"], fold=True) == "main"
    assert names.conflict("MAIN/x", ["main"], fold=True) == "main"


@pytest.mark.parametrize(
    ("title", "want"),
    [
        ("Fix the Thing!", "fix-the-thing"),
        ("Überlänge für Ä", "uberlange-fur-a"),
        ("日本語", ""),
        ("a" * 60, "a" * 40),
        (
            "one two three four five six seven eight nine ten",
            "one-two-three-four-five-six-seven-eight",
        ),
        ("-- x --", "x"),
    ],
)
def test_slug(title, want):
    assert names.slug(title) == want


def test_default_name_avoids_a_branch_called_handoff():
    task = "12345678-0000-4000-8000-000000000000"
    assert names.default_name(task, "A b", [], fold=False) == "handoff/a-b-12345678"
    assert names.default_name(task, "", ["handoff"], fold=False) == "handoff-12345678"
    taken = ["handoff", "handoff-12345678", "handoff-12345678-2"]
    assert names.default_name(task, "", taken, fold=False) == "handoff-12345678-3"


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    return plain(tmp_path_factory.mktemp("names"))


@given(st.text(max_size=300), st.lists(st.sampled_from(["a", "a/b", "x-2", "handoff-task"])))
def test_free_name_is_always_valid_and_free(repo, wanted, existing):
    name = names.free_name(wanted, existing)
    assert names.why_invalid(name, str(repo)) == ""
    assert names.conflict(name, existing) == ""
