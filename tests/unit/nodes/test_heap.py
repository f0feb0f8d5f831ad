"""Pieces of a stream use each other's memory."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

PROGRAM = """
import os, resource, sys
from handoff.nodes.heap import keep_freed
if sys.argv[1] == "kept":
    keep_freed()
def pieces():
    for _ in range(200):
        held = [bytes(262_144 + 20) + bytes(1) for _ in range(4)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
pieces()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, check=True, timeout=20
    )
    return int(done.stdout)


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not any(pathlib.Path("/lib").glob("*/libc.so.6")),
    reason="glibc only",
)
def test_freed_memory_is_used_again() -> None:
    assert faults("kept") < 2_000 < faults("left")
