from __future__ import annotations

import os
from pathlib import Path

from handoff.executors.contract import FileEdit
from handoff.gate.edits import difference
from handoff.gate.paths import resolve


def show(work: Path, *edits: FileEdit) -> str:
    targets = {edit.path: resolve(edit.path, str(work), str(work)) for edit in edits}
    return difference(edits, targets).diff


def test_a_whole_new_file(tmp_path: Path) -> None:
    expected = "--- /dev/null\n+++ n\n@@ -0,0 +1 @@\n+a\n"
    assert show(tmp_path, FileEdit("n", new="a\n", whole=True)) == expected
    assert show(tmp_path, FileEdit("n", new="a\n")) == expected
    assert show(tmp_path, FileEdit("n", new="", whole=True)) == "[n: a new, empty file]\n"


def test_an_extract_is_shown_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{n}\n" for n in range(1, 10)))
    assert show(tmp_path, FileEdit("f", old="5\n", new="five\n")) == (
        "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
    )


def test_edits_of_one_file_build_on_each_other(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\n")
    diff = show(tmp_path, FileEdit("f", old="one", new="two"), FileEdit("f", old="two", new="six"))
    assert "-one\n+two\n" in diff
    assert "-two\n+six\n" in diff


def test_what_does_not_fit_the_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\na\n")
    assert "is not in the file as it is now" in show(tmp_path, FileEdit("f", old="b", new="c"))
    assert "is there 2 times" in show(tmp_path, FileEdit("f", old="a", new="c"))
    assert "did not say what this replaces" in show(tmp_path, FileEdit("f", new="c\n"))
    assert "not what the executor takes it for" in show(
        tmp_path, FileEdit("f", old="z\n", new="c\n", whole=True)
    )
    assert "no change" in show(tmp_path, FileEdit("f", new="a\na\n", whole=True))
    both = show(tmp_path, FileEdit("f", old="b", new="c"), FileEdit("f", old="a", new="c"))
    assert "an edit before can't be told" in both


def test_what_is_not_said_is_said(tmp_path: Path) -> None:
    edits = (FileEdit("f"),)
    found = difference(edits, {"f": resolve("f", str(tmp_path), str(tmp_path))})
    assert "did not say" in found.diff
    assert len(found.unknown) == 1


def test_binary_secret_and_special_files(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\0\1")
    (tmp_path / ".env").write_text("A=hidden\n")
    os.mkfifo(tmp_path / "p")
    assert "a binary file of 2 bytes" in show(tmp_path, FileEdit("b", new="x\n", whole=True))
    secret = show(tmp_path, FileEdit(".env", new="A=new\n", whole=True))
    assert "hidden" not in secret
    assert "+A=new" in secret
    assert "no regular file" in show(tmp_path, FileEdit("p", new="x\n", whole=True))
    assert "binary data" in show(tmp_path, FileEdit("n", new="a\0b", whole=True))
    (tmp_path / "loop").symlink_to("loop")
    assert "leads nowhere" in show(tmp_path, FileEdit("loop", new="x\n", whole=True))


def test_large_edits_are_bounded_and_say_so(tmp_path: Path) -> None:
    big = "x\n" * 3_000_000
    assert "too large to be compared" in show(tmp_path, FileEdit("f", new=big, whole=True))
    many = tuple(FileEdit(f"f{n}", new="line\n" * 20_000, whole=True) for n in range(20))
    diff = show(tmp_path, *many)
    assert len(diff) < 400_000
    assert "more edits left out …]" in diff
