"""Small files that belong to one user alone."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shlex
import stat

from handoff.errors import StorageError, StorageFull

__all__ = ["locked", "make_folder", "read_private", "write_new", "write_private"]

#: bytes of any file that is read here: keys, certificates, an imported store
LIMIT = 16 * 1024 * 1024


def _typed(error: OSError, path: str) -> StorageError:
    folder = shlex.quote(os.path.dirname(path) or ".")
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageFull(f"no space left to write {path}", remedy=f"df -h {folder}", path=path)
    said = error.strerror or str(error)
    return StorageError(f"{path} can't be used: {said}", remedy=f"ls -ld {folder}", path=path)


def locked(path: str) -> bool:
    """Whether a process holds a file's lock; no file, no lock."""
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def make_folder(path: str) -> None:
    """Make a folder, 0700, and those above it that are missing.

    Raises:
        StorageError: it can't be made, or something else stands there.
    """
    above = os.path.dirname(path)
    if above != path and above and not os.path.lexists(above):
        make_folder(above)
    try:
        os.mkdir(path or ".", 0o700)
    except OSError as error:
        if not os.path.isdir(path or "."):
            raise _typed(error, path) from error


def read_private(path: str, *, private: bool = True) -> bytes:
    """The content of a file of this user's, without following a link.

    Args:
        path: the file.
        private: refuse it if others may read it.

    Raises:
        FileNotFoundError: there is none; what that means is the caller's to say.
        StorageError: it can't be read, is no plain file, or is open to others.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _typed(error, path) from error
    try:
        _check(os.fstat(opened), path, private=private)
        with os.fdopen(opened, "rb", closefd=False) as file:
            return file.read(LIMIT)
    except OSError as error:
        raise _typed(error, path) from error
    finally:
        os.close(opened)


def _check(found: os.stat_result, path: str, *, private: bool) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_size > LIMIT:
        raise StorageError(f"{path} is not a plain, small file", path=path)
    if private and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
        raise StorageError(
            f"{path} is open to others, or is not this user's",
            remedy=f"chmod go-rwx {shlex.quote(path)}",
            path=path,
        )


def write_new(path: str, data: bytes) -> bool:
    """Write a file, 0600, unless one is there; whether it was written. Two processes at
    once: one writes, the other sees the first one's whole content.

    Raises:
        StorageError: it can't be written.
    """
    make_folder(os.path.dirname(path))
    draft = _draft(path, data)
    try:
        os.link(draft, path)
        _sync_folder(path)
    except FileExistsError:
        return False
    except OSError as error:
        raise _typed(error, path) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
    return True


def write_private(path: str, data: bytes) -> None:
    """Write a file, 0600, in place of what is there: whole or not at all.

    Raises:
        StorageError: it can't be written; what was there is as it was.
    """
    make_folder(os.path.dirname(path))
    draft = _draft(path, data)
    try:
        os.replace(draft, path)
        _sync_folder(path)
    except OSError as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise _typed(error, path) from error


def _draft(path: str, data: bytes) -> str:
    draft = f"{path}.{secrets.token_hex(8)}.new"
    try:
        opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise _typed(error, path) from error
    return draft


def _sync_folder(path: str) -> None:
    opened = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
