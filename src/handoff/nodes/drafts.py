"""Files under way: beside their place, under a name of their own, each one writer's alone."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os

from handoff.errors import FileInTheWay, NotARegularFile
from handoff.nodes.node import paths

__all__ = ["draft", "free"]

#: writers of one name at the same time
WRITERS = 64
#: a file system without locks
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


def draft(fd: int, name: str, shown: str, *, keep: bool = False) -> tuple[int, str]:
    """A file beside ``name`` in the folder ``fd``, to be renamed to it: (descriptor, its
    name). A draft that a killed writer left is taken again; one that another writer has, or
    that is not this user's own plain file, is let be.

    Args:
        fd: the folder.
        name: the file's, in it.
        shown: its path, for errors.
        keep: leave in the draft what a killed writer wrote; else it is empty.

    Raises:
        FileInTheWay: too many are there.
        OSError: as the system says.
    """
    mark = hashlib.sha256(os.fsencode(name)).hexdigest()[:20]
    for number in range(WRITERS):
        part = f".handoff-{mark}{number or ''}.part"
        try:
            opened = paths.open_regular(fd, part, os.O_RDWR | os.O_CREAT, shown, 0o600)
        except NotARegularFile:
            continue
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.EACCES, errno.EISDIR, errno.ENXIO}:
                try:
                    os.stat(part, dir_fd=fd, follow_symlinks=False)
                except FileNotFoundError:
                    raise error from None
                continue
            raise
        if _ours(fd, part, opened, keep=keep):
            return opened, part
        os.close(opened)
    raise FileInTheWay(f"{shown} is written to by {WRITERS} others at once", path=shown)


def free(fd: int, name: str) -> None:
    """Raise NotARegularFile if what has the name is neither file nor link."""
    with contextlib.suppress(FileNotFoundError):
        kind = paths.kind(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
        if kind not in {"file", "link"}:
            word = "folder" if kind == "dir" else kind
            raise NotARegularFile(f"{name}: a {word} stands there", remedy="name another place")


def _ours(fd: int, part: str, opened: int, *, keep: bool) -> bool:
    """Take an opened draft for this writer."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            os.close(opened)
            raise
    found = os.fstat(opened)
    try:
        there = os.stat(part, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:  # it took its place between the two
        return False
    if not os.path.samestat(found, there) or found.st_nlink != 1 or found.st_uid != os.geteuid():
        return False
    if found.st_size and not keep:
        os.ftruncate(opened, 0)
    if found.st_mode & 0o7777 != 0o600:
        os.fchmod(opened, 0o600)
    return True
