"""Looking for executors on a machine."""

from __future__ import annotations

import json
import os
import pathlib
import stat
import time

import pytest

from handoff.executors import detect as module
from handoff.executors.catalog import BUILT_IN, AgentDefinition
from handoff.executors.detect import Detection, detect, detect_all

AGENT = AgentDefinition(
    name="heron",
    title="Heron",
    programs=("heron", "heron-cli"),
    login_files=("~/.heron/auth.json",),
    login_env=("HERON_KEY",),
    login="heron login",
    install="npm install -g heron",
    tested=("1.2.3",),
)


class Machine:
    """A home and a folder of programs."""

    def __init__(self, root: pathlib.Path) -> None:
        self.home = root / "home"
        self.bin = root / "bin"
        self.home.mkdir()
        self.bin.mkdir()

    def program(self, text: str, name: str = "heron", mode: int = 0o755) -> pathlib.Path:
        place = self.bin / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(mode)
        return place

    def detect(
        self, agent: AgentDefinition = AGENT, env: dict[str, str] | None = None, **options: bool
    ) -> Detection:
        path = f"{self.bin}:/usr/bin:/bin"
        return detect(agent, path, str(self.home), env or {}, **options)


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_not_there(machine: Machine) -> None:
    assert machine.detect() == Detection("heron", "Heron", remedy="npm install -g heron")


def test_what_is_there_in_a_tested_version(machine: Machine) -> None:
    place = machine.program("#!/bin/sh\necho 'heron 1.2.3 (build 7)'\n")
    found = machine.detect()
    assert (found.path, found.version, found.supported) == (str(place), "1.2.3", True)
    assert (found.problem, found.login, found.remedy) == ("", "no", "heron login")


def test_another_version_is_not_called_supported(machine: Machine) -> None:
    machine.program("#!/bin/sh\necho v1.3.0-beta.1\n")
    found = machine.detect()
    assert (found.version, found.supported) == ("1.3.0-beta.1", False)


def test_a_version_that_is_not_told_is_unknown(machine: Machine) -> None:
    machine.program("#!/bin/sh\necho hello\n")
    found = machine.detect()
    assert (found.version, found.supported, found.problem) == ("", None, "")


def test_the_second_name_is_found_too(machine: Machine) -> None:
    place = machine.program("#!/bin/sh\necho 1.2.3\n", "heron-cli")
    assert machine.detect().path == str(place)


def test_a_program_that_fails_says_why(machine: Machine) -> None:
    machine.program("#!/bin/sh\necho 'needs library X 9.1' >&2\nexit 3\n")
    found = machine.detect()
    assert "exit code 3" in found.problem
    assert "needs library X 9.1" in found.problem
    assert (found.version, found.remedy) == ("", "npm install -g heron")


def test_a_program_that_hangs_is_ended_with_what_it_started(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "VERSION_S", 0.5)
    mark = machine.home / "pid"
    machine.program(f"#!/bin/sh\nsleep 60 &\necho $! > {mark}\nwait\n")
    started = time.monotonic()
    assert "within" in machine.detect().problem
    assert time.monotonic() - started < 10
    pid = int(mark.read_text())
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}") and "zombie" not in _state(pid):
        assert time.monotonic() < deadline, "the sleeper lives on"
        time.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "zombie"


def test_a_missing_interpreter_is_named(machine: Machine) -> None:
    machine.program("#!/usr/bin/env no-such-node\n")
    found = machine.detect()
    assert "no-such-node" in found.problem
    assert found.version == ""


def test_a_program_that_may_not_be_executed(machine: Machine) -> None:
    place = machine.program("#!/bin/sh\n", mode=stat.S_IRUSR)
    agent = AgentDefinition(name="own", title="own", programs=(str(place),))
    found = machine.detect(agent)
    assert found.path == ""
    assert "may not be executed" in found.problem


def test_the_version_of_a_package_is_read_without_starting_it(machine: Machine) -> None:
    package = machine.home / "lib" / "node_modules" / "heron"
    (package / "dist").mkdir(parents=True)
    body = {"name": "heron", "version": "4.5.6", "bin": {"heron": "dist/heron.js"}}
    (package / "package.json").write_text(json.dumps(body))
    script = package / "dist" / "heron.js"
    script.write_text(f"#!/bin/sh\ntouch {machine.home}/started\n")
    script.chmod(0o755)
    (machine.bin / "heron").symlink_to(script)
    assert machine.detect().version == "4.5.6"
    assert not (machine.home / "started").exists()


def test_a_broken_package_file_is_passed_over(machine: Machine) -> None:
    machine.program("#!/bin/sh\necho 1.2.3\n")
    (machine.bin / "package.json").write_text("{")
    assert machine.detect().version == "1.2.3"
    (machine.bin / "package.json").write_text('{"version": "9.9.9"}')
    assert machine.detect().version == "1.2.3"


