"""From a started agent to a session that can take a prompt.

``initialize``, then the old session by the ways that the agent offers (a new one if none
works: its context is lost), then the mode in which it asks, then the model. An agent that
can't be put into a mode in which it asks is not used: its gate would be open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from handoff.executors import faults
from handoff.executors.acp_state import State
from handoff.executors.catalog import AgentDefinition
from handoff.executors.contract import Fault, Noticed, Output, SessionReady, StartFailed
from handoff.wire import acp, jsonrpc
from handoff.wire.lenient import lenient

Json = dict[str, Any]


class Handshake:
    """The steps, driven by the agent's answers."""

    def __init__(
        self,
        definition: AgentDefinition,
        state: State,
        request: Callable[[str, Json, str], int],
        say: Callable[[Output], None],
    ) -> None:
        self._agent = definition
        self._s = state
        self._request = request
        self._say = say

    def answered(self, purpose: str, result: Any, error: jsonrpc.RpcError | None) -> None:
        """The agent answered the request of that purpose."""
        match purpose:
            case "initialize":
                self._initialized(result, error)
            case "new" | "load" | "resume":
                self._opened(purpose, result, error)
            case "login":
                self._logged_in(error)
            case "mode":
                self._mode_set(error)
            case "model":
                self._model_set(error)

    def _fail(self, fault: Fault) -> None:
        self._s.phase = "over"
        self._say(StartFailed(faults.with_login(fault, self._agent.login)))

    def _initialized(self, result: Any, error: jsonrpc.RpcError | None) -> None:
        if error is not None:
            self._fail(_start_fault(error))
            return
        answer = lenient(acp.Initialized, result) or acp.Initialized()
        if answer.protocol_version not in (None, acp.PROTOCOL_VERSION):
            self._fail(
                Fault(
                    "protocol",
                    f"the executor speaks version {answer.protocol_version} of the Agent Client "
                    f"Protocol; Handoff speaks version {acp.PROTOCOL_VERSION}",
                )
            )
            return
        capabilities = answer.agent_capabilities
        self._s.can_load = capabilities.load_session
        self._s.can_resume = capabilities.session_capabilities.resume is not None
        offered = {method.id for method in answer.auth_methods}
        self._s.logins = [way for way in self._agent.logins if way in offered]
        if answer.agent_info is not None:
            self._s.info_name = answer.agent_info.title or answer.agent_info.name or None
            self._s.info_version = answer.agent_info.version
        elif isinstance((answer.meta or {}).get("agentVersion"), str):
            self._s.info_version = (answer.meta or {})["agentVersion"]
        self._open_next()

    def _open_next(self) -> None:
        """Ask for the session by the next way that is left."""
        session = self._s.session
        assert session is not None
        if session.resume is not None:
            for way in self._agent.resume:
                able = self._s.can_resume if way == "resume" else self._s.can_load
                if able and way not in self._s.tried:
                    self._s.tried.append(way)
                    params = acp.session(session.cwd, session.resume, self._agent.session_meta)
                    self._request(f"session/{way}", params, way)
                    return
            self._s.context = "lost"
        params = acp.session(session.cwd, meta=self._agent.session_meta)
        self._request("session/new", params, "new")

    def _opened(self, purpose: str, result: Any, error: jsonrpc.RpcError | None) -> None:
        session = self._s.session
        assert session is not None
        fault = None if error is None else _start_fault(error)
        if fault is not None and fault.code == "login" and self._log_in(fault):
            return
        opened = lenient(acp.SessionOpened, result) if error is None else None
        if purpose != "new" and opened is not None:
            self._s.session_id = session.resume
            self._s.context = "resumed"
        elif purpose != "new":
            if fault is not None and fault.code == "login":
                self._fail(fault)
                return
            why = f": {fault.message}" if fault is not None else ""
            self._say(Noticed(f"the executor could not {purpose} its session{why}"[:600]))
            self._open_next()
            return
        elif opened is not None and opened.session_id:
            self._s.session_id = opened.session_id
        else:
            self._fail(fault or Fault("protocol", "the executor made a session without an id"))
            return
        opened = opened or acp.SessionOpened()
        self._s.opened = msgspec.to_builtins(opened)
        self._s.steps = ["mode", "model"]
        self._learn(opened)
        self._next_step()

    def _log_in(self, fault: Fault) -> bool:
        """Try the next login that needs nobody (a key in the environment)."""
        if not self._s.logins:
            return False
        self._s.refused = fault
        self._request("authenticate", {"methodId": self._s.logins.pop(0)}, "login")
        return True

    def _logged_in(self, error: jsonrpc.RpcError | None) -> None:
        if error is None:
            self._s.tried = []
            self._open_next()
        elif self._s.refused is not None and not self._log_in(self._s.refused):
            self._fail(self._s.refused)

    def _learn(self, opened: acp.SessionOpened) -> None:
        """The mode and the model that the session begins with."""
        if opened.modes is not None:
            self._s.mode = opened.modes.current_mode_id
        if opened.models is not None:
            self._s.model = opened.models.current_model_id
        for option in opened.config_options:
            if "model" in (option.id, option.category) and option.current_value:
                self._s.model = option.current_value
            if "mode" in (option.id, option.category) and self._s.mode is None:
                self._s.mode = option.current_value

    def _next_step(self) -> None:
        while self._s.steps:
            step = self._s.steps.pop(0)
            if self._set_mode() if step == "mode" else self._set_model():
                return
        self._s.phase = "ready"
        self._s.opened = {}
        if self._s.context == "resumed":
            # An earlier process of the same session was told.
            self._s.told_instructions = True
        self._say(
            SessionReady(
                self._s.session_id or "",
                self._s.context,
                self._s.model,
                self._s.info_name,
                self._s.info_version,
            )
        )

    def _what_opened(self) -> acp.SessionOpened:
        return lenient(acp.SessionOpened, self._s.opened) or acp.SessionOpened()

    # -- mode --------------------------------------------------------------------------

    def _set_mode(self) -> bool:
        if self._agent.mode is None:
            return False
        params: Json = {"sessionId": self._s.session_id}
        opened = self._what_opened()
        option = next((o for o in opened.config_options if "mode" in (o.id, o.category)), None)
        if opened.modes is None and option is not None:
            if option.current_value == self._agent.mode:
                return False
            params |= {"configId": option.id, "value": self._agent.mode}
            self._request("session/set_config_option", params, "mode")
        else:
            self._request("session/set_mode", {**params, "modeId": self._agent.mode}, "mode")
        return True

    def _mode_set(self, error: jsonrpc.RpcError | None) -> None:
        if error is None or self._s.mode == self._agent.mode:
            # An agent without modes to choose from may be in that one all the same.
            self._s.mode = self._agent.mode
            self._next_step()
            return
        opened = self._what_opened()
        names = [mode.id for mode in opened.modes.available_modes] if opened.modes else []
        for option in opened.config_options:
            if not names and "mode" in (option.id, option.category):
                names = [value.value for value in option.options]
        offered = ", ".join(names)
        self._fail(
            Fault(
                "start",
                f"the executor can't be put into the mode '{self._agent.mode}', in which it asks "
                f"(it offers: {offered or 'none'}): {error.message}"[:1000],
            )
        )

    # -- model -------------------------------------------------------------------------

    def _set_model(self) -> bool:
        session = self._s.session
        assert session is not None
        wanted = session.model or self._agent.default_model
        if wanted is None or self._agent.model != "session" or wanted == self._s.model:
            return False
        option, offered = self._models()
        value = _matching(wanted, offered)
        if value == self._s.model:
            return False
        params: Json = {"sessionId": self._s.session_id}
        if option is None:
            self._request("session/set_model", {**params, "modelId": value}, "model")
        else:
            params |= {"configId": option, "value": value}
            self._request("session/set_config_option", params, "model")
        self._s.model = value
        return True

    def _models(self) -> tuple[str | None, list[tuple[str, str | None]]]:
        """The option that holds the model (None: the older way), and the models offered."""
        opened = self._what_opened()
        for option in opened.config_options:
            if "model" in (option.id, option.category):
                return option.id, [(value.value, value.name) for value in option.options]
        models = opened.models.available_models if opened.models is not None else []
        return None, [(model.model_id, model.name) for model in models]

    def _model_set(self, error: jsonrpc.RpcError | None) -> None:
        if error is None:
            self._next_step()
            return
        names = [value for value, _ in self._models()[1]]
        fault = faults.from_rpc(error.code, error.message, error.data)
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        self._fail(
            Fault(
                "model",
                f"the executor does not take the model '{self._s.model}': {fault.message}"
                + (f" (it offers: {shown})" if shown else ""),
            )
        )


def _matching(wanted: str, offered: list[tuple[str, str | None]]) -> str:
    """The agent's own id for a model that a person named, or the name as it is."""
    ids = [value for value, _ in offered]
    if wanted in ids:
        return wanted
    for fits in (
        [v for v, name in offered if name is not None and name.casefold() == wanted.casefold()],
        [v for v in ids if wanted in (v.rpartition("/")[2], v.rpartition(":")[2])],
        [v for v in ids if v.partition("[")[0] == wanted],
    ):
        if len(fits) == 1:
            return fits[0]
    return wanted


def _start_fault(error: jsonrpc.RpcError) -> Fault:
    fault = faults.from_rpc(error.code, error.message, error.data)
    return msgspec.structs.replace(fault, code="start") if fault.code == "other" else fault
