"""Where agentd finds programs when it was started with next to nothing, and whose
repositories it touches."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from tests.support.console import Cli
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import Home
from tests.support.repository import make_repository
from tests.unit.workspace import repos

import handoff

AGENT = """\
#!/usr/bin/env case-node
import runpy, sys
sys.path.insert(0, {src!r})
runpy.run_module("handoff.executors.fake", run_name="__main__")
"""

#: the start file of somebody with a version manager and bad habits
BASHRC = """\
echo "=== welcome, PATH=/nowhere ==="
echo complaint >&2
export PATH="$HOME/versions/bin:$PATH"
sleep 1
cd /
"""


def bare_user(home: Home) -> Home:
    """The home with an agent and its interpreter where only the login shell finds them."""
    programs = home.path / "versions" / "bin"
    programs.mkdir(parents=True)
    (home.path / ".bash_profile").write_text(BASHRC)
    (programs / "case-node").symlink_to(sys.executable)
    agent = programs / "case-agent"
    agent.write_text(AGENT.format(src=str(pathlib.Path(handoff.__file__).parents[1])))
    agent.chmod(0o755)
    env = {**home.env, "PATH": "/usr/bin:/bin", "SHELL": "/bin/bash"}
    return Home(home.path, env)


@pytest.mark.parametrize("command", ["case-agent", "{home}/versions/bin/case-agent"])
def test_an_agent_that_only_the_login_shell_knows(isolated_home: Home, command: str) -> None:
    home = bare_user(isolated_home)
    program = command.format(home=home.path)
    extra = f"agents:\n  case:\n    command: [{program}]\n"
    with run_agentd(home, extra) as agentd:
        # The shell still runs: nobody is told meanwhile that the agent is not there.
        repository = make_repository(home)
        plan = '@@do run {"command":"pwd; command -v case-node"}'
        task = agentd.dispatch(repository, plan, "--executor", "case")
        agentd.ticket(task["id"])
        agentd.reply(task["id"], "--approve").ok()
        agentd.wait_event(task["id"], "turn_failed")
        shown = agentd.cli("attach", task["id"], "--no-follow").ok().out
        assert f"{task['work_dir']}\n" in shown, "the folder is the worktree, whatever bash does"
        assert f"{home.path}/versions/bin/case-node" in shown
        found = {c["name"]: c for c in agentd.cli("doctor", "--json").json()["checks"]}
        assert found["case"]["level"] == "ok", found["case"]
        assert "not logged in" not in found["case"]["text"]
        assert "/nowhere" not in agentd.get("/api/status")["path"], "a banner is no PATH"


def test_an_agent_that_is_nowhere_is_told_with_what_helps(agentd: Agentd) -> None:
    config = agentd.dir / "config.yaml"
    config.write_text(config.read_text() + "agents:\n  mine:\n    command: [no-such-agent]\n")
    agentd.restart()
    found = {c["name"]: c for c in agentd.cli("doctor", "--json").json()["checks"]}
    assert found["mine"]["text"] == "not installed"
    assert "agents.mine.command" in found["mine"]["remedy"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository away")
def test_root_leaves_somebody_elses_repository_alone(agentd: Agentd) -> None:
    agentd.home.path.chmod(0o755)
    folder = repos.plain(agentd.home.path / "theirs")
    subprocess.run(["chown", "-R", "1000:1000", str(folder)], check=True)
    cli: Cli = agentd.cli.within(folder)
    for args in (("dispatch", "--prompt", "x"), ("dispatch", "--in-place", "--prompt", "x")):
        ran = cli(*args)
        assert ran.code == 1
        assert "belongs to" in ran.err
        assert "no repository" not in ran.err
        assert "safe.directory=*" not in ran.err
    left = subprocess.run(["find", str(folder), "-uid", "0"], capture_output=True, text=True)
    assert left.stdout == ""
    assert "safe" not in (agentd.home.path / ".gitconfig").read_text()
    assert agentd.cli("tasks", "--json").out == ""
