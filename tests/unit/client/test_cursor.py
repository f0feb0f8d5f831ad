from __future__ import annotations

import os
import pathlib
import threading

import pytest

from handoff.client.cursor import KEEP_DAYS, Cursors

TASK = "1f3a0000-0000-4000-8000-000000000000"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    (tmp_path / "cwd").mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return tmp_path / "home"


def test_save_then_load(home: pathlib.Path, said: list[str]) -> None:
    cursors = Cursors(str(home), "inst", said.append)
    assert cursors.load(TASK) == 0
    cursors.save(TASK, 41)
    assert Cursors(str(home), "inst", said.append).load(TASK) == 41
    assert Cursors(str(home), "other", said.append).load(TASK) == 0
    assert (home / "cursors" / "inst" / TASK).read_text() == "41"
    assert (home / "cursors" / "inst").stat().st_mode & 0o777 == 0o700
    assert os.listdir(home / "cursors" / "inst") == [TASK]
    assert said == []


@pytest.mark.parametrize("content", [b"", b"-1", b"4 1", b"\xff", b"\xd9\xa3", b"x" * 1000])
def test_a_broken_cursor_repeats_and_says_so(
    home: pathlib.Path, said: list[str], content: bytes
) -> None:
    cursors = Cursors(str(home), "inst", said.append)
    cursors.save(TASK, 1)
    (home / "cursors" / "inst" / TASK).write_bytes(content)
    assert cursors.load(TASK) == 0
    assert "events are repeated" in said[0]


def test_a_home_that_cant_be_written_falls_back_to_the_folder(
    home: pathlib.Path, said: list[str]
) -> None:
    (home / "cursors").write_text("in the way")
    cursors = Cursors(str(home), "inst", said.append)
    cursors.save(TASK, 7)
    assert pathlib.Path(".handoff/cursors/inst", TASK).read_text() == "7"
    assert cursors.load(TASK) == 7
    assert len(said) == 2


def test_no_place_at_all_is_a_warning_not_a_failure(home: pathlib.Path, said: list[str]) -> None:
    (home / "cursors").write_text("")
    pathlib.Path(".handoff").write_text("")
    cursors = Cursors(str(home), "inst", said.append)
    cursors.save(TASK, 7)
    assert cursors.load(TASK) == 0
    assert said


def test_names_can_not_leave_the_folder(home: pathlib.Path, said: list[str]) -> None:
    cursors = Cursors(str(home), "../../x", said.append)
    cursors.save("../../y", 3)
    assert cursors.load("../../y") == 3
    files = [p for p in home.parent.rglob("*") if p.is_file()]
    assert len(files) == 1
    assert home in files[0].parents


def test_concurrent_saves_never_leave_half_a_number(home: pathlib.Path, said: list[str]) -> None:
    Cursors(str(home), "inst", said.append).save(TASK, 1)
    seen: set[int] = set()
    stop = threading.Event()

    def read() -> None:
        cursors = Cursors(str(home), "inst", said.append)
        while not stop.is_set():
            seen.add(cursors.load(TASK))

    reader = threading.Thread(target=read)
    reader.start()
    cursors = Cursors(str(home), "inst", said.append)
    for number in (1, 1000000) * 200:
        cursors.save(TASK, number)
    stop.set()
    reader.join(10)
    assert seen <= {1, 1000000}
    assert said == []


def test_drop_and_sweep(home: pathlib.Path, said: list[str]) -> None:
    cursors = Cursors(str(home), "inst", said.append)
    folder = home / "cursors" / "inst"
    for name in ("a", "b", "c.1.tmp", "d.2.tmp"):
        cursors.save("x", 1)
        (folder / name).write_text("1")
    now = 2_000_000_000.0
    os.utime(folder / "a", (now, now - KEEP_DAYS * 86400 - 1))
    os.utime(folder / "b", (now, now - KEEP_DAYS * 86400 + 60))
    os.utime(folder / "c.1.tmp", (now, now - 3601))
    os.utime(folder / "d.2.tmp", (now, now - 60))
    cursors.drop("x")
    cursors.drop("never there")
    cursors.sweep(now)
    assert sorted(os.listdir(folder)) == ["b", "d.2.tmp"]
