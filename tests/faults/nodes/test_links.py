"""A slow line, a cut line, a dead line: what is urgent passes, and what was sent counts."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
from tests.support.line import lined
from tests.support.nodes import Place


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_upload_over_a_slow_line_that_is_cut(tmp_path: pathlib.Path) -> None:
    size = 6 << 20
    data = os.urandom(size)
    (tmp_path / "source").write_bytes(data)
    with lined(tmp_path, 2 << 20) as (place, line):
        before = line.carried
        target = place.files / "target"
        putting = subprocess.Popen(
            [
                *(sys.executable, "-m", "handoff.cli.main", "nodes", "put", "n1"),
                *(str(tmp_path / "source"), str(target)),
            ],
            env=place.env(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        place.until(lambda: line.carried - before > size // 4)
        slowest = 0.0
        for _ in range(3):
            began = time.monotonic()
            place.nodes("exec", "n1", "--", "true")
            slowest = max(slowest, time.monotonic() - began)
        place.until(lambda: line.carried - before > size // 2)
        line.cut()
        _, errors = putting.communicate(timeout=120)
        assert putting.returncode == 0, errors
        assert target.read_bytes() == data
        assert line.carried - before < 1.4 * size
        # of which the start of two programs on a busy machine is the larger part
        assert slowest < 10


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("meanwhile", ["nothing", "damaged", "changed"])
def test_a_download_whose_program_is_killed_goes_on_where_it_was(
    tmp_path: pathlib.Path, meanwhile: str
) -> None:
    size, whole = 20 << 20, 4 << 20
    data = os.urandom(size)
    copy = tmp_path / "copy"
    with lined(tmp_path, 16 << 20) as (place, line):
        source = place.files / "source"
        source.write_bytes(data)
        words = (*(sys.executable, "-m", "handoff.cli.main", "nodes", "get", "n1"), str(source))
        with subprocess.Popen([*words, str(copy)], env=place.env()) as getting:
            place.until(lambda: any(one.stat().st_size > 3 * whole for one in parts(tmp_path)))
            getting.kill()
        (part,) = parts(tmp_path)
        if meanwhile == "damaged":
            with part.open("r+b") as file:
                file.seek(whole + 7)
                file.write(b"another")
        elif meanwhile == "changed":
            data = data[:whole] + os.urandom(size - whole - 5)
            source.write_bytes(data)
        before = line.carried
        done = json.loads(place.nodes("get", "n1", str(source), str(copy)).stdout)
        assert done["bytes"] == len(data)
        assert copy.read_bytes() == data
        assert not parts(tmp_path)
        known = 3 * whole if meanwhile == "nothing" else whole
        # what was on its way to the killed one comes too, and nothing behind it
        assert line.carried - before < len(data) - known + whole
        rows = map(json.loads, place.node("logs", "--json", "-n", "20").stdout.splitlines())
        assert [one["status"] for one in rows if one.get("code") == "cancelled"] == ["failed"]


def parts(folder: pathlib.Path) -> list[pathlib.Path]:
    """What is under way in a folder."""
    return list(folder.glob(".handoff-*.part"))


@pytest.mark.timeout(120)
def test_output_that_is_cut_comes_whole(tmp_path: pathlib.Path) -> None:
    with lined(tmp_path, 0) as (place, line):
        asking = subprocess.Popen(
            [
                *(sys.executable, "-m", "handoff.cli.main", "nodes", "exec", "n1", "--shell"),
                "for i in $(seq 1 400); do echo line $i; sleep 0.005; done; exit 9",
            ],
            env=place.env(),
            stdout=subprocess.PIPE,
        )
        assert asking.stdout is not None
        first = asking.stdout.readline()
        for _ in range(3):
            line.cut()
            time.sleep(0.3)
        rest = asking.stdout.read()
        asking.stdout.close()
        assert asking.wait(60) == 9
        assert first + rest == b"".join(b"line %d\n" % n for n in range(1, 401))


@pytest.mark.timeout(120)
def test_a_line_that_says_nothing_is_no_reason_to_hang(tmp_path: pathlib.Path) -> None:
    with lined(tmp_path, 0) as (place, line):
        line.held = True
        began = time.monotonic()
        done = place.nodes("exec", "n1", "--timeout", "1s", "--", "true", code=None)
        line.held = False
        assert time.monotonic() - began < 40
        assert done.returncode == 5, (done.returncode, done.stderr)
        assert b"same key" in done.stderr
        place.until(lambda: place.nodes("exec", "n1", "--", "true", code=None).returncode == 0)


def counted(place: Place, name: str, count: int, *, seconds: float = 0.0) -> None:
    """So many commands, each of which adds a line: all succeed, and each ran once."""
    ran = place.files / name
    for number in range(count):
        line = f"echo {number} >>{ran}; sleep {seconds}; echo {number}"
        done = place.nodes("exec", "n1", "--timeout", "60s", "--shell", line)
        assert done.stdout == b"%d\n" % number
    assert ran.read_text().split() == [str(number) for number in range(count)]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_late_line_is_only_late(tmp_path: pathlib.Path) -> None:
    data = os.urandom(100_000)
    with lined(tmp_path, 0) as (place, line):
        line.delay_s = 0.15
        counted(place, "ran", 4)
        place.nodes("write", "n1", str(place.files / "f"), data=data)
        assert place.nodes("read", "n1", str(place.files / "f")).stdout == data
        assert place.status() == "connected"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_line_that_swaps_what_it_carries_ends_and_nothing_runs_twice(
    tmp_path: pathlib.Path,
) -> None:
    with lined(tmp_path, 0) as (place, line):
        sessions = set()
        for number in range(6):
            line.swaps = 2
            counted(place, f"ran{number}", 1, seconds=0.1)
            line.swaps = 0
            place.until(lambda: place.status() == "connected")
            status = (place.config().parent / "status.json").read_text()
            sessions.add(json.loads(status)["session_id"])
        # TLS takes no piece out of its order: such a link is over, and another made
        assert len(sessions) > 1


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("HANDOFF_FAULTS") != "all", reason="two minutes of silence")
@pytest.mark.timeout(600)
def test_a_connection_that_is_dead_at_both_ends_is_given_up(tmp_path: pathlib.Path) -> None:
    with lined(tmp_path, 0) as (place, line):
        ran = place.files / "ran"
        asking = subprocess.Popen(
            [
                *(sys.executable, "-m", "handoff.cli.main", "nodes", "exec", "n1", "--shell"),
                f"echo x >>{ran}; sleep 3; echo over; exit 9",
            ],
            env=place.env(),
            stdout=subprocess.PIPE,
        )
        place.until(ran.exists)
        line.forget()
        began = time.monotonic()
        assert asking.stdout is not None
        out = asking.stdout.read()
        asking.stdout.close()
        assert (asking.wait(300), out) == (9, b"over\n")
        assert 30 < time.monotonic() - began < 240
        assert ran.read_text() == "x\n"
        counted(place, "after", 1)
