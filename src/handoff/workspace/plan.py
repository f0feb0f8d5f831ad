r"""Where a task will work, decided before anything is changed. Standard library only.

=============  ==============================  =====================================
\               managed (the default)           ``worktree`` or ``in_place``
=============  ==============================  =====================================
``branch``     a worktree on that branch       that branch is checked out there
``new_branch`` a worktree on it, from the base it is made from the base there
neither        the same, with a name of ours   the same, with a name of ours
dirt           is told, and stays where it is  refused, unless ``allow_dirty``
busy           never                           refused if another task works there
=============  ==============================  =====================================
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from handoff.errors import (
    NotFound,
    UsageError,
    WorkspaceBusy,
    WorkspaceDirty,
    WorkspaceRefused,
)
from handoff.ids import short
from handoff.workspace import git, names, notes
from handoff.workspace.base import Base, commit_of, find_base
from handoff.workspace.contract import TreeState, WorkspacePlan, WorkspaceRequest
from handoff.workspace.explain import shell_quote
from handoff.workspace.identity import Place, list_trees, locate
from handoff.workspace.state import head_of, is_name, printable, tree_state

#: dirty files that a plan names; all are counted
DIRTY_NAMED = 20


def plan_workspace(request: WorkspaceRequest, busy: Callable[[str], str | None]) -> WorkspacePlan:
    """Work out what :func:`handoff.workspace.worktree.create` will do. Changes nothing but
    what a fetch of one missing commit adds to the object store.

    ``busy``: given the canonical path of a worktree, says which open task works there, or
    None.

    Raises:
        UsageError: the request contradicts itself, or a name is no name.
        WorkspaceRefused: the branch or the folder can't be had; the remedy offers another.
        WorkspaceDirty: uncommitted changes where the task would work.
        WorkspaceBusy: another task works there.
        NotFound: the branch or the base does not exist.
        EmptyRepository, NotARepository, DubiousOwnership, GitError: as they say.
    """
    _check_request(request)
    place = locate(request.start_dir)
    kind = "user" if request.worktree else "in_place" if request.in_place else "managed"
    site = _site(request, place, kind)
    if kind != "managed":
        holder = busy(site.top)
        if holder:
            raise WorkspaceBusy(
                f"{site.top} is in use by {holder}",
                remedy="leave out --worktree and --in-place to get a worktree of its own",
                path=site.top,
                holder=holder,
            )
    state = tree_state(site.top, DIRTY_NAMED) if site.top else TreeState(exists=False)
    here = state if site.top == place.top else TreeState(exists=False)
    branch, makes_branch, base = _branch_and_base(request, place, kind, site, here)
    if kind != "managed":
        _check_usable(state, site.top, request)
        _check_filters(state, site.top, base)
    return _assemble(_Choice(request, place, kind, site, branch, makes_branch, base, state))


def _check_request(request: WorkspaceRequest) -> None:
    if request.branch and request.new_branch:
        raise UsageError("--branch and --new-branch exclude each other", remedy="give one")
    if request.worktree and request.in_place:
        raise UsageError("--worktree and --in-place exclude each other", remedy="give one")
    if request.branch and request.base:
        raise UsageError(
            "--base is for a new branch; an existing one starts where it is",
            remedy="leave out --base, or use --new-branch",
        )
    for what, path in (("start_dir", request.start_dir), ("--worktree", request.worktree)):
        if path and not (is_name(path) and os.path.isabs(path)):
            raise UsageError(f"{what} has to be an absolute path, not {path!r}")


# -- the folder ---------------------------------------------------------------------------


def _site(request: WorkspaceRequest, place: Place, kind: str) -> Place:
    """The place whose tree matters: where a managed task's base comes from, or where a
    task will work."""
    if kind == "managed":
        return place
    if kind == "in_place":
        if not place.top:
            raise WorkspaceRefused(
                f"{request.start_dir} is not in a worktree, so there is nothing to work in",
                remedy="leave out --in-place to get a worktree of its own",
            )
        return place
    site = locate(request.worktree)
    if site.project.common_dir != place.project.common_dir:
        raise WorkspaceRefused(
            f"{request.worktree} belongs to another repository ({site.project.root})",
            remedy=f"git -C {shell_quote(place.project.root)} worktree list",
        )
    if not site.top or site.top != os.path.realpath(request.worktree):
        raise WorkspaceRefused(
            f"{request.worktree} is not the top of a worktree",
            remedy=f"--worktree {shell_quote(site.top)}"
            if site.top
            else f"git -C {shell_quote(place.project.root)} worktree list",
        )
    return site


def _check_usable(state: TreeState, top: str, request: WorkspaceRequest) -> None:
    if state.operation:
        raise WorkspaceRefused(
            f"{top} is in the middle of a {state.operation}",
            remedy="finish or abort it, or leave out --in-place and --worktree",
            operation=state.operation,
        )
    dirt = state.dirt
    if dirt.total and not request.allow_dirty:
        shown = ", ".join(path for _, path in dirt.entries[:5])
        more = f" and {dirt.total - 5} more" if dirt.total > 5 else ""
        raise WorkspaceDirty(
            f"{top} has uncommitted changes: {shown}{more}",
            remedy="commit them, or allow them with --allow-dirty, or leave out --in-place "
            "and --worktree",
            path=top,
            total=dirt.total,
            files=[path for _, path in dirt.entries],
        )
    if not dirt.complete and not request.allow_dirty:
        raise WorkspaceDirty(
            f"{top} is too large to be sure that it has no uncommitted changes",
            remedy="allow them with --allow-dirty",
            path=top,
        )


def _check_filters(state: TreeState, top: str, base: Base) -> None:
    """Files of the user's own checkout must not be replaced by what a filter would have
    turned into something else."""
    filtered = notes.filtered_paths(top, state.head, base.commit) if state.head else []
    if filtered:
        raise WorkspaceRefused(
            f"going to {base.name} would write {filtered[0]}, which goes through a filter "
            "that Handoff does not run",
            remedy=f"check it out yourself first: git -C {shell_quote(top)} switch --detach "
            f"{base.commit}",
            files=filtered[:20],
        )


def _managed_dir(request: WorkspaceRequest, place: Place) -> str:
    """A folder that is not there yet: the short id, the whole one if that is taken."""
    parent = os.path.realpath(request.worktrees_dir)
    known = {os.path.realpath(tree.path) for tree in list_trees(place.project.common_dir)}
    for name in (short(request.task_id), request.task_id):
        path = os.path.join(parent, name)
        if not os.path.lexists(path) and path not in known:
            return path
    raise WorkspaceRefused(
        f"{os.path.join(parent, request.task_id)} exists already",
        remedy="move it away and try again",
    )


# -- the branch ---------------------------------------------------------------------------


def _branch_and_base(
    request: WorkspaceRequest, place: Place, kind: str, site: Place, here: TreeState
) -> tuple[str, bool, Base]:
    """The branch, whether it is to be made, and where it starts."""
    repo = place.project.common_dir
    if request.branch:
        return request.branch, False, _existing(request.branch, place, kind, site)
    existing = names.branches(repo)
    if request.new_branch:
        names.check_new(request.new_branch, repo, existing)
        branch = request.new_branch
    else:
        fold = place.is_set("core.ignorecase")
        branch = names.default_name(request.task_id, request.title, existing, fold=fold)
    return branch, True, find_base(place, request, here)


def _existing(name: str, place: Place, kind: str, site: Place) -> Base:
    repo = place.project.common_dir
    problem = names.why_invalid(name, repo)
    if problem:
        raise UsageError(f"{name!r} can't be a branch: {problem}", remedy="git branch --list")
    commit = commit_of(f"refs/heads/{name}", repo)
    if not commit:
        _raise_missing(name, repo)
    for tree in list_trees(repo):
        if tree.branch != f"refs/heads/{name}":
            continue
        if kind == "managed" or os.path.realpath(tree.path) != site.top:
            if tree.prunable is not None:
                raise WorkspaceRefused(
                    f"the branch '{name}' is held for the worktree {tree.path}, which is gone",
                    remedy=f"git -C {shell_quote(place.project.root)} worktree prune",
                    path=tree.path,
                )
            raise WorkspaceRefused(
                f"the branch '{name}' is checked out in {tree.path}",
                remedy=f"--new-branch NAME --base {shell_quote(name)}, or "
                f"--worktree {shell_quote(tree.path)}",
                path=tree.path,
            )
    return Base(commit, name)


def _raise_missing(name: str, repo: str) -> None:
    args = ["for-each-ref", "--format=%(refname)", "refs/remotes/"]
    remote = [
        ref.removeprefix("refs/remotes/")
        for ref in git.run(args, repo).text.split("\n")
        if ref.endswith(f"/{name}")
    ]
    if remote:
        raise NotFound(
            f"there is no local branch '{name}', only {', '.join(remote)}",
            remedy=f"--new-branch {shell_quote(name)} --base {shell_quote(remote[0])}",
            name=name,
        )
    shown = printable(name)
    raise NotFound(
        f"there is no branch '{shown}'", remedy=f"--new-branch {shell_quote(name)}", name=shown
    )


# -- the plan -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Choice:
    request: WorkspaceRequest
    place: Place
    kind: str
    site: Place
    branch: str
    makes_branch: bool
    base: Base
    state: TreeState


def _assemble(choice: _Choice) -> WorkspacePlan:
    place, site, kind, base = choice.place, choice.site, choice.kind, choice.base
    repo = place.project.common_dir
    sparse = bool(site.top) and site.is_set("core.sparsecheckout")
    missing = notes.missing_submodules(site, base.commit, kind)
    hooks = notes.skipped_hooks(site)
    state, root = choice.state, place.project.root
    if state.exists and site.top == root:
        main_head = state.head
    else:
        main_head = head_of(root) if os.path.isdir(root) else ""
    managed = kind == "managed"
    return WorkspacePlan(
        kind=kind,
        project=place.project,
        work_dir=_managed_dir(choice.request, place) if managed else site.top,
        branch=choice.branch,
        base_commit=base.commit,
        base_name=base.name,
        makes_branch=choice.makes_branch,
        previous="" if managed else state.branch or state.head,
        base_ahead=notes.distance(base.commit, main_head, repo) if main_head else 0,
        dirty_count=state.dirt.total,
        dirty_files=tuple(path for _, path in state.dirt.entries),
        sparse=sparse,
        notes=tuple(_notes(choice, sparse=sparse, missing=missing, hooks=hooks)),
        missing_submodules=tuple(missing),
        skipped_hooks=tuple(hooks),
        task_id=choice.request.task_id,
        start_dir=place.top or repo,
    )


def _notes(choice: _Choice, *, sparse: bool, missing: list[str], hooks: list[str]) -> list[str]:
    found = list(choice.base.notes)
    managed = choice.kind == "managed"
    behind = notes.upstream_note(
        choice.base.name, choice.base.commit, choice.site.project.common_dir
    )
    if behind:
        found.append(behind)
    total = choice.state.dirt.total
    if total:
        changes = "1 uncommitted change" if total == 1 else f"{total} uncommitted changes"
        stays = "is" if total == 1 else "are"
        found.append(
            f"{changes} in {choice.site.top} {stays} not part of the task"
            if managed
            else f"{changes} in {choice.site.top} {stays} in the task's way, as you allowed"
        )
    if missing:
        found.append(notes.submodule_note(missing))
    if hooks:
        found.append(notes.hooks_note(hooks))
    if sparse and managed:
        found.append("the worktree is as sparse as the checkout that it comes from")
    if managed:
        found += notes.filter_notes(choice.site, choice.base.commit)
        disk = notes.disk_note(choice.request.worktrees_dir)
        if disk:
            found.append(disk)
    return found
