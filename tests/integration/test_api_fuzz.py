"""The API over the real socket, with everything that no client of ours would send.

Nothing may be answered with a fault of agentd's own, hang, or change a state when refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.daemon import Agentd, run_agentd
from tests.support.home import make_home
from tests.support.plans import fake_plan
from tests.support.repository import Repository, make_repository
from tests.support.waiting import until

ASKING = fake_plan(
    {"run": {"command": "echo ran >>ran.txt"}},
    "commit",
)
#: an answer that is later than this counts as none
ANSWER_S = 10.0


class Place:
    """A daemon with one task that rests in review and one that asks for permission."""

    def __init__(self, agentd: Agentd, repository: Repository) -> None:
        self.agentd = agentd
        self.repository = repository
        self.path = agentd.socket_path
        self.asking = agentd.dispatch(repository, ASKING)["id"]
        self.resting = agentd.dispatch(repository, fake_plan("commit"))["id"]
        self.ref = agentd.ticket(self.asking)["ref"]
        agentd.wait_state(self.resting, "waiting_review")

    def raw(self, request: bytes, *, half_close: bool = False) -> tuple[int, bytes]:
        """Send bytes as they are; (status, body), (0, b"") if the connection was closed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(ANSWER_S)
            link.connect(self.path)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                link.sendall(request)
                if half_close:
                    link.shutdown(socket.SHUT_WR)
            answer = bytearray()
            with contextlib.suppress(ConnectionResetError):
                while part := link.recv(1 << 16):
                    answer += part
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
        if not head:
            return 0, b""
        return int(head.split(None, 2)[1]), body

    def send(
        self, method: str, target: bytes, body: bytes = b"", headers: tuple[bytes, ...] = ()
    ) -> tuple[int, bytes]:
        """One request on a connection of its own."""
        head = [method.encode() + b" " + target + b" HTTP/1.1", b"Host: x", b"Connection: close"]
        head += [*headers, b"Content-Length: %d" % len(body)]
        return self.raw(b"\r\n".join(head) + b"\r\n\r\n" + body)

    def state(self) -> object:
        """Everything that a refused call must leave alone."""
        get = self.agentd.get
        seen = []
        for task in (self.asking, self.resting):
            shown = get(f"/api/tasks/{task}")
            events = [e["seq"] for e in shown["recent_events"]]
            tickets = [(t["ref"], t["state"]) for t in get(f"/api/tasks/{task}/tickets")]
            seen.append((shown["task"]["state"], events, tickets))
        return seen, len(get("/api/tasks")), get("/api/projects")


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with make_home() as home, run_agentd(home) as agentd:
        made = Place(agentd, make_repository(home))
        yield made
        log = (pathlib.Path(agentd.data) / "agentd.log").read_text()
        faults = [line for line in log.splitlines() if "Traceback" in line]
        assert not faults, faults[-1][:6000]


def check(status: int, body: bytes) -> dict[str, Any]:
    """An answer that may be given: not ours to be blamed for."""
    assert status < 500 or b'"internal"' not in body, (status, body[:2000])
    assert status not in (500, 0), (status, body[:2000])
    if status >= 400 and body[:1] == b"{":
        error = json.loads(body)
        assert error["error"], error
        assert error["code"], error
        return dict(error)
    return {}


# -- what may stand where -------------------------------------------------------------------

