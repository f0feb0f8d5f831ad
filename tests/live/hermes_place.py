"""A home of Hermes with our plugin, a project, a session that was handed off, and a model
that does in a new session what the opening prompt says."""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.live.hermes_host import HermesHome, Screen
from tests.live.hermes_model import Answer, Asked, HermesModel, follow
from tests.support.home import Home
from tests.support.repository import Repository
from tests.support.waiting import until

TOOL = "hermes_handoff"
RULE = "You must never touch the generated files."
SECRET = "sk-live-" + "9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b4c"
OPENING = "You are a new session."


def state(constraint: str = RULE) -> dict[str, Any]:
    """A small state with one constraint."""
    return {
        "schema": "handoff-state/2",
        "goal": {"text": "Make the parser in app.py total", "done_when": ["pytest -q passes"]},
        "constraints": [{"id": "c1", "text": constraint, "kind": "must_not", "basis": "reported"}],
        "next_steps": [{"id": "n1", "text": "Run `pytest -q`"}],
        "omissions": [{"what": "what was said beside that", "why": "it adds nothing"}],
    }


class Mind:
    """The model: it does ``CALL`` lines, hands a session off when told to, and obeys the
    opening prompt. ``stop_after``: how many calls a new session makes before it says nothing
    more (a model may stop at any point)."""

    def __init__(self) -> None:
        self.stop_after = 99
        self.opened: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Answer:
        if asked.prompt.startswith(OPENING):
            return self._destination(asked)
        found = re.search(r"^HAND OFF (\{.*\})$", asked.prompt, re.MULTILINE)
        return self._source(asked, json.loads(found[1])) if found else follow(asked)

    def _source(self, asked: Asked, told: dict[str, Any]) -> Answer:
        """Gather, create, prepare: the three steps of the skill."""
        workspace, step = told["workspace"], len(asked.results)
        if step == 0:
            return [(TOOL, {"action": "evidence", "workspace": workspace})]
        result = asked.result()
        if not result["ok"]:
            return f"REFUSED: {json.dumps(result)}"
        if step == 1:
            assert RULE in result["candidates"][0]["text"], result
            given = {"state": state(), "request_id": told["request"], "workspace": workspace}
            return [(TOOL, {"action": "create", **given})]
        if step == 2:
            given = {"ref": result["ref"], "attempt_id": told["attempt"], "workspace": workspace}
            return [(TOOL, {"action": "prepare_open", **given, **told.get("more", {})})]
        return f"DONE: {json.dumps(result)}"

    def _destination(self, asked: Asked) -> Answer:
        found = re.search(r'\{"action": "read".*?\}', asked.prompt)
        assert found, asked.prompt
        told, step = json.loads(found[0]), len(asked.results)
        if step == 0:
            with self._lock:
                self.opened.append({**told, "prompt": asked.prompt, "model": asked.body["model"]})
        if step >= self.stop_after:
            return "I stop here."
        if step == 0:
            return [(TOOL, told)]
        result = asked.result()
        if result["action"] == "read" and result["ok"]:
            if result["next_page"]:
                return [(TOOL, {**told, "page": result["next_page"]})]
            given = {
                "attempt_id": told["attempt_id"],
                "ref": told["ref"],
                "workspace": told["workspace"],
                "digest": result["document_sha256"],
                "constraint_ids": result["constraint_ids"],
                "discrepancy_codes": [one["code"] for one in result["discrepancies"]],
                "first_step": "Run the tests.",
            }
            return [(TOOL, {"action": "ack", **given})]
        return f"I WAIT: {json.dumps(result)}"

    def openings(self, attempt: str) -> list[dict[str, Any]]:
        """The new sessions that were told of that attempt."""
        with self._lock:
            return [one for one in self.opened if one["attempt_id"] == attempt]


