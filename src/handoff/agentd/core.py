"""A task's decisions, without I/O.

:class:`Core` holds one task in memory and turns inputs (what the executor's driver said,
what a coordinator wants, what an effect brought back) into changes of it. Every change is
recorded in ``core.change``; the actor commits that in one transaction and only then acts.
If a commit fails, or a method raises, the actor throws the core away and loads it again:
the database is the state, this is a view of it.

What belongs to tickets is in :mod:`handoff.agentd.tickets`, what belongs to the beginning
and end of turns in :mod:`handoff.agentd.turns`; both act on a core.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from handoff import lifecycle
from handoff.errors import HandoffError
from handoff.executors.contract import Driver, Fault, Output, Send
from handoff.store.commit import Change, Loaded
from handoff.store.records import RunRow, TaskRow, TicketRow, TurnRow

if TYPE_CHECKING:
    from handoff.clock import Clock

AGENTD = "agentd"
EXECUTOR = "executor"

#: characters of text in one frame; longer text becomes several frames
FRAME_TEXT = 64 * 1024
#: characters of any free text in an event
EVENT_TEXT = 4000


class Core:
    """One task in memory.

    Args:
        loaded: what the database holds.
        driver: the driver of the newest run, or None before one was opened.
        clock: time and ids.
        prompt: reads what a turn (by its number) began with.
    """

    def __init__(
        self,
        loaded: Loaded,
        driver: Driver | None,
        clock: Clock,
        prompt: Callable[[int], str],
    ) -> None:
        self.prompt = prompt
        self.task: TaskRow = loaded.task
        self.turn: TurnRow | None = loaded.turn
        self.run: RunRow | None = loaded.run
        self.tickets: dict[str, TicketRow] = {t.id: t for t in loaded.tickets}
        self.effects = list(loaded.effects)
        self.driver = driver
        self.clock = clock
        self.change = Change()
        self.phase = "idle"
        self.phase_detail = ""
        self.tools: dict[str, str] = {}

    # -- recording -----------------------------------------------------------------------

    def event(self, kind: str, payload: dict[str, object], actor: str = AGENTD) -> None:
        """Record a fact about the task."""
        self.change.events.append((kind, actor, payload))

    def frame(self, kind: str, data: dict[str, object]) -> None:
        """Record a piece of the live view."""
        data["turn"] = self.turn.number if self.turn else 0
        self.change.frames.append((kind, data))

    def text_frame(self, kind: str, text: str, parent: str | None) -> None:
        """Record streamed text, joined with the text just before it."""
        frames = self.change.frames
        if frames and frames[-1][0] == kind and frames[-1][1].get("parent") == parent:
            text = str(frames.pop()[1]["text"]) + text
        for start in range(0, len(text), FRAME_TEXT):
            data: dict[str, object] = {"text": text[start : start + FRAME_TEXT]}
            if parent:
                data["parent"] = parent
            self.frame(kind, data)

    def effect(self, kind: str, **payload: object) -> None:
        """Ask for something to be done after the commit."""
        self.change.effects.append((kind, payload))

    def settle_effect(self, effect_id: int, state: str = "done", error: str = "") -> None:
        """An effect is over (idempotent for effects that are over already)."""
        known = [e for e in self.effects if e.id == effect_id]
        for effect in known:
            self.effects.remove(effect)
            self.change.settled.append(
                (effect_id, lifecycle.advance("effect", "due", state), error)
            )

    def give_up_effects(self, kinds: frozenset[str], why: str) -> None:
        """Effects of those kinds have lost their meaning."""
        for effect in [e for e in self.effects if e.kind in kinds]:
            self.settle_effect(effect.id, "given_up", why)

    # -- states --------------------------------------------------------------------------

    def move_task(self, event: str) -> None:
        """Advance the task's state."""
        self.task.state = lifecycle.advance("task", self.task.state, event)
        self.change.task_changed = True

    def move_turn(self, event: str) -> None:
        """Advance the turn's state."""
        turn = self.must_turn()
        turn.state = lifecycle.advance("turn", turn.state, event)
        self.touch_turn()

    def touch_turn(self) -> TurnRow:
        """The turn, to be saved with this change."""
        turn = self.must_turn()
        self.change.turns[turn.number] = turn
        return turn

    def touch_run(self) -> RunRow:
        """The run, to be saved with this change."""
        run = self.must_run()
        self.change.runs[run.id] = run
        return run

    def move_run(self, event: str) -> None:
        """Advance the run's state."""
        run = self.touch_run()
        run.state = lifecycle.advance("run", run.state, event)
        if run.state == "ended":
            run.ended_at = self.clock.now_ms()
            run.pending_prompt = ""

    def touch_ticket(self, ticket: TicketRow) -> TicketRow:
        """The ticket, to be saved with this change."""
        self.change.tickets[ticket.id] = ticket
        if ticket.state in lifecycle.TICKET_SETTLED:
            self.tickets.pop(ticket.id, None)
        else:
            self.tickets[ticket.id] = ticket
        return ticket

    def must_turn(self) -> TurnRow:
        """The newest turn; every task has one from its dispatch on."""
        assert self.turn is not None
        return self.turn

    def must_run(self) -> RunRow:
        """The newest run, where the caller knows that there is one."""
        assert self.run is not None
        return self.run

    @property
    def terminal(self) -> bool:
        """Whether the task is over."""
        return lifecycle.terminal(self.task.state)

    @property
    def run_alive(self) -> bool:
        """Whether an executor process is there that takes input."""
        return self.run is not None and self.run.state == "alive" and self.driver is not None

    @property
    def turn_open(self) -> bool:
        """Whether the newest turn has not ended."""
        return self.turn is not None and self.turn.state != "ended"

    def open_tickets(self) -> list[TicketRow]:
        """Tickets that wait for the coordinator, oldest first."""
        return [t for t in self.tickets.values() if t.state in lifecycle.TICKET_OPEN]

    def settle_waiting(self) -> None:
        """Derive ``running`` or ``waiting_answer`` from the open tickets."""
        waits = bool(self.open_tickets())
        if self.task.state == "running" and waits:
            self.move_task("ticket_opened")
        elif self.task.state == "waiting_answer" and not waits:
            self.move_task("last_ticket_settled")

    # -- the executor's side -------------------------------------------------------------

    def save_driver(self) -> None:
        """Keep the driver's state with this change."""
        if self.driver is not None and self.run is not None:
            self.touch_run().driver = self.driver.dump().decode()

    def send(self, data: bytes, ticket_id: str | None = None) -> int:
        """Queue one numbered input for the executor."""
        run = self.touch_run()
        run.inputs_made += 1
        self.change.inputs.append((run.id, run.inputs_made, data, ticket_id))
        return run.inputs_made

    def command(
        self, make: Callable[[Driver], list[Output]], ticket_id: str | None = None
    ) -> list[Output]:
        """Give the driver a command; its bytes become numbered inputs, the rest is
        returned. The last input carries ``ticket_id``, so that its writing marks the
        ticket as delivered."""
        assert self.driver is not None
        outputs = make(self.driver)
        sends = [o for o in outputs if isinstance(o, Send)]
        for index, output in enumerate(sends):
            last = index == len(sends) - 1
            self.send(output.data, ticket_id if last else None)
        self.save_driver()
        return [o for o in outputs if not isinstance(o, Send)]

    def set_phase(self, phase: str, detail: str = "") -> None:
        """What the executor is seen to do: ``starting``, ``model``, ``tool``,
        ``waiting`` or ``idle``. For the watchdog and for people; not stored."""
        self.phase = phase
        self.phase_detail = detail


def clip(text: str, limit: int = EVENT_TEXT) -> str:
    """The text, or its start with a note of how much is left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[… {len(text) - limit} of {len(text)} characters left out …]"


def fault_json(fault: Fault | None) -> str | None:
    """A fault for its column."""
    return None if fault is None else msgspec.json.encode(fault).decode()


def fault_of(text: str | None) -> Fault | None:
    """The fault in its column."""
    return None if text is None else msgspec.json.decode(text, type=Fault)


def error_payload(error: HandoffError) -> dict[str, object]:
    """A typed error as part of an event."""
    payload: dict[str, object] = {"code": error.code, "reason": clip(error.cause)}
    if error.remedy:
        payload["remedy"] = error.remedy
    return payload


def count_unrecognised(run: RunRow, what: str) -> int:
    """Count a message that the driver does not know; returns the new count."""
    counts = json.loads(run.unrecognised)
    if what not in counts and len(counts) >= 50:
        what = "(others)"
    counts[what] = int(counts.get(what, 0)) + 1
    run.unrecognised = json.dumps(counts)
    return int(counts[what])
