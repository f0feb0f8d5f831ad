"""What the tests of the store share: a store, a workspace, a state."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from handoff.clock import FakeClock
from handoff.sessions.guard import RedactorGuard
from handoff.sessions.manifest import Source
from handoff.sessions.records import Draft, Records
from handoff.sessions.workspace import Binding, anchor_sha256

KEY = b"a key for tests"


def store(root: Path, **more: Any) -> Records:
    clock = more.pop("clock", None) or FakeClock()
    return Records(str(root / "handoff"), clock=clock, guard=RedactorGuard(KEY), **more)


def binding(path: str = "/projects/one") -> Binding:
    label = path.rpartition("/")[2]
    return Binding(path, path, "directory", path, anchor_sha256("directory", path), label)


def state(goal: str = "ship the parser", **more: Any) -> dict[str, Any]:
    return {
        "schema": "handoff-state/2",
        "goal": {"text": goal, "done_when": ["tests pass"]},
        "omissions": [],
        **more,
    }


def draft(given: dict[str, Any] | None = None, request: str = "request-0001", **more: Any) -> Draft:
    source = more.pop("source", None) or Source("default", "session-1", "7", "hermes", "0.22.5")
    place = more.pop("binding", None) or binding()
    return Draft(state() if given is None else given, request, place, source, **more)


def run_git(folder: Path, *args: str) -> str:
    name = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *name, *args],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(folder), "LC_ALL": "C"},
    )
    return done.stdout.strip()


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    run_git(folder, "init", "-q")
    (folder / "a.py").write_text("a = 1\n")
    (folder / "b.py").write_text("b = 1\n")
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-qm", "first")
    return folder
