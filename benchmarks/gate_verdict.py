"""One permission, looked at: how long until the gate has ruled.

Two requests: a write inside the task's worktree, which a rule allows and for which a diff
is made; and a shell command, whose files are found and pinned, and which asks. Both touch a
real worktree. No peer does the same work.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from common import Row, main, p50

from handoff.executors.contract import FileEdit, PermissionAsked
from handoff.gate.examine import examine


def write(folder: str) -> PermissionAsked:
    path = f"{folder}/src/app.py"
    return PermissionAsked(
        id="1",
        tool="edit",
        kind="edit",
        title="Edit app.py",
        text=f"edit {path}",
        raw=json.dumps({"path": path}),
        paths=(path,),
        edits=(FileEdit(path, "VERSION = 1", "VERSION = 2"),),
    )


def shell(folder: str) -> PermissionAsked:
    command = "cd src && python app.py --verbose > ../out.txt && git add -A"
    return PermissionAsked(
        id="2",
        tool="bash",
        kind="execute",
        title=command,
        text=command,
        raw=json.dumps({"command": command}),
        command=command,
        cwd=folder,
    )


def taken(asked: PermissionAsked, folder: str, times: int, expected: str) -> float:
    """p50 in milliseconds."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        found = examine(asked, work_dir=folder)
        spent.append((time.perf_counter() - began) * 1000)
        assert found.verdict.decision == expected, found.verdict
    return p50(spent)


def measure(quick: bool) -> list[Row]:
    times = 200 if quick else 2000
    with tempfile.TemporaryDirectory() as name:
        folder = str(Path(name).resolve())
        Path(folder, "src").mkdir()
        Path(folder, "src", "app.py").write_text(
            "VERSION = 1\nimport os\n\n\nprint('hello')\n" * 20
        )
        edit = taken(write(folder), folder, times, "allow")
        command = taken(shell(folder), folder, times, "ask")
    return [
        Row("gate: verdict by rule on a write, diff included", "ms", edit, 0.2),
        Row("gate: a shell command looked at, its files pinned", "ms", command, None),
    ]


if __name__ == "__main__":
    main(measure)
