"""A claim beside what git shows. Standard library only.

What an executor says about its commit is text. Here it becomes a finding: the commit
exists or not, is on the task's branch or not, is new or not. A full id is compared whole;
an abbreviation of at least seven digits counts only if git knows exactly one commit by it,
and the finding then shows which.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from handoff.errors import GitError, TimedOut
from handoff.workspace import git
from handoff.workspace.base import FULL_ID, commit_of, has_commit
from handoff.workspace.contract import Finding, TreeState
from handoff.workspace.state import belongs, printable, tree_state

#: commits that a finding names; all are counted
COMMITS_NAMED = 50
#: branches that a finding names
BRANCHES_NAMED = 10
#: seconds for the search of branches that hold a commit
SEARCH_LIMIT = 15.0

_ABBREVIATION = re.compile(r"[0-9a-f]{7,63}")


def verify_claim(
    work_dir: str,
    repo: str,
    expected_branch: str,
    start_head: str,
    claim: Mapping[str, object] | None,
) -> Finding:
    """What git shows at the end of a turn.

    ``repo``: any folder of the repository, for when the worktree is gone. ``start_head``:
    the tip when the turn began. ``claim``: the trailer's ``commit`` and ``branch``, each
    may be missing; None: the executor claimed nothing.

    Raises:
        GitError: the repository can't be read at all.
    """
    gone = f"{work_dir} is not there any more"
    state = tree_state(work_dir) if os.path.isdir(work_dir) else TreeState(exists=False)
    if state.exists and not belongs(work_dir, repo):
        gone = f"{work_dir} belongs to another repository now"
        state = TreeState(exists=False)
    if not state.exists:
        head = commit_of(f"refs/heads/{expected_branch}", repo)
        state = TreeState(exists=False, head=head, branch=expected_branch if head else "")
    commits, new = _since(start_head, state.head, repo)
    code, why, found_on = _judge(
        repo, state, expected_branch, start_head=start_head, claim=claim, commits=commits
    )
    if not state.exists:
        code, why = "workspace_gone", f"{gone}; {why}"
    return Finding(
        code=code,
        why=why,
        head=state.head,
        branch=state.branch,
        commits=commits,
        new_commits=tuple(new),
        found_on=tuple(found_on),
        dirt=state.dirt,
    )


def leave_out(finding: Finding, repo: str, start_head: str, others: Sequence[str]) -> Finding:
    """The finding without the commits that the turn only took over from elsewhere, by a
    rebase or a merge. ``others``: :attr:`handoff.workspace.contract.Range.shared`.

    Raises:
        GitError: the repository can't be read.
    """
    if not others or not finding.commits:
        return finding
    commits, new = _since(start_head, finding.head, repo, others)
    taken = finding.commits - commits
    if not taken:
        return finding
    told = f"{_made(commits)}, {taken} came in from elsewhere"
    why = finding.why.replace(_made(finding.commits), told)
    return replace(finding, commits=commits, new_commits=tuple(new), why=why)


def _judge(
    here: str,
    state: TreeState,
    expected: str,
    *,
    start_head: str,
    claim: Mapping[str, object] | None,
    commits: int,
) -> tuple[str, str, list[str]]:
    if claim is None:
        return "no_claim", f"the executor claimed nothing; {_made(commits)}", []
    said = _text(claim.get("commit"))
    if not said or said.lower() in {"none", "null"}:
        return "no_commit_claimed", f"no commit was claimed; {_made(commits)}", []
    commit = _resolve(said, here)
    if not commit:
        return "unknown_commit", f"there is no commit {said[:64]} in the repository", []
    shown = said if said == commit else f"{said} (that is {commit})"
    if not _is_ancestor(commit, f"refs/heads/{expected}", here):
        found = _branches_with(commit, here)
        on = f"it is on {', '.join(found)}" if found else "no branch has it"
        return "not_on_branch", f"{shown} is not on {expected}: {on}", found
    branch = _text(claim.get("branch"))
    if branch and branch.removeprefix("refs/heads/") != expected:
        return "wrong_branch", f"the claim names the branch {branch}, the task's is {expected}", []
    if state.exists and state.branch != expected:
        now = f"on {state.branch}" if state.branch else "detached"
        return "wrong_branch", f"the worktree is {now}, the task's branch is {expected}", []
    if start_head and _is_ancestor(commit, start_head, here):
        return "not_new", f"{shown} was there before the turn began; {_made(commits)}", []
    later = _count(f"{commit}..refs/heads/{expected}", here=here)
    after = f", {later} more after it" if later else ""
    return "verified", f"{shown} is on {expected}{after}; {_made(commits)}", []


def _text(value: object) -> str:
    return printable(value.strip()) if isinstance(value, str) else ""


def _made(commits: int) -> str:
    if commits == 0:
        return "the turn made no commit"
    return "the turn made 1 commit" if commits == 1 else f"the turn made {commits} commits"


def _resolve(said: str, here: str) -> str:
    """The full id of the claimed commit, or ""."""
    text = said.lower()
    if FULL_ID.fullmatch(text):
        return text if has_commit(text, here) else ""
    if not _ABBREVIATION.fullmatch(text):
        return ""
    found = commit_of(text, here)
    # A branch may be called like an abbreviation; that is not what was claimed.
    return found if found.startswith(text) else ""


def _is_ancestor(commit: str, of: str, here: str) -> bool:
    done = git.run(["merge-base", "--is-ancestor", commit, of], here, ok=(0, 1, 128))
    return done.code == 0


def _count(*revisions: str, here: str) -> int:
    return int(git.run(["rev-list", "--count", *revisions, "--"], here).text)


def _since(start: str, head: str, here: str, others: Sequence[str] = ()) -> tuple[int, list[str]]:
    """How many commits are new since the turn began, and the newest of them. ``others``:
    commits that with all before them are somebody else's."""
    if not head or head == start:
        return 0, []
    if start and not has_commit(start, here):
        raise GitError(f"the commit {start} that the turn began from is not in the repository")
    revisions = [f"{start}..{head}" if start else head, *(f"^{commit}" for commit in others)]
    listed = git.run(["rev-list", f"--max-count={COMMITS_NAMED}", *revisions, "--"], here).text
    return _count(*revisions, here=here), [line for line in listed.split("\n") if line]


def _branches_with(commit: str, here: str) -> list[str]:
    """Short names of branches and tags that hold a commit."""
    args = ["for-each-ref", f"--contains={commit}", f"--count={BRANCHES_NAMED}"]
    args += ["--format=%(refname)", "refs/heads/", "refs/remotes/", "refs/tags/"]
    try:
        listed = git.run(args, here, limit=SEARCH_LIMIT).text
    except TimedOut:
        return ["(too many branches to search)"]
    names = [line for line in listed.split("\n") if line]
    return [re.sub(r"^refs/(heads|remotes|tags)/", "", name) for name in names]
