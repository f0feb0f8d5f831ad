"""What the end of a turn is called, and what stands behind it."""

from __future__ import annotations

import json
import pathlib

import pytest
from tests.support.daemon import Agentd
from tests.support.plans import fake_plan
from tests.support.repository import Repository

# -- claims ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "code"),
    [
        ({"commit": "fabricated"}, "unknown_commit"),
        ({"commit": "sibling"}, "not_on_branch"),
        ({"commit": "other"}, "not_on_branch"),
        ({"none": True}, "no_claim"),
        ({"commit": "head", "branch": "main"}, "wrong_branch"),
        ({"commit": "base"}, "not_new"),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_a_claim_that_git_does_not_bear_out_is_no_completion(
    agentd: Agentd, git_repo: Repository, claim: dict[str, object], code: str
) -> None:
    task = agentd.dispatch(git_repo, fake_plan("commit", {"trailer": claim}))["id"]
    woken = agentd.cli("wait", task, "--json", timeout=30).ok().lines()
    event = woken[-1]
    assert event["type"] == "turn_failed"
    payload = event["payload"]
    assert payload["code"] == code
    assert payload["reason"]
    assert payload["found"]["commits"] == 1, "what git shows stands beside the claim"
    assert (payload["claim"] is None) == (code == "no_claim")
    if claim.get("commit") == "sibling":
        assert payload["found"]["found_on"]
        assert payload["found"]["found_on"][0] in payload["reason"] + json.dumps(payload["found"])
    assert agentd.state(task) == "waiting_review"
    assert "verified" not in agentd.cli("show", task).ok().out


def test_a_second_turn_without_work_does_not_live_off_the_first(
    agentd: Agentd, git_repo: Repository
) -> None:
    task = agentd.dispatch(git_repo, fake_plan("commit"))["id"]
    agentd.wait_event(task, "completed")
    agentd.cli("continue", task, '@@do say {"text": "all good"}').ok()
    failed = agentd.wait_event(task, "turn_failed")
    assert failed["payload"]["code"] == "not_new"
    assert failed["payload"]["found"]["commits"] == 0


def test_uncommitted_work_is_shown(agentd: Agentd, git_repo: Repository) -> None:
    plan = fake_plan({"write": {"path": "left.txt", "text": "x"}}, {"trailer": {"none": True}})
    task = agentd.dispatch(git_repo, plan)["id"]
    failed = agentd.wait_event(task, "turn_failed")
    assert failed["payload"]["code"] == "no_claim"
    assert ["??", "left.txt"] in failed["payload"]["found"]["dirt"]["entries"]
    assert "left.txt" in agentd.cli("diff", task, "--uncommitted").ok().out


def test_verify_commands_decide_too(agentd: Agentd, git_repo: Repository) -> None:
    plan = fake_plan({"write": {"path": "a.txt", "text": "x"}}, "commit")
    good = agentd.dispatch(git_repo, plan, "--verify", "test -f a.txt")["id"]
    done = agentd.wait_event(good, "completed")
    assert [c["exit_code"] for c in done["payload"]["verify"]] == [0]
    bad = agentd.dispatch(git_repo, plan, "--verify", "echo seen; test -f b.txt")["id"]
    failed = agentd.wait_event(bad, "turn_failed")
    assert failed["payload"]["code"] == "verify_failed"
    assert failed["payload"]["verify"][0]["tail"] == "seen"
    assert agentd.cli("wait", bad, "--until-done", "--json", timeout=20).code == 1


# -- faults ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "code", "resets"),
    [
        ({"auth": {}}, "login", None),
        ({"error": {"code": -32000, "message": "usage limit reached, resets at 15:00"}}, "limit", "15:00"),
        ({"stop": {"reason": "max_tokens"}}, "cut_short", None),
        ({"stop": {"reason": "refusal"}}, "refused", None),
        ({"crash": {"code": 3}}, "crash", None),
    ],
    ids=["login", "limit", "cut short", "refused", "crash"],
)  # fmt: skip
def test_a_fault_is_named_and_continue_works(
    agentd: Agentd,
    git_repo: Repository,
    step: dict[str, dict[str, object]],
    code: str,
    resets: str | None,
) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"say": {"text": "I will now start."}}, step))["id"]
    event = agentd.cli("wait", task, "--json", timeout=30).ok().lines()[-1]
    assert event["type"] == "turn_failed"
    payload = event["payload"]
    assert payload["code"] == code
    assert "nothing was changed" in payload["reason"]
    told = payload["fault"].get("resets_at")
    assert (told is None) == (resets is None), "shown only if the executor told it"
    if resets:
        assert resets in told
    agentd.cli("continue", task, '@@do commit {"path": "now.txt"}').ok()
    agentd.wait_event(task, "completed")


def test_a_turn_that_says_nothing_wakes_at_once(agentd: Agentd, git_repo: Repository) -> None:
    plan = fake_plan({"stop": {"reason": "end_turn"}})
    task = agentd.dispatch(git_repo, plan)["id"]
    event = agentd.cli("wait", task, "--json", "--timeout", "10s", timeout=20).ok().lines()[-1]
    assert (event["type"], event["payload"]["code"]) == ("turn_failed", "no_claim")


# -- questions ---------------------------------------------------------------------------


