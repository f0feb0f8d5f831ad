"""Long commands, large output, large files, at the sizes that are promised with
``HANDOFF_FAULTS=all``, and small ones otherwise: whole, in the same memory, through a cut."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.line import Line, lined
from tests.support.memory import Peaks, resident_kib
from tests.support.nodes import Place

from handoff.nodes.client import BrainClient

ALL = os.environ.get("HANDOFF_FAULTS") == "all"
MIB = 1 << 20
GIB = 1 << 30
#: seconds of the long command; the issue of a stamp each PAUSE_S
LONG_S, PAUSE_S = (11 * 60, 5.0) if ALL else (6, 0.2)
FLOOD = 5_000_000_000 if ALL else 40_000_000
#: of one that is read: more than a node keeps of it
READ = 5_000_000_000 if ALL else 300_000_000
LINE = 100_000_000
PUT = 5 * GIB if ALL else 48 * MIB
GET = GIB if ALL else 24 * MIB
#: KiB that any process may have more while something large goes through it
MORE = 48 * 1024
#: seconds until output is told, and a short call answered: on a machine that does nothing else
SOON_S, CALL_S = (1.0, 0.1) if ALL else (5.0, 1.0)
BLOCK = os.urandom(MIB)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400 if ALL else 240)]


@pytest.fixture
def lines(tmp_path: pathlib.Path) -> Iterator[tuple[Place, Line]]:
    with lined(tmp_path, 0) as made:
        yield made


def pids(place: Place) -> dict[str, int]:
    """The processes of brain, node and keeper."""
    place.nodes("exec", "n1", "--", "true")
    info = json.loads((place.config().parent / "calls" / "keeper.json").read_text())
    status = json.loads((place.config().parent / "status.json").read_text())
    return {
        "brain": place.asked("status")["pid"],
        "node": status["pid"],
        "keeper": info["pid"],
    }


@contextlib.contextmanager
def steady(place: Place, **more: int) -> Iterator[Peaks]:
    """Nobody needs much more memory than before."""
    found = {**pids(place), **more}
    before = {name: resident_kib(pid) for name, pid in found.items()}
    with Peaks(found) as peaks:
        yield peaks
    grown = {name: peaks.most[name] - before[name] for name in before}
    assert max(grown.values()) < MORE, (before, peaks.most)


def command(place: Place, *words: str, **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "handoff.cli.main", "nodes", *words],
        env=place.env(),
        cwd=place.root,
        **more,
    )


def file_of(path: pathlib.Path, size: int) -> str:
    """Make a file of different blocks; its digest."""
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for number in range(size // MIB):
            block = number.to_bytes(8, "big") + BLOCK[8:]
            file.write(block)
            digest.update(block)
    return digest.hexdigest()


def digest_of(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


STAMPS = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
number = 0
while time.monotonic() < end:
    print(number, time.monotonic_ns(), flush=True)
    number += 1
    time.sleep(float(sys.argv[2]))
sys.exit(9)
"""


def test_a_long_command_whose_link_is_cut_in_the_middle(lines: tuple[Place, Line]) -> None:
    place, line = lines
    with command(
        place,
        *("exec", "n1", "--", sys.executable, "-I", "-S", "-c", STAMPS),
        *(str(LONG_S), str(PAUSE_S)),
        stdout=subprocess.PIPE,
    ) as asking:
        assert asking.stdout is not None
        cuts = [LONG_S / 2, LONG_S * 0.8]
        began = time.monotonic()
        numbers, late = [], []
        for one in asking.stdout:
            now = time.monotonic_ns()
            number, stamp = one.split()
            numbers.append(int(number))
            late.append((now - int(stamp)) / 1e9)
            if cuts and time.monotonic() - began > cuts[0]:
                cuts.pop(0)
                line.cut()
        assert asking.wait(60) == 9
        assert not cuts
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > LONG_S / PAUSE_S / 2
    # what is written while the link is away comes after it; all else within a second
    assert sorted(late)[-4] < SOON_S, late
    assert max(late) < 30.0
    state = json.loads((place.config().parent / "status.json").read_text())
    assert state["state"] == "connected"


def flood(stream: int, size: int = FLOOD) -> list[str]:
    text = (
        f"import os; block = b'0123456789abcdef' * 65536; left = {size}\n"
        f"while left: left -= os.write({stream}, block[:min(left, len(block))])"
    )
    return [sys.executable, "-I", "-S", "-c", text]


