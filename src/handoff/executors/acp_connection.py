"""What a conversation with an ACP agent holds at any time: a turn, and what is asked in it.

The state changes here and nowhere else; :mod:`handoff.executors.acp` decides when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handoff.errors import NotAllowed
from handoff.executors import acp_asks, faults
from handoff.executors.acp_state import Ask, State, Turn
from handoff.executors.contract import (
    AskClosed,
    Fault,
    Noticed,
    Output,
    PromptTaken,
    Send,
    TurnEnded,
    Unrecognised,
    UsageSeen,
)
from handoff.wire import acp, jsonrpc
from handoff.wire.lenient import lenient

Json = dict[str, Any]

#: stop reasons that are no success, with what a person is told
_STOPS = {
    "max_tokens": ("cut_short", "the model reached its token limit"),
    "max_turn_requests": ("cut_short", "the executor reached its limit of model requests"),
    "refusal": ("refused", "the model declined"),
}


class Connection:
    """The state of one connection, and the outputs of the step that is being taken."""

    def __init__(self, state: State) -> None:
        self._s = state
        self._out: list[Output] = []

    def _request(self, method: str, params: Json, purpose: str) -> int:
        number = self._s.next_id
        self._s.next_id += 1
        self._s.sent[number] = purpose
        self._out.append(Send(jsonrpc.request(number, method, params)))
        return number

    def _drain(self) -> list[Output]:
        out = self._out[:]
        self._out.clear()
        return out

    # -- the turn ----------------------------------------------------------------------

    def _taken(self, turn: Turn) -> None:
        if not turn.taken:
            turn.taken = True
            self._out.append(PromptTaken())

    def _cancel(self, why: str) -> None:
        """Tell the agent to end its turn. Its answer to the prompt is still to come."""
        params = {"sessionId": self._s.session_id}
        self._out.append(Send(jsonrpc.notification("session/cancel", params)))
        for ask_id, ask in list(self._s.asks.items()):
            if not ask.answered:
                self._out.append(Send(jsonrpc.result(ask.rpc, acp_asks.give_up(ask))))
                self._close(ask_id, acknowledged=False, why=why)

    def _end_turn(self, fault: Fault | None, reason: str) -> None:
        turn = self._s.turn
        if turn is None:
            return
        self._s.turn = None
        self._s.calls.clear()
        self._close_asks("the turn ended")
        if turn.broken is not None:
            fault = turn.broken
        self._out.append(TurnEnded(turn.tail, fault, reason))

    def _count_usage(self, done: acp.PromptDone) -> None:
        usage = done.usage or lenient(acp.Usage, done.meta or {}) or acp.Usage()
        if usage.input_tokens is None and usage.output_tokens is None:
            return
        self._s.input_tokens = (self._s.input_tokens or 0) + (usage.input_tokens or 0)
        self._s.output_tokens = (self._s.output_tokens or 0) + (usage.output_tokens or 0)
        self._tell_usage()

    def _tell_usage(self) -> None:
        s = self._s
        self._out.append(UsageSeen(s.input_tokens, s.output_tokens, s.cost_usd))

    # -- what is asked -----------------------------------------------------------------

    def _ask(self, ask_id: str, ask: Ask, asked: Output) -> None:
        turn = self._s.turn
        if turn is None or turn.prompt is None or turn.interrupted or turn.broken is not None:
            # Nobody works for us: what is asked now has no turn that could wait for it.
            self._out.append(Send(jsonrpc.result(ask.rpc, acp_asks.give_up(ask))))
            self._out.append(Noticed("the executor asked for something outside a turn: refused"))
            return
        self._taken(turn)
        if ask.call is not None and ask.call in self._s.calls:
            ask.announced = True
        self._s.asks[ask_id] = ask
        self._out.append(asked)

    def _reply(self, ask_id: str, make: Callable[[Ask], Json]) -> None:
        ask = self._s.asks.get(ask_id)
        if ask is None or ask.answered:
            raise NotAllowed(
                "the executor does not wait for that answer (any more)",
                remedy="handoff show",
                id=ask_id,
            )
        result = make(ask)
        ask.answered = True
        self._out.append(Send(jsonrpc.result(ask.rpc, result)))

    def _refuse(self, message: jsonrpc.Request, code: int, why: str) -> None:
        self._out.append(Send(jsonrpc.error(message.id, code, why)))
        self._out.append(Unrecognised(f"request {message.method[:100]}"))

    def _evidence(self, call: Any, *, main: bool) -> None:
        """An update of a tool call shows that the agent has our answer about it.

        Some agents ask under an id that no tool call has: there, that the main agent goes
        on is evidence for the only request that is left.
        """
        for ask_id, ask in list(self._s.asks.items()):
            direct = ask.call is not None and ask.call == call
            alone = main and not ask.announced and len(self._s.asks) == 1
            if ask.answered and (direct or alone):
                self._close(ask_id, acknowledged=True, why="")

    def _withdrawn(self, number: Any) -> None:
        ask_id = as_ask_id(number) if isinstance(number, (int, str)) else ""
        ask = self._s.asks.get(ask_id)
        if ask is None:
            return
        if not ask.answered:
            self._out.append(Send(jsonrpc.result(ask.rpc, acp_asks.give_up(ask))))
        self._close(ask_id, acknowledged=False, why="the executor withdrew it")

    def _close_asks(self, why: str) -> None:
        over = self._s.phase == "over"
        for ask_id, ask in list(self._s.asks.items()):
            self._close(ask_id, acknowledged=ask.answered and not over, why=why)

    def _close(self, ask_id: str, *, acknowledged: bool, why: str) -> None:
        del self._s.asks[ask_id]
        how = AskClosed(ask_id, "acknowledged" if acknowledged else "withdrawn", why)
        self._out.append(how)


def as_ask_id(number: int | str) -> str:
    """The id of a request as text; a number and the same digits as text stay apart."""
    return str(number) if isinstance(number, int) else f"s:{number}"


def stop_fault(turn: Turn, reason: str) -> Fault | None:
    """Why a turn that the agent answered was none that succeeded, None if it did."""
    if reason == "end_turn":
        if turn.fault is not None and not turn.fault.message:
            # Codex tells that it failed; why, only as text.
            told = faults.last_paragraph(turn.tail)
            return faults.classify(told or "the executor reports a failure without a reason")
        return turn.fault
    if reason in _STOPS:
        return Fault(*_STOPS[reason])
    if reason == "cancelled":
        if turn.denied and not turn.interrupted:
            return Fault("cancelled", "the executor ended its turn after the denial")
        how = "interrupted" if turn.interrupted else "the executor cancelled its turn"
        return Fault("cancelled", how)
    return Fault("other", f"the executor stopped with '{faults.shorten(reason, 200)}'")


def exit_fault(code: int | None, stderr_tail: str) -> Fault:
    """How the process ended, with the last three lines that it wrote to standard error."""
    if code is None:
        how = "the executor's process has ended; how is not known"
    elif code < 0:
        how = f"the executor's process was ended by signal {-code}"
    elif code == 127:
        how = "the executor's program, or the interpreter that it needs, was not found (exit 127)"
    else:
        how = f"the executor's process ended with exit code {code}"
    last = [line.strip() for line in stderr_tail.splitlines() if line.strip()][-3:]
    told = faults.shorten(" / ".join(last), 600)
    return Fault("crash", f"{how}: {told}" if told else how)
