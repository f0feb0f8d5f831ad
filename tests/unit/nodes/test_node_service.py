"""The definitions of a node's service, read by the systems that they are for where those are
there."""

from __future__ import annotations

import configparser
import pathlib
import plistlib
import shlex
import shutil
import subprocess

import pytest

from handoff.nodes.node import service

NASTY = '/home/ada l/50% "of" $HOME/config.toml'


def test_the_unit_comes_back_after_a_crash_and_a_boot_and_keeps_what_runs() -> None:
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(service.systemd("/home/ada/config.toml"))
    told = unit["Service"]
    assert told["Restart"] == "on-failure"
    assert "3" in told["RestartPreventExitStatus"].split()  # the brain refused it for good
    assert told["KillMode"] == "process"
    assert told["KillSignal"] == "SIGUSR1"  # an upgrade ends no command
    assert unit["Install"]["WantedBy"] == "default.target"
    words = shlex.split(told["ExecStart"])
    assert pathlib.Path(words[0]).is_absolute()
    assert words[-3:] == ["run", "--config", "/home/ada/config.toml"]


def test_what_systemd_would_read_otherwise_is_escaped() -> None:
    line = next(one for one in service.systemd(NASTY).splitlines() if one.startswith("ExecStart="))
    assert line.endswith('"/home/ada l/50%% \\"of\\" $$HOME/config.toml"')


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
@pytest.mark.parametrize("config", ["/home/ada/config.toml", NASTY])
def test_systemd_finds_nothing_wrong(tmp_path: pathlib.Path, config: str) -> None:
    path = tmp_path / "hermes-node.service"
    path.write_text(service.systemd(config))
    done = subprocess.run(
        ["systemd-analyze", "--user", "--man=no", "verify", path],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    if "Failed to initialize" in done.stderr:
        pytest.skip("systemd-analyze can't look at units here")
    assert "hermes-node.service" not in done.stderr, done.stderr


@pytest.mark.parametrize("config", ["/home/ada/config.toml", NASTY, "/a & b/<c>.toml"])
def test_the_agent_of_macos_says_the_same(config: str) -> None:
    told = plistlib.loads(service.launchd(config).encode())
    assert told["ProgramArguments"][-3:] == ["run", "--config", config]
    assert told["RunAtLoad"] is True
    assert told["KeepAlive"] == {"SuccessfulExit": False}
