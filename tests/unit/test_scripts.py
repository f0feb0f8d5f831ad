"""The scripts that people and CI call."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHELL = [
    path
    for path in [*sorted((ROOT / "scripts").iterdir()), ROOT / ".ci" / "run"]
    if path.is_file() and path.read_bytes().startswith((b"#!/bin/sh", b"#!/usr/bin/env bash"))
]


@pytest.mark.parametrize("path", SHELL, ids=lambda p: p.name)
def test_a_script_is_well_formed_and_stops_at_a_fault(path: pathlib.Path) -> None:
    text = path.read_text("utf-8")
    shell = "bash" if "bash" in text.splitlines()[0] else "sh"
    done = subprocess.run([shell, "-n", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "set -eu" in text or path.name == "run", "run looks at each exit code itself"
    assert 'cd "$(dirname "$0")' in text, "it works from any folder"


def test_install_without_a_python_says_what_to_do(tmp_path: pathlib.Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "install").write_bytes((ROOT / "scripts" / "install").read_bytes())
    done = subprocess.run(
        ["sh", scripts / "install"],
        env={**os.environ, "HANDOFF_PYTHON": "/bin/false"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "3.11" in done.stderr
    assert "HANDOFF_PYTHON=" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_requirements_resolves_groups_inside_groups() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "requirements.py", "dev"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = done.stdout.split("\n")
    assert any(line.startswith("pytest>=") for line in found)
    assert any(line.startswith("ruff>=") for line in found)


def words(tree: pathlib.Path) -> tuple[int, str]:
    """The exit code and the findings of the word check on another tree."""
    (tree / "scripts").mkdir()
    script = tree / "scripts" / "words.py"
    script.write_bytes((ROOT / "scripts" / "words.py").read_bytes())
    subprocess.run(["git", "init", "-q", tree], check=True)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    return done.returncode, done.stdout


# Each with a gap, so that this file passes the check itself.
@pytest.mark.parametrize(
    "text",
    [
        "Ask the re viewer.",
        "The wor ker runs.",
        "See https://py pi.org/x.",
        "TO DO: more",
        "fixed in # 123",
        "look at /wo rk/main/x",
    ],
)
def test_words_finds_what_has_no_place(tmp_path: pathlib.Path, text: str) -> None:
    whole = text.replace("re viewer", "reviewer").replace("wor ker", "worker")
    whole = whole.replace("py pi", "py" + "pi").replace("TO DO", "TO" + "DO")
    whole = whole.replace("# 1", "#1").replace("wo rk", "wo" + "rk")
    (tmp_path / "a.md").write_text(f"# A\n\n{whole}\n")
    code, found = words(tmp_path)
    assert code == 1
    assert found.startswith("a.md:3: ")


def test_words_lets_code_and_plain_text_pass(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\nThe executor says `worker`.\n\n```text\nworker\n```\n")
    assert words(tmp_path) == (0, "")


def ci(tree: pathlib.Path, **codes: int) -> tuple[int, list[str]]:
    """The exit code and output of .ci/run in a tree whose scripts only end with a code."""
    (tree / ".ci").mkdir()
    (tree / ".ci" / "run").write_bytes((ROOT / ".ci" / "run").read_bytes())
    (tree / "README.md").write_text("$ scripts/install && scripts/test\n")
    (tree / "scripts").mkdir()
    (tree / "bin").mkdir()
    for program in ("git", "python3", "node", "npm", "apt-get"):
        (tree / "bin" / program).write_text("#!/bin/sh\n")
    for name in ("install", "check", "live-install", "test"):
        code = codes.get(name.replace("-", "_"), 0)
        says = "echo live=$HANDOFF_LIVE; echo '3 passed in 0.01s'" if name == "test" else ":"
        (tree / "scripts" / name).write_text(f"#!/bin/sh\n{says}\nexit {code}\n")
    for path in (*tree.glob("scripts/*"), *tree.glob("bin/*")):
        path.chmod(0o755)
    done = subprocess.run(
        ["bash", tree / ".ci" / "run"],
        env={"PATH": f"{tree / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


def test_ci_ends_with_the_summary_and_runs_the_real_executors(tmp_path: pathlib.Path) -> None:
    code, lines = ci(tmp_path)
    assert code == 0
    assert lines[-2:] == ["live=1", "3 passed in 0.01s"]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [({"check": 1}, 1), ({"live_install": 1}, 1), ({"test": 5}, 5), ({"check": 1, "test": 5}, 1)],
)
def test_ci_says_it_when_something_failed_and_still_ends_with_the_summary(
    tmp_path: pathlib.Path, codes: dict[str, int], expected: int
) -> None:
    code, lines = ci(tmp_path, **codes)
    assert code == expected
    assert lines[-1] == "3 passed in 0.01s"


def test_ci_stops_where_nothing_can_be_installed(tmp_path: pathlib.Path) -> None:
    code, lines = ci(tmp_path, install=1)
    assert code == 1
    assert not any("passed" in line for line in lines)
