"""Which workspace a record is bound to: git's common folder, or a plain folder.

All worktrees of a repository share one anchor; clones do not. What git says is taken only
if it is certain: a repository that git refuses or can't read is an error, never silently a
plain folder. An inherited ``GIT_DIR`` and its kin have no say.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from handoff.errors import (
    GitError,
    GitTooOld,
    NotARepository,
    TimedOut,
    UsageError,
    WorkspaceMissing,
)
from handoff.sessions import canonical
from handoff.sessions.text import hidden
from handoff.workspace import git

#: seconds for the whole question; git is ended with its process group
LIMIT = 3.0
#: of which git has so much; the rest is for ending one that does not want to
GIT_LIMIT = 2.0
_QUESTION = ("rev-parse", "--path-format=absolute", "--git-common-dir")


@dataclass(frozen=True)
class Binding:
    """A workspace as it was found. ``given``: as it was asked for. ``path``: absolute, links
    resolved. ``kind``: ``git`` or ``directory``. ``anchor``: git's common folder, or the
    folder itself. Both paths stay on this machine; ``anchor_sha256`` and ``label`` (the
    folder's name) may travel. ``branch``, ``head``: at that moment, or ""."""

    given: str
    path: str
    kind: str
    anchor: str
    anchor_sha256: str
    label: str
    branch: str = ""
    head: str = ""

    def portable(self) -> dict[str, str]:
        """What a record says of its workspace: no path."""
        return {
            "kind": self.kind,
            "anchor_sha256": self.anchor_sha256,
            "label": self.label,
            "branch": self.branch,
            "head": self.head,
        }


def anchor_sha256(kind: str, anchor: str) -> str:
    """The digest by which an anchor is known in records."""
    return canonical.digest("handoff-anchor/1", f"{kind}\0".encode() + os.fsencode(anchor))


def bind(workspace: str) -> Binding:
    """The binding of a folder. Writes nothing.

    Raises:
        UsageError: not an absolute path, or one with a NUL or a line feed.
        WorkspaceMissing: no such folder (details: ``workspace``).
        GitError: or one of its kinds: git can't say which repository it is.
        TimedOut: git did not say it within :data:`LIMIT` seconds.
    """
    path = resolve(workspace)
    anchor = _common_dir(path)
    kind = "git" if anchor else "directory"
    anchor = anchor or path
    branch, head = _position(path) if kind == "git" else ("", "")
    return Binding(
        given=workspace,
        path=path,
        kind=kind,
        anchor=anchor,
        anchor_sha256=anchor_sha256(kind, anchor),
        label=_label(path),
        branch=branch,
        head=head,
    )


def resolve(workspace: str) -> str:
    """The folder's absolute path without links.

    Raises:
        UsageError, WorkspaceMissing: as :func:`bind`.
    """
    if not isinstance(workspace, str) or not os.path.isabs(workspace):
        raise UsageError("a workspace is an absolute path", remedy="give the whole path")
    if "\0" in workspace or "\n" in workspace:
        raise UsageError("a workspace's path has no NUL and no line feed")
    path = os.path.realpath(workspace)
    if not os.path.isdir(path):
        raise WorkspaceMissing(
            f"the workspace {_shown(workspace)} is not there",
            remedy="give another folder of the same project with --workspace",
            workspace=_shown(workspace),
        )
    return path


def _common_dir(path: str) -> str:
    """Git's common folder, or "" where there is certainly no repository."""
    try:
        result = git.run(_QUESTION, path, limit=GIT_LIMIT, max_bytes=64 * 1024)
    except TimedOut as error:
        raise TimedOut(
            f"git did not say within {LIMIT:.0f} s which repository {_shown(path)} is in",
            remedy=f"git -C {_shown(path)} rev-parse --git-common-dir",
        ) from error
    except NotARepository:
        if _has_marker(path):
            raise
        return ""
    text = result.text
    if text.startswith("--path-format"):
        raise GitTooOld("git does not know --path-format", remedy="install git 2.38 or newer")
    if "\n" in text or not os.path.isabs(text):
        raise GitError("git named a folder that is no absolute path of one line")
    return os.path.realpath(text)


def _has_marker(path: str) -> bool:
    """Whether something here or above looks like a repository that git would not take.
    Above a folder that everybody may write to, a marker could be anybody's."""
    while True:
        if os.path.lexists(os.path.join(path, ".git")):
            return True
        above = os.path.dirname(path)
        if above == path or os.stat(above).st_mode & stat.S_IWOTH:
            return False
        path = above


def _position(path: str) -> tuple[str, str]:
    """Branch and commit, each "" where there is none."""
    branch = git.run(("symbolic-ref", "--short", "-q", "HEAD"), path, ok=(0, 1), limit=GIT_LIMIT)
    head = git.run(
        ("rev-parse", "--verify", "-q", "HEAD^{commit}"), path, ok=(0, 1, 128), limit=GIT_LIMIT
    )
    return (
        branch.text if branch.code == 0 and _portable(branch.text) else "",
        head.text if head.code == 0 else "",
    )


def _label(path: str) -> str:
    name = os.path.basename(path)
    return name[:128] if _portable(name) else ""


def _portable(text: str) -> bool:
    return text.isprintable() and not any(hidden(text)) and len(text) <= 512


def _shown(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")
