"""What is promised of a call when two ask for it, when much is written and slowly read, and
when the brain's process was another one at first."""

from __future__ import annotations

import asyncio
import pathlib

import pytest
from tests.support.linkhouse import ask, house, linked, node, proxied, until

from handoff.nodes.node import telling
from handoff.nodes.node.telling import AHEAD
from handoff.wire.node.calls import Exec


class Taken:
    """What a call told, taken as fast as ``go`` allows."""

    def __init__(self, *, held: bool = False) -> None:
        self.bytes: dict[str, int] = {}
        self.text: dict[str, bytes] = {}
        self.go = asyncio.Event()
        if not held:
            self.go.set()

    async def __call__(self, stream: str, data: bytes) -> None:
        self.bytes[stream] = self.bytes.get(stream, 0) + len(data)
        self.text[stream] = (self.text.get(stream, b"") + data)[:1_000_000]
        await self.go.wait()


async def test_output_that_is_slowly_taken_comes_whole(tmp_path: pathlib.Path) -> None:
    """More than is kept: the command waits for whoever follows it."""
    taken = Taken(held=True)
    command = f"head -c 150000000 /dev/zero; echo end; touch {tmp_path}/over"
    async with house(tmp_path) as made, node(made):
        await linked(made)
        asked = asyncio.create_task(
            ask(made, Exec(command=command, stream=True), "key-0001", pieces=taken)
        )
        await until(lambda: taken.bytes)
        (running,) = made.engines[0]._keep.running.values()
        await until(lambda: running.total("out") >= AHEAD)
        taken.go.set()
        answer = await asked
        assert taken.bytes["stdout"] == answer.stdout.bytes_total == 150_000_004
        assert answer.stdout.streamed


async def test_what_a_lost_link_left_out_is_never_said_to_be_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "STAY_S", 0.2)
    taken = Taken(held=True)
    command = f"head -c 150000000 /dev/zero; echo end; touch {tmp_path}/over"
    async with house(tmp_path) as made, proxied(made) as proxy:
        asked = asyncio.create_task(
            ask(made, Exec(command=command, stream=True), "key-0001", pieces=taken)
        )
        await until(lambda: taken.bytes)
        proxy.open = False
        proxy.cut()
        await until((tmp_path / "over").exists)  # in the end it waits for nobody
        taken.go.set()
        proxy.open = True
        answer = await asked
        assert answer.stdout.bytes_total == 150_000_004
        assert taken.bytes["stdout"] < answer.stdout.bytes_total
        assert not answer.stdout.streamed
        assert answer.stdout.tail.endswith(b"\0end\n")
        assert answer.stdout.spill
