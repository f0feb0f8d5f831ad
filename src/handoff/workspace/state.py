"""What a worktree looks like now, within limits. Standard library only.

A folder of untracked files is one entry with its count; a submodule is looked at by our
own call with its own filters switched off, because git would run them.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from handoff.errors import GitError, NotARepository, TimedOut
from handoff.workspace import git, lfs
from handoff.workspace.contract import Dirt, TreeState

#: entries that a report keeps by default
ENTRY_LIMIT = 200
#: seconds that a look may take in all
TIME_LIMIT = 20.0
#: an untracked folder with at most so many files is listed file by file
FOLDER_LIMIT = 10
#: untracked files that are counted; more are "at least so many"
COUNT_LIMIT = 1_000_000
#: bytes up to which a file that git was told not to look at is compared
HIDDEN_SIZE_LIMIT = 16 << 20
#: submodules within submodules
DEPTH_LIMIT = 8

#: what git says of a worktree whose making was cut short
_BROKEN_LINK = re.compile(r"invalid gitfile format|failed to read .*commondir")

_OPERATIONS = (
    ("rebase-merge", "rebase"),
    ("rebase-apply/applying", "am"),
    ("rebase-apply", "rebase"),
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("BISECT_LOG", "bisect"),
)


def head_of(work_dir: str) -> str:
    """The commit that HEAD names, 40 hex digits; "" if there is none yet.

    Raises:
        NotARepository: the folder is gone or no worktree.
    """
    args = ["rev-parse", "--verify", "--quiet", "--end-of-options", "HEAD^{commit}"]
    return git.ask(args, work_dir)


def branch_of(work_dir: str) -> str:
    """The short name of the branch that is checked out, "" when detached."""
    name = git.ask(["symbolic-ref", "--quiet", "HEAD"], work_dir)
    return name.removeprefix("refs/heads/")


def operation_of(git_dir: str) -> str:
    """The operation under way in the worktree with that private folder: ``rebase``,
    ``merge``, ``cherry-pick``, ``revert``, ``am``, ``bisect`` or ""."""
    for marker, name in _OPERATIONS:
        if os.path.exists(os.path.join(git_dir, marker)):
            return name
    return ""


def git_dir_of(work_dir: str) -> str:
    """The private folder of a worktree, as an absolute path."""
    return facts_of(work_dir).git_dir


@dataclass(frozen=True)
class Facts:
    """Where a folder is, all canonical. ``top``: the root of its worktree, "" if it is in
    none. ``git_dir``: that worktree's private folder. ``common_dir``: the repository's."""

    top: str
    git_dir: str
    common_dir: str


def facts_of(folder: str) -> Facts:
    """What git knows about a folder.

    Raises:
        NotARepository: it is not there, or in no repository.
        DubiousOwnership: the repository belongs to another user.
    """
    args = ["rev-parse", "--is-inside-work-tree", "--path-format=absolute", "--git-common-dir"]
    found = git.run([*args, "--absolute-git-dir", "--show-toplevel"], folder, ok=(0, 128))
    lines = found.text.split("\n")
    if found.code == 0 and len(lines) == 4:
        inside, common, git_dir, top = lines
    elif found.code and len(lines) == 3:
        inside, common, git_dir, top = *lines, ""
    else:
        # A path with a line end in it (or no repository): one question at a time.
        inside, _, common = git.run(args, folder).text.partition("\n")
        git_dir = git.run(["rev-parse", "--absolute-git-dir"], folder).text
        top = git.run(["rev-parse", "--show-toplevel"], folder).text if inside == "true" else ""
    return Facts(
        top=os.path.realpath(top) if inside == "true" else "",
        git_dir=os.path.realpath(git_dir),
        common_dir=os.path.realpath(common),
    )


def tree_state(
    work_dir: str, limit: int = ENTRY_LIMIT, *, time_limit: float = TIME_LIMIT
) -> TreeState:
    """The branch, HEAD and the uncommitted work of a worktree.

    ``limit``: entries that are kept (all are counted). ``time_limit``: seconds for the
    whole look; what was not seen by then makes ``dirt.complete`` False.

    Raises:
        GitError: or a kind of it, if git can't look at all.
    """
    facts = worktree_facts(work_dir)
    if facts is None:
        return TreeState(exists=False)
    look = _Look(limit, time.monotonic() + time_limit)
    _look_at(look, work_dir, "", 0)
    # Short of a name in parentheses, the look has told both; a branch may have that name.
    told = look.head is not None and look.branch is not None and not look.branch.startswith("(")
    return TreeState(
        exists=True,
        head=(look.head or "") if told else head_of(work_dir),
        branch=(look.branch or "") if told else branch_of(work_dir),
        operation=operation_of(facts.git_dir),
        dirt=Dirt(
            entries=tuple(look.entries),
            total=look.total,
            complete=look.complete,
            submodules=tuple(dict.fromkeys(look.submodules)),
        ),
    )


def is_worktree(work_dir: str) -> bool:
    """Whether the folder is there and is the root of a worktree that git knows."""
    return worktree_facts(work_dir) is not None


def belongs(work_dir: str, repo: str) -> bool:
    """Whether the folder still is a worktree of that repository: somebody may have put
    another ``.git`` into it."""
    facts = worktree_facts(work_dir)
    return facts is not None and facts.common_dir == facts_of(repo).common_dir


def worktree_facts(work_dir: str) -> Facts | None:
    """The facts of a folder that is the root of a worktree; None for any other."""
    if not os.path.lexists(os.path.join(work_dir, ".git")):
        return None
    try:
        facts = facts_of(work_dir)
    except NotARepository:
        return None
    except GitError as error:
        if _BROKEN_LINK.search(str(error)):
            return None
        raise
    return facts if facts.top == os.path.realpath(work_dir) else None


def common_dir_of(folder: str) -> str:
    """The canonical path of git's common folder for any folder of a repository."""
    return facts_of(folder).common_dir


