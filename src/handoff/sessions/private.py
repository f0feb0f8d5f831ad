"""Files that belong to one user alone: folders 0700, files 0600, no links followed.

Every name is opened relative to the descriptor of the folder above it, and what was opened
is looked at again, so that nobody can put a link, a pipe or a foreign file in the way
between a look and a read. What was written has reached the disk, its name included, when
the call returns.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import stat
import time
from collections.abc import Iterator, Mapping

from handoff.errors import IntegrityFailed, StorageError, StorageFull, TimedOut, TooLarge

#: seconds for which one process waits for another's change, which takes milliseconds
WAIT = 20.0

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK the open of a pipe that somebody put there would wait for ever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@contextlib.contextmanager
def typed(path: str) -> Iterator[None]:
    """What the system says, as errors of ours. FileNotFoundError passes: its meaning is the
    caller's.

    Raises:
        StorageFull: no room, or no quota.
        IntegrityFailed: a link or something else stands where a file or folder must.
        StorageError: everything else.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise as_ours(error, path) from error


def as_ours(error: OSError, path: str) -> StorageError:
    """The typed error for what the system said about ``path``."""
    folder = shlex.quote(os.path.dirname(path) or ".")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageFull(f"no space left to write {path}", remedy=f"df -h -i {folder}", path=path)
    if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.EISDIR}:
        return IntegrityFailed(
            f"{path} is not the plain file or folder that was written",
            remedy=f"ls -ld {shlex.quote(path)}",
            path=path,
        )
    return StorageError(
        f"{path} can't be used: {error.strerror}", remedy=f"ls -ld {folder}", path=path
    )


def _check(found: os.stat_result, path: str) -> None:
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise StorageError(
            f"{path} is open to others, or is not this user's",
            remedy=f"chmod go-rwx {shlex.quote(path)}",
            path=path,
        )


@contextlib.contextmanager
def folder(root: str, *names: str) -> Iterator[int]:
    """The descriptor of ``root/names…``, each name opened without following links.

    Raises:
        FileNotFoundError: one of them is missing.
        StorageError: one of them belongs to, or is open to, somebody else.
        IntegrityFailed: one of them is a link or no folder.
    """
    path, fd = root, -1
    try:
        with typed(path):
            fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _check(os.fstat(fd), path)
        for name in names:
            path = os.path.join(path, name)
            with typed(path):
                below = os.open(name, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = below
            _check(os.fstat(fd), path)
        yield fd
    finally:
        if fd >= 0:
            os.close(fd)


def make(root: str, *names: str) -> None:
    """Make ``root/names…`` as far as it is missing; the new names reach the disk.

    Raises:
        StorageError: as the system says, or as :func:`folder`.
    """
    if not os.path.isdir(root):
        above = os.path.dirname(os.path.abspath(root))
        if not os.path.isdir(above):
            make(above)
        with typed(root), contextlib.suppress(FileExistsError):
            os.mkdir(root, 0o700)
            _sync_path(above)
    for number, name in enumerate(names):
        try:
            with folder(root, *names[: number + 1]):
                continue
        except FileNotFoundError:
            with folder(root, *names[:number]) as fd, typed(os.path.join(root, *names)):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=fd)
                os.fsync(fd)


def _sync_path(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read(fd: int, name: str, limit: int, path: str = "") -> bytes:
    """The bytes of one file in an open folder. ``path``: for messages.

    Raises:
        FileNotFoundError: there is none.
        TooLarge: it has more than ``limit`` bytes.
        IntegrityFailed, StorageError: it is no plain private file.
    """
    shown = os.path.join(path, name)
    with typed(shown):
        file = os.open(name, _FILE, dir_fd=fd)
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise IntegrityFailed(f"{shown} is no plain file", remedy="", path=shown)
            _check(found, shown)
            if found.st_size > limit:
                raise TooLarge(
                    f"{shown} has {found.st_size} bytes; {limit} are read",
                    size=found.st_size,
                    limit=limit,
                )
            parts, left = [], limit + 1
            while left > 0 and (data := os.read(file, left)):
                parts.append(data)
                left -= len(data)
            if left <= 0:
                raise TooLarge(f"{shown} grew beyond {limit} bytes", limit=limit)
            return b"".join(parts)
        finally:
            os.close(file)


def write_new(fd: int, name: str, data: bytes, path: str = "") -> None:
    """Write a file that is not there yet, to the disk. Its name is on the disk only after
    the folder has been synced.

    Raises:
        FileExistsError: there is one, untouched.
        StorageError, StorageFull: it is not there.
    """
    write_all(fd, {name: data}, path)


def write_all(fd: int, files: Mapping[str, bytes], path: str = "") -> None:
    """As :func:`write_new`, for several: all of them, or none. They are synced after the
    last one is written, which keeps the medium busy for a shorter time.

    Raises: as :func:`write_new`.
    """
    made: dict[str, int] = {}
    name = ""
    try:
        try:
            for name, data in files.items():
                made[name] = os.open(name, _NEW, 0o600, dir_fd=fd)
                left = memoryview(data)
                while left:
                    left = left[os.write(made[name], left) :]
            for file in made.values():
                os.fsync(file)
        finally:
            for file in made.values():
                os.close(file)
    except OSError as error:
        for one in made:
            with contextlib.suppress(OSError):
                os.unlink(one, dir_fd=fd)
        if isinstance(error, FileExistsError):
            raise
        raise as_ours(error, os.path.join(path, name)) from error


def put(fd: int, name: str, data: bytes, path: str = "", *, replace: bool = False) -> bool:
    """Make a small file appear whole: all of it under its name, or nothing. Returns False
    where there is one already (which ``replace`` replaces).

    Obligation: the caller holds the store's lock, so that nobody else uses the same
    temporary name.
    """
    fresh = f".{name}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=fd)
    write_new(fd, fresh, data, path)
    with typed(os.path.join(path, name)):
        try:
            if replace:
                os.replace(fresh, name, src_dir_fd=fd, dst_dir_fd=fd)
            else:
                os.link(fresh, name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=fd)
        os.fsync(fd)
    return True


def remove_folder(fd: int, name: str, path: str = "") -> None:
    """Remove a folder of plain files (not deeper), if it is there."""
    with typed(os.path.join(path, name)):
        try:
            below = os.open(name, _FOLDER, dir_fd=fd)
        except FileNotFoundError:
            return
        try:
            for entry in os.listdir(below):
                os.unlink(entry, dir_fd=below)
        finally:
            os.close(below)
        os.rmdir(name, dir_fd=fd)


@contextlib.contextmanager
def locked(root: str, name: str) -> Iterator[None]:
    """The queue of those who change something. The lock file is permanent.

    Raises:
        TimedOut: somebody has held it for :data:`WAIT` seconds.
        StorageError: as the system says.
    """
    make(root, "locks")
    path = os.path.join(root, "locks", name)
    with folder(root, "locks") as fd, typed(path):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(name, flags, 0o600, dir_fd=fd)
    try:
        end = time.monotonic() + WAIT
        while True:
            try:
                with typed(path):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except StorageError as error:
                if not isinstance(error.__cause__, BlockingIOError):
                    raise
                if time.monotonic() > end:
                    raise TimedOut(
                        f"another process has held {path} for {WAIT:.0f} s",
                        remedy=f"fuser -v {shlex.quote(path)}",
                    ) from None
                time.sleep(0.002)
        yield
    finally:
        os.close(file)
