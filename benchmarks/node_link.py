"""The node link over loopback and TLS: two processes, the real machines on `websockets`.

Without commands or files: what a call and a stream cost before anything is done, and what a
brain keeps for each node that is only there. Sealed on top of TLS, as between two machines
behind a proxy that ends TLS; and not sealed, as with the pin alone. The peers run in the
same two processes: an echo on the same `websockets` over the same TLS, and plain sockets
under TLS that send the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import multiprocessing
import os
import socket
import ssl
import tempfile
import threading
import time
from typing import Any

from common import Row, main, p50
from tests.support.nodelink import BY_KEY, KEYED
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from handoff.clock import SystemClock
from handoff.link.ciphers import CIPHERS
from handoff.link.keys import load_or_make_key
from handoff.link.tls import (
    Pin,
    client_context,
    load_or_make_certificate,
    server_context,
    small_read_buffers,
)
from handoff.nodes.pump import Pump
from handoff.nodes.websocket import ClientSocket, ServerSocket
from handoff.wire.node import events as ev
from handoff.wire.node.brain import BrainLink
from handoff.wire.node.calls import Facts, GetFacts, Read, ReadResult
from handoff.wire.node.node import NodeLink
from handoff.wire.node.options import BrainOptions

MIB = 2**20
BLOCK = 256 * 1024
SOCKET: dict[str, Any] = {
    "compression": None,
    "max_size": 4 * MIB,
    "write_limit": 64 * 1024,
    "ping_interval": None,
}
WAIT_S = 120


class Brain:
    """What happens on the brain's side: calls one after the other, then a stream."""

    def __init__(self, key: Any, count: int, size: int, idle: int) -> None:
        self.key = key
        self.count, self.size, self.idle = count, size, idle
        self.done = asyncio.Event()
        self.opened = 0
        self.figures: dict[str, float] = {}
        self.before = 0

    async def serve(self, connection: ServerConnection) -> None:
        """One node; the first is asked, the others are only there."""
        assert isinstance(connection, ServerSocket)
        link = BrainLink(BrainOptions(key=self.key.private), SystemClock(), CIPHERS, os.urandom)
        state: dict[str, Any] = {"taken": [], "got": 0}

        def happened(event: ev.Event) -> None:
            if isinstance(event, ev.Identify):
                link.identify(BY_KEY)
            elif isinstance(event, ev.Admit):
                link.admit()
            elif isinstance(event, ev.Opened):
                self.opened += 1
                if self.idle:
                    self.count_memory()
                else:
                    self.ask(link, state)
            elif isinstance(event, ev.StreamPiece):
                state["got"] += len(event.data)
                link.consume(event.id, event.stream, len(event.data))
            elif isinstance(event, ev.CallEnded):
                self.answered(link, state)
            pump.poke()

        pump = Pump(connection, link, happened, SystemClock())
        with contextlib.suppress(asyncio.CancelledError):
            await pump.run()

    def ask(self, link: BrainLink, state: dict[str, Any]) -> None:
        """The next call, or the stream."""
        state["start"] = time.perf_counter()
        if len(state["taken"]) < self.count:
            link.call(GetFacts())
        else:
            state["streams"] = True
            link.call(Read("/x", stream=True), window=8 * MIB)

    def answered(self, link: BrainLink, state: dict[str, Any]) -> None:
        """An answer came."""
        taken = time.perf_counter() - state["start"]
        if "streams" in state:
            self.figures = {"call_ms": p50(state["taken"]), "mib_s": state["got"] / MIB / taken}
            self.done.set()
            return
        state["taken"].append(taken * 1e3)
        self.ask(link, state)

    def count_memory(self) -> None:
        """The first twenty nodes warm everything up; the others are counted."""
        if self.opened == 20:
            self.before = pss()
        if self.opened == 20 + self.idle:
            asyncio.get_running_loop().call_later(1.0, self.counted)

    def counted(self) -> None:
        """All are there and rest."""
        self.figures = {"kib": (pss() - self.before) / self.idle}
        self.done.set()


def pss() -> int:
    """KiB of this process's own share of memory."""
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def brain_process(folder: str, pipe: Any, count: int, size: int, idle: int) -> None:
    """A process of its own."""

    async def run() -> None:
        key = load_or_make_key(f"{folder}/key")
        small_read_buffers()
        brain = Brain(key, count, size, idle)
        context = server_context(f"{folder}/crt", f"{folder}/key")
        async with serve(
            brain.serve, "127.0.0.1", 0, ssl=context, create_connection=ServerSocket, **SOCKET
        ) as server:
            pipe.send(server.sockets[0].getsockname()[1])
            await asyncio.wait_for(brain.done.wait(), WAIT_S)
            pipe.send(brain.figures)
        os._exit(0)

    asyncio.run(run())


