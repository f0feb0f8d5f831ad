"""What the gate and the redactor cost beside the verdict itself (``gate_verdict.py``).

An excerpt of a large request, the comparison at the moment of the answer, a write that
asks, and redaction: one message, and a mebibyte of source text. No peer does the same work.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import ROOT, Row, main, p50

from handoff.executors.contract import FileEdit, PermissionAsked
from handoff.gate.changed import changed
from handoff.gate.examine import examine
from handoff.gate.excerpt import excerpt
from handoff.redaction import Redactor


def taken(call: Callable[[], object], times: int) -> float:
    """p50 in milliseconds."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        spent.append((time.perf_counter() - began) * 1000)
    return p50(spent)


def source(size: int) -> str:
    """Python source of this project, repeated."""
    text = "".join(p.read_text() for p in sorted((ROOT / "src" / "handoff").rglob("*.py")))
    return (text * (size // len(text) + 1))[:size]


def measure(quick: bool) -> list[Row]:
    times = 100 if quick else 1000
    redactor = Redactor(b"benchmark", {"TOKEN": "a-known-value-of-the-benchmark"})
    text = source(1 << 20)
    message = "The tests pass now; I ran them twice and committed the result on the branch.\n"
    with tempfile.TemporaryDirectory() as name:
        folder = str(Path(name).resolve())
        Path(folder, "s.sh").write_text("cat data >out\n")
        Path(folder, "data").write_text("x\n")
        outside = PermissionAsked(
            id="1",
            tool="write",
            kind="write",
            title="Write x",
            text="write /nowhere/x",
            raw='{"file_path":"/nowhere/x","content":"x"}',
            paths=("/nowhere/x",),
            edits=(FileEdit("/nowhere/x", new="x", whole=True),),
        )
        script = PermissionAsked(
            id="2",
            tool="bash",
            kind="execute",
            title="",
            text="",
            raw="",
            command="bash s.sh",
        )
        files = examine(script, work_dir=folder).files
        asks = taken(lambda: examine(outside, work_dir=folder), times)
        looked = taken(lambda: examine(script, work_dir=folder), times)
        compared = taken(lambda: changed(files, folder), times)
    return [
        Row("gate: a write outside looked at", "ms", asks, 0.2),
        Row("gate: `bash s.sh` looked into, two files pinned", "ms", looked, None),
        Row("gate: the same files compared at the answer", "ms", compared, None),
        Row("excerpt of 1 MiB", "ms", taken(lambda: excerpt(text), 20), None),
        Row("redaction of one message", "ms", taken(lambda: redactor.redact(message), times), None),
        Row("redaction of 1 MiB of source", "ms", taken(lambda: redactor.redact(text), 3), None),
    ]


if __name__ == "__main__":
    main(measure)
