"""A scripted stand-in for a language model: one small HTTP server on the loopback.

It speaks four model APIs (:mod:`tests.live.stub_dialects`), follows the script that comes
in the prompt (:mod:`tests.live.stub_script`), and remembers what it was asked, so that a
test can check what the model was told::

    with StubModel() as stub:
        ...                                  # an executor, pointed at stub.url
        assert stub.was_told("use git mv")   # the reason of a denial
"""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.live import stub_script as scripts
from tests.live.stub_dialects import DIALECTS, Reply

MODEL = "stub-1"


class _Cut(Exception):
    """Close the connection now, in the middle of whatever it was."""


class StubModel(ThreadingHTTPServer):
    """The server. ``default``: the script of a prompt that holds none."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self, default: list[Any] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.default = default or [{"say": "stub: ok"}]
        self.stopping = threading.Event()
        self.requests: list[dict[str, Any]] = []
        self.bodies: list[str] = []
        self._lock = threading.Lock()
        self._spent: dict[str, int] = {}
        self._open: set[socket.socket] = set()
        self._count = 0
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """Base address, without a path."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self.shutdown()
        self._thread.join()
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it was closed from the other side
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is no finding; anything else is kept for the test."""
        import sys
        import traceback

        error = sys.exception()
        if not isinstance(error, OSError):
            self.note({"bug": traceback.format_exc()}, "")

    # -- what a test asks ----------------------------------------------------------------

    def was_told(self, text: str) -> bool:
        """Whether any request held that text, in any string."""
        with self._lock:
            return any(text in body for body in self.bodies)

    def count(self, **wanted: Any) -> int:
        """How many requests had those fields."""
        with self._lock:
            return sum(
                all(request.get(key) == value for key, value in wanted.items())
                for request in self.requests
            )

    # -- what the handler asks -----------------------------------------------------------

    def note(self, request: dict[str, Any], body: str) -> None:
        with self._lock:
            self.requests.append(request)
            self.bodies.append(body)

    def next_id(self) -> str:
        with self._lock:
            self._count += 1
            return f"{self._count:06d}"

    def spend(self, key: str, times: int) -> bool:
        """Whether a fault that may happen ``times`` times is still to happen."""
        with self._lock:
            used = self._spent.get(key, 0)
            self._spent[key] = used + 1
            return times < 0 or used < times


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StubModel

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].rstrip("/")
        entry = {
            "id": MODEL,
            "object": "model",
            "type": "model",
            "display_name": MODEL,
            "created": 0,
            "created_at": "2026-01-01T00:00:00Z",
            "owned_by": "stub",
        }
        self.server.note({"path": path, "method": "GET"}, "")
        if path.endswith("/models"):
            self._json(200, {"object": "list", "data": [entry], "has_more": False})
        elif "/models/" in path:
            self._json(200, entry)
        else:
            self._json(404, {"error": {"message": "no such path"}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            raw = gzip.decompress(raw)
        path = self.path.partition("?")[0].rstrip("/")
        body = json.loads(raw or b"{}")
        strings = "\n".join(_strings(body))
        if path.endswith(("/count_tokens", ":countTokens")):
            self.server.note({"path": path, "method": "POST"}, "")
            tokens = len(raw) // 4
            self._json(200, {"input_tokens": tokens, "totalTokens": tokens})
            return
        dialect = next((d for d in DIALECTS if d.path.search(path)), None)
        if dialect is None:
            self.server.note({"path": path, "method": "POST", "unknown": True}, strings)
            self._json(404, {"error": {"message": "no such path"}})
            return
        try:
            self._answer(dialect, body, path, strings)
        except (_Cut, OSError):
            self.close_connection = True

    def _answer(self, dialect: Any, body: dict[str, Any], path: str, strings: str) -> None:
        stub = self.server
        talk = dialect.read(body, path)
        found = scripts.due(talk, stub.default)
        record = {
            "path": path,
            "dialect": type(dialect).__name__,
            "model": talk.model,
            "step": found.step,
            "tools": [tool.name for tool in talk.tools],
            "system": talk.system,
            "results": [turn.text for turn in talk.turns if turn.role == "result"],
        }
        if not talk.tools:  # a title, a summary, a classifier: not the conversation itself
            stub.note({**record, "aside": True}, strings)
            self._reply(dialect, talk, Reply(stub.next_id(), talk.model, [("say", "Stub", 0)]))
            return
        for index, fault in enumerate(found.message.faults):
            prompts = sum(turn.role == "user" for turn in talk.turns)
            key = json.dumps([found.script, found.step, index, prompts])
            if stub.spend(hashlib.sha256(key.encode()).hexdigest(), fault.get("times", 1)):
                stub.note({**record, "fault": fault}, strings)
                self._fault(dialect, talk, fault)
                return
        reply = self._compose(talk, found, len(strings) // 4)
        stub.note({**record, "said": reply.said, "calls": [c.name for c in reply.calls]}, strings)
        self._reply(dialect, talk, reply)

    def _compose(self, talk: scripts.Conversation, found: scripts.Due, tokens: int) -> Reply:
        reply = Reply(self.server.next_id(), talk.model, stop=found.message.stop)
        for step in found.message.words:
            kind = "say" if "say" in step else "think"
            reply.words.append((kind, scripts.fill(step[kind], talk), step.get("pause", 0)))
        for step in found.message.tools:
            made = scripts.call(step, talk)
            if made is None:
                reply.words.append(("say", f"stub: no tool for {next(iter(step))}", 0))
            else:
                reply.calls.append(made)
        reply.tokens = (max(1, tokens), max(1, len(reply.said) // 4 + 10 * len(reply.calls)))
        return reply

    # -- writing -------------------------------------------------------------------------

    def _reply(self, dialect: Any, talk: scripts.Conversation, reply: Reply) -> None:
        if not talk.stream:
            self._json(200, dialect.whole(reply))
            return
        self._begin_stream()
        for frame in dialect.stream(reply):
            self._frame(*frame)
            if self.server.stopping.is_set():
                raise _Cut
        self.wfile.write(b"0\r\n\r\n")

    def _fault(self, dialect: Any, talk: scripts.Conversation, fault: dict[str, Any]) -> None:
        if "error" in fault:
            message = fault.get("message", f"stub error {fault['error']}")
            headers = {"retry-after": str(fault["retry_after"])} if "retry_after" in fault else {}
            self._json(fault["error"], dialect.error(fault["error"], message), headers)
            return
        if "hang" in fault:
            self.server.stopping.wait(fault["hang"])
            raise _Cut
        self._begin_stream()
        if "garbage" in fault:
            self._chunk(b"data: {this is no JSON]]\n\n")
            self.wfile.write(b"0\r\n\r\n")
            return
        for frame in self._half(dialect, talk):
            self._frame(*frame)
        if "stall" in fault:
            self.server.stopping.wait(fault["stall"])
        raise _Cut

    def _half(self, dialect: Any, talk: scripts.Conversation) -> Iterator[Any]:
        reply = Reply(self.server.next_id(), talk.model, [("say", "this is only half", 0)])
        frames = list(dialect.stream(reply))
        yield from frames[: len(frames) // 2]

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _frame(self, name: str | None, data: Any) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        head = f"event: {name}\n" if name else ""
        self._chunk(f"{head}data: {text}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n" % len(data) + data + b"\r\n")
        self.wfile.flush()

    def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def main() -> None:
    """Serve until interrupted: for trying an executor by hand."""
    with StubModel() as stub:
        print(f"{stub.url}  (model {MODEL}; put '{scripts.MARK} [...]' into the prompt)")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
