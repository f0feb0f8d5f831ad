"""Clocks that jump, forwards and backwards, at the brain, at the node, at both: calls end as
they would have, nothing runs twice, nothing is forgotten, and no code lives longer."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator

import pytest
from tests.support import linkhouse
from tests.support.linkhouse import House, Proxy, house, linked, node, until

from handoff.clock import SystemClock
from handoff.errors import PairingRefused
from handoff.link.keys import new_key
from handoff.nodes import audit
from handoff.nodes.node.dialler import pair
from handoff.wire.node.calls import Exec, Stat

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
JUMPS = [YEAR_MS, -YEAR_MS, 61_000, -61_000]


class Jumping(SystemClock):
    """A wall clock that can be set."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Clocks:
    def __init__(self) -> None:
        self.brain, self.node = Jumping(), Jumping()

    def jump(self, where: str, by_ms: int) -> None:
        for name, clock in (("brain", self.brain), ("node", self.node)):
            if where in {name, "both"}:
                clock.ahead_ms += by_ms


@pytest.fixture
async def made(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[House, Proxy, Clocks]]:
    clocks = Clocks()
    monkeypatch.setattr(linkhouse, "CLOCK", clocks.brain)
    async with house(tmp_path) as one:
        monkeypatch.setattr(linkhouse, "CLOCK", clocks.node)
        proxy = Proxy(one.address)
        address = await proxy.start()
        async with node(one, address=address):
            await linked(one)
            try:
                yield one, proxy, clocks
            finally:
                await proxy.stop()
                proxy.open = False


@pytest.mark.parametrize("where", ["brain", "node", "both"])
async def test_jumps_change_nothing_about_calls(
    made: tuple[House, Proxy, Clocks], where: str, tmp_path: pathlib.Path
) -> None:
    one, proxy, clocks = made
    ran = tmp_path / "ran"
    for number, jump in enumerate([*JUMPS, *reversed(JUMPS)]):
        key = f"jump-{where}-{number:03d}"
        call = Exec(f"echo {number} >>{ran}; sleep 0.3; echo {number}; exit 7", timeout_ms=20_000)
        asked = asyncio.create_task(one.brain.call("n1", call, key=key, return_s=30))
        await until(lambda n=number: ran.exists() and str(n) in ran.read_text().split())
        clocks.jump(where, jump)
        if number % 2:
            proxy.cut()
        ok, answer = await asyncio.wait_for(asked, 40)
        assert ok, answer
        assert (answer.exit_code, answer.stdout.head) == (7, f"{number}\n".encode())
        assert answer.duration_ms < 20_000
        # asked again, whatever the calendar says: the same answer, and no second run
        clocks.jump(where, -jump)
        await linked(one)
        assert await one.brain.call("n1", call, key=key, return_s=30) == (ok, answer)
        ok, found = await one.brain.call("n1", Stat(str(tmp_path / "n1" / "files")), key="")
        assert ok, found
    assert ran.read_text().split() == [str(number) for number in range(2 * len(JUMPS))]
    for folder in (tmp_path / "brain", tmp_path / "n1" / "node"):
        assert not audit.verify(str(folder / "audit")).findings


async def test_a_time_limit_does_not_go_by_the_calendar(
    made: tuple[House, Proxy, Clocks],
) -> None:
    one, _, clocks = made
    call = Exec("sleep 600", timeout_ms=1_000)
    asked = asyncio.create_task(one.brain.call("n1", call, key="limit-001"))
    await asyncio.sleep(0)
    clocks.jump("both", -YEAR_MS)
    ok, answer = await asyncio.wait_for(asked, 30)
    assert ok
    assert answer.status == "timeout"
    call = Exec("sleep 1; echo over", timeout_ms=60_000)
    asked = asyncio.create_task(one.brain.call("n1", call, key="limit-002"))
    await asyncio.sleep(0)
    clocks.jump("both", 2 * YEAR_MS)
    ok, answer = await asyncio.wait_for(asked, 30)
    assert (ok, answer.status) == (True, "ok")


@pytest.mark.parametrize("jump", [YEAR_MS, 601_000])
async def test_a_code_is_over_when_the_clock_has_passed_it(
    made: tuple[House, Proxy, Clocks], jump: int
) -> None:
    one, _, clocks = made
    code = one.brain.store.new_code(one.address, one.key.public, "late")
    clocks.jump("brain", jump)
    with pytest.raises(PairingRefused):
        await pair(code, new_key(), clocks.node)


async def test_a_code_can_be_used_once_whatever_the_clock_says(
    made: tuple[House, Proxy, Clocks],
) -> None:
    one, _, clocks = made
    code = one.brain.store.new_code(one.address, one.key.public, "twice")
    assert await pair(code, new_key(), clocks.node) == "twice"
    for jump in JUMPS:
        clocks.jump("brain", jump)
        with pytest.raises(PairingRefused):
            await pair(code, new_key(), clocks.node)
