from __future__ import annotations

from pathlib import Path

from handoff.gate.changed import Change, changed, explain, marks_now
from handoff.gate.marks import mark


def test_nothing_changed(tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text("echo one\n")
    marks = (mark(str(tmp_path / "s.sh")), mark(str(tmp_path / "none")))
    assert changed(marks, str(tmp_path)) == []
    assert explain([]) == ""


def test_a_change_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "s.sh"
    file.write_text("echo one >>out\n")
    marks = (mark(str(file)),)
    file.write_text("echo three >>out\n")
    (change,) = changed(marks, str(tmp_path))
    assert (change.path, change.what) == ("s.sh", "changed")
    text = explain([change])
    assert text.startswith("s.sh is not what it was when this was asked for\n")
    assert "-echo one >>out\n+echo three >>out" in text


def test_appeared_gone_and_unreadable(tmp_path: Path) -> None:
    (tmp_path / "gone").write_text("x\n")
    (tmp_path / "folder").write_text("x\n")
    marks = tuple(mark(str(tmp_path / name)) for name in ("gone", "new", "folder"))
    (tmp_path / "gone").unlink()
    (tmp_path / "folder").unlink()
    (tmp_path / "folder").mkdir()
    (tmp_path / "new").write_text("x\n")
    found = changed(marks, str(tmp_path))
    assert [(c.path, c.what) for c in found] == [
        ("gone", "gone"),
        ("new", "appeared"),
        ("folder", "unreadable"),
    ]
    assert "+x" in found[1].diff
    text = explain(found)
    assert "gone was there when this was asked for, and is gone" in text
    assert "folder can't be compared" in text


def test_marks_are_renewed_where_they_can_be(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("x\n")
    marks = tuple(mark(str(tmp_path / name)) for name in ("a", "b"))
    (tmp_path / "a").write_text("y\n")
    (tmp_path / "b").unlink()
    (tmp_path / "b").mkdir()
    renewed = marks_now(marks)
    assert renewed == (mark(str(tmp_path / "a")), marks[1])
    assert [change.path for change in changed(renewed, str(tmp_path))] == ["b"]


def test_a_link_that_leads_elsewhere_is_a_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "b").write_text("b\n")
    (tmp_path / "ln").symlink_to("a")
    marks = (mark(str(tmp_path / "ln")),)
    (tmp_path / "ln").unlink()
    (tmp_path / "ln").symlink_to("b")
    assert changed(marks, str(tmp_path))[0].path == "ln"


def test_the_same_bytes_written_again_are_no_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    marks = (mark(str(tmp_path / "a")),)
    (tmp_path / "a").unlink()
    (tmp_path / "a").write_text("a\n")
    assert changed(marks, str(tmp_path)) == []


def test_secrets_and_binaries_are_not_shown(tmp_path: Path) -> None:
    for name, then, now in (
        (".env", b"A=one\n", b"A=two\n"),
        ("bin", b"\0one", b"\0two"),
        ("half", b"\0one", b"two\n"),
        ("big", b"one\n" * 100_000, b"two\n"),
    ):
        (tmp_path / name).write_bytes(then)
        marks = (mark(str(tmp_path / name)),)
        (tmp_path / name).write_bytes(now)
        (change,) = changed(marks, str(tmp_path))
        assert change.diff == ""
        assert "not shown" in change.why
        assert "not shown" in explain([change])
        assert "=one" not in explain([change])


def test_outside_paths_stay_absolute_and_long_differences_are_cut(tmp_path: Path) -> None:
    work = tmp_path / "wt"
    work.mkdir()
    file = tmp_path / "f"
    file.write_text("a\n" * 5000)
    marks = (mark(str(file)),)
    file.write_text("b\n" * 5000)
    (change,) = changed(marks, str(work))
    assert change.path == str(file)
    assert "left out" in explain([change])
    assert len(explain([change])) < 5000


def test_an_empty_file_that_is_filled(tmp_path: Path) -> None:
    (tmp_path / "e").write_text("")
    marks = (mark(str(tmp_path / "e")),)
    (tmp_path / "e").write_text("x\n")
    assert changed(marks, str(tmp_path)) == [
        Change(path="e", what="changed", diff="--- e\n+++ e\n@@ -0,0 +1 @@\n+x\n")
    ]
