"""What a person should know before a task works in a new tree: what will not be there, and
what will not run. All of it is read-only. Standard library only."""

from __future__ import annotations

import os
import re

from handoff.workspace import git
from handoff.workspace.explain import shell_quote
from handoff.workspace.identity import Place
from handoff.workspace.state import gitlinks, populated, printable

#: hooks that git would run while it makes or leaves a worktree
HOOKS = ("post-checkout", "post-index-change", "reference-transaction")
#: bytes of free space below which a note is due
LOW_DISK = 1 << 30

_FILTER = re.compile(r"\sfilter=([^\s]+)")


def submodule_paths(repo: str, commit: str) -> list[str]:
    """Paths of the submodules that a commit names in its ``.gitmodules``."""
    if git.run(["cat-file", "-e", f"{commit}:.gitmodules"], repo, ok=(0, 1, 128)).code:
        return []
    args = ["config", "--blob", f"{commit}:.gitmodules", "-z", "--get-regexp"]
    listed = git.run([*args, r"^submodule\..*\.path$"], repo, ok=(0, 1, 128))
    paths = [record.partition("\n")[2] for record in listed.records]
    paths = [path for path in paths if path]
    if not paths:
        return []
    entries = git.run(["ls-tree", "-z", commit, "--", *paths], repo, literal=True).records
    return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]


def missing_submodules(place: Place, commit: str, kind: str) -> list[str]:
    """Submodules that will be empty folders where the task works."""
    if kind == "managed":
        return [printable(p) for p in submodule_paths(place.project.common_dir, commit)]
    return [printable(p) for p, _ in gitlinks(place.top) if not populated(place.top, p)]


def submodule_note(missing: list[str]) -> str:
    """One line that names them and says how to have them."""
    return (
        f"submodules left empty by Handoff: {', '.join(missing)} (to have them in each new "
        "worktree, configure setup.command: git submodule update --init --recursive)"
    )


def skipped_hooks(place: Place) -> list[str]:
    """Paths of the hooks that git would have run and that Handoff leaves out."""
    top = place.top or place.project.common_dir
    configured = git.user_setting("core.hooksPath", top, "path")
    folder = os.path.join(top, configured) if configured else ""
    folder = folder or os.path.join(place.project.common_dir, "hooks")
    found = [os.path.join(folder, name) for name in HOOKS]
    return [path for path in found if os.path.isfile(path) and os.access(path, os.X_OK)]


def hooks_note(hooks: list[str]) -> str:
    """One line that names them and the place for what people expect of them."""
    names = ", ".join(os.path.basename(h) for h in hooks)
    return (
        f"hooks left out: {names} in {os.path.dirname(hooks[0])} (what they set up belongs "
        "in the set-up command, setup.command, which is shown while it runs and has a limit)"
    )


def filters_used(place: Place, commit: str) -> list[str]:
    """Names of the filters that the attributes of a commit (and of the repository) ask
    for."""
    repo = place.project.common_dir
    args = ["grep", "-h", "-a", "--no-textconv", "-e", "filter=", commit, "--"]
    pathspec = ":(glob)**/.gitattributes"
    text = git.run([*args, pathspec], repo, ok=(0, 1)).text
    try:
        with open(os.path.join(repo, "info", "attributes"), "rb") as file:
            text += "\n" + os.fsdecode(file.read(1 << 20))
    except FileNotFoundError:
        pass
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    return sorted({name for line in lines for name in _FILTER.findall(line)})


def filter_notes(place: Place, commit: str) -> list[str]:
    """Lines about files that stay as the repository holds them."""
    used = filters_used(place, commit)
    notes = []
    if "lfs" in used:
        notes.append(
            "Git LFS files are pointers in the new worktree (to have their contents, "
            "configure setup.command: git lfs pull)"
        )
    others = [name for name in used if name != "lfs"]
    if others:
        configured = set(git.filter_names(place.top or place.project.common_dir))
        named = [name for name in others if name in configured]
        if named:
            notes.append(
                f"filters not run: {', '.join(named)} (the files stay as the repository holds them)"
            )
    return notes


def filtered_paths(work_dir: str, before: str, after: str) -> list[str]:
    """Files that differ between two commits and that the user's own git would put through
    a filter: Handoff would write them as the repository holds them."""
    configured = set(git.filter_names(work_dir))
    if not configured or before == after:
        return []
    args = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", before, after]
    changed = git.run(args, work_dir).out
    if not changed:
        return []
    args = ["check-attr", "--stdin", "-z", "filter"]
    told = git.run(args, work_dir, stdin=changed).records
    return [
        printable(path)
        for path, value in zip(told[::3], told[2::3], strict=True)
        if value in configured
    ]


def distance(older: str, newer: str, repo: str) -> int:
    """How many commits ``newer`` has that ``older`` has not."""
    if older == newer:
        return 0
    text = git.ask(["rev-list", "--count", f"{older}..{newer}"], repo, ok=(0, 1, 128))
    return int(text) if text else 0


def upstream_note(branch: str, commit: str, repo: str) -> str:
    """One line if the branch's upstream, as last fetched, is ahead of the base; or ""."""
    args = ["for-each-ref", "--format=%(upstream)", f"refs/heads/{branch}"]
    upstream = git.ask(args, repo, ok=(0, 128))
    if not upstream:
        return ""
    behind = distance(commit, upstream, repo)
    if not behind:
        return ""
    name = upstream.removeprefix("refs/remotes/")
    commits = "1 commit" if behind == 1 else f"{behind} commits"
    return f"the base {branch} is {commits} behind {name}, as last fetched"


def disk_note(folder: str) -> str:
    """One line if little space is left where the worktree will be; or ""."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    facts = os.statvfs(folder)
    free = facts.f_bavail * facts.f_frsize
    if free >= LOW_DISK:
        return ""
    return f"only {free // (1 << 20)} MiB are free in {shell_quote(folder)}"
