"""A slow line, a cut line, a dead line: what is urgent passes, and what was sent counts."""

from __future__ import annotations

import contextlib
import os
import pathlib
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.support.nodes import Place


class SlowLine:
    """Bytes between node and brain, at a rate, until they are cut or held."""

    def __init__(self, port: int, rate: int) -> None:
        self._port = port
        self.rate = rate
        self.carried = 0
        self.held = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._over = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._over:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            # little room in between: a real line has no megabytes in flight
            for one in (near, far):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
            self._pairs.append((near, far))
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), selectors.DefaultSelector() as ready:
            ready.register(source, selectors.EVENT_READ)
            while True:
                if self.held:
                    time.sleep(0.02)
                    continue
                if not ready.select(0.2):
                    continue
                data = source.recv(8192)
                if not data:
                    break
                self.carried += len(data)
                if self.rate:
                    time.sleep(len(data) / self.rate)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def close(self) -> None:
        self._over = True
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def lined(root: pathlib.Path, rate: int) -> Iterator[tuple[Place, SlowLine]]:
    place = Place(root)
    line = None
    try:
        place.serve()
        place.pair()
        status = place.asked("status")
        line = SlowLine(status["port"], rate)
        text = place.config().read_text().replace(f":{status['port']}/", f":{line.port}/")
        text = text.replace("[node]", '[node]\nbackoff_initial = "50ms"\nbackoff_max = "200ms"')
        place.config().write_text(text)
        place.start_node()
        yield place, line
    finally:
        place.close()
        if line is not None:
            line.close()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_upload_over_a_slow_line_that_is_cut(tmp_path: pathlib.Path) -> None:
    size = 6 << 20
    data = os.urandom(size)
    (tmp_path / "source").write_bytes(data)
    with lined(tmp_path, 2 << 20) as (place, line):
        before = line.carried
        target = place.files / "target"
        putting = subprocess.Popen(
            [
                *(sys.executable, "-m", "handoff.cli.main", "nodes", "put", "n1"),
                *(str(tmp_path / "source"), str(target)),
            ],
            env=place.env(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        place.until(lambda: line.carried - before > size // 4)
        slowest = 0.0
        for _ in range(3):
            began = time.monotonic()
            place.nodes("exec", "n1", "--", "true")
            slowest = max(slowest, time.monotonic() - began)
        place.until(lambda: line.carried - before > size // 2)
        line.cut()
        _, errors = putting.communicate(timeout=120)
        assert putting.returncode == 0, errors
        assert target.read_bytes() == data
        assert line.carried - before < 1.4 * size
        # of which the start of two programs on a busy machine is the larger part
        assert slowest < 10


@pytest.mark.timeout(120)
def test_output_that_is_cut_comes_whole(tmp_path: pathlib.Path) -> None:
    with lined(tmp_path, 0) as (place, line):
        asking = subprocess.Popen(
            [
                *(sys.executable, "-m", "handoff.cli.main", "nodes", "exec", "n1", "--shell"),
                "for i in $(seq 1 400); do echo line $i; sleep 0.005; done; exit 9",
            ],
            env=place.env(),
            stdout=subprocess.PIPE,
        )
        assert asking.stdout is not None
        first = asking.stdout.readline()
        for _ in range(3):
            line.cut()
            time.sleep(0.3)
        rest = asking.stdout.read()
        asking.stdout.close()
        assert asking.wait(60) == 9
        assert first + rest == b"".join(b"line %d\n" % n for n in range(1, 401))


@pytest.mark.timeout(120)
def test_a_line_that_says_nothing_is_no_reason_to_hang(tmp_path: pathlib.Path) -> None:
    with lined(tmp_path, 0) as (place, line):
        line.held = True
        began = time.monotonic()
        done = place.nodes("exec", "n1", "--timeout", "1s", "--", "true", code=None)
        line.held = False
        assert time.monotonic() - began < 40
        assert done.returncode == 5
        assert b"same key" in done.stderr
        place.until(lambda: place.nodes("exec", "n1", "--", "true", code=None).returncode == 0)
