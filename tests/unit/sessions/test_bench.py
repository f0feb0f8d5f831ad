from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from handoff.redaction import Redactor
from handoff.sessions import bench
from handoff.sessions.bench import Metric, preservation, secrets

ROWS = {
    f"{suite} {row['name']}": row for suite, rows in bench.run()["suites"].items() for row in rows
}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_each_gate_holds(name: str) -> None:
    assert ROWS[name]["passed"], ROWS[name]


def test_every_figure_counts_something() -> None:
    assert all(row["total"] > 0 for row in ROWS.values())
    assert sum(row["gate"] is not None for row in ROWS.values()) >= 30


def test_a_gate_can_fail() -> None:
    assert not Metric("x", 96, 100, 9700).passed
    assert not Metric("x", 0, 0, 1).passed
    assert Metric("x", 97, 100, 9700).passed


def test_the_report_is_the_same_in_another_process() -> None:
    program = (
        "import sys; from handoff.sessions import bench; sys.stdout.buffer.write(bench.report())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=50,
        env={**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "C", "TZ": "Asia/Tokyo"},
    )  # fmt: skip
    assert done.stdout == bench.report()
    assert json.loads(done.stdout)["seed"] == 1


def test_held_out_formats_are_unknown_to_the_redactor() -> None:
    assert len(secrets.HELD_OUT) >= 20
    assert not any(secrets.known(form) for form in secrets.HELD_OUT)


def test_at_least_five_hundred_forgeries() -> None:
    assert ROWS["A A9 forgeries that stay texts"]["total"] >= 500
    assert len(preservation.FORGED) >= 15


def test_the_redactor_keeps_up_with_text() -> None:
    """Fifty milliseconds a MiB on a quiet machine; ten times that is a fault on any."""
    text = ("The parser reads src/a.py; the key is sort_key, commit 0123abc. " * 40 + "\n") * 100
    redactor = Redactor(b"k", mode="strict")
    began = time.process_time()
    redactor.redact(text)
    assert (time.process_time() - began) / (len(text) / 2**20) < 1.5
