"""The loop around the protocol: standard input, a few threads, standard output.

Standard output belongs to the protocol alone. Before anything else runs, its descriptor is
put aside and what was number 1 leads to standard error: whatever a library or a child
process prints can't end up between two messages. Standard input is put aside likewise, so
that no child process reads a message.

The end of the input is the end: what was asked before it is still done, for a moment.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from handoff.mcp.lines import Splitter
from handoff.mcp.protocol import Call, Protocol, Send

__all__ = ["Loop", "aside", "run"]

#: calls that run at the same time; more wait for their turn
THREADS = 4
#: seconds that calls have after the input's end
LINGER = 10.0
_READ = 64 * 1024


class Loop:
    """Serves one client until its input ends.

    Args:
        protocol: the connection.
        call: carries a call out; the reply. Called from several threads.
        source, target: descriptors to read from and to write to.
    """

    def __init__(
        self,
        protocol: Protocol,
        call: Callable[[Call], Mapping[str, Any]],
        source: int,
        target: int,
    ) -> None:
        self._protocol, self._call = protocol, call
        self._source, self._target = source, target
        self._lock = threading.Lock()  # of the protocol's state
        self._writing = threading.Lock()
        self._waiting: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._gone = threading.Event()

    def serve(self) -> None:
        """Until the input ends, or nobody reads the output any more."""
        splitter = Splitter()
        while not self._gone.is_set():
            try:
                data = os.read(self._source, _READ)
            except OSError:
                data = b""
            for line in splitter.feed(data) if data else splitter.finish():
                self._take(line)
            if not data:
                break
        self._end()

    def _take(self, line: bytes | None) -> None:
        with self._lock:
            outputs = self._protocol.receive(line)
        for output in outputs:
            if isinstance(output, Send):
                self._send(output.data)
            else:
                self._waiting.put(output)
                if len(self._threads) < THREADS:
                    thread = threading.Thread(target=self._work, daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _work(self) -> None:
        while (call := self._waiting.get()) is not None:
            with self._lock:
                if self._gone.is_set() or self._protocol.withdrawn(call):
                    continue
            try:
                reply = self._call(call)
            except Exception as error:  # a fault of ours ends neither the thread nor the server
                reply = _fault(call, error)
            with self._lock:
                data = self._protocol.finish(call, reply)
            if data:
                self._send(data)

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        with self._writing:
            while view and not self._gone.is_set():
                try:
                    view = view[os.write(self._target, view) :]
                except OSError:  # nobody reads any more
                    self._gone.set()

    def _end(self) -> None:
        """Let the calls that came in before the end come to theirs."""
        for _ in self._threads:
            self._waiting.put(None)
        until = time.monotonic() + LINGER
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._gone.set()


def _fault(call: Call, error: Exception) -> dict[str, Any]:
    return {
        "ok": False,
        "action": str(call.arguments.get("action", ""))[:64],
        "code": "internal",
        "message": f"an error of Handoff's own ({type(error).__name__}); what was done is unknown",
        "retry": "after_inspection",
        "remedy": "handoff session verify",
        "details": {},
    }


def aside() -> tuple[int, int]:
    """Put standard input and output aside: (to read from, to write to).

    Raises:
        OSError: one of them is closed.
    """
    for number in (0, 1):
        os.fstat(number)
    if sys.stdout is not None:
        sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, target


def run(profile: str = "") -> int:
    """Serve the tool of Sessions on standard input and output; the exit code.

    ``profile``: its name, "" to choose it by the environment.
    """
    try:
        source, target = aside()
    except OSError as error:
        print(f"handoff: standard input and output are both needed: {error}", file=sys.stderr)
        return 2
    from handoff import __version__
    from handoff.mcp.tools import INSTRUCTIONS, SESSIONS, Sessions

    protocol = Protocol([SESSIONS], "handoff", __version__, INSTRUCTIONS)
    Loop(protocol, Sessions(profile).call, source, target).serve()
    return 0
