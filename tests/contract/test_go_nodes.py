"""Our brain and nodes that behave as the Go ones do: a real brain process, the shared client,
a real shell, both generations of the node."""

from __future__ import annotations

import asyncio
import os
import pathlib
import ssl
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.gonode import GoNode
from tests.support.waiting import until

from handoff.link.files import make_folder
from handoff.nodes.brain.main import Settings, save_settings
from handoff.nodes.client import BrainClient, new_key

PROGRAM = (sys.executable, "-m", "handoff.nodes.brain.main")


class Pair:
    """A brain and a node that is connected to it."""

    def __init__(self, brain: BrainClient, node: GoNode, root: pathlib.Path) -> None:
        self.brain, self.node, self.root = brain, node, root

    async def ask(self, op: str, key: str = "", **args: Any) -> tuple[bool, dict[str, Any]]:
        more = {"key": key or new_key()} if op in ("exec", "write") else {}
        return await asyncio.to_thread(self.brain.call, "lab", op, args, **more)

    async def run(self, command: str, **args: Any) -> dict[str, Any]:
        ok, value = await self.ask("exec", command=command, **args)
        assert ok, value
        return value


@pytest.fixture(params=["0.1.4", "0.2.0", "0.2.0 chunks"])
async def pair(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Pair]:
    monkeypatch.setenv("HOME", str(tmp_path))
    version, _, chunks = request.param.partition(" ")
    folder, root = str(tmp_path / "brain"), tmp_path / "root"
    root.mkdir()
    make_folder(folder)
    save_settings(folder, Settings(port=0, tls=False, chunks=bool(chunks)))
    brain = BrainClient(folder, PROGRAM)
    try:
        told = await asyncio.to_thread(brain.ask, "token", name="lab", keep=version >= "0.2")
        node = GoNode(told["address"], "lab", told["token"], [root], version)
        async with node:
            assert (node._key is not None) == (version >= "0.2")
            assert node.chunks == bool(chunks)
            await asyncio.to_thread(
                until, lambda: brain.ask("nodes")["nodes"][0]["state"] == "connected"
            )
            yield Pair(brain, node, root)
    finally:
        await asyncio.to_thread(BrainClient(folder, None).ask, "stop")
        await asyncio.to_thread(until, lambda: not brain.running())


def out(value: dict[str, Any]) -> str:
    stdout = value.get("stdout", {})
    text = stdout.get("head", "") + stdout.get("tail", "")
    assert stdout.get("bytes_total", 0) == len(text.encode())
    assert not value.get("stderr", {}).get("head")
    return str(text)


async def test_output_is_exact_and_no_framing_leaks(pair: Pair) -> None:
    for command, wanted in (
        ("printf abc", "abc"),
        ("echo abc", "abc\n"),
        ("printf 'a\\n\\n'", "a\n\n"),
        ("true", ""),
        ("echo out; echo err >&2", "out\nerr\n"),
        ("cat <<X\nhällo\nX", "hällo\n"),
        ("echo 'it'\\''s'; echo \"$0\" | tr -d a-z/", "it's\n\n"),
    ):
        value = await pair.run(command)
        assert (out(value), value["exit_code"]) == (wanted, 0), command


@pytest.mark.parametrize("code", [0, 1, 7, 137])
async def test_exit_codes_arrive(pair: Pair, code: int) -> None:
    value = await pair.run(f"echo x; exit {code}")
    assert (value["exit_code"], out(value)) == (code, "x\n")
    assert value["status"] == ("error" if code else "ok")


async def test_one_command_does_not_harm_the_next(pair: Pair) -> None:
    for command, code in (
        ("cat", 0),
        ("exit 3", 3),
        ("set -e; false; echo never", 1),
        ('read line; echo "<$line>"; exit 4', 4),
        ("if", 2),
        ("cd /; export LEAK=1", 0),
    ):
        assert (await pair.run(command))["exit_code"] == code, command
        after = await pair.run('echo "next$LEAK"')
        assert (after["exit_code"], out(after)) == (0, "next\n"), command


