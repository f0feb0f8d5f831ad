"""Calls about files and trees on the node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from handoff.wire.node import results
from handoff.wire.node.commands import INLINE_LIMIT, PATH_LIMIT, Call, check_key
from handoff.wire.node.commands import _bad as bad
from handoff.wire.node.commands import _count as count
from handoff.wire.node.commands import _one_of as one_of
from handoff.wire.node.results import Result
from handoff.wire.node.shapes import Data, Text, text

__all__ = [
    "WRITE_MODES",
    "Delete",
    "Edit",
    "Glob",
    "Grep",
    "Hash",
    "List",
    "Mkdir",
    "Move",
    "Read",
    "SetMeta",
    "Stat",
    "TransferStat",
    "TreeGet",
    "TreeManifest",
    "TreePut",
    "Write",
]

WRITE_MODES = frozenset({"overwrite", "create", "append"})


def _path(value: str, name: str = "path") -> None:
    if not value or "\0" in value:
        raise bad(f"'{name}' must be a path", name)


@dataclass(frozen=True, slots=True)
class Stat(Call):
    """What a path is. ``follow``: of the link's target. ``hash``: with SHA-256."""

    path: Text = text(PATH_LIMIT)
    follow: bool = True
    hash: bool = False

    op: ClassVar[str] = "stat"
    result: ClassVar[type[Result]] = results.FileInfo

    def _check(self) -> None:
        _path(self.path)


@dataclass(frozen=True, slots=True)
class List(Call):
    """A folder's entries, at most ``limit``, those after the name ``after``."""

    path: Text = text(PATH_LIMIT)
    limit: int = 1_000
    after: Text = text(PATH_LIMIT, "")

    op: ClassVar[str] = "list"
    result: ClassVar[type[Result]] = results.Listing

    def _check(self) -> None:
        _path(self.path)
        count(self.limit, "limit", 10_000)


@dataclass(frozen=True, slots=True)
class Glob(Call):
    """Paths under ``path`` that fit ``pattern`` (``**`` crosses folders)."""

    path: Text = text(PATH_LIMIT)
    pattern: Text = text(PATH_LIMIT, "**")
    limit: int = 1_000

    op: ClassVar[str] = "glob"
    result: ClassVar[type[Result]] = results.Listing

    def _check(self) -> None:
        _path(self.path)
        count(self.limit, "limit", 10_000)


@dataclass(frozen=True, slots=True)
class Grep(Call):
    """Lines under ``path`` that fit a regular expression (or, ``fixed``, a text)."""

    path: Text = text(PATH_LIMIT)
    pattern: Text = text(PATH_LIMIT)
    files: Text = text(PATH_LIMIT, "**")
    fixed: bool = False
    ignore_case: bool = False
    limit: int = 1_000

    op: ClassVar[str] = "grep"
    result: ClassVar[type[Result]] = results.Matches

    def _check(self) -> None:
        _path(self.path)
        count(self.limit, "limit", 10_000)


@dataclass(frozen=True, slots=True)
class Read(Call):
    """A file, from ``offset``, ``length`` bytes (-1: to its end).

    Without ``stream`` at most :data:`INLINE_LIMIT` bytes come in the answer. With it any
    number come as the stream ``data``, and the answer describes them. ``if_match``: fail
    unless the file still has that etag (a read that goes on where another was cut).
    """

    path: Text = text(PATH_LIMIT)
    offset: int = 0
    length: int = -1
    stream: bool = False
    if_match: str = text(128, "")

    op: ClassVar[str] = "read"
    gives: ClassVar[tuple[str, ...]] = ("data",)
    result: ClassVar[type[Result]] = results.ReadResult

    def _check(self) -> None:
        _path(self.path)
        count(self.offset, "offset")
        if self.length != -1:
            count(self.length, "length")


@dataclass(frozen=True, slots=True)
class Write(Call):
    """Write a file: ``overwrite`` (atomic), ``create`` (fail if it exists) or ``append``.

    The content is ``data``, or with ``stream`` what comes as the stream ``data``, from
    ``offset`` of ``size`` bytes whose digest is ``sha256``. ``transfer`` names the upload,
    so that one that was cut goes on (see :class:`TransferStat`). ``if_match``: the etag that
    the file must have, ``*`` any, ``-`` none (it must not exist). ``permissions`` and
    ``mtime_ns`` -1 leave them as they are.
    """

    path: Text = text(PATH_LIMIT)
    data: Data = text(INLINE_LIMIT, b"")
    mode: str = text(16, "overwrite")
    stream: bool = False
    size: int = -1
    offset: int = 0
    sha256: str = text(64, "")
    transfer: str = text(64, "")
    if_match: str = text(128, "")
    permissions: int = -1
    mtime_ns: int = -1
    parents: bool = False

    op: ClassVar[str] = "write"
    reads: ClassVar[bool] = False
    takes: ClassVar[str] = "data"
    result: ClassVar[type[Result]] = results.WriteResult

    def _check(self) -> None:
        _path(self.path)
        one_of(self.mode, WRITE_MODES, "mode")
        count(self.offset, "offset")
        count(self.permissions + 1, "permissions", 0o10000)
        if self.stream and self.data:
            raise bad("content comes in the call or in a stream, not both", "data")
        if self.transfer:
            check_key(self.transfer, "transfer")
        if self.offset and not self.transfer:
            raise bad("'offset' needs a 'transfer' to go on with", "offset")


