"""The form of a release's archive: gzip around a ustar of plain files, and nothing else.

One sequence of members has one sequence of bytes. :func:`read_members` reads that form only; that
:func:`pack` gives the same bytes again proves that there was nothing more to read.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from handoff.errors import ReleaseRefused

__all__ = [
    "LIMITS",
    "MODES",
    "STAMP",
    "Limits",
    "Member",
    "compress",
    "fault",
    "pack",
    "read_members",
    "refuse",
    "refuse_all",
    "shown",
    "unzip",
]

#: seconds since 1970 (2 February 2020) of every member: what build tools stamp, too
STAMP = 1_580_601_600
MODES = {"0644": 0o644, "0755": 0o755}
#: faults that one refusal lists
FAULTS = 20
_BLOCK = 512
#: magic, method, flags, mtime 0, best compression, no word of the system
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
#: of the ustar header: where the checksum stands
_SUM = slice(148, 156)
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"5": "a folder",
    b"6": "a pipe",
}


@dataclass(frozen=True)
class Limits:
    """What is read at all, in bytes; ``members`` is a number."""

    archive: int = 32 * 2**20
    tar: int = 64 * 2**20
    member: int = 8 * 2**20
    members: int = 4000
    manifest: int = 2 * 2**20


LIMITS = Limits()


@dataclass(frozen=True, order=True)
class Member:
    """One file. ``path``: relative, with ``/``, below the release's folder."""

    path: str
    content: bytes
    mode: int = 0o644


def pack(members: Iterable[Member]) -> bytes:
    """The one form of these members.

    Raises:
        ReleaseRefused: a path has no place in it.
    """
    out = io.BytesIO()
    for member in members:
        info = tarfile.TarInfo(member.path)
        info.size, info.mode, info.mtime = len(member.content), member.mode, STAMP
        try:
            out.write(info.tobuf(tarfile.USTAR_FORMAT, "ascii", "strict"))
        except (ValueError, UnicodeError) as error:
            raise ReleaseRefused(f"{member.path} has no place in a ustar header") from error
        out.write(member.content)
        out.write(b"\0" * (-len(member.content) % _BLOCK))
    out.write(b"\0" * (2 * _BLOCK))
    return out.getvalue()


def compress(data: bytes) -> bytes:
    """Gzip without a time or a name. Another zlib may find other bytes for the same data."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(data) + packer.flush()
    return _GZIP_HEAD + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def unzip(data: bytes, limits: Limits) -> bytes:
    """The tar, of one gzip member, with nothing behind it, within the limit.

    Raises:
        ReleaseRefused: it is something else.
    """
    if not data.startswith(_GZIP_HEAD):
        refuse("", "form", "it is no gzip file as we write it")
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        tar = unpacker.decompress(data[len(_GZIP_HEAD) :], limits.tar + 1)
    except zlib.error:
        refuse("", "form", "its compressed data is damaged")
    if len(tar) > limits.tar:
        refuse("", "too_large", f"it unpacks to over {limits.tar} bytes")
    if not unpacker.eof or len(unpacker.unused_data) != 8:
        refuse("", "form", "it ends early, or goes on behind its end")
    if unpacker.unused_data != struct.pack("<II", zlib.crc32(tar), len(tar)):
        refuse("", "form", "its checksum does not fit")
    return tar


def read_members(tar: bytes, limits: Limits) -> list[Member]:
    """The members, read by our form alone: a plain file, or nothing.

    Raises:
        ReleaseRefused: it has another form.
    """
    found: list[Member] = []
    at = 0
    while True:
        head = tar[at : at + _BLOCK]
        if len(head) < _BLOCK:
            refuse("", "form", "it ends within a header")
        if not any(head):
            return found
        member = _member(head, tar, at + _BLOCK, limits)
        found.append(member)
        if len(found) > limits.members:
            refuse("", "too_large", f"it has over {limits.members} members")
        at += _BLOCK + len(member.content) + -len(member.content) % _BLOCK


def _member(head: bytes, tar: bytes, at: int, limits: Limits) -> Member:
    path = _string(head[345:500], head[0:100])
    name = shown(path)
    if head[156:157] != b"0":
        refuse(name, "kind", f"it is {_KINDS.get(head[156:157], 'no plain file')}")
    told = sum(head) - sum(head[_SUM]) + 8 * 0x20
    if head[257:265] != b"ustar\x0000" or _octal(head[_SUM].rstrip(b"\0 "), name) != told:
        refuse(name, "form", "its header is no ustar header, or damaged")
    size, mode = _octal(head[124:135], name), _octal(head[100:107], name)
    if size > limits.member:
        refuse(name, "too_large", f"it has over {limits.member} bytes")
    if mode not in MODES.values():
        refuse(name, "mode", "its mode is neither 0644 nor 0755")
    content = tar[at : at + size]
    if len(content) != size:
        refuse(name, "form", "the archive ends within it")
    return Member(path, content, mode)


def _string(prefix: bytes, name: bytes) -> str:
    """A path from its two fields; what follows the first NUL must be NULs, which the
    comparison with our own form sees to."""
    parts = [field.split(b"\0", 1)[0].decode("latin-1") for field in (prefix, name)]
    return "/".join(part for part in parts if part)


def _octal(field: bytes, name: str) -> int:
    if not field or not all(0x30 <= sign <= 0x37 for sign in field):
        refuse(name, "form", "its header holds a number in another form")
    return int(field, 8)


def fault(path: str, code: str, message: str) -> dict[str, str]:
    """One thing that is wrong. ``path``: of the member, "" for the archive."""
    return {"path": path, "code": code, "message": message}


def refuse(path: str, code: str, message: str) -> NoReturn:
    """Raises: ReleaseRefused, for one reason."""
    refuse_all([fault(path, code, message)])


def refuse_all(faults: list[dict[str, str]]) -> NoReturn:
    """Raises: ReleaseRefused, with all that is wrong."""
    first = faults[0]
    where = f"{first['path']}: " if first["path"] else ""
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    raise ReleaseRefused(
        f"{where}{first['message']}{more}",
        remedy="do not unpack it; fetch archive and manifest again from where they are published",
        faults=faults[:FAULTS],
        total=len(faults),
    )


def shown(value: object) -> str:
    """A name out of an archive, safe to print."""
    text = value if isinstance(value, str) else type(value).__name__
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text[:120])
