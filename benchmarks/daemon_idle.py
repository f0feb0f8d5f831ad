"""The daemon with nothing to do: how soon it answers, what it weighs, what it burns.

Ready is the first answer to an HTTP request after the process was started. Memory (PSS, all
its processes) and processor time are taken after it has been left alone.
Peers: uvicorn with a Starlette application of one route and one WebSocket, which is the
floor for anything built on them; cli-agent-orchestrator's server; ``opencode serve``. A peer
that is not installed in ``.live`` is left out (``scripts/bench --peers`` installs one of them).
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from common import ENV, PYTHON, ROOT, Row, cpu_seconds, main, memory_mib, p50, until
from tests.support.daemon import Agentd, remove_stray_socket
from tests.support.home import make_home

MINIMAL = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route, WebSocketRoute

async def status(request):
    return JSONResponse({"ok": True})

async def events(ws):
    await ws.accept()
    await ws.receive_text()

app = Starlette(routes=[Route("/", status), WebSocketRoute("/ws", events)])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", ws="websockets-sansio")
"""


@dataclass
class Figures:
    ready_s: float
    pss_mib: float
    cpu_percent: float


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def answers(port: int) -> bool:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        link.request("GET", "/")
        link.getresponse().read()
    except OSError:
        return False
    finally:
        link.close()
    return True


def idle(process: subprocess.Popen[bytes], ready_s: float, rest_s: float) -> Figures:
    """Leave it alone, then weigh it with all its children."""
    time.sleep(1.0)
    tree = [process.pid, *[p.pid for p in psutil.Process(process.pid).children(recursive=True)]]
    before = sum(cpu_seconds(pid) for pid in tree)
    time.sleep(rest_s)
    spent = sum(cpu_seconds(pid) for pid in tree) - before
    return Figures(ready_s, sum(memory_mib(pid) for pid in tree), 100 * spent / rest_s)


def finish(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def server(command: list[str], port: int, home: str, rest_s: float) -> Figures:
    """Start a peer in a home of its own and weigh it."""
    env = {
        **ENV,
        "HOME": home,
        "XDG_DATA_HOME": f"{home}/data",
        "XDG_CONFIG_HOME": f"{home}/config",
    }
    with open(f"{home}/log", "wb") as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            env=env,
            cwd=home,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        until(lambda: answers(port) or process.poll() is not None)
        ready = time.perf_counter() - began
        if process.poll() is not None:
            raise SystemExit(Path(home, "log").read_text()[-500:])
        return idle(process, ready, rest_s)
    finally:
        finish(process)


def ours(rest_s: float) -> Figures:
    with make_home() as home:
        agentd = Agentd(home)
        home.env.pop("PYTHONDONTWRITEBYTECODE", None)
        began = time.perf_counter()
        agentd.start(wait=False)
        assert agentd.process is not None
        try:
            until(lambda: _up(agentd))
            return idle(agentd.process, time.perf_counter() - began, rest_s)
        finally:
            finish(agentd.process)
            remove_stray_socket(agentd)


def _up(agentd: Agentd) -> bool:
    assert agentd.process is not None
    if agentd.process.poll() is not None:
        raise SystemExit(agentd.log()[-800:])
    if agentd.endpoint().get("pid") != agentd.process.pid:
        return False
    try:
        return agentd.call("GET", "/api/status")[0] == 200
    except OSError:
        return False


@contextlib.contextmanager
def folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield name


def peers() -> dict[str, Callable[[float], Figures]]:
    def minimal(rest_s: float) -> Figures:
        with folder() as name:
            port = free_port()
            return server([PYTHON, "-c", MINIMAL, str(port)], port, name, rest_s)

    def cao(rest_s: float) -> Figures:
        with folder() as name:
            port = free_port()
            command = str(ROOT / ".live/cao/bin/cao-server")
            return server([command, "--port", str(port)], port, name, rest_s)

    def opencode(rest_s: float) -> Figures:
        with folder() as name:
            port = free_port()
            command = str(ROOT / ".live/node_modules/.bin/opencode")
            return server([command, "serve", "--port", str(port)], port, name, rest_s)

    found: dict[str, Callable[[float], Figures]] = {"uvicorn + starlette": minimal}
    if (ROOT / ".live/cao/bin/cao-server").exists() and shutil.which("tmux"):
        found["cao-server"] = cao
    if (ROOT / ".live/node_modules/.bin/opencode").exists():
        found["opencode serve"] = opencode
    return found


def measure(quick: bool) -> list[Row]:
    times, rest_s = (1, 2.0) if quick else (5, 10.0)
    mine = [ours(rest_s if i == 0 else 0.1) for i in range(times)]
    theirs: dict[str, Figures] = {}
    for name, run in peers().items():
        several = [run(rest_s if i == 0 else 0.1) for i in range(1 if quick else 3)]
        theirs[name] = Figures(
            p50([f.ready_s for f in several]), several[0].pss_mib, several[0].cpu_percent
        )
    return [
        Row(
            "daemon: start until it answers",
            "s",
            p50([f.ready_s for f in mine]),
            0.4,
            {name: f.ready_s for name, f in theirs.items()},
        ),
        Row(
            "daemon: idle memory (PSS)",
            "MiB",
            mine[0].pss_mib,
            40,
            {name: f.pss_mib for name, f in theirs.items()},
        ),
        Row(
            "daemon: idle processor time",
            "%",
            mine[0].cpu_percent,
            0.2,
            {name: f.cpu_percent for name, f in theirs.items()},
        ),
    ]


if __name__ == "__main__":
    main(measure)