@dataclass(frozen=True, slots=True)
class TransferStat(Call):
    """How much of an upload has arrived."""

    transfer: str = text(64)

    op: ClassVar[str] = "transfer_stat"
    result: ClassVar[type[Result]] = results.TransferInfo


@dataclass(frozen=True, slots=True)
class Edit(Call):
    """Replace ``old`` by ``new`` in a file, in bytes. It must occur ``count`` times (-1:
    any number but none)."""

    path: Text = text(PATH_LIMIT)
    old: Data = text(INLINE_LIMIT)
    new: Data = text(INLINE_LIMIT, b"")
    count: int = 1
    if_match: str = text(128, "")

    op: ClassVar[str] = "edit"
    reads: ClassVar[bool] = False
    result: ClassVar[type[Result]] = results.WriteResult

    def _check(self) -> None:
        _path(self.path)
        if not self.old:
            raise bad("'old' is empty", "old")


@dataclass(frozen=True, slots=True)
class Mkdir(Call):
    """Make a folder; one that is there is fine."""

    path: Text = text(PATH_LIMIT)
    parents: bool = True
    permissions: int = -1

    op: ClassVar[str] = "mkdir"
    reads: ClassVar[bool] = False
    result: ClassVar[type[Result]] = results.Done

    def _check(self) -> None:
        _path(self.path)
        count(self.permissions + 1, "permissions", 0o10000)


@dataclass(frozen=True, slots=True)
class Move(Call):
    """Rename; ``overwrite`` replaces a file that is there."""

    path: Text = text(PATH_LIMIT)
    to: Text = text(PATH_LIMIT)
    overwrite: bool = False

    op: ClassVar[str] = "move"
    reads: ClassVar[bool] = False
    result: ClassVar[type[Result]] = results.Done

    def _check(self) -> None:
        _path(self.path)
        _path(self.to, "to")


@dataclass(frozen=True, slots=True)
class Delete(Call):
    """Remove a file, link or empty folder, or with ``recursive`` a whole tree.
    ``missing_ok``: nothing there is fine."""

    path: Text = text(PATH_LIMIT)
    recursive: bool = False
    missing_ok: bool = False
    if_match: str = text(128, "")

    op: ClassVar[str] = "delete"
    reads: ClassVar[bool] = False
    result: ClassVar[type[Result]] = results.Done

    def _check(self) -> None:
        _path(self.path)


@dataclass(frozen=True, slots=True)
class SetMeta(Call):
    """Set permissions or modification time; -1 leaves one as it is."""

    path: Text = text(PATH_LIMIT)
    permissions: int = -1
    mtime_ns: int = -1

    op: ClassVar[str] = "set_meta"
    reads: ClassVar[bool] = False
    result: ClassVar[type[Result]] = results.Done

    def _check(self) -> None:
        _path(self.path)
        count(self.permissions + 1, "permissions", 0o10000)


@dataclass(frozen=True, slots=True)
class Hash(Call):
    """A file's SHA-256, and with ``block_bytes`` those of its blocks."""

    path: Text = text(PATH_LIMIT)
    block_bytes: int = 0

    op: ClassVar[str] = "hash"
    result: ClassVar[type[Result]] = results.Hashes

    def _check(self) -> None:
        _path(self.path)
        if self.block_bytes and not 4096 <= self.block_bytes <= 2**30:
            raise bad("'block_bytes' must be between 4096 and 1 GiB", "block_bytes")


@dataclass(frozen=True, slots=True)
class TreeManifest(Call):
    """Everything under a folder as the stream ``data``: a pack of headers (``pack``)."""

    path: Text = text(PATH_LIMIT)
    exclude: tuple[Text, ...] = text(1_000, ())
    hash: bool = True

    op: ClassVar[str] = "tree_manifest"
    gives: ClassVar[tuple[str, ...]] = ("data",)
    result: ClassVar[type[Result]] = results.TreeResult

    def _check(self) -> None:
        _path(self.path)


@dataclass(frozen=True, slots=True)
class TreeGet(Call):
    """Files under a folder as a pack in the stream ``data``. ``only``: these names."""

    path: Text = text(PATH_LIMIT)
    exclude: tuple[Text, ...] = text(1_000, ())
    only: tuple[Text, ...] = text(100_000, ())

    op: ClassVar[str] = "tree_get"
    gives: ClassVar[tuple[str, ...]] = ("data",)
    result: ClassVar[type[Result]] = results.TreeResult

    def _check(self) -> None:
        _path(self.path)


@dataclass(frozen=True, slots=True)
class TreePut(Call):
    """Write the pack that comes as the stream ``data`` under a folder. ``delete``: remove
    what the pack lists as gone."""

    path: Text = text(PATH_LIMIT)
    delete: bool = False
    dry_run: bool = False

    op: ClassVar[str] = "tree_put"
    reads: ClassVar[bool] = False
    takes: ClassVar[str] = "data"
    result: ClassVar[type[Result]] = results.TreeResult

    def _check(self) -> None:
        _path(self.path)
