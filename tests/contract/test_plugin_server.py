"""Our node, as a program, at a server that behaves as hermes-node-plugin v0.1.2 does."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import pathlib
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.pluginserver import PluginServer

TOKEN = "-k3" + "x" * 40


async def wait_for(condition: Any, within: float = 30) -> None:
    until = time.monotonic() + within
    while not condition():
        assert time.monotonic() < until, "not in time"
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def node(place: pathlib.Path, url: str, token: str = TOKEN) -> AsyncIterator[pathlib.Path]:
    """``hermes-node pair --server …`` and ``run``."""
    home, root = place / "home", place / "root"
    for folder in (home, root):
        folder.mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    config, secret = place / "node" / "config.toml", place / "token"
    secret.write_text(token)
    words = [sys.executable, "-m", "handoff.cli.hermes_node"]
    pair = ["pair", "--server", url, "--token-file", str(secret), "--name", "lab"]
    done = await asyncio.create_subprocess_exec(
        *words, *pair, "--plugin", "--allow", str(root), "--config", str(config),
        env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    told, _ = await done.communicate()
    assert done.returncode == 0, told
    child = await asyncio.create_subprocess_exec(
        *words, "run", "--config", str(config), env=env,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield root
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        await child.wait()


async def test_everything_that_such_a_server_asks(tmp_path: pathlib.Path) -> None:
    async with PluginServer({"lab": TOKEN}) as server, node(tmp_path, server.url) as root:
        await wait_for(lambda: "lab" in server.nodes)
        assert {one["type"] for one in server.frames} <= {"hello", "auth", "ping"}

        async def call(**message: Any) -> dict[str, Any]:
            return await server.call("lab", message)

        ran = await call(type="exec", command="printf abc; echo no >&2; exit 7")
        assert (ran["type"], ran["status"], ran["exit_code"]) == ("exec_result", "error", 7)
        assert ran["returncode"] == 7  # the key that the plugin's tool looks at
        assert (ran["stdout"], ran["stderr"], ran["truncated"]) == ("abc", "no\n", False)
        fine = await call(type="exec", command="pwd; echo $A", cwd=str(root), env={"A": "1"})
        assert (fine["status"], fine["stdout"]) == ("ok", f"{root}\n1\n")
        late = await call(type="exec", command="echo on; sleep 60", timeout_ms=1000)
        assert (late["status"], late["stdout"], late["returncode"]) == ("timeout", "on\n", 124)
        none = await call(type="exec", command="true", cwd=f"{root}/none")
        assert none["status"] == "error"
        assert none["returncode"] not in (0, None)
        empty = await call(type="exec", command="")
        assert (empty["type"], empty["code"], empty["reason"]) == ("error", 4000, "bad_request")
        odd = await call(type="frobnicate")
        assert (odd["type"], odd["code"]) == ("error", 5001)

        data = base64.b64encode(b"\0\xff").decode()
        wrote = await call(type="write", path=f"{root}/f", content_b64=data, mode="create")
        assert (wrote["status"], wrote["bytes_written"]) == ("ok", 2)
        again = await call(type="write", path=f"{root}/f", content_b64=data, mode="create")
        assert (again["status"], again["error"]) == ("error", "io_error")
        read = await call(type="read", path=f"{root}/f")
        assert (read["status"], read["content_b64"], read["size_bytes"]) == ("ok", data, 2)
        for path, code in (("/etc/shadow", "path_not_allowed"), (f"{root}/no", "file_not_found")):
            refused = await call(type="read", path=path)
            assert (refused["status"], refused["error"]) == ("error", code)


async def test_a_long_command_keeps_the_link_and_a_read_does_not_wait(
    tmp_path: pathlib.Path,
) -> None:
    """The server pings every 2 s here and hangs up after 2 more: the node reads meanwhile."""
    async with PluginServer({"lab": TOKEN}) as server, node(tmp_path, server.url) as root:
        await wait_for(lambda: "lab" in server.nodes)
        (root / "f").write_text("x")
        long = asyncio.create_task(
            server.call("lab", {"type": "exec", "command": "sleep 7; echo end"})
        )
        await asyncio.sleep(0)
        read = await server.call("lab", {"type": "read", "path": f"{root}/f"})
        assert read["status"] == "ok"
        assert not long.done()
        assert (await long)["stdout"] == "end\n"
        assert not server.closed


async def test_output_is_cut_to_what_a_frame_takes(tmp_path: pathlib.Path) -> None:
    async with PluginServer({"lab": TOKEN}) as server, node(tmp_path, server.url):
        await wait_for(lambda: "lab" in server.nodes)
        ran = await server.call(
            "lab", {"type": "exec", "command": "head -c 40000000 /dev/zero | tr '\\0' a"}
        )
        assert (ran["status"], ran["exit_code"], ran["truncated"]) == ("ok", 0, True)
        assert len(ran["stdout"]) > 100_000
        assert "lab" in server.nodes
        for _ in range(3):
            assert (await server.call("lab", {"type": "exec", "command": "true"}))["status"] == "ok"


async def test_a_wrong_token_is_told_and_not_hammered(tmp_path: pathlib.Path) -> None:
    async with PluginServer({"lab": "another"}) as server, node(tmp_path, server.url):
        await wait_for(lambda: server.closed)
        assert server.closed[0] == 4001
        status = tmp_path / "node" / "status.json"
        await wait_for(lambda: status.exists() and "invalid_token" in status.read_text())


@pytest.mark.parametrize("count", [60])
async def test_many_calls_at_once_stay_below_the_servers_limit(
    tmp_path: pathlib.Path, count: int
) -> None:
    async with PluginServer({"lab": TOKEN}) as server, node(tmp_path, server.url):
        await wait_for(lambda: "lab" in server.nodes)
        calls = [server.call("lab", {"type": "exec", "command": f"exit {n}"}) for n in range(count)]
        done = await asyncio.gather(*calls)
        assert [one["returncode"] for one in done] == list(range(count))
        assert not server.closed
