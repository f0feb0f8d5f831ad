"""A node whose disks are full: what was there is whole, and nothing runs unnoted."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from tests.support.nodes import Place, running


@contextlib.contextmanager
def small(place: pathlib.Path, options: str) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True
    )
    if done.returncode:
        pytest.skip("a file system of its own needs the right to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Place]:
    with running(tmp_path) as made:
        yield made


@pytest.mark.parametrize("options", ["size=256k", "size=1m,nr_inodes=4"])
def test_a_full_disk_keeps_the_old_content(place: Place, options: str) -> None:
    folder = place.files / "disk"
    with small(folder, options):
        old = os.urandom(100 << 10)
        path = str(folder / "old")
        place.nodes("write", "n1", path, data=old)
        if "inodes" in options:
            for number in range(2):
                (folder / f"taken{number}").write_text("")
        big = os.urandom(1 << 20)
        for words, data in (
            (("write", "n1", path), big),
            (("write", "n1", path, "--append"), big),
            (("write", "n1", str(folder / "new")), big),
        ):
            done = place.nodes(*words, data=data, code=1)
            assert b"no space left" in done.stderr
            assert b"disk/" in done.stderr
        source = place.root / "source"
        source.write_bytes(big)
        done = place.nodes("put", "n1", str(source), str(folder / "put"), code=1)
        assert b"no space left" in done.stderr
        assert (folder / "old").read_bytes() == old
        left = set(os.listdir(folder)) - {"old", "taken0", "taken1"}
        assert not left


def test_a_read_only_disk(place: Place) -> None:
    folder = place.files / "disk"
    with small(folder, "size=1m"):
        (folder / "old").write_text("old")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        done = place.nodes("write", "n1", str(folder / "old"), data=b"new", code=1)
        assert b"read-only" in done.stderr.lower()
        assert (folder / "old").read_text() == "old"


def test_without_room_for_its_notes_nothing_runs(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path)
    with small(tmp_path / "nodes" / "n1", "size=1m"):
        try:
            place.serve()
            place.pair()
            place.start_node()
            place.nodes("exec", "n1", "--", "true")
            filler = tmp_path / "nodes" / "n1" / "filler"
            fd = os.open(filler, os.O_WRONLY | os.O_CREAT)
            with contextlib.suppress(OSError):
                while os.write(fd, b"x" * 4096):
                    pass
            os.close(fd)
            ran = tmp_path / "ran"
            done = place.nodes("exec", "n1", "--", "sh", "-c", f"echo x >>{ran}", code=None)
            # a page of the journal may still have had room: then it ran, and once
            if done.returncode:
                assert not ran.exists()
                assert b"space" in done.stderr or b"full" in done.stderr
            for _ in range(30):
                done = place.nodes("exec", "n1", "--", "true", code=None)
                if done.returncode:
                    break
            assert done.returncode == 1
            assert b"Traceback" not in done.stderr
            filler.unlink()
            place.until(lambda: place.nodes("exec", "n1", "--", "true", code=None).returncode == 0)
        finally:
            place.close()
