"""Repositories as people have them, seen through the whole product."""

from __future__ import annotations

import pathlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.console import HANDOFF
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import Home, make_home
from tests.support.plans import fake_plan
from tests.support.repository import Repository
from tests.unit.workspace import repos

Build = Callable[[str], Repository]

NOTHING = {"trailer": {"none": True}}


@pytest.fixture(scope="module")
def shared_home() -> Iterator[Home]:
    """One home for the module."""
    with make_home() as home:
        yield home


@pytest.fixture(scope="module")
def shared(shared_home: Home) -> Iterator[Agentd]:
    """One agentd for the module: each test has a repository of its own."""
    with run_agentd(shared_home) as agentd:
        yield agentd


@pytest.fixture
def build(shared_home: Home, request: pytest.FixtureRequest) -> Build:
    """``build(name)``: that repository, below a folder of this test's own."""
    folder = shared_home.path / f"c{abs(hash(request.node.nodeid)) % 10**8}"
    return lambda name: Repository(repos.build(name, folder), shared_home)


def rested(agentd: Agentd, task: dict[str, Any]) -> dict[str, Any]:
    """The payload of the turn's end."""
    event = agentd.wait_event(task["id"], "completed", "turn_failed")
    payload: dict[str, Any] = event["payload"]
    return payload


def test_what_is_inside_a_submodule_is_shown(shared: Agentd, build: Build) -> None:
    repository = build("submodule")
    update = "git -c protocol.file.allow=always submodule -q update --init"
    change = "echo x >vendor/lib/new.txt && echo '#define LIB 2' >vendor/lib/lib.h"
    plan = fake_plan({"run": {"command": f"{update} && {change}", "ask": False}}, NOTHING)
    task = shared.dispatch(repository, plan)
    assert "vendor/lib" in task["notes"][0]
    assert "submodule update --init" in task["notes"][0], "how to have it in each worktree"
    found = rested(shared, task)["found"]["dirt"]
    assert found["submodules"] == ["vendor/lib"]
    names = shared.cli("diff", task["id"], "--uncommitted", "--name-only").ok().out.split()
    assert sorted(names) == ["vendor/lib/lib.h", "vendor/lib/new.txt"]
    patch = shared.cli("diff", task["id"], "--uncommitted").ok().out
    assert "+++ b/vendor/lib/new.txt\n" in patch
    assert "+#define LIB 2\n" in patch
    kept = shared.cli("done", task["id"], "--json").ok().json()["worktree"]
    assert (kept["action"], kept["reason"]) == ("kept", "submodule_work")
    assert "?? vendor/lib/new.txt" in str(kept["entries"]).replace("', '", " ")


@pytest.mark.parametrize(("how", "own"), [("rebase", 1), ("merge", 2)])
def test_what_came_in_is_not_called_the_turns(
    shared: Agentd, build: Build, how: str, own: int
) -> None:
    repository = build("moved-main")
    (repository.path / ".git" / "info" / "exclude").write_text("go\n")
    plan = fake_plan(
        {"commit": {"path": "mine.txt"}},
        {"wait_file": {"path": "go"}},
        {"git": {"args": ["fetch", "-q"]}},
        {"git": {"args": [how, "-q", "origin/main"]}},
    )
    task = shared.dispatch(repository, plan)
    repos.advance(repository.path.parent)
    (pathlib.Path(task["work_dir"]) / "go").touch()
    found = rested(shared, task)["found"]
    assert found["commits"] == own
    assert "1 came in from elsewhere" in found["why"]
    shown = shared.cli("diff", task["id"], "--name-only").ok()
    assert shown.out == "mine.txt\n"
    assert "the base moved: 1 commit" in shown.err


def test_on_a_branch_that_was_there_only_the_new_commit_is_shown(
    shared: Agentd, build: Build
) -> None:
    repository = build("plain")
    repository.git("checkout", "-q", "-b", "theirs")
    repository.commit({"one": "1"})
    second = repository.commit({"two": "2"})
    repository.git("checkout", "-q", "main")
    plan = fake_plan({"commit": {"path": "third.txt"}})
    task = shared.dispatch(repository, plan, "--branch", "theirs")
    assert (task["base_commit"], task["base_name"]) == (second, "theirs")
    assert rested(shared, task)["found"]["commits"] == 1
    assert shared.cli("diff", task["id"], "--name-only").ok().out == "third.txt\n"


