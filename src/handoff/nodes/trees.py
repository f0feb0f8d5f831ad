"""Whole trees of files: described, read and written name by name, without following a link.

Both ends use it: a node under its policy, the command line on its own machine. Every name
is opened relative to the descriptor of the folder above it. What can't be copied (a pipe, a
socket, a device, what may not be read) is named and left out; the rest is copied.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from handoff.errors import (
    FileChanged,
    HandoffError,
)
from handoff.nodes.node import paths
from handoff.nodes.node.files import PIECE
from handoff.nodes.pack import Entry, Packer

__all__ = ["Counts", "May", "gone", "manifest", "pack", "segments", "sha256"]

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: bytes of a file in which no hole is worth looking for
SMALL = 16 * 1024
#: raises PathNotAllowed for an absolute path that is kept from the caller
May = Callable[[str], None]


@dataclass(slots=True)
class Counts:
    """What a copy came to. ``skipped``: path, code, and why."""

    files: int = 0
    dirs: int = 0
    links: int = 0
    bytes: int = 0
    deleted: int = 0
    unchanged: int = 0
    skipped: list[tuple[str, str, str]] = field(default_factory=list)


def manifest(
    top: str, may: May, exclude: Sequence[str] = (), *, digests: bool = True
) -> Iterator[Entry]:
    """Every name below a folder, folders before what is in them; what is left out as entries
    with ``skipped``. ``top``: absolute, without links.

    digests: with the SHA-256 of each file.

    Raises:
        FileMissing, NotARegularFile, FileError: the top can't be read.
        PathNotAllowed: it may not be.
    """
    for entry, above, name in _walk(top, may, exclude):
        yield _digested(entry, above, name) if digests and entry.kind == "file" else entry


def _walk(top: str, may: May, exclude: Sequence[str]) -> Iterator[tuple[Entry, int, str]]:
    """Each name with the folder that it is in, open until the next is asked for."""
    may(top)
    with paths.typed(top), paths.folder(top, readable=True) as fd:
        yield _entry("", os.fstat(fd)), fd, ""
        yield from _below(fd, top, may, exclude)


def _below(fd: int, top: str, may: May, exclude: Sequence[str]) -> Iterator[tuple[Entry, int, str]]:
    """One folder's names, and theirs. The descriptors that are open are one a level."""
    stack: list[tuple[int, str, list[str]]] = [(os.dup(fd), "", _names(fd))]
    try:
        while stack:
            here, prefix, left = stack[-1]
            if not left:
                os.close(stack.pop()[0])
                continue
            name = left.pop()
            path = f"{prefix}/{name}" if prefix else name
            if exclude and _excluded(path, name, exclude):
                continue
            try:
                may(os.path.join(top, path))
                found = os.stat(name, dir_fd=here, follow_symlinks=False)
                entry = _look(here, name, path, found)
                yield entry, here, name
                if entry.kind == "dir":
                    below = os.open(name, _FOLDER, dir_fd=here)
                    try:
                        stack.append((below, path, _names(below)))
                    except BaseException:
                        os.close(below)
                        raise
            except (HandoffError, OSError) as error:
                yield _left_out(path, error), here, name
    finally:
        for one, _, _ in stack:
            os.close(one)


def _names(fd: int) -> list[str]:
    """A folder's names, the last first."""
    with os.scandir(fd) as found:
        return sorted((one.name for one in found), key=os.fsencode, reverse=True)


def _excluded(path: str, name: str, exclude: Sequence[str]) -> bool:
    return any(
        fnmatch.fnmatchcase(path if "/" in one else name, one.rstrip("/")) for one in exclude
    )


def _look(fd: int, name: str, path: str, found: os.stat_result) -> Entry:
    kind = paths.kind(found.st_mode)
    if kind == "link":
        return _entry(path, found)._replace(target=os.readlink(name, dir_fd=fd))
    if kind in {"dir", "file"}:
        return _entry(path, found)
    return Entry(path, skipped="not_a_regular_file", detail=f"a {kind} is not copied")