@pytest.mark.parametrize("via", ["elicitation", "trailer"])
def test_a_question_waits_and_its_answer_arrives(
    agentd: Agentd, git_repo: Repository, via: str
) -> None:
    ask = {"question": "Which color?", "options": ["red", "blue"], "via": via}
    task = agentd.dispatch(git_repo, fake_plan({"ask": ask}, "commit"))["id"]
    ticket = agentd.ticket(task)
    assert ticket["kind"] == "ask"
    assert "Which color?" in ticket["request"]["question"]
    wrong = agentd.reply(task, "--approve")
    assert wrong.code == 3
    assert agentd.tickets(task)[0]["state"] == "open"
    agentd.reply(task, "--answer", "blue").ok()
    agentd.wait_event(task, "completed")
    frames = agentd.cli("attach", task, "--all", "--no-follow").ok().out
    assert "blue" in frames


# -- output ------------------------------------------------------------------------------


def test_large_output_and_noise_are_whole_and_counted(agentd: Agentd, git_repo: Repository) -> None:
    plan = fake_plan(
        {"big": {"mib": 1}}, "noise", {"malformed": {}}, {"big": {"mib": 8}}, {"run": {"command": "true"}}
    )  # fmt: skip
    task = agentd.dispatch(git_repo, plan)["id"]
    ticket = agentd.ticket(task, within=30)
    assert ticket["request"]["command"] == "true"
    told = [e["payload"]["what"] for e in agentd.events(task) if e["type"] == "unrecognised"]
    assert told, "what is no message is counted and told"
    frames = agentd.cli("attach", task, "--all", "--no-follow", "--json", timeout=30).ok().lines()
    said = sum(len(f["data"]["text"]) for f in frames if f["kind"] == "text")
    assert said >= 9 * 1024 * 1024


def test_a_line_over_the_limit_ends_the_turn_and_nobody_elses(
    agentd: Agentd, git_repo: Repository
) -> None:
    other = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}, "commit"))["id"]
    agentd.ticket(other)
    task = agentd.dispatch(git_repo, fake_plan({"big": {"mib": 96}}))["id"]
    failed = agentd.wait_event(task, "turn_failed", within=45)
    assert failed["payload"]["code"] == "protocol"
    assert "MiB" in failed["payload"]["reason"]
    agentd.reply(other, "--approve").ok()
    agentd.wait_event(other, "completed")
    agentd.cli("continue", task, '@@do commit {"path": "b.txt"}').ok()
    agentd.wait_event(task, "completed")


# -- interrupt, stop, done ---------------------------------------------------------------


def test_an_interrupt_ends_the_turn_and_keeps_the_session(
    agentd: Agentd, git_repo: Repository
) -> None:
    plan = fake_plan({"run": {"command": "touch began", "ask": False}}, {"hang": {}})
    task = agentd.dispatch(git_repo, plan)
    agentd.wait_state(task["id"], "running")
    agentd.cli("interrupt", task["id"]).ok()
    failed = agentd.wait_event(task["id"], "turn_failed")
    assert failed["payload"]["code"] == "cancelled"
    session = agentd.show(task["id"])["task"]["executor_session"]
    agentd.cli("continue", task["id"], '@@do commit {"path": "b.txt"}').ok()
    agentd.wait_event(task["id"], "completed")
    assert agentd.show(task["id"])["task"]["executor_session"] == session


def test_done_and_continue_only_in_review(agentd: Agentd, git_repo: Repository) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"run": {"command": "true"}}, "commit"))["id"]
    agentd.ticket(task)
    for command in (["done", task], ["continue", task, "more"]):
        ran = agentd.cli(*command)
        assert ran.code == 3
        assert f"handoff show {task[:8]}" in ran.err, "it says what is to be done instead"
    agentd.reply(task, "--approve").ok()
    agentd.wait_event(task, "completed")
    agentd.cli("done", task).ok()
    assert agentd.cli("stop", task).code == 3
    assert agentd.cli("continue", task, "more").code == 3
    assert agentd.state(task) == "completed"


def test_done_keeps_what_exists_nowhere_else(agentd: Agentd, git_repo: Repository) -> None:
    plan = fake_plan("commit", {"write": {"path": "left.txt", "text": "x"}})
    task = agentd.dispatch(git_repo, plan)
    agentd.wait_event(task["id"], "completed", "turn_failed")
    done = agentd.cli("done", task["id"], "--json").ok().json()
    assert done["worktree"]["action"] == "kept"
    assert (pathlib.Path(task["work_dir"]) / "left.txt").exists()
    listed = agentd.cli("reclaim", "--json").ok()
    assert task["id"] in listed.out
    refused = agentd.cli("reclaim", task["id"])
    assert refused.code == 3
    assert "left.txt" in refused.err + refused.out
    agentd.cli("reclaim", task["id"], "--force").ok()
    assert not pathlib.Path(task["work_dir"]).exists()
    assert git_repo.head(task["branch"]), "the branch stays"


def test_the_diff_is_the_same_after_the_end_and_without_the_branch(
    agentd: Agentd, git_repo: Repository
) -> None:
    task = agentd.dispatch(git_repo, fake_plan({"write": {"path": "a", "text": "x\n"}}, "commit"))
    agentd.wait_event(task["id"], "completed")
    before = agentd.cli("diff", task["id"]).ok().out
    assert "+x" in before
    agentd.cli("done", task["id"]).ok()
    assert agentd.cli("diff", task["id"]).ok().out == before
    git_repo.git("branch", "-D", task["branch"])
    assert agentd.cli("diff", task["id"]).ok().out == before
    assert agentd.cli("fetch", task["id"], "a").ok().out == "x\n"
    ran = agentd.cli("run", task["id"], "true")
    assert ran.code == 3
    assert "gone" in ran.err