async def test_folder_and_variables_are_honoured(pair: Pair) -> None:
    place = pair.root / "with 'quote"
    place.mkdir()
    value = await pair.run("pwd; echo $A", cwd=str(place), env={"A": "x y'$Z"})
    assert out(value) == f"{place}\nx y'$Z\n"
    assert out(await pair.run("pwd", cwd="~")) == f"{os.environ['HOME']}\n"
    mark = pair.root / "ran"
    ok, value = await pair.ask("exec", command=f"touch {mark}", cwd=f"{pair.root}/none")
    assert (ok, value["code"]) == (False, "file_not_found")
    assert not mark.exists()
    ok, value = await pair.ask("exec", command="true", env={"a-b": "1"})
    assert (ok, value["code"]) == (False, "bad_request")


async def test_an_argument_list_is_taken_as_it_is(pair: Pair) -> None:
    ok, value = await pair.ask("exec", argv=["printf", "%s|", "a b", "$HOME", "'"])
    assert ok, value
    assert out(value) == "a b|$HOME|'|"


async def test_the_time_limit_ends_what_was_started(pair: Pair) -> None:
    mark = pair.root / "late"
    began = time.monotonic()
    value = await pair.run(f"echo begun; sleep 30; touch {mark}", timeout_ms=1000)
    assert time.monotonic() - began < 15
    assert (value["status"], value.get("exit_code", None)) == (
        "timeout", None,
    )  # fmt: skip
    assert out(value) == "begun\n"
    assert out(await pair.run("echo next")) == "next\n"
    assert not mark.exists()


async def test_files_and_what_is_refused(pair: Pair) -> None:
    path = pair.root / "f"
    binary = {"b64": "AAH/"}
    ok, value = await pair.ask("write", path=str(path), data=binary, stream=False)
    assert (ok, value["bytes_written"]) == (True, 3)
    assert path.read_bytes() == b"\0\1\xff"
    ok, value = await pair.ask("read", path=str(path))
    assert ok
    assert value["data"] == binary
    (pair.root / "empty").touch()
    ok, value = await pair.ask("read", path=str(pair.root / "empty"))
    assert (ok, value.get("size", 0), value.get("data", "")) == (True, 0, "")
    for op, args, code in (
        ("read", {"path": "/etc/shadow"}, "path_not_allowed"),
        ("read", {"path": str(pair.root / "none")}, "file_not_found"),
        ("read", {"path": str(pair.root)}, "io_error"),
        ("write", {"path": "/etc/x", "data": "x", "stream": False}, "path_not_allowed"),
        ("write", {"path": str(path), "data": "x", "mode": "create", "stream": False}, "io_error"),
        ("write", {"path": str(path), "data": "", "stream": False}, "unsupported_by_peer"),
        ("write", {"path": str(path), "stream": True}, "unsupported_by_peer"),
        ("stat", {"path": str(path)}, "unsupported_by_peer"),
        ("exec", {"command": "true", "job": True}, "unsupported_by_peer"),
    ):
        ok, value = await pair.ask(op, **args)
        assert (ok, value["code"]) == (False, code), (op, args)


async def test_a_call_that_a_lost_link_cut_is_unknown_and_not_repeated(pair: Pair) -> None:
    mark = pair.root / "count"
    key = new_key()
    args = {"command": f"echo x >> {mark}; sleep 20"}
    asking = asyncio.create_task(
        asyncio.to_thread(pair.brain.call, "lab", "exec", args, key=key, return_s=20)
    )
    await asyncio.to_thread(until, mark.exists)
    await pair.node.__aexit__()
    again = GoNode(pair.node.url, "lab", pair.node.token, pair.node.roots, pair.node.version)
    async with again:
        ok, value = await asking
        assert (ok, value["code"], value.get("retry_safe", False)) == (
            False, "outcome_unknown", False,
        )  # fmt: skip
        ok, value = await asyncio.to_thread(pair.brain.call, "lab", "exec", args, key=key)
        assert (ok, value["code"]) == (False, "outcome_unknown")
    assert mark.read_text() == "x\n"


async def test_revoked_means_gone(pair: Pair) -> None:
    began = time.monotonic()
    await asyncio.to_thread(pair.brain.ask, "revoke", name="lab")
    await asyncio.wait_for(pair.node._socket.wait_closed(), 5)
    assert time.monotonic() - began < 3
    assert pair.node._socket.close_code == 4006
    with pytest.raises(AssertionError, match="auth_err"):
        async with GoNode(
            pair.node.url, "lab", pair.node.token, pair.node.roots, pair.node.version
        ):
            pass


