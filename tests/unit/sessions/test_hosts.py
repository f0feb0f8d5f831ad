from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.agents import Agents, hermes_store

from handoff.errors import Failed, HandoffError, LaunchFailed, NotAllowed, TimedOut, UsageError
from handoff.sessions import hosts
from handoff.sessions.hosts import VERIFIED, Agent, Hermes, adapters, surrounding
from handoff.sessions.launch import RECIPES
from handoff.sessions.profile import Profile, own


@pytest.fixture
def agents(tmp_path: Path) -> Agents:
    return Agents(tmp_path / "bin")


def hermes(agents: Agents, name: str = "bob", **env: str) -> Hermes:
    home = agents.folder.parent / "x/profiles" / name
    home.mkdir(parents=True, exist_ok=True)
    profile = Profile(name, str(home), str(home.parent.parent))
    return Hermes(profile, {"PATH": agents.path(), **env}, "/w")


def test_hermes_says_what_the_profile_allows_and_is_asked_once(agents: Agents) -> None:
    host = hermes(agents)
    assert "hermes_handoff" in host.tools("cli")
    agents.facts(tools={})
    assert host.tools("desktop") == ["hermes_handoff"]
    assert host.provider_named("stub")
    assert not host.provider_named("custom:x")
    assert host.version() == ("0.22.2", True)
    assert host.recipe in RECIPES
    with pytest.raises(Failed):
        host.tools("gateway")


def test_no_answer_is_waited_for_once(agents: Agents) -> None:
    program = agents.folder / "hermes"
    program.write_text(f"#!/bin/sh\necho asked >>{agents.folder}/asked\nexit 3\n")
    host = hermes(agents)
    for _ in range(2):
        assert host.version() == ("", False)
        with pytest.raises(Failed):
            host.tools("cli")
    assert (agents.folder / "asked").read_text() == "asked\n"


@pytest.mark.parametrize(
    "facts",
    [
        {"handoff_facts": 2},
        {"tools": "hermes_handoff"},
        {"tools": {"cli": "hermes_handoff"}},
        {"tools": {"cli": [1]}},
        {"errors": {"tools.cli": "no such function"}},
    ],
)
def test_an_answer_that_says_nothing_is_no_leave(agents: Agents, facts: dict[str, object]) -> None:
    agents.facts(**facts)
    with pytest.raises(Failed):
        hermes(agents).tools("cli")


@pytest.mark.parametrize(
    "body", ["exit 3", "echo '[]'; echo '\"handoff_facts\"'", "printf '\\377'"]
)
def test_a_host_that_does_not_answer(agents: Agents, body: str) -> None:
    program = agents.folder / "hermes"
    program.write_text(f"#!/bin/sh\n{body}\n")
    with pytest.raises(Failed, match="does not answer") as caught:
        hermes(agents).tools("cli")
    assert caught.value.remedy == "hermes --profile bob plugins list"


def test_a_host_that_never_answers(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    (agents.folder / "hermes").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(hosts, "ANSWER", 0.2)
    with pytest.raises(TimedOut):
        hermes(agents).tools("cli")


def test_an_answer_for_another_profile_is_none(agents: Agents) -> None:
    fact = json.dumps({"handoff_facts": 1, "profile": "default", "tools": {"cli": []}})
    (agents.folder / "hermes").write_text(f"#!/bin/sh\necho '{fact}'\n")
    with pytest.raises(Failed, match="another profile"):
        hermes(agents).tools("cli")


def test_what_is_asked_carries_nothing_of_the_source(agents: Agents) -> None:
    (agents.folder / "hermes").write_text(
        f'#!/bin/sh\nenv >{agents.folder}/seen\necho "$@" >>{agents.folder}/seen\n'
    )
    env = {"HERMES_YOLO_MODE": "1", "HERMES_SESSION_ID": "s", "HERMES_HOME": "/elsewhere"}
    with pytest.raises(Failed):
        hermes(agents, **env).tools("cli")
    seen = (agents.folder / "seen").read_text()
    assert "YOLO" not in seen
    assert "SESSION_ID" not in seen
    assert f"HERMES_HOME={agents.folder.parent}/x\n" in seen
    assert "--profile bob handoff-facts --workspace /w\n" in seen
    with pytest.raises(Failed):
        hermes(agents, **env).provider_named("stub")
    seen = (agents.folder / "seen").read_text()
    assert "--profile bob handoff-facts --workspace /w --provider stub\n" in seen


def test_candidates_are_those_that_were_started_with_this_attempt(agents: Agents) -> None:
    host = hermes(agents)
    frozen = {"attempt_id": "attempt-0001", "source_session": "s0"}
    path = Path(agents.folder.parent / "x/profiles/bob/state.db")
    prompt = 'call {"attempt_id": "attempt-0001"}'
    hermes_store(
        path, [("s0", "user", prompt), ("s1", "user", prompt), ("s2", "user", "attempt-0001")]
    )
    start = 1_700_000_000_000
    assert [one["session_id"] for one in host.candidates(frozen, start)] == ["s1"]
    assert host.candidates(frozen, start + 10_000) == []


@pytest.mark.parametrize("kind", ["claude", "codex", "opencode"])
def test_other_agents(agents: Agents, kind: str) -> None:
    host = Agent(kind, {"PATH": agents.path()})
    assert host.program() == str(agents.folder / kind)
    assert host.version() == ("", False)
    (agents.folder / "package.json").write_text('{"version": "2.1.7"}')
    assert host.version() == ("2.1.7", False)
    (agents.folder / "package.json").write_text(json.dumps({"version": VERIFIED[kind]}))
    assert host.version() == (VERIFIED[kind], True)
    assert host.tools("cli") == ("hermes_handoff",)
    with pytest.raises(NotAllowed):
        host.tools("desktop")
    with pytest.raises(NotAllowed):
        host.complete("p", "m", "p")
    assert host.candidates({"attempt_id": "a", "source_session": ""}, 0) == []
    assert agents.launches() == [], "nothing is started to look at it"


def test_the_verified_versions_are_those_that_tests_drive() -> None:
    live = Path(__file__).parents[2] / "live"
    driven = json.loads((live / "package.json").read_text())["dependencies"]
    names = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex",
             "opencode": "opencode-ai"}  # fmt: skip
    assert {kind: driven[name] for kind, name in names.items()} == VERIFIED


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    host = Agent("codex", {"PATH": str(tmp_path)})
    with pytest.raises(LaunchFailed, match="no program 'codex'"):
        host.program()
    assert host.version() == ("", False)


def test_kinds(tmp_path: Path) -> None:
    profile = own(str(tmp_path))
    kinds = adapters(profile, {}, "")
    for kind in ("hermes", "claude", "codex", "opencode", "other"):
        assert kinds(kind).kind == kind
        assert kinds(kind) is kinds(kind)
    assert kinds("terminal").kind == "other"
    with pytest.raises(HandoffError):
        kinds("other").program()
    with pytest.raises(UsageError):
        kinds("vim")


def test_the_session_around_a_call() -> None:
    assert surrounding({}) == []
    env = {"CODEX_THREAD_ID": "t1", "HERMES_SESSION_ID": "", "PATH": os.defpath}
    assert surrounding(env) == [("t1", "codex")]
    assert len(surrounding({**env, "CLAUDE_CODE_SESSION_ID": "s"})) == 2
