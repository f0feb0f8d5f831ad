from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from handoff.errors import StorageError
from handoff.link.ciphers import CIPHERS
from handoff.link.keys import fingerprint, load_key, load_or_make_key, new_key


def test_a_key_is_made_once_and_read_back(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "machine.key")
    made = load_or_make_key(path)
    assert load_or_make_key(path) == made == load_key(path)
    assert CIPHERS.verify(made.public, CIPHERS.sign(made.private, b"x"), b"x")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "deep").st_mode) == 0o700
    assert os.listdir(tmp_path / "deep") == ["machine.key"]


def test_the_private_half_is_in_no_text() -> None:
    key = new_key()
    assert key.private.hex() not in repr(key)
    assert repr(key.private) not in repr(key)
    assert key.fingerprint == fingerprint(key.public)
    assert key.fingerprint.startswith("SHA256:")
    assert len(key.fingerprint) == 50


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "machine.key"
    load_or_make_key(str(path))
    path.chmod(0o640)
    with pytest.raises(StorageError, match="open to others") as caught:
        load_or_make_key(str(path))
    assert caught.value.remedy.startswith("chmod go-rwx")


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\n", b"\xff" * 64])
def test_damage_is_reported_and_never_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "machine.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StorageError, match="no private key"):
        load_or_make_key(str(path))
    assert path.read_bytes() == content


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    path = tmp_path / "machine.key"
    path.write_bytes(
        X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    path.chmod(0o600)
    with pytest.raises(StorageError, match="no ed25519"):
        load_key(str(path))


def test_links_folders_and_pipes_are_no_keys(tmp_path: Path) -> None:
    real = tmp_path / "real.key"
    load_or_make_key(str(real))
    (tmp_path / "link.key").symlink_to(real)
    (tmp_path / "folder.key").mkdir()
    os.mkfifo(tmp_path / "pipe.key", 0o600)
    for name in ("link.key", "folder.key", "pipe.key"):
        with pytest.raises(StorageError):
            load_key(str(tmp_path / name))


def _make(path: str, start: object, found: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    found.put(load_or_make_key(path).public)  # type: ignore[attr-defined]


def test_processes_at_once_get_the_same_key(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    start, found = spawn.Event(), spawn.Queue()
    path = str(tmp_path / "machine.key")
    processes = [spawn.Process(target=_make, args=(path, start, found)) for _ in range(4)]
    for process in processes:
        process.start()
    start.set()
    keys = {found.get(timeout=30) for _ in processes}
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    assert len(keys) == 1
    assert os.listdir(tmp_path) == ["machine.key"]
