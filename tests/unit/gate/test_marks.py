from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest

from handoff.gate.marks import MAX_COPY, CantPin, as_text, mark, may_be_kept, read_regular


def test_a_text_is_kept_with_its_digest(tmp_path: Path) -> None:
    file = tmp_path / "s.sh"
    file.write_bytes(b"echo one\n")
    made = mark(str(file))
    assert made.digest == hashlib.sha256(b"echo one\n").hexdigest()
    assert (made.size, base64.b64decode(made.copy)) == (9, b"echo one\n")


def test_nothing_there_is_an_empty_digest(tmp_path: Path) -> None:
    for name in ("none", "none/below"):
        assert mark(str(tmp_path / name)).digest == ""
    (tmp_path / "file").write_text("")
    assert mark(str(tmp_path / "file" / "x")).digest == ""
    assert mark(str(tmp_path / "file")).digest == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x", b"\0binary"),
        ("x", b"\xff\xfe"),
        ("x", b"a" * (MAX_COPY + 1)),
        (".env", b"A=1\n"),
        (".env.local", b"A=1\n"),
        ("prod.env", b"A=1\n"),
        ("id_ed25519", b"x\n"),
        ("tls.key", b"x\n"),
        ("x", b"-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n"),
        ("deploy.sh", b"curl -H 'Authorization: Bearer abcdefghij0123456789XYZ' x\n"),
    ],
)
def test_no_copy_of_what_is_no_small_text_or_may_be_secret(
    tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    made = mark(str(tmp_path / name))
    assert made.copy == ""
    assert made.size == len(data)
    assert not may_be_kept(name, data)


def test_what_is_no_regular_file_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), str(tmp_path), "/dev/zero", "/dev/null"):
        with pytest.raises(CantPin):
            read_regular(path)
    with pytest.raises(CantPin):
        read_regular("a\0b")


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "big", "wb") as handle:
        handle.truncate(1 << 40)
    with pytest.raises(CantPin, match="too large"):
        mark(str(tmp_path / "big"))
    (tmp_path / "ten").write_bytes(b"0123456789")
    assert read_regular(str(tmp_path / "ten"), 10) == b"0123456789"
    with pytest.raises(CantPin):
        read_regular(str(tmp_path / "ten"), 9)


def test_a_file_that_only_seems_empty_is_read_to_its_limit() -> None:
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("needs /proc")
    assert read_regular("/proc/self/status")
    with pytest.raises(CantPin, match="grew"):
        read_regular("/proc/self/status", 5)


def test_as_text() -> None:
    assert as_text("ä".encode()) == "ä"
    assert as_text(b"\xe4") is None
    assert as_text(b"a\0") is None
