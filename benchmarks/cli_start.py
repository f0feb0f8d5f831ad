"""What it costs to start ``handoff`` when nothing else has to happen.

Base: ``python -I -c pass`` of the same interpreter. Peer: a click program with as many
commands. Commands take turns; byte code is on disk for all of them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from common import HANDOFF, PYTHON, Row, interleaved, main, p50, ratios

PEER = '''
import click

@click.group()
def cli():
    """A program."""

def add(name):
    @cli.command(name)
    @click.option("--one", help="an option")
    @click.option("--two", type=int, default=3, help="an option")
    @click.option("--json", "as_json", is_flag=True, help="an option")
    def command(one, two, as_json):
        """A command."""

for i in range(25):
    add(f"command{i}")
'''


def measure(quick: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "peer.py").write_text(PEER)
        run = f"import sys; sys.path.insert(0, {name!r}); import peer; peer.cli(['--help'])"
        taken = interleaved(
            {
                "base": [PYTHON, "-I", "-c", "pass"],
                "help": [HANDOFF, "--help"],
                "version": [HANDOFF, "--version"],
                "completion": [HANDOFF, "completion", "bash"],
                "click": [PYTHON, "-c", run],
            },
            5 if quick else 25,
        )
    times = ratios(taken, "base")
    base = p50(taken["base"])
    peer = {"click --help": times["click"]}
    return [
        Row(
            f"`handoff {what}` over `python -I -c pass`",
            "×",
            times[name],
            1.5,
            peer,
            note=f"base {base:.1f} ms",
        )
        for name, what in (
            ("help", "--help"),
            ("version", "--version"),
            ("completion", "completion bash"),
        )
    ]


if __name__ == "__main__":
    main(measure)
