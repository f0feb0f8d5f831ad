"""Making the place where a task works, and taking it back. Standard library only.

Every step may be the last one before a power cut: :func:`create` looks at what is there
and goes on from it, and what a failure leaves is taken back. A managed worktree counts as
made only when its mark (:data:`READY`) stands in git's private folder of it; before that
no executor has been there, so it holds nothing that anybody could miss.
"""

from __future__ import annotations

import os
import shutil
import stat

from handoff.errors import GitError, HandoffError, NotFound, StorageFull, WorkspaceRefused
from handoff.workspace import git, refs
from handoff.workspace.base import commit_of
from handoff.workspace.contract import WorkspacePlan
from handoff.workspace.explain import shell_quote, storage_error
from handoff.workspace.identity import Tree, list_trees
from handoff.workspace.lock import held
from handoff.workspace.state import branch_of, worktree_facts

#: file in the private folder of a managed worktree that was made completely
READY = "handoff-ready"
#: bytes of free space below which a file that git could not write failed for that
FULL = 4 << 20


def create(plan: WorkspacePlan) -> None:
    """Do what the plan says. Safe to call again, also after ``kill -9`` at any point.

    After a failure nothing is left: no worktree, no branch that we made, and a tree that
    is not ours is on the branch it was on. What could not be taken back is named in the
    error's ``leftovers``.

    Raises:
        WorkspaceRefused: things changed since the plan was made.
        RepositoryLocked, StorageFull, TimedOut, GitError: as they say.
    """
    if plan.kind == "managed":
        parent = os.path.dirname(plan.work_dir)
        try:
            os.makedirs(parent, mode=0o700, exist_ok=True)
        except OSError as error:
            raise storage_error(error, f"can't make {parent}") from error
        with held(lock_path(plan), plan.work_dir) as descriptor:
            _create_managed(plan, descriptor)
    else:
        repo = plan.project.common_dir
        with held(repo, f"the repository {repo}") as descriptor:
            _create_here(plan, descriptor)


def lock_path(plan: WorkspacePlan) -> str:
    """The lock file of a managed worktree, beside it."""
    parent, name = os.path.split(plan.work_dir)
    return os.path.join(parent, f".{name}.lock")


def find_tree(plan: WorkspacePlan) -> Tree | None:
    """Git's entry for the plan's worktree, or None."""
    wanted = os.path.realpath(plan.work_dir)
    for tree in list_trees(plan.project.common_dir):
        if os.path.realpath(tree.path) == wanted:
            return tree
    return None


def is_ready(plan: WorkspacePlan) -> bool:
    """Whether the managed worktree is there and was made completely."""
    facts = worktree_facts(plan.work_dir)
    return facts is not None and os.path.exists(os.path.join(facts.git_dir, READY))


def switch_to(work_dir: str, where: str, *, keep_fds: tuple[int, ...] = ()) -> None:
    """Check out a branch (by its short name), or a commit (by its full id)."""
    if commit_of(f"refs/heads/{where}", work_dir):
        target = ["--no-guess", where]
    elif commit_of(where, work_dir):
        target = ["--detach", where]
    else:
        raise NotFound(f"there is no branch or commit '{where}' to go back to")
    args = ["switch", "--quiet", "--no-progress", *target]
    git.run(args, work_dir, access=_write_access(work_dir), content=True, keep_fds=keep_fds)


def _write_access(repo: str) -> git.Access:
    """Only a partial clone needs its remote to write files."""
    pattern = r"^(extensions\.partialclone|remote\..*\.promisor)$"
    partial = git.ask(["config", "--name-only", "--get-regexp", pattern], repo)
    return git.WRITE_LAZY if partial else git.WRITE


# -- a worktree of its own ----------------------------------------------------------------


