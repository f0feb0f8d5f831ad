"""Lines in, values out, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.mcp.lines import Splitter, decode, encode

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_what_is_encoded_is_one_line_for_every_reader_and_comes_back(value: Any) -> None:
    line = encode(value)
    assert line.endswith(b"\n")
    text = line.decode("utf-8")
    assert len(text.splitlines()) == 1
    assert decode(line[:-1]) == value


@pytest.mark.parametrize("text", ["a\u2028b", "a\u2029b", "a\x85b", "a\nb\r\n", "\x00\x1e", "😀"])
def test_no_text_ends_a_line(text: str) -> None:
    assert len(encode(text).decode().splitlines()) == 1
    assert decode(encode(text)[:-1]) == text


def test_half_of_a_character_is_escaped() -> None:
    assert encode({"a": "x\ud800"}) == b'{"a":"x\\ud800"}\n'


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(0, 60)))
def test_a_stream_may_be_cut_anywhere(lines: list[bytes], cuts: list[int]) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    stream = b"".join(line + b"\n" for line in lines)
    splitter, found, at = Splitter(), [], 0
    for cut in sorted(cuts):
        found += splitter.feed(stream[at : max(at, cut)])
        at = max(at, cut)
    found += splitter.feed(stream[at:]) + splitter.finish()
    assert found == lines


def test_the_last_line_needs_no_end() -> None:
    splitter = Splitter()
    assert splitter.feed(b"a\nb") == [b"a"]
    assert splitter.finish() == [b"b"]


def test_a_line_that_is_too_long_is_said_once_and_the_next_one_is_read() -> None:
    splitter = Splitter(limit=8)
    found: list[bytes | None] = []
    for _ in range(100):
        found += splitter.feed(b"xxxx")
    found += splitter.feed(b"\nok\n12345678\n123456789\nend\n")
    assert found == [None, b"ok", b"12345678", None, b"end"]
    assert splitter.finish() == []


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"NaN",
        b"[Infinity]",
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"9" * 101,
        b"-" + b"9" * 5000,
        b"{} {}",
    ],
)
def test_what_a_lenient_reader_would_guess_about_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(line)


@given(st.binary(max_size=200))
def test_noise_is_a_value_or_a_value_error(line: bytes) -> None:
    try:
        value = decode(line)
    except ValueError:
        return
    assert json.loads(line) == value
