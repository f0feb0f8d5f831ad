"""The loop of a coordinator, by the installed command against a real agentd."""

from __future__ import annotations

import json
import os
import pathlib

from tests.support.daemon import Agentd
from tests.support.plans import fake_plan
from tests.support.repository import Repository
from tests.support.waiting import until


def test_from_dispatch_to_acceptance(agentd: Agentd, git_repo: Repository) -> None:
    cli = agentd.cli.within(git_repo.path)
    plan = fake_plan(
        {"write": {"path": "a b.txt", "text": "one\n", "ask": False}},
        {"run": {"command": "echo ran >ran.txt"}},
        {"commit": "First"},
        {"trailer": {"summary": "did it"}},
    )
    sent = cli("dispatch", "--prompt", "-", "--verify", "test -f ran.txt", stdin=plan).ok()
    assert sent.out.count("\n") == 1
    task = sent.json()
    ident = task["id"]

    waited = cli("wait", ident[:8], "--timeout", "20s")
    assert waited.code == 0, f"{waited.err}\n{agentd.show(ident)}"
    asked = waited.json()
    assert asked["type"] == "permission_request"
    assert "echo ran >ran.txt" in asked["payload"]["permission"]
    shown = cli("show", ident, "--ticket", asked["payload"]["ref"]).ok().json()
    assert shown["request"]["command"] == "echo ran >ran.txt"

    answer = cli("reply", ident, "--approve").ok().json()
    assert answer["relayed"] is True
    done = cli("wait", ident, "--until-done", "--timeout", "20s").ok().lines()
    assert done[-1]["type"] == "completed"
    assert done[-1]["payload"]["summary"] == "did it"
    assert done[-1]["payload"]["verify"][0]["exit_code"] == 0

    assert cli("diff", ident, "--name-only").ok().out == "a b.txt\nran.txt\n"
    assert "+one\n" in cli("diff", ident).ok().out
    assert "a b.txt" not in cli("diff", ident, "--", "ran.txt").ok().out
    assert cli("diff", ident, "--", "*.txt").code == 4
    assert cli("fetch", ident, "a b.txt").ok().out == "one\n"
    assert cli("run", ident, "cat", "a b.txt").ok().out == "one\n"
    assert cli("run", ident, "exit 7").code == 7
    late = cli("run", "--timeout", "200ms", ident, "--", "sh", "-c", "echo x; sleep 60")
    assert (late.code, late.out) == (124, "x\n")
    both = cli("run", ident, "echo out; echo err >&2").ok()
    assert (both.out, both.err) == ("out\n", "err\n")

    assert cli("continue", ident, "and more").ok().json()["ok"] is True
    assert cli("wait", ident, "--until-done", "--timeout", "20s").code in (0, 1)
    accepted = cli("done", ident, "--note", "fine").ok().json()
    assert accepted["note_saved"] is True
    assert accepted["worktree"]["action"] == "removed"
    again = cli("done", ident)
    assert again.code == 0
    over = cli("wait", ident, "--until-done").ok().lines()
    assert over[-1]["type"] == "archived"
    assert cli("diff", ident, "--name-only").ok().out.splitlines()[0] == "a b.txt"
    listed = cli("tasks", "--state", "completed").ok().lines()
    assert [t["id"] for t in listed] == [ident]
    assert cli("show", ident, "--all").ok().json()["recent_events"][0]["seq"] == 1


def test_wrong_moments_have_their_exit_codes(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    cli = agentd.cli
    cli("wait", task).ok()
    assert cli("continue", task, "x").code == 3
    assert cli("done", task).code == 3
    wrong = cli("reply", task, "--answer", "yes", "--json")
    assert (wrong.code, json.loads(wrong.err)["code"]) == (3, "wrong_ticket_kind")
    assert cli("reply", task, "--ticket", "g99", "--approve").code == 4
    assert cli("show", "0000").code == 4
    assert cli("wait", task, "--timeout", "0.3s").code == 124
    stopped = cli("stop", task).ok().json()
    assert stopped["status"] == "stopped"
    assert cli("reply", task, "--approve").code == 3
    ended = cli("wait", task).ok().json()
    assert ended["type"] == "failed"
    assert cli("wait", task, "--follow", "--timeout", "10s").code == 0


def test_deny_with_a_reason_reaches_the_event(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "rm -rf /tmp/x"}}))["id"]
    agentd.cli("wait", task).ok()
    agentd.cli("reply", task, "--deny", "--reason", "not there").ok()
    agentd.cli("wait", task, "--until-done", "--timeout", "20s")
    told = [e for e in agentd.events(task) if e["type"] == "ticket_answered"]
    assert (told[0]["payload"]["decision"], told[0]["payload"]["reason"]) == ("deny", "not there")


