"""Handoff records in a store of ten thousand: making, reading, listing, searching, comparing.

Every record is durable when it was made (its files and folders synced), and every read
checks all digests, the canonical form and the rendering again. The records before the
measured ones are made the same way, only without waiting for the medium. The figures of the
session-handoff server (0.7, ten thousand records) are those that its own benchmark states;
it is not run here.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import ENV, HANDOFF, Row, main, p50

from handoff.clock import SystemClock
from handoff.sessions import evidence
from handoff.sessions.drift import Now, compare
from handoff.sessions.guard import RedactorGuard, profile_key
from handoff.sessions.manifest import Source
from handoff.sessions.records import Draft, Records
from handoff.sessions.workspace import Binding, anchor_sha256, bind

PEER = "session-handoff 0.7 (its own figure)"
WORDS = [
    "parser",
    "lexer",
    "token",
    "cache",
    "worker",
    "retry",
    "budget",
    "index",
    "schema",
    "stream",
    "buffer",
    "handler",
    "commit",
    "branch",
    "review",
    "window",
    "socket",
    "signal",
    "thread",
    "daemon",
    "record",
    "digest",
    "folder",
    "branch",
    "profile",
]
FILES = 500


def sentence(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(words))


def state(chance: random.Random, number: int) -> dict[str, Any]:
    """About 8 KiB. Every hundredth record has the word `zebra`, none has `quagga`."""
    rare = "zebra " if number % 100 == 0 else ""
    done = [
        {"id": f"p{n}", "text": f"{sentence(chance, 40)} {number}-{n}", "basis": "reported"}
        for n in range(24)
    ]
    steps = [{"id": "n1", "text": f"run the tests of {sentence(chance, 3)}", "verify": "exit 0"}]
    return {
        "schema": "handoff-state/2",
        "goal": {"text": f"{rare}make {sentence(chance, 6)} {number}", "done_when": ["tests pass"]},
        "progress": {"done": done, "in_progress": [], "pending": []},
        "next_steps": steps,
        "omissions": [],
    }


class Store:
    """A store in a folder, filled."""

    def __init__(self, folder: Path, count: int) -> None:
        self.root = str(folder / "handoff")
        self.chance = random.Random(1)
        self.records = Records(self.root)
        self.made: list[str] = []
        sync, os.fsync = os.fsync, lambda fd: None  # type: ignore[assignment]
        try:
            for _ in range(count):
                self.create()
        finally:
            os.fsync = sync

    def create(self) -> None:
        number = len(self.made)
        path = f"/projects/{number % 10}"
        place = Binding(
            path, path, "directory", path, anchor_sha256("directory", path), str(number % 10)
        )
        source = Source("default", f"session-{number % 400}", "7", "hermes", "0.22.0")
        draft = Draft(state(self.chance, number), f"request-{number:08}", place, source)
        self.made.append(self.records.create(draft).ref)


def spent(work: Callable[[], object], times: int) -> list[float]:
    """Milliseconds of each round."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return sorted(taken)


