"""The driver of every agent that speaks the Agent Client Protocol.

What differs between agents is data (:class:`~handoff.executors.catalog.AgentDefinition`).
The turn is over when the agent answers our ``session/prompt``, and at no other sign.
Allowing and denying is by the kind of the options offered, once, never "always". ACP has no
place for the reason of a denial: the task's actor sends it as the next prompt.
"""

from __future__ import annotations

from typing import Any

import msgspec

from handoff import __version__
from handoff.errors import NotAllowed, ProtocolViolation
from handoff.executors import acp_asks, acp_state, acp_updates, faults
from handoff.executors.acp_connection import Connection, as_ask_id, exit_fault, stop_fault
from handoff.executors.acp_handshake import Handshake
from handoff.executors.acp_state import State, Turn
from handoff.executors.catalog import AgentDefinition
from handoff.executors.contract import (
    Allow,
    Answer,
    Command,
    Deny,
    Fault,
    Interrupt,
    Noticed,
    Output,
    Prompt,
    QuestionAsked,
    Retrying,
    Send,
    Session,
    StartFailed,
    Unrecognised,
)
from handoff.wire import acp, jsonrpc
from handoff.wire.lenient import lenient

Json = dict[str, Any]


class AcpDriver(Connection):
    """One connection to one agent process. See :class:`~.contract.Driver`."""

    carries_reason = False

    def __init__(self, definition: AgentDefinition, state: State | None = None) -> None:
        super().__init__(state if state is not None else State(agent=definition.name))
        self._agent = definition
        self._handshake = Handshake(definition, self._s, self._request, self._out.append)

    @classmethod
    def load(cls, data: bytes, definition: AgentDefinition) -> AcpDriver:
        """The driver that wrote ``data``.

        Raises:
            ProtocolViolation: the state is of another version, or damaged.
        """
        try:
            return cls(definition, acp_state.load(data))
        except (msgspec.MsgspecError, ValueError) as error:
            raise ProtocolViolation(
                f"the state of the executor's driver can't be read: {error}",
                remedy="stop the task, or continue it with a new session",
            ) from error

    def dump(self) -> bytes:
        """The state as JSON."""
        return acp_state.dump(self._s)

    # -- the contract ------------------------------------------------------------------

    def open(self, session: Session) -> list[Output]:
        """The process runs: begin the handshake."""
        self._s.session = session
        self._s.phase = "handshake"
        self._request("initialize", acp.initialize("handoff", __version__), "initialize")
        return self._drain()

    def feed(self, line: bytes) -> list[Output]:
        """One line of the agent's output. Never raises."""
        message = jsonrpc.classify(line)
        match message:
            case jsonrpc.Blank():
                pass
            case jsonrpc.Junk():
                self._junk(message)
            case jsonrpc.Result():
                self._answered(message.id, message.result, None)
            case jsonrpc.RpcError():
                self._answered(message.id, None, message)
            case jsonrpc.Request():
                self._requested(message)
            case jsonrpc.Notification():
                self._told(message)
        return self._drain()

    def command(self, command: Command) -> list[Output]:
        """What the task's actor wants.

        Raises:
            NotAllowed: the id is not pending, the answer does not fit what was asked, or a
                prompt came while a turn runs.
        """
        match command:
            case Prompt():
                self._prompt(command.text)
            case Allow():
                self._reply(command.id, acp_asks.allow)
            case Deny():
                self._reply(command.id, acp_asks.deny)
                if self._s.turn is not None:
                    self._s.turn.denied = True
            case Answer():
                self._reply(command.id, lambda ask: acp_asks.answer(ask, command.answers))
            case Interrupt():
                self._interrupt()
        return self._drain()

    def exited(self, code: int | None, stderr_tail: str) -> list[Output]:
        """The process has ended. Closes what is pending; ends a running turn."""
        fault = exit_fault(code, stderr_tail)
        if self._s.phase in ("new", "handshake"):
            # Words on standard error are the only cause that a failed start leaves behind,
            # but a missing interpreter is never a missing login.
            told = faults.classify(stderr_tail, default="start")
            start = Fault("start", fault.message)
            if code != 127 and told.code in ("login", "limit", "model"):
                start = msgspec.structs.replace(told, message=fault.message)
                start = faults.with_login(start, self._agent.login)
            self._s.phase = "over"
            self._s.turn, self._s.queued = None, None
            self._out.append(StartFailed(start))
        elif self._s.phase == "ready":
            self._s.phase = "over"
            if self._s.turn is not None:
                self._end_turn(fault, "")
            self._close_asks("the executor's process has ended")
        return self._drain()

    # -- commands ----------------------------------------------------------------------

    def _prompt(self, text: str) -> None:
        if self._s.phase == "over":
            raise NotAllowed("the executor's process can take no prompt any more")
        if self._s.turn is not None:
            raise NotAllowed(
                "the executor works on an earlier prompt", remedy="wait for the end of its turn"
            )
        self._s.turn = Turn()
        self._s.queued = text
        if self._s.phase == "ready":
            self._send_prompt()

    def _send_prompt(self) -> None:
        turn, text, session = self._s.turn, self._s.queued, self._s.session
        if turn is None or text is None or session is None:
            return
        self._s.queued = None
        if session.instructions and not self._s.told_instructions:
            text = f"{session.instructions.rstrip()}\n\n{text}"
        self._s.told_instructions = True
        params = acp.prompt(self._s.session_id or "", text)
        turn.prompt = self._request("session/prompt", params, "prompt")

    def _interrupt(self) -> None:
        turn = self._s.turn
        if turn is None:
            return
        turn.interrupted = True
        if turn.prompt is None:
            self._s.queued = None
            self._end_turn(Fault("cancelled", "interrupted before it began"), "cancelled")
            return
        self._cancel("the turn was interrupted")

    # -- answers of the agent ----------------------------------------------------------

    def _answered(
        self, number: int | str | None, result: Any, error: jsonrpc.RpcError | None
    ) -> None:
        purpose = self._s.sent.pop(number, None) if isinstance(number, int) else None
        if purpose is None:
            what = "error without a request" if error is not None else "answer to no request"
            self._out.append(Unrecognised(what, "" if error is None else error.message[:200]))
        elif purpose == "prompt":
            self._prompt_answered(number, result, error)
        elif purpose == "mode again":
            if error is not None:
                self._out.append(Noticed(f"the executor left the mode '{self._agent.mode}'"))
        elif self._s.phase == "handshake":
            self._handshake.answered(purpose, result, error)
            self._after_handshake(self._s.phase)

    def _after_handshake(self, phase: str) -> None:
        if phase == "ready":
            self._send_prompt()
        elif phase == "over":
            self._s.turn, self._s.queued = None, None

    def _prompt_answered(
        self, number: int | str | None, result: Any, error: jsonrpc.RpcError | None
    ) -> None:
        turn = self._s.turn
        if turn is None or turn.prompt != number:
            return
        self._taken(turn)
        if error is not None:
            fault = faults.from_rpc(error.code, error.message, error.data)
            self._end_turn(faults.with_login(fault, self._agent.login), "error")
            return
        done = lenient(acp.PromptDone, result) or acp.PromptDone()
        self._count_usage(done)
        self._end_turn(stop_fault(turn, done.stop_reason), done.stop_reason)

    # -- requests of the agent ---------------------------------------------------------

    def _requested(self, message: jsonrpc.Request) -> None:
        ask_id = as_ask_id(message.id)
        if ask_id in self._s.asks:
            self._out.append(Unrecognised("request with an id in use", message.method[:200]))
            return
        match message.method:
            case "session/request_permission":
                self._permission(ask_id, message)
            case "elicitation/create":
                self._elicitation(ask_id, message)
            case "_x.ai/ask_user_question" | "x.ai/ask_user_question":
                asked = lenient(acp.AskUser, message.params)
                if asked is None or not asked.questions:
                    self._refuse(message, jsonrpc.INVALID_PARAMS, "no question")
                else:
                    self._ask(ask_id, *acp_asks.ask_user(ask_id, message.id, asked))
            case _:
                self._refuse(message, jsonrpc.METHOD_NOT_FOUND, "Method not found")

    def _permission(self, ask_id: str, message: jsonrpc.Request) -> None:
        tool = message.params.get("toolCall")
        tool = tool if isinstance(tool, dict) else {}
        call = tool.get("toolCallId")
        made = acp_asks.permission(
            ask_id,
            message.id,
            message.params,
            self._s.calls.get(call) if isinstance(call, str) else None,
            title_is_command=self._agent.title_is_command,
        )
        if made is None:
            self._out.append(Send(jsonrpc.result(message.id, acp.cancelled())))
            self._out.append(Unrecognised("permission request without a call or options"))
            return
        ask, asked = made
        if not isinstance(asked, QuestionAsked):
            asked = msgspec.structs.replace(asked, parent=self._parent(message.params, tool))
        self._ask(ask_id, ask, asked)

    def _elicitation(self, ask_id: str, message: jsonrpc.Request) -> None:
        form = lenient(acp.Elicitation, message.params)
        if form is None or form.mode != "form":
            self._out.append(Send(jsonrpc.result(message.id, {"action": "decline"})))
            told = form.message if form is not None else ""
            self._out.append(Noticed(f"the executor wanted a web page opened: {told}"[:500]))
            return
        self._ask(ask_id, *acp_asks.elicitation(ask_id, message.id, form))

    # -- notifications of the agent ----------------------------------------------------

    def _told(self, message: jsonrpc.Notification) -> None:
        match message.method:
            case "session/update":
                self._update(message.params)
            case "_x.ai/session_notification" | "x.ai/session_notification":
                self._vendor_update(message.params)
            case "$/cancel_request":
                self._withdrawn(message.params.get("requestId"))
            case method if method.startswith(("_", "$/", "x.ai/")):
                # An extension that no client has to know.
                pass
            case method:
                self._out.append(Unrecognised(f"notification {method[:100]}"))

    def _update(self, params: Json) -> None:
        update = params.get("update")
        if not isinstance(update, dict):
            self._out.append(Unrecognised("session/update without an update"))
            return
        if self._s.phase != "ready":
            # The history of a loaded session, or news about commands and models.
            return
        parent = self._parent(params, update)
        kind = update.get("sessionUpdate")
        turn = self._s.turn
        if turn is not None and turn.prompt is not None and kind in acp_updates.WORK:
            self._taken(turn)
            self._evidence(update.get("toolCallId"), main=parent is None)
        match kind:
            case "agent_message_chunk" | "agent_thought_chunk":
                thought = kind == "agent_thought_chunk"
                self._out += acp_updates.text(turn, update, parent, thought=thought)
            case "tool_call" | "tool_call_update":
                self._out += acp_updates.tool(self._s, update, parent, starts=kind == "tool_call")
            case "plan":
                self._out += acp_updates.plan(update)
            case "usage_update":
                if acp_updates.cost(self._s, update):
                    self._tell_usage()
            case "session_info_update":
                self._out += acp_updates.codex(turn, update)
            case "current_mode_update" | "config_option_update":
                self._mode_changed(acp_updates.mode(update))
            case "user_message_chunk" | "available_commands_update":
                pass
            case _:
                self._out.append(Unrecognised(f"update {str(kind)[:100]}"))

    def _vendor_update(self, params: Json) -> None:
        update = params.get("update")
        if not isinstance(update, dict) or self._s.phase != "ready":
            return
        if update.get("sessionUpdate") == "retry_state" and update.get("type") == "retrying":
            retry = lenient(acp.RetryState, update) or acp.RetryState()
            if self._s.turn is not None and self._s.turn.prompt is not None:
                self._taken(self._s.turn)
            delay = None if retry.delay_ms is None else retry.delay_ms / 1000
            reason = faults.shorten(retry.reason, 500)
            self._out.append(Retrying(retry.attempt, retry.max_retries, delay, reason))
        elif update.get("sessionUpdate") == "interaction_resolved":
            self._evidence(update.get("tool_call_id"), main=False)

    def _parent(self, params: Json, update: Json) -> str | None:
        """The sub-agent that something belongs to, None for the main agent."""
        for holder in (update, params):
            meta = holder.get("_meta")
            claude = meta.get("claudeCode") if isinstance(meta, dict) else None
            named = claude.get("parentToolUseId") if isinstance(claude, dict) else None
            if isinstance(named, str) and named:
                return named
        session = params.get("sessionId")
        if isinstance(session, str) and session and session != self._s.session_id:
            return session
        return None

    def _mode_changed(self, mode: str | None) -> None:
        wanted = self._agent.mode
        if mode is None or mode == self._s.mode:
            return
        self._s.mode = mode
        if wanted is None or mode == wanted:
            return
        self._out.append(Noticed(f"the executor switched itself to the mode '{mode[:60]}'"))
        if self._s.mode_sets < 5:
            self._s.mode_sets += 1
            params = {"sessionId": self._s.session_id, "modeId": wanted}
            self._request("session/set_mode", params, "mode again")

    # -- lines that are no message ---------------------------------------------------------

    def _junk(self, message: jsonrpc.Junk) -> None:
        self._out.append(Unrecognised(f"line {message.what}", message.sample))
        if message.what != "too long":
            return
        limit = jsonrpc.MAX_LINE // (1024 * 1024)
        fault = Fault("protocol", f"the executor sent a line of more than {limit} MiB")
        if self._s.phase == "handshake":
            self._s.phase = "over"
            self._s.turn, self._s.queued = None, None
            self._out.append(StartFailed(fault))
            return
        turn = self._s.turn
        if turn is None or turn.prompt is None or turn.broken is not None:
            return
        turn.broken = fault
        if '"method"' in message.sample:
            self._cancel("the turn failed")
        else:
            # It may have been the answer to our prompt, which then never comes again.
            self._s.sent.pop(turn.prompt, None)
            self._end_turn(fault, "")
