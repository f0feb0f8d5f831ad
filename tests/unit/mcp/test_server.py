"""The server as a process, over real pipes, as a host starts it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.support.home import Home

from handoff.mcp.lines import MAX_LINE
from handoff.mcp.protocol import Call, Protocol, Tool
from handoff.mcp.server import Loop

HELLO = {
    "jsonrpc": "2.0",
    "id": "hello",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "codex-mcp-client", "version": "1"},
    },
}
LIST = {"name": "hermes_handoff", "arguments": {"action": "list"}}


def request(number: Any, method: str, params: Any = None) -> dict[str, Any]:
    made = {"jsonrpc": "2.0", "id": number, "method": method}
    return made if params is None else {**made, "params": params}


class Host:
    """A host with the server as its child."""

    def __init__(self, env: dict[str, str], *flags: str, code: str = "") -> None:
        command = ["-c", code] if code else ["-m", "handoff.cli.main", "mcp", *flags]
        self.process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", *command],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def send(self, *messages: Any) -> None:
        assert self.process.stdin
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode()
            self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def line(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), self.process.stderr and self.process.stderr.read()
        return json.loads(line)

    def answer(self, number: Any) -> Any:
        found = self.line()
        assert found["id"] == number
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait(20)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream
            with contextlib.suppress(OSError):
                stream.close()

    def end(self) -> tuple[int, bytes, bytes]:
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err


@pytest.fixture
def start(isolated_home: Home) -> Iterator[Callable[..., Host]]:
    started: list[Host] = []

    def begin(*flags: str, **more: Any) -> Host:
        started.append(Host(isolated_home.env, *flags, **more))
        return started[-1]

    yield begin
    for host in started:
        host.close()


def test_a_conversation(start: Callable[..., Host]) -> None:
    host = start()
    host.send(HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert host.answer("hello")["result"]["serverInfo"]["name"] == "handoff"
    host.send(request(1, "tools/list"))
    [tool] = host.answer(1)["result"]["tools"]
    assert tool["name"] == "hermes_handoff"
    host.send(request(2, "tools/call", LIST))
    result = host.answer(2)["result"]
    assert result["isError"] is False
    assert result["structuredContent"]["records"] == []
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    host.send(request(3, "ping"))
    assert host.answer(3)["result"] == {}
    assert host.end() == (0, b"", b"")


def test_what_was_asked_before_the_end_is_still_answered(start: Callable[..., Host]) -> None:
    host = start()
    host.send(HELLO, *(request(n, "tools/call", LIST) for n in range(20)))
    code, out, err = host.end()
    assert (code, err) == (0, b"")
    answers = [json.loads(line) for line in out.splitlines()]
    assert sorted(a["id"] for a in answers if a["id"] != "hello") == list(range(20))
    assert all(a["result"]["isError"] is False for a in answers if a["id"] != "hello")


def test_a_message_without_a_newline_at_the_end_counts(start: Callable[..., Host]) -> None:
    host = start()
    assert host.process.stdin
    host.process.stdin.write(json.dumps(HELLO).encode())
    code, out, _ = host.end()
    assert code == 0
    assert json.loads(out)["id"] == "hello"


def test_noise_is_answered_and_what_follows_is_served(start: Callable[..., Host]) -> None:
    host = start()
    host.send(b"\xff\xfe", b"{", b"GET / HTTP/1.1", b"", b"[" * 200_000, HELLO)
    codes = [host.answer(None)["error"]["code"] for _ in range(4)]
    assert codes == [-32700] * 4
    host.answer("hello")


def test_large_messages_in_and_out(start: Callable[..., Host]) -> None:
    host = start()
    host.send(HELLO)
    host.answer("hello")
    query = {"name": "hermes_handoff", "arguments": {"action": "search", "query": "x" * 3_000_000}}
    host.send(request(1, "tools/call", query))
    assert host.answer(1)["result"]["structuredContent"]["code"] == "usage"
    host.send(b"x" * (MAX_LINE + 100), request(2, "ping"))
    assert host.answer(None)["error"]["code"] == -32600
    host.answer(2)


def test_a_terminal_is_no_host(isolated_home: Home) -> None:
    import pty

    leader, follower = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "handoff.cli.main", "mcp"],
        env=isolated_home.env,
        stdin=follower,
        capture_output=True,
        text=True,
        timeout=20,
    )
    os.close(leader)
    os.close(follower)
    assert done.returncode == 2
    assert "started by an agent" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("way", ["-m handoff.cli.main mcp", "-c PLUGIN"])
def test_what_is_closed_is_said_without_a_traceback(
    isolated_home: Home, closed: str, way: str
) -> None:
    way = way.replace("PLUGIN", "'import sys; from handoff.mcp.server import run; sys.exit(run())'")
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} {way} {closed}"],
        env=isolated_home.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode in (2, 120)  # 120: Python could not close its own streams either
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("flags", [["--agentd", "http://x"], ["--target", "x"], ["--no-such"]])
def test_flags_that_say_nothing_here_are_refused(
    start: Callable[..., Host], flags: list[str]
) -> None:
    code, out, err = start(*flags).end()
    assert (code, out) == (2, b"")
    assert b"handoff: " in err


PRINTS = """
import os, subprocess, sys
from handoff.mcp import server, tools

