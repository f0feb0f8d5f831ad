"""A model for Hermes whose mind is a function of the test.

The stub model follows a script in the prompt; a session that was opened by a handoff gets a
prompt that is not the test's to write. So here each request is put to ``mind``, which says
what comes next: a text, or calls of tools.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.live import stub_model
from tests.live.stub_dialects import DIALECTS, Chat, Reply, text_of
from tests.live.stub_script import Call

#: what a model answers: text, or (tool, arguments) pairs
Answer = str | list[tuple[str, dict[str, Any]]]


@dataclass
class Asked:
    """One request for the conversation's next message."""

    body: dict[str, Any]
    #: the person's messages
    prompts: list[str] = field(default_factory=list)
    #: results of tools since the last of these, as text and as what is in them
    results: list[str] = field(default_factory=list)
    #: what was called since then
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def prompt(self) -> str:
        return self.prompts[-1] if self.prompts else ""

    @property
    def tools(self) -> list[str]:
        found = [tool.get("function") or tool for tool in self.body.get("tools") or []]
        return [str(function.get("name")) for function in found]

    @property
    def acknowledged(self) -> bool:
        """Whether its last call was an acknowledgement, and is answered."""
        if not self.calls or len(self.results) < len(self.calls):
            return False
        name, given = self.calls[-1]
        if name == "tool_call":  # the host's bridge to what it hides
            given = given["calls"][0]["arguments"] if "calls" in given else given["arguments"]
        return given.get("action") == "ack"

    def result(self, index: int = -1) -> Any:
        """A tool's result as JSON."""
        return json.loads(self.results[index])


def read(body: dict[str, Any]) -> Asked:
    """What a request asks."""
    asked = Asked(body)
    for message in body.get("messages", []):
        role, text = message.get("role"), text_of(message.get("content"))
        if role == "user":
            asked.prompts.append(text)
            asked.results, asked.calls = [], []
        elif role == "tool":
            asked.results.append(text)
        elif role == "assistant":
            for call in message.get("tool_calls") or []:
                function = call["function"]
                asked.calls.append((function["name"], json.loads(function["arguments"] or "{}")))
    return asked


def follow(asked: Asked) -> Answer:
    """The plain mind: ``CALL tool {json}`` lines in the prompt are done one by one, then it
    says ``DONE: <last result>``; anything else is echoed."""
    lines = [line[5:] for line in asked.prompt.splitlines() if line.startswith("CALL ")]
    done = len(asked.results)
    if done < len(lines):
        tool, _, arguments = lines[done].partition(" ")
        return [(tool, json.loads(arguments or "{}"))]
    if asked.results:
        return f"DONE: {asked.results[-1]}"
    return f"ECHO: {asked.prompt}"


class HermesModel(stub_model.StubModel):
    """The server. ``minds``: by model name, or for all by ""; ``asked``: every request for the
    conversation, in order."""

    def __init__(self, mind: Callable[[Asked], Answer] = follow) -> None:
        super().__init__()
        self.RequestHandlerClass = _Handler  # type: ignore[misc]
        self.minds: dict[str, Callable[[Asked], Answer]] = {"": mind}
        self.asked: list[Asked] = []
        self.asides: list[dict[str, Any]] = []
        self.heard = threading.Lock()

    def models(self) -> list[str]:
        """Which model each request named."""
        return [str(asked.body.get("model")) for asked in self.asked]


class _Handler(stub_model._Handler):
    server: HermesModel

    def _answer(self, dialect: Any, body: dict[str, Any], path: str, strings: str) -> None:
        stub = self.server
        chat = next(d for d in DIALECTS if isinstance(d, Chat))
        reply = Reply(stub.next_id(), str(body.get("model")))
        talk = chat.read(body, path)
        if not body.get("tools"):
            with stub.heard:
                stub.asides.append(body)
            stub.note({"path": path, "aside": True, "model": body.get("model")}, strings)
            mind = stub.minds.get(f"aside:{body.get('model')}")
            said = mind(read(body)) if mind else "Stub"
            assert isinstance(said, str)
            reply.words.append(("say", said, 0))
            self._reply(chat, talk, reply)
            return
        asked = read(body)
        with stub.heard:
            stub.asked.append(asked)
        stub.note({"path": path, "model": body.get("model")}, strings)
        mind = stub.minds.get(str(body.get("model"))) or stub.minds[""]
        answer = mind(asked)
        if isinstance(answer, str):
            reply.words.append(("say", answer, 0))
        else:
            reply.calls = [self._call(asked, name, arguments) for name, arguments in answer]
        self._reply(chat, talk, reply)

    def _call(self, asked: Asked, name: str, arguments: dict[str, Any]) -> Call:
        """A call by the tool's own name, or through the host's bridge to tools that it hides."""
        if name in asked.tools or "tool_call" not in asked.tools:
            return Call(name, arguments)
        inner = {"name": name, "arguments": arguments}
        return Call("tool_call", {"calls": [inner]})