async def test_over_tls_with_our_certificate_as_its_authority(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = str(tmp_path / "brain")
    make_folder(folder)
    save_settings(folder, Settings(port=0))
    brain = BrainClient(folder, PROGRAM)
    try:
        told = await asyncio.to_thread(brain.ask, "token", name="lab", keep=True)
        assert told["address"].startswith("wss://127.0.0.1:")
        node = GoNode(told["address"], "lab", told["token"], [tmp_path], "0.2.0")
        node.trusts = ssl.create_default_context()
        with pytest.raises(ssl.SSLError):
            await node.__aenter__()
        node.trusts = ssl.create_default_context(cafile=f"{folder}/cert.pem")
        async with node:
            await asyncio.to_thread(
                until, lambda: brain.ask("nodes")["nodes"][0]["state"] == "connected"
            )
            ok, value = await asyncio.to_thread(
                brain.call, "lab", "exec", {"command": "exit 7"}, key=new_key()
            )
            assert (ok, value["exit_code"]) == (True, 7)
    finally:
        await asyncio.to_thread(BrainClient(folder, None).ask, "stop")
        await asyncio.to_thread(until, lambda: not brain.running())


async def test_a_kept_token_is_taken_in_sealed_sessions_only(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends TLS in front of the brain could take the node's key out of its hello."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = str(tmp_path / "brain")
    make_folder(folder)
    save_settings(folder, Settings(port=0, tls=False))
    brain = BrainClient(folder, PROGRAM)
    try:
        told = await asyncio.to_thread(brain.ask, "token", name="lab", keep=True)
        for token in (told["token"], "another"):
            with pytest.raises(AssertionError, match="e2e_required"):
                async with GoNode(told["address"], "lab", token, [tmp_path], "0.1.4"):
                    pass
        new = await asyncio.to_thread(brain.ask, "rotate", name="lab")
        await asyncio.to_thread(brain.ask, "rename", name="lab", to="den")
        with pytest.raises(AssertionError, match="e2e_required"):
            async with GoNode(told["address"], "den", new["token"], [tmp_path], "0.1.4"):
                pass
        async with GoNode(told["address"], "den", new["token"], [tmp_path], "0.2.0") as node:
            assert node._key is not None
    finally:
        await asyncio.to_thread(BrainClient(folder, None).ask, "stop")
        await asyncio.to_thread(until, lambda: not brain.running())


@pytest.mark.parametrize("how", ["rotate", "token"])
async def test_another_token_ends_the_link_of_the_one_before(
    pair: Pair, tmp_path: pathlib.Path, how: str
) -> None:
    node, mark = pair.node, tmp_path / "ran"
    asked = asyncio.create_task(pair.ask("exec", command=f"echo x >>{mark}; sleep 600"))
    await asyncio.to_thread(until, mark.exists)
    more = {"replace": True, "keep": node._key is not None} if how == "token" else {}
    told = await asyncio.to_thread(pair.brain.ask, how, name="lab", **more)
    await asyncio.wait_for(node._socket.wait_closed(), 5)
    with pytest.raises(AssertionError, match="invalid_token"):
        async with GoNode(node.url, "lab", node.token, node.roots, node.version):
            pass
    async with GoNode(node.url, "lab", told["token"], node.roots, node.version):
        ok, value = await asyncio.wait_for(asked, 20)
        assert (ok, value["code"]) == (False, "outcome_unknown")
        assert (await pair.run("echo here"))["stdout"]["head"] == "here\n"
    assert mark.read_text() == "x\n"


async def test_what_is_required_from_now_on_is_required_of_the_link_that_is_open(
    pair: Pair,
) -> None:
    sealed = pair.node._key is not None
    await asyncio.to_thread(pair.brain.ask, "require", name="lab", require="e2e")
    if sealed:
        assert (await pair.run("echo here"))["stdout"]["head"] == "here\n"
        await asyncio.to_thread(pair.brain.ask, "require", name="lab", require="e2e2")
    await asyncio.wait_for(pair.node._socket.wait_closed(), 5)
    ok, value = await pair.ask("exec", command="true")
    assert (ok, value["code"]) == (False, "node_offline")
