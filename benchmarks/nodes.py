"""What a call to a node costs, from a program to the node's answer, over a sealed link.

Everything is real: the brain's process, the node's, their TLS link, the local socket. A call
opens its own connection to the brain, as tools and commands do. The 500 small files go
through ``handoff nodes put``, its start included. The peers are :mod:`node_peers`'; those that
run as a command (ssh, scp, sftp, rsync) are measured with their start as well, and over a
master connection that is open. Whatever is copied stays on one machine, in one folder.

Memory at rest is the processes' share (PSS), and the resident set is told beside it; the
node's is that of its two processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from common import Row, main, memory_mib, p50
from node_peers import (
    STAMPS,
    Sshd,
    copies,
    delay,
    fastest,
    library,
    median,
    openssh,
    sshd,
    stamp_argv,
)
from tests.support.nodes import Place, running

from handoff.nodes.client import BrainClient, new_key

TRUE = {"argv": ["true"]}
PARALLEL = 20
#: entries of the folder that is listed
LISTED = 20
#: what stands in which row: key -> names of the peers, in the table's order
SSH, ASYNCSSH, EXECNET = "ssh ControlMaster", "asyncssh", "execnet"


class Ours:
    """Our figures."""

    def __init__(self, place: Place, work: Path, big: str, small: str, listed: str) -> None:
        self.place = place
        self.work = work
        self.big, self.small, self.listed = big, small, listed
        self.brain = BrainClient(str(place.root / "brain"), None)
        self._count = 0

    def exec(self) -> None:
        self.brain.call("n1", "exec", TRUE, key=new_key())

    def stat(self) -> None:
        self.brain.call("n1", "stat", {"path": self.big})

    def list(self) -> None:
        self.brain.call("n1", "list", {"path": self.listed})

    def parallel(self) -> None:
        threads = [threading.Thread(target=self.exec) for _ in range(PARALLEL)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def first(self) -> float:
        """Milliseconds from a program's write to our having it."""
        found: list[float] = []

        def piece(_: str, data: bytes) -> None:
            found.append(delay(data, time.monotonic_ns()))

        call = {"argv": stamp_argv(), "stream": True}
        self.brain.call("n1", "exec", call, key=new_key(), pieces=piece)
        return found[0]

    def read(self) -> None:
        with open(self.fresh(), "wb") as file:
            self.brain.call(
                "n1",
                "read",
                {"path": self.big, "stream": True},
                pieces=lambda _, data: file.write(data),
            )

    def write(self) -> None:
        with open(self.big, "rb") as file:
            feed = iter(lambda: file.read(1 << 18), b"")
            call = {"path": self.fresh(), "stream": True}
            ok, answer = self.brain.call("n1", "write", call, key=new_key(), feed=feed)
        assert ok, answer

    def put(self, source: str) -> None:
        self.copied("put", "n1", source, self.fresh())

    def get(self, source: str) -> None:
        self.copied("get", "n1", source, self.fresh())

    def copied(self, *words: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "handoff.cli.main", "nodes", *words],
            env=self.place.env(),
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def fresh(self) -> str:
        self._count += 1
        return str(self.work / f"ours{self._count}")


