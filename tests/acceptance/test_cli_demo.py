"""``handoff demo`` as a newcomer runs it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.acceptance.pty_console import Terminal
from tests.support.console import Cli
from tests.support.leftovers import describe, marked


def scratch() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("handoff-demo-*")}


def test_the_whole_story_by_itself_leaves_nothing(cli: Cli) -> None:
    before = scratch()
    done = cli("demo", "--yes", timeout=60).ok()
    for part in ("permission g", "verified", "+def count", "accepted", "The commands were:"):
        assert part in done.out
    checks = [line for line in done.out.splitlines() if line in ("2", "4")]
    assert checks == ["4", "2"], "the fault that the remark mends, and its absence afterwards"
    assert not describe(marked(cli.home.mark))
    assert scratch() - before == set()
    assert not (cli.home.path / ".handoff").exists()


def test_the_user_decides(cli: Cli) -> None:
    playing = Terminal("demo", cwd=cli.home.path, env=cli.home.env)
    try:
        playing.expect("allow it?", 30)
        assert "Ran 1 test" not in playing.text
        playing.type("run it with pytest\n")
        assert playing.end(30) == 0
        assert "--deny --reason 'run it with pytest'" in playing.text
        assert playing.harmless()
    finally:
        playing.close()
    assert not describe(marked(cli.home.mark))


def interrupted(playing: Terminal) -> int:
    """Press Ctrl-C until it ends: one that comes between a prompt and the reading of its
    answer is held back by Python until there is an answer."""
    for _ in range(10):
        playing.type("\x03")
        try:
            return playing.end(4)
        except AssertionError:
            continue
    return playing.end(1)


def test_giving_up_in_the_middle_cleans_up(cli: Cli) -> None:
    before = scratch()
    playing = Terminal("demo", cwd=cli.home.path, env=cli.home.env)
    try:
        playing.expect("allow it?", 30)
        assert interrupted(playing) == 130
    finally:
        playing.close()
    assert not describe(marked(cli.home.mark))
    assert scratch() - before == set()


def test_without_a_terminal_it_says_what_it_needs(cli: Cli) -> None:
    refused = cli("demo")
    assert refused.code == 2
    assert "handoff demo --yes" in refused.err
