"""How a node ends, and what becomes of the commands that it holds."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sqlite3
import subprocess
from collections.abc import Iterator

import pytest
from tests.support.nodes import Place, running

SLOW = 'echo x >>"$0/ran"; echo began; while [ ! -e "$0/go" ]; do sleep 0.05; done; echo done'


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Place]:
    with running(tmp_path) as made:
        yield made


def begin(place: Place) -> subprocess.Popen[bytes]:
    """A command that runs until the file ``go`` is there; its client."""
    child = place._start("main", "nodes", "exec", "n1", "--json", "--", "sh", "-c", SLOW,
                         str(place.files))  # fmt: skip
    place.until((place.files / "ran").exists)
    return child


def told(child: subprocess.Popen[bytes]) -> dict[str, object]:
    assert child.stdout is not None
    text = child.stdout.read()
    child.wait(40)
    value = json.loads(text)
    assert isinstance(value, dict)
    return value


def runs(place: Place) -> bool:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    line = file.read()
            except OSError:
                continue
            if line.startswith(b"sh\0-c\0") and str(place.files).encode() in line:
                return True
    return False


def audit(place: Place) -> list[dict[str, object]]:
    lines = place.node("logs", "--json", "-n", "200").stdout.splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("how", ["stop --keep", "service restart", "crash"])
def test_a_new_node_brings_the_result_of_the_old_ones_command(place: Place, how: str) -> None:
    node = place._children[-1]
    asking = begin(place)
    if how == "stop --keep":
        place.node("stop", "--keep")
    else:  # what the systemd unit sends before it starts the new version
        node.send_signal(signal.SIGUSR1 if how == "service restart" else signal.SIGKILL)
    assert node.wait(20) == (0 if how != "crash" else -signal.SIGKILL)
    if how != "crash":
        status = json.loads(place.node("status", "--json", code=1).stdout)
        assert (status["state"], status["held"]) == ("stopped", 1)
    (place.files / "go").touch()
    place.start_node()
    value = told(asking)
    result = value["result"]
    assert isinstance(result, dict)
    assert (result["status"], result.get("exit_code")) == ("ok", 0)
    assert asking.returncode == 0
    assert (place.files / "ran").read_text() == "x\n"


def test_a_node_that_is_stopped_ends_what_runs(place: Place) -> None:
    asking = begin(place)
    place.node("stop")
    assert place._children[1].wait(20) == 0
    place.until(lambda: not runs(place))
    place.start_node()
    value = told(asking)
    assert asking.returncode != 0
    assert "cancelled" in json.dumps(value) or "unknown" in json.dumps(value)
    assert (place.files / "ran").read_text() == "x\n"


def test_a_refusal_that_is_no_revocation_ends_nothing(place: Place) -> None:
    brain, node = place._children
    begin(place)
    place.nodes("stop")
    brain.wait(20)
    with sqlite3.connect(place.root / "brain" / "nodes.sqlite3") as db:
        db.execute("DELETE FROM node")
    db.close()
    place._start("main", "nodes", "serve")
    assert node.wait(40) == 3
    assert runs(place)
    status = json.loads(place.node("status", "--json", code=1).stdout)
    assert (status["state"], status["held"]) == ("refused", 1)
    assert "go on" in place.logs()
    done = json.loads(place.node("lock", "--json").stdout)
    assert done == {"locked": True, "ended": 1}
    assert not runs(place)
    assert [row["event"] for row in audit(place)][-1] == "lock"


def test_a_revoked_node_ends_what_runs(place: Place) -> None:
    begin(place)
    place.nodes("revoke", "n1")
    assert place._children[1].wait(20) == 3
    place.until(lambda: not runs(place), 10)


def test_what_a_person_decides_is_audited(place: Place) -> None:
    asking = begin(place)
    place.node("lock")
    value = told(asking)["result"]
    assert isinstance(value, dict)
    assert (value["status"], value["ended_by"]) == ("cancelled", "revoked")
    assert not runs(place)
    refused = place.nodes("exec", "n1", "--json", "--", "true", code=3)
    assert b"policy_denied" in refused.stdout + refused.stderr
    place.node("unlock")
    policy = place.config().parent / "policy.toml"
    policy.write_text('[exec]\ndefault = "ask"\n')
    for verdict in ("approve", "deny"):
        place.nodes("exec", "n1", "--", "echo", verdict, code=3)
        (ask,) = json.loads(place.node("asks", "--json").stdout)["asks"]
        place.node(verdict, ask["id"][:6])
        place.nodes("exec", "n1", "--", "echo", verdict, code=0 if verdict == "approve" else 3)
    found = [row for row in audit(place) if row["event"] in {"lock", "unlock", "approve", "deny"}]
    assert [row["event"] for row in found] == ["lock", "unlock", "approve", "deny"]
    for row in found:
        actor = row["actor"]
        assert isinstance(actor, dict)
        assert actor["user"]
    assert [row.get("target") for row in found[2:]] == ["echo approve", "echo deny"]
    assert place.node("logs", "--verify").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_who_is_gone_before_the_node_comes_runs_nothing(place: Place, number: int) -> None:
    place.node("stop")
    place.until(lambda: place.asked("status")["connected"] == 0)
    mark = place.files / "ran"
    words = ("nodes", "exec", "n1", "--queue-until", "1h", "--", "touch", str(mark))
    child = place._start("main", *words)
    kept = place._start("main", *words[:-1], str(place.files / "kept"))
    place.until(lambda: place.asked("status")["waiting"] == 2)
    child.send_signal(number)
    assert child.wait(30)
    if number == signal.SIGINT:
        assert "nothing was done" in place.logs()
    place.start_node("n1")
    assert kept.wait(30) == 0
    assert (place.files / "kept").exists()
    assert not mark.exists()
