from __future__ import annotations

import pathlib
import shutil
import socket
import ssl
import subprocess
import threading

import pytest
from tests.unit.client.served import Reply, Request, Served, lines

from handoff.client.connection import Lost
from handoff.client.endpoint import Endpoint, discover
from handoff.client.http import Client
from handoff.errors import (
    OutcomeUnknown,
    ProtocolViolation,
    UnknownTask,
    Unreachable,
    UsageError,
)


class Time:
    """Time that passes only in sleep()."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.between = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)
        self.between()


def client(served: Served, time: Time | None = None, retry_s: float = 15) -> Client:
    time = time or Time()
    return Client(
        lambda: discover(served.config),
        sleep=time.sleep,
        monotonic=time.monotonic,
        retry_s=retry_s,
    )


def test_get_gives_the_json_value_and_sends_no_key(served: Served) -> None:
    served.on("GET", "/api/x", {"ä": [1, None]})
    assert client(served).get("/api/x", {"a": "b c", "n": None, "yes": True, "no": False}) == {
        "ä": [1, None]
    }
    assert served.seen[0].query == {"a": ["b c"], "yes": ["1"]}
    assert "handoff-request" not in served.seen[0].headers
    assert "authorization" not in served.seen[0].headers


def test_typed_errors_come_back_as_their_class(served: Served) -> None:
    body = {"error": "no task 1f3a", "code": "unknown_task", "remedy": "handoff tasks"}
    served.on("GET", "/api/x", Reply({**body, "details": {"id": "1f3a"}}, 404))
    with pytest.raises(UnknownTask) as caught:
        client(served).get("/api/x")
    assert caught.value.remedy == "handoff tasks"
    assert caught.value.details == {"id": "1f3a"}


def test_an_error_that_is_not_json_is_still_typed(served: Served) -> None:
    served.on("GET", "/api/x", Reply(raw=b"HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\nwhy"))
    with pytest.raises(UsageError, match="agentd answered 400"):
        client(served).get("/api/x")


def test_nobody_listens_is_unreachable_at_once(served: Served) -> None:
    time = Time()
    peer = client(served, time)
    served.stop()
    with pytest.raises(Unreachable) as caught:
        peer.post("/api/x")
    assert not isinstance(caught.value, OutcomeUnknown)
    assert caught.value.remedy == "handoff agentd --detach"
    assert time.slept == []
    served.restart()


def test_a_lost_answer_is_asked_for_again_with_the_same_key(served: Served) -> None:
    answers = iter([Reply(raw=b""), Reply(raw=b"HTTP/1.1 200 OK\r\nConte"), {"ok": True}])
    served.on("POST", "/api/x", lambda _: next(answers))
    assert client(served).post("/api/x", {"a": 1}) == {"ok": True}
    keys = [request.headers["handoff-request"] for request in served.seen]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert [request.json for request in served.seen] == [{"a": 1}] * 3


def test_the_key_is_asked_again_while_agentd_restarts_elsewhere(served: Served) -> None:
    served.on("POST", "/api/x", Reply(raw=b""))
    time = Time()

    def between() -> None:
        if len(time.slept) == 1:
            served.stop()
        if len(time.slept) == 4:
            served.on("POST", "/api/x", {"ok": 2})
            served.restart()

    time.between = between
    assert client(served, time).post("/api/x") == {"ok": 2}
    assert len({request.headers["handoff-request"] for request in served.seen}) == 1


def test_two_calls_have_two_keys(served: Served) -> None:
    served.on("POST", "/api/x", {})
    peer = client(served)
    peer.post("/api/x")
    peer.post("/api/x")
    assert len({request.headers["handoff-request"] for request in served.seen}) == 2


def test_asking_again_is_bounded_and_ends_with_outcome_unknown(served: Served) -> None:
    served.on("POST", "/api/x", Reply(raw=b""))
    time = Time()
    with pytest.raises(OutcomeUnknown) as caught:
        client(served, time).post("/api/x", look="handoff tasks --limit 3")
    assert caught.value.remedy == "handoff tasks --limit 3"
    assert 10 < time.now <= 15


def test_a_get_whose_answer_is_lost_is_unreachable_not_unknown(served: Served) -> None:
    served.on("GET", "/api/x", Reply(raw=b""))
    with pytest.raises(Unreachable) as caught:
        client(served).get("/api/x")
    assert not isinstance(caught.value, OutcomeUnknown)


def test_no_answer_in_time_is_not_sent_again(served: Served) -> None:
    hold = threading.Event()
    served.on("POST", "/api/x", Reply({}, wait=hold))
    with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.1 s"):
        client(served).post("/api/x", answer_s=0.1)
    hold.set()
    assert len(served.seen) == 1


def test_an_answer_cut_off_inside_its_body_is_unknown(served: Served) -> None:
    served.on("POST", "/api/x", Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"))
    with pytest.raises(OutcomeUnknown):
        client(served).post("/api/x")


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"x" * 200_000,
    ],
)
def test_a_stranger_is_a_protocol_violation(served: Served, raw: bytes) -> None:
    served.on("GET", "/api/x", Reply(raw=raw))
    with pytest.raises(ProtocolViolation):
        client(served).get("/api/x")


def test_proxies_are_never_used(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as trap,
        socket.create_server(("127.0.0.1", 0)) as own,
    ):
        proxy = f"http://127.0.0.1:{trap.getsockname()[1]}"
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy)
            monkeypatch.setenv(name.upper(), proxy)

        def answer() -> None:
            link, _ = own.accept()
            with link:
                got = link.recv(65536)
                assert b"Authorization: Bearer secret\r\n" in got
                link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=answer)
        thread.start()
        tcp = Endpoint(host="127.0.0.1", port=own.getsockname()[1], token="secret")
        assert Client(lambda: tcp).get("/api/status") == {}
        thread.join(5)
        trap.setblocking(False)
        with pytest.raises(BlockingIOError):
            trap.accept()


def test_a_last_line_without_its_end_is_lost(served: Served) -> None:
    served.on("GET", "/api/x", Reply(chunks=[*lines({"a": 1}), b'{"half'], cut=True))
    response = client(served).open("GET", "/api/x")
    got = []
    with pytest.raises(Lost):
        for line in response.lines():
            got += [line]
    response.close()
    assert got == [b'{"a": 1}']


def test_silence_in_a_stream_is_noticed(served: Served) -> None:
    hold = threading.Event()

    def slowly(_: Request) -> Reply:
        def chunks() -> list[bytes]:
            yield b"{}\n"
            hold.wait(10)

        return Reply(chunks=chunks())

    served.on("GET", "/api/x", slowly)
    response = client(served).open("GET", "/api/x")
    response.idle_s = 0.1
    found = response.lines()
    assert next(found) == b"{}"
    with pytest.raises(TimeoutError):
        next(found)
    response.close()
    hold.set()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_https_is_checked_against_trusted_certificates(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    done = subprocess.run(
        [*command.split(), *names, "-keyout", str(key), "-out", str(cert)], capture_output=True
    )
    assert done.returncode == 0, done.stderr
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(2):
                link, _ = listener.accept()
                with link:
                    try:
                        safe = server.wrap_socket(link, server_side=True)
                    except ssl.SSLError:
                        continue  # the client does not trust us
                    with safe:
                        safe.recv(65536)
                        safe.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue")

        thread = threading.Thread(target=answer)
        thread.start()
        there = Endpoint(host="localhost", port=listener.getsockname()[1], tls=True, token="t")
        with pytest.raises(Unreachable, match=r"(?i)certificate"):
            Client(lambda: there).get("/api/status")
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        assert Client(lambda: there).get("/api/status") is True
        thread.join(5)
