"""What a file's bytes are like does not depend on how they were cut into pieces."""

from __future__ import annotations

import hashlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.nodes.node.files import Entry
from handoff.nodes.node.looking import Look
from handoff.wire.node.calls import ReadResult


def looked(*pieces: bytes) -> ReadResult:
    look = Look()
    for piece in pieces:
        look.feed(piece)
    size = sum(map(len, pieces))
    return look.result(0, size, Entry("x", "file", size, 0o644, 0))


@pytest.mark.parametrize(
    ("text", "lines", "newline", "utf8"),
    [
        (b"", 0, "", True),
        (b"one", 0, "", True),
        (b"one\ntwo\n", 2, "lf", True),
        (b"one\r\ntwo\r\n", 2, "crlf", True),
        (b"one\rtwo\r", 2, "cr", True),
        (b"one\r\ntwo\n\r", 3, "mixed", True),
        ("älter\nЮ\n".encode(), 2, "lf", True),
        (b"one\n\xff\n", 2, "lf", False),
        (b"\x7fELF\0\n\r\n", 0, "", True),
        (b"a line\nand then\0\r\n", 0, "", True),
        ("one\ntwo\n".encode("utf-16"), 2, "lf", False),
    ],
)
def test_what_a_text_is_like(text: bytes, lines: int, newline: str, utf8: bool) -> None:
    found = looked(text)
    assert (found.lines, found.newline, found.utf8) == (lines, newline, utf8)
    assert found.sha256 == hashlib.sha256(text).hexdigest()


@given(
    st.one_of(
        st.lists(st.sampled_from(["\r", "\n", "\r\n", "a", "ü", "\U0001f600", "\0"])).map(
            lambda found: "".join(found).encode()
        ),
        st.binary(max_size=40),
        st.text(max_size=10).map(lambda found: found.encode("utf-16")),
    ),
    st.lists(st.integers(0, 40), max_size=6),
)
def test_where_it_is_cut_changes_nothing(text: bytes, cuts: list[int]) -> None:
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(ends)]
    assert looked(*pieces) == looked(text)
