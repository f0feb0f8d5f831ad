"""Writing one file of a node, piece by piece, to be there whole or not at all.

What arrives goes into a file beside the place, named after the call, so that a transfer
that was cut goes on where it was: the same call asks how far it came (:attr:`Writing.have`
and its digest) and sends the rest. ``commit`` brings it to the disk and puts it in the
place in one step.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable
from typing import NamedTuple

from handoff.errors import FileChanged, FileInTheWay, FileMissing, IntegrityFailed, UsageError
from handoff.nodes.node import paths
from handoff.nodes.node.files import PIECE, Entry, entry, rename_new, require_match, sync_folder
from handoff.nodes.node.paths import typed
from handoff.nodes.node.policy import Policy

__all__ = ["MODES", "Order", "Writing", "Written", "forget"]

MODES = ("create", "overwrite", "append")
# asked once, while nothing else runs: asking sets it for a moment
_UMASK = os.umask(0o077)
os.umask(_UMASK)
#: bytes after which the disk begins
EARLY = 8 << 20
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h: begin, and wait for nothing
_sync_range: Callable[[int, int, int, int], int] | None = None
if sys.platform == "linux":
    with contextlib.suppress(AttributeError):
        _sync_range = ctypes.CDLL(None).sync_file_range
        _sync_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_KEY = re.compile(r"[A-Za-z0-9._-]{8,64}\Z")


class Order(NamedTuple):
    """What is to be written. ``key``: of the call. ``mode``: one of :data:`MODES`.
    ``if_match``: what must stand there until the last moment
    (:func:`handoff.nodes.node.files.require_match`), "" for whatever does. ``perm``: permission bits of the result; None keeps those
    of the file it replaces. ``size`` and ``sha256``: what the caller means to send, checked
    at the end if given."""

    key: str
    path: str
    mode: str = "overwrite"
    if_match: str = ""
    perm: int | None = None
    mtime_ns: int | None = None
    size: int | None = None
    sha256: str = ""


class Written(NamedTuple):
    """``bytes``: how many this call wrote. ``sha256``: of what it wrote. ``file``: what stands
    there now. ``created``: nothing stood there before."""

    bytes: int
    sha256: str
    file: Entry
    created: bool


class Writing:
    """One file under way.

    Raises:
        UsageError: an order that makes no sense.
        PathNotAllowed, FileMissing (no folder), FileInTheWay (``create``), FileChanged,
        NotARegularFile, StorageFull, FileError.
    """

    def __init__(self, order: Order, policy: Policy, home: str) -> None:
        _check(order)
        self._order = order
        self._place = paths.locate(order.path, home)
        policy.require_write(self._place.real, order.path)
        self._hash = hashlib.sha256()
        self.have = 0
        """Bytes that are here already."""
        self._file = -1
        self._start = 0
        #: how many of them the disk was told to begin with
        self._begun = 0
        try:
            with typed(order.path), paths.leaf(self._place.real) as (fd, name):
                self._before(fd, name)
                if order.mode == "append":
                    self._open_end(fd, name)
                else:
                    self._part = part_name(name, order.key)
                    self._open_part(fd)
        except FileMissing as error:
            if os.path.isdir(os.path.dirname(self._place.real)):
                raise
            above = os.path.dirname(order.path)
            raise FileMissing(
                f"the folder {above} does not exist",
                remedy=f"make it there: mkdir -p {paths.quoted(above)}",
                path=order.path,
            ) from error

    @property
    def sha256(self) -> str:
        """The digest of the first :attr:`have` bytes."""
        return self._hash.hexdigest()

    def feed(self, *pieces: bytes) -> None:
        """The next bytes.

        Raises:
            StorageFull, FileError: nothing of this call is left then.
        """
        try:
            with typed(self._order.path):
                for data in pieces:
                    self._append(memoryview(data))
                if self.have - self._begun >= EARLY:
                    self._begin()
        except BaseException:
            self.abort()
            raise

    def _append(self, view: memoryview) -> None:
        while view:
            count = os.write(self._file, view[:PIECE])
            self._hash.update(view[:count])
            self.have += count
            view = view[count:]

    def _begin(self) -> None:
        """Let the disk begin with what has come, so that little is left to wait for at the
        end, and what the system holds of a large file stays small."""
        if _sync_range is not None:
            at = self._start + self._begun
            _sync_range(self._file, at, self.have - self._begun, _SYNC_FILE_RANGE_WRITE)
        self._begun = self.have

    def commit(self) -> Written:
        """Put it in its place.

        Raises:
            IntegrityFailed: what came is not what was announced.
            FileChanged, FileInTheWay: somebody changed the place meanwhile.
            StorageFull, FileError. The old content is whole in each case.
        """
        try:
            self._complete()
            with typed(self._order.path):
                if self._order.mode == "append":
                    return self._commit_end()
                with paths.leaf(self._place.real) as (fd, name):
                    return self._commit_part(fd, name)
        except BaseException:
            self.abort()
            raise

    def abort(self) -> bool:
        """Leave the old content, and nothing of ours. False: bytes of ours may stand at its
        end, because somebody else's stand behind them."""
        if self._file < 0:
            return True
        clean = True
        if self._order.mode == "append":
            clean = not self.have
            # only what we wrote: somebody else's bytes may stand behind ours
            with contextlib.suppress(OSError):
                if os.fstat(self._file).st_size == self._start + self.have:
                    os.ftruncate(self._file, self._start)
                    clean = True
        else:
            with contextlib.suppress(OSError), paths.leaf(self._place.real) as (fd, _):
                os.unlink(self._part, dir_fd=fd)
        self.pause()
        return clean

    def pause(self) -> None:
        """Let go of it, to be taken up by the same call later. An append has no later."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _before(self, fd: int, name: str) -> None:
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            self._old: os.stat_result | None = None
        else:
            self._old = found
            if self._order.mode == "create" and not self._linked(fd, name, found):
                raise FileInTheWay(
                    f"{self._order.path} exists", remedy="overwrite it", path=self._order.path
                )
            # a folder or pipe is refused before anything is sent
            os.close(paths.open_regular(fd, name, os.O_RDONLY, self._order.path))
        if self._order.if_match:
            require_match(fd, name, self._order.if_match, self._order.path)

    def _linked(self, fd: int, name: str, found: os.stat_result) -> bool:
        """Whether this call's own bytes stand there: killed before it could say so."""
        with contextlib.suppress(OSError):
            part = os.stat(part_name(name, self._order.key), dir_fd=fd, follow_symlinks=False)
            return os.path.samestat(part, found)
        return False

    def _open_part(self, fd: int) -> None:
        flags = os.O_RDWR | os.O_CREAT
        self._file = paths.open_regular(fd, self._part, flags, self._order.path, 0o600)
        try:
            while data := os.read(self._file, PIECE):
                self._hash.update(data)
                self.have += len(data)
        except OSError:
            self.pause()
            raise

    def _open_end(self, fd: int, name: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        perm = 0o666 if self._order.perm is None else self._order.perm
        self._file = paths.open_regular(fd, name, flags, self._order.path, perm)
        self._start = os.fstat(self._file).st_size

    def _complete(self) -> None:
        order = self._order
        if order.size is not None and order.size != self.have:
            raise IntegrityFailed(
                f"{order.path}: {self.have} bytes came of {order.size}", remedy="send it again"
            )
        if order.sha256 and order.sha256 != self.sha256:
            raise IntegrityFailed(
                f"{order.path}: the bytes that came have another digest", remedy="send it again"
            )

    def _commit_end(self) -> Written:
        if self._order.perm is not None:
            os.fchmod(self._file, self._order.perm)
        os.fsync(self._file)
        if self._order.mtime_ns is not None:
            os.utime(self._file, ns=(self._order.mtime_ns, self._order.mtime_ns))
        found = os.fstat(self._file)
        name = os.path.basename(self._place.real)
        self.pause()
        return Written(self.have, self.sha256, entry(name, found), self._old is None)

    def _commit_part(self, fd: int, name: str) -> Written:
        self._dress()
        os.fsync(self._file)
        found = os.fstat(self._file)
        if self._order.if_match:
            require_match(fd, name, self._order.if_match, self._order.path)
        if self._order.mode == "create":
            rename_new(fd, self._part, fd, name, self._order.path)
        else:
            self._still_a_file(fd, name)
            os.replace(self._part, name, src_dir_fd=fd, dst_dir_fd=fd)
        sync_folder(fd)
        self.pause()
        return Written(self.have, self.sha256, entry(name, found), self._old is None)

    def _dress(self) -> None:
        """Owner, permission bits and time of the result."""
        perm = self._order.perm
        if self._old is not None:
            with contextlib.suppress(PermissionError):  # it stays ours then
                os.fchown(self._file, self._old.st_uid, self._old.st_gid)
            if perm is None:
                perm = stat.S_IMODE(self._old.st_mode)
        if perm is None:
            perm = 0o666 & ~_UMASK
        os.fchmod(self._file, perm)
        if self._order.mtime_ns is not None:
            os.utime(self._file, ns=(self._order.mtime_ns, self._order.mtime_ns))

    def _still_a_file(self, fd: int, name: str) -> None:
        """What stands there was not swapped for something else while bytes came."""
        with contextlib.suppress(FileNotFoundError):
            now = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if not stat.S_ISREG(now.st_mode):
                raise FileChanged(
                    f"{self._order.path} is a plain file no more",
                    remedy="look again",
                    path=self._order.path,
                )


def _check(order: Order) -> None:
    if order.mode not in MODES:
        raise UsageError(f"mode {order.mode!r} is not one of {', '.join(MODES)}")
    if not _KEY.match(order.key):
        raise UsageError("a call's key is 8 to 64 of A-Z a-z 0-9 . _ -")
    if order.perm is not None and not 0 <= order.perm <= 0o7777:
        raise UsageError(f"{order.perm:o} are no permission bits", remedy="give 0 to 7777")
    if order.size is not None and order.size < 0:
        raise UsageError("size counts bytes from 0")


def part_name(name: str, key: str) -> str:
    """What a file is called while it arrives: short enough for any folder, one a call."""
    mark = hashlib.sha256(f"{key}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()[:20]
    return f".handoff-{mark}.part"


def forget(path: str, key: str, home: str) -> bool:
    """Remove what a call left behind that will not be taken up again. Returns whether
    there was something. Raises FileError."""
    place = paths.locate(path, home)
    try:
        with typed(path), paths.leaf(place.real) as (fd, name):
            os.unlink(part_name(name, key), dir_fd=fd)
    except FileMissing:
        return False
    return True
