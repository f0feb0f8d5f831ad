"""How long a node waits before it dials again."""

from __future__ import annotations

import pathlib
from typing import Any

from handoff.clock import FakeClock
from handoff.nodes.node.config import Config
from handoff.nodes.node.dialler import STABLE_S, Dialler
from handoff.wire.node.closing import Close


class Flapping(Dialler):
    """Its links are lost at once, fifty times; then one holds, and is lost, too."""

    def begin(self, clock: FakeClock) -> None:
        self.clock, self.links = clock, 0
        self.pauses: list[tuple[int, float]] = []

    async def _once(self) -> Close:
        self.links += 1
        self.status.session_id = "s"
        if self.links == 51:
            self.clock.advance(STABLE_S + 1)
        if self.links == 53:
            self.stop()
        return Close(1006, "lost")

    def _pause(self, failures: int, close: Close) -> float:
        self.pauses.append((failures, super()._pause(failures, close)))
        return 0.0


async def test_fifty_cuts_are_forgotten_by_one_link_that_held(tmp_path: pathlib.Path) -> None:
    clock = FakeClock()
    config = Config(str(tmp_path), "wss://brain:7000/ws/nodes", "lab")
    nothing: Any = None
    dialler = Flapping(config, nothing, clock, nothing, "0")
    dialler.begin(clock)
    assert await dialler.run() is None
    failures = [one for one, _ in dialler.pauses]
    assert failures == [*range(1, 51), 0, 1]
    for count, pause in dialler.pauses:
        assert 0 <= pause <= min(config.backoff_max, config.backoff_initial * 2**count)
    late = [pause for count, pause in dialler.pauses if count > 10]
    assert max(late) <= config.backoff_max == 60
    assert max(late) - min(late) > 10  # spread over the whole minute: no herd
    assert dialler.pauses[50][1] <= config.backoff_initial


async def test_what_the_brain_asks_for_is_waited_at_least(tmp_path: pathlib.Path) -> None:
    nothing: Any = None
    config = Config(str(tmp_path), "wss://brain:7000/ws/nodes", "lab")
    dialler = Dialler(config, nothing, FakeClock(), nothing, "0")
    pause = dialler._pause(0, Close(1012, "shutting_down", retry_ms=5000))
    assert 5 <= pause <= 6


async def test_a_brain_that_found_too_many_messages_is_left_alone_for_its_second(
    tmp_path: pathlib.Path,
) -> None:
    nothing: Any = None
    config = Config(str(tmp_path), "wss://brain:7000/ws/nodes", "lab")
    dialler = Dialler(config, nothing, FakeClock(), nothing, "0")
    close = Close(4004, "rate_limit_exceeded", "100 messages a second")
    assert not close.final
    assert dialler._pause(0, close) >= 1
