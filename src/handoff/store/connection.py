"""Opening SQLite the one way that Handoff uses it, and its errors as ours."""

from __future__ import annotations

import os
import shlex
import sqlite3
from pathlib import Path

from handoff.errors import StorageError, StorageFull

#: "HOFF": says whose database it is, also to file(1)
APPLICATION_ID = 0x484F4646

#: how long to wait for another process that holds the write lock
BUSY_TIMEOUT_MS = 5_000

#: prepared statements kept per connection: more than there are named queries
CACHED_STATEMENTS = 512

#: pages (4 KiB) in the WAL before a commit also copies them into the database. Four times
#: SQLite's default: a copy costs two fsyncs, and 16 MiB are read again in well under 0.1 s.
AUTOCHECKPOINT_PAGES = 4_000

_READ_ONLY = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_SICK = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_NOLFS}


def storage_error(exc: BaseException, path: Path) -> StorageError | None:
    """The typed error for what the machine did to us, or None where exc is something else
    (a broken constraint, wrong SQL: the caller's own affair)."""
    if isinstance(exc, OSError):
        return _os_error(exc, path)
    if not isinstance(exc, sqlite3.Error):
        return None
    code = getattr(exc, "sqlite_errorcode", 0) & 0xFF  # the primary code
    where, folder = shlex.quote(str(path)), shlex.quote(str(path.parent))
    if code == sqlite3.SQLITE_FULL:
        return StorageFull(f"no space left to write {path}", remedy=f"df -h {folder}")
    if code in _DAMAGED:
        return StorageError(
            f"{path} is not a Handoff database, or it is damaged ({exc})",
            remedy=f"mv {where} {where}.damaged",
        )
    if code in _READ_ONLY:
        return StorageError(f"{path} can't be written ({exc})", remedy=f"ls -ld {folder} {where}")
    if code in _BUSY:
        return StorageError(f"another program holds {path} locked", remedy=f"fuser -v {where}")
    if code in _SICK:
        name = getattr(exc, "sqlite_errorname", "SQLITE_IOERR")
        return StorageError(f"{path} can't be read or written ({name})", remedy=f"df -h {folder}")
    return None


def typed_error(exc: BaseException, path: Path) -> StorageError:
    """The storage error for what ended a whole operation, each time a fresh one."""
    if isinstance(exc, StorageError):
        return type(exc)(exc.cause, remedy=exc.remedy, **exc.details)
    return storage_error(exc, path) or StorageError(f"{path}: {exc}")


def _os_error(exc: OSError, path: Path) -> StorageError:
    import errno

    folder = shlex.quote(str(path.parent))
    if exc.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageFull(f"no space left to write {path}", remedy=f"df -h {folder}")
    return StorageError(f"{path} can't be used: {exc.strerror}", remedy=f"ls -ld {folder}")


def _make_private(folder: Path) -> None:
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def create_file(path: Path) -> None:
    """Make the database file, private to its owner, unless it exists; tighten it if it does.

    Folders that have to be made are private too. SQLite gives its side files the mode of
    the database. After this the name itself survives a power cut.

    Raises:
        OSError: as the system says.
    """
    _make_private(path.parent)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def connect(path: Path) -> sqlite3.Connection:
    """A connection that reads and writes, in manual transaction mode.

    Raises:
        sqlite3.Error: the file is no database, or can't be written.
    """
    conn = sqlite3.connect(
        path,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
        timeout=BUSY_TIMEOUT_MS / 1000,
    )
    try:
        conn.row_factory = sqlite3.Row
        conn.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # a database at all?
        mode = conn.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise sqlite3.OperationalError(f"journal mode is {mode}, not wal")
        for pragma in (
            "synchronous = FULL",
            "fullfsync = ON",  # macOS: fsync alone does not reach the medium there
            "checkpoint_fullfsync = ON",
            "foreign_keys = ON",
            "trusted_schema = OFF",
            "temp_store = MEMORY",
            f"wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}",
            f"journal_size_limit = {64 * 1024 * 1024}",
        ):
            conn.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        conn.close()
        raise
    return conn


def connect_read_only(path: Path) -> sqlite3.Connection:
    """A connection that can only read."""
    conn = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,  # closed by the store, used by one thread
        cached_statements=CACHED_STATEMENTS,
        timeout=BUSY_TIMEOUT_MS / 1000,
    )
    conn.row_factory = sqlite3.Row
    conn.execute("PRAGMA query_only = ON").close()
    return conn
