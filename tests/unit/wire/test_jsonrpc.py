from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff.wire import jsonrpc
from handoff.wire.jsonrpc import (
    Blank,
    Junk,
    LineSplitter,
    Notification,
    Request,
    Result,
    RpcError,
    classify,
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}', Request(1, "m", {"a": 1})),
        (b'{"id":"x","method":"m"}', Request("x", "m", {})),
        (b'{"method":"m","params":[1]}', Notification("m", {})),
        (b'{"method":"m","id":null}', Notification("m", {})),
        (b'{"id":7,"result":null}', Result(7, None)),
        (b'{"id":7.0,"result":[]}', Result(7, [])),
        (b'{"id":7,"error":{"code":-1,"message":"no"}}', RpcError(7, -1, "no")),
        (b'{"id":null,"error":{"code":-32700,"message":"?"}}', RpcError(None, -32700, "?")),
        (
            b'{"id":7,"error":{"code":"x"}}',
            RpcError(7, jsonrpc.INTERNAL_ERROR, "error without a message"),
        ),
        (b"", Blank()),
        (b"  \t ", Blank()),
        (b'\xef\xbb\xbf{"id":1,"result":2}', Result(1, 2)),
        (b'  {"id":1,"result":2}\r', Result(1, 2)),
    ],
)
def test_classifies(line, expected):
    assert classify(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        b"warning: something",
        b'{"id":1,"result":',
        b"\xff\xfe\x00",
        b"[" * 200_000,
        b'{"a":' * 50_000,
        b'{"id":1,"result":NaN}',
    ],
)
def test_what_is_no_json_is_junk(line):
    message = classify(line)
    assert isinstance(message, Junk)
    assert message.what == "not JSON"
    assert len(message.sample) <= 200


@pytest.mark.parametrize(
    "line",
    [b"[]", b"1", b'"x"', b"null", b"{}", b'{"method":1}', b'{"id":true,"result":1}', b'{"id":1}'],
)
def test_json_that_is_no_message_is_junk(line):
    assert isinstance(classify(line), Junk)


def test_half_a_surrogate_pair_spoils_only_itself():
    assert classify(b'{"method":"m","params":{"t":"a\\ud83d"}}') == Notification(
        "m", {"t": "a\ufffd"}
    )
    # What was read can be written again.
    assert jsonrpc.notification("m", {"t": "a\ud83d"}).endswith(b'"a\xef\xbf\xbd"}}\n')


def test_a_sample_shows_no_control_characters():
    message = classify(b"\x1b[31mred\x07" + b"x" * 900)
    assert isinstance(message, Junk)
    assert message.sample.isprintable()


@given(st.binary(max_size=300))
def test_any_bytes_are_something(data):
    classify(data)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(_json)
def test_any_json_is_something(value):
    classify(json.dumps(value).encode())


@given(st.dictionaries(st.text(max_size=5), _json, max_size=4))
def test_what_is_written_is_read_as_what_it_was(params):
    written = jsonrpc.request(5, "m", params)
    assert written.endswith(b"\n") and b"\n" not in written[:-1]
    read = classify(written[:-1])
    assert isinstance(read, Request)
    assert (read.id, read.method) == (5, "m")
    assert classify(jsonrpc.result("i", 3)[:-1]) == Result("i", 3)
    assert classify(jsonrpc.error(None, -1, "x")[:-1]) == RpcError(None, -1, "x")


@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_the_same_however_the_stream_is_cut(lines, data):
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    splitter, found, at = LineSplitter(), [], 0
    while at < len(stream):
        step = data.draw(st.integers(1, len(stream) - at))
        found += splitter.feed(stream[at : at + step])
        at += step
    assert found == lines
    assert splitter.finish() == [b"rest"]
    assert splitter.finish() == []


def test_a_line_over_the_limit_is_handed_out_once_and_dropped():
    splitter = LineSplitter(limit=10)
    assert splitter.feed(b"x" * 9) == []
    assert splitter.feed(b"y" * 9) == [b"x" * 9 + b"yy"]
    assert splitter.pending == 0
    assert splitter.feed(b"z" * 1000) == []
    assert splitter.pending == 0
    assert splitter.feed(b"tail\nnext\n") == [b"next"]
    assert splitter.feed(b"0123456789AB\nok\n") == [b"0123456789A", b"ok"]
    assert splitter.feed(b"a" * 11) == [b"a" * 11]
    assert splitter.finish() == []


def test_a_line_over_the_limit_is_called_too_long():
    (line,) = LineSplitter().feed(b'{"method":"m"' + b" " * jsonrpc.MAX_LINE)
    assert len(line) == jsonrpc.MAX_LINE + 1
    message = classify(line)
    assert isinstance(message, Junk)
    assert message.what == "too long"
    assert message.sample.startswith('{"method":"m"')
    assert isinstance(classify(b'{"method":"m"}'.ljust(jsonrpc.MAX_LINE)), Notification)