def gitlinks(work_dir: str) -> list[tuple[str, str]]:
    """(path, commit) of every submodule or embedded repository in the index."""
    found: list[tuple[str, str]] = []
    for record in _records(git.stream(["ls-files", "--stage", "-z"], work_dir)):
        if record.startswith(b"160000 "):
            head, _, path = record.partition(b"\t")
            found.append((os.fsdecode(path), head.split(b" ")[1].decode("ascii")))
    return found


def populated(work_dir: str, path: str) -> bool:
    """Whether a submodule has its own checkout there."""
    folder = os.path.join(work_dir, path)
    return not os.path.islink(folder) and os.path.lexists(os.path.join(folder, ".git"))


def printable(path: str) -> str:
    """The path as text that any JSON encoder takes: bytes that are not UTF-8 become
    hexadecimal escapes. Only for showing; the exact name is not to be had back from it."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        if is_name(path):
            return os.fsencode(path).decode("utf-8", "backslashreplace")
        return path.encode("utf-8", "backslashreplace").decode("utf-8")
    return path


def is_name(text: str) -> bool:
    """Whether the operating system can take the text for a name at all."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def untracked_files(work_dir: str, limit: int) -> tuple[list[str], int]:
    """At most ``limit`` untracked files by exact name (an embedded repository ends in a
    slash), and how many more there are (counted up to :data:`COUNT_LIMIT`)."""
    found: list[str] = []
    more = 0
    args = ["ls-files", "--others", "--exclude-standard", "-z"]
    chunks = git.stream(args, work_dir)
    for record in _records(chunks):
        if len(found) < limit:
            found.append(os.fsdecode(record))
        else:
            more += 1
        if more >= COUNT_LIMIT:
            break
    chunks.close()
    return found, more


@dataclass
class _Look:
    limit: int
    deadline: float
    entries: list[tuple[str, str]] = field(default_factory=list)
    total: int = 0
    complete: bool = True
    submodules: list[str] = field(default_factory=list)
    head: str | None = None
    branch: str | None = None

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def add(self, letters: str, path: str, count: int = 1) -> None:
        self.total += count
        if len(self.entries) < self.limit:
            self.entries.append((letters, printable(path)))


def _look_at(look: _Look, work_dir: str, prefix: str, depth: int) -> None:
    """One repository, then its submodules; a look that takes too long is cut."""
    try:
        folders = _tracked(look, work_dir, prefix)
        _untracked(look, work_dir, prefix, folders)
        links = _index(look, work_dir, prefix)
        for path in links:
            if look.left() <= 0:
                look.complete = False
                return
            if depth < DEPTH_LIMIT and populated(work_dir, path):
                _look_inside(look, work_dir, path, prefix, depth)
    except TimedOut:
        look.complete = False


def _index(look: _Look, work_dir: str, prefix: str) -> list[str]:
    """Paths of submodules; counts on the way what was changed in files that git was told
    not to look at (``update-index --assume-unchanged`` or ``--skip-worktree``)."""
    links: list[str] = []
    for record in _records(git.stream(["ls-files", "-v", "--stage", "-z"], work_dir)):
        # "T mode id stage<TAB>path", T in lower case for assume-unchanged
        tag, rest = record[:1], record[2:]
        if rest.startswith(b"160000 "):
            links.append(os.fsdecode(rest.partition(b"\t")[2]))
        elif tag.islower() or tag == b"S":
            facts, _, raw = rest.partition(b"\t")
            mode, blob, _ = facts.decode("ascii").split(" ")
            if _differs(os.path.join(os.fsencode(work_dir), raw), mode, blob):
                look.add(" M", prefix + os.fsdecode(raw))
    return links


