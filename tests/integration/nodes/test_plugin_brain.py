"""The plugin's tools and a brain that they start themselves: one a profile, and what is said
when it can't start."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.waiting import until

from handoff.nodes import client
from handoff.nodes.client import BrainClient
from handoff.plugins.hermes_node import calling, tools
from handoff.plugins.hermes_node.commands import Commands, arguments
from handoff.plugins.hermes_node.runtime import Runtime
from handoff.plugins.hermes_node.tools import Tools

Use = Callable[..., Any]


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A profile's folder that does not exist yet; its brain takes a free port."""
    for name in ("hermes_constants", "hermes_cli"):
        monkeypatch.setitem(sys.modules, name, None)
    found = tmp_path / "not" / "yet"
    monkeypatch.setenv("HERMES_HOME", str(found))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield found
    brain = BrainClient(str(found / "handoff" / "nodes"), None)
    if (found / "handoff" / "nodes").is_dir() and brain.running():
        brain.ask("stop")
        until(lambda: not brain.running())


def settings(home: pathlib.Path, text: str) -> None:
    folder = home / "handoff" / "nodes"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "brain.toml").write_text(text)


def use(name: str, **given: Any) -> Any:
    return json.loads(Tools(Runtime()).handler(name)(given))


def test_the_first_use_starts_it_and_an_offline_node_is_told_at_once(home: pathlib.Path) -> None:
    settings(home, "port = 0\n")
    assert use("node_list") == {"nodes": [], "count": 0}
    brain = BrainClient(str(home / "handoff" / "nodes"), None)
    brain.ask("token", name="lab")
    began = time.monotonic()
    for name, more in (
        ("node_exec", {"command": "true"}),
        ("node_read", {"path": "x"}),
        ("node_write", {"path": "x", "content": ""}),
        ("node_edit", {"path": "x", "old": "a", "new": ""}),
        ("node_job", {"action": "list"}),
    ):
        answer = use(name, target="lab", **more)
        assert (answer["code"], answer["retry_safe"]) == ("node_offline", True)
    assert time.monotonic() - began < 2 * 5
    pid = brain.ask("status")["pid"]
    env = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    assert b"HERMES_HOME" not in env  # nothing of the host's is handed on that is not named
    parser = argparse.ArgumentParser()
    arguments(parser)
    assert Commands(Runtime()).run(parser.parse_args(["restart"])) == 0
    assert brain.ask("status")["pid"] != pid


def test_a_port_that_is_taken_is_said_and_the_host_lives_on(home: pathlib.Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings(home, f"port = {port}\n")
        answer = use("node_list")
        assert str(port) in answer["error"], answer
        assert answer["code"] != "internal"
        assert answer["remedy"]
    assert use("node_list")["count"] == 0  # free again, and it starts


@pytest.mark.parametrize("text", ["port = ", "port = 'x'\n", "colour = 1\n", "port = 70000\n"])
def test_settings_that_are_wrong_are_named(home: pathlib.Path, text: str) -> None:
    settings(home, text)
    answer = use("node_exec", target="lab", command="true")
    assert answer["code"] == "config_invalid"
    assert "brain.toml" in answer["error"] + answer["remedy"]


def test_a_home_that_is_missing_is_made_by_the_first_use(home: pathlib.Path) -> None:
    parser = argparse.ArgumentParser()
    arguments(parser)
    assert not home.exists()
    assert Commands(Runtime()).run(parser.parse_args(["restart", "--port", "0"])) == 0
    assert use("node_list")["count"] == 0
    assert (home / "handoff" / "nodes").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "words", [("--port", "99999"), ("--address", "foo bar"), ("--host", "no.such.invalid")]
)
def test_a_restart_that_can_not_be_leaves_the_brain_that_there_was(
    home: pathlib.Path, words: tuple[str, str]
) -> None:
    settings(home, "port = 0\n")
    use("node_list")
    parser = argparse.ArgumentParser()
    arguments(parser)
    with pytest.raises(SystemExit):
        Commands(Runtime()).run(parser.parse_args(["restart", *words]))
    assert use("node_list")["count"] == 0


def test_several_processes_at_once_start_one(home: pathlib.Path) -> None:
    settings(home, "port = 0\n")
    code = (
        "import sys, os; sys.modules['hermes_constants'] = None\n"
        "from handoff.plugins.hermes_node.runtime import Runtime\n"
        "print(Runtime().client().ask('status')['pid'])\n"
    )
    several = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    pids = {child.communicate(timeout=60)[0].strip() for child in several}
    assert len(pids) == 1
    assert "" not in pids


def test_a_brain_that_hangs_holds_nobody(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tool comes back, with what to do; nothing of what may have been done is denied."""
    settings(home, "port = 0\n")
    pid = Runtime().client().ask("status")["pid"]
    monkeypatch.setattr(client, "ASK_S", 0.3)
    monkeypatch.setattr(calling, "TELL_S", 0.3)
    monkeypatch.setattr(tools, "BEYOND_S", 0.3)
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        told = use("node_list")
        assert (told["code"], "brain.json" in told["remedy"]) == ("timed_out", True)
        given = {"target": "lab", "timeout_ms": 200}
        assert use("node_read", path="x", **given)["code"] == "timed_out"
        told = use("node_exec", command="true", key="call-hung", **given)
        assert (told["code"], told["key"]) == ("outcome_unknown", "call-hung")
        assert time.monotonic() - began < 10
    finally:
        os.kill(pid, signal.SIGCONT)
    monkeypatch.undo()
    monkeypatch.setenv("HERMES_HOME", str(home))
    assert use("node_list") == {"nodes": [], "count": 0}


@pytest.mark.parametrize("words", [("--port", "-5"), ("--port", "x"), ("--port", "70000")])
def test_a_port_that_is_none_changes_nothing(home: pathlib.Path, words: tuple[str, ...]) -> None:
    parser = argparse.ArgumentParser()
    arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["restart", *words])
    assert not home.exists()


def test_an_unknown_node_is_told_with_those_near_it(
    home: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings(home, "port = 0\n")
    Runtime().client().ask("token", name="lab-box")
    parser = argparse.ArgumentParser()
    arguments(parser)
    with pytest.raises(SystemExit) as caught:
        Commands(Runtime()).run(parser.parse_args(["show", "LAB-BOX"]))
    assert caught.value.code == 4
    assert "did you mean 'lab-box'" in capsys.readouterr().err
    assert "did you mean 'lab-box'" in use("node_exec", target="lab_box", command="true")["error"]
