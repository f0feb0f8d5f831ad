from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.gate.diffs import MAX_DIFF, unified


def test_equal_texts_have_none() -> None:
    assert unified("a\n", "a\n", "x") == ""


def test_a_change_with_its_context() -> None:
    old = "".join(f"{n}\n" for n in range(1, 21))
    new = old.replace("10\n", "ten\n")
    assert unified(old, new, "f") == (
        "--- f\n+++ f\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
    )


def test_a_new_file_and_a_missing_line_end() -> None:
    assert unified("", "a\nb", "f", new_file=True) == (
        "--- /dev/null\n+++ f\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
    )


@settings(max_examples=150, deadline=None)
@given(
    old=st.lists(st.sampled_from("abcd"), max_size=30),
    new=st.lists(st.sampled_from("abcd"), max_size=30),
    ends=st.tuples(st.booleans(), st.booleans()),
)
def test_the_difference_can_be_applied(
    old: list[str], new: list[str], ends: tuple[bool, bool]
) -> None:
    before = "\n".join(old) + ("\n" if ends[0] and old else "")
    after = "\n".join(new) + ("\n" if ends[1] and new else "")
    diff = unified(before, after, "f")
    if before == after or not before or not after:
        return
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "f")
        file.write_text(before)
        subprocess.run(
            ["git", "apply", "--unidiff-zero", "--whitespace=nowarn", "-p0", "-"],
            input=diff.encode(),
            cwd=place,
            check=True,
            env={
                "PATH": os.environ["PATH"],
                "HOME": place,
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CEILING_DIRECTORIES": os.path.dirname(place),
            },
        )
        assert file.read_text() == after


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x\n" * 20_000, "y\n" * 20_000),
        ("x\n" * 20_000, "x\ny\n" * 10_000),
        ("".join(f"{n}\n" for n in range(40_000)), "".join(f"{n}\n" for n in range(1, 80_000, 2))),
        ("a" * 3_000_000, "b" * 3_000_000),
    ],
)
def test_large_texts_are_quick_and_the_cut_is_stated(old: str, new: str) -> None:
    start = time.process_time()
    diff = unified(old, new, "f")
    assert time.process_time() - start < 5
    assert len(diff) <= MAX_DIFF + 100
    assert diff.endswith("more characters of the difference left out …]\n")