def _differs(path: bytes, mode: str, blob: str) -> bool:
    """Whether a file that is there holds something else than a blob of that id."""
    try:
        facts = os.lstat(path)
        if stat.S_ISLNK(facts.st_mode):
            content = os.readlink(path)
        elif not stat.S_ISREG(facts.st_mode) or mode == "120000":
            return True
        else:
            with open(path, "rb") as file:
                content = file.read(HIDDEN_SIZE_LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if len(content) > HIDDEN_SIZE_LIMIT:
        return True
    digest = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    return digest(b"blob %d\0" % len(content) + content).hexdigest() != blob


def _look_inside(look: _Look, work_dir: str, path: str, prefix: str, depth: int) -> None:
    before = look.total
    try:
        _look_at(look, os.path.join(work_dir, path), f"{prefix}{path}/", depth + 1)
    except GitError as error:
        # A submodule that git can't read: say so instead of calling it clean.
        look.add("??", f"{prefix}{path} ({error})")
    if look.total > before:
        look.submodules.append(printable(prefix + path))


def _tracked(look: _Look, work_dir: str, prefix: str) -> list[str]:
    """Count changed entries; returns what is untracked, folders with a slash at the end."""
    args = [
        "status",
        "--porcelain=v2",
        "-z",
        "--branch",
        "--untracked-files=normal",
        "--ignore-submodules=dirty",
        "--no-renames",
    ]
    loose: list[str] = []
    doubtful: dict[str, str] = {}
    chunks = git.stream(args, work_dir, content=True, idle_limit=max(0.1, look.left()))
    for record in _records(chunks):
        kind = record[:1]
        if kind == b"#":
            _heading(look, os.fsdecode(record), prefix)
        elif kind == b"?":
            loose.append(os.fsdecode(record[2:]))
        elif kind in {b"1", b"u"}:
            # "1 XY sub mH mI mW hH hI path", "u XY sub m1 m2 m3 mW h1 h2 h3 path"
            fields = record.split(b" ", 8 if kind == b"1" else 10)
            letters, path = fields[1].decode("ascii").replace(".", " "), os.fsdecode(fields[-1])
            if fields[2].startswith(b"S"):
                look.submodules.append(printable(prefix + path))
            elif letters == " M" and fields[4] == fields[5] and len(doubtful) < lfs.FILE_LIMIT:
                doubtful[path] = fields[7].decode("ascii")
                continue
            look.add(letters, prefix + path)
        if look.left() <= 0:
            look.complete = False
            break
    chunks.close()
    same = lfs.unchanged(work_dir, doubtful)
    for path in doubtful:
        if path not in same:
            look.add(" M", prefix + path)
    return loose


def _heading(look: _Look, line: str, prefix: str) -> None:
    """Take HEAD from "# branch.oid ID", "(initial)" before the first commit, and the
    branch from "# branch.head NAME"."""
    if prefix:
        return
    if line.startswith("# branch.oid "):
        head = line.removeprefix("# branch.oid ")
        look.head = "" if head == "(initial)" else head
    elif line.startswith("# branch.head "):
        look.branch = line.removeprefix("# branch.head ")


def _untracked(look: _Look, work_dir: str, prefix: str, loose: list[str]) -> None:
    for path in loose:
        if not path.endswith("/"):
            look.add("??", prefix + path)
    folders = [p for p in loose if p.endswith("/")]
    if not folders:
        return
    counts = dict.fromkeys(folders, 0)
    names: dict[str, list[str]] = {folder: [] for folder in folders}
    args = ["ls-files", "--others", "--exclude-standard", "-z"]
    chunks = git.stream(args, work_dir, idle_limit=max(0.1, look.left()))
    seen = 0
    for record in _records(chunks):
        path = os.fsdecode(record)
        folder = _covering(path, counts)
        if folder is None:
            continue
        counts[folder] += 1
        seen += 1
        if counts[folder] <= FOLDER_LIMIT:
            names[folder].append(path)
        if seen >= COUNT_LIMIT or (seen % 1024 == 0 and look.left() <= 0):
            look.complete = False
            break
    chunks.close()
    for folder, count in counts.items():
        if 0 < count <= FOLDER_LIMIT:
            for name in names[folder]:
                look.add("??", prefix + name)
        else:
            files = f"{count} files" if look.complete else f"at least {count} files"
            look.add("??", f"{prefix}{folder} ({files})", max(1, count))


def _covering(path: str, folders: dict[str, int]) -> str | None:
    """The listed folder that a path is in (or is, for an embedded repository)."""
    at = path.find("/")
    while at >= 0:
        if path[: at + 1] in folders:
            return path[: at + 1]
        at = path.find("/", at + 1)
    return None


def _records(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """NUL-terminated records from chunks cut anywhere."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\0")
        yield from whole
