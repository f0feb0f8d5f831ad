"""What the end of a turn means."""

from __future__ import annotations

import pytest
from tests.unit.agentd.harness import CLAIM, Box, PlainDriver

from handoff.agentd import outcome, tickets, turns
from handoff.errors import BadTransition, Failed, NotAllowed
from handoff.executors.contract import Fault, Session, StartFailed, TurnEnded


def last(box: Box) -> tuple[str, dict[str, object]]:
    return box.events()[-1]


def test_a_claim_that_git_bears_out_is_completed(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text=f"All done.\n{CLAIM}"))
    assert box.core.task.state == "running"
    box.verify()
    kind, payload = last(box)
    assert kind == "completed"
    assert payload["code"] == "verified"
    assert box.core.task.state == "waiting_review"


@pytest.mark.parametrize("code", ["unknown_commit", "not_on_branch", "wrong_branch"])
def test_a_claim_that_git_denies_is_not_completed(box: Box, code: str) -> None:
    box.start()
    box.end_turn(TurnEnded(text=CLAIM))
    box.verify(code)
    kind, payload = last(box)
    assert kind == "turn_failed"
    assert payload["code"] == code
    assert payload["claim"] is not None
    assert payload["found"] is not None
    assert "completed" not in box.types()


def test_no_claim_says_that_nothing_was_claimed_and_nothing_changed(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text="I will now start."))
    box.verify("no_claim", commits=0)
    kind, payload = last(box)
    assert kind == "turn_failed"
    assert payload["code"] == "no_claim"
    assert "nothing was changed" in str(payload["reason"])


def test_a_claim_without_a_commit_stands_if_nothing_was_to_commit(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text='{"summary": "looked at it"}'))
    box.verify("no_commit_claimed", commits=0)
    assert last(box)[0] == "completed"


def test_a_claim_without_a_commit_falls_if_there_are_commits(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text='{"summary": "did it"}'))
    box.verify("no_commit_claimed", commits=2)
    assert last(box)[0] == "turn_failed"


def test_a_fault_carries_its_code_and_the_executors_own_reset_time(box: Box) -> None:
    box.start()
    fault = Fault(code="limit", message="usage limit reached", resets_at="15:00")
    box.end_turn(TurnEnded(text="", fault=fault))
    box.verify("no_claim", commits=0)
    kind, payload = last(box)
    assert kind == "turn_failed"
    assert payload["code"] == "limit"
    assert "15:00" in str(payload["reason"])


def test_a_failed_verify_command_is_not_completed(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text=CLAIM))
    check = {"command": "make test", "exit_code": 2, "timed_out": False}
    found = {"code": "verified", "why": "", "head": "c" * 40, "branch": "b", "commits": 1}
    effect_id = box.effect("verify")
    result = {"found": found, "verify": [check]}
    box.step(lambda core: outcome.verified(core, effect_id, result))
    kind, payload = last(box)
    assert kind == "turn_failed"
    assert payload["code"] == "verify_failed"
    assert "make test" in str(payload["reason"])


def test_a_failed_turn_can_be_continued(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text="", fault=Fault(code="network", message="no route")))
    box.verify("no_claim", commits=0)
    box.step(lambda core: turns.continue_(core, "again", "a" * 40, "me"))
    assert box.core.task.state == "running"
    assert box.inputs[-1][2].startswith(b"prompt")
    box.end_turn(TurnEnded(text=CLAIM))
    box.verify()
    assert last(box)[0] == "completed"


def test_a_question_at_the_end_waits_and_its_answer_is_the_next_prompt(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text='{"ask": "which one?"}'))
    assert box.core.task.state == "waiting_answer"
    ticket = box.core.open_tickets()[0]
    box.step(lambda core: tickets.answer(core, core.tickets[ticket.id], "", "", [["this"]], "me"))
    assert box.core.task.state == "running"
    assert box.inputs[-1][2] == b'prompt "this"\n'
    assert box.core.must_turn().number == 1


def test_the_answer_to_a_left_question_starts_a_new_process_if_none_is_left(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text='{"ask": "which one?"}'))
    box.step(lambda core: turns.run_exited(core, 0))
    assert box.core.task.state == "waiting_answer"
    ticket = box.core.open_tickets()[0]
    box.step(lambda core: tickets.answer(core, core.tickets[ticket.id], "", "", [["this"]], "me"))
    box.start_run("resumed")
    assert box.inputs[-1][2] == b'prompt "this"\n'
    box.deliver_all()
    assert box.ticket("q1")["delivered_at"] is not None


