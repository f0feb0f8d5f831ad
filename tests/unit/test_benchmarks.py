"""The frame of the benchmarks: what they run, and how they judge."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks"
FRAME = {"common", "live", "node_peers", "run"}


@pytest.fixture
def common(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import common

    yield common
    sys.modules.pop("common", None)


@pytest.fixture
def run(common, monkeypatch):
    import run

    yield run
    sys.modules.pop("run", None)


def test_every_benchmark_is_run(run):
    assert set(run.FILES) == {p.stem for p in FOLDER.glob("*.py")} - FRAME


@pytest.mark.parametrize(
    ("ours", "budget", "more", "slack", "verdict"),
    [
        (5, 5, False, 1, "within"),
        (6, 5, False, 1, "over"),
        (6, 5, False, 2, "within"),
        (11, 5, False, 2, "over"),
        (0, 0, False, 1, "within"),
        (1, 0, False, 2, "over"),
        (100, 100, True, 1, "within"),
        (60, 100, True, 1, "over"),
        (60, 100, True, 2, "within"),
        (5, None, False, 1, "no budget"),
    ],
)
def test_verdict(common, ours, budget, more, slack, verdict):
    row = common.Row("f", "ms", ours, budget, more=more)
    assert row.verdict(slack) == verdict


def test_what_was_not_measured_is_said(common):
    row = common.Row("f", skipped="no daemon")
    assert row.verdict() == "not measured: no daemon"
    assert "| f | - | - | - | not measured: no daemon |" in common.table([row])


def test_a_benchmark_that_fails_is_a_row(run, monkeypatch, capsys):
    monkeypatch.setattr(run, "HERE", FOLDER / "nowhere")
    (row,) = run.run("missing", quick=True)
    assert "No such file" in row.skipped
    assert capsys.readouterr().err


def test_a_peer_that_is_missing_is_a_row(common, monkeypatch):
    import node_peers

    monkeypatch.setattr(node_peers, "PLACE", FOLDER / "nowhere")
    with pytest.raises(OSError, match="not installed"):
        node_peers.library("asyncssh", None, {})
    monkeypatch.setenv("PATH", str(FOLDER))
    with pytest.raises(OSError, match="ssh is not installed"), node_peers.sshd():
        pass
    sys.modules.pop("node_peers", None)


def test_the_flags_are_told():
    done = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), "--help"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0
    for flag in ("--quick", "--check", "--write", "--peers"):
        assert flag in done.stdout


def test_an_unknown_name_is_refused():
    done = subprocess.run(
        [sys.executable, str(FOLDER / "run.py"), "nothing"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert "nothing" in done.stderr
