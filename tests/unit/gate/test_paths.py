from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handoff.gate.paths import MAX_LINKS, Root, absolute, follow, is_protected, resolve


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A worktree `wt` beside a folder `outside`, with links between them."""
    work, outside = tmp_path / "wt", tmp_path / "outside"
    for folder in (work / "d" / "e", work / "in", outside / "deep"):
        folder.mkdir(parents=True)
    (outside / "file").write_text("o")
    (work / "file").write_text("i")
    (work / "out").symlink_to("../outside")
    (work / "up").symlink_to("../outside/deep")
    (work / "out-file").symlink_to("../outside/file")
    (work / "out-new").symlink_to("../outside/new")
    (work / "loop-a").symlink_to("loop-b")
    (work / "loop-b").symlink_to("loop-a")
    (work / "in-link").symlink_to("d")
    return work


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("file", "file"),
        ("new", "new"),
        ("d/e/new", "d/e/new"),
        ("d/none/deeper/new", "d/none/deeper/new"),
        ("./d/./e/../x", "d/x"),
        ("in-link/x", "d/x"),
        ("d//x", "d/x"),
        ("...", "..."),
        ("a~b", "a~b"),
        ("$id.tsx", "$id.tsx"),
    ],
)
def test_a_plain_path_inside_has_no_problem(tree: Path, path: str, to: str) -> None:
    for form in (path, str(tree / path)):
        target = resolve(form, str(tree), str(tree))
        assert (target.resolved, target.inside, target.protected, target.problem) == (
            str(tree / to),
            True,
            False,
            "",
        )


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("out-new", "outside/new"),
        ("out-file", "outside/file"),
        ("out/x.txt", "outside/x.txt"),
        ("up/x.txt", "outside/deep/x.txt"),
        ("../outside/x", "outside/x"),
        ("../wt-not/x", "wt-not/x"),
        ("d/../../outside/file", "outside/file"),
        ("..", ""),
    ],
)
def test_what_leads_out_is_outside_and_shows_where(tree: Path, path: str, to: str) -> None:
    target = resolve(path, str(tree), str(tree))
    assert target.inside is False
    assert target.resolved == str(tree.parent / to).rstrip("/")


def test_a_link_is_followed_before_dotdot(tree: Path) -> None:
    target = resolve("up/../x", str(tree), str(tree))
    assert target.resolved == str(tree.parent / "outside" / "x")
    assert not target.inside


def test_dotdot_that_has_two_readings_is_a_problem_even_if_one_is_inside(tree: Path) -> None:
    # By its letters `d2/../x` is `x`; the kernel makes it `d/x`, since d2 leads to d/e.
    (tree / "d2").symlink_to("d/e")
    target = resolve("d2/../x", str(tree), str(tree))
    assert target.inside
    assert target.resolved == str(tree / "d" / "x")
    assert str(tree / "x") in target.problem


def test_the_worktree_itself_is_not_inside(tree: Path) -> None:
    for path in (str(tree), ".", "d/..", str(tree) + "/"):
        target = resolve(path, str(tree), str(tree))
        assert not target.inside
        assert target.problem == "directory"


def test_a_worktree_reached_through_a_link_is_the_same_worktree(tree: Path) -> None:
    other = tree.parent / "alias"
    other.symlink_to("wt")
    assert resolve(str(other / "x"), str(tree), str(tree)).inside
    assert resolve(str(tree / "x"), str(tree), str(other)).inside
    assert resolve("x", str(other), str(other)).resolved == str(tree / "x")


def test_a_worktree_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert not resolve("x", str(gone), str(gone)).inside
    (tmp_path / "file").write_text("")
    assert not resolve("x", str(tmp_path / "file"), str(tmp_path / "file")).inside


def test_relative_paths_start_in_the_folder_and_a_relative_folder_in_the_worktree(
    tree: Path,
) -> None:
    assert resolve("x", str(tree / "d"), str(tree)).resolved == str(tree / "d" / "x")
    assert resolve("x", "d", str(tree)).resolved == str(tree / "d" / "x")
    assert not resolve("x", str(tree.parent), str(tree)).inside


def test_special_files_are_problems(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    here = os.getcwd()
    os.chdir(tree)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("sock")
    finally:
        os.chdir(here)
    (tree / "to-pipe").symlink_to("pipe")
    (tree / "null").symlink_to("/dev/null")
    expected = {
        "pipe": "FIFO",
        "to-pipe": "FIFO",
        "sock": "socket",
        "null": "device",
        "d": "directory",
        "d/": "directory",
        "in-link": "directory",
        "none/": "names a directory",
        "loop-a": "symlink loop",
        "loop-a/x": "symlink loop",
    }
    assert {p: resolve(p, str(tree), str(tree)).problem for p in expected} == expected
    assert resolve("loop-a", str(tree), str(tree)).resolved == ""


def test_a_file_on_the_way_is_a_problem(tree: Path) -> None:
    for path in ("file/x", "file/", "file/../x", "out-file/x"):
        assert "not a directory" in resolve(path, str(tree), str(tree)).problem


def test_a_hard_link_is_a_problem(tree: Path) -> None:
    os.link(tree.parent / "outside" / "file", tree / "hard")
    target = resolve("hard", str(tree), str(tree))
    assert target.inside
    assert "2 names" in target.problem


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        ("x" * 256, "name too long"),
        ("é" * 128, "name too long"),
        ("d/" * 2048 + "x", "path too long"),
        ("~/x", "home"),
        ("~", "home"),
        ("~root/x", "home"),
        ("file:///etc/passwd", "URL"),
        ("file:/etc/passwd", "URL"),
        (" x", "blanks"),
        ("x\n", "blanks"),
        ('"/etc/passwd"', "quotes"),
    ],
)
def test_letters_that_may_mean_something_else(tree: Path, path: str, problem: str) -> None:
    assert problem in resolve(path, str(tree), str(tree)).problem


def test_a_home_path_shows_the_home(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree.parent / "outside"))
    target = resolve("~/new", str(tree), str(tree))
    assert target.resolved == str(tree.parent / "outside" / "new")
    assert not target.inside
    assert absolute("~/new", "/x") == str(tree.parent / "outside" / "new")


def test_a_folder_that_may_not_be_entered(tree: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may enter everything")
    (tree / "shut").mkdir(mode=0)
    try:
        assert "can't be looked at" in resolve("shut/x", str(tree), str(tree)).problem
    finally:
        (tree / "shut").chmod(0o700)


def test_a_long_chain_of_links_is_a_loop(tree: Path) -> None:
    (tree / "l0").symlink_to("file")
    for number in range(1, MAX_LINKS + 2):
        (tree / f"l{number}").symlink_to(f"l{number - 1}")
    assert resolve(f"l{MAX_LINKS - 1}", str(tree), str(tree)).problem == ""
    assert resolve(f"l{MAX_LINKS + 1}", str(tree), str(tree)).problem == "symlink loop"


@pytest.mark.parametrize(
    "path",
    [
        ".git",
        ".git/config",
        ".git/hooks/pre-commit",
        "vendor/lib/.git",
        ".GIT/config",
        ".g\u200cit/config",
        ".git./config",
        "git~1/config",
        ".claude/settings.json",
        "sub/.claude/hooks/x.sh",
        ".opencode/plugin/x.ts",
        "opencode.json",
        "opencode.jsonc",
        ".mcp.json",
        "CLAUDE.md",
        "docs/AGENTS.md",
        ".codex/config.toml",
        ".grok/x",
        ".gemini/settings.json",
        ".github/workflows/ci.yml",
        ".github/actions/x/action.yml",
        ".gitlab-ci.yml",
        "Jenkinsfile",
        ".envrc",
        ".vscode/tasks.json",
        ".husky/pre-commit",
        ".pre-commit-config.yaml",
        ".npmrc",
        ".gitmodules",
        ".cargo/config.toml",
    ],
)
def test_protected(tree: Path, path: str) -> None:
    target = resolve(path, str(tree), str(tree))
    assert target.inside
    assert target.protected


@pytest.mark.parametrize(
    "path",
    [
        "git/x",
        ".gitignore",
        ".gitattributes",
        ".github/ISSUE_TEMPLATE/x.md",
        "workflows/ci.yml",
        "src/claude/x",
        "claude.py",
        "my.opencode.json",
        "README.md",
        "package.json",
        ".env",
    ],
)
def test_not_protected(tree: Path, path: str) -> None:
    assert not resolve(path, str(tree), str(tree)).protected


def test_a_link_to_something_protected_is_protected(tree: Path) -> None:
    (tree / ".git").mkdir()
    (tree / "innocent").symlink_to(".git")
    assert resolve("innocent/config", str(tree), str(tree)).protected
    (tree / ".claude").symlink_to("d")
    assert resolve(".claude/x", str(tree), str(tree)).protected


def test_a_worktree_below_a_protected_name_is_not_protected_by_it(tmp_path: Path) -> None:
    work = tmp_path / ".handoff" / "worktrees" / "wt"
    work.mkdir(parents=True)
    assert not resolve("x", str(work), str(work)).protected
    assert resolve("x", str(work), str(work)).inside


def test_an_absolute_path_below_a_protected_folder_is_judged_below_the_worktree(
    tmp_path: Path,
) -> None:
    work = tmp_path / ".claude" / "worktrees" / "wt"
    work.mkdir(parents=True)
    assert not resolve(str(work / "x"), str(work), str(work)).protected


def test_is_protected_takes_no_names() -> None:
    assert not is_protected([])


def test_root_compares_whole_names(tmp_path: Path) -> None:
    (tmp_path / "wt").mkdir()
    (tmp_path / "wt2").mkdir()
    root = Root(str(tmp_path / "wt"))
    assert not root.holds(str(tmp_path / "wt2" / "x"))
    assert root.holds(str(tmp_path / "wt" / "x"))
    assert root.below(str(tmp_path / "wt" / "x" / "y")) == ["x", "y"]
    # Another case is another folder where the file system tells them apart.
    same = os.path.exists(tmp_path / "WT")
    assert root.holds(str(tmp_path / "WT" / "x")) is same


_NAMES = st.sampled_from(["a", "b", "c", "..", ".", "", "ln1", "ln2", "ln3"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=7).map("/".join)
_GOALS = st.tuples(st.sampled_from(["", "ROOT/", "ROOT/wt/"]), _PATHS)


@settings(max_examples=300, deadline=None)
@given(
    folders=st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), max_size=4),
    files=st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), max_size=3),
    links=st.lists(st.tuples(_PATHS, _GOALS), max_size=5),
    path=_PATHS,
)
def test_following_is_what_the_system_does(
    folders: list[list[str]],
    files: list[list[str]],
    links: list[tuple[str, tuple[str, str]]],
    path: str,
) -> None:
    with tempfile.TemporaryDirectory() as place:
        top = os.path.realpath(place)
        work = os.path.join(top, "wt")
        os.mkdir(work)
        for folder in folders:
            try:
                os.makedirs(os.path.join(work, *folder), exist_ok=True)
            except OSError:
                continue
        for file in files:
            try:
                with open(os.path.join(work, *file), "x") as handle:
                    handle.write("x")
            except OSError:
                continue
        for number, (where, (start, goal)) in enumerate(links, 1):
            name = os.path.join(work, os.path.dirname(where), f"ln{number}")
            inside_top = os.path.realpath(os.path.dirname(name)).startswith(work)
            if not inside_top:
                continue
            try:
                os.symlink((start.replace("ROOT", top) + goal) or ".", name)
            except OSError:
                continue
        target = resolve(path, work, work) if path else None
        full = os.path.join(work, path)
        place_found = follow(full)
        if os.path.exists(full):
            assert place_found.path == os.path.realpath(full)
            assert place_found.mode == os.stat(full).st_mode
        if target is not None and target.inside and not target.problem:
            real = os.path.realpath(full)
            assert real.startswith(work + "/")
            assert target.resolved == real
            # And so it is for one who tidies the path by its letters first.
            assert os.path.realpath(os.path.normpath(full)).startswith(work + "/")