def test_a_question_is_answered(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"ask": {"question": "Which colour?"}}))["id"]
    asked = agentd.cli("wait", task, "--timeout", "20s").ok().json()
    assert asked["type"] == "question"
    assert "Which colour?" in asked["payload"]["question"]
    agentd.cli("reply", task, "--answer", "blue").ok()
    until(lambda: agentd.tickets(task) == [], "the ticket is settled")


def test_in_place_and_project_names(agentd: Agentd, git_repo: Repository) -> None:
    cli = agentd.cli.within(git_repo.path)
    project = cli("project", "add", "mine").ok().json()
    assert project["name"] == "mine"
    assert "mine" in cli("project", "ls").ok().out
    elsewhere = agentd.cli
    plan = fake_plan({"commit": "x"})
    task = elsewhere("dispatch", "--project", "mine", "--prompt", "-", stdin=plan).ok().json()
    assert task["repo_path"] == str(git_repo.path)
    elsewhere("wait", task["id"], "--until-done", "--timeout", "20s").ok()
    elsewhere("done", task["id"]).ok()
    placed = cli("dispatch", "--in-place", "--prompt", "-", stdin=plan).ok().json()
    assert (placed["work_dir"], placed["workspace_kind"]) == (str(git_repo.path), "in_place")
    cli("wait", placed["id"], "--until-done", "--timeout", "20s").ok()
    cli("done", placed["id"]).ok()
    assert git_repo.git("branch", "--show-current") == "main"
    assert elsewhere("project", "rm", "mine").ok().json() == {"ok": True}


def test_attach_is_complete_and_ends_with_the_task(agentd: Agentd, git_repo: Repository) -> None:
    text = "größe 日本語 " * 400
    task = agentd.dispatch(git_repo, fake_plan({"say": {"text": text, "chunk": 7}}))["id"]
    agentd.cli("wait", task, "--until-done", "--timeout", "20s")
    follower = agentd.cli.start("attach", task, "--all")
    agentd.cli("stop", task).ok()
    out, err = follower.communicate(timeout=20)
    assert follower.returncode == 0, err
    assert text in out
    assert "\ufffd" not in out
    assert agentd.cli("attach", task, "--all", "--no-follow").ok().out == out


def test_status_doctor_and_housekeeping(agentd: Agentd, git_repo: Repository) -> None:
    status = agentd.cli("status", "--json").ok().json()
    assert status["reachable"] is True
    assert "fake" in agentd.cli("status").ok().out
    checks = agentd.cli("doctor", "--json").json()["checks"]
    assert {"python", "git", "config", "agentd"} <= {check["name"] for check in checks}
    assert agentd.cli("footprint").ok().out
    assert agentd.cli("reclaim").ok().out
    task = agentd.dispatch(git_repo, fake_plan({"write": {"path": "x", "text": "y", "ask": False}}))
    agentd.cli("wait", task["id"], "--until-done", "--timeout", "20s")
    agentd.cli("stop", task["id"]).ok()
    if os.path.exists(task["work_dir"]):
        refused = agentd.cli("reclaim", task["id"])
        assert refused.code == 3
        assert "?? x" in refused.out
        agentd.cli("reclaim", task["id"], "--force").ok()
    assert not pathlib.Path(task["work_dir"]).exists()


def test_over_tcp_with_the_token(agentd: Agentd) -> None:
    url = str(agentd.endpoint()["url"])
    assert agentd.cli("--agentd", url, "tasks").code == 0
    wrong = agentd.home.path / "other.yaml"
    wrong.write_text('token: "00"\n')
    wrong.chmod(0o600)
    refused = agentd.cli("tasks", "--agentd", url, "--config", str(wrong))
    assert refused.code == 5
    assert "token" in refused.err
