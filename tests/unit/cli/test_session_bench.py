"""``handoff session bench``: what it prints, writes and exits with."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.console import HANDOFF
from tests.support.waiting import until
from tests.unit.cli.calling import Caller

from handoff.sessions import bench
from handoff.sessions.bench import Metric, faults


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that does not hold."""
    monkeypatch.setattr(faults, "metrics", lambda _seed: [Metric("C L1 named", 1, 4, 10_000)])


@pytest.fixture
def playing(tmp_path: pathlib.Path) -> Iterator[tuple[subprocess.Popen[bytes], pathlib.Path]]:
    """A run of suite D that is under way, and where its folders are."""
    place = tmp_path / "tmp"
    place.mkdir()
    env = {**os.environ, "TMPDIR": str(place), "HOME": str(tmp_path)}
    words = ["session", "bench", "--suite", "D", "--rounds", "500"]
    with subprocess.Popen(
        [HANDOFF, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        try:
            until(lambda: list(place.glob("handoff-bench-*")))
            yield run, place
        finally:
            run.kill()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_run_that_is_told_to_end_leaves_nothing(playing: Any, number: int) -> None:
    run, place = playing

    def ended() -> bool:
        run.send_signal(number)  # an opener that is played right now takes one for itself
        return run.poll() is not None

    until(ended)
    assert run.returncode in (128 + number, -number)
    assert list(place.iterdir()) == []


def test_what_a_killed_run_left_goes_with_the_next_one(
    playing: Any, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, place = playing
    (living,) = place.glob("handoff-bench-*")
    foreign = place / "handoff-bench-abc"
    foreign.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    assert call("session", "bench", "--suite", "C").code == 0
    assert living.is_dir(), "its run lives"
    run.kill()
    run.wait()
    assert call("session", "bench", "--suite", "C").code == 0
    assert list(place.iterdir()) == [foreign], "which names no process of ours"


def test_all_gates_hold(call: Caller) -> None:
    done = call("session", "bench", "--suite", "C", "--seed", "7", "--json")
    assert done.code == 0
    assert done.json["passed"] is True
    assert done.json["measured"] == {}
    assert done.json["seeded"] == bench.run(7, ("C",))
    assert set(done.json["seeded"]["suites"]) == {"C"}


def test_a_gate_that_does_not_hold_is_exit_1(call: Caller, failing: None) -> None:
    done = call("session", "bench", "--suite", "C")
    assert done.code == 1
    assert done.json["passed"] is False


def test_people_see_a_table(call: Caller, failing: None) -> None:
    done = call("session", "bench", "--suite", "C", tty=True)
    assert done.code == 1
    assert "Suite C" in done.out
    row = next(line for line in done.out.splitlines() if line.startswith("C L1 named"))
    assert row.split()[-1] == "NO"
    assert "1/4" in row
    assert done.out.endswith("a gate does not hold\n")


def test_results_are_written_and_are_the_same_again(call: Caller, tmp_path: pathlib.Path) -> None:
    for name in ("one", "two"):
        assert call("session", "bench", "--suite", "C", "--write", str(tmp_path / name)).code == 0
    one, two = tmp_path / "one", tmp_path / "two"
    assert sorted(p.name for p in one.iterdir()) == ["benchmark.json", "benchmark.md"]
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes()
    assert json.loads((one / "benchmark.json").read_bytes())["suites"]["C"]
    assert (one / "benchmark.md").read_text("utf-8").startswith("# Sessions: benchmark\n")


def test_a_folder_that_can_not_be_written_is_said(call: Caller, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    done = call("session", "bench", "--suite", "C", "--write", str(tmp_path / "file" / "x"))
    assert done.code == 1
    assert "the results can't be written" in done.err
    assert f"try: ls -ld {tmp_path / 'file'}\n" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "words", [("--suite", "E"), ("--rounds", "0"), ("--seed", "-1"), ("--rounds",), ("more",)]
)
def test_what_says_nothing_is_refused(call: Caller, words: tuple[str, ...]) -> None:
    done = call("session", "bench", *words)
    assert done.code == 2
    assert done.raw == b""


def test_progress_is_for_terminals_only(call: Caller, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in call("session", "bench", "--suite", "C").err
