"""Ending a workspace without losing work. Standard library only.

What git itself lists is the truth. A managed worktree goes only if everything in it exists
elsewhere; a tree that is not ours goes back to what it was on, if that loses nothing.
"""

from __future__ import annotations

import os

from handoff.errors import GitError, HandoffError, WorkspaceRefused
from handoff.workspace import git, notes, refs
from handoff.workspace.base import commit_of, has_commit
from handoff.workspace.contract import Removal, TreeState, WorkspacePlan
from handoff.workspace.lock import held
from handoff.workspace.state import (
    belongs,
    branch_of,
    git_dir_of,
    gitlinks,
    head_of,
    is_worktree,
    populated,
    printable,
    tree_state,
)
from handoff.workspace.worktree import (
    erase_folder,
    erase_half_made,
    find_tree,
    forget_tree,
    is_ready,
    lock_path,
    switch_to,
)

#: commits that are named for a submodule whose work exists nowhere else
COMMITS_NAMED = 5


def remove(plan: WorkspacePlan, *, force: bool = False) -> Removal:
    """Remove a managed worktree. Its branch stays, and its HEAD is kept by
    ``refs/handoff/<task>/head``. Idempotent.

    ``force``: also if that loses uncommitted work.

    Raises:
        GitError: git could not remove it; the error names what is in the way.
    """
    if plan.kind != "managed":
        return Removal("kept", plan.work_dir, "not_managed", note="it is not ours to remove")
    if not os.path.isdir(plan.project.common_dir):
        note = f"the repository {plan.project.common_dir} is not there"
        return Removal("kept", plan.work_dir, "repo_unreachable", note=note)
    if not os.path.isdir(os.path.dirname(plan.work_dir)):
        return _remove_locked(plan, force=force)
    with held(lock_path(plan), plan.work_dir):
        return _remove_locked(plan, force=force)


def _remove_locked(plan: WorkspacePlan, *, force: bool) -> Removal:
    try:
        tree = find_tree(plan)
    except GitError as error:
        return Removal("kept", plan.work_dir, "repo_unreachable", note=str(error))
    if tree is None:
        if not os.path.lexists(plan.work_dir):
            return Removal("already_absent", plan.work_dir)
        if not force:
            note = "git does not know this folder as a worktree (any more)"
            return Removal("kept", plan.work_dir, "not_managed", note=note)
        erase_folder(plan.work_dir)
        return Removal("removed", plan.work_dir)
    if tree.locked is not None and not force:
        note = f"somebody locked it: {tree.locked}" if tree.locked else "somebody locked it"
        return Removal("kept", plan.work_dir, "locked", note=note)
    if not os.path.lexists(os.path.join(plan.work_dir, ".git")):
        return _remove_without_link(plan, tree.head, force=force)
    if not force and not belongs(plan.work_dir, plan.project.common_dir):
        note = "its .git belongs to another repository now, so git can't tell what is in it"
        return Removal("kept", plan.work_dir, "not_managed", note=note)
    return _remove_whole(plan, force=force)


def _remove_without_link(plan: WorkspacePlan, head: str, *, force: bool) -> Removal:
    """The folder, or the file that ties it to the repository, is gone."""
    if os.path.isdir(plan.work_dir) and os.listdir(plan.work_dir) and not force:
        note = "its .git file is gone, so git can't tell what is uncommitted"
        return Removal("kept", plan.work_dir, "not_managed", note=note)
    if head.strip("0"):
        refs.record_head(plan.project.common_dir, plan.task_id, head)
    erase_folder(plan.work_dir)
    forget_tree(plan)
    return Removal("pruned", plan.work_dir)


def _remove_whole(plan: WorkspacePlan, *, force: bool) -> Removal:
    if not force:
        kept = _why_keep(plan)
        if kept is not None:
            return kept
    if belongs(plan.work_dir, plan.project.common_dir):
        head = head_of(plan.work_dir)
        refs.record_head(plan.project.common_dir, plan.task_id, head)
    # Git refuses a tree with submodules; what is in them was looked at above.
    inner = os.path.join(git_dir_of(plan.work_dir), "modules")
    needs_force = force or os.path.isdir(inner) or any(gitlinks(plan.work_dir))
    args = ["worktree", "remove", *(["--force", "--force"] if needs_force else [])]
    done = git.run(
        [*args, plan.work_dir],
        plan.project.common_dir,
        access=git.WRITE,
        content=True,
        ok=None,
    )
    if done.code == 0:
        return Removal("removed", plan.work_dir)
    if not force and is_worktree(plan.work_dir):
        kept = _why_keep(plan)
        if kept is not None:
            return kept
    # Git gives up at a folder without write permission (a module cache); nothing in it
    # is uncommitted, so it goes.
    erase_folder(plan.work_dir)
    forget_tree(plan)
    return Removal("removed", plan.work_dir)


def _why_keep(plan: WorkspacePlan) -> Removal | None:
    state = tree_state(plan.work_dir)
    if state.operation:
        note = f"a {state.operation} is under way in it"
        return Removal("kept", plan.work_dir, "operation", state.dirt.entries, note)
    if state.dirt.total or not state.dirt.complete:
        inside = tuple(f"{path}/" for path in state.dirt.submodules)
        only_inside = bool(inside) and all(p.startswith(inside) for _, p in state.dirt.entries)
        reason = "submodule_work" if only_inside else "dirty"
        return Removal("kept", plan.work_dir, reason, state.dirt.entries, _dirt_note(state))
    work = _submodule_work(plan)
    if work:
        note = "commits in submodules that exist nowhere else"
        return Removal("kept", plan.work_dir, "submodule_work", tuple(work), note)
    return None


