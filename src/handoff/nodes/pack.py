"""A tree of files as one stream of bytes, to be sent over a link or kept in a file.

A record is a length (four bytes, big end first), a header of that many bytes (a JSON
object), and, if the header says ``data``, the bytes of its ``segments``. Names are relative
to the tree's top, ``/`` between folders, as bytes that need not be text (``{"b64": …}``
then). A folder comes before what is in it. Header::

    {"path", "kind": "dir" | "file" | "link", "size", "permissions", "mtime_ns",
     "target", "sha256", "segments": [[offset, length], …], "data": true}
    {"path", "gone": true}                 it is to be removed
    {"path", "skipped": code, "detail"}    it was left out, and why
    {"end": true}                          the last record: without it the stream was cut

``segments`` leaves holes out: a sparse file costs what is in it. ``sha256`` is that of the
whole file, holes as zeros. Standard library only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from handoff.errors import ProtocolViolation

__all__ = ["Entry", "Packer", "Unpacker", "gathered"]

#: bytes of one header, names in one path, segments of one file
HEADER_LIMIT = 4 << 20
DEPTH = 4096
KINDS = frozenset({"dir", "file", "link"})
#: bytes that are sent in one go: a message for each small file would cost more than the file
TOGETHER = 256 * 1024
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Entry(NamedTuple):
    """One record's header; see the module. A tuple, of which a hundred thousand are made
    quickly."""

    path: str
    kind: str = ""
    size: int = 0
    permissions: int = 0
    mtime_ns: int = 0
    target: str = ""
    sha256: str = ""
    segments: tuple[tuple[int, int], ...] = ()
    data: bool = False
    gone: bool = False
    skipped: str = ""
    detail: str = ""
    end: bool = False

    @property
    def body(self) -> int:
        """Bytes that follow the header."""
        return sum(length for _, length in self.segments) if self.data else 0


class Packer:
    """Entries as bytes."""

    @staticmethod
    def header(entry: Entry) -> bytes:
        """A record up to its data."""
        value: dict[str, Any] = {}
        for name in ("kind", "size", "permissions", "mtime_ns", "sha256", "skipped", "detail"):
            if found := getattr(entry, name):
                value[name] = found
        for name in ("data", "gone", "end"):
            if getattr(entry, name):
                value[name] = True
        if not entry.end:
            value["path"] = _text(entry.path)
        if entry.target:
            value["target"] = _text(entry.target)
        if entry.segments:
            value["segments"] = [list(one) for one in entry.segments]
        text = _encode(value).encode()
        return len(text).to_bytes(4, "big") + text

    @staticmethod
    def end() -> bytes:
        """The last record."""
        return Packer.header(Entry("", end=True))


def gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of a good size."""
    found, size = list[bytes](), 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size >= TOGETHER:
            yield b"".join(found)
            found, size = [], 0
    if size:
        yield b"".join(found)


class Unpacker:
    """Bytes as entries and pieces of data: sans-I/O.

    Feed it what comes; it gives ``Entry`` and then its ``bytes`` pieces, the sum of which is
    ``Entry.body``.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0
        self.ended = False

    def feed(self, data: bytes) -> Iterator[Entry | bytes]:
        """What is complete now.

        Raises:
            ProtocolViolation: the stream is none of these.
        """
        if self._left and not self._buffer:
            taken = data[: self._left]
            self._left -= len(taken)
            if taken:
                yield taken
            data = data[len(taken) :]
        self._buffer += data
        while self._buffer:
            if self.ended:
                raise ProtocolViolation("bytes follow the end of a tree's stream")
            if self._left:
                taken = bytes(self._buffer[: self._left])
                del self._buffer[: len(taken)]
                self._left -= len(taken)
                yield taken
                continue
            if len(self._buffer) < 4:
                return
            length = int.from_bytes(self._buffer[:4], "big")
            if length > HEADER_LIMIT:
                raise ProtocolViolation("a header in a tree's stream is too large")
            if len(self._buffer) < 4 + length:
                return
            entry = _parse(bytes(self._buffer[4 : 4 + length]))
            del self._buffer[: 4 + length]
            self.ended = entry.end
            self._left = entry.body
            yield entry

    def close(self) -> None:
        """Nothing more comes.

        Raises:
            ProtocolViolation: the stream was cut.
        """
        if not self.ended or self._buffer or self._left:
            raise ProtocolViolation("a tree's stream was cut before its end")


def _text(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"b64": base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()}
    return text


def _name(value: Any) -> str:
    if isinstance(value, str):
        value.encode()  # a lone surrogate is no text
        return value
    raw = base64.b64decode(value["b64"], validate=True)
    return raw.decode("utf-8", "surrogateescape")


def _count(value: Any, most: int = 2**63 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError("no count")
    return value


def _parse(text: bytes) -> Entry:
    try:
        value = json.loads(text)
        if value.get("end") is True:
            return Entry("", end=True)
        path = _name(value["path"])
        _check_path(path)
        if value.get("gone") is True:
            return Entry(path, gone=True)
        if value.get("skipped"):
            return Entry(path, skipped=str(value["skipped"]), detail=str(value.get("detail", "")))
        made = Entry(
            path=path,
            kind=str(value["kind"]),
            size=_count(value.get("size", 0)),
            permissions=_count(value.get("permissions", 0), 0o7777),
            mtime_ns=_count(value.get("mtime_ns", 0)),
            target=_name(value["target"]) if "target" in value else "",
            sha256=str(value.get("sha256", "")),
            segments=tuple((_count(at), _count(count)) for at, count in value.get("segments", [])),
            data=value.get("data", False) is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolViolation(f"a header in a tree's stream is wrong: {error}") from error
    _check_entry(made)
    return made


def _check_path(path: str) -> None:
    names = path.split("/")
    if len(names) > DEPTH or "\0" in path:
        raise ValueError("no path")
    if path and any(name in {"", ".", ".."} or len(name) > 4096 for name in names):
        raise ValueError("a path that is not relative and plain")


def _check_entry(entry: Entry) -> None:
    end = 0
    for at, count in entry.segments:
        if at < end or at + count > entry.size:
            raise ProtocolViolation("the segments of a file overlap, or leave it")
        end = at + count
    wrong = (
        entry.kind not in KINDS
        or (entry.kind == "link" and (not entry.target or "\0" in entry.target))
        or (entry.kind != "file" and (entry.segments or entry.data))
    )
    if wrong:
        raise ProtocolViolation("an entry of a tree's stream contradicts itself")