def _create_managed(plan: WorkspacePlan, descriptor: int) -> None:
    repo = plan.project.common_dir
    if is_ready(plan):
        return
    erase_half_made(plan)
    try:
        refs.make_branch(
            repo, plan.task_id, plan.branch, plan.base_commit, makes_branch=plan.makes_branch
        )
        _add(plan, descriptor)
        _mark_ready(plan, _check_made(plan))
    except BaseException as error:
        better = _with_disk(plan, error)
        _take_back(plan, better)
        if better is not error:
            raise better from error
        raise


def _add(plan: WorkspacePlan, descriptor: int) -> None:
    """Tie the folder to the repository, one at a time, then write the files, side by side
    with others: git reads all worktrees before it adds one, and fails at a half-made one."""
    repo = plan.project.common_dir
    cwd = plan.start_dir if os.path.isdir(plan.start_dir) else repo
    args = ["worktree", "add", "--quiet", "--no-guess-remote", "--no-checkout"]
    with held(repo, f"the repository {repo}") as lock:
        keep = (descriptor, lock)
        git.run([*args, plan.work_dir, plan.branch], cwd, access=git.WRITE, keep_fds=keep)
    args = ["reset", "--quiet", "--hard", "--no-recurse-submodules"]
    access = _write_access(repo)
    git.run(args, plan.work_dir, access=access, content=True, keep_fds=(descriptor,))


def _with_disk(plan: WorkspacePlan, error: BaseException) -> BaseException:
    """Git does not say why it could not write a file: look at the disk for it."""
    if isinstance(error, OSError):
        return storage_error(error, f"can't make {plan.work_dir}")
    if not isinstance(error, GitError) or "unable to write" not in str(error):
        return error
    parent = os.path.dirname(plan.work_dir)
    free = shutil.disk_usage(parent).free
    if free < FULL:
        return StorageFull(
            f"the disk is full: {error} ({free // 1024} KiB free in {parent})",
            remedy="free some space and try again",
            folder=parent,
        )
    error.remedy = f"look whether {free // (1 << 20)} MiB in {parent} are enough"
    return error


def _check_made(plan: WorkspacePlan) -> str:
    """Make sure that git did what the plan says; gives the worktree's private folder."""
    args = ["rev-parse", "HEAD^{commit}", "--symbolic-full-name", "HEAD", "--absolute-git-dir"]
    head, name, git_dir = git.run(args, plan.work_dir).text.split("\n", 2)
    branch = name.removeprefix("refs/heads/")
    if branch != plan.branch or head != plan.base_commit:
        raise GitError(
            f"git made {plan.work_dir} on '{branch or 'no branch'}' at {head[:10]}, "
            f"not on '{plan.branch}' at {plan.base_commit[:10]}"
        )
    return git_dir


def _mark_ready(plan: WorkspacePlan, git_dir: str) -> None:
    path = os.path.join(git_dir, READY)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(plan.task_id + "\n")


def _take_back(plan: WorkspacePlan, error: BaseException) -> None:
    """Undo as far as possible; what stays is named in the error, which is raised on."""
    leftovers: list[str] = []
    for undo in (_undo_tree, _undo_branch):
        try:
            leftovers += undo(plan)
        except (HandoffError, OSError) as problem:
            leftovers.append(str(problem))
    if leftovers and isinstance(error, HandoffError):
        error.details["leftovers"] = leftovers


def _undo_tree(plan: WorkspacePlan) -> list[str]:
    if plan.kind == "managed":
        erase_half_made(plan)
    elif plan.previous and branch_of(plan.work_dir) == plan.branch != plan.previous:
        switch_to(plan.work_dir, plan.previous)
    return []


def _undo_branch(plan: WorkspacePlan) -> list[str]:
    kept = refs.unmake_branch(
        plan.project.common_dir,
        plan.task_id,
        plan.branch,
        plan.base_commit,
        makes_branch=plan.makes_branch,
    )
    return [kept] if kept else []


