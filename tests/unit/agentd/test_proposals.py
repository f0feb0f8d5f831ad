"""A repository proposes; nobody obeys."""

from __future__ import annotations

import pathlib
import subprocess

import msgspec
import pytest

from handoff.agentd import proposals
from handoff.config import Config, Project, Setup, setup_of, verify_of
from handoff.workspace.contract import Project as Repository
from handoff.workspace.contract import WorkspacePlan


def plan(folder: pathlib.Path, text: str | None) -> WorkspacePlan:
    """A repository whose base commit holds that proposal."""

    def git(*args: str) -> str:
        done = subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True)
        return done.stdout.decode().strip()

    git("init", "-q", "-b", "main")
    (folder / "a").write_text("a")
    if text is not None:
        (folder / ".handoff").mkdir()
        (folder / ".handoff" / "setup.yaml").write_text(text)
    git("add", "-A", "-f")
    git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "begin")
    repository = Repository("p", "calc", str(folder), str(folder / ".git"), "")
    return WorkspacePlan(
        kind="managed",
        project=repository,
        work_dir=str(folder / "wt"),
        branch="b",
        base_commit=git("rev-parse", "HEAD"),
        base_name="main",
        makes_branch=True,
        task_id="t",
        start_dir=str(folder),
    )


PROPOSAL = "command: npm ci\ncopy: [.env]\nverify: [npm test]\n"


def test_a_proposal_is_shown_with_the_keys_to_set(tmp_path: pathlib.Path) -> None:
    lines = proposals.notes(plan(tmp_path, PROPOSAL), Config())
    assert len(lines) == 3
    assert "npm ci" in lines[0]
    assert "projects.calc.setup.command" in lines[0]
    assert ".env" in lines[1]
    assert "npm test" in lines[2]


def test_what_is_configured_already_is_not_proposed(tmp_path: pathlib.Path) -> None:
    own = Project(setup=Setup(command="npm ci", copy=(".env",)), verify=("npm test",))
    config = msgspec.structs.replace(Config(), projects={"calc": own})
    assert proposals.notes(plan(tmp_path, PROPOSAL), config) == []


@pytest.mark.parametrize("text", [None, "", "command: 3\ncopy: x\n", "[1, 2"])
def test_nothing_usable_breaks_nothing(tmp_path: pathlib.Path, text: str | None) -> None:
    lines = proposals.notes(plan(tmp_path, text), Config())
    assert len(lines) == (1 if text in ("", "[1, 2") else 0)


def test_control_signs_of_a_proposal_are_visible(tmp_path: pathlib.Path) -> None:
    lines = proposals.notes(plan(tmp_path, 'command: "rm \\u001b[2K -rf"\n'), Config())
    assert "\x1b" not in lines[0]


def test_a_projects_own_settings_win_and_empty_ones_do_not() -> None:
    config = msgspec.structs.replace(
        Config(),
        setup=Setup(command="all"),
        verify=("all",),
        projects={"calc": Project(setup=Setup(command="own")), "other": Project()},
    )
    assert setup_of(config, "calc").command == "own"
    assert setup_of(config, "other").command == "all"
    assert setup_of(config, "unknown").command == "all"
    assert verify_of(config, "calc") == ("all",)
