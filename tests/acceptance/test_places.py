"""Where a task works: repositories as people have them, from dispatch to the end."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest
from tests.support.console import Cli, Ran
from tests.support.daemon import Agentd
from tests.support.home import Home
from tests.support.plans import fake_plan
from tests.support.repository import Repository
from tests.unit.workspace import repos


@pytest.fixture
def build(isolated_home: Home):  # type: ignore[no-untyped-def]
    """``build(name)``: that repository, in the private home."""

    def make(name: str, folder: str = "cases") -> Repository:
        return Repository(repos.build(name, isolated_home.path / folder), isolated_home)

    return make


def dispatch(agentd: Agentd, folder: pathlib.Path, plan: str, *args: str) -> Ran:
    return agentd.cli.within(folder)("dispatch", "--json", "--prompt", "-", *args, stdin=plan)


def rested(agentd: Agentd, task: str) -> str:
    return str(agentd.wait_event(task, "completed", "turn_failed")["type"])


# -- branches ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["release", "topic/a", "-x", "a..b", "@{u}", "HEAD", "refs/heads/y", "a b"],
)  # fmt: skip
def test_an_impossible_branch_name_is_refused_and_leaves_nothing(agentd, build, name: str) -> None:
    repository = build("branch-prefix")
    before = repository.git("branch", "--list"), repository.git("worktree", "list")
    ran = dispatch(agentd, repository.path, fake_plan("commit"), f"--new-branch={name}")
    assert ran.code in (2, 3)
    assert "Traceback" not in ran.err
    assert before == (repository.git("branch", "--list"), repository.git("worktree", "list"))
    assert agentd.cli("tasks", "--json").out == ""


@pytest.mark.parametrize("name", ["ä/ö", "emoji-🚀", "a.b", "feature/1", "x" * 250])
def test_a_valid_branch_name_works_to_the_end(agentd, git_repo, name: str) -> None:
    plan = fake_plan({"write": {"path": "a", "text": "x\n"}}, "commit")
    task = dispatch(agentd, git_repo.path, plan, "--new-branch", name).ok().json()
    assert task["branch"] == name
    assert rested(agentd, task["id"]) == "completed"
    assert "+x" in agentd.cli("diff", task["id"]).ok().out
    agentd.cli("done", task["id"]).ok()
    assert git_repo.head(f"refs/heads/{name}")


def test_a_branch_called_handoff_is_no_obstacle(agentd, git_repo) -> None:
    git_repo.git("branch", "handoff")
    for _ in range(2):
        task = dispatch(agentd, git_repo.path, fake_plan("commit")).ok().json()
        assert rested(agentd, task["id"]) == "completed"
        agentd.cli("done", task["id"]).ok()


# -- names of files ----------------------------------------------------------------------


def test_every_file_name_means_itself(agentd, build) -> None:
    repository = build("names")
    plan = fake_plan({"git": {"args": ["merge", "-q", "--ff-only", "work"]}}, "commit")
    task = dispatch(agentd, repository.path, plan).ok().json()["id"]
    rested(agentd, task)
    raw = subprocess.run(
        ["git", "diff", "-z", "--name-only", "main..work"],
        cwd=repository.path,
        capture_output=True,
        check=True,
    )
    names = [os.fsdecode(n) for n in raw.stdout.split(b"\0") if n]
    assert len(names) > 15
    listed = agentd.cli("diff", task, "--json").ok().json()
    paths = {f["path"] for f in listed["files"]}
    for name in names:
        if name.isprintable():
            assert name in paths, repr(name)
            one = agentd.cli("diff", task, "--", name)
            assert one.code == 0, repr(name)
            assert one.out.count("diff --git") == 1, repr(name)
    renamed = next(f for f in listed["files"] if f["path"] == "new name.txt")
    assert renamed["old_path"] == "old name.txt"
    missing = agentd.cli("diff", task, "--", "no-such-file")
    assert missing.code == 4


def test_a_repository_with_a_difficult_path(agentd, isolated_home) -> None:
    folder = isolated_home.path / 'it\'s a "repo"\nx ä'
    folder.mkdir()
    repository = Repository(repos.plain(folder), isolated_home)
    plan = fake_plan({"write": {"path": "a", "text": "x\n"}}, "commit")
    task = dispatch(agentd, repository.path, plan).ok().json()
    assert rested(agentd, task["id"]) == "completed"
    assert "+x" in agentd.cli("diff", task["id"]).ok().out
    agentd.cli("done", task["id"]).ok()


# -- repositories with something in them ---------------------------------------------------


def test_submodules_are_named_and_nothing_is_fetched(agentd, build) -> None:
    repository = build("submodule")
    plan = fake_plan({"run": {"command": "ls -A vendor/lib | wc -l", "ask": False}}, "commit")
    task = dispatch(agentd, repository.path, plan).ok().json()
    assert task["missing_submodules"] == ["vendor/lib"]
    assert any("vendor/lib" in note for note in task["notes"])
    rested(agentd, task["id"])
    assert agentd.cli("done", task["id"], "--json").ok().json()["worktree"]["action"] == "removed"


def test_a_populated_submodule_with_work_is_kept(agentd, build) -> None:
    repository = build("submodule")
    update = "git -c protocol.file.allow=always submodule -q update --init"
    plan = fake_plan(
        {"run": {"command": f"{update} && touch vendor/lib/new.txt", "ask": False}}, "commit"
    )
    task = dispatch(agentd, repository.path, plan).ok().json()
    rested(agentd, task["id"])
    done = agentd.cli("done", task["id"], "--json").ok().json()
    assert done["worktree"]["action"] == "kept"
    assert (pathlib.Path(task["work_dir"]) / "vendor/lib/new.txt").exists()


def test_lfs_without_git_lfs_leaves_pointers_and_says_so(agentd, build) -> None:
    repository = build("lfs")
    plan = fake_plan({"run": {"command": "pwd >where", "ask": False}}, {"trailer": {"none": True}})
    task = dispatch(agentd, repository.path, plan).ok().json()
    assert any("LFS" in note.upper() for note in task["notes"])
    rested(agentd, task["id"])
    tree = pathlib.Path(task["work_dir"])
    assert (tree / "where").read_text().strip() == str(tree)
    assert (tree / "model.bin").read_text().startswith("version https://git-lfs")
    shown = agentd.cli("diff", task["id"], "--uncommitted", "--name-only").ok().out.split()
    assert shown == ["where"], "the pointer is not called modified"


def test_hooks_do_not_run_and_are_named(agentd, build, isolated_home) -> None:
    repository = build("hooks")
    (repository.path / "slow").write_text("600\n")
    log = repository.path.parent / "ran.log"
    log.unlink(missing_ok=True)
    plan = fake_plan({"say": {"text": "x"}}, {"trailer": {"none": True}})
    task = dispatch(agentd, repository.path, plan).ok().json()
    assert any(hook.endswith("/post-checkout") for hook in task["skipped_hooks"])
    rested(agentd, task["id"])
    agentd.cli("diff", task["id"]).ok()
    agentd.cli("done", task["id"]).ok()
    assert not log.exists(), log.read_text()


def test_a_sparse_checkout_stays_sparse(agentd, build) -> None:
    repository = build("sparse")
    before = repository.git("sparse-checkout", "list")
    plan = fake_plan({"write": {"path": "app/new.txt", "text": "x\n"}}, "commit")
    task = dispatch(agentd, repository.path, plan).ok().json()
    assert rested(agentd, task["id"]) == "completed"
    assert agentd.cli("diff", task["id"], "--name-only").ok().out.split() == ["app/new.txt"]
    assert agentd.cli("fetch", task["id"], "docs/f1.txt").ok().out == "docs 1\n"
    assert not (pathlib.Path(task["work_dir"]) / "docs").exists()
    agentd.cli("done", task["id"]).ok()
    assert repository.git("sparse-checkout", "list") == before


def test_the_base_is_where_one_stands(agentd, git_repo) -> None:
    linked = git_repo.path.parent / "linked"
    git_repo.git("worktree", "add", "-q", "-b", "feature", str(linked))
    other = Repository(linked, git_repo.home)
    head = other.commit({"feature.txt": "f\n"}, "feature")
    task = dispatch(agentd, linked, fake_plan("commit")).ok().json()
    assert task["base_commit"] == head
    rested(agentd, task["id"])
    other.git("checkout", "-q", "--detach")
    again = dispatch(agentd, linked, fake_plan("commit")).ok().json()
    assert again["base_commit"] == head
    assert again["project_id"] == task["project_id"]
    assert "HEAD" not in git_repo.git("branch", "--list", "--format=%(refname:short)").split()


def test_a_bare_hub_is_one_project(agentd, build) -> None:
    hub = build("bare-hub").path
    tasks = []
    for folder in (hub, hub / "main", hub / "main" / "src"):
        task = dispatch(agentd, folder, fake_plan("commit")).ok().json()
        assert rested(agentd, task["id"]) == "completed"
        agentd.cli("done", task["id"]).ok()
        tasks.append(task)
    assert len({t["project_id"] for t in tasks}) == 1


def test_the_diff_is_the_tasks_own_after_a_rebase(agentd, build, isolated_home) -> None:
    repository = build("moved-main")
    plan = fake_plan(
        {"write": {"path": "mine.txt", "text": "mine\n"}},
        "commit",
        {"wait_file": {"path": "go"}},
        {"git": {"args": ["fetch", "-q"]}},
        {"git": {"args": ["rebase", "-q", "origin/main"]}},
    )
    (repository.path / ".git" / "info" / "exclude").write_text("go\n")
    task = dispatch(agentd, repository.path, plan).ok().json()
    repos.advance(repository.path.parent)
    (pathlib.Path(task["work_dir"]) / "go").touch()
    assert rested(agentd, task["id"]) == "completed"
    shown = agentd.cli("diff", task["id"], "--name-only").ok()
    assert shown.out.split() == ["mine.txt"]
    assert "moved" in shown.err
    raw = agentd.cli("diff", task["id"], "--base", task["base_commit"], "--name-only").ok()
    assert raw.out.split() == ["mine.txt", "theirs.txt"]


# -- in place ----------------------------------------------------------------------------


def test_in_place_goes_back_and_protects_what_is_there(agentd, git_repo) -> None:
    (git_repo.path / "app.py").write_text("changed\n")
    refused = dispatch(agentd, git_repo.path, fake_plan("commit"), "--in-place")
    assert refused.code == 3
    assert "app.py" in refused.err
    git_repo.git("checkout", "-q", "--", ".")
    plan = fake_plan({"write": {"path": "a", "text": "x"}}, "commit", {"run": {"command": "true"}})
    task = dispatch(agentd, git_repo.path, plan, "--in-place").ok().json()
    assert task["work_dir"] == str(git_repo.path)
    agentd.ticket(task["id"])
    busy = dispatch(agentd, git_repo.path, plan, "--in-place")
    assert busy.code == 3
    assert task["id"][:8] in busy.err, "it says who works there"
    agentd.reply(task["id"], "--approve").ok()
    rested(agentd, task["id"])
    agentd.cli("done", task["id"]).ok()
    assert git_repo.git("symbolic-ref", "--short", "HEAD") == "main"
    assert git_repo.head(task["branch"]) != git_repo.head("main")


# -- large -------------------------------------------------------------------------------


def test_a_large_diff_streams_and_is_exact(agentd, build) -> None:
    repository = build("huge-line")
    plan = fake_plan({"git": {"args": ["merge", "-q", "--ff-only", "work"]}})
    task = dispatch(agentd, repository.path, plan).ok().json()["id"]
    rested(agentd, task)
    out = agentd.cli("diff", task, timeout=60).ok().out
    assert len(out) > 24 * 1024 * 1024
    assert "+x = new" in out
    with agentd.cli.start("diff", task) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == "d"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == "", "a closed pipe is no error"
        process.wait(timeout=20)


def test_many_untracked_files_make_a_small_event(agentd, git_repo) -> None:
    command = "mkdir node_modules && cd node_modules && seq 60000 | xargs touch"
    plan = fake_plan({"run": {"command": command, "ask": False}}, {"trailer": {"none": True}})
    task = dispatch(agentd, git_repo.path, plan).ok().json()["id"]
    failed = agentd.wait_event(task, "turn_failed", within=40)
    assert len(json.dumps(failed)) < 20_000
    dirt = failed["payload"]["found"]["dirt"]
    assert any("node_modules" in path for _, path in dirt["entries"])
    assert dirt["total"] >= 60_000 or not dirt["complete"]


# -- refusals ----------------------------------------------------------------------------


def test_each_wrong_place_has_its_own_sentence(agentd, isolated_home, cli: Cli) -> None:
    plain = isolated_home.path / "plain"
    plain.mkdir()
    empty = repos.init(isolated_home.path / "empty")
    told = set()
    for folder, args in (
        (plain, []),
        (empty, []),
        (repos.plain(isolated_home.path / "r"), ["--branch", "no-such"]),
        (isolated_home.path / "r" / "plain", ["--base", "no-such"]),
        (isolated_home.path / "r" / "plain", ["--base=--output=x"]),
    ):
        ran = agentd.cli.within(folder)("dispatch", "--prompt", "@@do commit", *args)
        assert ran.code in (1, 2, 3, 4), (folder, args)
        assert ran.err.startswith("handoff: ")
        assert "Traceback" not in ran.err
        told.add(ran.err)
    assert len(told) == 5
    assert not (isolated_home.path / "r" / "plain" / "x").exists()
    assert agentd.cli("tasks", "--json").out == ""


def test_setup_makes_a_fresh_worktree_ready(isolated_home) -> None:
    from tests.support.daemon import run_agentd
    from tests.support.repository import make_repository

    extra = "setup:\n  copy: [.env.local]\n  command: test -f .env.local && echo ready >ready.txt\n"
    with run_agentd(isolated_home, extra) as agentd:
        repository = make_repository(isolated_home)
        repository.commit({".gitignore": ".env.local\nready.txt\n"})
        (repository.path / ".env.local").write_text("KEY=1\n")
        task = dispatch(agentd, repository.path, fake_plan("commit")).ok().json()
        assert rested(agentd, task["id"]) == "completed"
        tree = pathlib.Path(task["work_dir"])
        assert (tree / "ready.txt").read_text() == "ready\n"
        steps = [e["payload"]["step"] for e in agentd.events(task["id"]) if e["type"] == "setup"]
        assert steps == ["copy", "command", "ended"]
        without = dispatch(agentd, repository.path, fake_plan("commit"), "--no-setup").ok().json()
        rested(agentd, without["id"])
        assert not (pathlib.Path(without["work_dir"]) / "ready.txt").exists()


def test_a_failing_setup_fails_the_task_and_leaves_nothing(isolated_home) -> None:
    from tests.support.daemon import run_agentd
    from tests.support.repository import make_repository

    with run_agentd(isolated_home, "setup:\n  command: echo broken; exit 3\n") as agentd:
        repository = make_repository(isolated_home)
        ran = dispatch(agentd, repository.path, fake_plan("commit"))
        assert ran.code == 1
        assert "broken" in ran.err
        (task,) = agentd.cli("tasks", "--json").lines()
        assert task["state"] == "failed"
        agentd.cli("wait", task["id"], "--follow", "--json", timeout=20)
        assert not pathlib.Path(task["work_dir"]).exists()
        assert repository.git("branch", "--list", "handoff*") == ""
