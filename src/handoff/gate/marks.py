"""Files as they were when somebody asked: read once, kept as a digest."""

from __future__ import annotations

import base64
import hashlib
import os
import stat

from handoff.errors import Failed
from handoff.gate.contract import FileMark
from handoff.redaction import looks_secret

#: bytes of a file that are hashed at most; a larger one can't be pinned
MAX_FILE = 16 * 1024 * 1024
#: bytes of a text whose copy is kept, so that a change can be shown
MAX_COPY = 64 * 1024

_SECRET_NAMES = (".env", ".netrc", ".npmrc", ".pypirc", ".pgpass", "credentials", "id_")
_SECRET_ENDS = (".pem", ".key", ".p12", ".pfx", ".keystore", ".jks", ".kdbx", ".env")


class CantPin(Failed):
    """The content of a path can't be kept as a digest. ``str()`` says why."""


def read_regular(path: str, limit: int = MAX_FILE) -> bytes | None:
    """The bytes of a regular file, or None if nothing is there.

    Never waits on a FIFO or a device: the file is opened without blocking and looked at
    before it is read.

    Raises:
        CantPin: it is no regular file, larger than limit bytes, or can't be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise CantPin(f"'{path}' can't be read: {error}") from error
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            what = "a directory" if stat.S_ISDIR(info.st_mode) else "no regular file"
            raise CantPin(f"'{path}' is {what}")
        if info.st_size > limit:
            raise CantPin(f"'{path}' is too large to be compared ({info.st_size} bytes)")
        parts = []
        room = limit + 1
        while room > 0 and (part := os.read(handle, min(room, 1 << 20))):
            parts.append(part)
            room -= len(part)
        if room <= 0:
            raise CantPin(f"'{path}' grew while it was read")
        return b"".join(parts)
    except OSError as error:
        raise CantPin(f"'{path}' can't be read: {error}") from error
    finally:
        os.close(handle)


def mark(path: str, *, keep: bool = True) -> FileMark:
    """The mark of what is at path now (links are followed when it is read).

    ``keep`` False: without a copy, whatever it is.

    Raises:
        CantPin: see :func:`read_regular`.
    """
    data = read_regular(path)
    if data is None:
        return FileMark(path=path, digest="", size=0)
    digest = hashlib.sha256(data).hexdigest()
    copy = base64.b64encode(data).decode("ascii") if keep and may_be_kept(path, data) else ""
    return FileMark(path=path, digest=digest, size=len(data), copy=copy)


def secret_name(path: str) -> bool:
    """Whether files of that name usually hold secrets."""
    name = os.path.basename(path).lower()
    return name.startswith(_SECRET_NAMES) or name.endswith(_SECRET_ENDS)


def may_be_kept(path: str, data: bytes) -> bool:
    """Whether a copy may lie in the database: a small text without secrets."""
    if not data or len(data) > MAX_COPY:
        return False
    if secret_name(path):
        return False
    text = as_text(data)
    return text is not None and not looks_secret(text)


def as_text(data: bytes) -> str | None:
    """The bytes as UTF-8 text, or None if they are none (or hold a NUL)."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
