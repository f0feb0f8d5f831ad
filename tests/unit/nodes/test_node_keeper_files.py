from __future__ import annotations

import json
import os
import pathlib

import pytest

from handoff.nodes.node import keeper_files
from handoff.nodes.node.keeper_files import NAME, Ends, Folders, read_ends


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def numbers() -> list[int]:
    return [json.loads(line)["number"] for line in pathlib.Path(NAME).read_text().splitlines()]


def test_ends_are_found_by_the_next_keeper_while_their_folders_stand() -> None:
    ends = Ends()
    for name in ("a", "b"):
        os.mkdir(name)
        ends.add({"name": name, "exit_code": 0})
    ends.add({"name": "a", "exit_code": 3})
    os.rmdir("b")
    assert read_ends(".") == {"a": {"name": "a", "exit_code": 3}}
    assert Ends().names == {"a"}
    assert len(pathlib.Path(NAME).read_bytes().splitlines()) == 1


@pytest.mark.parametrize("torn", [b'{"name": "b"', b"nonsense\n", b"[1]\n", b"[" * 100_000 + b"\n"])
def test_what_is_no_line_is_no_end(torn: bytes) -> None:
    for name in ("a", "b"):
        os.mkdir(name)
    Ends().add({"name": "a"})
    with open(NAME, "ab") as file:
        file.write(torn)
    assert read_ends(".") == {"a": {"name": "a"}}
    Ends().add({"name": "b"})
    assert set(read_ends(".")) == {"a", "b"}


def test_lines_of_the_forgotten_go_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_files, "STALE", 10)
    os.mkdir("a")
    ends = Ends()
    for number in range(12):
        ends.add({"name": "a", "number": number})
    assert ends.stale(1)
    ends.keep([{"name": "a", "number": 11}])
    assert not ends.stale(1)
    ends.add({"name": "a", "number": 12})
    assert numbers() == [11, 12]


def test_a_full_disk_leaves_no_half_line(monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkdir("a")
    ends = Ends()
    ends.add({"name": "a", "number": 1})
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda fd, data: write(fd, data[:5]))
        ends.add({"name": "a", "number": 2})
    ends.add({"name": "a", "number": 3})
    assert numbers() == [1, 3]


def test_a_folder_is_made_once_and_used_again_when_it_was_dropped() -> None:
    folders = Folders()
    assert folders.make("a")
    assert not folders.make("a")
    pathlib.Path("a/out").write_text("x")
    first = os.stat("a").st_ino
    folders.drop("a")
    folders.drop("a")
    folders.prepare()
    assert folders.make("b")
    assert (os.listdir("b"), os.stat("b").st_ino) == ([], first)
    folders.prepare()
    assert not folders.make("b")
    assert Folders().make("c")
    assert not os.path.exists(keeper_files.SPARE)
