"""What passes, what waits, and what a coordinator sees of it: the whole way, with the
installed command and a real daemon."""

from __future__ import annotations

import os
import pathlib

import pytest
from tests.support.daemon import Agentd
from tests.support.plans import fake_plan
from tests.support.repository import Repository


def links_outside(repository: Repository) -> pathlib.Path:
    """Commit links that lead out of the tree; the folder that they lead to."""
    outside = repository.home.path / "outside"
    outside.mkdir()
    (outside / "file.txt").write_text("outside\n")
    root = repository.path
    (root / "in").mkdir()
    (root / "in" / "keep.txt").write_text("keep\n")
    for name, target in (
        ("out-file", outside / "file.txt"),
        ("out-new", outside / "new.txt"),
        ("out", outside),
        ("loop-a", "loop-b"),
        ("loop-b", "loop-a"),
    ):
        os.symlink(target, root / name)
    repository.git("add", "-A")
    repository.git("commit", "-q", "-m", "links")
    return outside


def contents(folder: pathlib.Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir()}


def test_a_write_inside_passes_and_says_so(agentd: Agentd, git_repo: Repository) -> None:
    plan = fake_plan({"write": {"path": "in/ok.txt", "text": "x\n"}}, "commit")
    task = agentd.dispatch(git_repo, plan)["id"]
    agentd.wait_state(task, "waiting_review")
    allowed = agentd.wait_event(task, "permission_allowed")
    assert allowed["payload"]["paths"][0].endswith("/in/ok.txt")
    assert not [e for e in agentd.events(task) if e["type"] == "permission_request"]


@pytest.mark.parametrize(
    "path", ["out-new", "out-file", "out/x.txt", "loop-a", ".git/hooks/post-commit", "../up.txt"]
)
def test_a_write_that_leads_out_or_is_protected_waits(
    agentd: Agentd, git_repo: Repository, path: str
) -> None:
    outside = links_outside(git_repo)
    before = contents(outside)
    plan = fake_plan({"write": {"path": path, "text": "x\n"}})
    task = agentd.dispatch(git_repo, plan)["id"]
    ticket = agentd.ticket(task)
    assert agentd.state(task) == "waiting_answer"
    target = ticket["request"]["paths"][0]
    if path.startswith("out"):
        assert target["resolved"].startswith(str(outside))
        assert not target.get("inside")
    elif path == "loop-a":
        assert target["problem"]
    assert contents(outside) == before
    agentd.reply(task, "--deny", "--reason", "not there").ok()
    agentd.wait_state(task, "waiting_review", "running", "waiting_answer")
    assert contents(outside) == before


def test_a_link_made_by_an_approved_command_is_followed(
    agentd: Agentd, git_repo: Repository
) -> None:
    outside = links_outside(git_repo)
    plan = fake_plan(
        {"run": {"command": f"ln -s {outside} d"}}, {"write": {"path": "d/x.txt", "text": "x\n"}}
    )
    task = agentd.dispatch(git_repo, plan)["id"]
    first = agentd.ticket(task)
    agentd.reply(task, "--approve").ok()
    second = agentd.ticket(task, after=first["ref"])
    assert second["request"]["paths"][0]["resolved"] == str(outside / "x.txt")
    assert not (outside / "x.txt").exists()


def script_task(agentd: Agentd, repository: Repository) -> tuple[str, pathlib.Path]:
    plan = fake_plan(
        {"write": {"path": "s.sh", "text": "echo one >>out\n"}},
        {"run": {"command": "bash s.sh"}},
        {"run": {"command": "bash s.sh"}},
        {"edit": {"path": "s.sh", "text": "echo two >>out\n"}},
        {"run": {"command": "bash s.sh"}},
    )
    task = agentd.dispatch(repository, plan)
    return task["id"], pathlib.Path(task["work_dir"])


def test_an_answer_is_refused_when_what_would_run_has_changed(
    agentd: Agentd, git_repo: Repository
) -> None:
    task, tree = script_task(agentd, git_repo)
    ticket = agentd.ticket(task)
    (tree / "s.sh").write_text("echo three >>out\n")
    refused = agentd.reply(task, "--approve")
    assert refused.code == 3
    assert "s.sh" in refused.err
    assert "echo three" in refused.err
    assert agentd.tickets(task)[0]["ref"] == ticket["ref"], "the ticket is still open"
    assert not (tree / "out").exists()
    agentd.reply(task, "--approve").ok()  # now it is about what is there
    agentd.wait_event(task, "ticket_acknowledged")


