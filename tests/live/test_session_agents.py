"""Claude Code, Codex and opencode opened in a terminal by ``handoff session open``: their new
session gets the opening prompt, reads the record by the command (it has no tool of ours),
acknowledges, and stops. What they keep of it is read as they keep it."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from handoff.sessions import transcripts
from tests.live.conftest import installed
from tests.live.hermes_host import Screen
from tests.live.setups import KEY, SETUPS
from tests.live.stub_model import StubModel
from tests.live.test_mcp import codex_home
from tests.support.console import HANDOFF
from tests.support.home import Home
from tests.support.repository import Repository
from tests.support.waiting import until

PROGRAM = "claude"
ATTEMPT = "attempt-0001"
RULE = "Never touch the public API"
STATE = {
    "schema": "handoff-state/2",
    "goal": {"text": "Make the parser total", "done_when": ["pytest -q passes"]},
    "constraints": [{"id": "c1", "text": RULE, "kind": "must_not", "basis": "reported"}],
    "next_steps": [{"id": "n1", "text": "Run `pytest -q`"}],
    "omissions": [],
}


def set_up_claude(home: Home, stub: StubModel, place: pathlib.Path) -> dict[str, str]:
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    known = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(place): trusted},
    }
    (home.path / ".claude.json").write_text(json.dumps(known))
    (home.path / ".claude").mkdir(exist_ok=True)
    allowed = {"permissions": {"allow": ["Bash(handoff session:*)"]}}
    (home.path / ".claude" / "settings.json").write_text(json.dumps(allowed))
    return {**SETUPS["claude"](home, stub.url), "IS_SANDBOX": "1"}


def set_up_codex(home: Home, stub: StubModel, place: pathlib.Path) -> dict[str, str]:
    # Its own sandbox lets nothing be written outside of the project, our journal neither.
    trust = f'[projects.{json.dumps(str(place))}]\ntrust_level = "trusted"\n'
    env = codex_home(home, stub, trust)
    config = home.path / ".codex" / "config.toml"
    free = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
    config.write_text(free + config.read_text())
    # It runs commands in a login shell, which makes a PATH of its own.
    folder = shlex.quote(os.path.dirname(HANDOFF))
    (home.path / ".bash_profile").write_text(f"PATH={folder}:$PATH\n")
    return {"STUB_KEY": env["STUB_KEY"]}


def set_up_opencode(home: Home, stub: StubModel, _place: pathlib.Path) -> dict[str, str]:
    env = SETUPS["opencode"](home, stub.url)
    path = home.path / ".config" / "opencode" / "opencode.json"
    config = json.loads(path.read_text())
    config |= {"permission": {"bash": "allow"}, "autoupdate": False, "share": "disabled"}
    path.write_text(json.dumps(config))
    return env


SET_UP: dict[str, Callable[[Home, StubModel, pathlib.Path], dict[str, str]]] = {
    "claude": set_up_claude,
    "codex": set_up_codex,
    "opencode": set_up_opencode,
}


def session(home: Home, *words: str, stdin: str | None = None) -> Any:
    done = subprocess.run(
        [HANDOFF, "session", *words, "--json"],
        env=home.env,
        cwd=home.path,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def opening(
    isolated_home: Home, stub: StubModel, git_repo: Repository
) -> Iterator[Callable[[str, str], tuple[Screen, dict[str, str]]]]:
    """Opens a prepared attempt in one of the agents, in a terminal."""
    screens: list[Screen] = []

    def opened(kind: str, ref: str) -> tuple[Screen, dict[str, str]]:
        env = {**isolated_home.env, **SET_UP[kind](isolated_home, stub, git_repo.path)}
        folders = [os.path.dirname(installed(kind)), os.path.dirname(HANDOFF), os.environ["PATH"]]
        env |= {"PATH": ":".join(folders), "TERM": "xterm-256color"}
        words = ["session", "open", ref, "--workspace", str(git_repo.path), "--yes"]
        screens.append(Screen([HANDOFF, *words], env, isolated_home.path))
        return screens[-1], env

    yield opened
    for screen in screens:
        screen.close()


@pytest.mark.parametrize("kind", list(SET_UP))
def test_an_agent_reads_by_the_command_and_waits(
    kind: str,
    opening: Callable[[str, str], tuple[Screen, dict[str, str]]],
    isolated_home: Home,
    stub: StubModel,
    git_repo: Repository,
) -> None:
    installed(kind)
    home, place = isolated_home, str(git_repo.path)
    made = session(home, "create", "--workspace", place, "-", stdin=json.dumps(STATE))
    ref = made["ref"]
    # The prompt's command has to be found by preparing with the agent on PATH.
    home.env["PATH"] = f"{os.path.dirname(installed(kind))}:{home.env['PATH']}"
    words = ["--workspace", place, "--attempt-id", ATTEMPT, "--host", kind]
    prepared = session(home, "prepare", ref, *words)
    codes = [word for one in prepared["discrepancies"] for word in ("--code", one["code"])]

    base = "handoff session --profile handoff"
    read = f"{base} read {ref} --workspace {shlex.quote(place)} --attempt-id {ATTEMPT} --page 1"
    ack = shlex.join(
        ["ack", ref, "--attempt-id", ATTEMPT, "--digest", made["document_sha256"],
         "--constraint", "c1", *codes, "--first-step", "Run the tests."]
    )  # fmt: skip
    stub.default = [{"run": read}, {"run": f"{base} {ack}"}, {"say": "I wait for you."}]
    screen, env = opening(kind, ref)
    try:
        until(lambda: session(home, "status", ATTEMPT)["acknowledged"], "acknowledged", within=90)
    except AssertionError:
        pytest.fail(f"the new session has not acknowledged: {screen.shown[-3000:]}")
    status = session(home, "status", ATTEMPT)
    assert status["state"] == "acknowledged", status
    assert status["handoff_read"] is True
    assert status["resume_verified"] is False
    assert stub.was_told("You are a new session. A handoff from an earlier session waits")
    assert stub.was_told(RULE)
    opener = transcripts.opener(kind, env)
    assert opener is not None
    with opener() as store:
        found = store.started_since(0, 10)
        assert {one.cwd for one in found} == {place}
        firsts = {one.id: next(iter(store.messages([one.id], role="user"))).text for one in found}
    [arrived] = [key for key, text in firsts.items() if f'"{ATTEMPT}"' in text]
    if not status["destination"]["session_id"].startswith("process-"):
        assert status["destination"]["session_id"] == arrived

    screen.process.terminate()
    until(lambda: screen.process.poll() is not None, "the opener has ended", within=30)
    assert session(home, "status", ATTEMPT)["acknowledged"] is True


@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_what_a_real_session_claims_is_held_against_its_messages(
    kind: str, isolated_home: Home, stub: StubModel, git_repo: Repository
) -> None:
    home, place = isolated_home, git_repo.path
    claims = [
        {"id": "c1", "text": "Keep the tests in tests/", "kind": "must", "basis": "observed"},
        {"id": "c2", "text": "Rewrite it in Fortran", "kind": "must", "basis": "observed"},
    ]
    (place / "state.json").write_text(json.dumps({**STATE, "constraints": claims}))
    program = installed(kind)
    env = {**home.env, **SET_UP[kind](home, stub, place)}
    env["PATH"] = f"{os.path.dirname(HANDOFF)}:{os.environ['PATH']}"
    create = f"handoff session create --workspace {shlex.quote(str(place))} state.json"
    stub.default = [{"run": create}, {"say": "done"}]
    said = f"{RULE}. Always keep the tests in tests/."
    argv = {
        "claude": [program, "-p", said, "--output-format", "json"],
        "codex": [program, "exec", "--json", said],
    }[kind]
    done = subprocess.run(
        argv,
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = session(home, "list", "--workspace", str(place))["records"]
    assert row["host"] == kind
    shown = session(home, "show", row["ref"], "--workspace", str(place))
    assert shown["manifest"]["source"]["last_message"]
    assert [one["basis"] for one in shown["state"]["constraints"]] == ["observed", "inferred"]
    assert any(RULE in text for text in shown["dropped"])

    opener = transcripts.opener(kind, env)
    assert opener is not None
    with opener() as store:
        [found] = store.started_since(0, 10)
        assert found.id == shown["manifest"]["source"]["session_id"]
        assert found.cwd == str(place)
        said_by = [one.text for one in store.messages([found.id], role="user")]
    assert said_by == [said]
