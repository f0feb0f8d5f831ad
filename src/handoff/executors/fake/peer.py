"""The agent's side of an ACP connection over standard input and output."""

from __future__ import annotations

import json
import os
import threading
from typing import Any, BinaryIO


class Pending:
    """A request of ours that the client has not answered yet."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.result: Any = None
        self.error: dict[str, Any] | None = None
        self.cancelled = False


class Peer:
    """Writes messages, and matches answers to the requests of ours."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._next = 0
        self._pending: dict[Any, Pending] = {}

    def raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        with self._lock:
            try:
                self._out.write(data)
                self._out.flush()
            except (BrokenPipeError, ValueError):
                # The client is gone: nobody is left to talk to.
                os._exit(0)

    def send(self, message: dict[str, Any]) -> None:
        """Write one message as one line."""
        text = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)
        self.raw(text.encode("utf-8", "surrogatepass") + b"\n")

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """A message that wants no answer."""
        self.send({"method": method, "params": params})

    def request(self, method: str, params: dict[str, Any]) -> Pending:
        """Ask the client; wait on the result's ``done``."""
        pending = Pending()
        with self._lock:
            number = self._next
            self._next += 1
            self._pending[number] = pending
        self.send({"id": number, "method": method, "params": params})
        return pending

    def respond(self, number: Any, result: Any) -> None:
        """Answer a request of the client's."""
        self.send({"id": number, "result": result})

    def fail(self, number: Any, code: int, message: str, data: Any = None) -> None:
        """Answer a request of the client's with an error."""
        error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        self.send({"id": number, "error": error})

    def settle(self, message: dict[str, Any]) -> None:
        """An answer of the client's has come."""
        with self._lock:
            pending = self._pending.pop(message.get("id"), None)
        if pending is None:
            return
        pending.result = message.get("result")
        error = message.get("error")
        pending.error = error if isinstance(error, dict) else None
        pending.done.set()

    def cancel_all(self) -> None:
        """The turn is cancelled: whoever waits for an answer goes on without one."""
        with self._lock:
            waiting = list(self._pending.values())
            self._pending.clear()
        for pending in waiting:
            pending.cancelled = True
            pending.done.set()
