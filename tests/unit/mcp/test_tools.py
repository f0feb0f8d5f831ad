"""The tool as an MCP host has it: the same actions and refusals as on every other surface."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import sys
import threading
from typing import Any

import pytest
from tests.support.home import Home
from tests.support.repository import Repository
from tests.unit.sessions.samples import full, small

from handoff.mcp.protocol import Call, Client
from handoff.mcp.tools import OUTPUT, SESSIONS, Sessions
from handoff.sessions.actions import ACTIONS, MODEL_ACTIONS, TOOL

PERSONS = sorted(set(ACTIONS) - set(MODEL_ACTIONS))


@pytest.fixture(autouse=True)
def home(isolated_home: Home, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where this server keeps its records: it is a process of its own elsewhere."""
    for name in [*os.environ]:
        monkeypatch.delenv(name)
    for name, value in isolated_home.env.items():
        monkeypatch.setenv(name, value)
    return isolated_home.path / ".handoff"


def call(
    arguments: dict[str, Any], *, name: str = "codex-mcp-client", thread: str = "thread-1"
) -> Call:
    meta = {"threadId": thread} if thread else {}
    return Call(1, TOOL, arguments, meta, Client(name), "2025-11-25", None)


def done(sessions: Sessions, arguments: dict[str, Any], **who: str) -> dict[str, Any]:
    reply = sessions.call(call(arguments, **who))
    assert reply["ok"], reply
    return reply


def create(place: pathlib.Path, request: str = "request-0001") -> dict[str, Any]:
    return {
        "action": "create",
        "workspace": str(place),
        "request_id": request,
        "state": {**full(), "lineage": small().get("lineage", {"depth": 0})},
    }


def test_one_tool_without_what_some_hosts_can_not_read() -> None:
    assert SESSIONS.name == TOOL
    schema = repr(SESSIONS.schema)
    for word in ("oneOf", "anyOf", "allOf", "$ref", "not'"):
        assert word not in schema
    assert SESSIONS.schema["additionalProperties"] is False
    assert set(SESSIONS.schema["properties"]["action"]["enum"]) == set(MODEL_ACTIONS)
    assert not set(SESSIONS.schema["properties"]["action"]["enum"]) & set(PERSONS)


def test_a_session_is_handed_over_and_read(git_repo: Repository) -> None:
    sessions = Sessions()
    assert done(sessions, {"action": "evidence", "workspace": str(git_repo.path)})["facts"]
    made = done(sessions, create(git_repo.path))
    assert made["idempotent"] is False
    assert done(sessions, create(git_repo.path))["ref"] == made["ref"]
    shown = done(sessions, {"action": "show", "ref": made["ref"]})
    assert (
        shown["manifest"]["source"] | {"host": "codex", "session_id": "thread-1"}
        == (shown["manifest"]["source"])
    )
    read = done(sessions, {"action": "read", "ref": made["ref"]}, thread="thread-2")
    assert read["constraint_ids"]
    listed = done(sessions, {"action": "list"}, name="any-editor", thread="")
    assert [one["ref"] for one in listed["records"]] == [made["ref"]]


def test_a_host_that_names_no_session_can_look_and_not_publish(git_repo: Repository) -> None:
    sessions = Sessions()
    for name in ("any-editor", "opencode", "claude-code", ""):
        reply = sessions.call(call(create(git_repo.path), name=name))
        assert (reply["ok"], reply["code"]) == (False, "source_unbound")
        assert reply["remedy"].startswith("handoff session create")
    assert done(sessions, {"action": "list"}, name="any-editor")["total"] == 0


def test_an_argument_can_not_say_who_calls(git_repo: Repository) -> None:
    for key in ("session_id", "session", "threadId", "host_session", "_meta", "caller"):
        given = {**create(git_repo.path), key: "thread-9"}
        reply = Sessions().call(call(given, thread=""))
        assert reply["ok"] is False
        assert reply["code"] == "usage"


