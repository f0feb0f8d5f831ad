"""A task under any order of inputs, with a crash between any two of them.

The model knows only what a coordinator could know: which tickets wait, whether the task is
over. After every input the database must agree with the tables of the state machines.
"""

from __future__ import annotations

import pathlib
import shutil
import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.unit.agentd.harness import CLAIM, Box

from handoff import lifecycle
from handoff.agentd import tickets, turns
from handoff.errors import Failed, HandoffError
from handoff.executors.contract import AskClosed, Fault, Question, QuestionAsked, Text, TurnEnded


class TaskMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.box = Box(self.folder)
        self.count = 0
        self.facts: dict[str, tuple[bool, bool, bool]] = {}

    def teardown(self) -> None:
        self.box.close()
        shutil.rmtree(self.folder)

    @property
    def core(self):  # type: ignore[no-untyped-def]
        return self.box.core

    def has(self, kind: str) -> bool:
        return any(e.kind == kind for e in self.core.effects)

    def try_step(self, fn) -> None:  # type: ignore[no-untyped-def]
        """An input may be refused; then nothing may have happened."""
        before = (self.box.types(), self.core.task.state)
        try:
            self.box.step(fn)
        except HandoffError:
            assert (self.box.types(), self.core.task.state) == before

    # -- the machine ---------------------------------------------------------------------

    @rule()
    def crash(self) -> None:
        self.box.reload()

    @precondition(lambda self: self.core.task.state == "pending" and not self.core.effects)
    @rule()
    def admit(self) -> None:
        if self.core.task.workspace_state == "planned":
            self.box.step(turns.admit)

    @precondition(lambda self: self.has("prepare"))
    @rule(works=st.booleans())
    def prepare(self, works: bool) -> None:
        effect_id = self.box.effect("prepare")
        if works:
            self.box.step(lambda core: turns.prepared(core, effect_id, "a" * 40, []))
        else:
            self.box.step(lambda core: turns.start_failed(core, effect_id, Failed("no")))

    @precondition(lambda self: self.has("start_run"))
    @rule(works=st.booleans(), context=st.sampled_from(["resumed", "lost"]))
    def start_run(self, works: bool, context: str) -> None:
        effect_id = self.box.effect("start_run")
        if works:
            self.box.start_run(context if self.core.task.session_id else "new")
        else:
            self.box.step(lambda core: turns.start_failed(core, effect_id, Failed("no")))

    @precondition(lambda self: self.has("verify"))
    @rule(
        code=st.sampled_from(["verified", "no_claim", "unknown_commit"]),
        commits=st.integers(0, 2),
    )
    def verify(self, code: str, commits: int) -> None:
        self.box.verify(code, commits)

    @precondition(lambda self: self.has("end_run"))
    @rule()
    def run_ended(self) -> None:
        effect_id = self.box.effect("end_run")
        self.box.step(lambda core: core.settle_effect(effect_id))
        self.box.step(lambda core: turns.run_exited(core, 0))

    # -- the executor --------------------------------------------------------------------

    @precondition(lambda self: self.core.run_alive and self.core.turn_open)
    @rule(allow=st.booleans())
    def permission(self, allow: bool) -> None:
        self.count += 1
        self.box.ask_permission(f"p{self.count}", f"f{self.count}", allow=allow)

    @precondition(lambda self: self.core.run_alive and self.core.turn_open)
    @rule()
    def question(self) -> None:
        self.count += 1
        ask_id = f"a{self.count}"
        self.core.driver.pending.append(ask_id)
        self.box.step(
            lambda core: tickets.open_question(core, QuestionAsked(ask_id, (Question("q?"),)))
        )

    @precondition(lambda self: self.core.run_alive)
    @rule()
    def text(self) -> None:
        self.box.step(lambda core: turns.take(core, [Text("hello")]))

    @precondition(lambda self: self.core.run_alive)
    @rule(
        ended=st.sampled_from(
            [
                TurnEnded(text=CLAIM),
                TurnEnded(text="no trailer"),
                TurnEnded(text='{"ask": "what?"}'),
                TurnEnded(text="", fault=Fault(code="limit", message="limit")),
                TurnEnded(text="", fault=Fault(code="cancelled", message="cancelled")),
            ]
        )
    )
    def end_turn(self, ended: TurnEnded) -> None:
        self.box.end_turn(ended)

    @precondition(lambda self: self.core.run_alive)
    @rule(code=st.sampled_from([0, 1, -9, None]))
    def exit(self, code: int | None) -> None:
        self.box.step(lambda core: turns.run_exited(core, code))

    @precondition(lambda self: self.core.run_alive and self.core.tickets)
    @rule(how=st.sampled_from(["acknowledged", "withdrawn"]), data=st.data())
    def close_ask(self, how: str, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(list(self.core.tickets.values())))
        if ticket.ask_id:
            self.box.step(lambda core: tickets.closed(core, AskClosed(ticket.ask_id, how)))  # type: ignore[arg-type]

    @rule()
    def deliver(self) -> None:
        self.box.deliver_all()

    # -- the coordinator -----------------------------------------------------------------

    @precondition(lambda self: self.core.tickets)
    @rule(allow=st.booleans(), reason=st.sampled_from(["", "why"]), data=st.data())
    def reply(self, allow: bool, reason: str, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(list(self.core.tickets.values())))
        decision = ("allow" if allow else "deny") if ticket.kind == "gate" else ""
        answers = [] if ticket.kind == "gate" else [["answer"]]
        self.try_step(
            lambda core: tickets.answer(
                core, core.tickets[ticket.id], decision, reason, answers, "me"
            )
        )

    @rule()
    def continue_(self) -> None:
        self.try_step(lambda core: turns.continue_(core, "more", "b" * 40, "me"))

    @rule()
    def interrupt(self) -> None:
        self.try_step(lambda core: turns.interrupt(core, "me"))

    @rule()
    def stop(self) -> None:
        self.try_step(lambda core: turns.stop(core, "me"))

    @rule()
    def done(self) -> None:
        self.try_step(lambda core: turns.done(core, "", "me"))

    # -- what always holds ---------------------------------------------------------------

    @invariant()
    def waits_exactly_while_a_ticket_is_open(self) -> None:
        waits = bool(self.core.open_tickets())
        if self.core.task.state in ("running", "waiting_answer"):
            assert (self.core.task.state == "waiting_answer") == waits
        else:
            assert not waits, self.core.task.state

    @invariant()
    def memory_is_what_the_database_holds(self) -> None:
        state, seq = self.core.task.state, self.core.task.last_seq
        tickets_now = {t.id: t.state for t in self.core.tickets.values()}
        self.box.reload()
        assert (self.core.task.state, self.core.task.last_seq) == (state, seq)
        assert {t.id: t.state for t in self.core.tickets.values()} == tickets_now

    @invariant()
    def numbers_only_grow(self) -> None:
        assert self.box.seqs == sorted(set(self.box.seqs))
        numbers: dict[str, list[int]] = {}
        for run_id, number, _, _ in self.box.inputs:
            numbers.setdefault(run_id, []).append(number)
        for made in numbers.values():
            assert made == list(range(1, len(made) + 1))

    @invariant()
    def facts_about_an_answer_are_never_taken_back(self) -> None:
        cursor = self.box.store.reader().execute(
            "SELECT ref, answered_at, delivered_at, acknowledged_at FROM tickets"
        )
        for ref, *times in cursor.fetchall():
            now = tuple(t is not None for t in times)
            before = self.facts.get(ref, (False, False, False))
            assert all(n or not b for n, b in zip(now, before, strict=True)), ref
            assert now in (
                (False, False, False),
                (True, False, False),
                (True, True, False),
                (True, True, True),
            ), (ref, now)
            self.facts[ref] = now  # type: ignore[assignment]

    @invariant()
    def a_task_that_is_over_stays_over(self) -> None:
        types = self.box.types()
        ends = [t for t in types if t in ("failed", "archived")]
        assert len(ends) == int(lifecycle.terminal(self.core.task.state)), types
        if ends:
            assert not self.core.tickets
            assert not self.core.turn_open

    @invariant()
    def every_turn_says_once_how_it_ended(self) -> None:
        ended = [p["turn"] for t, p in self.box.events() if t in ("completed", "turn_failed")]
        assert ended == sorted(set(ended)), ended

    @invariant()
    def a_task_that_rests_or_runs_can_go_on(self) -> None:
        """No state without a way out: something is due, waits, runs, or may be said."""
        state = self.core.task.state
        if state == "running":
            assert self.core.effects or self.core.run_alive, "running, and nothing runs"


TaskMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=50)
TestTaskMachine = TaskMachine.TestCase
