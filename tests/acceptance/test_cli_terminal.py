"""What a person sees, on a real pseudo-terminal against a real agentd."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.acceptance.pty_console import Terminal
from tests.support.console import Cli
from tests.support.daemon import Agentd
from tests.support.plans import fake_plan
from tests.support.repository import Repository
from tests.support.waiting import until

Open = Callable[..., Terminal]


@pytest.fixture
def screen(agentd: Agentd) -> Iterator[Open]:
    opened: list[Terminal] = []

    def start(*args: str, cwd: Path | None = None) -> Terminal:
        opened.append(Terminal(*args, cwd=cwd or agentd.home.path, env=agentd.home.env))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


HOSTILE = "echo \x1b[2J\x1b]0;owned\x07 \u202egnp.exe\u2069 \u200bz\rX"


def test_a_request_is_harmless_complete_by_one_command_and_answered(
    agentd: Agentd, git_repo: Repository, screen: Open
) -> None:
    command = HOSTILE + "\n" + "\n".join(f"true {n}" + " " * 300 for n in range(200)) + "\nrm -rf x"
    (git_repo.path / "plan.md").write_text(fake_plan({"run": {"command": command}}))
    made = screen("dispatch", "plan.md", cwd=git_repo.path)
    assert made.end() == 0
    assert made.harmless()
    task = str(agentd.cli("tasks").ok().lines()[0]["id"])
    assert f"handoff wait {task[:8]}" in made.text

    waiting = screen("wait", task)
    assert waiting.end() == 0
    assert waiting.harmless()
    shown = waiting.text
    assert "⟨U+001B⟩" in shown
    assert "shortened:" in shown
    assert "rm -rf x" in shown, "the end of what is asked must be seen"

    full = re.search(r"in full: (handoff show .*?)\)", shown)
    assert full is not None
    looked = screen(*shlex.split(full[1])[1:])
    assert looked.end() == 0
    assert looked.harmless()
    assert "true 100" in looked.text

    overview = screen("show", task)
    assert overview.end() == 0
    assert overview.harmless()
    assert "rm -rf x" in overview.text
    assert "300 blanks" in overview.text
    deny = next(line for line in shown.splitlines() if "--deny" in line)
    answered = screen(*shlex.split(deny)[1:])
    assert answered.end() == 0
    assert "denied: " in answered.text


def test_lists_are_tables(agentd: Agentd, git_repo: Repository, screen: Open) -> None:
    plan = fake_plan({"ask": {"question": "?"}})
    task = agentd.dispatch(git_repo, plan, "--name", "日本語の名前 " * 20)["id"]
    agentd.wait_state(task, "waiting_answer")
    listed = screen("tasks")
    assert listed.end() == 0
    assert listed.harmless()
    assert "TASK" in listed.text
    assert "1 open ticket" in listed.text
    from handoff.cli.terminal import width

    assert [line for line in listed.text.splitlines() if width(line) > 80] == []
    status = screen("status")
    assert status.end() == 0
    assert "fake (default)" in status.text


def test_a_huge_line_is_cut_on_the_screen_and_whole_in_a_pipe(
    agentd: Agentd, git_repo: Repository, screen: Open
) -> None:
    command = "head -c 25165824 /dev/zero | tr '\\0' x >data.txt; echo changed >>app.py"
    task = agentd.dispatch(
        git_repo, fake_plan({"run": {"command": command, "ask": False}}, {"commit": "big"})
    )["id"]
    agentd.cli("wait", task, "--until-done", "--timeout", "20s").ok()
    shown = screen("diff", task)
    assert shown.end() == 0
    assert len(shown.seen) < 20_000
    assert "[line of 24.0 MiB, cut here]" in shown.text
    assert "+changed" in shown.text
    assert len(agentd.cli("diff", task).ok().out) > 25165824


def test_attach_follows_and_ctrl_c_leaves_the_task_alone(
    agentd: Agentd, git_repo: Repository, screen: Open
) -> None:
    task = agentd.dispatch(
        git_repo, fake_plan({"say": {"text": f"hello {HOSTILE}"}}, {"run": {"command": "true"}})
    )["id"]
    watching = screen("attach", task)
    watching.expect("◆ permission g1")
    watching.type("\x03")
    assert watching.end() == 0
    assert watching.harmless()
    assert "the task goes on" in watching.text
    assert agentd.state(task) == "waiting_answer"


def test_attach_survives_a_restart_of_agentd(
    agentd: Agentd, git_repo: Repository, screen: Open
) -> None:
    task = agentd.dispatch(
        git_repo,
        fake_plan(
            {"say": {"text": "before"}}, {"run": {"command": "true"}}, {"say": {"text": "after"}}
        ),
    )["id"]
    watching = screen("attach", task)
    watching.expect("◆ permission g1")
    agentd.restart(hard=True)
    watching.expect("connected again")
    agentd.cli("reply", task, "--approve").ok()
    watching.expect("after")
    assert watching.text.count("before") == 1 + watching.text.count('"before"')


def test_wait_is_interrupted_at_once(agentd: Agentd, git_repo: Repository, screen: Open) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"sleep": {"seconds": 60}}))["id"]
    waiting = screen("wait", task)
    until(lambda: agentd.show(task)["task"]["watchers"] == 1, "somebody waits")
    waiting.type("\x03")
    assert waiting.end(5) == 130
    assert "Traceback" not in waiting.text


def test_init_asks_and_keeps_what_is_there(cli: Cli) -> None:
    env, home = cli.home.env, cli.home.path
    asking = Terminal("init", cwd=home, env=env)
    try:
        asking.expect("default executor [")
        asking.type("nonsense\n")
        asking.expect("'nonsense' is none of:")
        asking.type("fake\n")
        assert asking.end() == 0
        assert "(default executor: fake)" in asking.text
    finally:
        asking.close()
    before = (home / ".handoff" / "config.yaml").read_bytes()
    again = Terminal("init", cwd=home, env=env)
    try:
        assert again.end() == 0
        assert "kept" in again.text
    finally:
        again.close()
    assert (home / ".handoff" / "config.yaml").read_bytes() == before


def test_init_given_up_writes_nothing(cli: Cli) -> None:
    asking = Terminal("init", cwd=cli.home.path, env=cli.home.env)
    try:
        asking.expect("default executor [")
        asking.type("\x04")
        assert asking.end() == 1
    finally:
        asking.close()
    assert not (cli.home.path / ".handoff").exists()


@pytest.mark.parametrize("end", ["done", "stop"])
def test_a_worktree_that_is_kept_is_shown_with_what_keeps_it(
    agentd: Agentd, git_repo: Repository, screen: Open, end: str
) -> None:
    plan = fake_plan(
        {"commit": {"message": "x", "path": "a.txt", "text": "a\n"}},
        {"write": {"path": "left.txt", "text": "left\n"}},
    )
    task = str(agentd.dispatch(git_repo, plan)["id"])
    agentd.cli("wait", task).ok()

    ended = screen(end, task)
    assert ended.end() == 0, ended.text
    assert "?? left.txt" in ended.text
    remedy = f"handoff reclaim {task[:8]} --force"
    assert remedy in ended.text
    agentd.cli(*remedy.split()[1:]).ok()
