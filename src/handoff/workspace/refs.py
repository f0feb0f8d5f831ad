"""The refs that keep a task's commits: ``refs/handoff/<task>/start``, ``base``, ``head``.
Standard library only.

``start`` is the commit the task began from and the mark that its branch is ours; it is
made in one transaction with the branch. ``base`` and ``head`` delimit the task's own work
as last verified, so that it can be shown after the branch has gone.
"""

from __future__ import annotations

from handoff.errors import GitError, UsageError, WorkspaceRefused
from handoff.workspace import git
from handoff.workspace.base import FULL_ID, commit_of

_NAMES = ("start", "base", "head")


def ref(task_id: str, name: str) -> str:
    """The full name of one of a task's refs."""
    if not task_id or not all(c.isascii() and (c.isalnum() or c in "-_") for c in task_id):
        raise UsageError(f"{task_id!r} is no id of a task")
    return f"refs/handoff/{task_id}/{name}"


def read(repo: str, task_id: str, name: str) -> str:
    """The object that a task's ref names (a commit, or a tree for a base that had to be
    put together), or ""."""
    full = ref(task_id, name)
    result = git.run(["rev-parse", "--verify", "--quiet", full], repo, ok=(0, 1, 128))
    return result.text if result.code == 0 else ""


def record_refs(repo: str, task_id: str, base: str, head: str) -> None:
    """Keep ``base`` and ``head`` (full ids) from being collected, whatever happens to the
    branch. Idempotent; all or nothing.

    Raises:
        UsageError: an id is not full.
        GitError: an object is not there, or the repository can't be written.
    """
    for value in (base, head):
        if not FULL_ID.fullmatch(value):
            raise UsageError(f"'{value[:80]}' is not a full object id")
    lines = [f"update {ref(task_id, 'base')} {base}", f"update {ref(task_id, 'head')} {head}"]
    _transact(repo, lines)


def record_head(repo: str, task_id: str, head: str) -> None:
    """Keep the tip of a tree that is about to go."""
    if head:
        _transact(repo, [f"update {ref(task_id, 'head')} {head}"])


def forget_refs(repo: str, task_id: str) -> None:
    """Let go of all that a task kept. Idempotent."""
    present = [name for name in _NAMES if read(repo, task_id, name)]
    if present:
        _transact(repo, [f"delete {ref(task_id, name)}" for name in present])


def make_branch(repo: str, task_id: str, branch: str, base: str, *, makes_branch: bool) -> None:
    """Make the start mark and, in the same transaction, the branch. Safe to repeat.

    Raises:
        WorkspaceRefused: somebody else made or moved the branch meanwhile.
    """
    full = f"refs/heads/{branch}"
    start = ref(task_id, "start")
    values = _values(repo, start, full)
    marked, tip = values.get(start, ""), values.get(full, "")
    if marked and marked != base:
        raise WorkspaceRefused(
            f"the task already started from {marked[:10]}, not from {base[:10]}",
            remedy="dispatch it as a new task",
        )
    if not makes_branch and tip != base:
        raise WorkspaceRefused(
            f"the branch '{branch}' has moved from {base[:10]} to {tip[:10] or 'nothing'}",
            remedy="dispatch again",
        )
    if makes_branch and tip and (tip != base or not marked):
        raise WorkspaceRefused(
            f"somebody made the branch '{branch}' meanwhile",
            remedy="dispatch again, with another --new-branch",
            conflict=branch,
        )
    lines = [] if marked else [f"create {start} {base}"]
    if makes_branch and not tip:
        lines.append(f"create {full} {base}")
    if lines:
        _transact(repo, lines)


def unmake_branch(repo: str, task_id: str, branch: str, base: str, *, makes_branch: bool) -> str:
    """Take back what :func:`make_branch` did: the branch goes only if it is ours and
    still where we put it. Returns why it was kept, or "". Safe to repeat."""
    if read(repo, task_id, "start") != base:
        return ""
    full = f"refs/heads/{branch}"
    tip = commit_of(full, repo) if makes_branch else ""
    if tip and tip != base:
        return f"the branch '{branch}' has commits of its own"
    lines = [f"delete {full} {base}"] if tip else []
    for name in _NAMES:
        value = read(repo, task_id, name)
        if value:
            lines.append(f"delete {ref(task_id, name)} {value}")
    _transact(repo, lines)
    return ""


def _values(repo: str, *names: str) -> dict[str, str]:
    """The object ids of those refs that exist, by full name."""
    args = ["for-each-ref", "--format=%(objectname) %(refname)", *names]
    lines = git.run(args, repo).text.split("\n")
    pairs = [line.split(" ", 1) for line in lines if line]
    return {name: value for value, name in pairs}


def _transact(repo: str, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    try:
        git.run(["update-ref", "--stdin"], repo, access=git.WRITE, stdin=text.encode("utf-8"))
    except GitError as error:
        error.details.setdefault("refs", lines)
        raise
