"""Which changes are the task's own. Standard library only.

A task starts from a commit, but it may be rebased onto a base that moved, or merge it.
What the base's own branch brought in meanwhile is not the task's work: it is there already
for whoever takes the task's branch. So the comparison starts from all that the branch
shares with its *upstreams* (the base's branch here and at the remotes, and the remotes'
main branch), together with the commit it started from.

An upstream that holds commits made in the task's worktree is left out: the task was merged
or pushed there, or somebody moved the branch, and its work must not vanish from review.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from handoff.errors import NotFound
from handoff.workspace import git, refs
from handoff.workspace.base import commit_of, has_commit
from handoff.workspace.contract import Range, WorkspacePlan
from handoff.workspace.state import (
    belongs,
    branch_of,
    common_dir_of,
    git_dir_of,
    head_of,
    printable,
)
from handoff.workspace.worktree import READY

#: bytes of a worktree's log that are read, from its end
LOG_LIMIT = 4 * 1024 * 1024
#: upstreams that are looked at
UPSTREAM_LIMIT = 20

#: what git writes into the log when a commit is made rather than moved to
_MADE = re.compile(
    r"^(?:commit\b|cherry-pick\b|revert\b|am\b|merge [^:]*: Merge made|pull\b[^:]*: Merge made"
    r"|(?:rebase|pull)\b[^:]*\((?:pick|reword|edit|squash|fixup|continue|merge|amend)\))"
)


def own_range(
    repo: str,
    task_id: str,
    *,
    recorded_base: str,
    base_name: str,
    branch: str,
    work_dir: str = "",
    head: str = "",
) -> Range:
    """What the task itself did, whatever was rebased or merged meanwhile.

    ``repo``: any folder of the repository. ``recorded_base``: the commit it started from.
    ``base_name``: the branch it started from (another text if it was none). ``work_dir``:
    its worktree. If that is gone, or was not ours and is on another branch by now, the
    range that :func:`handoff.workspace.refs.record_refs` kept counts, or else the branch.
    ``head``: the tip to look at, "" to find it.

    Raises:
        NotFound: neither worktree, nor refs, nor branch are there.
    """
    alive = bool(work_dir) and _is_the_tasks(work_dir, repo, branch)
    if not head and not alive:
        kept = refs.read(repo, task_id, "base"), refs.read(repo, task_id, "head")
        if kept[0] and kept[1]:
            return Range(kept[0], kept[1], recorded_base)
    tip = head or (head_of(work_dir) if alive else "") or commit_of(f"refs/heads/{branch}", repo)
    tip = tip or refs.read(repo, task_id, "head")
    if not tip:
        raise NotFound(
            f"the branch '{branch}' and the worktree of the task are both gone",
            remedy="git reflog",
            branch=branch,
        )
    made = _made_here(work_dir, branch) if alive else None
    own = {c for c in made or () if not _is_ancestor(c, recorded_base, repo)}
    kept_head = refs.read(repo, task_id, "head")
    if kept_head and not _is_ancestor(kept_head, recorded_base, repo):
        own.add(kept_head)
    shared = _shared(repo, tip, _upstreams(repo, branch, base_name), own, logged=made is not None)
    return _range(repo, recorded_base, tip, shared)


def _is_the_tasks(work_dir: str, repo: str, branch: str) -> bool:
    """Whether what is checked out there is the task's: always in a worktree that we made,
    whatever the executor called its branch; elsewhere only on the task's branch."""
    if not belongs(work_dir, repo):
        return False
    made = os.path.exists(os.path.join(git_dir_of(work_dir), READY))
    return made or branch_of(work_dir) == branch


def range_of(plan: WorkspacePlan, head: str = "") -> Range:
    """:func:`own_range` of the task that a plan was made for."""
    return own_range(
        plan.project.common_dir,
        plan.task_id,
        recorded_base=plan.base_commit,
        base_name=plan.base_name,
        branch=plan.branch,
        work_dir=plan.work_dir,
        head=head,
    )


def keep_range(plan: WorkspacePlan) -> Range:
    """:func:`range_of`, kept by the task's refs: to be called at the end of each turn and
    before the workspace goes."""
    found = range_of(plan)
    refs.record_refs(plan.project.common_dir, plan.task_id, found.base, found.head)
    return found


def raw_range(repo: str, base: str, head: str) -> Range:
    """The plain comparison of two commits, by full ids or any names.

    Raises:
        NotFound: one of them does not exist.
    """
    found = []
    for name in (base, head):
        commit = commit_of(name, repo) if not name.startswith("-") else ""
        if not commit:
            raise NotFound(
                f"there is no commit '{printable(name)}'", remedy="git log --oneline --all"
            )
        found.append(commit)
    return Range(found[0], found[1], found[0])


def _range(repo: str, recorded: str, tip: str, shared: list[tuple[str, str]]) -> Range:
    """Put the recorded base and the shared (upstream, commit) pairs together."""
    kept_base = _is_ancestor(recorded, tip, repo)
    commits = [commit for _, commit in shared]
    points = _independent(repo, [*([recorded] if kept_base else []), *commits])
    if points == [recorded]:
        return Range(recorded, tip, recorded)
    if not points:
        common = _merge_bases(repo, recorded, tip)
        if not common:
            moved = "the branch no longer has anything in common with its base"
            return Range(recorded, tip, recorded, moved)
        lost = _count(repo, f"{common[0]}..{recorded}")
        moved = f"the branch no longer holds the last {_commits(lost)} of its base"
        return Range(common[0], tip, recorded, moved)
    if len(points) == 1:
        base = points[0]
    else:
        merged = _merged_tree(repo, points)
        if not merged:
            moved = "what was merged can't be told apart from the task's own work: all is shown"
            return Range(recorded if kept_base else points[0], tip, recorded, moved)
        base = merged
    names = ", ".join(name for name, commit in shared if commit in points)
    count = _count(repo, *points, f"^{recorded}")
    moved = "the base moved" if count else "the base is not the one at the start"
    if count:
        moved += f": {_commits(count)} that came in from {names} since the start, left out"
    rewritten = 0 if kept_base else _count(repo, recorded, *(f"^{p}" for p in points))
    if rewritten:
        moved += f"; the branch no longer holds {_commits(rewritten)} of its start as they were"
    return Range(base, tip, recorded, moved, tuple(p for p in points if p != recorded))


