"""``kill -9`` in the middle of making a workspace, and machines that misbehave.

A wrapper named ``git`` stands first on PATH and counts the calls. At the chosen one it ends
the process that called it, before or after the real git, or ends git itself on its way.
Whatever happened: calling create again makes the workspace, and calling discard instead
leaves the repository as it was.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.unit.workspace.repos import commit, init, plain, run_git, script, write

from handoff.errors import (
    GitError,
    HandoffError,
    RepositoryLocked,
    StorageError,
    StorageFull,
    TimedOut,
    WorkspaceRefused,
)
from handoff.workspace import git, removal
from handoff.workspace.contract import Project, WorkspacePlan, WorkspaceRequest
from handoff.workspace.lock import held
from handoff.workspace.plan import plan_workspace
from handoff.workspace.state import branch_of, head_of, tree_state
from handoff.workspace.worktree import create, is_ready

REAL_GIT = shutil.which("git")

CHILD = """
import json, sys
from handoff.workspace.contract import Project, WorkspacePlan
from handoff.workspace.worktree import create
values = json.load(open(sys.argv[1]))
create(WorkspacePlan(**{**values, "project": Project(**values["project"])}))
print("done")
"""


def picture(repo):
    return (
        run_git(repo, "for-each-ref"),
        run_git(repo, "worktree", "list", "--porcelain"),
        run_git(repo, "status", "--porcelain", "--untracked-files=all", "--branch"),
        sorted(os.listdir(repo / ".git" / "worktrees"))
        if (repo / ".git" / "worktrees").exists()
        else [],
    )


def make_plan(repo, trees, number, **more):
    request = WorkspaceRequest(
        task_id=f"{number:08x}-0000-4000-8000-000000000000",
        start_dir=str(repo),
        worktrees_dir=str(trees),
        **more,
    )
    return plan_workspace(request, lambda _path: None)


def create_elsewhere(plan: WorkspacePlan, folder: Path, wrapper: str) -> bool:
    """Create in a process of its own with that git; whether it came to its end."""
    folder.mkdir(parents=True, exist_ok=True)
    script(folder / "git", wrapper)
    (folder / "plan.json").write_text(json.dumps(asdict(plan)))
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder / "plan.json")],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == -9:
        return False
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    return True


def killing_wrapper(folder: Path, number: int, how: str) -> str:
    count = f"echo x >>'{folder}/calls'; n=$(wc -l <'{folder}/calls')\n"
    act = {
        "before": "kill -9 $PPID; exit 1",
        "after": f"'{REAL_GIT}' \"$@\"; kill -9 $PPID; exit 1",
        "meanwhile": f"'{REAL_GIT}' \"$@\" & kill -9 $PPID; wait; exit 1",
    }[how]
    return f"{count}if [ $n -eq {number} ]; then {act}; fi\nexec '{REAL_GIT}' \"$@\"\n"


@pytest.mark.parametrize("then", ["create", "discard"])
@pytest.mark.parametrize("how", ["before", "after", "meanwhile"])
@pytest.mark.parametrize("more", [{}, {"branch": "feature"}, {"in_place": True}])
def test_killed_at_every_call_of_git(tmp_path, how, more, then):
    repo = plain(tmp_path)
    run_git(repo, "branch", "feature", "HEAD~1")
    before = picture(repo)
    number = 0
    ended = False
    while not ended:
        number += 1
        plan = make_plan(repo, tmp_path / "trees", number, **more)
        folder = tmp_path / str(number)
        ended = create_elsewhere(plan, folder, killing_wrapper(folder, number, how))
        if then == "create":
            create(plan)
            assert head_of(plan.work_dir) == plan.base_commit
            assert branch_of(plan.work_dir) == plan.branch
            assert tree_state(plan.work_dir).dirt.total == 0
        outcome = removal.discard(plan)
        assert outcome.action != "kept", outcome
        assert picture(repo) == before, number
        if plan.kind == "managed":
            assert os.listdir(tmp_path / "trees") == []
    assert number > 5


def test_git_itself_killed_on_its_way(tmp_path):
    repo = init(tmp_path / "big")
    for number in range(400):
        write(repo, f"d{number % 20}/f{number}", f"{number}\n" * 50)
    commit(repo, "many")
    before = picture(repo)
    for number in range(1, 10):
        plan = make_plan(repo, tmp_path / "trees", number)
        folder = tmp_path / str(number)
        wrapper = (
            f'case "$*" in "worktree add"*|reset*) \'{REAL_GIT}\' "$@" & p=$!; sleep 0.{number * 2:03}; '
            f"kill -9 $p 2>/dev/null; kill -9 $PPID; exit 1;; esac\nexec '{REAL_GIT}' \"$@\"\n"
        )
        assert not create_elsewhere(plan, folder, wrapper)
        if number % 2:
            create(plan)
            assert tree_state(plan.work_dir).dirt.total == 0
            assert is_ready(plan)
        assert removal.discard(plan).action in {"removed", "already_absent"}
        assert picture(repo) == before
        assert os.listdir(tmp_path / "trees") == []


def only_locked(admin, tree):
    shutil.rmtree(tree)
    shutil.rmtree(admin)
    write(admin, "locked", "initializing")


def empty_gitdir(admin, tree):
    only_locked(admin, tree)
    write(admin, "gitdir", "")


def no_tree(admin, tree):
    shutil.rmtree(tree)


def empty_folder(admin, tree):
    shutil.rmtree(admin)
    shutil.rmtree(tree)
    tree.mkdir()


def empty_link(admin, tree):
    write(tree, ".git", "")


def empty_commondir(admin, tree):
    write(admin, "commondir", "")


def no_head(admin, tree):
    (admin / "HEAD").unlink()


def no_index(admin, tree):
    (admin / "index").unlink()
    write(admin, "index.lock", "")


@pytest.mark.parametrize("then", ["create", "discard"])
@pytest.mark.parametrize(
    "state",
    [
        only_locked,
        empty_gitdir,
        no_tree,
        empty_folder,
        empty_link,
        empty_commondir,
        no_head,
        no_index,
    ],
)
def test_half_made_states(tmp_path, state, then):
    repo = plain(tmp_path)
    before = picture(repo)
    plan = make_plan(repo, tmp_path / "trees", 1)
    create(plan)
    admin = repo / ".git" / "worktrees" / os.path.basename(plan.work_dir)
    (admin / "handoff-ready").unlink()
    state(admin, Path(plan.work_dir))
    if then == "create":
        create(plan)
        assert is_ready(plan)
        assert tree_state(plan.work_dir).dirt.total == 0
    assert removal.discard(plan).action in {"removed", "already_absent"}
    assert picture(repo) == before


@pytest.mark.parametrize("state", [empty_link, empty_commondir, no_head])
def test_a_finished_workspace_that_broke_later_is_not_touched(tmp_path, state):
    repo = plain(tmp_path)
    plan = make_plan(repo, tmp_path / "trees", 1)
    create(plan)
    write(Path(plan.work_dir), "precious", "work")
    admin = repo / ".git" / "worktrees" / os.path.basename(plan.work_dir)
    state(admin, Path(plan.work_dir))
    with pytest.raises(WorkspaceRefused, match="not whole"):
        create(plan)
    assert removal.discard(plan).action == "kept"
    assert removal.remove(plan).action == "kept"
    assert (Path(plan.work_dir) / "precious").read_text() == "work"


def wrapped(tmp_path, monkeypatch, body):
    script(tmp_path / "bin" / "git", f"{body}\nexec '{REAL_GIT}' \"$@\"\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")


def test_git_that_hangs_is_ended_and_nothing_is_left(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    before = picture(repo)
    plan = make_plan(repo, tmp_path / "trees", 1)
    monkeypatch.setattr(git, "WRITE_LIMIT", 0.5)
    wrapped(tmp_path, monkeypatch, 'case "$*" in "worktree add"*|reset*) sleep 1000;; esac')
    with pytest.raises(TimedOut) as caught:
        create(plan)
    assert "leftovers" not in caught.value.details
    assert picture(repo) == before
    assert os.listdir(tmp_path / "trees") == []


def test_what_can_not_be_taken_back_is_named(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    plan = make_plan(repo, tmp_path / "trees", 1, new_branch="mine")
    wrapped(
        tmp_path,
        monkeypatch,
        f'case "$*" in reset*) touch "{tmp_path}/failed"; exit 9;; update-ref*) '
        f'test -e "{tmp_path}/failed" && echo "fatal: no" >&2 && exit 9;; esac',
    )
    with pytest.raises(GitError) as caught:
        create(plan)
    assert caught.value.details["leftovers"] == ["git update-ref: no"]
    monkeypatch.undo()
    assert removal.discard(plan).action == "already_absent"
    assert run_git(repo, "branch", "--list", "mine") == ""


def test_lock_file_of_a_dead_git_is_named(tmp_path):
    repo = plain(tmp_path)
    plan = make_plan(repo, tmp_path / "trees", 1, new_branch="mine")
    before = picture(repo)
    (repo / ".git" / "refs/heads/mine.lock").touch()
    with pytest.raises(RepositoryLocked, match=r"mine\.lock"):
        create(plan)
    assert picture(repo) == before


def test_second_create_waits_for_the_first(tmp_path, monkeypatch):
    repo = plain(tmp_path)
    plan = make_plan(repo, tmp_path / "trees", 1)
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    os.mkfifo(gate)
    wrapped(
        tmp_path,
        monkeypatch,
        f'case "$*" in reset*) echo x >>"{begun}"; read x <"{gate}";; esac',
    )
    outcomes = []

    def go():
        try:
            create(plan)
            outcomes.append("made")
        except HandoffError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=go) for _ in range(2)]
    for thread in threads:
        thread.start()
    with open(gate, "w") as file:
        file.write("go\n")
    for thread in threads:
        thread.join()
    assert outcomes == ["made", "made"]
    assert begun.read_text() == "x\n"


def test_lock_that_is_never_freed_is_told(tmp_path):
    with held(str(tmp_path / "lock"), "it"):
        with pytest.raises(TimedOut):
            with held(str(tmp_path / "lock"), "it", limit=0.05):
                pass
    with held(str(tmp_path), "it"):
        with pytest.raises(TimedOut):
            with held(str(tmp_path), "it", limit=0.05):
                pass
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path):
    """A 2 MiB file system at ``tmp_path/disk``."""
    disk = tmp_path / "disk"
    disk.mkdir()
    args = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(args, capture_output=True, check=False).returncode:
        pytest.skip("can't mount a small disk here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_disk_full_leaves_nothing(tmp_path, small_disk):
    repo = init(tmp_path / "big")
    for number in range(8):
        write(repo, f"f{number}", os.urandom(512 * 1024))
    commit(repo, "big")
    before = picture(repo)
    plan = make_plan(repo, small_disk / "trees", 1)
    assert any("MiB are free" in note for note in plan.notes)
    with pytest.raises((StorageFull, GitError)) as caught:
        create(plan)
    assert isinstance(caught.value, StorageFull), caught.value.details
    assert picture(repo) == before
    assert os.listdir(small_disk / "trees") == []


def test_read_only_repository_is_told(tmp_path, small_disk):
    repo = plain(small_disk)
    before = picture(repo)
    plan = make_plan(repo, tmp_path / "trees", 1)
    args = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(args, check=True)
    with pytest.raises(GitError, match="read-only") as caught:
        create(plan)
    assert "writable" in caught.value.remedy
    assert picture(repo) == before
    assert os.listdir(tmp_path / "trees") == []


def test_worktrees_folder_that_can_not_be_made(tmp_path):
    repo = plain(tmp_path)
    (tmp_path / "file").touch()
    plan = make_plan(repo, tmp_path / "file" / "trees", 1)
    with pytest.raises(StorageError) as caught:
        create(plan)
    assert str(tmp_path / "file") in str(caught.value)


def test_plans_survive_json(tmp_path):
    plan = make_plan(plain(tmp_path), tmp_path / "trees", 1)
    values = json.loads(json.dumps(asdict(plan)))
    for key in ("dirty_files", "notes", "missing_submodules", "skipped_hooks"):
        values[key] = tuple(values[key])
    assert WorkspacePlan(**{**values, "project": Project(**values["project"])}) == plan
