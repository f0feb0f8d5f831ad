"""The MCP server with the hosts that start it: the reference client, Claude Code, Codex and
opencode, as a server that the user set up and from the plugin's own directory."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from handoff.sessions import release
from tests.live.conftest import WANTED, installed
from tests.live.harness import LIVE
from tests.live.hermes_host import venv as hermes_venv
from tests.live.setups import KEY, SETUPS
from tests.live.stub_model import MODEL, StubModel
from tests.support.home import Home
from tests.support.repository import Repository

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = "claude"
SERVER = [sys.executable, "-m", "handoff.cli.main", "mcp"]
TOOL = "hermes_handoff"
NAME = "hermes-handoff"


def prompt(tool: str, *arguments: dict[str, Any]) -> str:
    """A turn in which the model calls the tool, once for each of the arguments."""
    steps: list[Any] = [{"tool": tool, "args": one} for one in arguments]
    return f"Do it.\n@@model {json.dumps([*steps, {'say': 'All done.'}])}"


def create(place: pathlib.Path) -> dict[str, Any]:
    state = {"schema": "handoff-state/2", "goal": {"text": "Make the parser total"}}
    return {
        "action": "create",
        "workspace": str(place),
        "request_id": "request-0001",
        "state": state,
    }


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The plugin's directory, as its release holds it."""
    out = tmp_path_factory.mktemp("release")
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "release", out / "made"], check=True, timeout=60
    )
    archive = next(out.glob(f"made/{NAME}-*/*.tar.gz"))
    return pathlib.Path(release.extract(release.verify(str(archive)), str(out)))


