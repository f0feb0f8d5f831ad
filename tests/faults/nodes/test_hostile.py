"""Rubbish at every door: the brain's port, its socket, the keeper's socket. Whoever sends it is
refused or left; whoever else is there notices nothing, and what runs goes on."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.nodes import Place, running
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from handoff.errors import ProtocolViolation
from handoff.nodes.brain import framing
from handoff.nodes.pack import Entry, Unpacker

DEEP = b"[" * 200_000
ROUNDS = 400 if os.environ.get("HANDOFF_FAULTS") == "all" else 60


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Place]:
    with running(tmp_path) as made:
        yield made


def rubbish(chance: random.Random, seeds: list[bytes]) -> bytes:
    """Random bytes, or something sensible of which a part was changed."""
    if chance.random() < 0.3:
        return chance.randbytes(chance.randrange(1, 3000))
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randrange(0, 4)):
        where = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[where] = chance.randrange(256)
            case 1:
                del data[where:]
            case 2:
                data[where:where] = chance.randbytes(chance.randrange(1, 40))
            case _:
                data[where:where] = data
        if not data:
            return b"\0"
    return bytes(data)


@contextlib.contextmanager
def undisturbed(place: Place) -> Iterator[None]:
    """A command runs all the while, and ends as it would have."""
    go, ran = place.files / "go", place.files / "ran"
    line = (
        f"echo x >>{ran}; echo begun; while [ ! -e {go} ]; do sleep 0.05; done; echo over; exit 9"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "handoff.cli.main", "nodes", "exec", "n1", "--shell", line],
        env=place.env(),
        cwd=place.root,
        stdout=subprocess.PIPE,
    ) as asking:
        assert asking.stdout is not None
        assert asking.stdout.readline() == b"begun\n"
        try:
            yield
        finally:
            go.touch()
        assert (asking.stdout.read(), asking.wait(30)) == (b"over\n", 9)
    assert ran.read_text() == "x\n"
    place.nodes("exec", "n1", "--", "true")
    logs = place.logs()
    assert "Traceback" not in logs, logs[-3000:]


def send(path: str, data: bytes) -> bytes:
    """To a Unix socket; what it says until it closes, or has nothing to say to that."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(0.3)
        sock.connect(path)
        said = b""
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(65536):
                said += piece
        return said


def frame(body: bytes, kind: bytes = b"J") -> bytes:
    return kind + len(body).to_bytes(4, "big") + body


def test_rubbish_at_the_brains_socket(place: Place) -> None:
    chance = random.Random("brain's socket")
    call = {"op": "call", "target": "n1", "key": "k" * 12, "call": {"op": "stat", "args": {}}}
    asks = [{"op": op} for op in ("status", "nodes", "code", "revoke", "rename", "tags", "token")]
    seeds = [framing.json_frame(one) for one in [call, *asks]]
    seeds += [frame(DEEP), frame(b'{"op":' + DEEP), frame(b"\xff\xfe"), frame(b"null")]
    seeds += [framing.data_frame("stdin", b"x" * 50), b"J\xff\xff\xff\xff", b"D\0\0\0\0"]
    path = str(place.root / "brain" / "brain.sock")
    with undisturbed(place):
        for data in [*seeds, *(rubbish(chance, seeds) for _ in range(ROUNDS))]:
            if b"stop" not in data and b"remove" not in data:
                send(path, data)
        said = send(path, frame(DEEP))
        assert json.loads(said[5:])["code"] == "protocol_violation"
    assert place.asked("status")["connected"] == 1


def test_a_client_that_does_not_read_is_not_asked_for_more(place: Place) -> None:
    path = str(place.root / "brain" / "brain.sock")
    asks = framing.json_frame({"op": "nodes"})
    sent, block = 0, asks * 500
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(3)
        sock.connect(path)
        with pytest.raises(TimeoutError):
            while sent < 100_000 * len(asks):
                sent += sock.send(block[sent % len(block) :])
        place.nodes("exec", "n1", "--", "true")
        sock.settimeout(30)
        rest = len(asks) - sent % len(asks)
        came, answers = b"", 0
        while answers < sent // len(asks):  # it reads again: each one is answered
            came += sock.recv(1 << 20)
            while len(came) >= 5 and len(came) >= (size := 5 + int.from_bytes(came[1:5], "big")):
                assert json.loads(came[5:size])["count"] == 1
                came, answers = came[size:], answers + 1
        assert not came
        sock.sendall(asks[-rest:])
        assert sock.recv(1 << 20)


