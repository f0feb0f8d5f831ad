"""Paths of a node's files, opened so that nobody can swap what the policy has judged.

A path is first followed to where it leads (``real``); the policy rules on that. Then it is
opened name by name from the root, each relative to the descriptor of the folder above it,
and no link is followed any more: who puts a link in the way between the two gets an error,
never another file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from collections.abc import Iterator
from typing import NamedTuple

from handoff.errors import (
    FileError,
    FileInTheWay,
    FileMissing,
    HandoffError,
    NotARegularFile,
    PathTooLong,
    StorageFull,
    UsageError,
)

__all__ = [
    "Place",
    "as_ours",
    "below",
    "folder",
    "leaf",
    "locate",
    "open_regular",
    "quoted",
    "typed",
]

#: bytes of one path, and of one name in it
MAX_PATH = 64 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A folder on the way need not be readable; where the system has no O_PATH it must be.
_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class Place(NamedTuple):
    """``shown``: the path as it was asked for. ``real``: absolute, every link followed as far
    as names exist."""

    shown: str
    real: str


def locate(path: str, home: str, base: str = "", *, last: bool = True) -> Place:
    """Where a path leads.

    home: what ``~`` stands for. base: the folder of a relative path; "" means home.
    last: whether a link as the last name is followed (not for what acts on the link itself).

    Raises:
        UsageError: it is empty, or holds a NUL.
        PathTooLong: more than the system could ever take.
        FileMissing, FileError: as the system says.
    """
    if not path or "\0" in path:
        raise UsageError("a path is missing, or holds a NUL", remedy="give a path")
    if len(os.fsencode(path)) > MAX_PATH:
        raise PathTooLong(f"a path of {len(path)} signs", remedy="use a shorter path")
    full = home + path[1:] if path == "~" or path.startswith("~/") else path
    full = os.path.join(base or home, full)
    with typed(path):  # names may go away while links are followed
        if last:
            return Place(path, os.path.realpath(full))
        above, name = os.path.split(full.rstrip("/"))
        if name in {"", ".", ".."}:
            return Place(path, os.path.realpath(full))
        return Place(path, os.path.join(os.path.realpath(above), name))


@contextlib.contextmanager
def typed(shown: str) -> Iterator[None]:
    """What the system says, as errors of ours that name the path as it was asked for.

    Raises:
        FileMissing, FileInTheWay, StorageFull, NotARegularFile, FileError: see
            :func:`as_ours`.
    """
    try:
        yield
    except OSError as error:
        raise as_ours(error, shown) from error


def quoted(path: str) -> str:
    """A path as a word of a shell's line, where ``~`` means what it means here."""
    head, slash, rest = path.partition("/")
    if head == "~":
        return head + slash + (shlex.quote(rest) if rest else "")
    return shlex.quote(path)


def as_ours(error: OSError, shown: str) -> HandoffError:
    """The typed error for what the system said about a path."""
    code = error.errno
    above = quoted(os.path.dirname(shown) or ".")
    says = error.strerror or str(error)
    if code == errno.ENOENT:
        return FileMissing(f"{shown} does not exist", remedy=f"ls -la {above}", path=shown)
    if code in {errno.EEXIST, errno.ENOTEMPTY}:
        return FileInTheWay(
            f"{shown}: {says.lower()}", remedy="overwrite it, or choose another name", path=shown
        )
    if code in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return StorageFull(
            f"no space left to write {shown}", remedy=f"df -h -i {above}", path=shown
        )
    if code in {errno.ENXIO, errno.ENODEV, errno.EISDIR, errno.ENOTDIR}:
        return NotARegularFile(f"{shown}: {says.lower()}", remedy=f"ls -ld {above}", path=shown)
    if code == errno.ENAMETOOLONG:
        return PathTooLong(f"{shown[:200]}: a name is too long", remedy="use a shorter name")
    if code == errno.ELOOP:
        return FileError(
            f"{shown}: a link is where none was, or links go round in a circle",
            remedy=f"ls -la {above}",
            path=shown,
        )
    busy = code in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
    return FileError(
        f"{shown}: {says.lower()}",
        remedy="ask again when less is under way there" if busy else f"ls -ld {above}",
        path=shown,
        errno=errno.errorcode.get(code or 0, ""),
    )


@contextlib.contextmanager
def folder(real: str, *, readable: bool = False) -> Iterator[int]:
    """The descriptor of a folder, opened name by name without following a link.

    readable: its names will be read, or its name be brought to the disk.

    Raises:
        OSError: as the system says; ELOOP or ENOTDIR if a link stands in the way.
    """
    fd = os.open("/", _WAY)
    try:
        names = real.strip("/").split("/") if real.strip("/") else []
        for name in [*names, "."] if readable else names:
            below = os.open(name, _FOLDER if name == "." else _WAY, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def leaf(real: str) -> Iterator[tuple[int, str]]:
    """The descriptor of the folder above, and the last name.

    Raises:
        OSError: as :func:`folder`; EISDIR for the root itself.
    """
    above, name = os.path.split(real.rstrip("/"))
    if not name:
        raise IsADirectoryError(errno.EISDIR, "is the root folder")
    with folder(above) as fd:
        yield fd, name


def open_regular(fd: int, name: str, flags: int, shown: str, mode: int = 0o666) -> int:
    """Open a plain file in a folder. Never waits for the other end of a pipe, never follows.

    Raises:
        NotARegularFile: a folder, pipe, socket or device.
        OSError: as the system says.
    """
    opened = os.open(name, flags | _NO_FOLLOW, mode, dir_fd=fd)
    found = os.fstat(opened)
    if stat.S_ISREG(found.st_mode):
        os.set_blocking(opened, True)
        return opened
    os.close(opened)
    raise NotARegularFile(
        f"{shown} is {kind(found.st_mode)}, not a plain file",
        remedy=f"ls -ld {quoted(shown)}",
        path=shown,
        type=kind(found.st_mode),
    )


def below(fd: int, name: str) -> Iterator[str]:
    """All that is in a folder, as what follows the folder's own path.

    Raises:
        OSError: a folder in it can't be looked at.
    """
    for above, folders, names, _ in os.fwalk(name, dir_fd=fd, follow_symlinks=False, onerror=_no):
        for one in (*folders, *names):
            yield f"{above.removeprefix(name)}/{one}"


def _no(error: OSError) -> None:
    raise error


def kind(mode: int) -> str:
    """``file``, ``dir``, ``link``, ``pipe``, ``socket`` or ``device``."""
    for test, word in (
        (stat.S_ISREG, "file"),
        (stat.S_ISDIR, "dir"),
        (stat.S_ISLNK, "link"),
        (stat.S_ISFIFO, "pipe"),
        (stat.S_ISSOCK, "socket"),
    ):
        if test(mode):
            return word
    return "device"
