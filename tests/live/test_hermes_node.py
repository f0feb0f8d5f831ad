"""The plugin for nodes in real Hermes hosts, with a real node: isolated homes, no network but
the machine's own, a model that the test plays."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.live.hermes_host import plugin_dir
from tests.live.hermes_nodes import PLUGIN, Nodes, make_nodes, settings
from tests.support.waiting import until

TOOLS = ("node_exec", "node_read", "node_write", "node_list", "node_edit", "node_job")


@pytest.fixture(scope="session")
def node_plugin(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The plugin as a self-contained directory."""
    return plugin_dir("hermes_node", tmp_path_factory.mktemp("plugin") / PLUGIN)


@pytest.fixture(scope="module", params=["0.19", "0.22"])
def nodes(request: pytest.FixtureRequest, node_plugin: pathlib.Path) -> Iterator[Nodes]:
    with make_nodes(request.param, node_plugin) as made:
        yield made


def turn(nodes: Nodes, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Have the model make these calls in one turn; what the next requests held of each."""
    text = "\n".join(f"CALL {name} {json.dumps(given)}" for name, given in calls)
    before = len(nodes.host.model.asked)
    nodes.host.ask(text)
    asked = nodes.host.model.asked[before:]
    assert len(asked[-1].results) == len(calls), asked[-1].results
    return [json.loads(one) for one in asked[-1].results]


def call(nodes: Nodes, name: str, **given: Any) -> Any:
    """One call as the host dispatches it."""
    (value,) = nodes.host.dispatch((name, given, {"session_id": "s1", "task_id": "t1"}))
    return value


# -- what the model sees ------------------------------------------------------------------------


def test_the_model_uses_each_tool_and_reads_the_truth(nodes: Nodes) -> None:
    where = nodes.files / "model"
    binary = base64.b64encode(bytes(range(256))).decode()
    done = turn(
        nodes,
        ("node_list", {}),
        ("node_exec", {"target": "lab", "command": "printf abc; echo no >&2; exit 7"}),
        ("node_write", {"target": "lab", "path": f"{where}.txt", "content": "hälló\n"}),
        ("node_read", {"target": "lab", "path": f"{where}.txt"}),
        ("node_edit", {"target": "lab", "path": f"{where}.txt", "old": "hälló", "new": "bye"}),
        ("node_write", {"target": "lab", "path": f"{where}.bin", "content": binary,
                        "encoding": "base64"}),
        ("node_read", {"target": "lab", "path": f"{where}.bin"}),
        ("node_read", {"target": "lab", "path": "/etc/shadow"}),
        ("node_write", {"target": "lab", "path": "/etc/nope", "content": "x"}),
        ("node_exec", {"target": "lab", "command": "kill -9 $$"}),
    )  # fmt: skip
    listed, ran, written, read, edited, _, raw, kept, refused, killed = done
    (row,) = listed["nodes"]
    assert (listed["count"], row["name"], row["state"]) == (1, "lab", "connected")
    assert {"connected_at", "last_heartbeat", "session_id", "remote_addr"} <= set(row)
    assert (ran["output"], ran["stderr"], ran["returncode"]) == ("abc", "no\n", 7)
    assert written["bytes_written"] == 8
    assert (read["content"], read["size_bytes"]) == ("hälló\n", 8)
    assert (read["truncated"], read["encoding"]) == (False, "utf-8")
    assert "error" not in edited
    assert pathlib.Path(f"{where}.txt").read_text() == "bye\n"
    assert (raw["content"], raw["encoding"]) == (binary, "base64")
    assert pathlib.Path(f"{where}.bin").read_bytes() == bytes(range(256))
    for one in (kept, refused):
        assert one["code"] == "path_not_allowed"
        assert "content" not in one
        assert "bytes_written" not in one
    assert not os.path.exists("/etc/nope")
    assert (killed["returncode"], killed["signal"]) == (137, 9)
    tools = nodes.host.model.asked[-1].tools
    assert set(TOOLS) <= set(tools)


def test_a_time_limit_keeps_what_came_and_leaves_nothing(nodes: Nodes) -> None:
    mark = nodes.files / "still-there"
    line = f"echo begun; (sleep 30; touch {mark}) & sleep 30"
    value = call(nodes, "node_exec", target="lab", command=line, timeout_ms=1000)
    assert (value["output"], value["returncode"]) == ("begun\n", 124)
    assert (value["status"], value["code"], value["retry_safe"]) == ("timeout", "timed_out", False)
    assert not mark.exists()
    assert call(nodes, "node_exec", target="lab", command="echo next")["output"] == "next\n"


def test_wrong_arguments_name_what_is_wrong(nodes: Nodes) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("node_exec", {"target": "lab"}, "bad_request"),
        ("node_exec", {"target": "lab", "command": " "}, "bad_request"),
        ("node_exec", {"target": "lap", "command": "true"}, "unknown_node"),
        ("node_exec", {"target": "lab", "command": "true", "timeout_ms": 0}, "bad_request"),
        ("node_exec", {"target": "lab", "command": "true", "env": {"a": 1}}, "bad_request"),
        ("node_exec", {"target": "lab", "command": "true", "cwd": "/no/such"}, "file_not_found"),
        ("node_read", {"target": "lab", "path": f"{nodes.files}/none"}, "file_not_found"),
        ("node_read", {"target": "lab", "path": str(nodes.files)}, "not_a_regular_file"),
        ("node_write", {"target": "lab", "path": "x", "content": "a", "mode": "w"}, "bad_request"),
        ("node_write", {"target": "lab", "path": "x", "content": 5}, "bad_request"),
        ("node_job", {"target": "lab", "action": "wait", "job": "none"}, "unknown_call"),
    ]
    answers = nodes.host.dispatch(*((name, given, {}) for name, given, _ in wrong))
    assert [one["code"] for one in answers] == [code for _, _, code in wrong]
    assert all(isinstance(one["error"], str) and "retry_safe" in one for one in answers)
    assert "lab" in json.dumps(answers[2])


def test_a_node_that_is_away_is_told_at_once(nodes: Nodes) -> None:
    nodes.stop("lab")
    try:
        until(lambda: nodes.listed()["state"] == "disconnected", within=30)
        began = time.monotonic()
        code = (
            "import sys, time, json; from hermes_cli.plugins import discover_plugins\n"
            "discover_plugins(); from tools.registry import registry\n"
            "began = time.monotonic()\n"
            "said = registry.dispatch('node_exec', {'target': 'lab', 'command': 'true'})\n"
            "print('@@' + json.dumps([time.monotonic() - began, json.loads(said)]))\n"
        )
        done = subprocess.run(
            [str(nodes.host.venv / "bin" / "python"), "-c", code],
            env=nodes.host.env, cwd=nodes.host.work, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert time.monotonic() - began < 60
        took, value = json.loads(done.stdout.partition("@@")[2])
        assert took < 2, value
        assert (value["code"], value["retry_safe"]) == ("node_offline", True)
        assert "returncode" not in value
    finally:
        nodes.start("lab")


def test_a_background_command_is_told_of_waited_for_and_ended(nodes: Nodes) -> None:
    began = call(nodes, "node_exec", target="lab", command="echo on; exec sleep 60",
                 background=True)  # fmt: skip
    job = began["job"]
    assert began["state"] == "running"
    until(
        lambda: call(nodes, "node_job", target="lab", action="tail", job=job)["content"] == "on\n",
        within=60,
    )
    listed = call(nodes, "node_job", target="lab", action="list")
    assert job in [one["job"] for one in listed["jobs"]]
    waited = call(nodes, "node_job", target="lab", action="wait", job=job, timeout_ms=200)
    assert waited["state"] == "running"
    ended = call(nodes, "node_job", target="lab", action="kill", job=job)
    assert ended["state"] == "done"
    assert ended["status"] == "cancelled"


def test_output_beyond_the_limit_is_said_and_can_be_had(nodes: Nodes) -> None:
    value = call(nodes, "node_exec", target="lab", command="seq 1 200000", max_output_bytes=2000)
    assert value["truncated"] is True
    assert value["output"].startswith("1\n2\n")
    assert value["output"].endswith("199999\n200000\n")
    assert value["output_bytes"] == 1288895
    piece = call(nodes, "node_job", target="lab", action="output", job=value["output_id"],
                 offset=2000, max_bytes=100)  # fmt: skip
    whole = "".join(f"{n}\n" for n in range(1, 200001))
    assert piece["content"] == whole[2000:2100]
    assert piece["size_bytes"] == len(whole)


def test_the_same_tool_call_runs_once(nodes: Nodes) -> None:
    """The host's ids name a call: dispatched again, it answers what it answered."""
    mark = nodes.files / "once"
    ids = {"session_id": "s", "turn_id": "u", "api_request_id": "r", "tool_call_id": "c1"}
    line = f"echo x >> {mark}; wc -l < {mark}"
    given = {"target": "lab", "command": line}
    first, again, other = nodes.host.dispatch(
        ("node_exec", given, ids),
        ("node_exec", given, ids),
        ("node_exec", given, {**ids, "api_request_id": "r2"}),
    )
    assert (first["output"].strip(), again["output"].strip()) == ("1", "1")
    assert other["output"].strip() == "2"


def test_in_a_real_turn_the_key_is_of_the_hosts_ids(nodes: Nodes) -> None:
    """Two requests with the same call id and arguments are two calls."""
    mark = nodes.files / "turns"
    given = {"target": "lab", "command": f"echo x >> {mark}; wc -l < {mark}"}
    one, two = turn(nodes, ("node_exec", given), ("node_exec", given))
    assert (one["output"].strip(), two["output"].strip()) == ("1", "2")
    done = nodes.host.run("node", "logs", "--json", "-n", "400").ok()
    rows = [json.loads(line) for line in done.out.splitlines()]
    keys = [row["request_id"] for row in rows if row["event"] == "call" and row["op"] == "exec"]
    assert re.fullmatch(r"call-[0-9a-f]{40}", keys[-1]), keys[-1]
    asked = [row["actor"] for row in rows if row["event"] == "call"][-1]
    assert (asked["surface"], asked["tool"]) == ("hermes", "node_exec")


def test_an_interrupt_of_the_user_ends_the_command_on_the_node(nodes: Nodes) -> None:
    host, mark = nodes.host, nodes.files / f"begun-{time.monotonic_ns()}"
    line = f"touch {mark}; sleep 50; touch {mark}.late"
    text = f"CALL node_exec {json.dumps({'target': 'lab', 'command': line})}"
    words = ("chat", "-q", text) if host.release == "0.22" else ("chat", "--cli")
    with host.terminal(*words) as screen:
        if host.release == "0.19":
            screen.settle(2, 30)
            screen.type(text)
            screen.settle(1)
            screen.type("\r")
        until(mark.exists, "the command runs", within=60)
        screen.type("\x03")

        def cancelled() -> bool:
            done = host.run("node", "logs", "--json", "-n", "1").ok()
            return "cancelled" in done.out

        until(cancelled, "the command was cancelled", within=45)
    assert not pathlib.Path(f"{mark}.late").exists()


# -- hermes node … ------------------------------------------------------------------------------


def test_the_commands_know_the_nodes(nodes: Nodes) -> None:
    host = nodes.host
    assert "listening on 127.0.0.1:" in host.run("node", "status").ok().out
    listed = host.run("node", "list").ok().out.splitlines()
    assert listed[0].split() == ["NAME", "STATE", "CREATED", "LAST_USED"]
    assert listed[2].split()[:2] == ["lab", "connected"]
    row = nodes.listed()
    assert {"name", "state", "created_at", "last_used_at"} <= set(row)
    shown = nodes.node("show", "lab")
    assert shown["link"]["profile"] == "handoff"
    assert "error" not in shown["policy"]
    assert nodes.node("doctor")["ok"] is True
    assert nodes.node("logs", "--verify")["findings"] == []
    assert host.run("node").code == 2


def test_a_token_is_shown_once_rotated_renamed_and_revoked(nodes: Nodes) -> None:
    host = nodes.host
    done = host.run("node", "pair", "--name", "old", "--token").ok()
    token = re.search(r"^token: (\S{43})$", done.out, re.MULTILINE)
    assert token
    assert token[1] not in done.err
    again = host.run("node", "pair", "--name", "old", "--token")
    assert again.code != 0
    assert "node_exists" in again.err
    assert nodes.node("rotate", "old")["token"] != token[1]
    assert nodes.node("rename", "old", "older")["name"] == "older"
    assert "revoked: older" in host.run("node", "revoke", "--name", "older").ok().out
    states = {
        json.loads(line)["name"]: json.loads(line)["state"]
        for line in host.run("node", "list", "--json").ok().out.splitlines()
    }
    assert states["older"] == "revoked"
    for words in (("revoke", "nobody"), ("show", "nobody"), ("rename", "nobody", "x")):
        done = host.run("node", *words)
        assert done.code != 0, words
        assert "unknown_node" in done.err
        assert "Traceback" not in done.err
    data = b"".join(p.read_bytes() for p in host.root.rglob("*") if p.is_file())
    assert token[1].encode() not in data


def test_a_restart_keeps_nodes_and_calls(nodes: Nodes) -> None:
    began = call(nodes, "node_exec", target="lab", command="sleep 60", background=True)
    before = nodes.node("status")["pid"]
    assert nodes.node("restart")["pid"] != before
    until(lambda: nodes.listed()["state"] == "connected", within=60)
    listed = call(nodes, "node_job", target="lab", action="list")
    assert began["job"] in [one["job"] for one in listed["jobs"] if one["state"] == "running"]
    call(nodes, "node_job", target="lab", action="kill", job=began["job"])


def test_a_brain_that_was_killed_is_started_by_whoever_comes_first(nodes: Nodes) -> None:
    """Several processes of one profile at once: one brain."""
    pid = nodes.node("status")["pid"]
    assert pid > 1
    os.kill(pid, signal.SIGKILL)
    hermes = str(nodes.host.venv / "bin" / "hermes")
    several = [
        subprocess.Popen(
            [hermes, "node", "list", "--json"],
            env=nodes.host.env, cwd=nodes.host.work, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]  # fmt: skip
    ended = [child.communicate(timeout=90) for child in several]
    assert [child.returncode for child in several] == [0] * 4, ended
    folder = str(nodes.host.root / "handoff" / "nodes").encode()
    brains = [
        found
        for found in nodes.host.processes()
        if folder in pathlib.Path(f"/proc/{found}/cmdline").read_bytes()
        and b"brain.py" in pathlib.Path(f"/proc/{found}/cmdline").read_bytes()
    ]
    assert len(brains) == 1
    until(lambda: nodes.state("lab") == "connected", within=60)
    until(lambda: "connected" in nodes.host.run("node", "list").ok().out.split(), within=60)


# -- the host -----------------------------------------------------------------------------------


def test_the_host_lists_plugin_and_toolset(nodes: Nodes) -> None:
    host = nodes.host
    (row,) = json.loads(host.run("plugins", "list", "--user", "--json").ok().out)
    assert (row["name"], row["status"]) == (PLUGIN, "enabled")
    assert "hermes_nodes" in host.run("tools", "list").ok().out


def test_the_host_finds_nothing_wrong(nodes: Nodes, node_plugin: pathlib.Path) -> None:
    if nodes.host.release == "0.19":
        pytest.skip("this host has neither doctor nor validate")
    host = nodes.host
    doctor = host.run("plugins", "doctor", str(node_plugin), "--ci").ok()
    assert "warning" not in doctor.out.lower()
    told = json.loads(host.run("plugins", "validate", str(node_plugin), "--json").ok().out)
    assert told["ok"] is True, told
    assert all(check["ok"] for check in told["checks"])


def test_the_gateway_serves_nodes_before_any_message(nodes: Nodes) -> None:
    """A turn through the gateway's own server, in a process that lives on."""
    probe = "import aiohttp"
    python = str(nodes.host.venv / "bin" / "python")
    if subprocess.run([python, "-c", probe], capture_output=True).returncode:
        pytest.skip("this host was installed without aiohttp, which its server needs")
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **nodes.host.env,
        "API_SERVER_ENABLED": "true",
        "API_SERVER_HOST": "127.0.0.1",
        "API_SERVER_PORT": str(port),
        "API_SERVER_KEY": "k" * 24,
    }
    gateway = subprocess.Popen(
        [str(nodes.host.venv / "bin" / "hermes"), "gateway", "run"],
        env=env, cwd=nodes.host.work, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:

        def healthy() -> bool:
            assert gateway.poll() is None
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as reply:
                    return bool(reply.status == 200)
            except OSError:
                return False

        until(healthy, "the gateway answers", within=90)
        text = 'CALL node_exec {"target": "lab", "command": "exit 5"}'
        body = {"model": "x", "messages": [{"role": "user", "content": text}]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Authorization": "Bearer " + "k" * 24, "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as reply:
            said = json.load(reply)["choices"][0]["message"]["content"]
        assert json.loads(said.partition("DONE: ")[2])["returncode"] == 5
    finally:
        gateway.terminate()
        gateway.wait(40)


def test_as_an_installed_package_it_is_the_same_plugin(
    nodes: Nodes, node_plugin: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The shape that pip leaves: a module and an entry point, no directory in the profile."""
    site = tmp_path / "site"
    shutil.copytree(node_plugin, site / "hermes_node")
    info = site / "hermes_node_plugin-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[hermes_agent.plugins]\n{PLUGIN} = hermes_node\n")
    installed = nodes.host.root / "plugins" / PLUGIN
    aside = tmp_path / "aside"
    installed.rename(aside)
    try:
        found = nodes.host.run("plugins", "list", "--json", PYTHONPATH=str(site)).ok()
        rows = {row["name"]: row for row in json.loads(found.out)}
        assert rows[PLUGIN]["source"] == "entrypoint"
        done = nodes.host.run("node", "list", "--json", PYTHONPATH=str(site)).ok()
        assert "lab" in [json.loads(line)["name"] for line in done.out.splitlines()]
    finally:
        aside.rename(installed)


def test_tools_that_the_host_hides_are_reached_through_its_bridge(nodes: Nodes) -> None:
    """As a host of 0.22 comes: the model finds plugins' tools by a search."""
    nodes.host.configure(more=settings(), hidden=True)
    try:
        (value,) = turn(nodes, ("node_exec", {"target": "lab", "command": "exit 9"}))
        if "output" not in value:  # a bridge tells of several calls at once
            value = json.loads(value["results"][0]["result"])
        assert value["returncode"] == 9
    finally:
        nodes.host.configure(more=settings())


def test_in_a_process_of_its_own_the_plugin_works_as_well(nodes: Nodes) -> None:
    if nodes.host.release == "0.19":
        pytest.skip("this host isolates no plugins")
    nodes.host.configure(more=settings("  isolation: host\n"))
    try:
        ran, listed = turn(
            nodes, ("node_exec", {"target": "lab", "command": "exit 8"}), ("node_list", {})
        )
        assert ran["returncode"] == 8
        assert listed["nodes"][0]["state"] == "connected"
    finally:
        nodes.host.configure(more=settings())


# -- the host's own terminal on a node ----------------------------------------------------------


def test_the_built_in_tools_work_on_the_node(node_plugin: pathlib.Path) -> None:
    """terminal, write_file, read_file and patch; the folder is kept from call to call, and
    exit codes, time limits and input are true."""
    more = "  entries:\n    hermes-node-plugin:\n      settings:\n        terminal_node: lab\n"
    top = "terminal:\n  backend: hermes_node\n"
    with make_nodes("0.22", node_plugin, top=top, more=more) as nodes:
        files = nodes.files
        done = turn(
            nodes,
            ("terminal", {"command": f"mkdir -p {files}/sub && cd {files}/sub && echo $PPID"}),
            ("terminal", {"command": "pwd; echo no >&2; exit 3"}),
            ("write_file", {"path": f"{files}/sub/a.txt", "content": "one\ntwo\n"}),
            ("read_file", {"path": f"{files}/sub/a.txt"}),
            ("patch", {"path": f"{files}/sub/a.txt", "old_string": "two", "new_string": "three"}),
            ("terminal", {"command": "sleep 60", "timeout": 2}),
            ("terminal", {"command": "cat a.txt"}),
        )
        moved, told, written, read, patched, late, last = done
        parents = {str(child.pid) for child in nodes._children.values()}
        assert moved["exit_code"] == 0, moved
        assert moved["output"].strip()
        assert (told["exit_code"], told["output"].strip()) == (3, f"{files}/sub\nno"), told
        assert "error" not in written or not written["error"], written
        assert "one" in json.dumps(read)
        assert not patched.get("error"), patched
        assert late["exit_code"] == 124, late
        assert last["output"].strip() == "one\nthree", last
        assert (files / "sub" / "a.txt").read_text() == "one\nthree\n"
        assert parents
        rows = nodes.host.run("node", "logs", "--json", "-n", "500").ok().out.splitlines()
        by = [json.loads(one).get("actor") for one in rows]
        assert sum(one is not None and one.get("surface") == "hermes terminal" for one in by) >= 7
        _asks_before_danger(nodes)
        _outlives_its_call(nodes)
        _tells_when_the_node_is_away(nodes)


def _outlives_its_call(nodes: Nodes) -> None:
    """What the host starts in the background is a job of the node."""
    mark = nodes.files / "ready"
    line = f"echo started; touch {mark}; sleep 3; echo over"
    begun, _, log = turn(
        nodes,
        ("terminal", {"command": line, "background": True}),
        ("terminal", {"command": f"until test -e {mark}; do sleep 0.1; done"}),
        ("terminal", {"command": "sleep 5; cat /tmp/hermes_bg_*.log", "timeout": 30}),
    )
    assert begun.get("session_id"), begun
    assert begun["pid"] > 1
    assert "started\nover" in log["output"], log
    jobs = call(nodes, "node_job", target="lab", action="list")["jobs"]
    assert [one["pid"] for one in jobs] == [begun["pid"]]


def _asks_before_danger(nodes: Nodes) -> None:
    """It is no container: what is dangerous still needs a person."""
    mark = nodes.files / "keep"
    mark.mkdir()
    (value,) = turn(nodes, ("terminal", {"command": f"rm -rf {mark}"}))
    assert mark.is_dir(), value
    assert value["exit_code"] != 0


def _tells_when_the_node_is_away(nodes: Nodes) -> None:
    nodes.stop("lab")
    (value,) = turn(nodes, ("terminal", {"command": "echo hi"}))
    assert value["exit_code"] == 255, value
    assert "node_offline" in value["output"]
