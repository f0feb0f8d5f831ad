"""Writing a tree that comes as one stream: each file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import sys

from handoff.errors import HandoffError, IntegrityFailed, ProtocolViolation
from handoff.nodes.drafts import draft, free
from handoff.nodes.node import paths
from handoff.nodes.pack import Entry, Unpacker
from handoff.nodes.trees import Counts, May, segments, sha256

__all__ = ["TreeWriter"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TreeWriter:
    """Writes a stream of :func:`pack` below a folder, which is made if it is missing.

    Each file is there whole or not at all, whatever is killed; against a loss of power the whole
    tree is brought to the disk before :meth:`close` returns. What stands in the way as another
    kind (a folder where a file should be, a pipe) is left, and named. ``delete``: what the
    stream says is gone is removed. ``dry_run``: nothing is written, only counted. ``bits``:
    the permission bits that are taken over.
    """

    def __init__(
        self,
        top: str,
        may: May,
        *,
        delete: bool = False,
        dry_run: bool = False,
        bits: int = 0o7777,
    ) -> None:
        self._top = top
        self._may = may
        self._delete = delete
        self._dry = dry_run
        self._bits = bits
        self._begun = False
        self._unpacker = Unpacker()
        self.counts = Counts()
        self._entry: Entry | None = None
        self._file = -1
        self._part = ""
        #: the folder that was written to last, open, and the name in it; where it is
        self._where = (-1, "")
        self._above: str | None = None
        self._left: list[tuple[int, int]] = []
        self._late: list[Entry] = []
        self._root = -1

    def feed(self, *pieces: bytes) -> None:
        """The next bytes of the stream.

        Raises:
            ProtocolViolation: it is no such stream.
            StorageFull: the disk is; what was written before is whole.
            HandoffError: the top may not be written, or can't be.
        """
        for data in pieces:
            for one in self._unpacker.feed(data):
                if isinstance(one, bytes):
                    self._data(one)
                else:
                    self._begin(one)

    def close(self) -> Counts:
        """The stream is over.

        Raises:
            ProtocolViolation: it was cut.
        """
        try:
            self._unpacker.close()
            self._finish()
            self._dress_folders()
        finally:
            self.abort()
        return self.counts

    def abort(self) -> None:
        """Leave nothing half written."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with contextlib.suppress(OSError):
                os.unlink(self._part, dir_fd=self._where[0])
        for fd in (self._where[0], self._root):
            if fd >= 0:
                os.close(fd)
        self._where, self._root, self._above = (-1, ""), -1, None

    def _begin(self, entry: Entry) -> None:
        if entry.skipped:
            self._take_back(entry)
            return
        self._finish()
        if entry.end:
            return
        if not self._begun or not entry.path:
            self._open_top(entry)
            return
        try:
            self._may(os.path.join(self._top, entry.path))
            self._write(entry)
        except HandoffError as error:
            self._skip(entry, error)
        except OSError as error:
            typed = paths.as_ours(error, entry.path)
            if typed.code == "storage_full":
                raise typed from error
            self._skip(entry, typed)

    def _skip(self, entry: Entry, error: HandoffError) -> None:
        self.counts.skipped.append((entry.path, error.code, error.cause))

    def _take_back(self, entry: Entry) -> None:
        """The sender leaves something out, maybe what it has just sent."""
        if self._entry is not None and self._entry.path == entry.path:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
                with contextlib.suppress(OSError):
                    os.unlink(self._part, dir_fd=self._where[0])
            self._entry = None
        else:
            self._finish()
        self.counts.skipped.append((entry.path, entry.skipped, entry.detail))

    def _write(self, entry: Entry) -> None:
        if entry.gone:
            if self._delete:
                self._remove(entry)
        elif entry.kind == "dir":
            self._folder(entry)
        elif entry.kind == "link":
            self._link(entry)
        elif entry.data:
            self._open_file(entry)
        else:
            self.counts.unchanged += 1

    def _folder(self, entry: Entry) -> None:
        if not self._dry:
            fd, name = self._enter(entry.path)
            try:
                os.mkdir(name, 0o700 | (entry.permissions & self._bits), dir_fd=fd)
            except FileExistsError:
                os.close(os.open(name, _FOLDER, dir_fd=fd))
        self.counts.dirs += 1
        self._late.append(entry)

    def _open_top(self, entry: Entry) -> None:
        if self._begun or entry.path or entry.kind != "dir":
            raise ProtocolViolation("a tree's stream does not begin with its top, a folder")
        self._begun = True
        self._may(self._top)
        self._late.append(entry)
        with paths.typed(self._top), paths.leaf(self._top) as (fd, name):
            with contextlib.suppress(FileExistsError):
                if not self._dry:
                    os.mkdir(name, 0o700 | (entry.permissions & self._bits), dir_fd=fd)
            try:
                root = os.open(name, _FOLDER, dir_fd=fd)
            except FileNotFoundError:
                if not self._dry:
                    raise
                return
            if self._dry:
                os.close(root)
            else:
                self._root = root

    def _link(self, entry: Entry) -> None:
        if not self._dry and not self._linked(entry):
            self._make_link(entry)
        self.counts.links += 1

    def _linked(self, entry: Entry) -> bool:
        fd, name = self._enter(entry.path)
        with contextlib.suppress(OSError):
            return os.readlink(name, dir_fd=fd) == entry.target
        return False

    def _make_link(self, entry: Entry) -> None:
        fd, name = self._where
        free(fd, name)
        # a file that is this writer's alone keeps the name of the link until there is one
        held, part = draft(fd, name, entry.path)
        link = f"{part}.link"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(link, dir_fd=fd)
            os.symlink(entry.target, link, dir_fd=fd)
            times = (entry.mtime_ns, entry.mtime_ns)
            os.utime(link, ns=times, dir_fd=fd, follow_symlinks=False)
            os.replace(link, name, src_dir_fd=fd, dst_dir_fd=fd)
        finally:
            for one in (link, part):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(one, dir_fd=fd)
            os.close(held)

    def _remove(self, entry: Entry) -> None:
        if not self._dry:
            fd, name = self._enter(entry.path)
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                return
            if stat.S_ISDIR(found.st_mode):
                os.rmdir(name, dir_fd=fd)
                self._above = None  # it may be the one that is open, and be made anew
            else:
                os.unlink(name, dir_fd=fd)
        self.counts.deleted += 1

    def _open_file(self, entry: Entry) -> None:
        self._left = list(entry.segments)
        if not self._dry:
            fd, name = self._enter(entry.path)
            free(fd, name)
            self._file, self._part = draft(fd, name, entry.path)
            # what ends in a hole; else its last byte makes it as long
            if not self._left or sum(self._left[-1]) != entry.size:
                os.ftruncate(self._file, entry.size)
        self._entry = entry

    def _data(self, data: bytes) -> None:
        if self._file < 0:
            return
        view = memoryview(data)
        entry = self._entry
        assert entry is not None
        with paths.typed(entry.path):
            while view:
                at, count = self._left[0]
                done = os.pwrite(self._file, view[: min(count, len(view))], at)
                view = view[done:]
                self._left[0] = (at + done, count - done)
                if done == count:
                    del self._left[0]

    def _finish(self) -> None:
        """The file under way is complete: it takes its place."""
        entry, self._entry = self._entry, None
        if entry is None:
            return
        if self._dry:
            self._count(entry)
            return
        fd, name = self._where
        try:
            if entry.sha256 and sha256(
                self._file, entry.size, segments(self._file, entry.size)
            ) != (entry.sha256):
                raise IntegrityFailed(f"{entry.path} is not what was announced")
            with paths.typed(entry.path):
                os.fchmod(self._file, entry.permissions & self._bits)
                os.utime(self._file, ns=(entry.mtime_ns, entry.mtime_ns))
                os.replace(self._part, name, src_dir_fd=fd, dst_dir_fd=fd)
            self._count(entry)
        except HandoffError as error:
            with contextlib.suppress(OSError):
                os.unlink(self._part, dir_fd=fd)
            if error.code == "storage_full":
                raise
            self._skip(entry, error)
        finally:
            os.close(self._file)
            self._file = -1

    def _count(self, entry: Entry) -> None:
        self.counts.files += 1
        self.counts.bytes += entry.body

    def _enter(self, path: str) -> tuple[int, str]:
        """The folder above a name, opened from the top without following a link, and kept
        open for the names that follow."""
        above, _, name = path.rpartition("/")
        if self._where[0] >= 0 and above == self._above:
            self._where = (self._where[0], name)
            return self._where
        fd = os.dup(self._root)
        try:
            for one in above.split("/") if above else ():
                below = os.open(one, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = below
        except BaseException:
            os.close(fd)
            raise
        if self._where[0] >= 0:
            os.close(self._where[0])
        self._where, self._above = (fd, name), above
        return self._where

    def _dress_folders(self) -> None:
        """Bits and times of folders, the innermost first: writing into them changed both."""
        for entry in reversed(self._late):
            if self._dry or self._root < 0:
                continue
            try:
                if entry.path:
                    above, name = self._enter(entry.path)
                    fd = os.open(name, _FOLDER, dir_fd=above)
                else:
                    fd = os.dup(self._root)
                try:
                    os.fchmod(fd, entry.permissions & self._bits)
                    os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))
                finally:
                    os.close(fd)
            except OSError as error:
                self._skip(entry, paths.as_ours(error, entry.path))
        if self._root >= 0:
            sync_files(self._root)


def sync_files(fd: int) -> None:
    """Bring everything that was written to a folder's file system to the disk: once for the
    whole tree, where a sync for each file would take most of the time."""
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None).syncfs(fd) == 0:
            return
    os.sync()
