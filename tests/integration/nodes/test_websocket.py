"""Our WebSocket connections beside the library's own, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from handoff.nodes.websocket import ClientSocket, ServerSocket

LIMIT = 1_000_000
MIXED: list[str | bytes] = [
    *(b"small", "a text", b"", b"x" * 70_000, "", b"y" * LIMIT, "ü" * 30_000),
    *(b"z" * 16_370, b"0" * 125, b"1" * 126, b"last"),
]
HELLO = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


async def echo(connection: Any) -> None:
    """Say what is heard, by way of ``listen``, until the other side goes."""

    def heard(message: str | bytes) -> None:
        connection.send_now(message if isinstance(message, str) else bytes(message))

    connection.listen(heard, lambda: None)
    with contextlib.suppress(ConnectionClosed):
        while True:
            heard(await connection.recv())


@contextlib.asynccontextmanager
async def echoing(kind: type[ServerConnection] = ServerSocket) -> AsyncIterator[int]:
    work: Callable[[Any], Any] = echo
    if kind is not ServerSocket:

        async def work(connection: Any) -> None:
            async for message in connection:
                await connection.send(message)

    async with serve(
        work, "127.0.0.1", 0, create_connection=kind, compression=None, max_size=LIMIT
    ) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ClientSocket, ServerConnection),
        (ClientConnection, ServerSocket),
        (ClientSocket, ServerSocket),
    ],
)
async def test_messages_of_all_kinds_come_in_order(ours: Any, theirs: Any) -> None:
    async with (
        echoing(theirs) as port,
        connect(
            f"ws://127.0.0.1:{port}", create_connection=ours, compression=None, max_size=LIMIT
        ) as client,
    ):
        got: list[str | bytes] = []
        done = asyncio.Event()

        def heard(message: str | bytes) -> None:
            got.append(message if isinstance(message, str) else bytes(message))
            if len(got) == len(MIXED):
                done.set()

        if isinstance(client, ClientSocket):
            client.listen(heard, lambda: None)
            reading = asyncio.create_task(client.recv())
            for message in MIXED:
                client.send_now(message)
            await asyncio.wait_for(done.wait(), 20)
            reading.cancel()
        else:
            for message in MIXED:
                await client.send(message)
            for _ in MIXED:
                heard(await asyncio.wait_for(client.recv(), 20))
        assert got == MIXED


async def test_what_comes_with_the_handshake_is_not_lost() -> None:
    async with echoing() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(3):
            frame = Frame(Opcode.BINARY, b"frame %d" % number).serialize(mask=True)
            writer.write(HELLO + frame[:5] if not number else frame)
            if not number:
                writer.write(frame[5:])
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        got = await asyncio.wait_for(reader.readexactly(3 * (2 + 7)), 20)
        assert got == b"".join(b"\x82\x07frame %d" % number for number in range(3))
        writer.close()


@pytest.mark.parametrize("size", [10, 70_000])
async def test_a_ping_and_a_close_are_answered_between_messages(size: int) -> None:
    async with echoing() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HELLO)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        body = b"m" * size
        frames = [
            Frame(Opcode.BINARY, body),
            Frame(Opcode.PING, b"are you there"),
            Frame(Opcode.CLOSE, b"\x03\xe8"),
            Frame(Opcode.BINARY, b"too late"),
        ]
        writer.write(b"".join(frame.serialize(mask=True) for frame in frames))
        found = await asyncio.wait_for(reader.read(-1), 20)
        head = b"\x82\x0a" if size == 10 else b"\x82\x7f" + size.to_bytes(8, "big")
        assert found == head + body + b"\x8a\x0dare you there" + b"\x88\x02\x03\xe8"
        writer.close()


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([(Opcode.BINARY, b"x" * (LIMIT + 1), True, True)], 1009),
        ([(Opcode.BINARY, b"bare", True, False)], 1002),
        ([(Opcode.BINARY, b"in ", False, True), (Opcode.BINARY, b"between", True, True)], 1002),
        ([(Opcode.TEXT, b"\xff\xfe", True, True)], 1007),
    ],
)
async def test_what_the_protocol_forbids_ends_the_connection(
    frames: list[tuple[Opcode, bytes, bool, bool]], code: int
) -> None:
    async with echoing() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HELLO)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        for opcode, data, fin, mask in frames:
            writer.write(Frame(opcode, data, fin).serialize(mask=mask))
        found = await asyncio.wait_for(reader.read(-1), 20)
        assert found[:1] == b"\x88"
        assert int.from_bytes(found[2:4], "big") == code
        writer.close()
