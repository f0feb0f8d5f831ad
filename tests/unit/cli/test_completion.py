from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from tests.unit.cli.calling import OTHER, TASK, Caller, task
from tests.unit.client.served import Served

from handoff.cli import completion_scripts as completion
from handoff.cli import (
    hermes_node,
    hermes_node_completion,
    hermes_node_parsing,
    main,
    nodes,
    session,
)
from handoff.clock import SystemClock
from handoff.link.tokens import NodeStore


@pytest.fixture
def complete(served: Served, tmp_path: pathlib.Path):
    """``complete("handoff", "wa")``: what real bash offers for the last word."""
    served.on("GET", "/api/tasks", [task(id=TASK), task(id=OTHER)])
    script = tmp_path / "handoff.bash"
    script.write_text(completion.bash())
    tool = tmp_path / "bin" / "handoff"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m handoff.cli.main "$@"\n')
    tool.chmod(0o755)
    env = {**os.environ, "HANDOFF_CONFIG": served.config}
    env["PATH"] = f"{tool.parent}:{env['PATH']}"

    def ask(*words: str) -> list[str]:
        code = (
            f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _handoff;'
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-u", "-c", code, "bash", *words],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return ask


def test_bash_offers_commands(complete) -> None:
    assert set(complete("handoff", "")) == set(main.table())
    assert complete("handoff", "disp") == ["dispatch"]
    assert "--config" in complete("handoff", "--")


def test_bash_offers_flags_and_choices(complete) -> None:
    assert complete("handoff", "wait", "1f3a", "--u") == ["--until-done"]
    assert complete("handoff", "tasks", "--state", "waiting_") == [
        "waiting_answer",
        "waiting_review",
    ]
    assert complete("handoff", "project", "") == ["add", "ls", "rm"]
    assert complete("handoff", "completion", "f") == ["fish"]


def test_bash_offers_the_verbs_of_a_group_and_their_flags(complete) -> None:
    assert set(complete("handoff", "session", "")) == set(session.VERBS)
    assert complete("handoff", "session", "prep") == ["prepare"]
    assert complete("handoff", "session", "prepare", "x", "--att") == ["--attempt-id"]
    assert complete("handoff", "session", "prepare", "x", "--host", "cod") == ["codex"]
    assert complete("handoff", "session", "list", "--att") == []


def test_bash_offers_task_ids_from_agentd(complete, served: Served) -> None:
    assert complete("handoff", "wait", "") == ["1f3a0000", "2b4c0000"]
    assert complete("handoff", "reply", "--approve", "2") == ["2b4c0000"]
    assert complete("handoff", "--config", served.config, "diff", "1") == ["1f3a0000"]
    served.stop()
    assert complete("handoff", "wait", "") == []
    served.restart()


@pytest.fixture
def brain(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder of a brain that does not run, with nodes."""
    folder = tmp_path / "brain"
    folder.mkdir(mode=0o700)
    store = NodeStore(str(folder / "nodes.sqlite3"), SystemClock())
    for name in ("lab", "lab two", "gone"):
        store.add_token(name)
    store.revoke("gone")
    store.close()
    monkeypatch.setenv("HANDOFF_NODES", str(folder))
    return folder


def test_bash_offers_nodes_without_a_brain(brain: pathlib.Path, complete) -> None:
    before = sorted(os.listdir(brain))
    two = ["lab", "lab", "two"]  # the second one's name holds a blank
    assert complete("handoff", "nodes", "exec", "") == two
    assert complete("handoff", "nodes", "exec", "lab", "") == two
    assert complete("handoff", "nodes", "--json", "get", "l") == two
    assert complete("handoff", "nodes", "logs", "--node", "lab ") == ["lab", "two"]
    assert complete("handoff", "nodes", "jobs", "lab", "ki") == ["kill"]
    assert complete("handoff", "nodes", "pair", "la") == []
    assert "ls" in complete("handoff", "nodes", "exec", "lab", "--", "l")
    assert set(complete("handoff", "nodes", "")) == set(nodes.VERBS)
    named = ("handoff", "nodes", "--brain", str(brain), "show", "")
    assert sorted(os.listdir(brain)) == before
    for folder, wanted in ((brain, two), (brain / "none", [])):
        assert complete(*named[:3], str(folder), *named[4:]) == wanted
    (brain / "nodes.sqlite3").write_bytes(b"no database")
    assert complete(*named) == []


def test_fish_offers_nodes_and_verbs(
    brain: pathlib.Path, complete, call: Caller, tmp_path: pathlib.Path
) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = tmp_path / "handoff.fish"
    script.write_text(call("completion", "fish").out)

    def ask(line: str) -> list[str]:
        code = f"source {script}; complete -C '{line}'"
        env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        env |= {"HOME": str(tmp_path), "HANDOFF_NODES": str(brain)}
        done = subprocess.run(
            ["fish", "--no-config", "-c", code], env=env, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, done.stderr
        return [one.partition("\t")[0] for one in done.stdout.splitlines()]

    assert {"lab", "lab two"} <= set(ask("handoff nodes exec "))
    assert {"kill", "lab"} <= set(ask("handoff nodes jobs "))
    assert "exec" in ask("handoff nodes ")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("",), set(hermes_node_parsing.VERBS)),
        (("--config", "x", "va"), {"validate"}),
        (("service", ""), {"systemd", "launchd"}),
        (("stop", "--"), {"--help", "--config", "--json", "--keep"}),
        (("pair", "--plu"), {"--plugin"}),
        (("approve", ""), set()),
    ],
)
def test_bash_offers_the_verbs_of_a_node(
    words: tuple[str, ...], wanted: set[str], tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "hermes-node.bash"
    script.write_text(hermes_node_completion.bash())
    code = (
        f'source {script}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hermes_node;'
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-u", "-c", code, "bash", "hermes-node", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == wanted


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_node_is_well_formed(
    shell: str, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    assert hermes_node.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert text == hermes_node_completion.scripts()[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(text)
    done = subprocess.run(
        [shell, "-n", str(tmp_path / "script")], capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_offers_files_elsewhere(complete, tmp_path: pathlib.Path) -> None:
    (tmp_path / "plan.md").write_text("")
    assert "plan.md" in complete("handoff", "dispatch", "pl")
    assert "plan.md" in complete("handoff", "tasks", "--config", "pl")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_every_command_and_flag(call: Caller, shell: str) -> None:
    script = call("completion", shell).out
    for words in completion.everything():
        assert words.name.split()[-1] in script
        for flag, *_ in words.flags:
            assert (flag if shell == "zsh" else f"-l {flag.removeprefix('--')}") in script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_well_formed(call: Caller, shell: str, tmp_path: pathlib.Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(call("completion", shell).out)
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


def test_unknown_shell_is_2(call: Caller) -> None:
    assert call("completion", "tcsh").code == 2
