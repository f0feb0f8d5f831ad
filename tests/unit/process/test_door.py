"""The shim's socket: who may come in, and lines in both directions."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from handoff.process import door
from handoff.process.door import Door, Link, refusal


@pytest.fixture
def pair() -> Iterator[tuple[Link, socket.socket]]:
    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    theirs.settimeout(10)
    link = Link(mine)
    yield link, theirs
    link.close()
    theirs.close()


def test_lines_in_any_pieces(pair: tuple[Link, socket.socket]):
    link, theirs = pair
    assert link.receive() == []
    raw = b'{"op":"ping"}\n{"op":"tree","id":1}\n{"op"'
    got = []
    for at in range(len(raw)):
        theirs.sendall(raw[at : at + 1])
        got += link.receive()
    assert got == [{"op": "ping"}, {"op": "tree", "id": 1}] and not link.closed


@pytest.mark.parametrize("words", [b"x\n", b"[]\n", b"1\n", b"null\n", b"\xff\n", b"{}x\n"])
def test_what_is_no_request_closes(pair: tuple[Link, socket.socket], words: bytes):
    link, theirs = pair
    theirs.sendall(b'{"op":"ping"}\n' + words + b'{"op":"never"}\n')
    assert link.receive() == [{"op": "ping"}] and link.closed


def test_a_line_without_an_end_has_a_limit(
    pair: tuple[Link, socket.socket], monkeypatch: pytest.MonkeyPatch
):
    link, theirs = pair
    monkeypatch.setattr(door, "MAX_LINE", 1000)
    while not link.closed:
        theirs.sendall(b"x" * 400)
        assert link.receive() == []


def test_a_client_that_reads_nothing_is_dropped(
    pair: tuple[Link, socket.socket], monkeypatch: pytest.MonkeyPatch
):
    link, _theirs = pair
    monkeypatch.setattr(door, "MAX_UNREAD", 1 << 20)
    for _ in range(1000):
        link.say({"text": "x" * 10_000})
        if link.closed:
            break
        assert len(link.outbox) <= 1 << 20
    assert link.closed
    link.say({"late": True})  # goes nowhere, and harms nobody


def test_a_slow_client_gets_everything(pair: tuple[Link, socket.socket]):
    link, theirs = pair
    for n in range(100):
        link.say({"n": n, "text": "x" * 10_000})
    assert link.outbox
    raw = b""
    while raw.count(b"\n") < 100:
        raw += theirs.recv(1 << 16)
        link.flush()
    assert [json.loads(line)["n"] for line in raw.splitlines()] == list(range(100))


def test_the_other_side_goes(pair: tuple[Link, socket.socket]):
    link, theirs = pair
    theirs.close()
    assert link.receive() == [] and link.closed


@pytest.fixture
def open_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.chdir(tmp_path)
    found = Door()
    yield found
    found.close()


def knock() -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect("s")
    return client


def test_the_socket_is_private(open_door: Door):
    assert stat.S_IMODE(os.stat("s").st_mode) == 0o600
    assert open_door.accept() == (None, "")
    assert not open_door.lost()
    open_door.close()
    assert not os.path.exists("s")
    open_door.close()


def test_a_name_that_was_removed_is_made_again(open_door: Door):
    os.unlink("s")
    assert open_door.lost()
    open_door.reopen()
    with knock() as client:
        link, why = open_door.accept()
        assert link is not None and why == ""
        link.say({"hello": 1})
        assert client.recv(100) == b'{"hello":1}\n'
        link.close()


def test_another_user_stays_outside(open_door: Door, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(door, "_peer", lambda _sock: (os.getuid() + 1, 0))
    with knock() as client:
        link, why = open_door.accept()
        assert link is None and f"user {os.getuid() + 1}" in why
        assert "refused" in json.loads(client.recv(1000))
        assert client.recv(10) == b""


def test_what_runs_below_us_stays_outside(open_door: Door):
    """As the executor below the shim: it must not answer itself."""
    script = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('s'); print(s.recv(999))"
    made = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    while (found := open_door.accept()) == (None, ""):
        pass
    assert found[0] is None and f"process {made.pid} of the executor's own tree" in found[1]
    out, _ = made.communicate(timeout=10)
    assert b"refused" in out


def test_our_own_user_may_come_in():
    mine, theirs = socket.socketpair()
    with mine, theirs:
        assert refusal(mine) == ""