class Place:
    """One release, one profile's source session, one record."""

    def __init__(self, host: HermesHome, mind: Mind, profile: str = "default") -> None:
        self.host, self.mind, self.profile = host, mind, profile
        self.workspace = str(host.work)
        self.source = ""
        self.ref = ""
        self.first: dict[str, Any] = {}

    def hand_off(self, attempt: str = "attempt-first", *args: str) -> None:
        """One turn: the model gathers, creates and prepares."""
        told = {"workspace": self.workspace, "request": "request-first", "attempt": attempt}
        text = f"{RULE} The key is {SECRET}.\nHAND OFF {json.dumps(told)}"
        named = self.profile if self.profile != "default" else ""
        ran = self.host.ask(text, *args, profile=named)
        self.source = self.host.session(ran)
        self.first = ran.json()
        assert self.first["ok"], self.first
        self.ref = self.first["ref"]

    def call(self, action: str, *, session: str | None = None, **given: Any) -> Any:
        """Call the tool in the host, as the source session or another ("" for none)."""
        known = {"session_id": self.source if session is None else session, "task_id": "t"}
        if not known["session_id"]:
            del known["session_id"]
        return self.host.dispatch((TOOL, {"action": action, **given}, known), profile=self.profile)[
            0
        ]

    def prepare(self, attempt: str, **more: Any) -> Any:
        """Freeze an attempt of the record. One attempt of it at a time is live, but for
        those that say they may be beside another."""
        given = {"ref": self.ref, "workspace": self.workspace, "attempt_id": attempt}
        return self.call("prepare_open", **{**given, "allow_parallel": True, **more})

    def another(self, ref: str) -> Place:
        """The same, for another record of the same session."""
        other = Place(self.host, self.mind, self.profile)
        other.source, other.ref = self.source, ref
        return other

    def status(self, attempt: str) -> Any:
        return self.call("opening_status", session="", attempt_id=attempt)

    def command(self, attempt: str, *more: str) -> list[str]:
        """What a person types to open it, without the program."""
        return [
            "--profile",
            self.profile,
            "handoff-open",
            self.ref,
            "--workspace",
            self.workspace,
            "--attempt-id",
            attempt,
            *more,
        ]

    @contextmanager
    def opening(self, attempt: str, *more: str, **env: str) -> Iterator[Screen]:
        """A person opens it, under a terminal, without being asked."""
        with self.host.terminal(*self.command(attempt, "--yes", *more), **env) as screen:
            yield screen

    def waits(self, attempt: str, screen: Screen) -> None:
        """Wait until the new session has read, acknowledged, and waits."""

        def seen() -> bool:
            assert screen.process.poll() is None, screen.shown[-2000:]
            asked = list(self.host.model.asked)
            return any(
                f'"{attempt}"' in one.prompt and one.acknowledged
                for one in asked
                if one.prompt.startswith(OPENING)
            )

        until(seen, f"{attempt} waits", within=90)

    def leave(self, screen: Screen) -> int:
        """The person ends the new session; the opener's exit code."""
        for _ in range(3):
            screen.settle()
            screen.type("/quit")
            screen.settle()
            screen.type("\r")
            with suppress(subprocess.TimeoutExpired):
                return screen.wait(20)
            screen.type("\x15")  # what stands in the line is taken for a paste: away with it
        return screen.wait(20)


def make_repository(host: HermesHome) -> None:
    """A project in the host's folder of work."""
    repository = Repository(host.work, Home(host.top / "home", host.env))
    repository.git("init", "-q")
    repository.git("remote", "add", "origin", "ssh://git@example.invalid/ada/parser.git")
    repository.commit({"app.py": "print('hello')\n", "AGENTS.md": "Be careful.\n"}, "Begin")


@contextmanager
def make_place(release: str, directory: pathlib.Path) -> Iterator[Place]:
    """A home of that release with the plugin of that directory; nothing was handed off yet."""
    mind = Mind()
    with HermesModel(mind) as model, HermesHome(release, model) as host:
        make_repository(host)
        host.install(directory)
        yield Place(host, mind)
        bugs = [request["bug"] for request in model.requests if "bug" in request]
        assert not bugs, bugs[0]


def files_of(folder: pathlib.Path) -> dict[str, str]:
    """Digests of the configuration that a profile has."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.suffix in (".yaml", ".yml") or path.name in (".env", "auth.json")
    }


def codes(refusal: Any) -> list[str]:
    """The findings of a refused preflight that block."""
    assert refusal["code"] == "preflight_refused", refusal
    found = [one for one in refusal["details"]["findings"] if one["severity"] == "block"]
    return sorted({one["code"] for one in found})