def erase_half_made(plan: WorkspacePlan) -> None:
    """Remove what an interrupted :func:`create` left of a managed worktree. The caller
    holds the lock. Git is not asked: at a half-made worktree it fails.

    Raises:
        WorkspaceRefused: something is there that no create of ours made, or that was
            made completely.
    """
    tied = False
    for folder in _private_folders(plan):
        if os.path.exists(os.path.join(folder, READY)):
            raise WorkspaceRefused(
                f"{plan.work_dir} was made before and is not whole any more",
                remedy=f"git -C {shell_quote(plan.project.root)} worktree repair "
                f"{shell_quote(plan.work_dir)}",
            )
        if _tied_to(folder):
            tied = True
            erase_folder(plan.work_dir)
        erase_folder(folder)
    if tied or not os.path.lexists(plan.work_dir):
        return
    try:
        os.rmdir(plan.work_dir)
    except OSError as error:
        raise WorkspaceRefused(
            f"{plan.work_dir} exists and is not a worktree of this repository",
            remedy=f"mv {shell_quote(plan.work_dir)} {shell_quote(plan.work_dir + '.old')}",
        ) from error


def _private_folders(plan: WorkspacePlan) -> list[str]:
    """Git's private folders for the plan's worktree: those tied to it, and those of its
    name that a killed git made and never tied to anything, which git would keep."""
    parent = os.path.join(plan.project.common_dir, "worktrees")
    name = os.path.basename(plan.work_dir)
    try:
        entries = os.listdir(parent)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found: list[str] = []
    for entry in entries:
        tail = entry.removeprefix(name)
        if entry.startswith(name) and (not tail or tail.isdigit()):
            folder = os.path.join(parent, entry)
            if _tied_to(folder) in {"", os.path.join(plan.work_dir, ".git")}:
                found.append(folder)
    return found


def _tied_to(folder: str) -> str:
    """The ``.git`` file that a private folder belongs to, or ""."""
    try:
        with open(os.path.join(folder, "gitdir"), "rb") as file:
            return os.fsdecode(file.read().rstrip(b"\n"))
    except (FileNotFoundError, NotADirectoryError):
        return ""


def forget_tree(plan: WorkspacePlan) -> None:
    """Remove git's entry of a worktree whose folder is gone, and only that one."""
    repo = plan.project.common_dir
    args = ["worktree", "remove", "--force", "--force", plan.work_dir]
    with held(repo, f"the repository {repo}") as lock:
        git.run(args, repo, access=git.WRITE, keep_fds=(lock,))


def erase_folder(folder: str) -> None:
    """Remove a folder and all below it, also what was made read-only; links are removed,
    not followed. Missing is fine.

    Raises:
        StorageError: something in it belongs to another user.
    """
    if os.path.islink(folder):
        os.unlink(folder)
        return
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except PermissionError:
        _erase_stubborn(folder)


def _erase_stubborn(folder: str) -> None:
    try:
        for top, folders, _ in os.walk(folder):
            for path in (top, *(os.path.join(top, name) for name in folders)):
                mode = os.lstat(path).st_mode
                if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
                    os.chmod(path, stat.S_IMODE(mode) | stat.S_IRWXU)
        shutil.rmtree(folder)
    except OSError as error:
        raise storage_error(error, f"can't remove {folder}") from error


# -- a tree that somebody else owns -------------------------------------------------------


def _create_here(plan: WorkspacePlan, descriptor: int) -> None:
    repo = plan.project.common_dir
    marked = refs.read(repo, plan.task_id, "start") == plan.base_commit
    if branch_of(plan.work_dir) == plan.branch and (marked or not plan.makes_branch):
        if not marked:
            refs.make_branch(repo, plan.task_id, plan.branch, plan.base_commit, makes_branch=False)
        return
    try:
        refs.make_branch(
            repo, plan.task_id, plan.branch, plan.base_commit, makes_branch=plan.makes_branch
        )
        switch_to(plan.work_dir, plan.branch, keep_fds=(descriptor,))
        _check_made(plan)
    except BaseException as error:
        _take_back(plan, error)
        raise