async def node(port: int, key: bytes, size: int, *, seal: bool) -> None:
    """One node's side, until the brain is gone."""
    context = client_context(Pin(key=key))
    options = dataclasses.replace(KEYED, seal=seal, brain_key=key)
    block = os.urandom(BLOCK)
    left = size
    number = 0
    async with connect(
        f"wss://localhost:{port}/", ssl=context, create_connection=ClientSocket, **SOCKET
    ) as connection:
        assert isinstance(connection, ClientSocket)
        link = NodeLink(options, SystemClock(), CIPHERS, os.urandom)

        def fill() -> None:
            nonlocal left
            while left > 0:
                left -= BLOCK
                if not link.send(number, "data", block):
                    return
            link.finish(number, ReadResult(size=size))

        def happened(event: ev.Event) -> None:
            nonlocal number
            if isinstance(event, ev.CallAsked) and isinstance(event.call, GetFacts):
                link.finish(event.id, Facts(os="linux"))
            elif isinstance(event, ev.CallAsked):
                number = event.id
                fill()
            elif isinstance(event, ev.Drained):
                fill()
            pump.poke()

        pump = Pump(connection, link, happened, SystemClock())
        await pump.run()


def linked(folder: str, count: int, size: int, idle: int, *, seal: bool) -> dict[str, float]:
    """The figures of one brain."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=brain_process, args=(folder, theirs, count, size, idle)
    )
    process.start()
    port = ours.recv()
    key = load_or_make_key(f"{folder}/key").public

    async def nodes() -> dict[str, float]:
        tasks = []
        for number in range(idle + 20 if idle else 1):
            tasks.append(asyncio.create_task(node(port, key, size, seal=seal)))
            if number % 20 == 19:
                await asyncio.sleep(0.05)  # a queue of the kernel's is not what is measured
        figures: dict[str, float] = await asyncio.to_thread(ours.recv)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return figures

    figures = asyncio.run(nodes())
    process.join(20)
    return figures


def echo_process(folder: str, pipe: Any) -> None:
    """A WebSocket that says what it hears."""

    async def echo(connection: ServerConnection) -> None:
        async for message in connection:
            await connection.send(message)

    async def run() -> None:
        context = server_context(f"{folder}/crt", f"{folder}/key")
        async with serve(echo, "127.0.0.1", 0, ssl=context, **SOCKET) as server:
            pipe.send(server.sockets[0].getsockname()[1])
            await asyncio.to_thread(pipe.recv)
        os._exit(0)

    asyncio.run(run())


def echoed(folder: str, count: int) -> float:
    """Milliseconds of an echo of the size of a call, JSON at both of our ends."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=echo_process, args=(folder, theirs)
    )
    process.start()
    port = ours.recv()

    async def run() -> float:
        context = client_context(Pin(key=load_or_make_key(f"{folder}/key").public))
        taken = []
        async with connect(f"wss://localhost:{port}/", ssl=context, **SOCKET) as connection:
            for number in range(count):
                start = time.perf_counter()
                body = json.dumps({"type": "call", "id": number, "op": "facts"})
                await connection.send(body.encode())
                json.loads(await connection.recv())
                taken.append((time.perf_counter() - start) * 1e3)
        return p50(taken)

    found = asyncio.run(run())
    ours.send(None)
    process.join(20)
    return found


def plain_tls(folder: str, size: int) -> float:
    """MiB a second of blocking sockets under TLS, a thread at either end."""
    context = server_context(f"{folder}/crt", f"{folder}/key")
    listener = socket.create_server(("127.0.0.1", 0))
    pin = client_context(Pin(key=load_or_make_key(f"{folder}/key").public))

    def send() -> None:
        with (
            socket.create_connection(listener.getsockname()) as plain,
            pin.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            block = os.urandom(BLOCK)
            for _ in range(size // BLOCK):
                tls.sendall(block)
            tls.recv(1)

    thread = threading.Thread(target=send)
    thread.start()
    raw, _ = listener.accept()
    with context.wrap_socket(raw, server_side=True) as tls:
        buffer = bytearray(BLOCK)
        got, start = 0, time.perf_counter()
        while got < size:
            got += tls.recv_into(buffer)
        taken = time.perf_counter() - start
        with contextlib.suppress(ssl.SSLError):
            tls.send(b"x")
        thread.join(20)
    listener.close()
    return got / MIB / taken


def measure(quick: bool) -> list[Row]:
    """All rows."""
    count, size, idle = (200, 64 * MIB, 60) if quick else (3_000, 1024 * MIB, 1_000)
    with tempfile.TemporaryDirectory() as folder:
        key = load_or_make_key(f"{folder}/key")
        load_or_make_certificate(f"{folder}/crt", key, (), SystemClock().now_ms())
        echo, plain = echoed(folder, count), plain_tls(folder, size)
        rows = []
        for seal, note in ((False, "TLS"), (True, "TLS, sealed too")):
            figures = linked(folder, count, size, 0, seal=seal)
            rows += [
                Row(
                    "node call that does nothing, p50",
                    "ms",
                    figures["call_ms"],
                    0.5,
                    {"websockets echo": echo},
                    note=note,
                ),
                Row(
                    "node stream",
                    "MiB/s",
                    figures["mib_s"],
                    300.0,
                    {"plain TLS sockets": plain},
                    more=True,
                    note=note,
                ),
            ]
        memory = linked(folder, 0, 0, idle, seal=True)["kib"]
        rows.append(
            Row(
                "brain, each node that is only there",
                "KiB",
                memory,
                50.0,
                note=f"TLS, {idle} nodes, PSS",
            )
        )
    return rows


if __name__ == "__main__":
    main(measure)
