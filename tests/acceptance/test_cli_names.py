"""File names as they are, from the repository to the screen and back."""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess

import pytest
from tests.acceptance.pty_console import Terminal
from tests.support.console import HANDOFF
from tests.support.daemon import Agentd
from tests.support.plans import fake_plan
from tests.support.repository import Repository
from tests.unit.workspace import repos


def exact(agentd: Agentd, *args: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [HANDOFF, *args], env=agentd.home.env, cwd=agentd.home.path, capture_output=True, timeout=30
    )


@pytest.mark.parametrize("folder", ["plain", 'it\'s a "repo"\nx'])
def test_every_name_means_itself(agentd: Agentd, folder: str) -> None:
    where = agentd.home.path / folder
    where.mkdir()
    source = repos.names(where)
    repository = Repository(source, agentd.home)
    plan = fake_plan({"git": {"args": ["merge", "-q", "--ff-only", "work"]}})
    task = agentd.dispatch(repository, plan)["id"]
    agentd.cli("wait", task, "--until-done", "--timeout", "20s").ok()

    listed = agentd.cli("diff", task, "--name-only", "--json").ok().json()["files"]
    paths = {
        base64.b64decode(found["path_b64"]) if "path_b64" in found else found["path"].encode()
        for found in listed
    }
    assert set(repos.NAMES) | {b"new name.txt"} == paths
    renamed = next(found for found in listed if found["path"] == "new name.txt")
    assert renamed["old_path"] == "old name.txt"

    for raw in paths:
        name = os.fsdecode(raw)
        wanted = subprocess.run(
            ["git", "cat-file", "blob", b"work:" + raw],
            cwd=source,
            capture_output=True,
            check=True,
        ).stdout
        fetched = exact(agentd, "fetch", task, "--", name)
        assert (fetched.returncode, fetched.stdout) == (0, wanted), fetched.stderr
        if raw in (b"-rf", b"*.txt", b":(glob)star.txt", b"new\nline", b"raw-\xff\xfe.bin"):
            one = exact(agentd, "diff", task, "--json", "--", name)
            assert one.returncode == 0, one.stderr
            assert len(json.loads(one.stdout)["files"]) == 1
    missing = exact(agentd, "diff", task, "--", "no such file")
    assert (missing.returncode, missing.stdout) == (4, b"")
    missing = exact(agentd, "fetch", task, "no such file")
    assert missing.returncode == 4
    remedy = f"handoff diff {task} --name-only"
    assert remedy.encode() in missing.stderr
    assert exact(agentd, *remedy.split()[1:]).returncode == 0

    screen = Terminal("diff", task, cwd=agentd.home.path, env=agentd.home.env)
    try:
        assert screen.end() == 0
        assert screen.harmless()
    finally:
        screen.close()


def test_printed_commands_can_be_typed(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(
        git_repo, fake_plan({"write": {"path": "n", "text": "x", "ask": False}})
    )["id"]
    agentd.cli("wait", task, "--until-done", "--timeout", "20s")
    shown = agentd.cli("diff", task).ok()
    assert shown.out == ""
    assert "1 uncommitted path(s) not shown: " in shown.err
    command = shlex.split(shown.err.partition("not shown: ")[2])
    assert "+x" in agentd.cli(*command[1:]).ok().out