# -- the reference client --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "version"),
    [("legacy", "2025-11-25"), ("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")],
)
def test_the_reference_client(
    mode: str, version: str, isolated_home: Home, git_repo: Repository
) -> None:
    venv = LIVE / "mcp"
    if not (venv / "stamp").exists():
        if WANTED:
            pytest.fail("HANDOFF_LIVE is set and the client is not in .live: scripts/live-mcp")
        pytest.skip("the client is not in .live (scripts/live-mcp fetches it)")
    script = pathlib.Path(__file__).with_name("mcp_client.py")
    done = subprocess.run(
        [venv / "bin" / "python", script, mode, git_repo.path, *SERVER],
        env=isolated_home.env,
        cwd=isolated_home.path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["version"] == version
    assert [tool["name"] for tool in seen["tools"]] == [TOOL]
    assert seen["list"]["structuredContent"]["records"] == []
    assert seen["create"]["isError"] is True
    assert seen["create"]["structuredContent"]["code"] == "source_unbound"
    assert seen["many"] == [False] * 20
    assert seen["unknown"] == ["MCPError", -32602]


# -- Claude Code -----------------------------------------------------------------------------


class Claude:
    """Claude Code without a terminal, fed turn by turn."""

    def __init__(self, home: Home, stub: StubModel, place: pathlib.Path, *flags: str) -> None:
        env = {**home.env, "PATH": os.environ["PATH"], **SETUPS["claude"](home, stub.url)}
        shown = ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"]
        self.process = subprocess.Popen(
            [installed("claude"), "-p", *shown, *flags],
            cwd=place,
            env={**env, "IS_SANDBOX": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def turn(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """The session that the turn was in, and what the tool answered in it."""
        assert self.process.stdin
        assert self.process.stdout
        message = {"type": "user", "message": {"role": "user", "content": text}}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        replies = []
        for line in self.process.stdout:
            seen = json.loads(line) if line.startswith("{") else {}
            if seen.get("type") == "user":
                replies += [found for part in _parts(seen) if (found := _reply(part)) is not None]
            if seen.get("type") == "result":
                return seen["session_id"], replies
        raise AssertionError("it ended within the turn")

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            assert self.process.stdout
            self.process.stdout.close()


def _parts(message: dict[str, Any]) -> list[Any]:
    content = message["message"]["content"]
    return content if isinstance(content, list) else []


def _reply(part: dict[str, Any]) -> dict[str, Any] | None:
    """What our tool said, out of a tool result; behind it the host may add words of its own."""
    if part.get("type") != "tool_result":
        return None
    content = part["content"]
    text = content if isinstance(content, str) else "".join(one["text"] for one in content)
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    return found


@pytest.fixture
def claude(
    request: pytest.FixtureRequest, isolated_home: Home, stub: StubModel, git_repo: Repository
) -> Iterator[Any]:
    started: list[Claude] = []

    def start(*flags: str) -> Claude:
        started.append(Claude(isolated_home, stub, git_repo.path, *flags))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_claude_code_hands_its_own_session_over_also_after_clear(
    claude: Any, isolated_home: Home, git_repo: Repository
) -> None:
    config = isolated_home.path / "mcp.json"
    server = {"command": SERVER[0], "args": SERVER[1:]}
    config.write_text(json.dumps({"mcpServers": {"handoff": server}}))
    tool = f"mcp__handoff__{TOOL}"
    host = claude("--mcp-config", str(config), "--allowedTools", tool)
    session, [first, second] = host.turn(
        prompt(
            tool,
            {"action": "evidence", "workspace": str(git_repo.path)},
            create(git_repo.path),
        )
    )
    assert first["ok"], first
    assert first["session"] == session
    assert second["ok"], second
    assert re.match(r"handoff://[a-z2-7]{32}/[a-z2-7]{32}$", second["ref"])

    host.turn("/clear")
    later, [third] = host.turn(
        prompt(tool, {"action": "evidence", "workspace": str(git_repo.path)})
    )
    assert later != session
    assert third["session"] == later

    _, [refused, listed] = host.turn(
        prompt(
            tool,
            {"action": "confirm", "attempt_id": "attempt-0001"},
            {"action": "list", "workspace": str(git_repo.path)},
        )
    )
    assert refused["code"] == "actor_refused"
    assert [one["ref"] for one in listed["records"]] == [second["ref"]]
    assert listed["records"][0]["session"] == session


def test_claude_code_loads_the_plugin_s_directory(
    claude: Any, directory: pathlib.Path, git_repo: Repository, stub: StubModel
) -> None:
    tool = f"mcp__plugin_{NAME}_handoff__{TOOL}"
    host = claude("--plugin-dir", str(directory), "--allowedTools", tool)
    session, [made] = host.turn(prompt(tool, create(git_repo.path)))
    assert made["ok"], made
    _, [shown] = host.turn(prompt(tool, {"action": "show", "ref": made["ref"]}))
    assert shown["manifest"]["source"]["session_id"] == session
    assert shown["manifest"]["source"]["host"] == "claude"
    assert stub.was_told(f"{NAME}:handoff")  # the skill is offered


def test_claude_code_finds_no_fault_in_the_directory(
    directory: pathlib.Path, isolated_home: Home
) -> None:
    done = subprocess.run(
        [installed("claude"), "plugin", "validate", "--profile", "directory", directory],
        env={**isolated_home.env, "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Validation passed" in done.stdout
    assert f"skills: {NAME}:handoff" in done.stdout
    assert "mcpServers: handoff stdio" in done.stdout


# -- Codex -----------------------------------------------------------------------------------


def codex_home(home: Home, stub: StubModel, more: str = "") -> dict[str, str]:
    folder = home.path / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(
        f"""
model = "{MODEL}"
model_provider = "stub"
[model_providers.stub]
name = "stub"
base_url = "{stub.url}/v1"
env_key = "STUB_KEY"
wire_api = "responses"
{more}
"""
    )
    return {**home.env, "PATH": os.environ["PATH"], "STUB_KEY": KEY}


def codex(env: dict[str, str], place: pathlib.Path, text: str) -> tuple[str, list[dict[str, Any]]]:
    """One turn: the thread, and what the tool answered."""
    done = subprocess.run(
        [installed("codex"), "exec", "--json", text],
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    thread = next(one["thread_id"] for one in seen if one["type"] == "thread.started")
    items = [one["item"] for one in seen if one["type"] == "item.completed"]
    calls = [item for item in items if item["type"] == "mcp_tool_call"]
    assert calls, items
    return thread, [call["result"]["structured_content"] for call in calls]


def test_codex_hands_its_own_thread_over(
    isolated_home: Home, stub: StubModel, git_repo: Repository
) -> None:
    server = f"""
[mcp_servers.handoff]
command = {json.dumps(SERVER[0])}
args = {json.dumps(SERVER[1:])}
default_tools_approval_mode = "approve"
"""
    env = codex_home(isolated_home, stub, server)
    thread, [made, shown] = codex(
        env,
        git_repo.path,
        prompt(
            f"mcp__handoff/{TOOL}",
            create(git_repo.path),
            {"action": "list", "workspace": str(git_repo.path)},
        ),
    )
    assert made["ok"], made
    assert shown["records"][0]["session"] == thread
    assert shown["records"][0]["host"] == "codex"


def test_codex_hands_a_whole_page_on_to_its_model(
    isolated_home: Home, stub: StubModel, git_repo: Repository
) -> None:
    """What it leaves out of a long result would count as read."""
    server = f"""
[mcp_servers.handoff]
command = {json.dumps(SERVER[0])}
args = {json.dumps(SERVER[1:])}
default_tools_approval_mode = "approve"
"""
    env = codex_home(isolated_home, stub, server)
    facts = [{"id": f"f{n}", "text": f"fact number {n}. {'abc def ' * 40}"} for n in range(100)]
    given = create(git_repo.path)
    given["state"] |= {"context": facts}
    tool = f"mcp__handoff/{TOOL}"
    _, [made] = codex(env, git_repo.path, prompt(tool, given))
    assert made["ok"], made
    before = len(stub.bodies)
    _, [page] = codex(
        env, git_repo.path, prompt(tool, {"action": "read", "ref": made["ref"], "page": 3})
    )
    inside = re.findall(r"fact number \d+\.", page["content"])
    assert len(inside) > 5
    told = stub.bodies[before:]
    assert all(any(fact in body for body in told) for fact in inside)


@pytest.mark.parametrize("without", ["plugin.json", ".codex-plugin/plugin.json"])
def test_codex_loads_the_plugin_s_directory(
    without: str,
    directory: pathlib.Path,
    isolated_home: Home,
    stub: StubModel,
    git_repo: Repository,
    tmp_path: pathlib.Path,
) -> None:
    """By either of its manifests, since which one a version reads has changed."""
    market = tmp_path / "market"
    (market / ".agents" / "plugins").mkdir(parents=True)
    subprocess.run(["cp", "-r", directory, market / NAME], check=True)
    (market / NAME / without).unlink()
    source = {"source": "local", "path": f"./{NAME}"}
    policy = {"installation": "AVAILABLE", "authentication": "ON_INSTALL"}
    entry = {"name": NAME, "source": source, "policy": policy, "category": "Productivity"}
    (market / ".agents" / "plugins" / "marketplace.json").write_text(
        json.dumps({"name": "local", "plugins": [entry]})
    )
    env = codex_home(isolated_home, stub)
    for words in (["marketplace", "add", str(market)], ["add", f"{NAME}@local"]):
        done = subprocess.run(
            [installed("codex"), "plugin", *words],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    _, [listed] = codex(env, git_repo.path, prompt(f"mcp__handoff/{TOOL}", {"action": "list"}))
    assert listed["records"] == []


# -- Hermes ----------------------------------------------------------------------------------


def test_hermes_takes_the_directory_for_its_own_and_finds_no_fault(
    directory: pathlib.Path, isolated_home: Home
) -> None:
    venv = hermes_venv("0.22")
    env = {
        "PATH": f"{venv / 'bin'}:/usr/bin:/bin",
        "HOME": str(isolated_home.path),
        "HERMES_HOME": str(isolated_home.path / "hermes"),
        "HERMES_DISABLE_LAZY_INSTALLS": "1",
        "LANG": "C.UTF-8",
    }
    outputs = []
    for words in (["validate", directory, "--json"], ["doctor", directory, "--ci"]):
        done = subprocess.run(
            [venv / "bin" / "hermes", "plugins", *words],
            env=env,
            cwd=isolated_home.path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout)
    found = json.loads(outputs[0][outputs[0].index("{") :])
    assert found["ok"] is True
    checks = {one["name"]: one["ok"] for one in found["checks"]}
    # A gate that was left out would not show in the exit code.
    for name in ("manifest", "loadable", "python dependencies", "declared tools", "security scan"):
        assert checks[name] is True
    assert all(checks.values())
    assert "registrations: 1 tool(s)" in outputs[1]  # as a native plugin, once


# -- opencode --------------------------------------------------------------------------------


def test_opencode_can_look_and_is_told_where_to_publish(
    isolated_home: Home, stub: StubModel, git_repo: Repository
) -> None:
    """It does not say which session calls, so that nothing is published under a guess."""
    env = {**isolated_home.env, "PATH": os.environ["PATH"]}
    env |= SETUPS["opencode"](isolated_home, stub.url)
    config = isolated_home.path / ".config" / "opencode" / "opencode.json"
    whole = json.loads(config.read_text())
    whole["mcp"] = {"handoff": {"type": "local", "command": SERVER, "enabled": True}}
    whole["permission"] = {"*": "allow"}
    config.write_text(json.dumps(whole))
    done = subprocess.run(
        [installed("opencode"), "run", "--format", "json"],
        cwd=git_repo.path,
        env=env,
        input=prompt(f"handoff_{TOOL}", {"action": "list"}, create(git_repo.path)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.replace('\\"', '"').replace('\\\\"', '"')
    assert '"records":[]' in said, done.stdout
    assert "source_unbound" in said
    assert "handoff session create --help" in said


# -- others ----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["gemini", "grok"])
def test_another_host_can_look_and_is_told_where_to_publish(
    host: str, isolated_home: Home, stub: StubModel, git_repo: Repository
) -> None:
    env = {**isolated_home.env, "PATH": os.environ["PATH"]}
    env |= SETUPS[host](isolated_home, stub.url)
    if host == "gemini":
        settings = isolated_home.path / ".gemini" / "settings.json"
        server = {"command": SERVER[0], "args": SERVER[1:], "trust": True}
        whole = {**json.loads(settings.read_text()), "mcpServers": {"handoff": server}}
        settings.write_text(json.dumps(whole))
        flags, tool = ["--skip-trust", "--approval-mode", "yolo"], f"mcp_handoff_{TOOL}"
    else:
        settings = isolated_home.path / ".grok" / "config.toml"
        command, args = json.dumps(SERVER[0]), json.dumps(SERVER[1:])
        more = f"\n[mcp_servers.handoff]\ncommand = {command}\nargs = {args}\n"
        settings.write_text(settings.read_text() + more)
        flags, tool = ["--always-approve"], f"handoff__{TOOL}"
    asked = prompt(tool, {"action": "list"}, create(git_repo.path))
    done = subprocess.run(
        [installed(host), *flags, "-p", asked],
        cwd=git_repo.path,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All done." in done.stdout
    told = "".join(stub.bodies).replace("\\", "")
    assert '"records":[]' in told
    assert "source_unbound" in told
    assert "handoff session create --help" in told