ODD_TEXT = st.one_of(
    st.sampled_from(
        ["", " ", "\0", "a\0b", "\ud800", "x\udfff", "..", "-", "--help", "%s", "null", "é", "🙂"]
    ),
    st.text(st.characters(codec=None), max_size=12),
    st.sampled_from(["x" * 5000, "\n" * 50, "../../etc/passwd", "/etc/passwd", "HEAD", "main"]),
)
ODD_NUMBERS = st.one_of(
    st.sampled_from([0, -1, 1 << 31, 1 << 63, 1 << 64, 10**400, -(10**400), 0.5, 1e308]),
    st.integers(),
    st.floats(),
)
ODD = st.recursive(
    st.one_of(st.none(), st.booleans(), ODD_NUMBERS, ODD_TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(ODD_TEXT, inner, max_size=3)
    ),
    max_leaves=5,
)
FIELD_NAMES = (
    "ticket_id answer decision reason answers instructions note force argv cmd timeout_s stream "
    "path name origin_url plan_b64 plan_name prompt executor model branch new_branch base "
    "worktree new_worktree base_commit start_dir in_place allow_dirty verify setup target "
    "project_id project_name unknown"
)
FIELDS = st.sampled_from(FIELD_NAMES.split())
BROKEN = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [
            b"[" * 10_000,
            b'{"a":' * 5_000,
            b'{"timeout_s": NaN, "cmd": "true"}',
            b'{"timeout_s": 1e999, "cmd": "true"}',
            b'{"timeout_s": ' + b"9" * 5000 + b', "cmd": "true"}',
            b'{"instructions": "\\ud800"}',
            b'{"note": "\\udfff\\ud800"}',
            b"\xef\xbb\xbf{}",
            b"\xff\xfe{\0}\0",
            b'"text"',
            b"[]",
            b"1",
        ]
    ),
)
POSTS = st.sampled_from(
    ["reply", "continue", "done", "stop", "interrupt", "resume", "reclaim", "run"]
)
GETS = st.sampled_from(
    ["", "/events", "/frames", "/render", "/tickets", "/tickets/g1", "/plan", "/diff", "/file"]
)
QUERY_WORDS = (
    "from_seq limit all from tail offset base stat name_only path uncommitted format state "
    "project before wakes"
)
QUERY_NAMES = st.sampled_from(QUERY_WORDS.split())
QUERY_VALUES = st.one_of(
    st.sampled_from([b"1", b"-1", b"9" * 4000, b"9" * 5000, b"%00", b"%ff", b"%ED%A0%80", b"raw"]),
    st.sampled_from([b"%C2%B2", b"1e3", b"0x10", b"", b"json", b"README.md", b"../x", b"%2e%2e"]),
    st.binary(max_size=6).map(lambda raw: b"".join(b"%%%02x" % byte for byte in raw)),
)


def quoted(raw: bytes) -> bytes:
    return b"".join(b"%%%02X" % byte for byte in raw)


@settings(max_examples=20)
@given(path=GETS, query=st.lists(st.tuples(QUERY_NAMES, QUERY_VALUES), max_size=3))
def test_looking_with_odd_queries(place: Place, path: str, query: list[tuple[str, bytes]]) -> None:
    text = b"&".join(name.encode() + b"=" + value for name, value in query)
    target = f"/api/tasks/{place.resting}{path}?".encode() + text
    check(*place.send("GET", target))


@pytest.mark.parametrize("value", [b"9" * 5000, b"%C2%B2", b"-1", b"1e3", b"%00"])
@pytest.mark.parametrize("name", ["from_seq", "limit", "from", "tail", "offset"])
def test_numbers_that_are_none(place: Place, name: str, value: bytes) -> None:
    page = {"from": "frames", "tail": "render", "offset": "render"}.get(name, "events")
    target = f"/api/tasks/{place.resting}/{page}?{name}=".encode() + value
    status, body = place.send("GET", target)
    check(status, body)
    assert status == (200 if value.isdigit() else 400)


@settings(max_examples=20)
@given(query=st.lists(st.tuples(QUERY_NAMES, QUERY_VALUES), max_size=3))
def test_lists_with_odd_queries(place: Place, query: list[tuple[str, bytes]]) -> None:
    text = b"&".join(name.encode() + b"=" + value for name, value in query)
    check(*place.send("GET", b"/api/tasks?" + text))


@settings(max_examples=20)
@given(
    ident=st.one_of(st.binary(max_size=8), st.sampled_from([b"----", b"g" * 36, b"0" * 4000])),
    path=GETS,
)
def test_odd_ids(place: Place, ident: bytes, path: str) -> None:
    check(*place.send("GET", b"/api/tasks/" + quoted(ident) + path.encode()))


@settings(max_examples=20)
@given(post=POSTS, body=st.dictionaries(FIELDS, ODD, max_size=5))
def test_bodies_of_the_wrong_types(place: Place, post: str, body: dict[str, Any]) -> None:
    """On the task that asks, whose ticket no such body may answer."""
    if post in ("stop", "interrupt", "resume"):
        return  # these take no body
    if post == "reply":
        body.pop("decision", None)
    before = place.state()
    raw = json.dumps(body).encode()
    status, answer = place.send("POST", f"/api/tasks/{place.asking}/{post}".encode(), raw)
    check(status, answer)
    if post != "run" or status >= 400:
        assert status >= 400
        assert place.state() == before


