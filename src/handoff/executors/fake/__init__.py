"""A scripted executor: a real child process that speaks ACP and does what a script says.

It is for trying Handoff out, for the demo and for tests. It runs real commands, writes
real files and makes real commits; only the thinking is left out. The table of steps
stands in ``docs/fake-executor.md``.
"""

from __future__ import annotations

import os

#: the folder that holds this package's data files
HERE = os.path.dirname(os.path.abspath(__file__))


def demo_script() -> str:
    """The script of ``handoff demo`` as YAML."""
    with open(os.path.join(HERE, "demo.yaml"), encoding="utf-8") as handle:
        return handle.read()


def demo_plan() -> str:
    """The plan of ``handoff demo``: prose for people, and the script that is played."""
    return (
        "# Count the words\n"
        "\n"
        "Write `wordcount.py` with a function `count(text)` that returns how many words a\n"
        "text holds, and a test for it. Run the test, then commit.\n"
        "\n"
        "```handoff-script\n"
        f"{demo_script()}"
        "```\n"
    )


def plan_for(script: str, title: str = "Play a script") -> str:
    """A plan that carries ``script`` (YAML or JSON text, or ``@@do`` lines)."""
    if script.lstrip().startswith("@@do"):
        return f"# {title}\n\n{script}\n"
    return f"# {title}\n\n```handoff-script\n{script.rstrip()}\n```\n"
