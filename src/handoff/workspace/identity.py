"""Which project a folder belongs to. Standard library only."""

from __future__ import annotations

import hashlib
import os
import re
import time
from dataclasses import dataclass, field

from handoff.errors import GitError, NotARepository
from handoff.workspace import git
from handoff.workspace.contract import Project
from handoff.workspace.explain import without_credentials
from handoff.workspace.state import Facts, facts_of, is_name, printable

_SCHEME = re.compile(r"^(?:ssh|git|https?|git\+ssh|ssh\+git)://", re.IGNORECASE)
_PORT = re.compile(r":\d+$")
#: host, colon, path, where the host is a name or an address in brackets
_SCP = re.compile(r"^(\[[^\]]*\]|[^/:\[\]]+):(.*)$", re.DOTALL)


def normalise_origin(url: str) -> str:
    """One text for all the ways to write the address of a repository.

    The scheme (ssh, git, http, https), the user, a numeric port, slashes at the end and
    ``.git`` go; ``host:path`` becomes ``host/path``; the host is lower case. A local path
    stays a path.
    """
    text = url.strip()
    if text.lower().startswith("file://"):
        text = text[len("file://") :]
        return _strip_end(text)
    has_scheme = _SCHEME.match(text)
    if has_scheme:
        text = text[has_scheme.end() :]
    if text.startswith(("/", ".", "~")):
        return _strip_end(text)
    first = text.split("/", 1)[0]
    if "@" in first:
        text = text[first.rindex("@") + 1 :]
    scp = _SCP.match(text)
    if scp:
        host, path = scp[1], scp[2]
        port = re.match(r"^\d+(?=/|$)", path)
        if port and has_scheme:
            path = path[port.end() :]
        text = f"{host}/{path.lstrip('/')}"
    host, slash, path = text.partition("/")
    return _strip_end(_PORT.sub("", host).lower() + slash + path)


def _strip_end(text: str) -> str:
    text = text.rstrip("/")
    if text.endswith(".git"):
        text = text[: -len(".git")].rstrip("/")
    return text


def project_id(origin_url: str, root: str) -> str:
    """The first 16 hex digits of the SHA-256 of the normalised origin, or of the main
    path where there is no origin."""
    text = normalise_origin(origin_url) or root
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


#: seconds that a half-made worktree may stand in the way of a look at all of them
LIST_PATIENCE = 3.0


@dataclass(frozen=True)
class Tree:
    """One entry of ``git worktree list``. ``branch`` is the full name of the ref, or "".
    ``prunable`` / ``locked``: git's reason; None if it is not."""

    path: str
    head: str = ""
    branch: str = ""
    bare: bool = False
    locked: str | None = None
    prunable: str | None = None


def list_trees(repo: str) -> list[Tree]:
    """All worktrees of a repository as git knows them; the main one (or the bare
    repository) is first."""
    out = _listed(repo)
    trees: list[Tree] = []
    for block in out.split(b"\0\0"):
        if not block:
            continue
        values: dict[str, str] = {}
        for raw in block.split(b"\0"):
            key, _, value = raw.decode("utf-8", "surrogateescape").partition(" ")
            values[key] = value
        trees.append(
            Tree(
                path=values.get("worktree", ""),
                head=values.get("HEAD", ""),
                branch=values.get("branch", ""),
                bare="bare" in values,
                locked=values.get("locked"),
                prunable=values.get("prunable"),
            )
        )
    return trees


def _listed(repo: str) -> bytes:
    """The output of the list; a worktree that somebody is just adding makes git fail."""
    deadline = time.monotonic() + LIST_PATIENCE
    while True:
        try:
            return git.run(["worktree", "list", "--porcelain", "-z"], repo).out
        except GitError as error:
            half_made = re.search(r"failed to read .*commondir", str(error))
            if not half_made or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@dataclass(frozen=True)
class Place:
    """Where a folder is. ``top``: the root of the worktree it is in, or "" if it is in a
    bare repository or in git's own folder. ``git_dir``: that worktree's private folder.
    ``settings``: the repository's own configuration, keys as git prints them."""

    project: Project
    top: str
    git_dir: str
    settings: dict[str, str] = field(default_factory=dict)

    def is_set(self, key: str) -> bool:
        """Whether a setting is true."""
        return self.settings.get(key, "").lower() in {"true", "yes", "on", "1"}


def locate(path: str) -> Place:
    """The project and the worktree that a folder belongs to.

    Raises:
        NotARepository: it does not exist or is in no repository.
        DubiousOwnership: the repository belongs to another user.
        GitMissing, GitTooOld: as they say.
    """
    git.require_version()
    folder = os.path.realpath(path) if is_name(path) else ""
    if not os.path.isdir(folder):
        shown = printable(path)
        raise NotARepository(
            f"the folder {shown} does not exist", remedy="give a folder that exists", folder=shown
        )
    facts = facts_of(folder)
    # A worktree may have settings of its own beside the common ones (a sparse one has).
    settings = settings_of(facts.top or facts.common_dir)
    return Place(_project(facts, settings), facts.top, facts.git_dir, settings)


def settings_of(folder: str) -> dict[str, str]:
    """The repository's settings there; the last one wins, one without a value is "true"."""
    found: dict[str, str] = {}
    for record in git.run(["config", "--list", "-z"], folder).records:
        key, equals, value = record.partition("\n")
        found[key] = value if equals else "true"
    return found


def identify(path: str) -> Project:
    """The project of a folder: the same from every worktree, every subfolder and the bare
    repository itself.

    Raises: as :func:`locate`.
    """
    return locate(path).project


def _project(facts: Facts, settings: dict[str, str]) -> Project:
    common = facts.common_dir
    main = list_trees(common)[0]
    root = os.path.realpath(main.path)
    if not main.bare and root == common:
        # A submodule, or a repository whose .git is elsewhere: git names the folder it
        # stores things in. The worktree whose private folder is the common one is it.
        configured = settings.get("core.worktree", "")
        if facts.git_dir == common and facts.top:
            root = facts.top
        elif configured:
            root = os.path.realpath(os.path.join(common, configured))
    url = settings.get("remote.origin.url", "")
    return Project(
        project_id=project_id(url, root),
        name=_name(root),
        root=root,
        common_dir=common,
        origin_url=without_credentials(url),
        bare=main.bare,
    )


def _name(root: str) -> str:
    folder = os.path.basename(root)
    if folder.startswith(".") and folder in {".git", ".bare", ".repo"}:
        folder = os.path.basename(os.path.dirname(root))
    return folder.removesuffix(".git") or "project"
