"""Recorded conversations with real agents, played through the driver.

A transcript holds what a client and an agent wrote to each other. The driver takes the
client's place: what the agent wrote is fed to it, what the client decided (prompts, answers,
cancels) becomes its commands, and answers to its own requests are found by method, because it
numbers them itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from handoff.errors import NotAllowed
from handoff.executors.acp import AcpDriver
from handoff.executors.catalog import BUILT_IN
from handoff.executors.contract import (
    Allow,
    Answer,
    Command,
    Deny,
    Interrupt,
    Output,
    PermissionAsked,
    Prompt,
    QuestionAsked,
    Send,
    Session,
    Text,
)

TRANSCRIPTS = Path(__file__).parent / "transcripts" / "acp"
CWD = "/home/me/project"

#: requests that the recorded client may not have sent
OURS = ("session/set_mode", "session/set_model", "session/set_config_option")
AGENTS = {
    "claude-acp": "claude-agent-acp",
    "codex-acp": "codex-acp",
    "gemini": "gemini",
    "grok": "grok",
    "hermes": "hermes",
    "kimi": "kimi",
    "opencode": "opencode",
}


def agent_of(name: str) -> str:
    """The catalogue's name of the agent that a transcript was recorded with."""
    return next(agent for prefix, agent in AGENTS.items() if name.startswith(prefix))


class Replay:
    """One transcript, played. ``observed``: everything but the bytes sent."""

    def __init__(self, name: str, *, reload: bool = False) -> None:
        self.definition = BUILT_IN[agent_of(name)]
        self.observed: list[Output] = []
        self.sent: list[dict[str, Any]] = []
        self._reload = reload
        self._ours: dict[str, list[int]] = {}
        self._theirs: dict[Any, str] = {}
        self._requests: dict[Any, dict[str, Any]] = {}
        self._asked: dict[str, PermissionAsked | QuestionAsked] = {}
        text = (TRANSCRIPTS / f"{name}.jsonl").read_text()
        rows = [json.loads(line) for line in text.splitlines()]
        resume = None
        for message in (row["msg"] for row in rows):
            if message.get("method") in ("session/load", "session/resume"):
                resume = message["params"]["sessionId"]
                way = message["method"].partition("/")[2]
                self.definition = msgspec.structs.replace(self.definition, resume=(way,))
        self.driver = AcpDriver(self.definition)
        for row in rows:
            if row["dir"] == "send":
                self._client(row["msg"], resume)
            else:
                self._agent(row["msg"])

    def _client(self, message: dict[str, Any], resume: str | None) -> None:
        method = message.get("method")
        if method is not None and "id" in message:
            self._theirs[message["id"]] = method
        if method == "initialize":
            self._take(self.driver.open(Session(CWD, "new-id", resume=resume)))
        elif method == "session/prompt":
            self._command(Prompt(message["params"]["prompt"][0]["text"]))
        elif method == "session/cancel":
            self._command(Interrupt())
        elif method is None and "result" in message:
            self._decided(message["id"], message["result"])

    def _decided(self, number: Any, result: dict[str, Any]) -> None:
        asked = self._asked.get(str(number) if isinstance(number, int) else f"s:{number}")
        if asked is None:
            return
        if isinstance(asked, QuestionAsked):
            self._command(Answer(asked.id, (("pgx",),)))
            return
        outcome = result.get("outcome", {})
        options = self._requests[number]["params"]["options"]
        kind = next(
            (o["kind"] for o in options if o["optionId"] == outcome.get("optionId")), "cancelled"
        )
        self._command(Allow(asked.id) if kind.startswith("allow") else Deny(asked.id))

    def _agent(self, message: dict[str, Any]) -> None:
        if "method" in message and "id" in message:
            self._requests[message["id"]] = message
        elif "method" not in message:
            method = self._theirs.get(message.get("id"))
            ours = self._ours.get(str(method), [])
            if not ours:
                return
            message = {**message, "id": ours.pop(0)}
        self._feed(message)

    def _feed(self, message: dict[str, Any]) -> None:
        self._take(self.driver.feed(json.dumps(message, ensure_ascii=False).encode()))
        # What the recorded client never asked for succeeds.
        for method in OURS:
            recorded = method in self._theirs.values()
            while not recorded and self._ours.get(method):
                number = self._ours[method].pop(0)
                line = json.dumps({"jsonrpc": "2.0", "id": number, "result": {}})
                self._take(self.driver.feed(line.encode()))

    def _command(self, command: Command) -> None:
        try:
            self._take(self.driver.command(command))
        except NotAllowed:
            # The recorded client answered something that was over.
            pass

    def _take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                for line in output.data.splitlines():
                    message = json.loads(line)
                    self.sent.append(message)
                    if "method" in message and "id" in message:
                        self._ours.setdefault(message["method"], []).append(message["id"])
                continue
            if isinstance(output, (PermissionAsked, QuestionAsked)):
                self._asked[output.id] = output
            self.observed.append(output)
        if self._reload:
            self.driver = AcpDriver.load(self.driver.dump(), self.definition)


def lines_of(observed: list[Output]) -> list[str]:
    """Observations as lines of JSON; neighbouring pieces of text are joined."""
    out: list[Output] = []
    for one in observed:
        last = out[-1] if out else None
        if (
            isinstance(one, Text)
            and isinstance(last, Text)
            and (one.thought, one.parent) == (last.thought, last.parent)
        ):
            out[-1] = Text(last.text + one.text, one.thought, one.parent)
        else:
            out.append(one)
    return [msgspec.json.encode(one).decode() for one in out]


if __name__ == "__main__":
    # Writes down what is observed now. Read the difference before you commit it.
    for path in sorted(TRANSCRIPTS.glob("*.jsonl")):
        wanted = path.with_suffix(".expected")
        wanted.write_text("\n".join(lines_of(Replay(path.stem).observed)) + "\n")