@settings(max_examples=20)
@given(post=POSTS, body=BROKEN)
def test_bodies_that_are_none(place: Place, post: str, body: bytes) -> None:
    if post in ("stop", "interrupt", "resume", "done") or not body.strip():
        return
    before = place.state()
    task = place.asking if post == "reply" else place.resting
    status, answer = place.send("POST", f"/api/tasks/{task}/{post}".encode(), body)
    check(status, answer)
    assert status >= 400 or post == "run"
    assert place.state() == before


@settings(max_examples=20)
@given(body=st.dictionaries(FIELDS, ODD, max_size=5))
def test_dispatches_of_the_wrong_types(place: Place, body: dict[str, Any]) -> None:
    """None of them has a place to work in, so none may become a task."""
    if body.get("start_dir") or body.get("project_name") or body.get("project_id"):
        body |= {"executor": "fake", "prompt": "x"}
    before = place.state()
    status, answer = place.send("POST", b"/api/tasks", json.dumps(body).encode())
    check(status, answer)
    assert status >= 400
    assert place.state() == before


@settings(max_examples=20)
@given(field=FIELDS, value=ODD)
def test_a_dispatch_with_one_odd_field(place: Place, field: str, value: Any) -> None:
    """All else is right, but no executor has that name: it must not get that far, or say so."""
    body = {
        "start_dir": str(place.repository.path),
        "prompt": "x",
        field: value,
        "executor": "nobody",
    }
    before = place.state()
    status, answer = place.send("POST", b"/api/tasks", json.dumps(body).encode())
    check(status, answer)
    assert status >= 400
    assert place.state() == before


@pytest.mark.parametrize(
    "field", ["start_dir", "model", "branch", "base", "worktree", "base_commit", "verify", "name"]
)
def test_no_field_of_a_dispatch_holds_a_nul(place: Place, field: str) -> None:
    value: Any = str(place.repository.path) + "\0"
    body = {"start_dir": str(place.repository.path), "prompt": "x", "executor": "fake"}
    body[field] = [value] if field == "verify" else value
    before = place.state()
    status, answer = place.send("POST", b"/api/tasks", json.dumps(body).encode())
    assert check(status, answer)["code"] == "usage"
    assert place.state() == before


@settings(max_examples=20)
@given(body=st.dictionaries(FIELDS, ODD, max_size=3), name=st.binary(min_size=1, max_size=6))
def test_projects_of_the_wrong_types(place: Place, body: dict[str, Any], name: bytes) -> None:
    before = place.state()
    for method, target, raw in (
        ("POST", b"/api/projects", json.dumps(body).encode()),
        ("DELETE", b"/api/projects/" + quoted(name), b""),
    ):
        status, answer = place.send(method, target, raw)
        check(status, answer)
        assert status >= 400
    assert place.state() == before


def test_what_is_not_there_is_said_as_every_error_is(place: Place) -> None:
    for method, path, status in (
        ("GET", b"/nowhere", 404),
        ("PUT", b"/api/tasks", 405),
        ("POST", b"/api/status", 405),
        ("GET", b"/api/tasks/a%2Fb/plan", 404),
    ):
        found, body = place.send(method, path)
        assert found == status
        assert check(found, body)["error"], path


@pytest.mark.parametrize(
    "body",
    [
        {"argv": ["a\0b"]},
        {"argv": ["\ud800"]},
        {"cmd": "true\0"},
        {"cmd": "true", "timeout_s": True},
        {"cmd": "true", "timeout_s": -(10**400)},
        {"cmd": "true", "stream": "yes", "timeout_s": "1"},
    ],
)
def test_commands_that_no_system_can_run(place: Place, body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    status, answer = place.send("POST", f"/api/tasks/{place.resting}/run".encode(), raw)
    assert check(status, answer)["code"] == "usage"


def test_force_is_true_or_false(place: Place) -> None:
    target = f"/api/tasks/{place.resting}/reclaim".encode()
    status, answer = place.send("POST", target, b'{"force": "false"}')
    assert check(status, answer)["code"] == "usage"


# -- connections ----------------------------------------------------------------------------


@settings(max_examples=20)
@given(raw=st.one_of(st.binary(max_size=60), st.binary(max_size=30).map(lambda b: b"GET " + b)))
def test_what_is_no_http(place: Place, raw: bytes) -> None:
    status, body = place.raw(raw + b"\r\n\r\n", half_close=True)
    assert status == 0 or status < 500, (status, body)


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 100",
        b"Transfer-Encoding: chunked",
        b"Content-Length: -1",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Upgrade: websocket\r\nConnection: Upgrade",
        b"Upgrade: h2c\r\nConnection: Upgrade",
        b"X: " + b"y" * 200_000,
    ],
)
def test_a_request_that_breaks_off(place: Place, head: bytes) -> None:
    before = place.state()
    request = f"POST /api/tasks/{place.resting}/continue HTTP/1.1\r\nHost: x\r\n".encode()
    status, body = place.raw(request + head + b'\r\n\r\n{"instructions": "x', half_close=True)
    assert status == 0 or status < 500, (status, body)
    assert place.state() == before


