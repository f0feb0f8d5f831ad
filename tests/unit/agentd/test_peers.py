from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from handoff.agentd.peers import MARK, Peer, of_unix_socket, run_of, run_of_tcp


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A shell with a child of its own, in a session of its own."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 60 & echo $!; wait"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, MARK: "run-of-the-mark"},
    )
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_the_kernel_tells_who_connected() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert of_unix_socket(ours) == Peer(os.getpid(), os.getuid())


def test_a_process_below_a_shim_is_of_its_run(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    below = int(child.stdout.readline())
    assert run_of(below, {child.pid: "run"}) == "run"
    assert run_of(os.getpid(), {child.pid: "run"}) is None
    assert run_of(below, {}) is None
    assert run_of(0, {os.getpid(): "run"}) is None


def test_a_process_that_left_the_tree_still_carries_the_mark(
    child: subprocess.Popen[bytes],
) -> None:
    assert child.stdout is not None
    child.stdout.readline()
    assert run_of(child.pid, {1 << 22: "run-of-the-mark"}) == "run-of-the-mark"
    assert run_of(child.pid, {1 << 22: "run-of-the-mar"}) is None


@pytest.mark.skipif(sys.platform != "linux", reason="by /proc")
def test_the_holder_of_a_loopback_connection_is_found(child: subprocess.Popen[bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            f"import socket,sys; s=socket.create_connection(('127.0.0.1',{port})); sys.stdin.read()"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
            link, address = server.accept()
            with link:
                shims = {os.getpid(): "run"}
                assert run_of_tcp(address[1], port, shims) == "run"
                assert run_of_tcp(address[1], port, {child.pid: "run"}) is None
                assert run_of_tcp(address[1], port, {}) is None
            process.communicate()


def test_names_of_actors() -> None:
    assert Peer(0, -1).actor == "coordinator:tcp"
    assert Peer(1, os.getuid()).actor.startswith("coordinator:")
    assert Peer(1, 4_000_000).actor == "coordinator:uid4000000"