def test_without_the_version_nothing_is_started(machine: Machine) -> None:
    machine.program(f"#!/bin/sh\ntouch {machine.home}/started\n")
    found = machine.detect(version=False)
    assert found.path
    assert not (machine.home / "started").exists()


@pytest.mark.parametrize(
    ("content", "login"),
    [('{"token": "abcdef"}', "yes"), ("{}", "no"), ("", "no"), (None, "no")],
)
def test_a_credentials_file_is_the_trace_of_a_login(
    machine: Machine, content: str | None, login: str
) -> None:
    machine.program("#!/bin/sh\necho 1.2.3\n")
    if content is not None:
        (machine.home / ".heron").mkdir()
        (machine.home / ".heron" / "auth.json").write_text(content)
    found = machine.detect()
    assert found.login == login
    assert "~/.heron/auth.json" in found.evidence
    assert found.remedy == ("" if login == "yes" else "heron login")


def test_a_variable_is_too(machine: Machine) -> None:
    machine.program("#!/bin/sh\necho 1.2.3\n")
    found = machine.detect(env={"HERON_KEY": "abc"})
    assert (found.login, found.evidence) == ("yes", "HERON_KEY")
    assert machine.detect(env={"HERON_KEY": ""}).login == "no"


def test_a_secret_is_never_in_what_is_told(machine: Machine) -> None:
    machine.program("#!/bin/sh\necho 1.2.3\n")
    (machine.home / ".heron").mkdir()
    (machine.home / ".heron" / "auth.json").write_text('{"token": "swordfish"}')
    assert "swordfish" not in repr(machine.detect(env={"HERON_KEY": "swordfish"}))


def test_what_can_not_be_looked_at_is_unknown(machine: Machine) -> None:
    machine.program("#!/bin/sh\necho 1.2.3\n")
    (machine.home / ".heron" / "auth.json").mkdir(parents=True)
    found = machine.detect()
    assert found.login == "unknown"
    assert "auth.json" in found.evidence


def test_an_agent_without_any_evidence_is_unknown(machine: Machine) -> None:
    place = machine.program("#!/bin/sh\necho 1.2.3\n")
    agent = AgentDefinition(name="own", title="own", programs=(str(place),), version_argv=())
    found = machine.detect(agent)
    assert (found.login, found.version, found.problem) == ("unknown", "", "")


def test_a_login_by_a_cloud_is_not_judged(machine: Machine) -> None:
    machine.program("#!/bin/sh\necho 2.1.332\n", "claude")
    found = machine.detect(BUILT_IN["claude"], {"CLAUDE_CODE_USE_BEDROCK": "1"})
    assert (found.login, found.evidence) == ("unknown", "CLAUDE_CODE_USE_BEDROCK")


def test_a_program_does_not_inherit_our_environment(machine: Machine) -> None:
    machine.program('#!/bin/sh\necho "1.2.3"\nenv > "$HOME/seen"\n')
    machine.detect(env={"HERON_KEY": "swordfish"})
    assert "swordfish" not in (machine.home / "seen").read_text()


def test_all_are_looked_for_at_once_and_come_in_order(machine: Machine) -> None:
    machine.program("#!/bin/sh\nsleep 0.3\necho 1.18.33\n", "opencode")
    machine.program("#!/bin/sh\nsleep 0.3\necho 1.0.41\n", "grok")
    found = detect_all(BUILT_IN, f"{machine.bin}:/usr/bin:/bin", str(machine.home), {})
    assert [one.name for one in found] == list(BUILT_IN)
    there = {one.name: one.version for one in found if one.path and one.name != "fake"}
    assert there["opencode"] == "1.18.33"
    assert there["grok"] == "1.0.41"


@pytest.mark.parametrize(
    ("claude", "grok", "warned"),
    [
        ('{"permissions": {"allow": ["Bash(git push:*)"]}}', None, True),
        ('{"permissions": {"allow": ["Bash(git push:*)"]}}', "[cli]\n", True),
        ('{"permissions": {"allow": ["Bash(git push:*)"]}}', "not toml [", True),
        ('{"permissions": {"allow": ["Bash(git push:*)"]}}', module.GROK_ASK, False),
        ('{"permissions": {"allow": []}}', None, False),
        ('{"permissions": 3}', None, False),
        ("[]", None, False),
        (None, None, False),
    ],
)
def test_settings_that_let_grok_past_the_gate_are_told(
    machine: Machine, claude: str | None, grok: str | None, warned: bool
) -> None:
    machine.program("#!/bin/sh\necho 1.0.41\n", "grok")
    for name, file, text in ((".claude", "settings.json", claude), (".grok", "config.toml", grok)):
        if text is not None:
            (machine.home / name).mkdir()
            (machine.home / name / file).write_text(text)
    problem = machine.detect(BUILT_IN["grok"]).problem
    assert ("settings.json" in problem) is warned
