from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from handoff.errors import StorageError, StorageFull
from handoff.sessions import private


@pytest.fixture
def folder(tmp_path: Path):
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_several_files_are_private_and_synced_before_the_call_returns(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_ino), real(fd)))
    private.write_all(folder, {"a": b"one", "b": b"two" * 100_000, "c": b""})
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {
        "a": b"one",
        "b": b"two" * 100_000,
        "c": b"",
    }
    assert {one.stat().st_mode & 0o777 for one in tmp_path.iterdir()} == {0o600}
    assert sorted(synced) == sorted(one.stat().st_ino for one in tmp_path.iterdir())


def test_where_one_is_there_already_none_is_added_and_it_is_left_alone(
    folder: int, tmp_path: Path
) -> None:
    (tmp_path / "b").write_text("before")
    with pytest.raises(FileExistsError):
        private.write_all(folder, {"a": b"1", "b": b"2", "c": b"3"})
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {"b": "before"}


@pytest.mark.parametrize(
    ("code", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, StorageError)]
)
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_file_that_is_not_on_the_medium_takes_the_others_with_it(
    folder: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    error: type[Exception],
    after: int,
) -> None:
    calls = iter(range(10))

    def fails(fd: int) -> None:
        if next(calls) == after:
            raise OSError(code, "no")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(error):
        private.write_all(folder, {"a": b"1", "b": b"2", "c": b"3"}, str(tmp_path))
    assert list(tmp_path.iterdir()) == []
