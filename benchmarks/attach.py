"""From a line that an executor writes to the line that a person who is attached reads.

Counted from the shim's time stamp of the output, over the journal, the driver, the commit
and the stream of frames, until the frame was received.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator

from common import Row, main, p50
from tests.support.daemon import Agentd, _OverSocket

from handoff.process.journal import read_all
from live import post, request, running

TICK = re.compile(r"tick (\d+)\.")


def frames(agentd: Agentd, task: str) -> Iterator[tuple[float, dict[str, object]]]:
    """(time of arrival in ms, frame) of a task's stream, from its first frame on."""
    link = _OverSocket(agentd.socket_path)
    link.request("GET", f"/api/tasks/{task}/frames?from=0&follow=1")
    answer: http.client.HTTPResponse = link.getresponse()
    try:
        while line := answer.readline():
            found = json.loads(line)
            if "frame" in found:
                yield time.time() * 1000, found["frame"]
    finally:
        link.close()


def written(agentd: Agentd, task: str) -> dict[int, int]:
    """tick -> when the shim read it, in ms."""
    found: dict[int, int] = {}
    for run_dir in (agentd.data / "tasks" / task / "runs").iterdir():
        for _, _, kind, at_ms, data in read_all(str(run_dir)):
            if kind == "stdout":
                for tick in TICK.findall(data.decode(errors="replace")):
                    found.setdefault(int(tick), at_ms)
    return found


def latency(agentd: Agentd, task: str, ticks: int) -> list[float]:
    seen: dict[int, float] = {}
    for at, frame in frames(agentd, task):
        for tick in TICK.findall(str(frame["data"])) if frame["kind"] == "text" else []:
            seen.setdefault(int(tick), at)
        if len(seen) == ticks:
            break
    said = written(agentd, task)
    return [at - said[tick] for tick, at in seen.items() if tick in said]


def measure(quick: bool) -> list[Row]:
    ticks = 30 if quick else 200
    steps: list[dict[str, object]] = []
    for i in range(ticks):
        steps += [{"say": {"text": f"tick {i}.\n"}}, {"sleep": {"seconds": 0.01}}]
    with running() as (agentd, repository):
        task = str(post(agentd, "/api/tasks", request(repository, *steps))["id"])
        taken = latency(agentd, task, ticks)
    return [Row("attach: executor's output until it is read, p50", "ms", p50(taken), None)]


if __name__ == "__main__":
    main(measure)
