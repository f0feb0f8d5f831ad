"""Where a write would land.

A path is followed component by component, as the kernel does it: a ``..`` is applied to
what a symbolic link leads to, never to the letters of the path. Executors are less
consistent: some tidy a path by its letters first. Where the two readings lead to
different places the path has a problem, and the gate asks.

*Inside* means strictly below the worktree after every link was followed. *Protected* are
files inside it that configure executors or run by themselves (:data:`PROTECTED_DIRS`,
:data:`PROTECTED_FILES`): writing one of them changes what later happens without anybody
being asked, so they ask too.

What is looked at here can change before the executor writes. The gate is for judgement;
the boundary is the operating system's.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise

from handoff.gate.contract import Target

#: as many symbolic links as Linux follows in one path
MAX_LINKS = 40
#: bytes of a path and of one name, as Linux and macOS limit them
MAX_PATH = 4096
MAX_NAME = 255

#: folders whose whole content is protected, at any level
PROTECTED_DIRS = frozenset(
    {
        # git itself, and folders that hooks are usually kept in
        ".git", ".githooks", ".husky", ".lefthook",
        # executors: settings, hooks, commands and servers that they start by themselves
        ".claude", ".opencode", ".codex", ".grok", ".gemini", ".qwen", ".kimi", ".hermes",
        ".agents", ".cursor", ".windsurf", ".continue", ".aider", ".handoff",
        # editors and containers that run tasks on opening
        ".vscode", ".idea", ".devcontainer",
        # continuous integration
        ".circleci", ".buildkite", ".woodpecker", ".teamcity", ".forgejo", ".gitea",
        # tools that run programs named by their settings
        ".cargo", ".yarn", ".mise",
    }
)  # fmt: skip

#: two folders in a row whose content is protected
PROTECTED_PAIRS = frozenset({(".github", "workflows"), (".github", "actions")})

#: file names, at any level; ``*`` as in a shell
PROTECTED_FILES = (
    # executors: settings, servers, and the instructions that each later run obeys
    "opencode.json*", ".mcp.json", ".claude.json", "claude.md", "claude.local.md", "agents.md",
    "agents.override.md", "gemini.md", "qwen.md", ".cursorrules", ".windsurfrules",
    ".clinerules", ".goosehints", ".aider.conf.y*ml", "copilot-instructions.md",
    # git and its hooks
    ".gitmodules", ".gitconfig", ".pre-commit-config.y*ml", "lefthook.y*ml", ".lefthook.y*ml",
    ".huskyrc*",
    # run by a shell, an editor or a version manager on entering the folder
    ".envrc", ".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".tool-versions", "mise.toml",
    ".mise.toml", "*.code-workspace",
    # package managers that load programs or addresses from here
    ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "sitecustomize.py", "usercustomize.py",
    # continuous integration
    ".gitlab-ci.y*ml", "jenkinsfile", "azure-pipelines.y*ml", "bitbucket-pipelines.y*ml",
    ".travis.y*ml", ".drone.y*ml", ".woodpecker.y*ml", "appveyor.y*ml", ".appveyor.y*ml",
    "cloudbuild.y*ml",
)  # fmt: skip

_EXACT_FILES = frozenset(name for name in PROTECTED_FILES if "*" not in name)
_FILE_PATTERNS = tuple(name for name in PROTECTED_FILES if "*" in name)

# What HFS+ leaves out when it compares names: ".g<U+200C>it" is ".git" there.
_IGNORED_IN_NAMES = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u206a-\u206f\ufeff]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True)
class Place:
    """Where a path leads. ``path``: absolute, without links; "" if it can't be told.
    ``mode``: the file type and mode bits, 0 if nothing is there. ``links``: hard links to
    it. ``device``: of the last folder on the way that exists."""

    path: str
    problem: str = ""
    mode: int = 0
    links: int = 0
    device: int = 0


def follow(path: str) -> Place:
    """Follow an absolute path. Never raises for anything that a path can hold."""
    todo = path.split("/")[::-1]
    here, links, device, missing = "", 0, 0, False
    info: os.stat_result | None = None
    while todo:
        name = todo.pop()
        if info is not None and not stat.S_ISDIR(info.st_mode):
            return Place(here, f"'{here}' is not a directory", info.st_mode, info.st_nlink, device)
        if name in {"", "."}:
            continue
        step = here[: here.rfind("/")] if name == ".." and here else f"{here}/{name}"
        if name == ".." and not here:
            step = ""
        try:
            found = os.lstat(step or "/")
        except ValueError:
            # The folder that the executor named may hold what no path can.
            return Place("", "can't be a path")
        except OSError as error:
            if error.errno != errno.ENOENT:
                return Place("", _why(error))
            here, info, missing = step, None, True
            continue
        missing = False
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > MAX_LINKS:
                return Place("", "symlink loop")
            try:
                goal = os.readlink(step)
            except OSError as error:
                return Place("", _why(error))
            todo.extend(goal.split("/")[::-1])
            here, info = ("" if goal.startswith("/") else here), None
            continue
        here, info = step, found
        if stat.S_ISDIR(found.st_mode):
            device = found.st_dev
    if missing:
        return Place(here, device=device)
    if info is None:
        # The path ends in a link to a folder that was looked at before, or is "/".
        try:
            info = os.lstat(here or "/")
        except OSError as error:
            return Place("", _why(error))
        device = info.st_dev if stat.S_ISDIR(info.st_mode) else device
    return Place(here or "/", "", info.st_mode, info.st_nlink, device)


def _why(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "symlink loop"
    if error.errno == errno.ENAMETOOLONG:
        return "name too long"
    if error.errno == errno.ENOTDIR:
        return "a part of it is not a directory"
    return f"can't be looked at: {(error.strerror or str(error)).lower()}"


class Root:
    """A worktree that paths are compared with. Make one for each request: the folder is
    followed now, and what it leads to can change."""

    def __init__(self, root: str) -> None:
        self.given = root
        self.place = follow(root)
        self.path = self.place.path if stat.S_ISDIR(self.place.mode) else ""

    def holds(self, path: str) -> bool:
        """Whether a followed path is strictly below the root."""
        if not self.path or not path:
            return False
        top = self.path.rstrip("/") + "/"
        if path.startswith(top):
            return len(path) > len(top)
        if not path.casefold().startswith(top.casefold()):
            return False
        # The same letters in another case: one folder where the file system ignores case.
        same = "/".join(path.split("/")[: top.count("/")])
        try:
            return os.path.samefile(same, self.path)
        except OSError:
            return False

    def below(self, path: str) -> list[str]:
        """The names between the root and a path that :meth:`holds`."""
        return path.split("/")[self.path.rstrip("/").count("/") + 1 :]

    def by_letters(self, path: str) -> list[str]:
        """The names below the root by the letters of an absolute path, links aside."""
        plain = os.path.normpath(path)
        for top in (os.path.normpath(self.given), self.path):
            if top and plain.startswith(top.rstrip("/") + "/"):
                return plain[len(top.rstrip("/")) + 1 :].split("/")
        return []


def resolve(path: str, cwd: str, root: str | Root) -> Target:
    """What a write to path would touch.

    Args:
        path: as the executor gave it.
        cwd: the folder that it is relative to; itself relative to root if not absolute.
        root: the worktree.
    """
    root = root if isinstance(root, Root) else Root(root)
    problem = _letters(path)
    if problem:
        return Target(given=path, resolved="", problem=problem)
    doubt = _doubtful(path)
    full = absolute(path, os.path.join(root.given, cwd))
    place = follow(full)
    inside = root.holds(place.path)
    shielded = inside and is_protected(root.below(place.path))
    shielded = shielded or is_protected(root.by_letters(full))
    return Target(
        given=path,
        resolved=place.path,
        inside=inside,
        protected=shielded,
        problem=place.problem or doubt or _kind(path, full, place, root, inside=inside),
    )


def absolute(path: str, cwd: str) -> str:
    """The path as an absolute one, its links not followed; a leading ``~`` expanded."""
    return os.path.join(cwd, os.path.expanduser(path) if path.startswith("~") else path)


def _letters(path: str) -> str:
    """What is wrong with the letters alone, so that nothing can be looked up."""
    if not path:
        return "empty path"
    if "\0" in path:
        return "holds a NUL character"
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        return "can't be a file name: it holds half of a surrogate pair"
    if len(raw) >= MAX_PATH:
        return f"path too long ({len(raw)} bytes)"
    if max(map(len, raw.split(b"/"))) > MAX_NAME:
        return "name too long"
    return ""


def _doubtful(path: str) -> str:
    """Why the executor may understand the path otherwise than the kernel does."""
    if path[0] == "~":
        return "'~' may mean a home folder"
    if _URL.match(path):
        return "a URL, not a path"
    if path != path.strip():
        return "blanks at its start or end"
    if path[0] in "\"'`" and path[-1] == path[0]:
        return "in quotes"
    return ""


def _kind(path: str, full: str, place: Place, root: Root, *, inside: bool) -> str:
    """Why a write there can't be plain, judged by what is there."""
    if ".." in path.split("/"):
        other = follow(os.path.normpath(full)).path
        if other != place.path:
            return f"'..' after a symbolic link: could also mean {other or 'nothing'}"
    mode = place.mode
    if stat.S_ISDIR(mode):
        return "directory"
    if mode == 0 and path.endswith(("/", "/.")):
        return "names a directory"
    for test, name in (
        (stat.S_ISFIFO, "FIFO"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISCHR, "device"),
        (stat.S_ISBLK, "device"),
    ):
        if test(mode):
            return name
    if stat.S_ISREG(mode) and place.links > 1:
        return f"hard link: the file has {place.links} names, another may lie elsewhere"
    if inside and place.device != root.place.device:
        return "on another file system that is mounted inside the worktree"
    return ""


def is_protected(names: list[str]) -> bool:
    """Whether a path of these names (relative to the worktree) is protected.

    Names are compared without regard to case, to characters that some file systems
    ignore, and to Windows' short form of ``.git``.
    """
    plain = [_plain(name) for name in names]
    if not PROTECTED_DIRS.isdisjoint(plain):
        return True
    if any(pair in PROTECTED_PAIRS for pair in pairwise(plain)):
        return True
    last = plain[-1] if plain else ""
    return last in _EXACT_FILES or any(fnmatchcase(last, shape) for shape in _FILE_PATTERNS)


def _plain(name: str) -> str:
    if not name.isascii():
        name = unicodedata.normalize("NFC", _IGNORED_IN_NAMES.sub("", name))
    name = name.casefold().rstrip(" .") or name
    return ".git" if name == "git~1" else name