def _digested(entry: Entry, above: int, name: str) -> Entry:
    """A file with its digest."""
    try:
        opened = paths.open_regular(above, name, os.O_RDONLY, entry.path)
        try:
            parts = segments(opened, entry.size)
            return entry._replace(sha256=sha256(opened, entry.size, parts))
        finally:
            os.close(opened)
    except (HandoffError, OSError) as error:
        return _left_out(entry.path, error)


def _left_out(path: str, error: HandoffError | OSError) -> Entry:
    typed = error if isinstance(error, HandoffError) else paths.as_ours(error, path)
    return Entry(path, skipped=typed.code, detail=typed.cause)


def _entry(path: str, found: os.stat_result) -> Entry:
    kind = paths.kind(found.st_mode)
    return Entry(
        path,
        kind if kind in {"dir", "file", "link"} else "",
        size=found.st_size if kind == "file" else 0,
        permissions=stat.S_IMODE(found.st_mode),
        mtime_ns=max(0, found.st_mtime_ns),
    )


def pack(
    top: str, may: May, exclude: Sequence[str] = (), only: Sequence[str] | None = None
) -> Iterator[bytes]:
    """A tree as a stream. only: the files whose content is wanted; folders, links and what
    is left out are told in any case. A file that is written to meanwhile is left out.

    Raises as :func:`manifest`.
    """
    wanted = None if only is None else set(only)
    for entry, above, name in _walk(top, may, exclude):
        if entry.kind != "file":
            yield Packer.header(entry)
        elif wanted is None or entry.path in wanted:
            yield from _pack_file(above, name, entry.path)
    yield Packer.end()


def _pack_file(above: int, name: str, shown: str) -> Iterator[bytes]:
    """A file with its bytes. Its header promises what follows, so a file that shrinks is
    filled up, and the record after it takes it back."""
    try:
        opened = paths.open_regular(above, name, os.O_RDONLY, shown)
    except (HandoffError, OSError) as error:
        yield Packer.header(_left_out(shown, error))
        return
    try:
        before = os.fstat(opened)
        parts = segments(opened, before.st_size)
        yield Packer.header(_entry(shown, before)._replace(segments=tuple(parts), data=True))
        for offset, count in parts:
            end = offset + count
            while offset < end:
                data = os.pread(opened, min(PIECE, end - offset), offset)
                data = data or bytes(min(PIECE, end - offset))
                yield data
                offset += len(data)
        after = os.fstat(opened)
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            changed = FileChanged(f"{shown} was written to while it was read")
            yield Packer.header(Entry(shown, skipped=changed.code, detail=changed.cause))
    finally:
        os.close(opened)


def gone(source: Iterable[Entry], target: Iterable[Entry]) -> list[str]:
    """What a target has and its source has not, what is in a folder before the folder. Where
    nobody could look into the source (an entry with ``skipped``) nothing counts as gone."""
    names, unseen = set[str](), set[str]()
    for one in source:
        names.add(one.path)
        if one.skipped:
            unseen.add(one.path)
    found = [one.path for one in target if one.path not in names]
    if unseen:
        found = [path for path in found if not _under(path, unseen)]
    return sorted(found, reverse=True)


def _under(path: str, tops: set[str]) -> bool:
    while path:
        path = path.rpartition("/")[0]
        if path in tops:
            return True
    return False


def segments(fd: int, size: int) -> list[tuple[int, int]]:
    """Where a file has data; the holes between take no place."""
    if size <= SMALL:
        return [(0, size)] if size else []
    found: list[tuple[int, int]] = []
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
            end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError as error:
            import errno

            if error.errno == errno.ENXIO:  # nothing but a hole follows
                break
            return [(0, size)]
        end = min(end, size)
        if end <= start:
            break
        found.append((start, end - start))
        at = end
    return found


_ZEROS = bytes(PIECE)


def sha256(fd: int, size: int, parts: Sequence[tuple[int, int]]) -> str:
    """The digest of the whole file, holes as zeros, without reading them."""
    mark, at = hashlib.sha256(), 0
    for offset, count in [*parts, (size, 0)]:
        while at < offset:
            step = min(PIECE, offset - at)
            mark.update(_ZEROS[:step])
            at += step
        end = offset + count
        while at < end and (data := os.pread(fd, min(PIECE, end - at), at)):
            mark.update(data)
            at += len(data)
    return mark.hexdigest()
