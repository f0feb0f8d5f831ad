"""The process that holds an executor: how long until it runs, and what it weighs.

Ours: the shim, started by the supervisor of agentd. Peer: a detached tmux session, which is
how most tools of this kind keep an agent alive. Both hold the same sleeping process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from common import ENV, Row, main, memory_mib, p50

from handoff.process.contract import Spec
from handoff.process.supervisor import start

SLEEP = ("/bin/sleep", "1000")


async def ours(times: int) -> tuple[list[float], float, float]:
    """(ms until ``started`` was read, RSS MiB, PSS MiB)."""
    taken, rss, pss = [], 0.0, 0.0
    with tempfile.TemporaryDirectory() as name:
        for i in range(times + 1):
            spec = Spec(run_id=f"run{i}", argv=SLEEP, cwd=name, env={"PATH": os.environ["PATH"]})
            began = time.perf_counter()
            shim = await start(Path(name) / f"run{i}", spec)
            try:
                async for record in shim.records(0):
                    if record.kind == "started":
                        break
                spent = (time.perf_counter() - began) * 1000
                if i:
                    taken.append(spent)
                rss, pss = memory_mib(shim.shim_pid, "Rss"), memory_mib(shim.shim_pid)
            finally:
                await shim.end(0.1)
                await shim.close()
    return taken, rss, pss


def tmux(times: int) -> tuple[list[float], float] | None:
    """(ms until the session runs its process, RSS MiB of the server)."""
    if not shutil.which("tmux"):
        return None
    taken, rss = [], 0.0
    with tempfile.TemporaryDirectory() as name:
        for i in range(times + 1):
            base = ["tmux", "-S", f"{name}/{i}", "-f", "/dev/null"]
            began = time.perf_counter()
            subprocess.run([*base, "new-session", "-d", *SLEEP], env=ENV, check=True)
            spent = (time.perf_counter() - began) * 1000
            if i:
                taken.append(spent)
            asked = subprocess.run(
                [*base, "display-message", "-p", "#{pid}"], env=ENV, check=True, capture_output=True
            )
            rss = memory_mib(int(asked.stdout), "Rss")
            subprocess.run([*base, "kill-server"], env=ENV, check=True)
    return taken, rss


def measure(quick: bool) -> list[Row]:
    times = 5 if quick else 20
    taken, rss, pss = asyncio.run(ours(times))
    peer = tmux(times)
    return [
        Row(
            "shim: start until its executor runs, p50",
            "ms",
            p50(taken),
            30,
            {"tmux": p50(peer[0])} if peer else {},
        ),
        Row(
            "shim: resident memory",
            "MiB",
            rss,
            12,
            {"tmux server": peer[1]} if peer else {},
            note=f"PSS {pss:.1f} MiB",
        ),
    ]


if __name__ == "__main__":
    main(measure)