def _commits(count: int) -> str:
    return "1 commit" if count == 1 else f"{count} commits"


# -- upstreams ----------------------------------------------------------------------------


def _shared(
    repo: str, tip: str, upstreams: list[str], own: set[str], *, logged: bool
) -> list[tuple[str, str]]:
    """(upstream, commit): the best common commits of the tip with each upstream that may
    be trusted. ``logged``: a log told which commits were made here."""
    found: list[tuple[str, str]] = []
    for upstream in upstreams:
        commit = commit_of(upstream, repo)
        if not commit or any(_is_ancestor(c, commit, repo) for c in own):
            continue
        common = _merge_bases(repo, commit, tip)
        if not logged and common == [tip]:
            # It holds the whole branch, and nothing tells whether it got it from there.
            continue
        name = re.sub(r"^refs/(heads|remotes)/", "", upstream)
        found += [(name, point) for point in common]
    return found


def _upstreams(repo: str, branch: str, base_name: str) -> list[str]:
    """Full names of the refs whose work is not the task's."""
    wanted: list[str] = []
    mains = _refs(repo, "refs/remotes/*/HEAD", "%(symref)")
    remotes = _refs(repo, "refs/remotes/", "%(refname)")
    for name in dict.fromkeys([base_name, *_default_names(mains)]):
        wanted += [*_refs(repo, f"refs/heads/{name}", "%(upstream)"), f"refs/remotes/{name}"]
        wanted += [ref for ref in remotes if ref.split("/", 3)[3] == name]
        if name != branch:
            wanted.append(f"refs/heads/{name}")
    # The remote's copy of a branch that the task made is the task's own.
    own = {ref for ref in remotes if ref.split("/", 3)[3] == branch != base_name}
    kept = [ref for ref in dict.fromkeys([*wanted, *mains]) if ref and ref not in own]
    return kept[:UPSTREAM_LIMIT]


def _default_names(remote_heads: Iterable[str]) -> list[str]:
    return [ref.split("/", 3)[3] for ref in remote_heads if ref.count("/") >= 3]


def _refs(repo: str, pattern: str, form: str) -> list[str]:
    if not _is_pattern_safe(pattern):
        return []
    out = git.run(["for-each-ref", f"--format={form}", pattern], repo).text
    return [line for line in out.split("\n") if line]


def _is_pattern_safe(pattern: str) -> bool:
    """Names for a person ("detached HEAD at …") are no refs."""
    name = pattern.removeprefix("refs/heads/")
    return not (pattern.startswith("refs/heads/") and re.search(r"[\s*?\[\\~^:]", name))


# -- commits made here --------------------------------------------------------------------


def _made_here(work_dir: str, branch: str) -> set[str] | None:
    """Commits that the worktree's own log shows being made, not moved to; None if it has
    no log. In a tree that somebody else owns too, only since the task's branch was first
    checked out."""
    path = os.path.join(git_dir_of(work_dir), "logs", "HEAD")
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - LOG_LIMIT))
            lines = file.read(LOG_LIMIT).decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return None
    made: set[str] = set()
    started = False
    for line in lines:
        facts, _, message = line.partition("\t")
        if message.endswith(f" to {branch}") and message.startswith("checkout:") and not started:
            made.clear()
            started = True
        fields = facts.split(" ")
        if len(fields) > 1 and _MADE.match(message):
            made.add(fields[1])
    return made


# -- the commit graph ---------------------------------------------------------------------


def _is_ancestor(commit: str, of: str, repo: str) -> bool:
    if not has_commit(commit, repo):
        return False
    done = git.run(["merge-base", "--is-ancestor", commit, of], repo, ok=(0, 1, 128))
    return done.code == 0


def _merge_bases(repo: str, one: str, other: str) -> list[str]:
    done = git.run(["merge-base", "--all", one, other], repo, ok=(0, 1))
    return [line for line in done.text.split("\n") if line]


def _independent(repo: str, commits: list[str]) -> list[str]:
    unique = list(dict.fromkeys(commits))
    if len(unique) < 2:
        return unique
    out = git.run(["merge-base", "--independent", *unique], repo).text
    return [line for line in out.split("\n") if line]


def _count(repo: str, *revisions: str) -> int:
    return int(git.run(["rev-list", "--count", *revisions, "--"], repo).text)


def _merged_tree(repo: str, points: list[str]) -> str:
    """The tree that merging the points would give, or "" if they conflict. Git keeps it
    as a loose object; no ref and no worktree changes."""
    store = common_dir_of(repo)
    commit = points[0]
    tree = ""
    for other in points[1:]:
        args = ["merge-tree", "--write-tree", "--no-messages", commit, other]
        merged = git.run(args, store, access=git.WRITE, ok=(0, 1), content=True, objects_only=True)
        if merged.code != 0:
            return ""
        tree = merged.text
        args = ["commit-tree", tree, "-p", commit, "-p", other, "-m", "shared"]
        commit = git.run(args, repo, access=git.WRITE).text
    return tree
