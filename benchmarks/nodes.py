"""What a call to a node costs, from a program to the node's answer, over a sealed link.

Everything is real: the brain's process, the node's, their TLS link, the local socket. A
call opens its own connection to the brain, as tools and commands do. The 500 small files go
through ``handoff nodes put``, its start included. Memory is what 200 linked nodes add to the
brain, by its resident set; each node here is a link without commands.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import Row, main, p50
from tests.support.nodes import Place, running

from handoff.clock import SystemClock
from handoff.link.ciphers import CIPHERS
from handoff.link.keys import new_key as machine_key
from handoff.link.pairing import parse_code
from handoff.link.tls import Pin, client_context
from handoff.nodes.client import BrainClient, new_key
from handoff.nodes.node.config import server_url
from handoff.nodes.node.dialler import pair
from handoff.nodes.pump import Pump
from handoff.nodes.websocket import ClientSocket
from handoff.wire.node.node import NodeLink
from handoff.wire.node.options import NodeOptions

TRUE = {"argv": ["true"]}


def taken(call: Callable[[], object], times: int) -> float:
    """p50 in milliseconds."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        spent.append((time.perf_counter() - began) * 1000)
    return p50(spent)


def speed(call: Callable[[], object], size: int) -> float:
    """MiB a second, the best of three."""
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        call()
        best = max(best, size / (time.perf_counter() - began) / 2**20)
    return best


def small_files(place: Place) -> float:
    """Seconds for 500 files of 2 KiB."""
    source = place.root / "small"
    source.mkdir()
    for number in range(500):
        (source / f"f{number}").write_bytes(os.urandom(2048))
    began = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "handoff.cli.main", "nodes", "put", "n1"),
            *(str(source), str(place.files / "small")),
        ],
        env=place.env(),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def resident(pid: int) -> int:
    """KiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


async def link_memory(brain: BrainClient, count: int) -> float:
    """KiB of the brain for each of ``count`` linked nodes."""
    from websockets.asyncio.client import connect

    clock = SystemClock()
    pid = (await asyncio.to_thread(brain.ask, "status"))["pid"]
    tasks = []
    before = 0
    for number in range(count + 20):
        told = await asyncio.to_thread(brain.ask, "code", name=f"m{number}")
        code = parse_code(told["code"])
        key = machine_key()
        await pair(code, key, clock)
        socket = await connect(
            server_url(code.address),
            ssl=client_context(Pin(key=code.brain_key)),
            compression=None,
            create_connection=ClientSocket,
            ping_interval=None,
        )
        options = NodeOptions(name=f"m{number}", key=key.private, brain_key=code.brain_key)
        pump = Pump(socket, NodeLink(options, clock, CIPHERS, os.urandom), lambda _: None, clock)
        tasks.append(asyncio.create_task(pump.run()))
        if number == 19:  # what the first ones cost is not theirs alone
            await asyncio.sleep(1)
            before = resident(pid)
    await asyncio.sleep(1)
    after = resident(pid)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return (after - before) / count


def measure(quick: bool) -> list[Row]:
    times = 50 if quick else 300
    with tempfile.TemporaryDirectory() as name, running(Path(name).resolve()) as place:
        brain = BrainClient(str(place.root / "brain"), None)
        path = str(place.files)
        size = (32 if quick else 200) << 20
        (place.files / "big").write_bytes(os.urandom(1 << 20) * (size >> 20))

        def read() -> None:
            brain.call(
                "n1",
                "read",
                {"path": f"{path}/big", "stream": True},
                pieces=lambda _, __: None,
            )

        block = os.urandom(1 << 18)

        def write() -> None:
            feed = (block for _ in range(size >> 18))
            brain.call(
                "n1", "write", {"path": f"{path}/up", "stream": True}, key=new_key(), feed=feed
            )

        return [
            Row(
                "node: exec of true, open link",
                "ms",
                taken(lambda: brain.call("n1", "exec", TRUE, key=new_key()), times),
                2.5,
            ),
            Row(
                "node: stat, open link",
                "ms",
                taken(lambda: brain.call("n1", "stat", {"path": path}), times),
                0.5,
            ),
            Row("node: read a file, TLS and sealed", "MiB/s", speed(read, size), 300.0, more=True),
            Row("node: write a file", "MiB/s", speed(write, size), 300.0, more=True),
            Row("node: put 500 files of 2 KiB", "s", small_files(place), 0.3),
            Row(
                "brain: memory of a linked node",
                "KiB",
                asyncio.run(link_memory(brain, 40 if quick else 200)),
                50.0,
            ),
        ]


if __name__ == "__main__":
    main(measure)
