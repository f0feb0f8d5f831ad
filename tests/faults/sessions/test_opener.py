"""The opener as a real process under a real terminal."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from tests.support.opener_run import Place, outcome_of, running, settings
from tests.support.waiting import until

from handoff.sessions.terminal import RESET

A = "attempt-0001"


def test_the_child_finds_the_prompt_and_a_clean_environment(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path, "dump")
    left = {
        "HERMES_YOLO_MODE": "1",
        "HERMES_NONINTERACTIVE": "1",
        "HERMES_SESSION_ID": "s-source",
        "GIT_DIR": "/elsewhere",
        "HANDOFF_ATTEMPT": "attempt-of-the-source",
    }
    kept = {"HERMES_HOME": "/profiles/bob", "HTTPS_PROXY": "http://p"}
    code, outcome = outcome_of(place, **left, **kept)
    assert code == 0, outcome
    seen = dict(
        line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line
    )
    assert not set(left) - {"HANDOFF_ATTEMPT"} & set(seen)
    assert seen["HANDOFF_ATTEMPT"] == A
    assert kept.items() <= seen.items()
    args = (tmp_path / "args").read_text()
    assert args.startswith("You are a new session.")
    assert max(map(len, args.splitlines())) <= 2048
    assert (tmp_path / "cwd").read_text().strip() == str(place.workspace)
    assert set(left) <= set(outcome["removed"])
    noted = [e.payload["removed"] for e in place.journal.events(A) if e.kind == "environment"]
    assert set(left) <= {name for part in noted for name in part}
    journal = (place.root / "journal.sqlite3").read_bytes()
    nonce = (tmp_path / "nonce").read_text()
    assert len(nonce) == 36
    for secret in (nonce, "/elsewhere", "attempt-of-the-source"):
        assert secret.encode() not in journal
    assert nonce not in (tmp_path / "env").read_text() + args
    assert str(place.root) not in (tmp_path / "fds").read_text(), "no descriptor is left to it"


def test_the_nonce_identifies_the_session(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path, "dump")
    place.program.write_text(place.program.read_text().replace("exit 0", "read -r x"))
    with running(place) as run:
        until((tmp_path / "fds").exists, "the child has looked around")
        nonce = (tmp_path / "nonce").read_text()
        assert place.journal.session_seen(A, "s-new", "bob", nonce=nonce)
        run.type(b"\n")
        code, outcome = run.end()
    assert code == 0
    assert outcome["status"]["session_identified"] is True
    assert outcome["status"]["state"] == "closed"
    assert outcome["resume_verified"] is False


@pytest.mark.parametrize("behave", ["wreck-0", "wreck-9", "wreck-15"])
def test_the_terminal_is_as_it_was(tmp_path: pathlib.Path, behave: str) -> None:
    place = Place(tmp_path, behave)
    with running(place) as run:
        before = settings(run.slave)
        code, outcome = run.end()
        assert settings(run.slave) == before
        shown = run.shown()
        assert RESET in shown
        assert shown.index(RESET) > shown.index(b"\x1b[?1049h")
    number = int(behave.removeprefix("wreck-"))
    assert code == (10 if number else 0)
    assert outcome["child"] == (
        {"code": None, "signal": number} if number else {"code": 0, "signal": None}
    )
    assert place.journal.status(A)["state"] == "closed"


def test_the_childs_own_code_is_in_the_outcome(tmp_path: pathlib.Path) -> None:
    code, outcome = outcome_of(Place(tmp_path, "fail"))
    assert (code, outcome["child"]) == (10, {"code": 3, "signal": None})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_to_the_opener_reach_the_child(tmp_path: pathlib.Path, number: int) -> None:
    place = Place(tmp_path, "hang")
    with running(place) as run:
        until((tmp_path / "ready").exists, "the child is up")
        run.process.send_signal(number)
        code, outcome = run.end()
    assert code == 10
    assert outcome["child"] == {"code": None, "signal": number}
    assert outcome["signals"] == [number]
    assert place.journal.status(A)["child_exit"] == {"code": None, "signal": number}


def test_ctrl_c_is_the_childs(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path, "int")
    with running(place) as run:
        until((tmp_path / "ready").exists, "the child is up")
        run.type(b"\x03")
        code, outcome = run.end()
    assert (tmp_path / "int").exists()
    assert (code, outcome["child"]) == (10, {"code": 7, "signal": None})


@pytest.mark.parametrize("which", ["stdin", "stdout", "both", "closed"])
def test_without_a_terminal_nothing_is_reserved(tmp_path: pathlib.Path, which: str) -> None:
    place = Place(tmp_path)
    master, slave = os.openpty()
    try:
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" <&-', "sh", *place.argv(A)]
            if which == "closed"
            else place.argv(A),
            stdin=subprocess.DEVNULL if which in ("stdin", "both") else slave,
            stdout=subprocess.DEVNULL if which in ("stdout", "both") else slave,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    finally:
        os.close(slave)
        os.close(master)
    assert done.returncode == 9, done.stderr
    assert place.journal.status(A)["state"] == "prepared"
    assert len(place.journal.events(A)) == 1
    assert place.launches() == []


def test_a_start_that_fails_is_proved_and_final(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path)
    place.program.write_bytes(b"\x7fELF garbage")
    code, outcome = outcome_of(place)
    assert code == 7
    assert outcome["error"]["code"] == "launch_failed"
    assert outcome["status"]["state"] == "launch_failed"
    assert outcome["status"]["allowed_next"] == ["prepare_new"]
    place.behave("end")
    assert outcome_of(place)[0] == 4
    assert place.launches() == []
    place.prepare("attempt-0002", supersedes=A)
    assert outcome_of(place, "attempt-0002")[0] == 0


def test_a_program_that_is_none_is_refused_before_anything(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path)
    place.program.unlink()
    assert outcome_of(place)[0] == 7
    assert place.journal.status(A)["state"] == "prepared"


def test_a_person_may_decline(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path)
    with running(place, A, "--ask") as run:
        code, outcome = run.end()
    assert code == 8
    assert len(outcome["summary"]) == 10
    assert place.journal.status(A)["state"] == "prepared"


def test_a_workspace_that_is_gone_refuses_to_open(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path)
    shutil.rmtree(place.workspace)
    code, outcome = outcome_of(place)
    assert code == 3
    assert outcome["error"]["code"] == "preflight_refused"
    assert outcome["error"]["details"]["findings"][0]["code"] == "workspace_missing"
    assert "another folder" in outcome["error"]["remedy"]
    assert place.journal.status(A)["state"] == "prepared"


def test_an_attempt_of_another_profile_home_is_not_found(tmp_path: pathlib.Path) -> None:
    place = Place(tmp_path)
    code, outcome = outcome_of(place, "attempt-9999")
    assert code == 3
    assert outcome["error"]["code"] == "unknown_attempt"
    assert "HERMES_HOME" in outcome["error"]["remedy"]
