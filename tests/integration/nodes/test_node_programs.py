"""What was judged is what runs, and where: whoever swaps a folder or a program meanwhile."""

from __future__ import annotations

import os
import pathlib

import pytest
from tests.integration.nodes.test_node_engine import WHO, engine, ok, refused

from handoff.errors import UsageError
from handoff.nodes.node.keeping import Keep
from handoff.wire.node import calls
from handoff.wire.node.calls import Exec

RULES = """
[exec]
default = "deny"
[[exec.rules]]
match = "git **"
verdict = "allow"
[[exec.rules]]
match = "tool **"
verdict = "allow"
[[exec.rules]]
match = "cd **"
verdict = "allow"
"""


def program(path: pathlib.Path, says: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says} $*\n")
    path.chmod(0o755)


@pytest.mark.parametrize("swap", ["link", "above"])
async def test_a_folder_that_becomes_a_link_is_not_entered(
    tmp_path: pathlib.Path, swap: str
) -> None:
    async with engine(tmp_path) as one:
        (tmp_path / "files" / "a" / "b").mkdir(parents=True)
        (tmp_path / "other" / "b").mkdir(parents=True)
        call = Exec(command=f"touch {tmp_path}/ran; pwd -P", cwd=f"{tmp_path}/files/a/b")
        order = one._execs.order("key-0001", call, 0)
        if swap == "link":
            (tmp_path / "files" / "a" / "b").rmdir()
            (tmp_path / "files" / "a" / "b").symlink_to(tmp_path / "other" / "b")
        else:
            (tmp_path / "files" / "a").rename(tmp_path / "files" / "was")
            (tmp_path / "files" / "a").symlink_to(tmp_path / "other")
        keep: Keep = await one._execs._keep()
        with pytest.raises(UsageError, match="can't start in the folder"):
            await keep.start(order)
        assert not (tmp_path / "ran").exists()
        # a link that was there when it was judged is one to where it leads
        made = await ok(one, "key-0002", call)
        assert made.stdout.head == f"{tmp_path}/other/b\n".encode()


@pytest.mark.parametrize("form", ["line", "list", "shell"])
async def test_a_rule_means_the_nodes_own_program(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    program(tmp_path / "bin" / "git", "ours")
    program(tmp_path / "files" / "git", "theirs")
    program(tmp_path / "files" / "bin" / "git", "theirs")
    program(tmp_path / "files" / "tool", "theirs")
    monkeypatch.setenv("PATH", f".:bin:{tmp_path}/bin::{os.environ['PATH']}:")
    cwd = str(tmp_path / "files")
    async with engine(tmp_path) as one:
        (tmp_path / "node" / "policy.toml").write_text(RULES)
        if form == "shell":
            await ok(one, "key-0001", calls.ShellOpen("s", cwd=cwd))
            call = Exec(command="git status", shell="s")
            other = Exec(command="tool x", shell="s")
        elif form == "line":
            call, other = Exec(command="git status", cwd=cwd), Exec(command="tool x", cwd=cwd)
        else:
            call = Exec(argv=("git", "status"), cwd=cwd)
            other = Exec(argv=("tool", "x"), cwd=cwd)
        made = await ok(one, "key-0002", call)
        assert made.stdout.head == b"ours status\n"
        good, answer = await one.call("key-0003", other, WHO)
        # what the node has no program for is not found in the brain's folder
        assert b"theirs" not in (answer.stdout.head if good else b"")
        assert (answer.exit_code if good else answer.details["code"]) == 127


async def test_a_shells_own_word_works_still(tmp_path: pathlib.Path) -> None:
    async with engine(tmp_path) as one:
        (tmp_path / "node" / "policy.toml").write_text(RULES)
        made = await ok(one, "key-0001", Exec(command="cd /"))
        assert made.exit_code == 0


async def test_a_relative_program_is_nobodys_rule(tmp_path: pathlib.Path) -> None:
    program(tmp_path / "files" / "git", "theirs")
    async with engine(tmp_path) as one:
        (tmp_path / "node" / "policy.toml").write_text(RULES)
        for number, call in enumerate((Exec(command="./git x"), Exec(argv=("./git", "x")))):
            failed = await refused(one, f"key-000{number}", call)
            assert failed.code == "policy_denied"
        (tmp_path / "node" / "policy.toml").write_text(RULES.replace("tool", "./tool"))
        failed = await refused(one, "key-0009", Exec(command="git x"))
        assert failed.code == "config_invalid"
        assert "./tool" in failed.error