def test_hooks_of_the_users_folder_stay_out_of_a_task_in_place(
    isolated_home: Home, git_repo: Repository
) -> None:
    ran = isolated_home.path / "ran.log"
    hooks = isolated_home.path / "hooks"
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        repos.script(hooks / name, f"echo $0 >>'{ran}'; sleep 600\n")
    with run_agentd(isolated_home) as agentd:
        settings = isolated_home.path / ".gitconfig"
        settings.write_text(f"{settings.read_text()}[core]\n\thooksPath = {hooks}\n")
        began = time.monotonic()
        task = agentd.dispatch(git_repo, fake_plan({"say": {"text": "x"}}, NOTHING), "--in-place")
        assert sorted(task["skipped_hooks"]) == sorted(str(hook) for hook in hooks.iterdir())
        assert any(str(hooks) in note and "set-up" in note for note in task["notes"])
        rested(agentd, task)
        back = agentd.cli("stop", task["id"]).ok().json()["worktree"]
        assert back["action"] == "restored"
        assert time.monotonic() - began < 15
    assert not ran.exists(), ran.read_text()
    assert (git_repo.path / ".git" / "HEAD").read_text() == "ref: refs/heads/main\n"


def test_in_the_middle_of_a_rebase_there_is_no_branch_called_head(
    shared: Agentd, build: Build
) -> None:
    repository = build("plain")
    conflict = (
        "git checkout -q -b other HEAD~1 && echo z >a.txt && git commit -qam z"
        " && git checkout -q - && git rebase other; true"
    )
    plan = fake_plan(
        {"write": {"path": "a.txt", "text": "mine\n"}},
        {"commit": {"path": "a.txt"}},
        {"run": {"command": conflict, "ask": False}},
        NOTHING,
    )
    task = shared.dispatch(repository, plan)
    payload = rested(shared, task)
    assert payload["branch"] == ""
    assert ["UU", "a.txt"] in payload["found"]["dirt"]["entries"]
    assert shared.show(task["id"])["task"]["branch"] == task["branch"]
    shared.cli("diff", task["id"]).ok()
    kept = shared.cli("done", task["id"], "--json").ok().json()["worktree"]
    assert (kept["action"], kept["reason"]) == ("kept", "operation")


def test_a_detached_tree_in_place_goes_back_to_its_commit(shared: Agentd, build: Build) -> None:
    repository = build("plain")
    repository.git("checkout", "-q", "--detach")
    head = repository.head()
    task = shared.dispatch(repository, fake_plan("commit"), "--in-place")
    assert task["base_commit"] == head
    rested(shared, task)
    assert shared.cli("done", task["id"]).ok().json()["worktree"]["action"] == "restored"
    assert (repository.path / ".git" / "HEAD").read_text().strip() == head


def test_a_sparse_tree_in_place_shows_no_deletion(shared: Agentd, build: Build) -> None:
    repository = build("sparse")
    before = repository.git("sparse-checkout", "list")
    plan = fake_plan({"commit": {"path": "app/new.txt"}})
    task = shared.dispatch(repository, plan, "--in-place")
    rested(shared, task)
    edit = '@@do edit {"path": "app/f1.txt", "text": "y"}\n@@do trailer {"none": true}'
    shared.cli("continue", task["id"], edit).ok()
    failed = shared.wait_event(task["id"], "turn_failed")
    assert failed["payload"]["found"]["dirt"]["entries"] == [[" M", "app/f1.txt"]]
    assert shared.cli("diff", task["id"], "--name-only").ok().out == "app/new.txt\n"
    left = shared.cli("diff", task["id"], "--uncommitted", "--name-only").ok().out
    assert left == "app/f1.txt\n"
    assert shared.cli("done", task["id"]).ok().json()["worktree"]["reason"] == "dirty"
    assert repository.git("sparse-checkout", "list") == before


def test_others_are_not_kept_waiting_by_a_large_diff(shared: Agentd, build: Build) -> None:
    repository = build("huge-line")
    plan = fake_plan({"git": {"args": ["merge", "-q", "--ff-only", "work"]}})
    task = shared.dispatch(repository, plan)
    rested(shared, task)
    took: list[float] = []
    done = threading.Event()

    def others() -> None:
        while not done.is_set():
            began = time.monotonic()
            shared.get("/api/tasks")
            took.append(time.monotonic() - began)

    beside = threading.Thread(target=others)
    beside.start()
    try:
        size = 0
        with subprocess.Popen(
            [HANDOFF, "diff", task["id"]], env=shared.home.env, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            while chunk := process.stdout.read(1 << 20):
                size += len(chunk)
        assert process.returncode == 0
    finally:
        done.set()
        beside.join()
    assert size > 24 << 20
    # 100 ms on a quiet machine; the median leaves room for a busy one.
    assert sorted(took)[len(took) // 2] < 0.1
    one = shared.cli("diff", task["id"], "--", "app.py").ok().out
    assert "+x = new\n" in one
    assert len(one) < 1000