def test_slow_and_silent_connections_delay_nobody(place: Place) -> None:
    with contextlib.ExitStack() as stack:
        for index in range(60):
            link = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            link.connect(place.path)
            link.sendall(b"POST /api/tasks HTTP/1.1\r\nHost: x\r\nContent-Le"[: index or 1])
        assert place.send("GET", b"/api/status")[0] == 200


def test_a_body_beyond_the_limit_is_refused(place: Place) -> None:
    status, body = place.send(
        "POST", f"/api/tasks/{place.resting}/continue".encode(), b" " * (9 << 20)
    )
    assert (status, check(status, body)["code"]) == (413, "too_large")


def handshake(target: bytes) -> bytes:
    return (
        b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )


@pytest.mark.parametrize("cursor", [b"%C2%B2", b"9" * 30, b"-1", b"9" * 5000])
def test_websockets_with_odd_cursors(place: Place, cursor: bytes) -> None:
    target = f"/ws/events?task={place.asking}&from_seq=".encode() + cursor
    status, _ = place.raw(handshake(target), half_close=True)
    assert status == (101 if cursor.isdigit() else 403)


@settings(max_examples=20)
@given(cursor=QUERY_VALUES, garbage=st.binary(max_size=40))
def test_websockets_with_garbage(place: Place, cursor: bytes, garbage: bytes) -> None:
    target = f"/ws/events?task={place.asking}&from_seq=".encode() + cursor
    status, _ = place.raw(handshake(target) + garbage, half_close=True)
    assert status in (101, 403, 0, 400), status


# -- twice ----------------------------------------------------------------------------------


