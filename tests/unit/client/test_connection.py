from __future__ import annotations

import json
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.client import connection
from handoff.client.connection import Lost, Response, Wire, query_text, quote
from handoff.client.endpoint import Endpoint
from handoff.errors import (
    PathTooLong,
    ProtocolViolation,
)


def test_a_socket_path_beyond_the_limit_is_named(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "d" * 150)
    with pytest.raises(PathTooLong, match="bytes") as caught:
        connection.connect(Endpoint(socket_path=path))
    assert caught.value.details["path"] == path


def _response(data: bytes, cuts: list[int], headers: dict[str, str]) -> Response:
    ours, theirs = socket.socketpair()
    with theirs:
        at = 0
        for cut in sorted(cuts):
            theirs.sendall(data[at:cut])
            at = max(at, cut)
        theirs.sendall(data[at:])
    return Response(Wire(ours), 200, headers, 5.0)


@given(
    st.lists(st.binary(min_size=1, max_size=50), max_size=8),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_chunks_are_put_together_wherever_they_were_cut(
    parts: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\nTrailer: x\r\n\r\n"
    response = _response(data, cuts, {"transfer-encoding": "chunked"})
    assert response.body() == b"".join(parts)
    assert response.piece() == b""
    response.close()


@given(st.binary(max_size=300), st.integers(1, 40))
def test_a_chunked_body_cut_short_is_never_taken_for_whole(body: bytes, missing: int) -> None:
    data = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    response = _response(data[:-missing], [], {"transfer-encoding": "chunked"})
    with pytest.raises((Lost, ProtocolViolation)):
        response.body()
    response.close()


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), max_size=30), max_size=8
    )
)
def test_lines_are_whole(texts: list[str]) -> None:
    data = b"".join(json.dumps(text).encode() + b"\n" for text in texts)
    response = _response(data, [3, 7, 20], {})
    assert [json.loads(line) for line in response.lines()] == texts
    response.close()


@given(st.text(st.characters(codec="utf-8")))
def test_quote_can_be_read_back(text: str) -> None:
    from urllib.parse import unquote

    assert quote(text).isascii()
    assert unquote(quote(text)) == text


def test_quote_keeps_bytes_that_are_not_utf8() -> None:
    assert quote("a\udcff/b") == "a%FF%2Fb"


def test_query_repeats_lists() -> None:
    assert query_text({"path": ["a", "*.txt"], "x": 0}) == "?path=a&path=%2A.txt&x=0"
    assert query_text({"a": None}) == ""
