"""Suite B9: planted secrets through the real store, journal and actions, and then a search for
them in every byte that was written or said.

Secrets stand where a reader would know them for secrets (beside a name, in a URL, in an
option): the question here is not what is found but whether something goes round the
redactor.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from typing import Any

from handoff.clock import FakeClock
from handoff.sessions import hosts, profile
from handoff.sessions.bench import Metric, scratch
from handoff.sessions.bench.chance import Chance
from handoff.sessions.bench.formats import RULES, made
from handoff.sessions.bench.gathering import Memory, opened
from handoff.sessions.bench.preservation import oracle
from handoff.sessions.service import Caller, Service, reply

SECRETS = 24
_CONTEXTS = ("SERVICE_TOKEN={}", "password: '{}'", "deploy --api-token {} now",
             "https://x.example/?access_token={}&n=1", "Authorization: Bearer {}")  # fmt: skip


#: the actions that must go through, so that there is something to look at
DONE = ("evidence", "create", "prepare_open", "read", "list", "show", "log", "validate", "verify",
        "opening_status", "search", "abandon", "recover", "export", "import", "prune")  # fmt: skip


class Traffic:
    """A profile through which secrets are sent, and everything that came out of it."""

    def __init__(self, chance: Chance, folder: str) -> None:
        self.chance, self.folder = chance, folder
        long = [
            rule for rule in RULES if rule.length >= 24 and rule.alphabet in ("an", "low", "hex")
        ]
        self.secrets = [made(chance, long[at * len(long) // SECRETS]) for at in range(SECRETS)]
        self.said: list[str] = []
        self._next = 0
        self.workspace = os.path.join(folder, "w")
        os.mkdir(self.workspace)
        program = os.path.join(folder, "claude")
        with open(program, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nexit 0\n")
        os.chmod(program, 0o700)
        memory = Memory()
        for role in ("user", "assistant", "tool", "user"):
            memory.add("new", role, f"You must not say {self.leak()} and {self.leak()}")
        env = {"PATH": folder, "HOME": folder, "HERMES_YOLO_MODE": self.leak()}
        agent = hosts.Agent("claude", env, lambda: opened(memory))
        self.service = Service(
            profile.own(os.path.join(folder, "home")), agent, clock=FakeClock(), env=env
        )
        self.source = Caller("cli", "new")
        self.person = Caller("cli", person=True, name="bench")

    def leak(self) -> str:
        """The next secret in a context."""
        self._next += 1
        context = _CONTEXTS[self._next % len(_CONTEXTS)]
        return context.format(self.secrets[self._next % len(self.secrets)])

    def call(self, action: str, caller: Caller | None = None, **given: Any) -> dict[str, Any]:
        """One action; its reply is kept as what was printed."""
        told = reply(self.service, action, given, caller or self.source)
        self.said.append(json.dumps(told, ensure_ascii=False))
        return told

    def run(self) -> None:
        """Every action once, with secrets wherever a text may stand."""
        place = self.workspace
        self.call("evidence", workspace=place)
        state = _poisoned(oracle(self.chance, 2), self.leak)
        made_record = self.call("create", state=state, request_id="request-0001", workspace=place)
        ref = made_record.get("ref", "")
        self.call("create", state={"goal": self.leak(), self.leak(): 1}, request_id="request-0002",
                  workspace=place)  # fmt: skip
        self.call("create", state=self.leak(), request_id="request-0003", workspace=place)
        self.call("create", state=state, request_id=self.leak(), workspace=place, name=self.leak())
        ready = self.call("prepare_open", ref=ref, workspace=place, attempt_id="attempt-0001")
        self.call("prepare_open", ref=ref, workspace=place, attempt_id="attempt-0002",
                  model=self.leak(), provider=self.leak())  # fmt: skip
        self.said.append("\0".join(ready.get("argv", [])))
        page: int | None = 1
        while page:
            page = self.call("read", ref=ref, workspace=place, page=page).get("next_page")
        self.call("ack", attempt_id="attempt-0001", ref=ref, digest="0" * 64, constraint_ids=[],
                  discrepancy_codes=[self.leak()], first_step=self.leak())  # fmt: skip
        for action in ("list", "show", "log", "validate", "verify", "opening_status"):
            given: dict[str, Any] = {} if action in ("list", "verify") else {"ref": ref}
            self.call(action, **({"workspace": place} if action == "list" else given))
        self.call("search", query=self.leak()[:500], workspace=place)
        self.call("search", query="parser", scope="all")
        self.call("abandon", self.person, attempt_id="attempt-0001", reason=self.leak())
        self.call("recover", self.person, attempt_id="attempt-0001")
        self.call("export", self.person, ref=ref, path=os.path.join(self.folder, "one.handoff"))
        self.call("import", self.person, path=os.path.join(self.folder, "one.handoff"))
        self.call(self.leak(), ref=self.leak())
        self.call("prune", self.person, older_than=0, keep_last=0)

    def bytes(self) -> bytes:
        """Every byte under the profile, of what was exported, and of what was said."""
        parts = [text.encode("utf-8", "surrogatepass") for text in self.said]
        for where, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(where, name)
                if os.path.basename(path) != "claude":
                    with open(path, "rb") as file:
                        parts.append(file.read())
        return b"\n".join(parts)


def _poisoned(state: dict[str, Any], leak: Any) -> dict[str, Any]:
    """The state with a secret in each of its texts."""

    def walk(node: Any, key: str) -> Any:
        if isinstance(node, dict):
            return {name: walk(inner, name) for name, inner in node.items()}
        if isinstance(node, list):
            return [walk(inner, key) for inner in node]
        texts = ("text", "why", "claim", "command", "note", "verify", "check", "what", "scope",
                 "alternatives", "done_when")  # fmt: skip
        return f"{node} {leak()}" if isinstance(node, str) and key in texts else node

    walked: dict[str, Any] = walk(
        {**state, "omissions": [{"what": "talk", "count": 1, "why": "x"}]}, ""
    )
    return walked


def forms(secret: str) -> Mapping[str, bytes]:
    """How a secret may lie in bytes."""
    raw = secret.encode()
    return {
        "plain": raw,
        "its end": raw[-12:],
        "base64": base64.b64encode(raw)[:-4],
        "hex": raw.hex().encode(),
        "backwards": raw[::-1],
    }


def metrics(seed: int) -> list[Metric]:
    """B9 as rows."""
    with scratch.folder() as folder:
        traffic = Traffic(Chance(seed, "boundary"), folder)
        traffic.run()
        written = traffic.bytes()
    clean = sum(
        not any(form in written for form in forms(secret).values()) for secret in traffic.secrets
    )
    told = [json.loads(text) for text in traffic.said if text.startswith("{")]
    worked = {one["action"] for one in told if one["ok"]} & set(DONE)
    return [
        Metric("B9 planted secrets that are in no byte", clean, SECRETS, 10_000),
        Metric("B9 actions that did something with them", len(worked), len(DONE), 10_000),
    ]