def at_once(place: Place, *calls: tuple[str, dict[str, Any], str]) -> list[tuple[int, Any]]:
    """The calls on one connection each, sent at the same time."""
    answers: list[tuple[int, Any]] = [(0, None)] * len(calls)
    barrier = threading.Barrier(len(calls))

    def one(index: int, path: str, body: dict[str, Any], key: str) -> None:
        headers = (b"Handoff-Request: " + key.encode(),) if key else ()
        barrier.wait()
        status, raw = place.send("POST", path.encode(), json.dumps(body).encode(), headers)
        check(status, raw)
        answers[index] = (status, json.loads(raw))

    threads = [
        threading.Thread(target=one, args=(index, *call)) for index, call in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def fresh(place: Place, plan: str, state: str) -> str:
    task: str = place.agentd.dispatch(place.repository, plan)["id"]
    place.agentd.wait_state(task, state)
    return task


def count(place: Place, task: str, kind: str) -> int:
    return sum(1 for e in place.agentd.events(task) if e["type"] == kind)


def test_the_same_call_twice_at_once_is_carried_out_once(place: Place) -> None:
    task = fresh(place, ASKING, "waiting_answer")
    for path, body, kind in (
        ("reply", {"decision": "allow"}, "ticket_answered"),
        ("continue", {"instructions": fake_plan("commit")}, "continued"),
        ("stop", {}, "failed"),
    ):
        call = (f"/api/tasks/{task}/{path}", body, str(uuid.uuid4()))
        answers = at_once(place, call, call, call)
        assert [status for status, _ in answers] == [200, 200, 200], (path, answers)
        assert count(place, task, kind) == 1, path
        if path != "stop":
            place.agentd.wait_state(task, "waiting_review")


def test_two_who_decide_at_once_do_not_both_decide(place: Place) -> None:
    task = fresh(place, ASKING, "waiting_answer")
    reply = f"/api/tasks/{task}/reply"
    answers = at_once(place, (reply, {"decision": "allow"}, ""), (reply, {"decision": "deny"}, ""))
    assert sorted(status for status, _ in answers) == [200, 409], answers
    place.agentd.wait_state(task, "waiting_review")
    calls = [(f"/api/tasks/{task}/{path}", {}, "") for path in ("done", "stop", "done")]
    answers = at_once(place, *calls)
    assert count(place, task, "archived") + count(place, task, "failed") == 1
    state = place.agentd.state(task)
    for (path, _, _), (status, body) in zip(calls, answers, strict=True):
        fits = path.endswith("done") == (state == "completed")
        assert (status == 200) == fits, (state, path, status, body)


def test_a_key_belongs_to_one_call(place: Place) -> None:
    """The key of another call is a mistake, not that call's answer."""
    one, other = (fresh(place, fake_plan("commit"), "waiting_review") for _ in range(2))
    key = (b"Handoff-Request: " + str(uuid.uuid4()).encode(),)
    assert place.send("POST", f"/api/tasks/{one}/stop".encode(), b"", key)[0] == 200
    for path in (f"/api/tasks/{other}/stop", f"/api/tasks/{other}/continue"):
        status, body = place.send("POST", path.encode(), b'{"instructions": "x"}', key)
        assert (status, check(status, body)["code"]) == (400, "usage"), path
    assert place.agentd.state(other) == "waiting_review"


def test_a_command_is_not_run_again_under_its_key(place: Place) -> None:
    key = (b"Handoff-Request: " + str(uuid.uuid4()).encode(),)
    target = f"/api/tasks/{place.resting}/run".encode()
    body = json.dumps({"cmd": "echo x >>../counted"}).encode()
    assert place.send("POST", target, body, key)[0] == 200
    status, answer = place.send("POST", target, body, key)
    assert (status, check(status, answer)["code"]) == (504, "outcome_unknown")
    work_dir = place.agentd.show(place.resting)["task"]["work_dir"]
    counted = pathlib.Path(work_dir).parent / "counted"
    assert counted.read_text() == "x\n"


def test_a_dispatch_twice_at_once_is_one_task(place: Place) -> None:
    body = {
        "start_dir": str(place.repository.path),
        "prompt": fake_plan("commit"),
        "executor": "fake",
    }
    call = ("/api/tasks", body, str(uuid.uuid4()))
    answers = at_once(place, call, call)
    assert [status for status, _ in answers] == [200, 200]
    task = answers[0][1]["id"]
    assert answers[1][1]["id"] == task
    place.agentd.wait_state(task, "waiting_review")
    place.send("POST", f"/api/tasks/{task}/stop".encode())
    assert at_once(place, call)[0][0] == 200, "the same key has the same answer for ever"


def test_a_project_that_has_got_an_origin_is_not_a_fault(place: Place) -> None:
    repository = place.repository.path.parent / "other"
    repository.mkdir()
    other = Repository(repository, place.repository.home)
    other.git("init", "-q")
    other.commit({"a": "a\n"}, "Begin")
    body = json.dumps({"path": str(repository)}).encode()
    assert place.send("POST", b"/api/projects", body)[0] == 200
    other.git("remote", "add", "origin", "ssh://git@example.invalid/ada/other.git")
    status, answer = place.send("POST", b"/api/projects", body)
    check(status, answer)
    assert place.send("DELETE", b"/api/projects/other")[0] == 200


def test_a_file_name_that_is_no_text_does_not_stop_the_clean_up(place: Place) -> None:
    task = fresh(place, fake_plan("commit"), "waiting_review")
    work_dir = pathlib.Path(place.agentd.show(task)["task"]["work_dir"])
    (work_dir / "x").write_text("x")
    os.rename(work_dir / "x", os.fsencode(work_dir) + b"/\xff\xfe")
    assert place.send("GET", f"/api/tasks/{task}/diff?uncommitted=1".encode())[0] == 200
    status, body = place.send("POST", f"/api/tasks/{task}/stop".encode())
    assert (status, json.loads(body)["worktree"]["action"]) == (200, "kept")
    assert json.loads(body)["worktree"]["entries"]


def test_streams_of_readers_that_have_gone_are_forgotten(place: Place) -> None:
    for path in ("stream", "frames?follow=1"):
        for _ in range(5):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.connect(place.path)
                link.sendall(
                    f"GET /api/tasks/{place.asking}/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
                )
                assert link.recv(10)

    def nobody() -> bool:
        active = place.agentd.get("/api/status")["active"]
        return all(t["watchers"] == 0 for t in active if t["id"] == place.asking)

    until(nobody, "no watcher is left", within=5)
