"""The fake executor's ACP agent: reads messages, plays turns, answers."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any, BinaryIO

from handoff.executors.fake.closing import closing
from handoff.executors.fake.peer import Peer
from handoff.executors.fake.script import ScriptError, Step
from handoff.executors.fake.session import Session
from handoff.executors.fake.steps import play
from handoff.executors.fake.turn import EndTurn, FailTurn, Turn

_MODES = {
    "currentModeId": "auto",
    "availableModes": [
        {"id": "auto", "name": "Auto"},
        {"id": "ask", "name": "Ask"},
    ],
}


@dataclass
class Options:
    """How the process was started. ``start_error``: answer ``initialize`` or
    ``session/new`` with that JSON-RPC error (``code:message``)."""

    state: str | None = None
    log: str | None = None
    version: str = "1.0"
    start_error: str | None = None
    session_error: str | None = None
    no_load: bool = False
    no_resume: bool = False
    ignore_term: bool = False


class Agent:
    """One connection. Call :meth:`serve` from the main thread."""

    def __init__(self, source: BinaryIO, out: BinaryIO, options: Options) -> None:
        self._source = source
        self._peer = Peer(out)
        self._options = options
        self._elicits = False
        self._session: Session | None = None
        self._turn: Turn | None = None
        self._deaf = threading.Event()
        self._methods = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/set_mode": self._set_mode,
            "session/set_model": self._accept,
            "session/set_config_option": self._accept,
            "session/prompt": self._prompt,
        }

    def serve(self) -> None:
        """Read until the client closes our input."""
        for line in self._source:
            if self._deaf.is_set():
                threading.Event().wait()
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        method, number = message.get("method"), message.get("id")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if method is None:
            self._peer.settle(message)
        elif method == "session/cancel":
            self._cancel()
        elif number is not None:
            handler = self._methods.get(str(method))
            if handler is None:
                self._peer.fail(number, -32601, f"Method not found: {method}")
            else:
                handler(number, params)

    # -- handshake -------------------------------------------------------------------

    def _initialize(self, number: Any, params: dict[str, Any]) -> None:
        if self._refused(number, self._options.start_error):
            return
        capabilities = params.get("clientCapabilities")
        elicitation = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
        self._elicits = isinstance(elicitation, dict) and "form" in elicitation
        sessions: dict[str, Any] = {} if self._options.no_resume else {"resume": {}}
        self._peer.respond(
            number,
            {
                "protocolVersion": 1,
                "agentInfo": {
                    "name": "handoff-fake",
                    "title": "Fake executor",
                    "version": self._options.version,
                },
                "agentCapabilities": {
                    "loadSession": not self._options.no_load,
                    "promptCapabilities": {},
                    "sessionCapabilities": sessions,
                },
                "authMethods": [],
            },
        )

    def _new(self, number: Any, params: dict[str, Any]) -> None:
        if self._refused(number, self._options.session_error):
            return
        cwd = str(params.get("cwd") or os.getcwd())
        self._session = Session.new(cwd, self._options.state)
        self._session.save()
        self._peer.respond(number, {"sessionId": self._session.session_id, "modes": _MODES})

    def _load(self, number: Any, params: dict[str, Any]) -> None:
        self._reopen(number, params, replay=True, off=self._options.no_load)

    def _resume(self, number: Any, params: dict[str, Any]) -> None:
        self._reopen(number, params, replay=False, off=self._options.no_resume)

    def _reopen(self, number: Any, params: dict[str, Any], *, replay: bool, off: bool) -> None:
        wanted = str(params.get("sessionId"))
        if off:
            self._peer.fail(number, -32601, "Method not found")
            return
        cwd = str(params.get("cwd") or os.getcwd())
        session = Session.load(wanted, cwd, self._options.state)
        if session is None:
            self._peer.fail(number, -32603, "Internal error", {"details": f"No session {wanted}"})
            return
        self._session = session
        for role, text in session.history if replay else []:
            kind = "user_message_chunk" if role == "user" else "agent_message_chunk"
            update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
            self._peer.notify("session/update", {"sessionId": wanted, "update": update})
        self._peer.respond(number, {"modes": _MODES})

    def _set_mode(self, number: Any, params: dict[str, Any]) -> None:
        if params.get("modeId") not in ("ask", "auto"):
            self._peer.fail(number, -32602, f"Unknown mode: {params.get('modeId')}")
            return
        self._peer.respond(number, {})

    def _accept(self, number: Any, params: dict[str, Any]) -> None:
        del params
        self._peer.respond(number, {})

    def _refused(self, number: Any, error: str | None) -> bool:
        if error is None:
            return False
        code, _, message = error.partition(":")
        self._peer.fail(number, int(code), message)
        return True

    # -- turns -----------------------------------------------------------------------

    def _prompt(self, number: Any, params: dict[str, Any]) -> None:
        session = self._session
        if session is None or session.session_id != params.get("sessionId"):
            self._peer.fail(number, -32602, "Unknown session")
            return
        if self._turn is not None:
            self._peer.fail(number, -32602, "A turn is running")
            return
        blocks = params.get("prompt")
        text = "".join(
            str(block.get("text", ""))
            for block in (blocks if isinstance(blocks, list) else [])
            if isinstance(block, dict)
        )
        turn = Turn(self._peer, session, text, elicits=self._elicits, log=self._options.log)
        turn.deaf = self._deaf
        turn.log("prompt", bytes=len(text.encode("utf-8", "replace")), cwd=session.cwd)
        try:
            steps = session.take(text)
        except ScriptError as error:
            self._peer.fail(number, -32602, str(error))
            return
        if any(name == "ignore_term" for name, _ in steps):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._turn = turn
        threading.Thread(target=self._run, args=(number, turn, steps), daemon=True).start()

    def _run(self, number: Any, turn: Turn, steps: list[Step]) -> None:
        try:
            reason = self._play(turn, steps)
        except FailTurn as error:
            self._over(turn)
            self._peer.fail(number, error.code, error.message, error.data)
        except Exception as error:
            # A fault of the script (a wrong argument, say) is told as the agent's own.
            self._over(turn)
            self._peer.fail(number, -32603, f"Internal error: {type(error).__name__}: {error}")
        else:
            self._over(turn)
            result: dict[str, Any] = {"stopReason": reason}
            if turn.usage is not None:
                result["usage"] = turn.usage
            self._peer.respond(number, result)

    def _play(self, turn: Turn, steps: list[Step]) -> str:
        """Play the steps; the stop reason."""
        session = turn.session
        try:
            while steps:
                name, args = steps.pop(0)
                # Kept before the step runs: whatever happens in it, it is not played twice.
                session.rest = list(steps)
                session.save()
                play(turn, name, args)
                if turn.cancelled.is_set():
                    raise EndTurn("cancelled")
        except EndTurn as end:
            if end.reason == "cancelled" and turn.cancelled.is_set():
                session.rest = []
            return end.reason
        last = closing(turn)
        if last:
            turn.say("\n" + last if turn.line_open else last)
        return "end_turn"

    def _over(self, turn: Turn) -> None:
        turn.log("turn_ended")
        turn.session.save()
        self._turn = None

    def _cancel(self) -> None:
        if self._turn is not None:
            self._turn.cancelled.set()
            self._peer.cancel_all()


def serve(options: Options) -> None:
    """Be the agent of this process's standard input and output."""
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Agent(sys.stdin.buffer, sys.stdout.buffer, options).serve()
    # Threads of a turn may hang for ever; nobody waits for them.
    os._exit(0)
