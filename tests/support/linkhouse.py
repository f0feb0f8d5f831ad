"""A brain, nodes and a line between them in one process, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from handoff.clock import SystemClock
from handoff.link.keys import MachineKey, load_or_make_key
from handoff.link.tls import load_or_make_certificate, server_context
from handoff.link.tokens import NodeStore
from handoff.nodes import audit
from handoff.nodes.brain.core import Brain
from handoff.nodes.brain.journal import BrainJournal
from handoff.nodes.brain.server import NodePort
from handoff.nodes.node.config import Config, server_url
from handoff.nodes.node.dialler import Dialler, pair
from handoff.nodes.node.engine import Engine, Settings
from handoff.redaction import Redactor
from handoff.wire.node import calls
from handoff.wire.node.options import BrainOptions

CLOCK = SystemClock()


@dataclass
class House:
    """A brain, the address it listens on, and how to stop and start it."""

    root: pathlib.Path
    brain: Brain
    port: NodePort
    key: MachineKey
    address: str = ""
    #: of the nodes that run in this process
    engines: list[Engine] = field(default_factory=list)


@contextlib.asynccontextmanager
async def house(root: pathlib.Path, number: int = 0, **options: Any) -> AsyncIterator[House]:
    folder = root / "brain"
    key = load_or_make_key(str(folder / "key.pem"))
    store = NodeStore(str(folder / "nodes.sqlite3"), CLOCK)
    journal = BrainJournal(str(folder / "calls.sqlite3"))
    log = audit.Audit(str(folder / "audit"), "brain", Redactor(b"k" * 32).redact, CLOCK)
    brain = Brain(store, journal, log, key, CLOCK)
    cert = load_or_make_certificate(
        str(folder / "cert.pem"), key, ["localhost", "127.0.0.1"], CLOCK.now_ms()
    )
    context = server_context(cert, str(folder / "key.pem"))
    port = NodePort(brain, BrainOptions(key=key.private, **options), CLOCK, context)
    host, at = await port.open("127.0.0.1", number)
    made = House(root, brain, port, key, f"wss://{host}:{at}")
    try:
        yield made
    finally:
        await port.close()
        journal.close()
        store.close()
        log.close()


@contextlib.asynccontextmanager
async def node(
    made: House,
    name: str = "n1",
    *,
    address: str = "",
    stop: bool = True,
    take_over: bool = False,
) -> AsyncIterator[Dialler]:
    root = made.root / name
    for one in ("node", "home", "files"):
        (root / one).mkdir(parents=True, exist_ok=True)
    key_path = str(root / "node" / "key.pem")
    fresh = not os.path.exists(key_path)
    key = load_or_make_key(key_path)
    if fresh:
        code = made.brain.store.new_code(made.address, made.key.public, name)
        assert await pair(code, key, CLOCK) == name
    config = Config(
        str(root / "node"),
        server_url(address or made.address),
        name,
        allowed_paths=(str(root / "files"),),
        brain_key=made.key.public,
        require="e2e2",
        backoff_initial=0.05,
        backoff_max=0.2,
    )
    settings = Settings(
        str(root / "node"),
        str(root / "home"),
        str(root / "node" / "policy.toml"),
        config.allowed_paths,
        "0",
    )
    log = audit.Audit(str(root / "node" / "audit"), "node", Redactor(b"k" * 32).redact, CLOCK)
    engine = Engine(settings, log, CLOCK, {"PATH": os.environ["PATH"]})
    await engine.open()
    made.engines.append(engine)
    dialler = Dialler(config, engine, CLOCK, key, "0", take_over=take_over)
    running = asyncio.create_task(dialler.run())
    try:
        yield dialler
    finally:
        dialler.stop()
        await asyncio.wait_for(running, 20)
        await dialler.drain()
        await engine.close(stop=stop)
        log.close()


async def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        await asyncio.sleep(0.005)
    return found


async def linked(made: House, name: str = "n1") -> None:
    await until(lambda: name in made.brain.sessions)


async def ask(made: House, call: calls.Call, key: str = "", **more: Any) -> Any:
    ok, answer = await made.brain.call("n1", call, key=key, **more)
    assert ok, answer
    return answer


class Proxy:
    """Bytes between node and brain, cut when told to."""

    def __init__(self, target: str) -> None:
        self._port = int(target.rpartition(":")[2])
        self._writers: set[asyncio.StreamWriter] = set()
        self.open = True
        self.carried = 0
        self._goes = asyncio.Event()
        self._goes.set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"wss://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            writer.close()
            return
        up_reader, up = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers |= {writer, up}
        await asyncio.gather(self._copy(reader, up), self._copy(up_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.carried += len(data)
                await self._goes.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def stall(self) -> None:
        """Carry nothing more, and end nothing."""
        self._goes.clear()

    def go(self) -> None:
        """Carry on."""
        self._goes.set()

    async def stop(self) -> None:
        self.cut()
        self._goes.set()
        self._server.close()


@contextlib.asynccontextmanager
async def proxied(made: House) -> AsyncIterator[Proxy]:
    proxy = Proxy(made.address)
    address = await proxy.start()
    async with node(made, address=address):
        await linked(made)
        try:
            yield proxy
        finally:
            await proxy.stop()
            proxy.open = False
