"""Brains and nodes that do not fit together, as real processes: another brain at the same
address, clocks that are wrong, codes that are no good, files that can't be used."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography.fernet import Fernet
from tests.support.nodes import Place, running

from handoff.link.pairing import parse_code

CLOCKS = shutil.which("faketime")


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Place]:
    made = Place(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running(tmp_path_factory.mktemp("wrong")) as made:
        yield made


def status(place: Place, name: str = "n1") -> Any:
    return json.loads((place.config(name).parent / "status.json").read_text())


def check(place: Place, name: str, *words: str, program: str = "hermes_node") -> Any:
    """One line of a doctor's."""
    done = place.run(*words, "--json", program=program, code=None)
    return next(
        one
        for one in json.loads(done.stdout)["checks"]
        if one["check" if "check" in one else "name"] == name
    )


def node_check(place: Place, name: str) -> Any:
    return check(place, name, "doctor", "--config", str(place.config()))


def brain_check(place: Place, name: str) -> Any:
    return check(place, name, "nodes", "doctor", program="main")


# -- who answers ----------------------------------------------------------------------------


def test_another_brain_at_the_same_address_gets_nothing(place: Place) -> None:
    """It has another key: the node sends it no byte, says so, and comes back to its own."""
    brain = place.serve()
    place.pair()
    place.start_node()
    port = place.asked("status")["port"]
    other = place.root / "other"
    place.nodes("stop")
    brain.wait(20)
    impostor = place._start("main", "nodes", "serve", "--brain", str(other), "--port", str(port))
    assert impostor.stdout is not None
    json.loads(impostor.stdout.readline())
    place.until(lambda: "certificate" in status(place)["last_error"])
    assert status(place)["state"] in {"waiting", "connecting"}
    assert "certificate" in node_check(place, "brain")["detail"]
    assert not node_check(place, "link")["ok"]
    rows = place.asked("list", "--brain", str(other))
    assert rows["count"] == 0
    impostor.terminate()
    impostor.wait(20)
    place.serve("--port", str(port))
    place.until(lambda: place.status() == "connected")
    assert node_check(place, "brain")["ok"]


def test_a_code_of_one_brain_is_worth_nothing_at_another(place: Place) -> None:
    place.serve()
    code = parse_code(place.asked("pair", "n1")["code"])
    odd = replace(code, brain_key=bytes(32))
    done = place.node("pair", "--config", str(place.config()), odd.text(), code=5)
    assert b"certificate" in done.stderr
    assert not place.config().exists()


def test_a_wrong_certificate_pin_is_said(linked: Place, tmp_path: pathlib.Path) -> None:
    token = linked.asked("pair", "old", "--token")
    (tmp_path / "token").write_text(token["token"])
    where = str(linked.config("old"))
    linked.node(
        *("pair", "--config", where, "--server", token["address"], "--name", "old"),
        *("--token-file", str(tmp_path / "token"), "--pin", "ab" * 32),
    )
    linked.start_node("old", wait=False)
    linked.until(
        lambda: (
            linked.status("old") == "waiting" and "pinned" in status(linked, "old")["last_error"]
        )
    )
    linked.nodes("revoke", "old")


# -- codes ----------------------------------------------------------------------------------


def test_codes_that_are_wrong_used_up_or_too_late(linked: Place, tmp_path: pathlib.Path) -> None:
    where = str(tmp_path / "config.toml")

    def redeem(code: str, *words: str) -> tuple[int, str]:
        done = linked.node("pair", "--config", where, code, *words, code=None)
        return done.returncode, done.stderr.decode()

    good = linked.asked("pair", "fresh")["code"]
    wrong = replace(parse_code(good), secret=bytes(len(parse_code(good).secret))).text()
    told = [redeem(wrong) for _ in range(6)]
    assert {code for code, _ in told} == {3}
    assert "not proven" in told[0][1]
    assert "unknown, used or expired" in told[-1][1]
    assert redeem(good) == told[-1]  # whoever guesses takes the code from everybody
    for bad, said in (("hn1", "mistyped"), (good[:-1] + "aa", "mistyped"), ("x", "begins with")):
        code, text = redeem(bad)
        assert (code, said in text, "try:" in text) == (2, True, True)
    code, text = redeem(linked.asked("pair", "fresh")["code"], "--name", "other")
    assert (code, "'fresh'" in text, "try:" in text) == (2, True, True)
    assert not os.path.exists(where)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("pair", "all"), 2, "every node"),
        (("pair", "N1"), 3, "in case only"),
        (("rename", "n1", "ALL"), 2, "every node"),
        (("exec", "N1", "--", "true"), 4, "did you mean 'n1'"),
        (("show", "N1"), 4, "did you mean 'n1'"),
    ],
)
def test_names_that_are_taken_for_others(
    linked: Place, words: tuple[str, ...], code: int, said: str
) -> None:
    assert said in linked.nodes(*words, code=code).stderr.decode()