def peers_of(
    server: Sshd | None, why: str, asked: dict[str, object], times: int
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """What each peer took, by its name; and why some did not."""
    found: dict[str, dict[str, float]] = {}
    missing: dict[str, str] = {}
    if server is None:
        names = (SSH, ASYNCSSH, EXECNET, "scp", "sftp", "rsync")
        return found, dict.fromkeys(names, why)
    work = Path(str(asked["work"]))
    try:
        found[SSH] = openssh(server, times, PARALLEL)
        found.update(copies(server, work, str(asked["big"]), str(asked["small"])))
    except OSError as error:
        missing[SSH] = str(error)
    for name in ("scp", "sftp", "rsync"):
        if name not in found:
            missing[name] = f"{name} is not installed"
    for name in (ASYNCSSH, EXECNET):
        try:
            found[name] = library(name, server, dict(asked))
        except (OSError, subprocess.TimeoutExpired) as error:
            missing[name] = str(error)
    return found, missing


@contextlib.contextmanager
def a_server() -> Iterator[tuple[Sshd | None, str]]:
    """The private sshd, or why there is none."""
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(sshd()), ""
        except OSError as error:
            yield None, str(error)


def idle(place: Place) -> list[Row]:
    """Brain and node, just started and linked."""
    brain = place.asked("status")["pid"]
    node = json.loads((place.config().parent / "status.json").read_text())["pid"]
    keeper = json.loads((place.config().parent / "calls" / "keeper.json").read_text())["pid"]
    rows = []
    for name, pids, budget in (("brain", (brain,), 40.0), ("node", (node, keeper), 25.0)):
        pss = sum(memory_mib(pid) for pid in pids)
        rss = sum(memory_mib(pid, "Rss") for pid in pids)
        note = f"PSS; resident {rss:.1f} MiB" + (", with its keeper" if len(pids) > 1 else "")
        rows.append(Row(f"{name}: memory at rest", "MiB", pss, budget, note=note))
    return rows


def figures(ours: Ours, times: int, size: int) -> dict[str, float]:
    """All of ours, by the names of the peers' figures."""
    return {
        "exec": median(ours.exec, times),
        "stat": median(ours.stat, times),
        "list": median(ours.list, times),
        "parallel": median(ours.parallel, 5),
        "first": p50([ours.first() for _ in range(STAMPS)]),
        "read": fastest(ours.read, size),
        "write": fastest(ours.write, size),
        "small": median(lambda: ours.put(ours.small), 3) / 1000,
        "small_get": median(lambda: ours.get(ours.small), 3) / 1000,
    }


#: key, what it is, unit, budget, whether more is better
ROWS = [
    ("exec", "node: exec of `true`, open link", "ms", 2.5, False),
    ("stat", "node: stat, open link", "ms", 0.5, False),
    ("list", f"node: list a folder of {LISTED}", "ms", 0.5, False),
    ("parallel", f"node: {PARALLEL} times `true` at once, until the last", "ms", None, False),
    ("first", "node: first byte of output, after it was written", "ms", 5.0, False),
    ("read", "node: a large file down", "MiB/s", 300.0, True),
    ("write", "node: a large file up", "MiB/s", 300.0, True),
    ("small", "node: put 500 files of 4 KiB", "s", 0.3, False),
    ("small_get", "node: get 500 files of 4 KiB", "s", 0.3, False),
]


def rows_of(
    mine: dict[str, float], found: dict[str, dict[str, float]], missing: dict[str, str]
) -> list[Row]:
    """The table's rows. A peer that is missing is a row of its own, with the reason."""
    rows = []
    for key, figure, unit, budget, more in ROWS:
        peers = {name: one[key] for name, one in found.items() if key in one}
        rows.append(Row(figure, unit, mine[key], budget, peers, more=more))
    for name, why in missing.items():
        rows.append(Row(f"node: {name} beside it", skipped=why))
    return rows


def measure(quick: bool) -> list[Row]:
    """All rows."""
    times = 50 if quick else 300
    size = (32 if quick else 200) << 20
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        place = stack.enter_context(running(root))
        server, why = stack.enter_context(a_server())
        work = place.files / "work"
        small, listed, big = place.files / "small", place.files / "listed", place.files / "big"
        for folder in (work, small, listed):
            folder.mkdir()
        big.write_bytes(os.urandom(1 << 20) * (size >> 20))
        for folder, count in ((small, 500), (listed, LISTED)):
            for number in range(count):
                (folder / f"f{number}").write_bytes(os.urandom(4096))
        rest = idle(place)
        ours = Ours(place, work, str(big), str(small), str(listed))
        mine = figures(ours, times, size)
        asked: dict[str, object] = {
            "times": times,
            "parallel": PARALLEL,
            "big": str(big),
            "small": str(small),
            "listed": str(listed),
            "work": str(work),
        }
        found, missing = peers_of(server, why, asked, times)
        return rows_of(mine, found, missing) + rest


if __name__ == "__main__":
    main(measure)
