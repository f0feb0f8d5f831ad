"""From one agent to another on one machine, all of it over MCP: a session of the first hands
over, a person opens the second in a terminal, and its session reads, acknowledges and stops."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.live.conftest import installed
from tests.live.hermes_host import Screen
from tests.live.setups import KEY, SETUPS
from tests.live.stub_model import StubModel
from tests.live.test_mcp import SERVER, TOOL, Claude, codex, codex_home, prompt
from tests.support.home import Home
from tests.support.repository import Repository
from tests.support.waiting import until

PROGRAM = "codex"
HANDOFF = [sys.executable, "-m", "handoff.cli.main"]
ATTEMPT = "attempt-0001"
STATE = {
    "schema": "handoff-state/2",
    "goal": {"text": "Make the parser total", "done_when": ["pytest -q passes"]},
    "constraints": [
        {"id": "c1", "text": "Never touch the public API", "kind": "must_not", "basis": "reported"}
    ],
}


def calls(place: pathlib.Path, host: str) -> Callable[[str], list[dict[str, Any]]]:
    """What the source's model calls: to create, then (with the ref) to prepare."""
    there = {"workspace": str(place)}
    return lambda ref: [
        {"action": "prepare_open", "ref": ref, "attempt_id": ATTEMPT, "host": host, **there}
        if ref
        else {"action": "create", "request_id": "request-0001", "state": STATE, **there}
    ]


def set_up_codex(home: Home, stub: StubModel, place: pathlib.Path) -> dict[str, str]:
    return codex_home(
        home,
        stub,
        f"""
[projects.{json.dumps(str(place))}]
trust_level = "trusted"
[mcp_servers.handoff]
command = {json.dumps(SERVER[0])}
args = {json.dumps(SERVER[1:])}
default_tools_approval_mode = "approve"
""",
    )


def set_up_claude(home: Home, stub: StubModel, place: pathlib.Path) -> dict[str, str]:
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    (home.path / ".claude.json").write_text(
        json.dumps(
            {
                "hasCompletedOnboarding": True,
                "theme": "dark",
                "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                "projects": {str(place): trusted},
                "mcpServers": {
                    "handoff": {"type": "stdio", "command": SERVER[0], "args": SERVER[1:]}
                },
            }
        )
    )
    (home.path / ".claude").mkdir(exist_ok=True)
    (home.path / ".claude" / "settings.json").write_text(
        json.dumps({"permissions": {"allow": [f"mcp__handoff__{TOOL}"]}})
    )
    env = {**home.env, "PATH": os.environ["PATH"], **SETUPS["claude"](home, stub.url)}
    return {**env, "IS_SANDBOX": "1"}


def from_claude(
    home: Home, stub: StubModel, place: pathlib.Path, asked: Callable[[str], list[dict[str, Any]]]
) -> tuple[str, dict[str, Any]]:
    tool = f"mcp__handoff__{TOOL}"
    config = home.path / "servers.json"
    server = {"command": SERVER[0], "args": SERVER[1:]}
    config.write_text(json.dumps({"mcpServers": {"handoff": server}}))
    host = Claude(home, stub, place, "--mcp-config", str(config), "--allowedTools", tool)
    try:
        session, [made] = host.turn(prompt(tool, *asked("")))
        assert made["ok"], made
        _, [prepared] = host.turn(prompt(tool, *asked(made["ref"])))
    finally:
        host.close()
    return session, prepared


def from_codex(
    home: Home, stub: StubModel, place: pathlib.Path, asked: Callable[[str], list[dict[str, Any]]]
) -> tuple[str, dict[str, Any]]:
    """Its next turn is of another thread, so that the ref is prepared in the same one: the
    second call's ref is known before, because it is the digest of the content."""
    env = set_up_codex(home, stub, place)
    tool = f"mcp__handoff/{TOOL}"
    dry = {**asked("")[0], "dry_run": True}
    thread, [made] = codex(env, place, prompt(tool, dry))
    assert made["ok"], made
    thread, [made] = codex(env, place, prompt(tool, *asked("")))
    assert made["ok"], made
    words = ["--attempt-id", ATTEMPT, "--host", "claude", "--json"]
    done = subprocess.run(
        [*HANDOFF, "session", "prepare", made["ref"], "--workspace", place, *words],
        env=home.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return thread, json.loads(done.stdout)


def session(home: Home, *words: str) -> Any:
    done = subprocess.run(
        [*HANDOFF, "session", *words, "--json"],
        env=home.env,
        cwd=home.path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def end_of(home: Home) -> None:
    """End what Codex has left running below this home."""
    mark = f"{home.path}/".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) not in (1, os.getpid()):
            with contextlib.suppress(OSError):
                if pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().startswith(mark):
                    found.append(int(entry))
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("way", ["claude to codex", "codex to claude"])
def test_a_session_of_one_agent_goes_on_in_another(
    way: str, isolated_home: Home, stub: StubModel, git_repo: Repository
) -> None:
    source, _, destination = way.partition(" to ")
    place = git_repo.path
    hand_over = {"claude": from_claude, "codex": from_codex}[source]
    left, prepared = hand_over(isolated_home, stub, place, calls(place, destination))
    assert prepared["ok"], prepared
    ref = prepared["ref"]

    # What the new session's model will do: as the opening prompt says.
    seen = session(isolated_home, "read", ref, "--workspace", str(place))
    assert seen["pages"] == 1
    read = {"action": "read", "ref": ref, "workspace": str(place), "attempt_id": ATTEMPT}
    ack = {
        "action": "ack",
        "ref": ref,
        "attempt_id": ATTEMPT,
        "digest": seen["document_sha256"],
        "constraint_ids": ["c1"],
        "discrepancy_codes": [one["code"] for one in seen["discrepancies"]],
        "first_step": "Run the tests.",
    }
    name = {"claude": f"mcp__handoff__{TOOL}", "codex": f"mcp__handoff/{TOOL}"}[destination]
    stub.default = [
        {"tool": name, "args": read},
        {"tool": name, "args": ack},
        {"say": "I wait for you."},
    ]
    set_up = {"claude": set_up_claude, "codex": set_up_codex}[destination]
    env = set_up(isolated_home, stub, place)
    bin_folder = os.path.dirname(installed(destination))
    env["PATH"] = f"{bin_folder}:{env['PATH']}"
    if destination == "codex":  # the server that all its terminals share, once it runs
        subprocess.run(
            [installed("codex"), "app-server", "daemon", "start"],
            env=env,
            capture_output=True,
            check=True,
            timeout=60,
        )
    screen = Screen(
        [*HANDOFF, "session", "open", ref, "--workspace", str(place), "--yes"],
        {**env, "TERM": "xterm-256color"},
        place,
    )
    try:
        until(
            lambda: session(isolated_home, "status", ATTEMPT)["acknowledged"],
            f"the new session has acknowledged: {screen.shown[-2000:]}",
            within=90,
        )
        status = session(isolated_home, "status", ATTEMPT)
        assert status["state"] == "acknowledged", status
        assert status["handoff_read"] is True
        assert status["resume_verified"] is False
        arrived = status["destination"]["session_id"]
        assert arrived
        assert arrived != left
        assert not arrived.startswith("process-")  # the host itself has named it
        screen.process.terminate()
        until(lambda: screen.process.poll() is not None, "the opener has ended", within=30)
    finally:
        screen.close()
        if destination == "codex":
            subprocess.run([installed("codex"), "app-server", "daemon", "stop"], env=env)
            end_of(isolated_home)
    assert session(isolated_home, "status", ATTEMPT)["acknowledged"] is True