class Noisy(tools.Sessions):
    def call(self, call):
        print("printed")
        os.write(1, b"written\\n")
        sys.stdout.write("more\\n"); sys.stdout.flush()
        subprocess.run(["sh", "-c", "echo child; cat; cat <&0"])
        if call.arguments.get("fault"):
            raise RuntimeError("secret detail")
        return {"ok": True, "action": "x"}

tools.Sessions = Noisy
sys.exit(server.run())
"""


def test_nothing_but_messages_is_on_standard_output(start: Callable[..., Host]) -> None:
    host = start(code=PRINTS)
    host.send(HELLO, request(1, "tools/call", LIST))
    code, out, err = host.end()
    assert code == 0
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["hello", 1]
    for noise in (b"printed", b"written", b"more", b"child"):
        assert noise in err


def test_a_fault_of_ours_is_told_and_the_next_call_is_served(start: Callable[..., Host]) -> None:
    host = start(code=PRINTS)
    host.send(HELLO)
    host.answer("hello")
    wrong = {"name": "hermes_handoff", "arguments": {"fault": True}}
    host.send(request(1, "tools/call", wrong))
    found = host.answer(1)["result"]
    assert found["isError"] is True
    assert found["structuredContent"]["code"] == "internal"
    assert found["structuredContent"]["retry"] == "after_inspection"
    assert "secret detail" not in json.dumps(found)
    for number in range(2, 8):
        host.send(request(number, "tools/call", LIST))
        assert host.answer(number)["result"]["isError"] is False


def test_a_host_that_is_gone_ends_it(start: Callable[..., Host]) -> None:
    host = start()
    host.send(HELLO)
    host.answer("hello")
    assert host.process.stdout
    assert host.process.stdin
    host.process.stdout.close()
    host.send(request(1, "ping"))
    host.process.stdin.close()
    host.process.wait(20)
    assert host.process.returncode == 0


def test_ctrl_c_ends_it_quietly(start: Callable[..., Host]) -> None:
    host = start()
    host.send(HELLO)
    host.answer("hello")
    host.process.send_signal(signal.SIGINT)
    code, _, err = host.end()
    assert code == 130
    assert b"Traceback" not in err


def test_no_more_is_imported_than_is_needed(start: Callable[..., Host]) -> None:
    """It starts with every session of its host."""
    host = start(
        code="import sys; from handoff.mcp import server; server.run();"
        "heavy = {'asyncio', 'msgspec', 'sqlite3', 'subprocess', 'ssl', 'http'} & {*sys.modules};"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    host.send(HELLO, request(1, "tools/list"))
    code, out, err = host.end()
    assert code == 0, err
    assert len(out.splitlines()) == 2


# -- the loop, with a tool that waits ------------------------------------------------------


class Slow:
    """A loop in this process, whose tool waits until it is let go."""

    def __init__(self) -> None:
        self.go: dict[str, threading.Event] = {}
        self.begun: list[str] = []
        self.news = threading.Condition()
        source, self.to = os.pipe()
        back, target = os.pipe()
        self.back = os.fdopen(back, "rb")
        tool = Tool("wait", "", "", {}, {}, {})
        loop = Loop(Protocol([tool], "x", "1", ""), self.call, source, target)
        self.thread = threading.Thread(target=loop.serve)
        self.thread.start()
        self.send({**HELLO})
        self.read()

    def call(self, call: Call) -> dict[str, Any]:
        name = call.arguments["on"]
        with self.news:
            self.begun.append(name)
            self.news.notify_all()
        assert self.go.setdefault(name, threading.Event()).wait(15)
        return {"ok": True, "on": name}

    def send(self, message: Any) -> None:
        os.write(self.to, json.dumps(message).encode() + b"\n")

    def ask(self, name: str) -> None:
        self.go.setdefault(name, threading.Event())
        self.send(request(name, "tools/call", {"name": "wait", "arguments": {"on": name}}))

    def read(self) -> Any:
        return json.loads(self.back.readline())

    def until(self, number: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.begun) >= number, 15)

    def close(self) -> None:
        for event in self.go.values():
            event.set()
        if self.to >= 0:
            os.close(self.to)
        self.thread.join(20)
        assert not self.thread.is_alive()
        self.back.close()


@pytest.fixture
def slow() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.close()


def test_calls_run_beside_each_other_and_a_ping_does_not_wait(slow: Slow) -> None:
    for name in "abcd":
        slow.ask(name)
    slow.until(4)
    slow.send(request("p", "ping"))
    assert slow.read()["id"] == "p"
    for name in "cadb":
        slow.go[name].set()
        assert slow.read()["id"] == name


def test_a_withdrawn_call_is_not_answered_and_one_that_waits_never_begins(slow: Slow) -> None:
    for name in "abcdef":
        slow.ask(name)
    slow.until(4)
    for name in ("a", "f"):
        gone = {"requestId": name, "reason": "no longer wanted"}
        slow.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone})
    slow.send(request("p", "ping"))
    assert slow.read()["id"] == "p"
    for name in "abcdef":
        slow.go[name].set()
    assert sorted(slow.read()["id"] for _ in range(4)) == ["b", "c", "d", "e"]
    assert "f" not in slow.begun


def test_a_call_that_does_not_end_holds_up_the_end_for_a_moment_only(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handoff.mcp.server.LINGER", 0.3)
    slow.ask("a")
    slow.until(1)
    os.close(slow.to)
    slow.to = -1
    began = time.monotonic()
    slow.thread.join(15)
    assert not slow.thread.is_alive()
    assert time.monotonic() - began < 10


def test_a_client_that_reads_slowly_gets_everything(isolated_home: Home) -> None:
    host = Host(isolated_home.env)
    try:
        count = 300
        sending = threading.Thread(
            target=lambda: host.send(HELLO, *(request(n, "tools/list") for n in range(count)))
        )
        sending.start()
        assert host.answer("hello")
        assert [host.line()["id"] for _ in range(count)] == list(range(count))
        sending.join()
        assert host.end()[0] == 0
    finally:
        host.close()


def test_the_current_folder_may_be_gone(isolated_home: Home, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    code = "import os, sys; os.rmdir(os.getcwd()); from handoff.mcp.server import run; run()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=isolated_home.env,
        cwd=folder,
        input=b"\n".join(json.dumps(m).encode() for m in (HELLO, request(1, "tools/call", LIST))),
        capture_output=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[1])["result"]["isError"] is False
