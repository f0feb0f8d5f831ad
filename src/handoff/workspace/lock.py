"""One at a time, across processes and over the death of any of them. Standard library only.

The lock is ``flock`` on an open file. Git inherits the descriptor, so if agentd is killed
while git still works, the lock is held until that git has ended too.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator

from handoff.errors import TimedOut
from handoff.workspace.explain import storage_error

#: seconds that somebody else is waited for: longer than any git call may take
WAIT_LIMIT = 330.0


@contextlib.contextmanager
def held(path: str, what: str, *, limit: float = WAIT_LIMIT) -> Iterator[int]:
    """Hold the lock of a folder (nothing is written) or of a file that is made for it and
    removed at the end. Gives the descriptor.

    Raises:
        TimedOut: somebody held it for ``limit`` seconds.
        StorageError: the lock can't be opened or made.
    """
    deadline = time.monotonic() + limit
    is_folder = os.path.isdir(path)
    descriptor = _take(path, is_folder, what, deadline)
    try:
        yield descriptor
    finally:
        if not is_folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        os.close(descriptor)


def _take(path: str, is_folder: bool, what: str, deadline: float) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECTORY if is_folder else os.O_CREAT)
    while True:
        try:
            descriptor = os.open(path, flags | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise storage_error(error, f"can't lock {what}") from error
        try:
            if _lock(descriptor) and (is_folder or _still_named(descriptor, path)):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if time.monotonic() > deadline:
            raise TimedOut(
                f"another command works on {what} and did not end",
                remedy="look for a git command that hangs, then try again",
                lock=path,
            )
        time.sleep(0.01)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Some network file systems have no locks: git's own still hold there.
        if error.errno in {errno.ENOLCK, errno.ENOTSUP, errno.EINVAL}:
            return True
        raise
    return True


def _still_named(descriptor: int, path: str) -> bool:
    """Whether the file we locked is the one that others will find under its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