# -- clocks ---------------------------------------------------------------------------------


@pytest.mark.skipif(CLOCKS is None, reason="no faketime on this machine")
@pytest.mark.parametrize("who", ["brain", "node"])
@pytest.mark.parametrize("days", ["-1d", "+1d"])
def test_a_clock_that_is_a_day_off_changes_nothing_and_is_said(
    place: Place, monkeypatch: pytest.MonkeyPatch, who: str, days: str
) -> None:
    real = Place.env
    assert CLOCKS is not None
    shown = subprocess.run(
        [CLOCKS, "-m", "-f", days, "env"], capture_output=True, text=True, check=True
    )
    words = dict(line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)
    off = {name: words[name] for name in ("LD_PRELOAD", "FAKETIME")}
    programs = {"brain": "serve", "node": "run"}

    def env(self: Place, *given: Any, **more: Any) -> dict[str, str]:
        return {**real(self, *given, **more), **(off if wrong else {})}

    def start(self: Place, program: str, *given: str) -> subprocess.Popen[bytes]:
        nonlocal wrong
        wrong = programs[who] in given
        try:
            return begin(self, program, *given)
        finally:
            wrong = False

    wrong, begin = False, Place._start
    monkeypatch.setattr(Place, "env", env)
    monkeypatch.setattr(Place, "_start", start)
    place.serve()
    place.pair()
    child = place.start_node()
    done = place.nodes("exec", "n1", "--", "sh", "-c", "echo out; exit 7", code=7)
    assert done.stdout == b"out\n"
    assert place.nodes("exec", "n1", "--timeout", "1s", "--", "sleep", "60", code=124)
    ahead = (1 if days == "+1d" else -1) * (1 if who == "brain" else -1)
    assert abs(status(place)["clock_skew_ms"] - ahead * 86_400_000) < 60_000
    assert not node_check(place, "clock")["ok"]
    child.terminate()
    assert child.wait(20) == 0


def test_clocks_that_agree_are_no_news(linked: Place) -> None:
    assert abs(status(linked)["clock_skew_ms"]) < 5_000
    assert node_check(linked, "clock")["ok"]


# -- files and ports ------------------------------------------------------------------------


def test_authorities_that_are_missing_are_found_before_the_node_runs(
    linked: Place, tmp_path: pathlib.Path
) -> None:
    config = tmp_path / "config.toml"
    text = linked.config().read_text()
    shutil.copy(linked.config().parent / "key.pem", tmp_path / "key.pem")

    def validate(code: int) -> str:
        done = linked.node("validate", "--config", str(config), code=code)
        return (done.stdout + done.stderr).decode()

    def write(more: str) -> None:
        config.write_text(more)
        config.chmod(0o600)

    write(f'{text}\n[server]\nca_cert = "{tmp_path}/ca.pem"\n')
    assert "ca_cert" in validate(2)
    (tmp_path / "ca.pem").write_text("no certificate")
    assert "ca_cert" in validate(2)
    shutil.copy(linked.root / "brain" / "cert.pem", tmp_path / "ca.pem")
    assert json.loads(validate(0))["ok"]
    (tmp_path / "policy.toml").write_text(
        f'read = ["{tmp_path}"]\nwrite = ["{tmp_path}"]\n[exec]\nrun_as = "nobody"\n'
    )
    (tmp_path / "policy.toml").chmod(0o600)
    (warning,) = json.loads(validate(0))["warnings"]
    assert "commands only" in warning
    (tmp_path / "key.pem").unlink()
    assert "pair this machine anew" in validate(2)
    write("\n".join(one for one in text.splitlines() if not one.startswith("key =")))
    assert "no credential" in validate(2)


