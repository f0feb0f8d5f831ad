from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from handoff.errors import StorageError
from handoff.link.files import LIMIT, make_folder, read_private, write_new, write_private


def test_a_file_is_written_whole_private_and_without_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    write_private(str(path), b"one")
    write_private(str(path), b"two")
    assert read_private(str(path)) == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["file"]


def test_what_is_there_is_not_written_over_unless_asked(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    assert write_new(path, b"one") is True
    assert write_new(path, b"two") is False
    assert read_private(path) == b"one"
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_in_the_way_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"theirs")
    (tmp_path / "file").symlink_to(target)
    write_private(str(tmp_path / "file"), b"ours")
    assert target.read_bytes() == b"theirs"
    assert not (tmp_path / "file").is_symlink()


def test_a_folder_in_the_way_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "file" / "inner").mkdir(parents=True)
    with pytest.raises(StorageError):
        write_private(str(tmp_path / "file"), b"x")
    assert write_new(str(tmp_path / "file"), b"x") is False
    assert os.listdir(tmp_path) == ["file"]
    (tmp_path / "plain").write_bytes(b"")
    with pytest.raises(StorageError):
        make_folder(str(tmp_path / "plain" / "deeper"))
    with pytest.raises(StorageError):
        write_new(str(tmp_path / "plain" / "file"), b"x")


def test_what_others_may_read_is_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    path.chmod(0o604)
    with pytest.raises(StorageError, match="open to others"):
        read_private(str(path))
    assert read_private(str(path), private=False) == b"x"


def test_what_is_not_there_is_the_callers_matter(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_private(str(tmp_path / "missing"))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(LIMIT + 1)
    path.chmod(0o600)
    with pytest.raises(StorageError, match="small"):
        read_private(str(path))
