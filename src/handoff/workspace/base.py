"""Which commit a task starts from. Standard library only.

One resolution serves the check and the start: what is found here is a full commit id, and
nothing after it looks at a name again, so git can't guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from handoff.errors import EmptyRepository, GitError, NotFound, UsageError
from handoff.workspace import git
from handoff.workspace.contract import TreeState, WorkspaceRequest
from handoff.workspace.explain import shell_quote
from handoff.workspace.identity import Place
from handoff.workspace.state import branch_of, head_of, is_name, operation_of, printable

FULL_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True)
class Base:
    """A starting point: the full commit id, the name it was found under (a branch, or
    words for a person), and lines for a person."""

    commit: str
    name: str
    notes: tuple[str, ...] = ()


def commit_of(name: str, repo: str) -> str:
    """The full id of the commit that a revision names, or ""."""
    args = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    result = git.run(args, repo, ok=(0, 1, 128))
    return result.text if result.code == 0 else ""


def has_commit(commit: str, repo: str) -> bool:
    """Whether a full commit id is in the repository."""
    return FULL_ID.fullmatch(commit) is not None and commit_of(commit, repo) == commit


def find_base(place: Place, request: WorkspaceRequest, state: TreeState) -> Base:
    """The base of a request that does not name an existing branch. ``state``: of the
    worktree that the coordinator stands in, if it stands in one.

    Raises:
        EmptyRepository: there is no commit yet.
        UsageError: the name is ambiguous or no name.
        NotFound: nothing has that name, here or on the remote.
        GitError: it is only on the remote, which can't be reached.
    """
    here = place.top or place.project.common_dir
    if request.base:
        return _named(request.base, here)
    head = state.head if state.exists else head_of(here)
    branch = state.branch if state.exists else branch_of(here)
    if request.base_commit:
        return _given_commit(request.base_commit, head, branch, place)
    if not head:
        raise EmptyRepository(
            f"the repository {place.project.root} has no commit to start from",
            remedy=f"git -C {shell_quote(here)} commit --allow-empty -m 'first commit'",
            folder=here,
        )
    return Base(head, branch or _name_of_head(head, place))


def _name_of_head(head: str, place: Place) -> str:
    operation = operation_of(place.git_dir)
    during = f", in the middle of a {operation}" if operation else ""
    return f"detached HEAD at {head[:10]}{during}"


def _given_commit(commit: str, head: str, branch: str, place: Place) -> Base:
    here = place.top or place.project.common_dir
    if not FULL_ID.fullmatch(commit):
        raise UsageError(
            f"'{commit[:80]}' is not a full commit id (40 hex digits)",
            remedy="git rev-parse HEAD",
        )
    if not has_commit(commit, here):
        _fetch(commit, here)
    if not has_commit(commit, here):
        raise NotFound(
            f"the commit {commit} is not in {place.project.root} nor at its remote",
            remedy="push it first, or start from another one with --base",
        )
    if commit == head:
        return Base(commit, branch or _name_of_head(head, place))
    return Base(commit, commit[:10])


def _named(name: str, here: str) -> Base:
    if (
        not is_name(name)
        or name.startswith("-")
        or not name.strip()
        or re.search(r"[\x00-\x1f\x7f]", name)
    ):
        raise UsageError(f"{name!r} is no name of a commit", remedy="git branch --all")
    if ".." in name:
        raise UsageError(f"'{name}' is a range; a base is one commit", remedy="git log --oneline")
    fitting = _refs_called(name, here)
    commits = {commit_of(ref, here) for ref in fitting}
    if len(commits) > 1:
        raise UsageError(
            f"'{name}' is ambiguous: {', '.join(fitting)}",
            remedy=f"--base {shell_quote(fitting[0])}",
            candidates=fitting,
        )
    commit = commit_of(fitting[0] if fitting else name, here)
    if commit:
        return Base(commit, name)
    return _from_remote(name, here)


def _refs_called(name: str, here: str) -> list[str]:
    """Branches, tags and remote branches that git could mean by a name."""
    if name in {"HEAD", "@"} or name.startswith("refs/"):
        return []
    wanted = [f"refs/heads/{name}", f"refs/tags/{name}", f"refs/remotes/{name}"]
    found = []
    for ref in wanted:
        if git.run(["show-ref", "--verify", "--quiet", ref], here, ok=(0, 1, 128)).code == 0:
            found.append(ref)
    return found


def _from_remote(name: str, here: str) -> Base:
    """A name that only remotes have: that one branch is fetched, no ref is changed."""
    remotes = [r for r in git.run(["remote"], here).text.split("\n") if r]
    tracked = [
        r
        for r in remotes
        if git.run(
            ["show-ref", "--verify", "--quiet", f"refs/remotes/{r}/{name}"], here, ok=(0, 1, 128)
        ).code
        == 0
    ]
    if len(tracked) > 1:
        raise UsageError(
            f"'{name}' is ambiguous: {', '.join(f'{r}/{name}' for r in tracked)}",
            remedy=f"--base {shell_quote(f'{tracked[0]}/{name}')}",
            candidates=[f"{r}/{name}" for r in tracked],
        )
    if tracked:
        asked = tracked[0]
    elif "origin" in remotes:
        asked = "origin"
    elif len(remotes) == 1:
        asked = remotes[0]
    else:
        raise _unknown(name, "here")
    try:
        commit = _fetch_branch(asked, name, here)
    except GitError as error:
        last = commit_of(f"refs/remotes/{asked}/{name}", here)
        if not last:
            raise
        note = f"{asked} could not be asked ({error}): the base is {asked}/{name} as last fetched"
        return Base(last, f"{asked}/{name}", (note,))
    if not commit:
        raise _unknown(name, f"here nor at {asked}")
    return Base(commit, f"{asked}/{name}", (f"the base {name} was fetched from {asked}",))


def _unknown(name: str, where: str) -> NotFound:
    shown = printable(name)
    return NotFound(f"nothing is called '{shown}' {where}", remedy="git branch --all", name=shown)


def _fetch_branch(remote: str, name: str, here: str) -> str:
    """The tip of a remote's branch, its objects fetched; "" if it has no such branch."""
    args = ["ls-remote", "--", remote, f"refs/heads/{name}"]
    listed = git.run(args, here, access=git.FETCH)
    tips = [line.split("\t") for line in listed.text.split("\n") if "\t" in line]
    exact = [tip for tip, ref in tips if ref == f"refs/heads/{name}"]
    if not exact:
        return ""
    if not has_commit(exact[0], here):
        _fetch(f"refs/heads/{name}", here, remote)
    return exact[0] if has_commit(exact[0], here) else ""


def _fetch(what: str, here: str, remote: str = "origin") -> None:
    """Fetch one commit or ref, and change no ref of ours by it."""
    configured = git.run(["remote"], here).text.split("\n")
    if remote not in configured:
        return
    args = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"]
    args += ["--no-recurse-submodules", "--refmap=", "--", remote, what]
    git.run(args, here, access=git.FETCH)
