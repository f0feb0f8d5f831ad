"""The memory that a large file takes on its way, in every process that it goes through.

A file of 5 GiB is put on a node with ``handoff nodes put`` and fetched with ``get``; brain, node
and command are real. Counted is the largest resident set of each while the file goes over, less
what brain and node had before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Row, main
from tests.support.memory import Peaks, resident_kib
from tests.support.nodes import Place, running

MIB = 1 << 20


def carried(place: Place, way: str, size: int) -> list[Row]:
    """One file, one way."""
    source, target = place.files / "source", place.files / "target"
    pids = {
        "brain": place.asked("status")["pid"],
        "node": json.loads((place.config().parent / "status.json").read_text())["pid"],
    }
    before = {name: resident_kib(pid) for name, pid in pids.items()}
    began = time.perf_counter()
    with (
        Peaks(pids) as peaks,
        subprocess.Popen(
            [
                *(sys.executable, "-m", "handoff.cli.main", "nodes", way, "n1"),
                *(str(source), str(target)),
            ],
            env=place.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ) as copying,
    ):
        peaks.pids["command"] = copying.pid
        if copying.wait():
            raise SystemExit(f"{way} failed")
    speed = size / MIB / (time.perf_counter() - began)
    if target.stat().st_size != size:
        raise SystemExit(f"{way} left a part")
    target.unlink()
    more = max(peaks.most[name] - before[name] for name in before) / 1024
    shown = f"{size / (1 << 30):.3g} GiB {way}"
    return [
        Row(f"{shown}: brain and node, the one that grows most", "MiB", more, 16.0),
        Row(f"{shown}: the command itself", "MiB", peaks.most["command"] / 1024, 80.0),
        Row(f"{shown}: speed, start and hash included", "MiB/s", speed, None, more=True),
    ]


def measure(quick: bool) -> list[Row]:
    """Up and down."""
    size = (1 if quick else 10) * 512 * MIB
    with tempfile.TemporaryDirectory() as name, running(Path(name).resolve()) as place:
        block = os.urandom(MIB)
        with open(place.files / "source", "wb") as file:
            file.writelines(number.to_bytes(8, "big") + block[8:] for number in range(size // MIB))
        place.nodes("exec", "n1", "--", "true")
        place.nodes("ls", "n1", str(place.files))
        return [row for way in ("put", "get") for row in carried(place, way, size)]


if __name__ == "__main__":
    main(measure)
