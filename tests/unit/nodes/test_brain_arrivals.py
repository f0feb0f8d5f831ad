"""How many may be at the port before they are known."""

from __future__ import annotations

import itertools
import socket

import pytest

from handoff.nodes.brain import arrivals
from handoff.nodes.brain.arrivals import Arrivals, listening
from handoff.nodes.descriptors import limit


def fill(door: Arrivals, address: str, first: int) -> int:
    return next(n for n in itertools.count() if not door.came(first + n, address))


def test_an_address_has_a_share_and_all_have_a_bound() -> None:
    door = Arrivals()
    most = min(arrivals.ALL, limit() // arrivals.SHARE)
    one = min(arrivals.ONE, most // 2)
    assert fill(door, "10.0.0.1", 0) == one
    assert door.came(20_000, "10.0.0.2")
    assert fill(door, "10.0.0.3", 30_000) == min(one, most - one - 1)
    fill(door, "10.0.0.4", 40_000)
    assert not door.came(50_000, "10.0.0.5"), "there are as many as may be"
    door.known(0)
    assert door.came(50_001, "10.0.0.5"), "who is known takes no place"


def test_who_was_known_or_never_let_in_gives_no_place_twice() -> None:
    door = Arrivals()
    count = fill(door, "a", 0)
    door.known(count)
    assert not door.came(count, "a")
    door.known(0)
    door.known(0)
    assert door.came(0, "a")
    assert not door.came(count, "a")


async def test_a_connection_counts_until_it_is_closed() -> None:
    door = Arrivals()
    (listener,) = await listening("127.0.0.1", 0, door)
    with listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        inside, _ = listener.accept()
        before = fill(door, "127.0.0.1", 100_000)
        inside.close()
        assert fill(door, "127.0.0.1", 200_000) == 1
        assert before > 1
        with socket.create_connection(listener.getsockname()) as one:
            with pytest.raises(ConnectionAbortedError):
                listener.accept()
            assert one.recv(1) == b"", "one too many is closed unheard"


async def test_every_address_of_a_host_has_the_same_port() -> None:
    found = await listening("", 0, Arrivals())
    try:
        assert len({one.getsockname()[1] for one in found}) == 1
    finally:
        for one in found:
            one.close()
    with pytest.raises(OSError):
        await listening("no.such.host.invalid", 0, Arrivals())
