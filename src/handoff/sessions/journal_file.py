"""The journal's file: one SQLite database and one lock file of a profile.

Rollback journal and ``synchronous=EXTRA``: a commit has reached the disk, its directory
entry included, before the call returns, because an effect follows it that can't be taken
back. (``FULL`` leaves out the sync of the directory after the rollback journal is gone, so
that a power cut could take back what was committed.) Each transaction opens the file anew,
so that a fork, a restored copy or a removed folder is never written to by mistake.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Iterator

from handoff.errors import JournalCorrupt, SchemaTooNew, StorageError, StorageFull, TimedOut

__all__ = ["JOURNAL", "LOCK", "SCHEMA_VERSION", "exists", "knows_deliveries", "reading", "writing"]

JOURNAL = "journal.sqlite3"
LOCK = os.path.join("locks", "journal.lock")
SCHEMA_VERSION = 2
#: seconds for which one process waits for another's transaction, which takes milliseconds
WAIT = 20.0
#: what a test may change: a file that need not outlive a power cut
SYNCHRONOUS = "EXTRA"
#: "HOFJ": says whose file this is
_APPLICATION = 0x484F464A
#: file systems on which a lock of one machine is not seen by another
_SHARED = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs")

_SCHEMA = """
CREATE TABLE attempts (
    attempt_id TEXT PRIMARY KEY, ref TEXT NOT NULL, frozen TEXT NOT NULL,
    digest TEXT NOT NULL, at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX attempts_by_ref ON attempts (ref, at);
CREATE TABLE events (
    number INTEGER PRIMARY KEY, attempt_id TEXT NOT NULL REFERENCES attempts (attempt_id),
    seq INTEGER NOT NULL, kind TEXT NOT NULL, at INTEGER NOT NULL, actor TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (length(CAST(payload AS BLOB)) <= 2048),
    prev TEXT NOT NULL, hash TEXT NOT NULL, UNIQUE (attempt_id, seq)
) STRICT;
CREATE UNIQUE INDEX one_launch ON events (attempt_id) WHERE kind = 'launch_intent';
CREATE TABLE head (
    only INTEGER PRIMARY KEY CHECK (only = 1), number INTEGER NOT NULL, hash TEXT NOT NULL
) STRICT;
CREATE TABLE reservations (
    attempt_id TEXT PRIMARY KEY REFERENCES attempts (attempt_id), id TEXT NOT NULL UNIQUE,
    ref TEXT NOT NULL, parallel INTEGER NOT NULL, owner TEXT NOT NULL,
    surface TEXT NOT NULL, at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_opening ON reservations (ref) WHERE parallel = 0;
CREATE TABLE routes (
    session_id TEXT PRIMARY KEY, model TEXT NOT NULL, provider TEXT NOT NULL,
    turn_id TEXT NOT NULL, at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER events_stay BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER events_remain BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
CREATE TRIGGER attempts_stay BEFORE UPDATE ON attempts
    BEGIN SELECT RAISE(ABORT, 'attempts are never changed'); END;
CREATE TRIGGER attempts_remain BEFORE DELETE ON attempts
    BEGIN SELECT RAISE(ABORT, 'attempts are never removed'); END;
"""
#: what version 2 adds
_DELIVERIES = """
CREATE TABLE deliveries (
    number INTEGER PRIMARY KEY, delivery_id TEXT NOT NULL, ref TEXT NOT NULL,
    kind TEXT NOT NULL, at INTEGER NOT NULL, actor TEXT NOT NULL,
    payload TEXT NOT NULL CHECK (length(CAST(payload AS BLOB)) <= 2048),
    prev TEXT NOT NULL, hash TEXT NOT NULL, UNIQUE (delivery_id, kind)
) STRICT;
CREATE INDEX deliveries_by_ref ON deliveries (ref, number);
CREATE TABLE delivery_head (
    only INTEGER PRIMARY KEY CHECK (only = 1), number INTEGER NOT NULL, hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER deliveries_stay BEFORE UPDATE ON deliveries
    BEGIN SELECT RAISE(ABORT, 'deliveries are never changed'); END;
CREATE TRIGGER deliveries_remain BEFORE DELETE ON deliveries
    BEGIN SELECT RAISE(ABORT, 'deliveries are never removed'); END;
"""


def exists(root: str) -> bool:
    """Whether that folder holds a journal that something was written to. Nothing is created.

    Whoever was killed at the very first write leaves an empty file: that is no journal yet.

    Raises:
        JournalCorrupt, SchemaTooNew, StorageError: there is one, and it can't be used.
    """
    if not os.path.lexists(os.path.join(root, JOURNAL)):
        return False
    with _typed(root), contextlib.closing(_connect(root)) as db:
        return _check_version(db, root) != 0


@contextlib.contextmanager
def reading(root: str) -> Iterator[sqlite3.Connection]:
    """A consistent view of the journal, which has to exist.

    Raises:
        JournalCorrupt, SchemaTooNew, StorageError: it can't be used.
    """
    with _typed(root), contextlib.closing(_connect(root)) as db:
        _check_version(db, root)
        db.execute("PRAGMA query_only = ON")
        db.execute("BEGIN")
        yield db


@contextlib.contextmanager
def writing(root: str) -> Iterator[sqlite3.Connection]:
    """One durable transaction: committed at the end of the block, undone by any exception.

    Creates the folder and the journal if they are missing.

    Raises:
        JournalCorrupt, SchemaTooNew, StorageError, StorageFull, TimedOut: nothing was done.
            (After an input/output error of the commit itself, look before acting.)
    """
    with _typed(root), _locked(root), contextlib.closing(_connect(root)) as db:
        db.execute("BEGIN IMMEDIATE")
        try:
            version = _check_version(db, root)
            if version == 0:
                _run(db, _SCHEMA)
                db.execute("INSERT INTO head VALUES (1, 0, ?)", ("0" * 64,))
                db.execute(f"PRAGMA application_id = {_APPLICATION}")
            if version < SCHEMA_VERSION:
                _run(db, _DELIVERIES)
                db.execute("INSERT INTO delivery_head VALUES (1, 0, ?)", ("0" * 64,))
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            yield db
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
            raise


def _connect(root: str) -> sqlite3.Connection:
    path = os.path.join(root, JOURNAL)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        _sync_folder(root)
        found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise StorageError(
            f"{path} is not a plain file of this user's", remedy=f"ls -l {path}", path=path
        )
    db = sqlite3.connect(path, timeout=WAIT, isolation_level=None)
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
    db.execute("PRAGMA fullfsync = ON")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA trusted_schema = OFF")
    return db


def _check_version(db: sqlite3.Connection, root: str) -> int:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the opening journal in {root} has format {version}, this version knows "
            f"{SCHEMA_VERSION}",
            remedy="upgrade Handoff, or the plugin that carries it",
        )
    if version == 0 and db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise JournalCorrupt(f"{os.path.join(root, JOURNAL)} is some other database")
    return version


def knows_deliveries(db: sqlite3.Connection) -> bool:
    """Whether this journal's format has deliveries; one that was only read has none yet."""
    return bool(db.execute("PRAGMA user_version").fetchone()[0] >= 2)


def _run(db: sqlite3.Connection, statements: str) -> None:
    statement = ""
    for part in statements.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


@contextlib.contextmanager
def _locked(root: str) -> Iterator[None]:
    """The writers' queue. The lock file is permanent: it is never replaced or removed."""
    path = os.path.join(root, LOCK)
    if not os.path.isdir(os.path.dirname(path)):
        _refuse_shared(root)
        os.makedirs(root, 0o700, exist_ok=True)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, 0o600)
    try:
        end = time.monotonic() + WAIT
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimedOut(
                        f"another process has held the opening journal for {WAIT:.0f} s",
                        remedy=f"fuser -v {path}",
                    ) from None
                time.sleep(0.002)
        yield
    finally:
        os.close(fd)


def _refuse_shared(root: str) -> None:
    """Refuse file systems whose locks other machines don't see (where that can be told)."""
    place = os.path.realpath(root)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return  # macOS: flock itself fails where it is not supported
    device = os.stat(place).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        left, _, right = line.partition(" - ")
        kind = right.split(" ", 1)[0]
        if left.split(" ")[2] == wanted and kind.startswith(_SHARED):
            raise StorageError(
                f"{root} is on {kind}, where two machines could open the same attempt",
                remedy="keep the profile on a local disk",
            )


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _typed(root: str) -> Iterator[None]:
    """What SQLite and the system say, as errors of ours."""
    path = os.path.join(root, JOURNAL)
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _operational(error, path) from error
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.ProgrammingError):
            raise
        raise JournalCorrupt(
            f"the opening journal {path} can't be read: {error}",
            remedy=f"sqlite3 {path} .recover",
            path=path,
        ) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        cls = StorageFull if full else StorageError
        raise cls(
            f"the opening journal {path} can't be used: {error.strerror}",
            remedy=f"df -h {root}" if full else f"ls -ld {root}",
            path=path,
        ) from error


def _operational(error: sqlite3.OperationalError, path: str) -> Exception:
    code = error.sqlite_errorcode & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StorageFull(
            f"the disk of the opening journal {path} is full",
            remedy=f"df -h {os.path.dirname(path)}",
            path=path,
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return TimedOut(f"the opening journal {path} is in use", remedy=f"fuser -v {path}")
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return StorageError(
            f"the opening journal {path} can't be used: {error}", remedy=f"ls -l {path}", path=path
        )
    return JournalCorrupt(
        f"the opening journal {path} is damaged: {error}",
        remedy=f"sqlite3 {path} .recover",
        path=path,
    )
