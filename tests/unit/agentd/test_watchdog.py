"""What the watchdog says: silence by phase, the waiting process, a clock set back."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.agentd.harness import Box

from handoff.agentd import watchdog
from handoff.clock import FakeClock
from handoff.config import Config
from handoff.store.engine import Store


@pytest.fixture
def services(tmp_path: pathlib.Path) -> Iterator[Any]:
    clock = FakeClock()
    store = Store.open(tmp_path / "handoff.db", clock=clock)
    yield SimpleNamespace(store=store, clock=clock, warnings=[], config=Config())
    store.close()


def test_an_empty_machine_has_no_clock_to_compare(services: Any) -> None:
    assert watchdog.clock_behind(services) == 0
    assert services.warnings == []


def test_a_clock_behind_the_records_is_told(box: Box) -> None:
    machine = SimpleNamespace(store=box.store, clock=box.clock, warnings=[])
    box.clock.set_back(7300)
    assert watchdog.clock_behind(machine) == pytest.approx(7300)  # type: ignore[arg-type]
    assert len(machine.warnings) == 1
    assert machine.warnings[0].startswith("the clock was set back by 2h1m: ")


def test_a_clock_set_back_while_agentd_runs_is_told_once(services: Any) -> None:
    dog = watchdog.Watchdog(SimpleNamespace(services=services, actors={}))  # type: ignore[arg-type]
    services.clock.advance(10)
    dog._check_clock()
    assert services.warnings == []
    services.clock.set_back(3600)
    dog._check_clock()
    dog._check_clock()
    assert len(services.warnings) == 1


def test_events_keep_their_order_when_the_clock_goes_back(box: Box) -> None:
    box.start()
    box.clock.set_back(3600)
    box.ask_permission("p1")
    assert box.types()[-1] == "permission_request"
    assert box.seqs == sorted(box.seqs)


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5s"), (65, "1m5s"), (3600, "1h0m"), (7384, "2h3m")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert watchdog.duration(seconds) == text


def test_a_silent_model_is_reported_sooner_than_a_silent_tool() -> None:
    config = Config()
    assert watchdog.stall_limit(config, "model") < watchdog.stall_limit(config, "tool")
