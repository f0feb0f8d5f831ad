"""A line between node and brain, of which a test has the say: slow, held, late, cut, wrong."""

from __future__ import annotations

import contextlib
import pathlib
import selectors
import socket
import threading
import time
from collections.abc import Iterator

from tests.support.nodes import Place


class Line:
    """Bytes between nodes and brain.

    rate: bytes a second, 0 for as fast as they come. ``held``: nothing passes. ``delay_s``:
    each piece is as late as that. ``swaps``: so many pairs of pieces arrive in the wrong
    order. ``carried``: bytes so far.
    """

    def __init__(self, port: int, rate: int = 0, port_here: int = 0) -> None:
        self._port = port
        self.rate = rate
        self.delay_s = 0.0
        self.swaps = 0
        self.carried = 0
        self.held = False
        self._dead: set[socket.socket] = set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", port_here), backlog=2048)
        self.port = self._listener.getsockname()[1]
        self._over = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._over:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                near.close()
                continue
            # little room in between: a real line has no megabytes in flight
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self.rate:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
            self._pairs.append((near, far))
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        size = 8192 if self.rate else 1 << 18
        kept = b""
        with contextlib.suppress(OSError, ValueError), selectors.DefaultSelector() as ready:
            ready.register(source, selectors.EVENT_READ)
            while source.fileno() >= 0:  # a cut is not seen by whoever waits for its bytes
                if self.held or source in self._dead:
                    time.sleep(0.02)
                    continue
                came = ready.select(0.2)
                if self.held or source in self._dead:  # since it began to wait
                    continue
                if not came:
                    if kept:  # it has nobody to change places with
                        target.sendall(kept)
                        kept = b""
                    continue
                data = source.recv(size)
                if not data:
                    break
                self.carried += len(data)
                if self.rate:
                    time.sleep(len(data) / self.rate)
                if self.delay_s:
                    time.sleep(self.delay_s)
                if self.swaps and not kept:
                    kept = data
                    continue
                if kept:
                    self.swaps -= 1
                target.sendall(data + kept)
                kept = b""
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """Reset every connection."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def forget(self) -> None:
        """The connections of now carry nothing any more, and neither end is told. New ones
        are whole."""
        for pair in self._pairs:
            self._dead |= set(pair)

    def close(self) -> None:
        self._over = True
        with contextlib.suppress(OSError):  # it waits in accept
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._dead.clear()
        self.cut()


@contextlib.contextmanager
def lined(root: pathlib.Path, rate: int) -> Iterator[tuple[Place, Line]]:
    place = Place(root)
    line = None
    try:
        place.serve()
        place.pair()
        status = place.asked("status")
        line = Line(status["port"], rate)
        text = place.config().read_text().replace(f":{status['port']}/", f":{line.port}/")
        text = text.replace("[node]", '[node]\nbackoff_initial = "50ms"\nbackoff_max = "200ms"')
        place.config().write_text(text)
        place.start_node()
        yield place, line
    finally:
        place.close()
        if line is not None:
            line.close()
