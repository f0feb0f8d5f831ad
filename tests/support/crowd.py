"""Many nodes in one process: the real dialler, link and session; no commands are run.

``python -m tests.support.crowd BRAIN FOLDER COUNT PORT FIRST`` pairs ``COUNT`` nodes, ``c0`` and
so on, with the brain of the folder ``BRAIN``, and keeps them linked, through PORT unless it is 0.
It prints ``paired`` once ``FIRST`` of them know the brain (0: all), goes on with the others after
a line of its standard input, and ends with it. An ``exec`` of a
node takes as long as its argument ``sleep SECONDS`` says; each that is run adds a line
``NODE KEY`` to the file ``FOLDER/ran``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from handoff.clock import SystemClock
from handoff.link.keys import new_key
from handoff.link.pairing import parse_code
from handoff.nodes.client import BrainClient
from handoff.nodes.node.asked import Known
from handoff.nodes.node.config import Config, server_url
from handoff.nodes.node.dialler import Dialler, pair
from handoff.wire.node.calls import Call, Exec, ExecResult, Facts, Result

CLOCK = SystemClock()
ROOT = Path(__file__).resolve().parents[2]


class Engine:
    """Remembers each call by its key, and runs it once."""

    def __init__(self, name: str, ran: int) -> None:
        self._name = name
        self._ran = ran
        self._calls: dict[str, tuple[Call, asyncio.Future[tuple[bool, Result]]]] = {}

    def policy(self) -> SimpleNamespace:
        return SimpleNamespace(digest="")

    def at_once(self, key: str, call: Call, who: Any) -> None:
        """Nothing is so near that it is answered within the read that brought it."""

    async def call(
        self, key: str, call: Call, who: Any, lines: Any, tell: Any = None
    ) -> tuple[bool, Result]:
        if not isinstance(call, Exec):
            return True, Facts(os="linux")
        if key not in self._calls:
            self._calls[key] = call, asyncio.ensure_future(self._run(key, call))
        return await asyncio.shield(self._calls[key][1])

    async def _run(self, key: str, call: Exec) -> tuple[bool, Result]:
        os.write(self._ran, f"{self._name} {key}\n".encode())
        if call.argv[0] == "sleep":
            await asyncio.sleep(float(call.argv[1]))
        return True, ExecResult("ok", 0)

    def known(self, key: str) -> Known:
        if key not in self._calls:
            return Known("never_seen")
        call, future = self._calls[key]
        return Known("done" if future.done() else "running", call)

    def received(self, key: str) -> dict[str, int]:
        return {}

    async def resume(
        self, key: str, call: Call, offsets: Mapping[str, int], lines: Any
    ) -> tuple[bool, Result]:
        return await asyncio.shield(self._calls[key][1])

    async def cancel(self, key: str) -> None: ...

    async def signal(self, key: str, number: int) -> None: ...


async def one(brain: BrainClient, folder: Path, number: int, port: int, ran: int) -> Dialler:
    """A node that is paired."""
    name = f"c{number}"
    told = await asyncio.to_thread(brain.ask, "code", name=name)
    code = parse_code(told["code"])
    key = new_key()
    await pair(code, key, CLOCK)
    place = folder / name
    place.mkdir(mode=0o700)
    url = server_url(code.address)
    if port:
        url = f"wss://127.0.0.1:{port}/ws/nodes"
    config = Config(
        str(place),
        url,
        name,
        brain_key=code.brain_key,
        backoff_initial=0.05,
        backoff_max=2.0,
    )
    engine: Any = Engine(name, ran)
    return Dialler(config, engine, CLOCK, key, "0")


async def run(brain_folder: str, folder: Path, count: int, port: int, first: int) -> None:
    brain = BrainClient(brain_folder, None)
    ran = os.open(folder / "ran", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    tasks = []
    for number in range(count):
        if first and number == first:
            print("paired", flush=True)
            await asyncio.to_thread(sys.stdin.buffer.readline)
        dialler = await one(brain, folder, number, port, ran)
        tasks.append(asyncio.create_task(dialler.run()))
    if not first:
        print("paired", flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    os._exit(0)


@contextlib.contextmanager
def crowd(
    brain: str, folder: Path, count: int, env: Mapping[str, str], port: int = 0, first: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """A crowd, of which the first (0: all) are paired."""
    folder.mkdir(parents=True)
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.support.crowd", brain),
            *(str(folder), str(count), str(port), str(first)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=dict(env),
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"paired\n"
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


def linked(brain: BrainClient) -> int:
    """How many nodes are linked now."""
    return int(brain.ask("status")["connected"])


def runs(folder: Path) -> list[str]:
    """What was run, a line a run."""
    return (folder / "ran").read_text().splitlines()


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6])))