@pytest.mark.parametrize("action", PERSONS)
def test_what_is_a_person_s_is_refused(action: str) -> None:
    samples: dict[str, Any] = {
        "token": "attempt-0001",
        "ref": f"handoff://{'a' * 32}/{'a' * 32}",
        "path": "/tmp",
        "integer": 60,
    }
    given = {
        key: samples.get(arg.kind, "some text")
        for key, arg in ACTIONS[action].args.items()
        if arg.need
    }
    reply = Sessions().call(call({"action": action, **given}))
    assert (reply["ok"], reply["code"]) == (False, "actor_refused")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"action": ""},
        {"action": 7},
        {"action": None},
        {"action": ["list"]},
        {"action": "no_such"},
        {"action": "list", "limit": "many"},
        {"action": "list", "more": 1},
        {"action": "create"},
        {"action": "read", "ref": "../../etc/passwd"},
        {"action": "search", "query": "\ud800"},
        {"action": "list", "workspace": "relative"},
        {"action": "list", "workspace": "/a\x00b"},
    ],
)
def test_a_wrong_call_is_told_what_is_wrong(arguments: dict[str, Any], home: pathlib.Path) -> None:
    reply = Sessions().call(call(arguments))
    assert reply["ok"] is False
    assert reply["code"] == "usage"
    assert reply["retry"] == "never"
    assert set(OUTPUT["required"]) <= set(reply)
    assert not home.exists()


def test_a_profile_that_is_not_there_is_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    reply = Sessions("bob").call(call({"action": "list"}))
    assert (reply["ok"], reply["code"]) == (False, "profile_mismatch")


def test_many_calls_at_once(git_repo: Repository) -> None:
    """Each call has its own parts: threads share nothing but the files."""
    sessions, replies = Sessions(), []

    def publish(number: int) -> None:
        replies.append(sessions.call(call(create(git_repo.path, f"request-{number % 4:04}"))))

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(reply["ok"] for reply in replies), replies
    assert len({reply["ref"] for reply in replies}) == 1
    assert done(sessions, {"action": "list"})["total"] == 1


def test_a_page_is_small_enough_for_what_hosts_hand_on(git_repo: Repository) -> None:
    sessions = Sessions()
    facts = [{"id": f"f{n}", "text": f"fact {n}. " + "x" * 400} for n in range(100)]
    given = create(git_repo.path)
    given["state"] = {**small(), "context": facts}
    ref = done(sessions, given)["ref"]
    text, page, pages = "", 1, 0
    while page:
        read = done(sessions, {"action": "read", "ref": ref, "page": page}, thread="thread-2")
        assert len(json.dumps(read).encode()) < 9_000
        text += read["content"]
        page, pages = read["next_page"], read["pages"]
    assert pages > 5
    assert all(f"fact {n}. " in text for n in range(100))


@pytest.mark.parametrize("where", ["on PATH", "beside", "nowhere"])
def test_the_command_that_opens_can_be_typed_or_it_is_said_what_is_missing(
    where: str, git_repo: Repository, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin with a blank" / "handoff"
    program.parent.mkdir()
    if where != "nowhere":
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    git = os.path.dirname(shutil.which("git") or "")
    monkeypatch.setenv("PATH", f"{program.parent}:{git}" if where == "on PATH" else git)
    monkeypatch.setattr(sys, "executable", str(program.parent / "python"))
    sessions = Sessions()
    ref = done(sessions, create(git_repo.path))["ref"]
    told = done(
        sessions,
        {
            "action": "prepare_open",
            "ref": ref,
            "workspace": str(git_repo.path),
            "attempt_id": "attempt-0001",
            "host": "claude",
        },
    )
    first = {"on PATH": "handoff", "beside": str(program), "nowhere": "handoff"}[where]
    assert told["argv"][0] == first
    variables = [f"{name}={value}" for name, value in told["env"].items()]
    assert shlex.split(told["command"]) == [*variables, *told["argv"]]
    assert ("handoffd" in told["note"]) == (where == "nowhere")
