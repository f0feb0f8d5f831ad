from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.requests import Request

from handoff.agentd.http import (
    BODY_LIMIT,
    Door,
    Json,
    body_of,
    flag_of,
    json_of,
    text_of,
    without_nul,
)
from handoff.errors import TooLarge, UsageError


def request_of(*parts: bytes) -> Request:
    waiting = [
        {"type": "http.request", "body": part, "more_body": index + 1 < len(parts)}
        for index, part in enumerate(parts)
    ]

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    return Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)


async def test_a_body_comes_in_parts_and_has_a_limit() -> None:
    assert await body_of(request_of(b"a", b"b")) == b"ab"
    with pytest.raises(TooLarge):
        await body_of(request_of(b"x" * BODY_LIMIT, b"y"))


@pytest.mark.parametrize(
    "raw",
    [
        b"[]",
        b"1",
        b"{",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a": "' + b"\xff" * 300_000 + b'"}',
    ],
)
async def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(UsageError):
        await json_of(request_of(raw))


async def test_objects_small_and_large() -> None:
    assert await json_of(request_of(b" ")) == {}
    assert await json_of(request_of(b'{"a": "\\ud83d\\ude42"}')) == {"a": "🙂"}
    large = {"a": "é" * 300_000}
    assert await json_of(request_of(json.dumps(large).encode())) == large


def test_fields_have_their_types() -> None:
    assert text_of({"a": "x"}, "a") == "x"
    assert text_of({"a": None}, "a") is None
    assert flag_of({"a": True}, "a")
    assert not flag_of({}, "a")
    for wrong in (1, [], {}, 0, False):
        with pytest.raises(UsageError):
            text_of({"a": wrong}, "a")
    for wrong in (1, "true", [], 0):
        with pytest.raises(UsageError):
            flag_of({"a": wrong}, "a")
    assert without_nul("a", "a") == "a"
    with pytest.raises(UsageError):
        without_nul("a\0", "a")


def test_names_that_are_no_text_can_be_told() -> None:
    assert Json({"a": "é"}).body == '{"a":"é"}'.encode()
    assert json.loads(Json({"a": "\udcff"}).body) == {"a": "\udcff"}


@pytest.mark.parametrize(
    ("host", "token", "status"),
    [
        ("127.0.0.1:7777", "Bearer secret", 200),
        ("localhost", "Bearer secret", 200),
        ("[::1]:7777", "Bearer secret", 200),
        ("evil.example", "Bearer secret", 401),
        ("127.0.0.1", "Bearer wrong", 401),
        ("127.0.0.1", "", 401),
    ],
)
async def test_the_door_on_tcp(host: str, token: str, status: int) -> None:
    seen = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        seen.append(message)

    headers = [(b"host", host.encode())]
    if token:
        headers.append((b"authorization", token.encode()))
    scope = {
        "type": "http",
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 7777),
        "headers": headers,
    }
    await Door(app, "secret", 0)(scope, None, send)
    assert seen[0]["status"] == status