def test_equal_words_over_changed_content_are_a_new_ticket(
    agentd: Agentd, git_repo: Repository
) -> None:
    """Asked once for the first content, reused once, asked again for the second."""
    task, tree = script_task(agentd, git_repo)
    first = agentd.ticket(task)
    agentd.reply(task, "--approve").ok()
    second = agentd.ticket(task, after=first["ref"])
    reused = [e for e in agentd.events(task) if e["type"] == "permission_reuse"]
    assert [e["payload"]["prior_ticket"] for e in reused] == [first["ref"]]
    assert (tree / "out").read_text() == "one\none\n"
    assert second["request"]["command"] == first["request"]["command"]
    assert second["fingerprint"] != first["fingerprint"]


def test_an_equal_request_in_another_task_asks(agentd: Agentd, git_repo: Repository) -> None:
    plan = fake_plan({"run": {"command": "bash app.sh"}})
    git_repo.commit({"app.sh": "true\n"})
    one = agentd.dispatch(git_repo, plan)["id"]
    agentd.ticket(one)
    agentd.reply(one, "--approve").ok()
    two = agentd.dispatch(git_repo, plan)["id"]
    assert agentd.ticket(two)["state"] == "open"


def test_a_hidden_tail_is_shown_and_kept(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"preset": {"name": "tail"}}))
    ticket = agentd.ticket(task["id"])
    command = ticket["request"]["command"]
    assert command.startswith("echo building ")
    assert command.endswith("touch deceived-by-tail")
    told = agentd.wait_event(task["id"], "permission_request")["payload"]
    assert told["short"] is True
    assert told["characters"] >= len(command)
    assert "deceived-by-tail" in told["permission"], "the end is shown as well as the start"
    assert "echo building" in told["permission"]
    assert len(told["permission"]) < 2000
    full = agentd.cli(*told["full"].split()[1:]).ok()
    assert "deceived-by-tail" in full.out
    agentd.reply(task["id"], "--deny", "--reason", "no").ok()
    agentd.wait_state(task["id"], "waiting_review")
    assert not (pathlib.Path(task["work_dir"]) / "deceived-by-tail").exists()


def test_a_reason_reaches_the_executor(agentd: Agentd, git_repo: Repository) -> None:
    """This executor's protocol has no place for it: it comes as the next prompt."""
    plan = fake_plan(
        {"run": {"command": "touch never", "on_deny": "end"}}, {"say": {"text": "understood\n"}}
    )
    task = agentd.dispatch(git_repo, plan)["id"]
    agentd.ticket(task)
    agentd.reply(task, "--deny", "--reason", "use the staging database").ok()
    relayed = agentd.wait_event(task, "deny_guidance_relayed")
    assert "staging database" in relayed["payload"]["reason"]
    agentd.wait_state(task, "waiting_review")
    frames = agentd.cli("attach", task, "--all", "--no-follow").ok()
    assert "use the staging database" in frames.out


def test_a_wrong_kind_of_answer_changes_nothing(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    agentd.ticket(task)
    refused = agentd.reply(task, "--answer", "allowed if you must", "--json")
    assert refused.code == 3
    assert "wrong_ticket_kind" in refused.out + refused.err
    assert agentd.tickets(task)[0]["state"] == "open"
    status, body = agentd.call(
        "POST", f"/api/tasks/{task}/reply", {"ticket_id": "g1", "answer": "allow, but carefully"}
    )
    assert (status, body["code"]) == (409, "wrong_ticket_kind")
    assert agentd.tickets(task)[0]["state"] == "open"


def test_parallel_requests_are_separate_tickets(agentd: Agentd, git_repo: Repository) -> None:
    steps = [{"run": {"command": f"touch p{n}"}} for n in range(3)]
    task = agentd.dispatch(git_repo, fake_plan({"parallel": {"steps": steps}}, "commit"))
    seen: list[str] = []
    for _ in steps:
        ticket = agentd.ticket(task["id"], after=seen[-1] if seen else "")
        agentd.reply(task["id"], "--ticket", ticket["ref"], "--approve").ok()
        seen.append(ticket["ref"])
    agentd.wait_state(task["id"], "waiting_review", "running")
    assert len(set(seen)) == 3


def test_a_ticket_that_is_settled_takes_no_second_answer(
    agentd: Agentd, git_repo: Repository
) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}, {"hang": {}}))["id"]
    ticket = agentd.ticket(task)
    agentd.reply(task, "--approve").ok()
    again = agentd.reply(task, "--ticket", ticket["ref"], "--deny", "--json")
    assert again.code == 3
    assert "ticket_settled" in again.out + again.err
    agentd.cli("stop", task).ok()
    assert agentd.tickets(task) == []


def test_no_ticket_outlives_its_task(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}))["id"]
    agentd.ticket(task)
    agentd.cli("stop", task).ok()
    assert agentd.tickets(task) == []
    assert agentd.get(f"/api/tasks/{task}/tickets")[0]["state"] in ("void", "withdrawn")
    refused = agentd.reply(task, "--ticket", "g1", "--approve")
    assert refused.code == 3
