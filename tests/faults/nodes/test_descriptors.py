"""No descriptor is free: in the brain, whose port strangers fill, and where commands are held."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.support.crowd import crowd
from tests.support.nodes import Place, running
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from handoff.nodes.brain.server import STRANGERS


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Iterator[Place]:
    with running(tmp_path) as made:
        yield made


def held(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_strangers_who_say_nothing_leave_room_for_this_machines_programs(place: Place) -> None:
    status = place.asked("status")
    pid = status["pid"]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (120, 4096))
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", status["port"])))
        assert place.nodes("exec", "n1", "--", "echo", "hi").stdout == b"hi\n"
        assert held(pid) < 100
        assert place.asked("status")["connected"] == 1
    place.until(lambda: held(pid) < 40)
    place.pair("n2")
    place.start_node("n2")  # and for nodes, once they have gone
    assert "Traceback" not in place.logs(), place.logs()[-3000:]


def test_an_address_has_so_many_unknown_connections(place: Place) -> None:
    status = place.asked("status")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def visit() -> object:
        url = f"wss://127.0.0.1:{status['port']}/ws/nodes"
        return connect(url, ssl=context, compression=None, proxy=None)

    with contextlib.ExitStack() as stack:
        with pytest.raises(InvalidStatus) as refused:
            for _ in range(STRANGERS + 1):
                stack.enter_context(visit())  # type: ignore[arg-type]
        assert refused.value.response.status_code == 429
        place.nodes("exec", "n1", "--", "true")  # whoever is known does not count
    place.pair("n2")
    place.start_node("n2")


def test_whoever_is_known_takes_no_strangers_place(place: Place, tmp_path: pathlib.Path) -> None:
    pid = place.asked("status")["pid"]
    # a quarter of these is what one address may have unknown
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (80, 4096))
    with crowd(str(place.root / "brain"), tmp_path / "crowd", 25, place.env()):
        place.until(lambda: place.asked("status")["connected"] == 26)


def test_when_none_is_free_it_is_said_once_and_gets_well_by_itself(place: Place) -> None:
    pid = place.asked("status")["pid"]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (held(pid), 4096))
    words = [sys.executable, "-m", "handoff.cli.main", "nodes", "exec", "n1", "--", "echo", "hi"]
    with subprocess.Popen(words, env=place.env(), cwd=place.root, stdout=subprocess.PIPE) as asking:
        place.until(lambda: "nobody can be let in" in place.logs())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1024, 4096))
        assert asking.communicate(timeout=60)[0] == b"hi\n"
    assert place.logs().count("nobody can be let in") == 1
    assert "Traceback" not in place.logs(), place.logs()[-3000:]


def test_a_brain_takes_the_descriptors_that_it_may_have(tmp_path: pathlib.Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    place = Place(tmp_path)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    try:
        place.serve()
        pid = place.asked("status")["pid"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        raised = resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
        place.close()
    assert raised >= min(hard, 4096) if hard != resource.RLIM_INFINITY else raised > 256
