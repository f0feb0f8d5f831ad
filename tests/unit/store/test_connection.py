from __future__ import annotations

import errno
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from handoff.errors import StorageError, StorageFull
from handoff.store import connection

PATH = Path("/data/my folder/handoff.db")


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("as SQLite puts it")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_X"
    return error


@pytest.mark.parametrize(
    ("code", "cls", "words", "remedy"),
    [
        (sqlite3.SQLITE_FULL, StorageFull, "no space", "df -h '/data/my folder'"),
        (sqlite3.SQLITE_CORRUPT, StorageError, "damaged", "mv '/data/my folder/handoff.db'"),
        (sqlite3.SQLITE_NOTADB, StorageError, "not a Handoff database", "mv "),
        (sqlite3.SQLITE_READONLY, StorageError, "can't be written", "ls -ld '/data/my folder'"),
        (sqlite3.SQLITE_CANTOPEN, StorageError, "can't be written", "ls -ld"),
        (sqlite3.SQLITE_BUSY, StorageError, "locked", "fuser"),
        (sqlite3.SQLITE_IOERR, StorageError, "SQLITE_X", "df -h"),
        (sqlite3.SQLITE_IOERR | (4 << 8), StorageError, "SQLITE_X", "df -h"),
    ],
)
def test_what_the_machine_did_becomes_a_typed_error(code, cls, words, remedy):
    error = connection.storage_error(sqlite_error(code), PATH)
    assert type(error) is cls
    assert words in error.cause
    assert error.remedy.startswith(remedy)


@pytest.mark.parametrize(
    "exc",
    [
        sqlite_error(sqlite3.SQLITE_ERROR),
        sqlite_error(sqlite3.SQLITE_CONSTRAINT),
        sqlite3.ProgrammingError("no code at all"),
        ValueError("not SQLite's"),
    ],
)
def test_what_the_caller_did_is_left_to_the_caller(exc):
    assert connection.storage_error(exc, PATH) is None


@pytest.mark.parametrize(
    ("number", "cls"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EACCES, StorageError),
        (errno.EROFS, StorageError),
    ],
)
def test_errors_of_the_system(number, cls):
    error = connection.storage_error(OSError(number, os.strerror(number)), PATH)
    assert type(error) is cls


def test_each_caller_gets_an_error_of_its_own():
    first = StorageError("cause", remedy="do", path="x")
    second = connection.typed_error(first, PATH)
    assert second is not first
    assert (second.cause, second.remedy, second.details) == ("cause", "do", {"path": "x"})
    assert "ZeroDivision" not in str(connection.typed_error(ZeroDivisionError("odd"), PATH))


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_new_file_is_private_whatever_the_mask(tmp_path, mask):
    before = os.umask(mask)
    try:
        connection.create_file(tmp_path / "deep" / "deeper" / "handoff.db")
    finally:
        os.umask(before)
    deep = tmp_path / "deep"
    assert stat.S_IMODE((deep / "deeper" / "handoff.db").stat().st_mode) == 0o600
    assert stat.S_IMODE((deep / "deeper").stat().st_mode) == 0o700
    assert stat.S_IMODE(deep.stat().st_mode) == 0o700


def test_a_file_that_is_there_keeps_its_bytes(tmp_path):
    path = tmp_path / "handoff.db"
    path.write_bytes(b"something")
    connection.create_file(path)
    assert path.read_bytes() == b"something"


def test_a_read_only_connection_does_not_make_a_file(tmp_path):
    with pytest.raises(sqlite3.OperationalError):
        connection.connect_read_only(tmp_path / "none.db").execute("SELECT 1")
    assert not (tmp_path / "none.db").exists()


def test_odd_characters_in_the_path(tmp_path):
    path = tmp_path / "a b?c#d%20é" / "handoff.db"
    connection.create_file(path)
    conn = connection.connect(path)
    try:
        conn.execute("CREATE TABLE t (x)")
        reader = connection.connect_read_only(path)
        try:
            assert reader.execute("SELECT count(*) FROM t").fetchone()[0] == 0
        finally:
            reader.close()
    finally:
        conn.close()
