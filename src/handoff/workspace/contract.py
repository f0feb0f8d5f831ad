"""What the rest of Handoff may rely on about repositories. Standard library only.

Everything here is synchronous: the caller gives it a thread. Every git call has a time
limit, runs in its own process group which is ended with it, never prompts, and runs no
hook and no program named by anybody's configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Project:
    """A repository. ``project_id``: the first 16 hex digits of the SHA-256 of its
    normalised origin (of its main path where it has no origin). ``root``: the main
    worktree, or the bare repository. ``common_dir``: git's common directory."""

    project_id: str
    name: str
    root: str
    common_dir: str
    origin_url: str
    bare: bool = False


@dataclass(frozen=True)
class WorkspaceRequest:
    """Where a task shall work. At most one of ``branch`` / ``new_branch``; at most one of
    ``worktree`` / ``in_place``; neither = a managed worktree. ``start_dir``: the folder
    the coordinator stands in (any worktree or subfolder of the project); its HEAD is the
    base unless ``base`` names another. ``base_commit``: the coordinator's HEAD as it saw
    it, 40 hex digits, or ""."""

    task_id: str
    start_dir: str
    worktrees_dir: str
    title: str = ""
    branch: str = ""
    new_branch: str = ""
    base: str = ""
    base_commit: str = ""
    worktree: str = ""
    in_place: bool = False
    allow_dirty: bool = False


@dataclass(frozen=True)
class WorkspacePlan:
    """What :func:`create` will do, worked out without changing anything.

    ``kind``: ``managed``, ``user`` or ``in_place``. ``base_commit`` "" for an empty
    repository. ``previous``: the branch or commit to go back to at the end (user and in
    place). ``makes_branch``: whether the branch is ours to delete if nothing was done.
    ``notes``: lines for a person (submodules not there, hooks left out, LFS pointers,
    sparse checkout, how far the base is behind). ``start_dir``: the worktree (or bare
    repository) that the coordinator stands in. JSON-serialisable."""

    kind: str
    project: Project
    work_dir: str
    branch: str
    base_commit: str
    base_name: str
    makes_branch: bool
    previous: str = ""
    base_ahead: int = 0
    dirty_count: int = 0
    dirty_files: tuple[str, ...] = ()
    sparse: bool = False
    notes: tuple[str, ...] = ()
    missing_submodules: tuple[str, ...] = ()
    skipped_hooks: tuple[str, ...] = ()
    task_id: str = ""
    start_dir: str = ""


@dataclass(frozen=True)
class Dirt:
    """Uncommitted work, bounded. ``entries``: (two status letters, path) of at most
    ``limit`` entries, a folder full of untracked files as one entry with its count;
    ``total`` counts all that were seen, ``complete`` False if the look was cut short."""

    entries: tuple[tuple[str, str], ...] = ()
    total: int = 0
    complete: bool = True
    submodules: tuple[str, ...] = ()


@dataclass(frozen=True)
class TreeState:
    """A worktree as git shows it now. ``branch`` "" when detached."""

    exists: bool
    head: str = ""
    branch: str = ""
    operation: str = ""
    dirt: Dirt = field(default_factory=Dirt)


@dataclass(frozen=True)
class Finding:
    """What git shows about a claim. ``code``: ``verified``, ``no_claim``,
    ``no_commit_claimed``, ``unknown_commit``, ``not_on_branch``, ``wrong_branch``,
    ``not_new`` (it was there before the turn began), ``workspace_gone``. ``found_on``: branches that do hold the claimed commit.
    ``commits``: how many new commits since the turn began."""

    code: str
    why: str
    head: str
    branch: str
    commits: int
    new_commits: tuple[str, ...] = ()
    found_on: tuple[str, ...] = ()
    dirt: Dirt = field(default_factory=Dirt)


@dataclass(frozen=True)
class Range:
    """What is the task's own. ``base``: the commit or tree to compare with; ``head``: the
    tip. ``moved``: one line if the base is not the recorded one (rebased, merged), with
    by how much; ``shared``: the commits up to which others' work came in then."""

    base: str
    head: str
    recorded_base: str
    moved: str = ""
    shared: tuple[str, ...] = ()


@dataclass(frozen=True)
class Removal:
    """How the removal of a managed worktree ended. ``action``: ``removed``, ``pruned``,
    ``already_absent`` or ``kept``; ``reason`` for ``kept``: ``dirty``, ``operation`` (a
    merge or rebase is under way), ``submodule_work``, ``locked``, ``repo_unreachable``,
    ``not_managed``. For a tree that is not ours, ``action`` is ``restored`` (back on what
    it was), ``already_there`` or ``kept``, with ``switched_away``, ``previous_gone`` or
    ``filters`` as further reasons. ``note``: one line for a person."""

    action: str
    work_dir: str
    reason: str = ""
    entries: tuple[tuple[str, str], ...] = ()
    note: str = ""
