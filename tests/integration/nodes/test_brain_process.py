"""The brain as its own process: one a folder, found and started by whoever needs it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from handoff.clock import SystemClock
from handoff.errors import (
    BadRequest,
    HandoffError,
    NodeExists,
    RequestConflict,
    UnknownNode,
    Unreachable,
)
from handoff.link.keys import load_or_make_key
from handoff.link.pairing import parse_code
from handoff.nodes import audit
from handoff.nodes.client import BrainClient, new_key
from handoff.nodes.node.config import Config, server_url
from handoff.nodes.node.dialler import Dialler, pair
from handoff.nodes.node.engine import Engine, Settings
from handoff.redaction import Redactor

CLOCK = SystemClock()


@pytest.fixture
def brain(tmp_path: pathlib.Path) -> Iterator[BrainClient]:
    folder = tmp_path / "brain"
    folder.mkdir(mode=0o700)
    (folder / "brain.toml").write_text("port = 0\n")
    client = BrainClient(str(folder))
    yield client
    with contextlib.suppress(Unreachable):
        BrainClient(str(folder), None).ask("stop")
    until = time.monotonic() + 20
    while client.running():
        assert time.monotonic() < until
        time.sleep(0.01)


async def run(work: Any, *args: Any, **more: Any) -> Any:
    return await asyncio.to_thread(work, *args, **more)


@contextlib.asynccontextmanager
async def node(root: pathlib.Path, client: BrainClient, name: str = "n1") -> AsyncIterator[Dialler]:
    place = root / name
    for one in ("node", "home", "files"):
        (place / one).mkdir(parents=True, exist_ok=True)
    key = load_or_make_key(str(place / "node" / "key.pem"))
    told = await run(client.ask, "code", name=name, replace=True)
    code = parse_code(told["code"])
    assert await pair(code, key, CLOCK) == name
    config = Config(
        str(place / "node"),
        server_url(code.address),
        name,
        allowed_paths=(str(place / "files"),),
        brain_key=code.brain_key,
        backoff_initial=0.05,
        backoff_max=0.2,
    )
    settings = Settings(
        config.folder,
        str(place / "home"),
        f"{config.folder}/policy.toml",
        config.allowed_paths,
        "0",
    )
    log = audit.Audit(f"{config.folder}/audit", "node", Redactor(b"k" * 32).redact, CLOCK)
    engine = Engine(settings, log, CLOCK, {"PATH": os.environ["PATH"]})
    await engine.open()
    dialler = Dialler(config, engine, CLOCK, key, "0")
    running = asyncio.create_task(dialler.run())
    until = time.monotonic() + 20
    while dialler.status.state != "connected":
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
    try:
        yield dialler
    finally:
        dialler.stop()
        await asyncio.wait_for(running, 20)
        await dialler.drain()
        await engine.close(stop=True)
        log.close()


async def test_is_started_by_the_first_who_asks(brain: BrainClient) -> None:
    assert not brain.running()
    with pytest.raises(Unreachable):
        BrainClient(brain.folder, None).ask("status")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: BrainClient(brain.folder).ask("status"), range(6)))
    assert len({one["pid"] for one in found}) == 1
    assert found[0]["address"].startswith("wss://127.0.0.1:")


async def test_calls_through_the_socket(tmp_path: pathlib.Path, brain: BrainClient) -> None:
    async with node(tmp_path, brain):
        key = new_key()
        call = {"command": "printf out; printf err >&2; exit 7"}
        ok, answer = await run(brain.call, "n1", "exec", call, key=key, by={"session": "s1"})
        assert ok
        assert (answer["exit_code"], answer["stdout"]["head"]) == (7, "out")
        assert await run(brain.call, "n1", "exec", call, key=key) == (True, answer)
        with pytest.raises(RequestConflict):
            await run(brain.call, "n1", "exec", {"command": "true"}, key=key)
        with pytest.raises(UnknownNode):
            await run(brain.call, "none", "exec", call, key=new_key())
        with pytest.raises(BadRequest):
            await run(brain.call, "n1", "exec", {"command": 1}, key=new_key())
        ok, failed = await run(brain.call, "n1", "read", {"path": "/etc/passwd"})
        assert (ok, failed["code"]) == (False, "path_not_allowed")
        listed = await run(brain.ask, "nodes")
        assert listed["nodes"][0]["state"] == "connected"
    rows = [row for row in audit.rows(f"{tmp_path}/n1/node/audit") if row.get("request_id") == key]
    assert rows[0]["actor"] == {"session": "s1"}


async def test_streams_through_the_socket(tmp_path: pathlib.Path, brain: BrainClient) -> None:
    data = os.urandom(3_000_000)
    got: list[bytes] = []
    async with node(tmp_path, brain):
        ok, answer = await run(
            brain.call,
            "n1",
            "exec",
            {"command": "cat", "stdin": "stream", "stream": True},
            key=new_key(),
            pieces=lambda _, piece: got.append(piece),
            feed=iter([data[:1_000_000], data[1_000_000:]]),
        )
        assert ok
        assert answer["stdout"]["streamed"]
        assert hashlib.sha256(b"".join(got)).digest() == hashlib.sha256(data).digest()


async def test_a_killed_brain_loses_no_call(tmp_path: pathlib.Path, brain: BrainClient) -> None:
    os.mkfifo(tmp_path / "go")
    command = f"echo x >>{tmp_path}/ran; cat {tmp_path}/go; echo over; exit 6"
    await run(brain.start)
    status = await run(brain.ask, "status")
    # the same port after it is killed, so that the node finds it again
    pathlib.Path(brain.folder, "brain.toml").write_text(f"port = {status['port']}\n")
    async with node(tmp_path, brain):
        asked = asyncio.create_task(
            run(brain.call, "n1", "exec", {"command": command}, key="key-00001")
        )
        until = time.monotonic() + 20
        while not (tmp_path / "ran").exists():
            assert time.monotonic() < until
            await asyncio.sleep(0.01)
        assert status["pid"] > 1
        os.kill(status["pid"], signal.SIGKILL)

        def open_gate() -> None:
            with open(tmp_path / "go", "w"):
                pass

        gate = asyncio.create_task(run(open_gate))
        ok, answer = await asked  # it started a new brain and asked again with its key
        await gate
        assert ok, answer
        assert (answer["exit_code"], answer["stdout"]["head"]) == (6, "over\n")
        assert (tmp_path / "ran").read_text() == "x\n"


async def test_pairing_words(brain: BrainClient) -> None:
    told = await run(brain.ask, "token", name="go1")
    assert len(told["token"]) == 43
    with pytest.raises(NodeExists):
        await run(brain.ask, "token", name="go1")
    assert (await run(brain.ask, "rotate", name="go1"))["token"] != told["token"]
    await run(brain.ask, "rename", name="go1", to="go2")
    await run(brain.ask, "tags", name="go2", tags=["lab"])
    assert (await run(brain.ask, "revoke", name="go2"))["changed"]
    assert (await run(brain.ask, "nodes"))["nodes"][0]["state"] == "revoked"
    await run(brain.ask, "remove", name="go2")
    assert (await run(brain.ask, "nodes"))["count"] == 0
    with pytest.raises(BadRequest):
        await run(brain.ask, "nothing")


@pytest.mark.parametrize(
    "fields", [{"by": 1}, {"wait_s": 1e400}, {"key": "\ud800" * 8}, {"key": 7}]
)
async def test_a_request_that_makes_no_sense_is_answered(
    brain: BrainClient, fields: dict[str, Any]
) -> None:
    call = {"target": "n9", "call": {"op": "stat", "args": {"path": "~"}}}
    with pytest.raises(HandoffError) as raised:
        await run(brain.ask, "call", **{**call, **fields})
    assert raised.value.code in {"unknown_node", "bad_request"}
    for op, more in (("code", {"name": "n1", "ttl_s": 1e400}), ("code", {"name": "\ud800"})):
        with pytest.raises(HandoffError) as raised:
            await run(brain.ask, op, **more)
        assert raised.value.code != "protocol_violation"


async def test_an_interrupt_is_heard_while_input_waits(
    tmp_path: pathlib.Path, brain: BrainClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the terminal: the command reads nothing, and its input fills every buffer."""
    from handoff.nodes import client as module

    real = module._receive
    interrupts = iter([True])
    started = tmp_path / "ran"

    def receive(sock: Any, *more: Any) -> Any:
        if next(interrupts, False):
            until = time.monotonic() + 20
            while not started.exists():
                assert time.monotonic() < until
                time.sleep(0.01)
            time.sleep(0.3)  # so that what feeds it stands still
            raise KeyboardInterrupt
        return real(sock, *more)

    async with node(tmp_path, brain):
        monkeypatch.setattr(module, "_receive", receive)
        command = f"echo x >{started}; exec sleep 600"
        ok, answer = await asyncio.wait_for(
            run(
                brain.call,
                "n1",
                "exec",
                {"command": command, "stdin": "stream", "stream": True},
                key=new_key(),
                pieces=lambda *_: None,
                feed=iter([bytes(1 << 20)] * 40),
            ),
            30,
        )
        assert ok
        assert answer["status"] == "cancelled"


async def test_who_starts_a_brain_has_no_child_to_collect(brain: BrainClient) -> None:
    await run(brain.start)
    pid = (await run(brain.ask, "status"))["pid"]
    with open(f"/proc/{pid}/stat") as file:
        assert int(file.read().rpartition(")")[2].split()[1]) != os.getpid()