def _dirt_note(state: TreeState) -> str:
    if not state.dirt.complete:
        return f"uncommitted: {state.dirt.total} seen before the look was cut short"
    count = state.dirt.total
    return "1 uncommitted change" if count == 1 else f"{count} uncommitted changes"


def _submodule_work(plan: WorkspacePlan) -> list[tuple[str, str]]:
    """(commit, submodule) for commits that only live in this worktree's submodules."""
    found: list[tuple[str, str]] = []
    recorded = _recorded_links(plan)
    for name, folder in _module_dirs(plan.work_dir).items():
        known = recorded.get(name, "")
        exclude = [known] if known and has_commit(known, folder) else []
        heads = ["HEAD"] if commit_of("HEAD", folder) else []
        args = ["rev-list", f"--max-count={COMMITS_NAMED}", "--all", *heads]
        lost = git.run([*args, "--not", "--remotes", *exclude], folder).text
        found += [(commit[:10], printable(name)) for commit in lost.split("\n") if commit]
    return found


def _recorded_links(plan: WorkspacePlan) -> dict[str, str]:
    """Path -> commit of the submodules as they were at the start."""
    repo = plan.project.common_dir
    paths = notes.submodule_paths(repo, plan.base_commit) if plan.base_commit else []
    if not paths:
        return {}
    args = ["ls-tree", "-z", plan.base_commit, "--", *paths]
    links = {}
    for entry in git.run(args, repo, literal=True).records:
        facts, _, path = entry.partition("\t")
        links[path] = facts.split(" ")[2]
    return links


def _module_dirs(work_dir: str) -> dict[str, str]:
    """Name -> git folder of every submodule that lives in this worktree: those checked
    out, and those whose checkout was taken away but whose commits are still here."""
    found: dict[str, str] = {}
    for path, _ in gitlinks(work_dir):
        if populated(work_dir, path):
            found[path] = git_dir_of(os.path.join(work_dir, path))
    seen = {os.path.realpath(folder) for folder in found.values()}
    modules = os.path.join(git_dir_of(work_dir), "modules")
    for top, folders, files in os.walk(modules):
        if "HEAD" in files and "objects" in folders:
            if os.path.realpath(top) not in seen:
                found[os.path.relpath(top, modules)] = top
            folders[:] = [name for name in folders if name == "modules"]
    return found


# -- trees that are not ours --------------------------------------------------------------


def restore(plan: WorkspacePlan) -> Removal:
    """Take a ``user`` or ``in_place`` tree back to what it was on before the task, if it
    is clean and still on the task's branch. Idempotent."""
    if plan.kind == "managed":
        return Removal("kept", plan.work_dir, "not_managed", note="a managed worktree is removed")
    if not is_worktree(plan.work_dir):
        note = f"{plan.work_dir} is not there any more"
        return Removal("kept", plan.work_dir, "repo_unreachable", note=note)
    repo = plan.project.common_dir
    with held(repo, f"the repository {repo}"):
        return _restore_locked(plan)


def _restore_locked(plan: WorkspacePlan) -> Removal:
    state = tree_state(plan.work_dir)
    where = state.branch or state.head
    if where == plan.previous:
        return Removal("already_there", plan.work_dir)
    if state.branch != plan.branch:
        note = f"it is on {state.branch or state.head[:10]}, not on the task's {plan.branch}"
        return Removal("kept", plan.work_dir, "switched_away", note=note)
    if state.operation:
        note = f"a {state.operation} is under way"
        return Removal("kept", plan.work_dir, "operation", state.dirt.entries, note)
    if state.dirt.total or not state.dirt.complete:
        return Removal("kept", plan.work_dir, "dirty", state.dirt.entries, _dirt_note(state))
    target = commit_of(f"refs/heads/{plan.previous}", plan.work_dir) or commit_of(
        plan.previous, plan.work_dir
    )
    if not target:
        note = f"{plan.previous} does not exist any more"
        return Removal("kept", plan.work_dir, "previous_gone", note=note)
    filtered = notes.filtered_paths(plan.work_dir, state.head, target)
    if filtered:
        note = f"{filtered[0]} goes through a filter, which Handoff does not run"
        return Removal("kept", plan.work_dir, "filters", note=note)
    refs.record_head(plan.project.common_dir, plan.task_id, state.head)
    switch_to(plan.work_dir, plan.previous)
    return Removal("restored", plan.work_dir, note=f"back on {plan.previous}")


# -- after a dispatch that failed ---------------------------------------------------------


def discard(plan: WorkspacePlan) -> Removal:
    """Take back a workspace that no executor has used: the tree, and the branch if we
    made it and it is where we put it. Work that is there all the same is kept. Idempotent.
    """
    repo = plan.project.common_dir
    if plan.kind != "managed":
        outcome = restore(plan)
        gone = branch_of(plan.work_dir) != plan.branch if is_worktree(plan.work_dir) else True
    elif not is_ready(plan) and os.path.isdir(os.path.dirname(plan.work_dir)):
        with held(lock_path(plan), plan.work_dir):
            was_there = os.path.lexists(plan.work_dir)
            try:
                erase_half_made(plan)
            except WorkspaceRefused as error:
                return Removal("kept", plan.work_dir, "not_managed", note=str(error))
        outcome = Removal("removed" if was_there else "already_absent", plan.work_dir)
        gone = True
    else:
        outcome = remove(plan)
        gone = outcome.action != "kept"
    if not gone:
        return outcome
    try:
        kept = refs.unmake_branch(
            repo, plan.task_id, plan.branch, plan.base_commit, makes_branch=plan.makes_branch
        )
    except HandoffError as error:
        kept = str(error)
    return Removal(outcome.action, plan.work_dir, outcome.reason, outcome.entries, kept)
