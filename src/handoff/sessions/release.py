"""A release of a plugin: one archive, its manifest, and the check of both before anything
is unpacked.

The archive is a gzip-compressed ustar of plain files below one folder. It has one form only:
from the members' paths, modes and contents follow all its bytes. So the check reads it with a
parser that knows nothing but that form, makes the form again from what it read, and compares:
whatever another program might find in it (a link, a second header, bytes behind the end) has
no place to be.

``MANIFEST.json`` names the archive (bytes, SHA-256, and the SHA-256 of the tar inside, which
does not depend on the compressor) and every member: path, size, SHA-256, mode. A manifest
that came with the archive proves that both belong together, not where they are from: for that
give the digest that the release's page shows.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from handoff.errors import FileInTheWay, NotFound, StorageError, UsageError
from handoff.sessions.release_form import (
    LIMITS,
    MODES,
    STAMP,
    Limits,
    Member,
    compress,
    fault,
    pack,
    read_members,
    refuse,
    refuse_all,
    shown,
    unzip,
)

__all__ = [
    "MANIFEST",
    "SCHEMA",
    "STAMP",
    "Limits",
    "Member",
    "Verified",
    "extract",
    "make",
    "verify",
    "verify_bytes",
]

MANIFEST = "MANIFEST.json"
SCHEMA = "handoff-release/1"
#: what a member may be called: parts of these signs, none of them hidden above by dots alone
_PART = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class Verified:
    """A release that is what its manifest says. ``digest_given``: the archive's digest was
    compared with one that did not come with the manifest."""

    name: str
    version: str
    sha256: str
    digest_given: bool
    members: tuple[Member, ...]

    def to_json(self) -> dict[str, Any]:
        """What a program is told."""
        return {
            "name": self.name,
            "version": self.version,
            "sha256": self.sha256,
            "digest_given": self.digest_given,
            "members": len(self.members),
            "bytes": sum(len(member.content) for member in self.members),
        }


# -- making ------------------------------------------------------------------------------


def make(name: str, version: str, members: Iterable[Member]) -> tuple[bytes, bytes]:
    """The archive ``<name>-<version>.tar.gz`` and its manifest. ``members``: paths below
    ``<name>/``, in any order. The same members give the same tar, and with the same
    compressor the same archive.

    Raises:
        ReleaseRefused: a member could not be verified again: its path, its mode, its size.
    """
    found = sorted(Member(f"{name}/{one.path}", one.content, one.mode) for one in members)
    tar = pack(found)
    archive = compress(tar)
    manifest = {
        "schema": SCHEMA,
        "name": name,
        "version": version,
        "archive": {
            "name": f"{name}-{version}.tar.gz",
            "bytes": len(archive),
            "sha256": _sha256(archive),
            "tar_sha256": _sha256(tar),
        },
        "members": [
            {
                "path": member.path,
                "size": len(member.content),
                "sha256": _sha256(member.content),
                "mode": f"{member.mode:04o}",
            }
            for member in found
        ],
    }
    data = json.dumps(manifest, indent=1, ensure_ascii=True).encode() + b"\n"
    verify_bytes(archive, data)  # nothing leaves that would be refused on arrival
    return archive, data


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# -- checking ----------------------------------------------------------------------------


def verify(
    archive: str, *, manifest: str = "", sha256: str = "", limits: Limits = LIMITS
) -> Verified:
    """Check an archive before anything of it is unpacked; nothing is written.

    ``manifest``: its path; without, ``MANIFEST.json`` beside the archive. ``sha256``: the
    archive's digest from somewhere else.

    Raises:
        UsageError: ``sha256`` is no digest.
        ReleaseRefused: it is not what the manifest, or the digest, says; ``details["faults"]``
            lists what is wrong, each with ``path``, ``code`` and ``message``.
        NotFound: one of the two files is not there.
        StorageError: one can't be read.
    """
    wanted = manifest or os.path.join(os.path.dirname(os.path.abspath(archive)), MANIFEST)
    data = _read(archive, "archive", limits.archive)
    listed = _read(wanted, "manifest", limits.manifest)
    return verify_bytes(data, listed, sha256=sha256, name=os.path.basename(archive), limits=limits)


def verify_bytes(
    archive: bytes, manifest: bytes, *, sha256: str = "", name: str = "", limits: Limits = LIMITS
) -> Verified:
    """As :func:`verify`, of what is in memory. ``name``: of the archive's file, if it must
    be the one that the manifest names.

    Raises:
        UsageError, ReleaseRefused: see there.
    """
    given = sha256.strip().lower()
    if given and not _SHA256.match(given):
        raise UsageError(
            "that is no SHA-256: 64 hexadecimal digits are",
            remedy="copy the digest from the release's page",
        )
    if len(archive) > limits.archive:
        refuse("", "too_large", f"the archive has over {limits.archive} bytes")
    found = _sha256(archive)
    if given and found != given:
        refuse("", "digest", f"the archive's SHA-256 is {found}, not the one given")
    listed = _manifest(manifest, limits)
    told = listed["archive"]
    if name and name != told["name"]:
        refuse("", "name", f"the manifest is of {told['name']}, not of {shown(name)}")
    if found != told["sha256"] or len(archive) != told["bytes"]:
        refuse("", "digest", f"the archive's SHA-256 is {found}, not the manifest's")
    tar = unzip(archive, limits)
    if _sha256(tar) != told["tar_sha256"]:
        refuse("", "digest", "the SHA-256 of the tar inside is not the manifest's")
    members = read_members(tar, limits)
    _compare(members, listed["members"])
    if pack(members) != tar:
        refuse("", "form", "the archive holds more than its members")
    return Verified(listed["name"], listed["version"], found, bool(given), tuple(members))


def extract(release: Verified, folder: str) -> str:
    """Write a verified release below a folder that exists, from memory: what was checked is
    what is written. Gives the path of the new folder ``<folder>/<name>``; on a failure it
    is gone again.

    Raises:
        FileInTheWay: there is something of that name.
        StorageError: it can't be written.
    """
    import shutil
    import tempfile

    target = os.path.join(os.path.abspath(folder), release.name)
    if os.path.lexists(target):
        raise FileInTheWay(f"{target} is there already", remedy="move it away first")
    try:
        staging = tempfile.mkdtemp(prefix=f".{release.name}-", dir=os.path.dirname(target))
        try:
            for member in release.members:
                path = os.path.join(staging, *member.path.split("/"))
                os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                with os.fdopen(os.open(path, flags, member.mode), "wb") as file:
                    os.fchmod(file.fileno(), member.mode)  # whatever the umask is
                    file.write(member.content)
            os.rename(os.path.join(staging, release.name), target)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        if os.path.lexists(target):
            raise FileInTheWay(f"{target} is there already", remedy="move it away first") from error
        raise StorageError(f"{target} can't be written: {error.strerror}") from error
    return target


def _read(path: str, what: str, limit: int) -> bytes:
    """A plain file, whole."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(
            f"there is no {what} {path}", remedy="handoff session verify-release --help"
        ) from error
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or "that is no path"
        raise StorageError(f"the {what} can't be read: {told}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            refuse("", "kind", f"the {what} is no plain file")
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise StorageError(f"the {what} can't be read: {error.strerror}") from error
    finally:
        os.close(fd)
    if len(data) > limit:
        refuse("", "too_large", f"the {what} has over {limit} bytes")
    return data


# -- the manifest --------------------------------------------------------------------------


def _manifest(data: bytes, limits: Limits) -> dict[str, Any]:
    """The manifest, every field of it checked."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_float=_no_number)
    except (ValueError, RecursionError):
        refuse(MANIFEST, "manifest", "it is not JSON as we write it")
    whole = _exact(value, "", "schema", "name", "version", "archive", "members")
    if whole["schema"] != SCHEMA:
        refuse(MANIFEST, "manifest", f"its schema is not {SCHEMA}")
    name, version = _text(whole["name"], _NAME), _text(whole["version"], _VERSION)
    told = _exact(whole["archive"], "archive", "name", "bytes", "sha256", "tar_sha256")
    if told["name"] != f"{name}-{version}.tar.gz":
        refuse(MANIFEST, "manifest", "its archive is not called after its name and version")
    _number(told["bytes"], limits.archive)
    _text(told["sha256"], _SHA256)
    _text(told["tar_sha256"], _SHA256)
    rows = whole["members"]
    if not isinstance(rows, list) or not 0 < len(rows) <= limits.members:
        refuse(MANIFEST, "manifest", f"it lists no members, or more than {limits.members}")
    paths = []
    for row in rows:
        one = _exact(row, "members", "path", "size", "sha256", "mode")
        paths.append(_path(one["path"], name))
        _number(one["size"], limits.member)
        _text(one["sha256"], _SHA256)
        if not isinstance(one["mode"], str) or one["mode"] not in MODES:
            refuse(paths[-1], "mode", "its mode is neither 0644 nor 0755")
    _distinct(paths)
    if paths != sorted(paths):
        refuse(MANIFEST, "manifest", "its members are not in order")
    return whole


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no whole number")


def _exact(value: object, where: str, *keys: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(keys):
        refuse(MANIFEST, "manifest", f"/{where} has not just the keys {', '.join(keys)}")
    return value


def _text(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or pattern.match(value) is None:
        refuse(MANIFEST, "manifest", f"{shown(value)} is not of the form that belongs there")
    return value


def _number(value: object, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        refuse(MANIFEST, "too_large", f"a size is no whole number up to {limit}")
    return value


def _path(value: object, name: str) -> str:
    """A member's path: relative, plain, below the folder of that name.

    Raises:
        ReleaseRefused: it is not.
    """
    parts = value.split("/") if isinstance(value, str) else []
    plain = all(_PART.match(part) and part.strip(".") for part in parts)
    if not plain or len(parts) < 2 or parts[0] != name:
        refuse(shown(value), "path", f"it does not lie plainly below {name}/")
    return "/".join(parts)


def _distinct(paths: list[str]) -> None:
    """No two members meet, on no file system: not by case, not one below the other."""
    seen: set[str] = set()
    for path in paths:
        if path.lower() in seen:
            refuse(path, "duplicate", "it is there twice")
        seen.add(path.lower())
    for path in paths:
        above = path.lower()
        while above := above.rpartition("/")[0]:
            if above in seen:
                refuse(path, "duplicate", "a file stands where its folder would be")


def _compare(members: list[Member], rows: list[dict[str, Any]]) -> None:
    """Every member is listed as it is, and every listed one is there."""
    faults: list[dict[str, str]] = []
    listed: Mapping[str, dict[str, Any]] = {row["path"]: row for row in rows}
    seen: set[str] = set()
    for member in members:
        row = listed.get(member.path)
        if member.path in seen:
            faults.append(fault(shown(member.path), "duplicate", "it is there twice"))
        elif row is None:
            faults.append(fault(shown(member.path), "unlisted", "the manifest has no such member"))
        elif len(member.content) != row["size"] or _sha256(member.content) != row["sha256"]:
            faults.append(fault(member.path, "digest", "its content is not the manifest's"))
        elif member.mode != MODES[row["mode"]]:
            faults.append(fault(member.path, "mode", "its mode is not the manifest's"))
        seen.add(member.path)
    faults += [
        fault(path, "missing", "the archive lacks it") for path in listed if path not in seen
    ]
    if faults:
        refuse_all(faults)
    if [member.path for member in members] != list(listed):
        refuse("", "form", "its members are not in order")
