"""Brain, node, keeper and asking process killed at any moment: nothing runs twice, and no
answer is made up."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.nodes import Place

from handoff.errors import HandoffError
from handoff.nodes.client import BrainClient

ROUNDS = 40 if os.environ.get("HANDOFF_FAULTS") == "all" else 8


class Mortal(Place):
    """A place whose processes can be killed and come back."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(root)
        self.brain = self.serve()
        self.pair()
        settings = self.config().read_text()
        self.config().write_text(
            settings.replace("[node]", '[node]\nbackoff_initial = "50ms"\nbackoff_max = "200ms"')
        )
        self.member = self.start_node()

    def keeper(self) -> int:
        info = json.loads((self.config().parent / "calls" / "keeper.json").read_text())
        assert info["pid"] > 1
        return int(info["pid"])

    def kill(self, who: str) -> None:
        if who == "brain":
            self.brain.kill()
            self.brain.wait()
            self.brain = self._start("main", "nodes", "serve")
        elif who == "node":
            self.member.kill()
            self.member.wait()
            self.member = self.start_node(wait=False)
        elif who == "keeper":
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.keeper(), signal.SIGKILL)

    def ready(self) -> BrainClient:
        client = BrainClient(str(self.root / "brain"), None)

        def linked() -> bool:
            try:
                return bool(client.ask("status")["connected"])
            except HandoffError:
                return False

        self.until(linked)
        return client


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Mortal]:
    made = Mortal(tmp_path)
    try:
        yield made
    finally:
        made.close()


def settle(place: Mortal, call: dict[str, Any], key: str) -> tuple[bool, dict[str, Any]]:
    """Ask with one key until there is an answer that stands."""
    until = time.monotonic() + 60
    while True:
        client = place.ready()
        try:
            ok, value = client.call("n1", "exec", call, key=key, return_s=20)
        except HandoffError as error:
            ok, value = False, error.to_json()
        code = "" if ok else str(value.get("code"))
        away = code == "outcome_unknown" and "not come back" in str(value.get("error"))
        if code not in {"node_offline", "unreachable"} and not value.get("retry_safe") and not away:
            return ok, value
        assert time.monotonic() < until, value
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", ["brain", "node", "keeper", "client"])
def test_a_kill_at_any_moment_runs_nothing_twice(place: Mortal, who: str) -> None:
    chance = random.Random(f"kills {who}")
    answers = []
    for number in range(ROUNDS):
        ran = place.files / f"ran{number}"
        key = f"round-{who}-{number:04d}"
        command = f"echo x >>{ran}; sleep 0.1; echo over; exit 5"
        call = {"command": command, "timeout_ms": 20_000}
        place.ready()
        asking = subprocess.Popen(
            [
                *(sys.executable, "-m", "handoff.cli.main", "nodes", "exec", "n1", "--json"),
                *("--key", key, "--timeout", "20s", "--shell", command),
            ],
            env=place.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(chance.uniform(0.0, 0.35))
        if who == "client":
            asking.kill()
        else:
            place.kill(who)
        out = asking.communicate(timeout=90)[0]
        ok, value = settle(place, call, key)
        runs = ran.read_text() if ran.exists() else ""
        assert runs in {"", "x\n"}, (number, runs)
        if ok:
            assert runs == "x\n"
            assert value["exit_code"] == 5 or value["status"] in {"cancelled", "error"}
        else:
            assert value["code"] == "outcome_unknown", value
            assert who in {"keeper", "node"}, value
        again = settle(place, call, key)
        assert again == (ok, value)
        assert (ran.read_text() if ran.exists() else "") == runs
        if out:
            told = json.loads(out)
            assert told["result"].get("exit_code") == value.get("exit_code")
        answers.append("ok" if ok else value["code"])
    if who in {"brain", "client"}:
        assert set(answers) == {"ok"}, answers
    for folder in (place.root / "brain", place.config().parent):
        from handoff.nodes import audit

        assert not audit.verify(str(folder / "audit")).findings


def test_the_command_itself_killed_is_told(place: Mortal) -> None:
    client = place.ready()
    result: list[Any] = []
    asked = threading.Thread(
        target=lambda: result.append(
            client.call("n1", "exec", {"command": "echo $$; exec sleep 600"}, key="key-00001")
        )
    )
    asked.start()
    found: list[int] = []

    def running() -> bool:
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                    if file.read() == b"sleep\x00600\x00":
                        with open(f"/proc/{name}/environ", "rb") as environ:
                            if str(place.home).encode() in environ.read():
                                found.append(int(name))
                                return True
        return False

    place.until(running)
    assert found[0] > 1
    os.kill(found[0], signal.SIGKILL)
    asked.join(30)
    ok, value = result[0]
    assert ok
    assert (value["status"], value["signal"], value["ended_by"]) == ("error", 9, "signal")