def test_a_lost_context_is_told_the_plan_again(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text=CLAIM))
    box.verify()
    box.step(lambda core: turns.run_exited(core, 0))
    box.step(lambda core: turns.continue_(core, "more", "c" * 40, "me"))
    box.start_run("lost")
    sent = box.inputs[-1][2].decode()
    assert "do it" in sent
    assert "more" in sent


def test_a_session_that_is_gone_is_begun_anew_once(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text=CLAIM))
    box.verify()
    box.step(lambda core: turns.run_exited(core, 0))
    box.step(lambda core: turns.continue_(core, "more", "c" * 40, "me"))
    session = Session(cwd="/", new_id="n", resume="s1")
    started = box.effect("start_run")
    box.step(lambda core: turns.run_started(core, started, PlainDriver(), session, {}))
    lost = StartFailed(Fault("start", "no conversation found"), lost=True)
    box.step(lambda core: turns.take(core, [lost]))
    assert box.core.task.session_id == ""
    assert box.core.task.state == "running"
    box.start_run("new")
    sent = box.inputs[-1][2].decode()
    assert "do it" in sent
    assert "more" in sent
    box.step(lambda core: turns.take(core, [StartFailed(Fault("login", "log in"), lost=False)]))
    box.verify("no_claim", commits=0)
    assert last(box)[0] == "turn_failed"


def test_an_executor_that_dies_in_its_turn_fails_the_turn(box: Box) -> None:
    box.start()
    box.ask_permission("p1")
    box.step(lambda core: turns.run_exited(core, -9))
    assert box.ticket("g1")["state"] == "withdrawn"
    box.verify("no_claim", commits=0)
    kind, payload = last(box)
    assert kind == "turn_failed"
    assert payload["code"] == "crash"
    assert box.core.task.state == "waiting_review"


def test_stop_before_the_start_wins(box: Box) -> None:
    box.step(turns.admit)
    effect_id = box.effect("prepare")
    box.step(lambda core: turns.stop(core, "me"))
    assert box.core.task.state == "failed"
    assert [e.kind for e in box.core.effects] == ["cleanup"]
    with pytest.raises(BadTransition):
        box.step(lambda core: turns.continue_(core, "x", "", "me"))
    assert effect_id not in [e.id for e in box.core.effects]


def test_a_task_that_could_not_start_is_over_and_says_why(box: Box) -> None:
    box.step(turns.admit)
    effect_id = box.effect("prepare")
    error = Failed("no space", remedy="make room")
    box.step(lambda core: turns.start_failed(core, effect_id, error))
    kind, payload = last(box)
    assert kind == "failed"
    assert payload["reason"] == "no space"
    assert payload["remedy"] == "make room"
    assert box.core.task.state == "failed"


def test_done_needs_a_task_at_rest(box: Box) -> None:
    box.start()
    with pytest.raises(BadTransition):
        box.step(lambda core: turns.done(core, "", "me"))
    assert box.core.task.state == "running"
    assert "archived" not in box.types()


def test_done_ends_everything(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text=CLAIM))
    box.verify()
    box.step(lambda core: turns.done(core, "fine", "me"))
    assert box.core.task.state == "completed"
    assert [e.kind for e in box.core.effects] == ["end_run", "cleanup"]
    assert last(box) == ("archived", {"note": "fine"})


def test_a_second_turn_without_work_is_judged_by_its_own_start(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text=CLAIM))
    box.verify()
    box.step(lambda core: turns.continue_(core, "again", "c" * 40, "me"))
    assert box.core.must_turn().start_head == "c" * 40
    box.end_turn(TurnEnded(text="Hm."))
    box.verify("no_claim", commits=0)
    assert last(box)[0] == "turn_failed"


def test_there_is_nothing_to_interrupt_at_rest(box: Box) -> None:
    box.start()
    box.end_turn(TurnEnded(text=CLAIM))
    box.verify()
    before = box.types()
    with pytest.raises(NotAllowed):
        box.step(lambda core: turns.interrupt(core, "me"))
    assert box.types() == before
