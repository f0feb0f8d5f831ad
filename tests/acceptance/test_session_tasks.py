"""Sessions and tasks as one story: a task from a record, a record of a task."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.console import Cli
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import Home
from tests.support.plans import fake_plan
from tests.support.repository import Repository

RULE = "Never touch the public API"


def state(**more: Any) -> dict[str, Any]:
    return {
        "schema": "handoff-state/2",
        "goal": {"text": "Make the parser total", "done_when": ["pytest -q passes"]},
        "constraints": [{"id": "c1", "text": RULE, "kind": "must_not", "basis": "reported"}],
        "next_steps": [{"id": "n1", "text": "Run `pytest -q`"}],
        "omissions": [],
        **more,
    }


def big(size: int) -> dict[str, Any]:
    """A state of about that many bytes, its lines numbered."""
    texts = [
        "\n".join(f"item {number} line {line}: a fact of its own" for line in range(180))
        for number in range(size // 7000)
    ]
    return state(context=[{"id": f"x{n}", "text": text} for n, text in enumerate(texts)])


def create(cli: Cli, place: pathlib.Path, given: dict[str, Any], *words: str) -> str:
    text = json.dumps(given)
    made = cli("session", "create", "--workspace", str(place), *words, "-", stdin=text)
    ref: str = made.ok().json()["ref"]
    return ref


@pytest.fixture
def teed(isolated_home: Home) -> Iterator[tuple[Agentd, pathlib.Path]]:
    """agentd with an executor whose input is noted."""
    log = isolated_home.path / "agent.log"
    agent = f"{shlex.quote(sys.executable)} -m handoff.executors.fake"
    command = ["/bin/sh", "-c", f"tee -a {shlex.quote(str(log))} | {agent}"]
    with run_agentd(
        isolated_home, f"agents:\n  case:\n    command: {json.dumps(command)}\n"
    ) as made:
        yield made, log


def prompts(log: pathlib.Path) -> list[str]:
    """What the executor was given, whole."""
    found = []
    for line in log.read_text().splitlines():
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if message.get("method") == "session/prompt":
                found.append("".join(part["text"] for part in message["params"]["prompt"]))
    return found


@pytest.mark.parametrize("size", [0, 200 * 1024])
def test_a_record_reaches_an_executor_to_its_last_byte(
    teed: tuple[Agentd, pathlib.Path], git_repo: Repository, size: int
) -> None:
    agentd, log = teed
    cli = agentd.cli.within(git_repo.path)
    ref = create(cli, git_repo.path, big(size) if size else state())
    document = cli("session", "show", ref, "--json").ok().json()["document"]
    (git_repo.path / "new.py").write_text("x = 1\n")
    ask = '@@do commit {"path": "a.txt", "text": "a"}'
    task = cli("dispatch", "--from", ref, "--executor", "case", "--prompt", ask).ok().json()
    assert task["name"] == "Make the parser total"
    done = cli("wait", task["id"], "--until-done", "--timeout", "30s").ok().lines()
    assert done[-1]["type"] == "completed"
    [prompt] = prompts(log)
    assert document in prompt
    assert ask in prompt
    assert f"record: {ref}\n" in prompt
    assert "not instructions" in prompt
    assert "dirty_changed" in prompt  # the file that came since
    assert prompt.index("not instructions") < prompt.index(document)
    assert cli("show", task["id"], "--plan").ok().out.count(document) == 1


def test_a_plan_of_one_s_own_goes_before_the_record(agentd: Agentd, git_repo: Repository) -> None:
    cli = agentd.cli.within(git_repo.path)
    ref = create(cli, git_repo.path, state())
    plan = fake_plan({"commit": {"message": "First", "path": "f", "text": "x"}})
    (git_repo.path / ".git" / "plan.md").write_text(plan)
    words = ["dispatch", ".git/plan.md", "--from", ref, "--executor", "fake", "--name", "mine"]
    task = cli(*words).ok().json()
    assert task["name"] == "mine"
    cli("wait", task["id"], "--until-done", "--timeout", "20s").ok()
    sent = cli("show", task["id"], "--plan").ok().out
    assert sent.startswith(plan)
    assert RULE in sent


def test_a_record_that_can_t_be_had_starts_nothing(
    agentd: Agentd, git_repo: Repository, isolated_home: Home
) -> None:
    cli = agentd.cli.within(git_repo.path)
    ref = create(cli, git_repo.path, state())
    other = isolated_home.path / "other"
    other.mkdir()
    isolated_home.git("init", "-q", cwd=other)
    isolated_home.git("commit", "-q", "--allow-empty", "-m", "x", cwd=other)
    wrong = cli.within(other)("dispatch", "--from", ref, "--executor", "fake", "--json")
    assert (wrong.code, json.loads(wrong.err)["code"]) == (3, "workspace_mismatch")
    assert cli("dispatch", "--from", ref[:-1] + "7").code in (2, 4)
    for none in ("handoff://x/y", ""):
        refused = cli("dispatch", "--from", none, "--json")
        told = json.loads(refused.err)
        assert (refused.code, told["remedy"]) == (2, "handoff session list --help")
    assert cli("dispatch", "--from", ref, "--profile", "nobody").code in (2, 3, 4)
    huge = git_repo.path / ".git" / "huge.md"
    huge.write_text("x" * (3 * 1024 * 1024 - 100))
    over = cli("dispatch", ".git/huge.md", "--from", ref, "--json")
    assert (over.code, json.loads(over.err)["code"]) == (2, "input_too_large")
    assert cli("tasks").ok().lines() == []


def test_a_dispatch_is_seen_with_its_record(
    agentd: Agentd, git_repo: Repository, isolated_home: Home
) -> None:
    """Sessions and tasks are one story: the journal knows which task a record went to, before
    it is handed out again; and it was no opening."""
    cli = agentd.cli.within(git_repo.path)
    ref = create(cli, git_repo.path, state())
    refused = cli("dispatch", "--from", ref, "--executor", "no-such-executor", "--json")
    assert refused.code
    task = cli("dispatch", "--from", ref, "--executor", "fake", "--detach").ok().json()["id"]
    for words in (("log", ref), ("status", ref), ("status",)):
        told = cli("session", *words, "--json").ok().json()
        assert [one["state"] for one in told["deliveries"]] == ["failed", "delivered"], words
        assert told["deliveries"][1]["came_of_it"] == {"task": task}
        assert told["attempts"] == []
    read = cli("session", "read", ref, "--json").ok().json()
    [found] = [one for one in read["discrepancies"] if one["code"] == "already_delivered"]
    assert (found["severity"], task in found["message"]) == ("warn", True)
    assert cli("session", "verify", "--json").ok().json()["journal"]["deliveries"] == 2
    journal = isolated_home.path / ".handoff" / "sessions" / "journal.sqlite3"
    if journal.exists():
        journal.write_bytes(b"this is no journal")
        again = cli("dispatch", "--from", ref, "--executor", "fake", "--detach").ok()
        assert "will not show this" in again.err


def finished(agentd: Agentd, git_repo: Repository, prompt: str) -> tuple[Cli, str]:
    cli = agentd.cli.within(git_repo.path)
    words = ["--verify", "test -f a.txt", "--executor", "fake"]
    task = cli("dispatch", "--prompt", "-", *words, stdin=prompt).ok().json()["id"]
    while True:
        event = cli("wait", task, "--timeout", "20s").ok().json()
        if event["type"] == "permission_request":
            cli("reply", task, "--deny", "--reason", "no network, ever").ok()
        elif event["type"] == "question":
            cli("reply", task, "--answer", "the lexer").ok()
        elif event["type"] in ("completed", "turn_failed"):
            return cli, task


def test_a_finished_task_leaves_a_record(agentd: Agentd, git_repo: Repository) -> None:
    plan = f"{RULE}.\n\n" + fake_plan(
        {"run": {"command": "echo curl"}},
        {"ask": {"question": "Which part first?"}},
        {"write": {"path": "a.txt", "text": "one\n", "ask": False}},
        {"commit": "First"},
        {"trailer": {"summary": "wrote a.txt"}},
        title="Make the parser total",
    )
    cli, task = finished(agentd, git_repo, plan)
    done = cli("done", task, "--record", "--note", "merged by hand").ok().json()
    ref = done["record"]["ref"]
    assert done["record"]["fresh"] is True
    shown = cli("session", "show", ref, "--workspace", str(git_repo.path), "--json").ok().json()
    made, held = shown["manifest"], shown["state"]
    assert made["source"]["session_id"] == task
    assert made["source"]["host"] == "task"
    assert made["origin"] == "task"
    assert held["constraints"][0]["text"].startswith(RULE)
    assert held["constraints"][0]["basis"] == "observed"
    assert held["decisions"][0]["text"] == "Which part first?\nAnswer: the lexer"
    assert held["rejected"][0] == {
        "id": "r1",
        "text": "not allowed: echo curl",
        "why": "no network, ever",
        "evidence": [],
    }
    [verified] = held["verification"]
    head = subprocess.run(
        ["git", "rev-parse", agentd.show(task)["task"]["branch"]],
        cwd=git_repo.path,
        env=git_repo.home.env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert (verified["result"], verified["exit_code"]) == ("pass", 0)
    assert (verified["command"], verified["commit"]) == ("test -f a.txt", head)
    assert held["files"] == [{"path": "a.txt", "role": "created"}]
    assert "wrote a.txt" in held["progress"]["done"][0]["text"]
    assert held["progress"]["done"][0]["evidence"][-1] == {"kind": "git", "id": head}
    assert "merged by hand" in json.dumps(held["context"])
    assert shown["dropped"] == []

    # It is named where the task is, made once, and can be opened and dispatched as any other.
    assert cli("show", task).ok().json()["record"] == ref
    again = cli("done", task, "--record").ok().json()
    assert (again["record"]["ref"], again["record"]["fresh"]) == (ref, False)
    listed = cli("session", "list", "--workspace", str(git_repo.path), "--json").ok().json()
    assert [one["ref"] for one in listed["records"]] == [ref]


def test_a_task_from_a_record_leaves_one_that_says_so(agentd: Agentd, git_repo: Repository) -> None:
    cli = agentd.cli.within(git_repo.path)
    parent = create(cli, git_repo.path, state())
    ask = '@@do commit {"path": "a.txt", "text": "a"}\nalways be kind'
    task = (
        cli("dispatch", "--from", parent, "--executor", "fake", "--prompt", ask).ok().json()["id"]
    )
    cli("wait", task, "--until-done", "--timeout", "20s").ok()
    ref = cli("done", task, "--record").ok().json()["record"]["ref"]
    shown = cli("session", "show", ref, "--json").ok().json()
    assert shown["state"]["lineage"]["parent_ref"] == parent
    assert shown["state"]["lineage"]["depth"] == 1
    rules = {item["text"]: item["basis"] for item in shown["state"]["constraints"]}
    assert rules == {"always be kind": "observed", RULE: "inherited"}
    assert shown["dropped"] == []
    log = cli("session", "log", parent, "--json").ok().json()
    assert log["children"] == [ref]


def test_the_moment_and_the_place_of_a_record_are_checked(
    agentd: Agentd, git_repo: Repository
) -> None:
    cli, task = finished(agentd, git_repo, '@@do commit {"path": "a.txt", "text": "a"}')
    gone = cli("done", task, "--record", "--workspace", "/nowhere/at/all", "--json")
    assert (gone.code, json.loads(gone.err)["code"]) == (3, "workspace_missing")
    assert "the task is accepted" in json.loads(gone.err)["error"]
    assert "record" not in cli("show", task).ok().json()
    assert cli("done", task, "--record").ok().json()["record"]["fresh"] is True
