"""Reading one file of a task, without ever leaving its tree. Standard library only.

In a worktree each part of a path is opened beneath the one before it, and symbolic links
are followed by hand: a link that leads out, absolute or by ``..``, is refused, whoever
swaps it meanwhile. Only regular files are opened, and never waited for.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from handoff.errors import NotFound, UsageError, WorkspaceRefused
from handoff.workspace import git
from handoff.workspace.base import commit_of
from handoff.workspace.state import is_name, printable

#: bytes given at once by default
READ_LIMIT = 1 << 20
#: symbolic links followed for one path, as Linux allows
LINK_LIMIT = 40

_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True)
class FileContent:
    """A part of a file. ``size``: of the whole, in bytes; ``cut``: there is more after
    this part; ``source``: ``worktree`` or the full id of the commit it is from."""

    data: bytes
    size: int
    offset: int
    cut: bool
    source: str
    executable: bool = False

    @property
    def notice(self) -> str:
        """One line if this is not the whole file, else ""."""
        if not self.cut and not self.offset:
            return ""
        end = self.offset + len(self.data)
        return f"bytes {self.offset} to {end} of {self.size}"


def read_file(
    place: str,
    path: str,
    *,
    commit: str = "",
    offset: int = 0,
    limit: int = READ_LIMIT,
) -> FileContent:
    """A file of a commit (``place``: any folder of the repository), or of the worktree
    ``place``. A file that a sparse checkout leaves out comes from HEAD.

    Raises:
        UsageError: the path is absolute, leads upwards or is empty.
        NotFound: there is no such file.
        WorkspaceRefused: it is a folder, a FIFO, a submodule, or a link that leads out.
    """
    parts = _parts(path)
    if commit:
        return _from_commit(place, "/".join(parts), commit, offset, limit)
    try:
        return read_beneath(place, path, offset=offset, limit=limit)
    except NotFound:
        if _is_sparse_absent(place, "/".join(parts)):
            return _from_commit(place, "/".join(parts), "HEAD", offset, limit)
        raise


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    bad = not path or not is_name(path) or path.startswith("/")
    if bad or any(part in {"", ".", ".."} for part in parts):
        raise UsageError(
            f"{printable(path)!r} is not a path within the tree",
            remedy="give it as 'git ls-files' prints it",
        )
    return parts


# -- from the worktree --------------------------------------------------------------------


def read_beneath(root: str, path: str, *, offset: int = 0, limit: int = READ_LIMIT) -> FileContent:
    """A regular file below ``root``.

    Raises: as :func:`read_file`.
    """
    with open_beneath(root, path) as descriptor:
        facts = os.fstat(descriptor)
        data = _read_part(descriptor, offset, limit)
        return FileContent(
            data=data,
            size=facts.st_size,
            offset=offset,
            cut=offset + len(data) < facts.st_size,
            source="worktree",
            executable=bool(facts.st_mode & stat.S_IXUSR),
        )


@contextlib.contextmanager
def open_beneath(root: str, path: str) -> Iterator[int]:
    """The descriptor of a regular file below ``root``, opened for reading."""
    with contextlib.ExitStack() as stack:
        folders = [_opened(stack, root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY, None)]
        todo = _parts(path)
        links = 0
        while todo:
            part = todo.pop(0)
            if part in {"", "."}:
                continue
            if part == "..":
                if len(folders) == 1:
                    raise _leads_out(path)
                folders.pop()
                continue
            if len(folders) == 1 and part.lower() == ".git":
                raise UsageError("git's own folder is not part of the tree", remedy="git ls-files")
            kind, target = _look(part, folders[-1], path)
            if kind == "link":
                links += 1
                if links > LINK_LIMIT:
                    raise WorkspaceRefused(f"{printable(path)!r} is a loop of symbolic links")
                if target.startswith("/"):
                    raise _leads_out(path)
                todo = [*target.split("/"), *todo]
            elif kind == "folder":
                if not todo:
                    raise WorkspaceRefused(f"{printable(path)!r} is a folder", remedy="name a file")
                flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_RDONLY | os.O_CLOEXEC
                folders.append(_opened(stack, part, flags, folders[-1]))
            elif todo:
                raise _no_file(path)
            else:
                descriptor = _opened(stack, part, _OPEN, folders[-1])
                _check_regular(os.fstat(descriptor).st_mode, path)
                yield descriptor
                return
        raise WorkspaceRefused(f"{printable(path)!r} is a folder", remedy="name a file")


def _opened(stack: contextlib.ExitStack, name: str, flags: int, folder: int | None) -> int:
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            raise _no_file(name) from error
        if error.errno in {errno.ELOOP, errno.EMLINK}:
            raise WorkspaceRefused(f"{printable(name)!r} became a link meanwhile") from error
        if error.errno == errno.EACCES:
            raise WorkspaceRefused(f"{printable(name)!r} may not be read") from error
        raise
    stack.callback(os.close, descriptor)
    return descriptor


def _look(part: str, folder: int, path: str) -> tuple[str, str]:
    """("link", target), ("folder", "") or ("file", "") for an entry of an open folder."""
    try:
        mode = os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return "link", os.readlink(part, dir_fd=folder)
    except OSError as error:
        raise _no_file(path) from error
    if stat.S_ISDIR(mode):
        return "folder", ""
    _check_regular(mode, path)
    return "file", ""


def _check_regular(mode: int, path: str) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    raise WorkspaceRefused(f"{printable(path)!r} is {kind}, not a file", remedy="name a file")


def _read_part(descriptor: int, offset: int, limit: int) -> bytes:
    out = bytearray()
    while len(out) < limit:
        chunk = os.pread(descriptor, min(1 << 16, limit - len(out)), offset + len(out))
        if not chunk:
            break
        out += chunk
    return bytes(out)


def _leads_out(path: str) -> WorkspaceRefused:
    return WorkspaceRefused(
        f"{printable(path)!r} leads out of the tree through a symbolic link",
        remedy="read the link's target on the executor machine itself",
    )


def _no_file(path: str) -> NotFound:
    return NotFound(
        f"there is no file {printable(path)!r}", remedy="git ls-files", path=printable(path)
    )


# -- from a commit ------------------------------------------------------------------------


def _is_sparse_absent(work_dir: str, path: str) -> bool:
    args = ["ls-files", "-t", "-z", "--", path]
    listed = git.run(args, work_dir, literal=True, ok=(0, 128)).records
    return f"S {path}" in listed


def _from_commit(repo: str, path: str, commit: str, offset: int, limit: int) -> FileContent:
    full = commit_of(commit, repo) if not commit.startswith("-") else ""
    if not full:
        raise NotFound(
            f"there is no commit '{printable(commit)}'", remedy="git log --oneline --all"
        )
    args = ["ls-tree", "-z", "--full-tree", full, "--", path]
    entry = next(iter(git.run(args, repo, literal=True).records), "")
    facts, _, name = entry.partition("\t")
    if not entry or name != path:
        raise _no_file(path)
    mode, kind, blob = facts.split(" ")
    if kind != "blob":
        what = "a submodule" if kind == "commit" else "a folder"
        raise WorkspaceRefused(f"{printable(path)!r} is {what}", remedy="name a file")
    size = int(git.run(["cat-file", "-s", blob], repo).text)
    out = bytearray()
    skip = offset
    with contextlib.closing(git.stream(["cat-file", "blob", blob], repo)) as chunks:
        for chunk in chunks:
            part = chunk[skip:]
            skip = max(0, skip - len(chunk))
            out += part[: limit - len(out)]
            if len(out) >= limit:
                break
    cut = offset + len(out) < size
    return FileContent(bytes(out), size, offset, cut, full, executable=mode == "100755")