def p95(taken: list[float]) -> float:
    return taken[min(len(taken) - 1, len(taken) * 95 // 100)]


def walk(records: Records, most: int) -> int:
    """That many records, page by page."""
    seen, cursor = 0, ""
    while seen < most:
        page = records.list_page(limit=100, cursor=cursor)
        seen += len(page.items)
        cursor = page.cursor
        if not cursor:
            break
    return seen


def drifted(folder: Path, times: int) -> float:
    """A record with five hundred files compared with its repository, in milliseconds."""
    top = folder / "repository"
    top.mkdir()
    for number in range(FILES):
        (top / f"file_{number}.py").write_text(f"value = {number}\n")
    who = ["-c", "user.name=b", "-c", "user.email=b@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run(["git", *who, *words], cwd=top, check=True, capture_output=True)
    for number in range(0, FILES, 5):
        (top / f"file_{number}.py").write_text("changed\n")
    records = Records(str(folder / "drift"))
    place = bind(str(top))
    files = [{"path": f"file_{n}.py", "role": "modified"} for n in range(FILES)]
    given = {
        "schema": "handoff-state/2",
        "goal": {"text": "compare", "done_when": ["tests pass"]},
        "files": files,
        "omissions": [],
    }
    records.create(Draft(given, "request-0", place, Source("default", "s", "1", "hermes", "0")))
    guard = RedactorGuard(profile_key(records.root))
    got = evidence.gather(place, guard, session_id="s", paths=[one["path"] for one in files])
    draft = Draft(
        {**given, "goal": {"text": "compare again", "done_when": ["tests pass"]}},
        "request-1",
        place,
        Source("default", "s", "1", "hermes", "0"),
        evidence=got.frozen,
    )
    ref = records.create(draft).ref
    (top / "file_1.py").write_text("drifted\n")
    now = Now(SystemClock().now_ms(), workspace=str(top))
    found = compare(records, ref, now)
    assert any(one["code"] == "file_changed" for one in found.findings), found
    return p95(spent(lambda: compare(records, ref, now), times))


def started(folder: Path, words: list[str], times: int) -> tuple[float, float]:
    """A command: (p50 of its milliseconds, MiB of memory at its peak)."""
    env = {**ENV, "HANDOFF_HOME": str(folder), "HERMES_HOME": str(folder), "HOME": str(folder)}
    taken, peak = [], 0.0
    for _ in range(times + 1):
        began = time.perf_counter()
        with subprocess.Popen(
            [HANDOFF, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as child:
            _, _, used = os.wait4(child.pid, 0)
            child.returncode = 0
        taken.append((time.perf_counter() - began) * 1000)
        peak = max(peak, used.ru_maxrss / (1024 if sys.platform == "linux" else 2**20))
    return p50(taken[1:]), peak


def measure(quick: bool) -> list[Row]:
    count, times = (1_000, 20) if quick else (10_000, 100)
    at = f"{count:,} records"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        store = Store(folder, count)
        records, chance = store.records, store.chance
        create = p95(spent(store.create, times))
        read = p95(spent(lambda: records.read(chance.choice(store.made)), times))
        listed = p95(spent(lambda: records.list_page(limit=20), times))
        walked = p50(spent(lambda: walk(records, 1_000), 5))
        assert records.search("quagga").total == 0
        assert records.search("zebra").total == count // 100 + 1
        absent = p95(spent(lambda: records.search("quagga"), times // 2))
        rare = p95(spent(lambda: records.search("zebra", limit=20), times // 2))
        common = p95(spent(lambda: records.search("parser", limit=20), times // 5))
        short = p95(spent(lambda: records.search("zq", limit=20), times // 5))
        compared = drifted(folder, max(5, times // 10))
        words = ["session", "list", "--limit", "20"]
        _, memory = started(folder, words, 3)
        refusal, _ = started(folder, ["session", "read", "handoff://none/none"], times // 5)
    return [
        Row(f"session record made, durable, 8 KiB, p95 ({at})", "ms", create, 25, {PEER: 54}),
        Row("session record read and verified, p95", "ms", read, 10, {PEER: 18.6}),
        Row("session records, a page of 20, p95", "ms", listed, 10, {PEER: 158}),
        Row("session records, 1,000 walked", "ms", walked, 500, {PEER: 11_900}),
        Row("search for what no record has, p95", "ms", absent, 300, {PEER: 2_062},
            note="the peer looked through 256 records"),
        Row("search for what every hundredth has, 20 with lines, p95", "ms", rare, 300),
        Row("search for what all have, 20 with lines, p95", "ms", common, 300),
        Row("search for two letters, which no index helps, p95", "ms", short, 300),
        Row(f"a record compared with its repository, {FILES} files, p95", "ms", compared, 300),
        Row("`handoff session read` until it refuses", "ms", refusal, 120, {PEER: 281},
            note="the peer: its server's start"),
        Row("`handoff session list`, peak memory", "MiB", memory, 40, {PEER: 33}),
    ]  # fmt: skip


if __name__ == "__main__":
    main(measure)