def test_a_flood_on_either_stream_that_nobody_reads(lines: tuple[Place, Line]) -> None:
    place, _ = lines
    for name, stream in (("stdout", 1), ("stderr", 2)):
        with steady(place):
            done = place.nodes(
                "exec", "n1", "--json", "--timeout", "20m", "--", *flood(stream), seconds=1300
            )
        told = json.loads(done.stdout)["result"]
        assert told["exit_code"] == 0
        assert told[name]["bytes_total"] == FLOOD
        assert told[name]["head"].startswith("0123456789abcdef0123")
        assert told[name]["tail"].endswith("0123456789abcdef")
        assert len(told[name]["head"]) + len(told[name]["tail"]) < 2 * MIB
        place.nodes("exec", "n1", "--", "true")


def test_a_flood_that_somebody_reads_through_a_cut(lines: tuple[Place, Line]) -> None:
    place, line = lines
    with (
        steady(place) as peaks,
        command(
            place, "exec", "n1", "--timeout", "20m", "--", *flood(1, READ), stdout=subprocess.PIPE
        ) as asking,
    ):
        peaks.pids["command"] = asking.pid
        assert asking.stdout is not None
        block = b"0123456789abcdef" * 65536
        got = 0
        cut = False
        while piece := asking.stdout.read(MIB):
            offset = got % 16
            assert piece == (block + block[:16])[offset : offset + len(piece)]
            got += len(piece)
            if not cut and got > READ // 8:
                cut = True
                line.cut()
        assert (asking.wait(60), got, cut) == (0, READ, True)


def test_a_hundred_megabytes_in_one_line(lines: tuple[Place, Line]) -> None:
    place, _ = lines
    program = f"import os; n = {LINE}\nwhile n: n -= os.write(1, b'x' * min(n, 65536))"
    with (
        steady(place) as peaks,
        command(
            place,
            *("exec", "n1", "--", sys.executable, "-I", "-S", "-c", program),
            stdout=subprocess.PIPE,
        ) as asking,
    ):
        peaks.pids["command"] = asking.pid
        assert asking.stdout is not None
        got = 0
        while piece := asking.stdout.read(MIB):
            assert not piece.strip(b"x")
            got += len(piece)
        assert (asking.wait(60), got) == (0, LINE)
    assert peaks.most["command"] < 100 * 1024


@pytest.mark.parametrize("way", ["put", "get"])
def test_a_large_file_through_a_cut(lines: tuple[Place, Line], way: str) -> None:
    place, line = lines
    size = PUT if way == "put" else GET
    source, target = place.files / "source", place.files / "target"
    digest = file_of(source, size)
    before = line.carried
    with (
        steady(place) as peaks,
        command(place, way, "n1", str(source), str(target), stdout=subprocess.DEVNULL) as copying,
    ):
        peaks.pids["command"] = copying.pid
        place.until(lambda: line.carried - before > size // 2, 600)
        line.cut()
        assert copying.wait(1200) == 0
    carried = line.carried - before
    assert digest_of(target) == digest
    # what had arrived before the cut was not sent again
    assert size <= carried < size + size // 8 + 16 * MIB
    assert peaks.most["command"] < 128 * 1024
    source.unlink()
    target.unlink()


def test_twenty_at_once_wait_for_nobody(lines: tuple[Place, Line]) -> None:
    place, _ = lines
    brain = BrainClient(str(place.root / "brain"), None)
    calls = {"argv": ["sleep", "2"]}
    answers: list[Any] = []

    def call(number: int) -> None:
        answers.append(brain.call("n1", "exec", calls, key=f"at-once-{number:02d}"))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(20)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    place.until(lambda: place.asked("status")["under_way"] == 20)
    looked = []
    while any(thread.is_alive() for thread in threads):
        start = time.monotonic()
        ok, _ = brain.call("n1", "stat", {"path": str(place.files)})
        looked.append(time.monotonic() - start)
        assert ok
        time.sleep(0.02)
    for thread in threads:
        thread.join(60)
    assert len(answers) == 20
    assert all(ok and value["status"] == "ok" for ok, value in answers)
    assert time.monotonic() - began < 30  # forty seconds, one after the other
    assert sorted(looked)[len(looked) // 2] < CALL_S