def test_the_doctor_tries_the_brains_own_port(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (place.root / "brain").mkdir(mode=0o700)
        (place.root / "brain" / "brain.toml").write_text(f"port = {port}\n")
        found = brain_check(place, "port")
        assert (found["ok"], "in use by another program" in found["detail"]) == (False, True)
        done = place.nodes("serve", code=None)
        assert done.returncode != 0
        assert b"in use by another program" in done.stderr
    assert brain_check(place, "port")["ok"]
    place.serve("--port", str(port))
    assert "this brain's key" in brain_check(place, "port")["detail"]


def test_tls_is_switched_off_and_on_again(place: Place) -> None:
    for words, scheme in ((("--no-tls",), "ws"), ((), "ws"), (("--tls",), "wss"), ((), "wss")):
        child = place.serve(*words)
        told = place.asked("status")
        assert (told["address"].partition(":")[0], told["tls"]) == (scheme, scheme == "wss")
        assert brain_check(place, "port")["ok"]
        child.terminate()
        child.wait(20)


def test_a_brain_in_the_background_is_told_where_to_listen(place: Place) -> None:
    """What pairing prints works as it is printed, and what can't be is not kept."""
    place.asked("pair", "n1")  # which starts it
    done = place.nodes("serve", code=3)
    assert b"handoff nodes stop" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    given = ("--host", "0.0.0.0", "--port", str(free), "--address", f"wss://localhost:{free}")
    told = place.asked("restart", *given)
    assert (told["host"], told["address"]) == ("0.0.0.0", f"wss://localhost:{free}")
    place.nodes("restart", "--host", "no.such.invalid", code=None)
    place.nodes("restart", "--address", "foo", code=2)
    assert place.asked("status")["address"] == f"wss://localhost:{free}"
    place.pair("n1")
    place.start_node("n1")
    assert place.nodes("exec", "n1", "--", "echo", "hi").stdout == b"hi\n"
    place.nodes("revoke", "n1")
    place.until(lambda: place.status() == "refused")
    assert status(place)["last_error"] == "revoked: the node was revoked"


# -- taking over ----------------------------------------------------------------------------


def test_a_plugins_files_are_taken_over_as_far_as_they_can_be_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = Fernet.generate_key()
    record = {"token_hash": "ab" * 32, "created_at": "2026-07-01T10:00:00Z", "revoked": False}
    records = [{**record, "name": name} for name in ("lab", "LAB", "all", "a/b", "é")]
    records.append({**record, "name": "maybe", "revoked": "yes"})
    tokens, yaml = place.root / "nodes" / "tokens.json", place.root / "hermes-node.yaml"
    tokens.parent.mkdir()
    body = json.dumps({"version": 1, "records": records}).encode()
    tokens.write_bytes(Fernet(key).encrypt(body))
    (place.root / ".env").write_text(f"export HERMES_NODES_TOKEN_KEY='{key.decode()}'\n")
    yaml.write_text("\ufeffhost: 127.0.0.1\nport: 7000\nold_key: 1\n")
    given = ("import", "--tokens", str(tokens), "--settings", str(yaml))
    told = place.asked(*given, code=1)
    assert (told["imported"], told["left"], len(told["refused"])) == (["lab"], [], 5)
    warnings = " ".join(told["settings"]["warnings"])
    assert "old_key" in warnings
    assert "--no-tls" in warnings
    # the nodes dial the plugin's port: another one is not taken in its place
    assert "port = 7000" in (place.root / "brain" / "brain.toml").read_text()
    assert place.asked(*given, code=1)["left"] == ["lab"]
    for damaged in (b"", b"gAAAA", tokens.read_bytes()[:-10], Fernet(key).encrypt(b"[" * 100_000)):
        tokens.write_bytes(damaged)
        done = place.nodes("import", "--tokens", str(tokens), code=2)
        assert b"tokens.json" in done.stderr
        assert b"Traceback" not in done.stderr
