"""The decisions on a made-up tree; joining and leaving on the real one where there is one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.runs import Runs, eventually, joined, until_output, whole

from handoff.process import fence

RUN = "run-1"


class Tree:
    """A made-up /sys/fs/cgroup."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.patch = patch
        real_mkdir = os.mkdir

        def mkdir(path: str, mode: int = 0o777) -> None:
            real_mkdir(path, mode)
            for name in ("pids.max", "cgroup.procs"):
                Path(path, name).write_text("")

        patch.setattr(os, "mkdir", mkdir)
        (root / "cgroup.controllers").write_text("cpu pids\n")
        (root / "cgroup.subtree_control").write_text("")

    def own(self, group: str, controllers: str = "cpu pids", enabled: str = "") -> Path:
        """This process is in group; its parent has those controllers."""
        self.patch.setattr(fence, "_own_group", lambda: group)
        parent = Path(f"{self.root}{os.path.dirname(group)}")
        Path(f"{self.root}{group}").mkdir(parents=True, exist_ok=True)
        (parent / "cgroup.controllers").write_text(controllers + "\n")
        (parent / "cgroup.subtree_control").write_text(enabled + "\n")
        return parent


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    return Tree(tmp_path, monkeypatch)


def enclose(tree: Tree, procs: int = 100) -> str:
    return fence.enclose(RUN, procs, root=str(tree.root))


def test_beside_agentds_own_subgroup(tree: Tree):
    parent = tree.own("/user.slice/handoff.service/agentd")
    folder = enclose(tree)
    assert folder == f"{parent}/handoff-run-{RUN}"
    assert (parent / "cgroup.subtree_control").read_text().startswith("+pids")
    assert Path(folder, "pids.max").read_text() == "3200"
    assert enclose(tree) == folder  # a start that was cut short made it


def test_the_wall_is_never_too_near_for_threads(tree: Tree):
    tree.own("/a.service/agentd", enabled="cpu pids")
    assert Path(enclose(tree, 1), "pids.max").read_text() == "512"


def test_what_is_enabled_already_is_left_alone(tree: Tree):
    parent = tree.own("/a.service/agentd", enabled="cpu pids")
    assert enclose(tree)
    assert (parent / "cgroup.subtree_control").read_text() == "cpu pids\n"


@pytest.mark.parametrize(
    "group", ["/user.slice/session-3.scope", "/handoff.service", "/x/agentd/deeper"]
)
def test_a_group_that_is_not_delegated_to_us_is_not_touched(tree: Tree, group: str):
    parent = tree.own(group)
    before = sorted(str(path) for path in tree.root.rglob("*"))
    assert enclose(tree) == ""
    assert sorted(str(path) for path in tree.root.rglob("*")) == before
    assert (parent / "cgroup.subtree_control").read_text() == "\n"


def test_without_the_controller_there_is_no_fence(tree: Tree):
    tree.own("/a.service/agentd", controllers="cpu memory")
    assert enclose(tree) == ""


def test_the_root_is_used_only_as_it_is(tree: Tree):
    tree.own("/")
    assert enclose(tree) == ""
    (tree.root / "cgroup.subtree_control").write_text("pids\n")
    assert enclose(tree) == f"{tree.root}/handoff-run-{RUN}"


def test_no_limit_no_fence(tree: Tree):
    tree.own("/a.service/agentd")
    assert enclose(tree, 0) == ""


def test_no_second_hierarchy_no_fence(tree: Tree):
    tree.own("/a.service/agentd")
    (tree.root / "cgroup.controllers").unlink()
    assert enclose(tree) == ""
    tree.patch.setattr(fence, "_own_group", lambda: None)
    assert enclose(tree) == ""


def test_a_group_that_cannot_be_limited_is_taken_back(tree: Tree):
    parent = tree.own("/a.service/agentd", enabled="pids")
    tree.patch.undo()  # so that the new folder has no pids.max
    tree.patch.setattr(fence, "_own_group", lambda: "/a.service/agentd")
    assert enclose(tree) == ""
    assert not (parent / f"handoff-run-{RUN}").exists()


@pytest.mark.parametrize("run_id", ["", "run-2", "handoff-run-run-1"])
def test_only_the_runs_own_group_is_shut_or_removed(tree: Tree, run_id: str):
    tree.own("/a.service/agentd")
    folder = enclose(tree)
    assert not fence.shut(folder, run_id)
    assert not fence.release(folder, run_id)
    assert Path(folder, "pids.max").read_text() == "3200"
    for foreign in ("", "/", "/sys/fs/cgroup", str(tree.root)):
        assert not fence.shut(foreign, run_id)
        assert not fence.release(foreign, run_id)
        assert not fence.shut(foreign, RUN)


def test_shutting(tree: Tree):
    tree.own("/a.service/agentd")
    folder = enclose(tree)
    assert fence.shut(folder, RUN)
    assert Path(folder, "pids.max").read_text().startswith("0")
    assert not fence.shut(folder + "/gone/handoff-run-run-1", RUN)


def test_releasing_twice_is_fine(tmp_path: Path):
    folder = tmp_path / f"handoff-run-{RUN}"
    folder.mkdir()
    assert fence.release(str(folder), RUN)
    assert fence.release(str(folder), RUN)
    folder.mkdir()
    (folder / "busy").mkdir()
    assert not fence.release(str(folder), RUN)


def test_this_process_is_in_some_group():
    own = fence._own_group()
    assert own is None or own.startswith("/")


@pytest.fixture
def real_group() -> Iterator[str]:
    """A group of our own in the machine's v2 hierarchy; it has no limits."""
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if os.path.exists(f"{root}/cgroup.procs") and os.access(root, os.W_OK):
            run_id = f"test-{secrets.token_hex(6)}"
            folder = f"{root}/handoff-run-{run_id}"
            try:
                os.mkdir(folder)
            except OSError:
                break
            yield folder
            fence.release(folder, run_id)
            return
    pytest.skip("no cgroup v2 that may be written")


async def test_the_executor_is_in_its_group_and_the_shim_is_not(runs: Runs, real_group: str):
    run_id = os.path.basename(real_group).removeprefix("handoff-run-")
    shim = await runs.sh(
        "(sleep 60 &); cat /proc/self/cgroup; read x", cgroup=real_group, run_id=run_id
    )
    own = os.path.basename(real_group).encode()
    assert own in await until_output(shim, own)

    def two_inside() -> set[int]:  # cat has yet to go
        inside = {int(pid) for pid in Path(real_group, "cgroup.procs").read_text().split()}
        return inside if len(inside) == 2 else set()

    inside = await eventually(two_inside)
    assert isinstance(inside, set)
    assert shim.shim_pid not in inside and os.getpid() not in inside
    await shim.end(0)
    await whole(shim)
    assert not os.path.exists(real_group)


async def test_a_group_that_cannot_be_joined_is_told_and_the_run_goes_on(runs: Runs):
    shim = await runs.sh("echo on", cgroup=f"{runs.root}/handoff-run-nowhere")
    records = await whole(shim)
    assert b"no cgroup for this run" in joined(records, "stderr")
    assert joined(records, "stdout") == b"on\n"
