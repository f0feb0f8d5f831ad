"""What a brain with many nodes costs, and how long it takes until all are back.

The brain's process is the real one. The nodes are real links of the real dialler over TLS, all
in one other process, which runs no commands (``tests/support/crowd.py``); a line between them is
cut for all at once. Memory is the brain's resident set; the first twenty nodes are not counted,
for what they cost is not theirs alone.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from common import Row, cpu_seconds, main, memory_mib, until
from tests.support.crowd import crowd, linked
from tests.support.line import Line
from tests.support.nodes import Place

from handoff.nodes.client import BrainClient

FIRST = 20
WITHIN_S = 180.0


def measure(quick: bool) -> list[Row]:
    """Memory, and a storm."""
    many = 200 if quick else 1000
    with tempfile.TemporaryDirectory() as name:
        place = Place(Path(name).resolve())
        line = None
        try:
            place.serve()
            brain = BrainClient(str(place.root / "brain"), None)
            status = brain.ask("status")
            pid = status["pid"]
            line = Line(status["port"])
            count = FIRST + many
            with crowd(
                str(place.root / "brain"),
                place.root / "crowd",
                count,
                place.env(),
                line.port,
                FIRST,
            ) as child:
                until(lambda: linked(brain) == FIRST, WITHIN_S, 0.05)
                before = memory_mib(pid, "Rss")
                assert child.stdin is not None
                child.stdin.write(b"more\n")
                child.stdin.flush()
                until(lambda: linked(brain) == count, WITHIN_S, 0.05)
                each = (memory_mib(pid, "Rss") - before) * 1024 / many
                used = cpu_seconds(pid)
                began = time.perf_counter()
                line.cut()
                until(lambda: linked(brain) < many, WITHIN_S, 0.01)
                until(lambda: linked(brain) == count, WITHIN_S, 0.05)
                back = time.perf_counter() - began
                used = (cpu_seconds(pid) - used) * 1000 / count
        finally:
            place.close()
            if line is not None:
                line.close()
    return [
        Row("brain: memory of a linked node", "KiB", each, 50.0, note=f"{many:,} of them"),
        Row(f"brain: {count:,} nodes lost at once, until all are back", "s", back),
        Row("brain: processor time of a node that comes back", "ms", used),
    ]


if __name__ == "__main__":
    main(measure)
