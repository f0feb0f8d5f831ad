"""The files of a node: looked at, read by range, changed as one step or not at all.

Every call locates the path, asks the policy about where it leads, and opens exactly that.
A file is written beside its place under a name of its own, brought to the disk, and then
takes the place in one step: whoever looks, and whatever is killed, the old or the new
content is there. Only ``append`` writes in place, and takes back what it wrote if the disk
is full.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from handoff.errors import (
    FileChanged,
    FileInTheWay,
    FileMissing,
    NotARegularFile,
    TooLarge,
    UsageError,
)
from handoff.nodes.node import paths
from handoff.nodes.node.paths import Place, kind, typed
from handoff.nodes.node.policy import Policy

__all__ = ["PIECE", "Entry", "Files", "Listing", "Reading"]

#: bytes that are in memory at once
PIECE = 256 * 1024
#: names of one folder that are looked at before a listing is refused
MAX_NAMES = 200_000


class Entry(NamedTuple):
    """One name. ``type``: see :func:`handoff.nodes.node.paths.kind`. ``size`` in bytes;
    ``mode``: permission bits; ``mtime_ns``: since 1970. ``target``: where a link points, ""
    otherwise. ``name`` may hold bytes that are no UTF-8, as Python's surrogate escapes.
    ``etag``: another one as soon as content, bits or times are changed by anybody."""

    name: str
    type: str
    size: int
    mode: int
    mtime_ns: int
    target: str = ""
    uid: int = -1
    gid: int = -1
    etag: str = ""


class Listing(NamedTuple):
    """Names in the order of their bytes; ``next``: the name to go on after, "" at the end.
    ``unreadable``: names that could not be looked at, with why."""

    entries: list[Entry]
    next: str
    unreadable: list[tuple[str, str]]


@dataclass(slots=True)
class Reading:
    """A file under way. ``size``: when it was opened. Closed by its owner."""

    fd: int
    entry: Entry
    shown: str

    def piece(self, offset: int, limit: int, most: int = PIECE) -> bytes:
        """Up to ``limit`` bytes from ``offset``, and no more than ``most``; empty at the end
        of the file."""
        with typed(self.shown):
            return os.pread(self.fd, min(limit, most), offset)

    def sha256(self) -> str:
        """Of the whole file, as it is now."""
        found, offset = hashlib.sha256(), 0
        while data := self.piece(offset, PIECE):
            found.update(data)
            offset += len(data)
        return found.hexdigest()

    def changed(self) -> bool:
        """Whether it was written to since it was opened."""
        now = os.fstat(self.fd)
        return (now.st_size, now.st_mtime_ns) != (self.entry.size, self.entry.mtime_ns)

    def close(self) -> None:
        """Let go of it."""
        os.close(self.fd)


class Files:
    """What a brain may do with this machine's files.

    policy: asked anew at each call, so that a changed file counts at once. home: what ``~``
    stands for.
    """

    def __init__(self, policy: Callable[[], Policy], home: str) -> None:
        self._policy = policy
        self._home = home

    def stat(self, path: str, *, follow: bool = True) -> Entry:
        """One name. follow: what a link leads to, not the link.

        Raises:
            PathNotAllowed, FileMissing, FileError.
        """
        place = self._readable(path, last=follow)
        with typed(path):
            if place.real == "/":
                return entry("/", os.stat("/"))
            with paths.leaf(place.real) as (fd, name):
                return look(fd, name)

    def listing(self, path: str, limit: int = 1000, after: str = "") -> Listing:
        """The names in a folder, those that the policy lets be read.

        limit: how many, at least 1. after: the name that the page before ended with.

        Raises:
            PathNotAllowed, FileMissing, NotARegularFile (it is no folder), TooLarge.
        """
        place = self._readable(path)
        may_read = self._policy().readable_in(place.real)
        with typed(path), paths.folder(place.real, readable=True) as fd:
            names = self._names(fd, path)
            entries: list[Entry] = []
            unreadable: list[tuple[str, str]] = []
            for name in names[_past(names, after) :]:
                if not may_read(name):
                    continue
                if len(entries) >= max(1, limit):
                    return Listing(entries, entries[-1].name, unreadable)
                try:
                    entries.append(look(fd, name))
                except FileNotFoundError:  # it went meanwhile
                    continue
                except OSError as error:
                    unreadable.append((name, error.strerror or str(error)))
        return Listing(entries, "", unreadable)

    @contextlib.contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        """A plain file, open for as long as the block lasts.

        Raises:
            PathNotAllowed, FileMissing, NotARegularFile, FileError.
        """
        place = self._readable(path)
        with typed(path), paths.leaf(place.real) as (fd, name):
            opened = paths.open_regular(fd, name, os.O_RDONLY, path)
        try:
            yield Reading(opened, entry(name, os.fstat(opened)), path)
        finally:
            os.close(opened)

    def read(self, path: str, offset: int = 0, limit: int = PIECE) -> tuple[bytes, Entry]:
        """A range of a file, and what the file is. Less than ``limit`` only at its end.

        Raises:
            UsageError: a negative offset or limit.
            as :meth:`reading`.
        """
        if offset < 0 or limit < 0:
            raise UsageError("offset and limit count bytes from 0", remedy="give 0 or more")
        parts, left = [], limit
        with self.reading(path) as file:
            while left and (data := file.piece(offset, left)):
                parts.append(data)
                offset, left = offset + len(data), left - len(data)
            return b"".join(parts), file.entry

    def sha256(self, path: str) -> str:
        """The digest of a file's bytes. Raises as :meth:`reading`."""
        with self.reading(path) as file:
            return file.sha256()

    def make_folder(self, path: str, mode: int = 0o777, *, parents: bool = False) -> bool:
        """Make a folder. parents: with those above it, and content if it is there already.

        Returns whether it was made.

        Raises:
            PathNotAllowed, FileMissing (no folder above), FileInTheWay, StorageFull, FileError.
        """
        place = self._writable(path)
        names = place.real.strip("/").split("/")
        missing = 0
        while missing < len(names) and not os.path.lexists(_join(names[: len(names) - missing])):
            missing += 1
        if not missing:
            if parents and os.path.isdir(place.real):
                return False
            raise FileInTheWay(f"{path} exists", remedy="choose another name", path=path)
        if missing > 1 and not parents:
            raise FileMissing(f"the folder above {path} does not exist", remedy="ask for parents")
        for count in range(len(names) - missing + 1, len(names) + 1):
            real = _join(names[:count])
            self._policy().require_write(real, path)
            with typed(path), paths.leaf(real) as (fd, name):
                os.mkdir(name, mode, dir_fd=fd)
                sync_folder(fd)
        return True

    def move(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Rename a file, link or folder, within one file system, as one step. Of a folder all
        that is in it must be free to go, and free to be where it comes to: a name that is kept
        from the brain would not be under another one.

        Raises:
            PathNotAllowed, FileMissing, FileInTheWay, FileError (another file system).
        """
        here = self._writable(source, last=False)
        self._policy().require_read(here.real, source)
        there = self._writable(target, last=False)
        with (
            typed(source),
            paths.leaf(here.real) as (fd, name),
            paths.leaf(there.real) as (other, new),
        ):
            if stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                self._movable(fd, name, here, there)
            if not overwrite:
                rename_new(fd, name, other, new, target)
            else:
                os.replace(name, new, src_dir_fd=fd, dst_dir_fd=other)
            sync_folder(fd)
            sync_folder(other)

    def delete(self, path: str, *, tree: bool = False, if_match: str = "") -> int:
        """Delete a file, link or empty folder; with ``tree`` everything below it as well,
        following no link. if_match: see :func:`require_match`.

        Returns how many names are gone.

        Raises:
            PathNotAllowed (also of anything below), FileMissing, FileInTheWay (a folder that
            is not empty), FileChanged, FileError.
        """
        place = self._writable(path, last=False)
        with typed(path), paths.leaf(place.real) as (fd, name):
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if if_match:
                require_match(fd, name, if_match, path)
            if not stat.S_ISDIR(found.st_mode):
                os.unlink(name, dir_fd=fd)
                gone = 1
            elif tree:
                self._deletable(fd, name, place)
                gone = _delete_tree(fd, name)
            else:
                os.rmdir(name, dir_fd=fd)
                gone = 1
            sync_folder(fd)
        return gone

    def change(self, path: str, mode: int | None = None, mtime_ns: int | None = None) -> Entry:
        """Set permission bits and the time of change of a file or folder.

        Raises:
            UsageError: bits beyond 0o7777.
            PathNotAllowed, FileMissing, NotARegularFile, FileError.
        """
        place = self._writable(path)
        if mode is not None and not 0 <= mode <= 0o7777:
            raise UsageError(f"{mode:o} are no permission bits", remedy="give 0 to 7777")
        with typed(path), paths.leaf(place.real) as (fd, name):
            opened = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=fd
            )
            try:
                found = os.fstat(opened)
                if kind(found.st_mode) not in {"file", "dir"}:
                    raise NotARegularFile(f"{path} is neither file nor folder", path=path)
                if mode is not None:
                    os.fchmod(opened, mode)
                if mtime_ns is not None:
                    os.utime(opened, ns=(found.st_atime_ns, mtime_ns))
                os.fsync(opened)
                return entry(name, os.fstat(opened))
            finally:
                os.close(opened)

    def _readable(self, path: str, *, last: bool = True) -> Place:
        place = paths.locate(path, self._home, last=last)
        self._policy().require_read(place.real, path)
        return place

    def _writable(self, path: str, *, last: bool = True) -> Place:
        place = paths.locate(path, self._home, last=last)
        self._policy().require_write(place.real, path)
        return place

    def _deletable(self, fd: int, name: str, place: Place) -> None:
        """Raise PathNotAllowed if anything below may not be written."""
        policy = self._policy()
        for below in paths.below(fd, name):
            policy.require_write(place.real + below, place.real + below)

    def _movable(self, fd: int, name: str, here: Place, there: Place) -> None:
        """Raise PathNotAllowed if anything below may not be read, written, or come there."""
        policy = self._policy()
        for below in paths.below(fd, name):
            policy.require_write(here.real + below, here.real + below)
            policy.require_read(here.real + below, here.real + below)
            policy.require_write(there.real + below, there.real + below)

    @staticmethod
    def _names(fd: int, shown: str) -> list[str]:
        names: list[str] = []
        with os.scandir(fd) as found:
            for one in found:
                names.append(one.name)
                if len(names) > MAX_NAMES:
                    raise TooLarge(
                        f"{shown} holds more than {MAX_NAMES} names",
                        remedy="ask for a folder below",
                    )
        return sorted(names, key=os.fsencode)


def _past(names: list[str], after: str) -> int:
    """Where the names go on after that one, in their order as bytes."""
    return bisect.bisect_right(names, os.fsencode(after), key=os.fsencode) if after else 0


def _join(names: list[str]) -> str:
    return "/" + "/".join(names)


def entry(name: str, found: os.stat_result, target: str = "") -> Entry:
    """One name, from what the system says of it."""
    return Entry(
        name,
        kind(found.st_mode),
        found.st_size,
        stat.S_IMODE(found.st_mode),
        found.st_mtime_ns,
        target,
        found.st_uid,
        found.st_gid,
        etag(found),
    )


def etag(found: os.stat_result) -> str:
    """What names a file as it is now, without reading it."""
    times = f"{found.st_mtime_ns:x}-{found.st_ctime_ns:x}"
    return f"{found.st_dev:x}-{found.st_ino:x}-{found.st_size:x}-{times}"


def look(fd: int, name: str) -> Entry:
    """One name in a folder, a link as a link. Raises OSError."""
    found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    target = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(found.st_mode) else ""
    return entry(name, found, target)


def sync_folder(fd: int) -> None:
    """Bring a folder's names to the disk."""
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    try:
        os.fsync(readable)
    finally:
        os.close(readable)


def rename_new(fd: int, name: str, other: int, new: str, shown: str) -> None:
    """Rename to a name that must be free. A file takes it by a second link, so that nobody
    who comes at the same time is overwritten.

    Raises:
        FileInTheWay, OSError.
    """
    found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        # a folder takes the place of an empty folder only
        with contextlib.suppress(FileNotFoundError):
            os.stat(new, dir_fd=other, follow_symlinks=False)
            raise FileInTheWay(f"{shown} exists", remedy="choose another name", path=shown)
        os.rename(name, new, src_dir_fd=fd, dst_dir_fd=other)
        return
    try:
        os.link(name, new, src_dir_fd=fd, dst_dir_fd=other, follow_symlinks=False)
    except FileExistsError as error:
        there = os.stat(new, dir_fd=other, follow_symlinks=False)
        if not os.path.samestat(found, there):
            raise FileInTheWay(f"{shown} exists", remedy="overwrite it", path=shown) from error
        # killed between the two steps, the time before
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
            raise
        # no second links on this file system: the look and the rename are two steps
        with contextlib.suppress(FileNotFoundError):
            os.stat(new, dir_fd=other, follow_symlinks=False)
            raise FileInTheWay(f"{shown} exists", remedy="overwrite it", path=shown) from error
        os.rename(name, new, src_dir_fd=fd, dst_dir_fd=other)
        return
    os.unlink(name, dir_fd=fd)


def require_match(fd: int, name: str, wanted: str, shown: str) -> None:
    """Raise FileChanged unless the file is the one that the caller means.

    wanted: its etag, its SHA-256, ``*`` for any file, ``-`` for none.
    """
    try:
        opened = paths.open_regular(fd, name, os.O_RDONLY, shown)
    except FileNotFoundError:
        if wanted == "-":
            return
        raise FileChanged(f"{shown} does not exist", remedy="look again", path=shown) from None
    try:
        found = entry(name, os.fstat(opened))
        if wanted in {"*", found.etag}:
            return
        if len(wanted) == 64 and Reading(opened, found, shown).sha256() == wanted:
            return
    finally:
        os.close(opened)
    raise FileChanged(
        f"{shown} is not the file that was seen" if wanted != "-" else f"{shown} exists",
        remedy="read it again, and write with the new if_match",
        path=shown,
        etag=found.etag,
    )


def _delete_tree(fd: int, name: str) -> int:
    gone = 0
    for _, folders, names, here in os.fwalk(name, topdown=False, dir_fd=fd, follow_symlinks=False):
        for one in names:
            os.unlink(one, dir_fd=here)
        for one in folders:
            if stat.S_ISLNK(os.stat(one, dir_fd=here, follow_symlinks=False).st_mode):
                os.unlink(one, dir_fd=here)
            else:
                os.rmdir(one, dir_fd=here)
        gone += len(names) + len(folders)
    os.rmdir(name, dir_fd=fd)
    return gone + 1
