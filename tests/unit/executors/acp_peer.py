"""The ACP driver with an agent that a test plays."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from handoff.executors.acp import AcpDriver
from handoff.executors.catalog import AgentDefinition
from handoff.executors.contract import (
    Prompt,
    Send,
    Session,
)

PLAIN = AgentDefinition(name="plain", title="Plain", programs=("plain",))
CAREFUL = msgspec.structs.replace(PLAIN, mode="ask")
SESSION = Session(cwd="/w", new_id="n")
ONCE = [
    {"optionId": "zz-always", "kind": "allow_always", "name": "Always"},
    {"optionId": "b", "kind": "reject_once", "name": "No"},
    {"optionId": "a", "kind": "allow_once", "name": "Yes"},
]


class Peer:
    """The driver with an agent that a test plays."""

    def __init__(self, definition: AgentDefinition = PLAIN, session: Session = SESSION) -> None:
        self.driver = AcpDriver(definition)
        self.sent: list[dict[str, Any]] = []
        self.out: list[Any] = []
        self.take(self.driver.open(session))

    def take(self, outputs):
        new = []
        for output in outputs:
            if isinstance(output, Send):
                self.sent += [json.loads(line) for line in output.data.splitlines()]
            else:
                new.append(output)
        self.out += new
        return new

    def line(self, data: bytes):
        return self.take(self.driver.feed(data))

    def feed(self, message):
        return self.line(json.dumps(message).encode())

    def do(self, command):
        return self.take(self.driver.command(command))

    def answer(self, method, result=None, error=None):
        number = next(m["id"] for m in reversed(self.sent) if m.get("method") == method)
        body = {"error": error} if error is not None else {"result": result}
        return self.feed({"jsonrpc": "2.0", "id": number, **body})

    def ready(self, **opened):
        self.answer("initialize", {"protocolVersion": 1, "agentCapabilities": {}})
        return self.answer("session/new", {"sessionId": "s1", **opened})

    def update(self, update, /, session="s1", **fields):
        params = {"sessionId": session, "update": {"sessionUpdate": update, **fields}}
        return self.feed({"method": "session/update", "params": params})

    def chunk(self, text, **fields):
        content = {"type": "text", "text": text}
        return self.update("agent_message_chunk", content=content, **fields)

    def permission(self, number=0, call="c1", options=ONCE, **tool):
        params = {
            "sessionId": "s1",
            "toolCall": {"toolCallId": call, "title": "rm -rf build", "kind": "execute", **tool},
            "options": options,
        }
        return self.feed({"id": number, "method": "session/request_permission", "params": params})

    def methods(self):
        return [m["method"] for m in self.sent if "method" in m]


def working(definition=PLAIN, session=SESSION):
    peer = Peer(definition, session)
    peer.ready()
    peer.do(Prompt("go"))
    return peer
