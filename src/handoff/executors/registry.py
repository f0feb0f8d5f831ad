"""Executors by name: how to start one, and the driver that speaks to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from handoff.errors import UsageError
from handoff.executors import catalog
from handoff.executors.catalog import AgentDefinition
from handoff.executors.contract import Driver, Launch, LaunchRequest


class Executor:
    """One executor that tasks can be given to."""

    def __init__(self, definition: AgentDefinition) -> None:
        self.definition = definition

    @property
    def name(self) -> str:
        """The name that people use."""
        return self.definition.name

    @property
    def programs(self) -> tuple[str, ...]:
        """Names or paths of its program, the preferred one first."""
        return self.definition.programs

    @property
    def install_remedy(self) -> str:
        """The command that installs it, "" if there is none."""
        return self.definition.install

    def launch(self, request: LaunchRequest) -> Launch:
        """How to start a process of it. Writes nothing."""
        if self.definition.driver == "claude":
            from handoff.executors import claude

            return claude.launch(request)
        return acp_launch(self.definition, request)

    def driver(self) -> Driver:
        """A fresh driver for a fresh process."""
        if self.definition.driver == "claude":
            from handoff.executors.claude import ClaudeDriver

            return ClaudeDriver()
        from handoff.executors.acp import AcpDriver

        return AcpDriver(self.definition)

    def load_driver(self, data: bytes) -> Driver:
        """The driver whose state that is.

        Raises:
            ValueError: it is no state of this driver's version.
        """
        if self.definition.driver == "claude":
            from handoff.executors.claude import ClaudeDriver

            return ClaudeDriver.load(data)
        from handoff.executors.acp import AcpDriver

        return AcpDriver.load(data, self.definition)


class Registry:
    """All executors of a machine. ``agents``: the user's own, by name."""

    def __init__(self, agents: Mapping[str, Any] | None = None) -> None:
        self._definitions = catalog.definitions(agents)

    def names(self) -> list[str]:
        """The names, those that come with Handoff first."""
        return list(self._definitions)

    def get(self, name: str) -> Executor:
        """The executor of that name.

        Raises:
            UsageError: there is none.
        """
        definition = self._definitions.get(name)
        if definition is None:
            known = ", ".join(self._definitions)
            raise UsageError(
                f"there is no executor '{name}' (there are: {known})",
                remedy="handoff doctor",
                executors=self.names(),
            )
        return Executor(definition)


def acp_launch(definition: AgentDefinition, request: LaunchRequest) -> Launch:
    """How to start an agent that speaks ACP on its standard input and output."""
    model = request.model or definition.default_model
    place = {"scratch": request.scratch, "model": model or ""}
    argv = [request.program, *(_fill(word, place) for word in definition.argv)]
    env = {name: _fill(value, place) for name, value in definition.env.items()}
    if model and definition.model == "argv":
        argv += [_fill(word, place) for word in definition.model_argv]
    if model and definition.model == "env":
        env[definition.model_env] = model
    if definition.driver == "fake":
        argv += ["--state", request.scratch]
    if definition.name == "opencode":
        env |= _opencode_env(request)
    files = {name: _fill(text, place) for name, text in definition.files.items()}
    return Launch(tuple(argv), env, unset=definition.unset, files=files)


def _opencode_env(request: LaunchRequest) -> dict[str, str]:
    """The user's own configuration with our permissions over it."""
    name = "OPENCODE_CONFIG_CONTENT"
    given = request.env.get(name) or os.environ.get(name) or "{}"
    try:
        config = msgspec.json.decode(given)
    except msgspec.DecodeError:
        raise UsageError(
            f"the variable {name} is not JSON", remedy=f"correct or unset {name}"
        ) from None
    if not isinstance(config, dict):
        config = {}
    agents = config.get("agent")
    config |= {
        "permission": catalog.OPENCODE_PERMISSION,
        "autoupdate": False,
        "share": "disabled",
        # An agent's own permissions win over those of the session.
        "agent": {
            **(agents if isinstance(agents, dict) else {}),
            **{
                agent: {"permission": catalog.OPENCODE_PERMISSION}
                for agent in catalog.OPENCODE_AGENTS
            },
        },
    }
    return {
        name: msgspec.json.encode(config).decode(),
        "OPENCODE_PERMISSION": msgspec.json.encode(catalog.OPENCODE_PERMISSION).decode(),
    }


def _fill(text: str, place: dict[str, str]) -> str:
    for key, value in place.items():
        text = text.replace("{" + key + "}", value)
    return text
