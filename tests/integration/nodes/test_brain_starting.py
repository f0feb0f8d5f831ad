"""How a brain is started: in time or not at all, on a port that stays, by the newest version."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import sys
import time
from collections.abc import Iterator

import pytest

from handoff import __version__
from handoff.errors import Failed, LaunchFailed, PortInUse, Unreachable
from handoff.nodes import starting
from handoff.nodes.brain import main
from handoff.nodes.client import BrainClient


@pytest.fixture
def folders(tmp_path: pathlib.Path) -> Iterator[list[str]]:
    made = [str(tmp_path / "a"), str(tmp_path / "b")]
    yield made
    for folder in made:
        end(folder)


def end(folder: str) -> None:
    with contextlib.suppress(Unreachable):
        BrainClient(folder, None).ask("stop")
    until = time.monotonic() + 20
    while starting.held(folder):
        assert time.monotonic() < until
        time.sleep(0.01)


def started_with(port: int) -> tuple[str, ...]:
    """How to start a brain whose usual port is that one."""
    code = (
        "import sys, dataclasses; from handoff.nodes.brain import main;"
        f" load = main.load_settings; main.PORT = {port};"
        f" main.load_settings = lambda folder: (lambda s: s if s.fixed else"
        f" dataclasses.replace(s, port={port}))(load(folder)); sys.exit(main.main())"
    )
    return sys.executable, "-c", code


def free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_brain_that_says_nothing_is_ended_and_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    monkeypatch.setattr(starting.launch, "__defaults__", (2.0,))
    began = time.monotonic()
    with pytest.raises(LaunchFailed, match="did not start within 2 s") as raised:
        BrainClient(str(tmp_path / "a"), (sys.executable, "-c", code)).ask("status")
    assert time.monotonic() - began < 15
    assert raised.value.remedy == f"tail {tmp_path}/a/brain.log"
    if pid.exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


def test_two_profiles_on_one_machine_have_a_port_each(folders: list[str]) -> None:
    usual = free()
    argv = started_with(usual)
    first = BrainClient(folders[0], argv).ask("status")
    second = BrainClient(folders[1], argv).ask("status")
    assert first["port"] == usual
    assert second["port"] != usual
    assert str(second["port"]) in second["address"]
    code = BrainClient(folders[1], None).ask("code", name="lab")
    assert code["address"].endswith(f":{second['port']}")
    # both keep theirs, whoever comes first the next time
    for folder in folders:
        end(folder)
    assert BrainClient(folders[1], argv).ask("status")["port"] == second["port"]
    assert BrainClient(folders[0], argv).ask("status")["port"] == usual


def test_a_port_that_was_kept_is_not_given_up(folders: list[str], tmp_path: pathlib.Path) -> None:
    argv = started_with(free())
    port = BrainClient(folders[0], argv).ask("status")["port"]
    end(folders[0])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(PortInUse) as raised:
            BrainClient(folders[0], argv).ask("status")
    assert raised.value.remedy == f"handoff nodes serve --port {port + 1}"
    assert BrainClient(folders[0], argv).ask("status")["port"] == port


def test_what_a_person_wrote_stays_when_the_port_is_kept(folders: list[str]) -> None:
    os.makedirs(folders[0], mode=0o700)
    path = os.path.join(folders[0], "brain.toml")
    pathlib.Path(path).write_text('# mine\nhost = "127.0.0.1"')
    port = BrainClient(folders[0], started_with(free())).ask("status")["port"]
    until = time.monotonic() + 20
    wanted = f'# mine\nhost = "127.0.0.1"\nport = {port}\n'
    while pathlib.Path(path).read_text() != wanted:
        assert time.monotonic() < until
        time.sleep(0.01)
    settings = main.load_settings(folders[0])
    assert (settings.port, settings.fixed) == (port, True)


def old(folder: str, *, spawned: bool = True) -> BrainClient:
    """A brain that says it is of an older version."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    pathlib.Path(folder, "brain.toml").write_text("port = 0\n")
    code = (
        "import sys; from handoff.nodes.brain import main; main.__version__ = '0.0.1';"
        f" serve = main.serve; main.serve = lambda *a, **k: serve(*a, spawned={spawned});"
        " sys.exit(main.main())"
    )
    client = BrainClient(folder, (sys.executable, "-c", code))
    assert client.ask("status")["version"] == "0.0.1"
    return client


def test_an_older_brain_that_is_idle_is_started_anew(folders: list[str]) -> None:
    before = old(folders[0]).ask("status")
    said: list[str] = []
    status = BrainClient(folders[0], warn=said.append).ask("status")
    assert status["version"] == __version__
    assert status["pid"] != before["pid"]
    assert said == []


@pytest.mark.parametrize("why", ["by hand", "no way to start one"])
def test_an_older_brain_that_is_not_ours_to_end_is_told(folders: list[str], why: str) -> None:
    before = old(folders[0], spawned=why != "by hand").ask("status")
    said: list[str] = []
    client = BrainClient(folders[0], warn=said.append)
    if why != "by hand":
        client = BrainClient(folders[0], None, warn=said.append)
    for _ in range(2):
        assert client.ask("status")["pid"] == before["pid"]
    (line,) = said
    assert "0.0.1" in line
    assert __version__ in line
    assert "handoff nodes restart" in line


def test_a_newer_brain_is_never_ended_by_an_older_program(
    folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = old(folders[0])
    pid = client.ask("status")["pid"]
    from handoff.nodes import client as module

    monkeypatch.setattr(module, "__version__", "0.0.0")
    monkeypatch.setattr(starting, "__version__", "0.0.0")
    said: list[str] = []
    assert BrainClient(folders[0], warn=said.append).ask("status")["pid"] == pid
    assert "newer" in said[0]


def test_a_brain_that_is_just_ending_is_waited_for(folders: list[str]) -> None:
    client = old(folders[0])
    pid = client.ask("status")["pid"]
    client.ask("stop")
    assert BrainClient(folders[0]).ask("status")["pid"] != pid


def test_a_brain_that_does_not_end_is_told(
    folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = old(folders[0])
    pid = client.ask("status")["pid"]
    monkeypatch.setattr(starting, "START_S", 0.5)
    monkeypatch.setattr(client, "ask", lambda *_, **__: {})
    with pytest.raises(Failed, match="does not end"):
        client.end()
    os.kill(pid, signal.SIGTERM)


def test_what_a_brain_says_of_itself(tmp_path: pathlib.Path) -> None:
    assert starting.said_version(str(tmp_path)) == (__version__, False)
    for text in ("", "[]", "{", "7"):
        (tmp_path / "brain.json").write_text(text)
        assert starting.said_version(str(tmp_path)) == (__version__, False)
    (tmp_path / "brain.json").write_text(json.dumps({"pid": 1}))
    assert starting.said_version(str(tmp_path)) == ("", False)
    assert starting.newer_than("")
    assert starting.newer_than("0.0.9rc1")
    assert not starting.newer_than("99.0")
    assert not starting.newer_than(__version__)
