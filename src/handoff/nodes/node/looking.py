"""What a name or a text of this machine is like, as a brain is told."""

from __future__ import annotations

import contextlib
import grp
import hashlib
import pwd

from handoff.nodes.node.files import PIECE, Entry, Reading
from handoff.wire.node.calls import FileInfo, ReadResult

__all__ = ["STEP", "Look", "info", "named"]

#: bytes of a stream that are read in one go: to hand work to another thread and back costs
#: as much as to send 50 KiB
STEP = 4 * PIECE


class Look:
    """What the bytes of a text are like, piece by piece.

    Ends of lines are counted until a zero byte says that it is no text. In UTF-16 and UTF-32
    zero bytes are common; its mark at the start says so.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._first = b""
        self._lf = self._crlf = self._cr = 0
        self._last = b""
        self._text = True
        self._utf8 = True
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        self._hash.update(data)
        if len(self._first) < 4:
            self._first += data[: 4 - len(self._first)]
        if self._text:
            self._text = b"\0" not in data or bool(_bom(self._first))
        if self._text:
            self._count(data)
        if self._utf8 and (self._rest or not data.isascii()):
            self._decode(data)

    def next(self, file: Reading, at: int, limit: int) -> bytes:
        """The next bytes of a file, at most :data:`STEP` and ``limit``; empty at its end."""
        data = file.piece(at, limit, STEP)
        self.feed(data)
        return data

    def _count(self, data: bytes) -> None:
        self._lf += data.count(b"\n")
        if self._last == b"\r" and data[:1] == b"\n":
            self._crlf += 1
        if b"\r" in data:  # most texts have none, and looking for one costs little
            self._crlf += data.count(b"\r\n")
            self._cr += data.count(b"\r")
        self._last = data[-1:] or self._last

    def _decode(self, data: bytes) -> None:
        text = self._rest + data
        try:
            text.decode("utf-8")
            self._rest = b""
        except UnicodeDecodeError as error:
            # a character may be parted between two pieces
            if error.reason == "unexpected end of data" and len(text) - error.start < 4:
                self._rest = text[error.start :]
            else:
                self._utf8 = False

    def result(self, offset: int, end: int, entry: Entry) -> ReadResult:
        """What was seen, of the range from ``offset`` to ``end``."""
        kinds = {
            "crlf": self._crlf,
            "lf": self._lf - self._crlf,
            "cr": self._cr - self._crlf,
        }
        if not self._text:
            kinds = {}
        there = [name for name, count in kinds.items() if count > 0]
        return ReadResult(
            sha256=self._hash.hexdigest(),
            offset=offset,
            size=max(entry.size, end if end > offset else 0),
            eof=end >= entry.size,
            etag=entry.etag,
            permissions=entry.mode,
            mtime_ns=entry.mtime_ns,
            lines=sum(kinds.values()),
            newline="" if not there else there[0] if len(there) == 1 else "mixed",
            bom=_bom(self._first) if offset == 0 else "",
            utf8=self._utf8 and not self._rest,
        )


def _bom(first: bytes) -> str:
    for mark, name in (
        (b"\xff\xfe\x00\x00", "utf-32-le"),
        (b"\x00\x00\xfe\xff", "utf-32-be"),
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be"),
    ):
        if first.startswith(mark):
            return name
    return ""


def info(entry: Entry, path: str, digest: str = "") -> FileInfo:
    """One name, as a brain sees it."""
    kinds = {"pipe": "fifo", "device": "unknown"}
    return FileInfo(
        path=path,
        kind=kinds.get(entry.type, entry.type),
        size=entry.size,
        permissions=entry.mode,
        mtime_ns=entry.mtime_ns,
        uid=entry.uid,
        gid=entry.gid,
        owner=_user(entry.uid),
        group=_group(entry.gid),
        target=entry.target,
        etag=entry.etag,
        sha256=digest,
    )


def named(entry: Entry) -> bool:
    """Whether the names of its owner and group are known: otherwise :func:`info` asks the
    system for them, which may ask other machines."""
    return entry.uid in _USERS and entry.gid in _GROUPS


#: what was asked for, by id
_USERS: dict[int, str] = {}
_GROUPS: dict[int, str] = {}
_NAMES = 1024


def _user(uid: int) -> str:
    found = _USERS.get(uid)
    if found is None:
        found = ""
        with contextlib.suppress(KeyError):
            found = pwd.getpwuid(uid).pw_name
        if len(_USERS) < _NAMES:
            _USERS[uid] = found
    return found


def _group(gid: int) -> str:
    found = _GROUPS.get(gid)
    if found is None:
        found = ""
        with contextlib.suppress(KeyError):
            found = grp.getgrgid(gid).gr_name
        if len(_GROUPS) < _NAMES:
            _GROUPS[gid] = found
    return found
