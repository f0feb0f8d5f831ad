"""The driver of Claude Code's stream-json protocol.

A turn begins with a prompt and ends with ``result``. In between the executor streams what
the model says, tells each tool call and its result, and stops at ``can_use_tool`` until it
is answered. The tool's result is the proof that it has our answer.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from handoff.errors import NotAllowed
from handoff.executors import claude_faults as faults
from handoff.executors import claude_tools as tools
from handoff.executors.claude_state import VERSION, Ask, State, Stream
from handoff.executors.contract import (
    Allow,
    Answer,
    AskClosed,
    Command,
    Deny,
    Fault,
    Interrupt,
    Noticed,
    Output,
    PermissionAsked,
    PlanChanged,
    Prompt,
    PromptTaken,
    QuestionAsked,
    Retrying,
    Send,
    Session,
    SessionReady,
    StartFailed,
    Text,
    ToolCall,
    TurnEnded,
    Unrecognised,
    UsageSeen,
)
from handoff.wire import claude as wire

DENIED = "The coordinator denied this."
NO_TURN = "No turn is running: this can't be allowed now."
TAIL_BYTES = 16 * 1024
KEPT_CLOSED = 64


class ClaudeDriver:
    """:class:`~handoff.executors.contract.Driver` of Claude Code."""

    carries_reason = True

    def __init__(self) -> None:
        self._s = State()

    # -- Driver --------------------------------------------------------------------------

    def open(self, session: Session) -> list[Output]:
        """Begin the handshake. Prompts wait for its end, so that a session that is gone
        costs no prompt."""
        s = self._s
        s.phase = "opening"
        s.cwd = session.cwd
        s.session_id = session.resume or session.new_id
        s.resume = session.resume is not None
        s.model = session.model
        s.instructions = session.instructions
        return [Send(wire.initialize(self._request_id()))]

    def feed(self, line: bytes) -> list[Output]:
        """One line of the executor's standard output."""
        if not line.strip():
            return []
        message = wire.decode(line)
        out: list[Output] = []
        if isinstance(message, _SIGNS_OF_WORK):
            self._prompt_taken(out)
        self._take(message, out)
        return out

    def command(self, command: Command) -> list[Output]:
        """What the task's actor wants.

        Raises:
            NotAllowed: nothing with that id waits, or a turn is running already.
        """
        match command:
            case Prompt():
                return self._prompt(command.text)
            case Allow():
                ask = self._waiting(command.id)
                if ask.kind != "permission":
                    raise NotAllowed(f"'{command.id}' is a question: it takes an answer")
                return self._decide(command.id, ask, "allow", ())
            case Deny():
                ask = self._waiting(command.id)
                return self._decide(command.id, ask, "deny", (command.reason or DENIED,))
            case Answer():
                return self._answer(command)
            case Interrupt():
                return self._interrupt()

    def exited(self, code: int | None, stderr_tail: str) -> list[Output]:
        """The process has ended."""
        s = self._s
        out: list[Output] = []
        self._close_all("the process ended", out)
        if s.phase in ("new", "opening"):
            fault = faults.at_start(stderr_tail[-2000:], code)
            lost = s.resume and faults.NO_SESSION in stderr_tail
            out.append(StartFailed(fault, lost=lost))
        elif s.turn:
            message = f"Claude Code ended in the middle of a turn ({faults.exit_text(code)})"
            said = stderr_tail[-500:].strip()
            self._end_turn(Fault("crash", f"{message}: {said}" if said else f"{message}."), "", out)
        s.phase = "over"
        s.turn = False
        return out

    def dump(self) -> bytes:
        """The state as JSON."""
        return msgspec.json.encode(self._s)

    @classmethod
    def load(cls, data: bytes) -> ClaudeDriver:
        """The driver that wrote ``data``.

        Raises:
            ValueError: it is no state of this version.
        """
        state = msgspec.json.decode(data, type=State)
        if state.version != VERSION:
            raise ValueError(f"the driver's state has version {state.version}, not {VERSION}")
        driver = cls()
        driver._s = state
        return driver

    # -- commands ------------------------------------------------------------------------

    def _request_id(self) -> str:
        self._s.sent += 1
        return f"handoff-{self._s.sent}"

    def _prompt(self, text: str) -> list[Output]:
        s = self._s
        if s.phase == "over":
            raise NotAllowed("the executor's process is over")
        if s.turn:
            raise NotAllowed("a turn is running")
        s.turn = True
        s.taken = s.interrupted = False
        s.tail = s.tail_id = ""
        s.error = s.resets = None
        if s.phase != "ready":
            s.queued = text
            return []
        return [self._send_prompt(text)]

    def _send_prompt(self, text: str) -> Send:
        s = self._s
        if s.instructions:
            text = f"{s.instructions}\n\n{text}"
            s.instructions = ""
        return Send(wire.prompt(text))

    def _waiting(self, request_id: str) -> Ask:
        ask = self._s.asks.get(request_id)
        if ask is None:
            raise NotAllowed(f"nothing with the id '{request_id}' waits")
        if ask.decided:
            raise NotAllowed(f"'{request_id}' was answered before")
        return ask

    def _decide(
        self,
        request_id: str,
        ask: Ask,
        decision: Literal["allow", "deny", "answer"],
        reply: tuple[str, ...],
    ) -> list[Output]:
        ask.decided = decision
        ask.reply = reply
        out: list[Output] = [Send(ask.line(request_id))]
        if decision == "allow" and ask.tool_use_id is not None:
            out.append(ToolCall(ask.tool_use_id, "running"))
        return out

    def _answer(self, command: Answer) -> list[Output]:
        ask = self._waiting(command.id)
        if ask.kind != "question":
            raise NotAllowed(f"'{command.id}' is a permission: it takes allow or deny")
        if len(command.answers) != len(ask.questions):
            raise NotAllowed(
                f"{len(ask.questions)} questions were asked and {len(command.answers)} answered"
            )
        reply = tuple(", ".join(answer) for answer in command.answers)
        return self._decide(command.id, ask, "answer", reply)

    def _interrupt(self) -> list[Output]:
        s = self._s
        if not s.turn:
            return []
        if s.queued is not None:
            out: list[Output] = []
            s.queued = None
            self._end_turn(Fault("cancelled", "The turn was interrupted."), "interrupted", out)
            return out
        s.interrupted = True
        return [Send(wire.interrupt(self._request_id()))]

    # -- the session ---------------------------------------------------------------------

    def _on_answered(self, message: wire.Answered, out: list[Output]) -> None:
        s = self._s
        if s.phase != "opening" or message.request_id != "handoff-1":
            if message.error:
                out.append(Noticed(f"Claude Code refused a control request: {message.error}"))
            return
        if message.error:
            fault = Fault("protocol", f"Claude Code refused to begin: {message.error}")
            self._start_failed(fault, lost=False, out=out)
            return
        s.phase = "ready"
        version = message.body.get("claude_code_version")
        self._announce(version if isinstance(version, str) else None, out)
        mode = message.body.get("current_permission_mode")
        self._check_mode(mode if isinstance(mode, str) else None, out)
        if s.queued is not None:
            text, s.queued = s.queued, None
            out.append(self._send_prompt(text))

    def _announce(self, version: str | None, out: list[Output]) -> None:
        s = self._s
        context: Literal["new", "resumed"] = "resumed" if s.resume else "new"
        out.append(SessionReady(s.session_id, context, s.model, "claude", version))

    def _check_mode(self, mode: str | None, out: list[Output]) -> None:
        if mode not in (None, "default", "manual"):
            out.append(Noticed(f"Claude Code is in the mode '{mode}': it may not ask for all"))

    def _start_failed(self, fault: Fault, lost: bool, out: list[Output]) -> None:
        self._s.phase = "over"
        self._s.turn = False
        self._s.queued = None
        out.append(StartFailed(fault, lost=lost))

    def _prompt_taken(self, out: list[Output]) -> None:
        s = self._s
        if s.turn and not s.taken and s.queued is None:
            s.taken = True
            out.append(PromptTaken())
            if s.interrupted:  # sent before the turn began: it may have hit nothing
                out.append(Send(wire.interrupt(self._request_id())))

    def _on_turn_begun(self, message: wire.TurnBegun, out: list[Output]) -> None:
        s = self._s
        if message.session_id != s.session_id:
            s.session_id = message.session_id
            s.model = message.model
            self._announce(message.version, out)
        self._check_mode(message.mode, out)

    # -- asks ----------------------------------------------------------------------------

    def _on_ask_tool(self, message: wire.AskTool, out: list[Output]) -> None:
        s = self._s
        request_id = message.request_id
        known = s.asks.get(request_id)
        if known is not None:
            if known.decided:  # it asks again: it has not got our answer
                out.append(Send(known.line(request_id)))
            return
        if not s.turn or request_id in s.closed:
            out.append(Send(wire.deny(request_id, NO_TURN)))
            out.append(Noticed(f"Claude Code asked for {message.tool} outside a turn: denied"))
            return
        if message.tool == "AskUserQuestion":
            self._question(message, out)
            return
        call = tools.describe(message.tool, message.input, message.raw)
        s.asks[request_id] = Ask("permission", message.raw, message.tool_use_id)
        out.append(
            PermissionAsked(
                id=request_id,
                tool=message.tool,
                kind=call.kind,
                title=call.title,
                text=call.text,
                raw=message.raw,
                command=call.command,
                cwd=s.cwd,
                paths=call.paths,
                edits=call.edits,
                reason=message.reason,
                tool_call_id=message.tool_use_id,
                parent=s.parents.get(message.tool_use_id or ""),
            )
        )

    def _question(self, message: wire.AskTool, out: list[Output]) -> None:
        asked = tools.questions(message.input)
        if not asked:
            out.append(Send(wire.deny(message.request_id, "The question could not be read.")))
            out.append(Unrecognised("question without text", message.raw[: wire.SAMPLE]))
            return
        self._s.asks[message.request_id] = Ask(
            "question", message.raw, message.tool_use_id, tuple(q.text for q in asked)
        )
        out.append(QuestionAsked(message.request_id, asked, message.tool_use_id))

    def _close(
        self,
        request_id: str,
        how: Literal["acknowledged", "withdrawn"],
        why: str,
        out: list[Output],
    ) -> None:
        s = self._s
        del s.asks[request_id]
        s.closed = [*s.closed[1 - KEPT_CLOSED :], request_id]
        out.append(AskClosed(request_id, how, why))

    def _close_all(self, why: str, out: list[Output]) -> None:
        for request_id in list(self._s.asks):
            self._close(request_id, "withdrawn", why, out)

    def _evidence(self, tool_use_id: str, done: bool, out: list[Output]) -> None:
        """The executor showed that it works on, or is done with, that tool call."""
        for request_id, ask in list(self._s.asks.items()):
            if ask.tool_use_id != tool_use_id:
                continue
            if ask.decided:
                self._close(request_id, "acknowledged", "", out)
            elif done:
                self._close(request_id, "withdrawn", "it went on without an answer", out)

    # -- what the model does -------------------------------------------------------------

    def _on_delta(self, message: wire.Delta, out: list[Output]) -> None:
        stream = self._s.streams.get(message.parent or "")
        if stream is not None:
            stream.said = stream.said or not message.thought
            stream.thought = stream.thought or message.thought
        if message.text:
            out.append(Text(message.text, message.thought, message.parent))

    def _on_said(self, message: wire.Said, out: list[Output]) -> None:
        s = self._s
        if message.error is not None:
            # The executor's own words about a failed call; the result repeats them.
            s.error = message.error
            return
        stream = s.streams.get(message.parent or "")
        if stream is not None and stream.message_id != message.message_id:
            stream = None
        if not (stream and stream.thought):
            out += [Text(t, thought=True, parent=message.parent) for t in message.thoughts if t]
        if not (stream and stream.said):
            out += [Text(t, parent=message.parent) for t in message.texts if t]
        if message.parent is None and message.texts:
            before = s.tail if s.tail_id == message.message_id else ""
            s.tail_id = message.message_id
            s.tail = _tail(before + "".join(message.texts))
        for call in message.tools:
            self._tool_begun(call, message.parent, out)

    def _tool_begun(self, call: wire.ToolUse, parent: str | None, out: list[Output]) -> None:
        self._s.parents[call.id] = parent
        steps = tools.plan(call.name, call.input)
        if steps is not None and parent is None:
            out.append(PlanChanged(steps))
        raw = wire.encode_text(call.input)
        shown = tools.describe(call.name, call.input, raw)
        out.append(
            ToolCall(
                id=call.id,
                status="pending",
                kind=shown.kind,
                title=shown.title,
                command=shown.command,
                paths=shown.paths,
                input=raw,
                parent=parent,
            )
        )

    def _on_results(self, message: wire.Results, out: list[Output]) -> None:
        for result in message.results:
            self._s.parents.pop(result.tool_use_id, None)
            self._evidence(result.tool_use_id, done=True, out=out)
            out.append(
                ToolCall(
                    id=result.tool_use_id,
                    status="failed" if result.failed else "completed",
                    output=result.text,
                    parent=message.parent,
                )
            )

    # -- the end of a turn ---------------------------------------------------------------

    def _on_result(self, message: wire.Result, out: list[Output]) -> None:
        s = self._s
        if message.input_tokens is not None or message.cost_usd:
            out.append(UsageSeen(message.input_tokens, message.output_tokens, message.cost_usd))
        fault = faults.from_result(message, s.error, s.interrupted)
        if s.phase == "opening":
            lost = s.resume and any(faults.NO_SESSION in text for text in message.errors)
            found = fault or Fault("protocol", "Claude Code ended a turn before it was ready")
            if found.code in ("other", "cancelled"):
                found = Fault("start", found.message)
            self._start_failed(found, lost, out)
            return
        if not s.turn:
            out.append(Noticed("Claude Code went on by itself after its turn had ended"))
            return
        if fault is None and s.background:
            out.append(Noticed(f"{s.background} background tasks of Claude Code still run"))
            return
        if fault is not None and fault.code == "limit" and fault.resets_at is None:
            fault = msgspec.structs.replace(fault, resets_at=s.resets)
        if fault is None and message.text:
            s.tail = _tail(message.text)
        self._end_turn(fault, message.terminal_reason or message.subtype, out)

    def _end_turn(self, fault: Fault | None, reason: str, out: list[Output]) -> None:
        s = self._s
        for request_id, ask in list(s.asks.items()):
            if ask.decided and fault is None:
                self._close(request_id, "acknowledged", "the turn went on to its end", out)
            else:
                self._close(request_id, "withdrawn", "the turn ended", out)
        s.turn = s.taken = s.interrupted = False
        s.background = 0
        s.parents = {}
        s.streams = {}
        out.append(TurnEnded(s.tail, fault, reason))

    # -- every message -------------------------------------------------------------------

    def _take(self, message: wire.Message, out: list[Output]) -> None:
        match message:
            case wire.Answered():
                self._on_answered(message, out)
            case wire.TurnBegun():
                self._on_turn_begun(message, out)
            case wire.AskTool():
                self._on_ask_tool(message, out)
            case wire.AskOther():
                out.append(Send(wire.unsupported(message.request_id, message.subtype)))
                out.append(Unrecognised(f"control_request/{message.subtype}"))
            case wire.AskCancelled():
                if message.request_id in self._s.asks:
                    self._close(message.request_id, "withdrawn", "the executor took it back", out)
            case wire.MessageBegun():
                self._s.streams[message.parent or ""] = Stream(message.message_id)
                self._s.error = None
            case wire.Delta():
                self._on_delta(message, out)
            case wire.Said():
                self._on_said(message, out)
            case wire.Results():
                self._on_results(message, out)
            case wire.ToolProgress():
                self._evidence(message.tool_use_id, done=False, out=out)
            case wire.Result():
                self._on_result(message, out)
            case wire.Background():
                self._s.background = message.count
            case wire.Strange():
                out.append(Unrecognised(message.what, message.sample))
            case _:
                self._notice(message, out)

    def _notice(self, message: wire.Message, out: list[Output]) -> None:
        match message:
            case wire.Retry():
                status = f" (HTTP {message.status})" if message.status is not None else ""
                delay = message.delay_ms / 1000 if message.delay_ms is not None else None
                reason = f"{message.error}{status}"
                out.append(Retrying(message.attempt, message.limit, delay, reason))
            case wire.Status():
                self._check_mode(message.mode, out)
            case wire.Notice():
                out.append(Noticed(message.text))
            case wire.Compacted():
                out.append(Noticed("Claude Code summarised the conversation to fit its context"))
            case wire.Refused():
                out.append(
                    Noticed(f"Claude Code denied {message.tool} by itself: {message.message}")
                )
            case wire.RateLimit() if message.status not in ("", "allowed"):
                kind = f" ({message.kind})" if message.kind else ""
                if message.resets_at is not None:
                    self._s.resets = f"{message.resets_at} (seconds since 1970 UTC)"
                out.append(Noticed(f"rate limit{kind}: {message.status}"))
            case _:
                pass


def _tail(text: str) -> str:
    """At most the last 16 KiB of text, cut between characters."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= TAIL_BYTES else data[-TAIL_BYTES:].decode("utf-8", "ignore")


#: messages that only a turn in progress brings
_SIGNS_OF_WORK = (
    wire.TurnBegun,
    wire.MessageBegun,
    wire.Said,
    wire.Status,
    wire.Retry,
    wire.AskTool,
)