def test_rubbish_at_the_port_that_nodes_dial(place: Place) -> None:
    chance = random.Random("brain's port")
    port = place.asked("status")["port"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    seeds = [
        b"\r\n".join(
            [
                *(b"GET /ws/nodes HTTP/1.1", b"Host: x", b"Upgrade: websocket"),
                *(b"Connection: Upgrade", b"Sec-WebSocket-Version: 13"),
                *(b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", b"", b""),
            ]
        ),
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ]
    hello = b'{"type":"hello","protocol_version":"0.1.0","node_name":"n1"}'
    frames: list[bytes | str] = [
        *(hello, hello.decode(), DEEP, DEEP.decode(), b"\x01" * 40, "null", "[]", "7", ""),
        '{"type":"hello","protocol_version":"0.1.0","node_name":' + "[" * 5000,
    ]
    with undisturbed(place):
        for number in range(ROUNDS // 2):
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                raw = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                raw.settimeout(0.2)
                if number % 2:
                    raw = stack.enter_context(context.wrap_socket(raw))
                raw.sendall(rubbish(chance, seeds))
                raw.recv(4096)
        for number in range(ROUNDS // 4):
            with (
                contextlib.suppress(OSError, WebSocketException),
                connect(
                    f"wss://127.0.0.1:{port}/ws/nodes",
                    ssl=context,
                    compression=None,
                    proxy=None,
                    max_size=None,
                ) as one,
            ):
                first = frames[number % len(frames)]
                one.send(first)
                one.send(rubbish(chance, [hello]))
                one.recv(timeout=0.2)
    assert place.asked("status")["connected"] == 1


def memory(pid: int) -> int:
    """KiB in memory."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(one.split()[1]) for one in lines if one.startswith("VmRSS"))


def test_a_node_that_floods_and_reads_nothing_takes_no_memory(place: Place) -> None:
    status = place.asked("status")
    token = place.asked("pair", "bad", "--token")["token"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    hello = {"type": "hello", "protocol_version": "0.1.0", "node_name": "bad"}
    more = {"node_version": "0.1.4", "platform": "linux", "arch": "amd64", "capabilities": ["exec"]}
    at = {"ts": "2026-09-01T08:00:00.000Z"}
    ping = json.dumps({"type": "ping", **at}).encode()
    # as frames of the wire, masked with nothing: written faster than they are read
    flood = (b"\x81" + bytes([0x80 | len(ping)]) + bytes(4) + ping) * 1000
    control = (b"\x89\x84" + bytes(4) + b"ping") * 1000
    with (
        undisturbed(place),
        connect(f"{status['address']}/ws/nodes", ssl=context, compression=None, proxy=None) as bad,
    ):
        bad.send(json.dumps({**hello, **more, **at}))
        bad.recv()
        bad.send(json.dumps({"type": "auth", "node_name": "bad", "token": token, **at}))
        assert json.loads(bad.recv())["type"] == "auth_ok"
        before = memory(status["pid"])
        for _ in range(60):
            bad.socket.sendall(flood + control)
        place.nodes("exec", "n1", "--", "true")
        assert memory(status["pid"]) - before < 16 * 1024


def test_rubbish_at_the_keepers_socket(place: Place) -> None:
    chance = random.Random("keeper's socket")
    place.nodes("exec", "n1", "--", "true")
    orders = [
        {"id": 1, "state": {"name": "x"}},
        {"id": 2, "input": {"name": "x", "offset": 0, "b64": "!!", "last": True}},
        {"id": 3, "pace": {"name": "x", "out": -1, "err": 0}},
        {"id": 4, "signal": {"name": "x", "signal": 9}},
        {"id": 5, "list": {}},
        {"id": 6, "start": {"name": "../x", "argv": ["true"], "cwd": "/", "env": {}}},
        {"id": 7, "start": {"name": "y", "argv": [], "cwd": 7, "env": []}},
    ]
    seeds = [json.dumps(one).encode() + b"\n" for one in orders]
    seeds += [DEEP + b"\n", b"\xff\xfe\n", b"null\n", b"[]\n", b'"stop"\n', b"{}\n"]
    with undisturbed(place):
        for data in [*seeds, *(rubbish(chance, seeds) for _ in range(ROUNDS))]:
            if b'"stop"' not in data:
                send(str(place.config().parent / "calls" / "s"), data)


@given(st.binary(max_size=200), st.sampled_from([b"J", b"D", b"X"]))
@example(DEEP, b"J")
@example(b"", b"D")
@example(b"\x05ab", b"D")
@example(b"\x01\xff", b"D")
def test_a_frame_is_read_or_refused(body: bytes, kind: bytes) -> None:
    with contextlib.suppress(ProtocolViolation):
        framing.parse(kind, body)
    with contextlib.suppress(ProtocolViolation):
        assert 0 <= framing.length((kind + body)[:5]) <= framing.LIMIT


@given(st.lists(st.binary(max_size=120), max_size=6))
@example([len(DEEP).to_bytes(4, "big") + DEEP])
@example([b"\0\0\0\x02{}"])
@example([b'\0\0\0\x0b{"path":""}'])
def test_a_tree_is_read_or_refused(pieces: list[bytes]) -> None:
    unpacker = Unpacker()
    with contextlib.suppress(ProtocolViolation):
        for piece in pieces:
            for one in unpacker.feed(piece):
                assert isinstance(one, Entry | bytes | memoryview | tuple)
