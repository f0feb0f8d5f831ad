from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.sessions import transcript_kit as kit
from tests.unit.sessions.records_kit import KEY, repository, state

from handoff.errors import NotFound, StorageError
from handoff.sessions import evidence, transcripts
from handoff.sessions.guard import RedactorGuard
from handoff.sessions.host_store import Message
from handoff.sessions.hosts import adapters
from handoff.sessions.profile import own
from handoff.sessions.service import Caller, Service
from handoff.sessions.workspace import bind

Make = Callable[..., Path]
KINDS: dict[str, tuple[str, Make]] = {
    "claude": (kit.CLAUDE, kit.claude),
    "codex": (kit.CODEX, kit.codex),
    "opencode": (kit.OPENCODE, kit.opencode),
}


def env(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def messages(home: Path, kind: str, session: str = "", **how: Any) -> list[Message]:
    opened = transcripts.opener(kind, env(home))
    assert opened is not None
    with opened() as store:
        return list(store.messages([session or KINDS[kind][0]], **how))


def snapshot(home: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in home.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_read_and_left_as_it_is(tmp_path: Path, kind: str) -> None:
    session, make = KINDS[kind]
    make(tmp_path)
    before = snapshot(tmp_path)
    opened = transcripts.opener(kind, env(tmp_path))
    assert opened is not None
    with opened() as store:
        found = store.session(session)
        assert found is not None
        assert (found.id, found.cwd, found.model) == (session, "/srv/calc", "stub-1")
        assert found.started == kit.AT_MS
        assert store.family(session) == [session]
        said = list(store.messages([session]))
        assert [one.text for one in said if one.role == "user"] == [kit.RULE]
        assert [one.text for one in said if one.role == "tool"] == ["a.py\nb.py"]
        assert next(one.tool for one in said if one.role == "tool").lower() in ("bash", "shell")
        assert said[-1].text == "done it"
        assert store.last_message(session) == said[-1].id
        assert len({one.id for one in said}) == len(said)
        assert list(store.messages([session], last=1)) == said[-1:]
        assert list(store.messages([session], message_id=said[0].id)) == said[:1]
        assert [one.id for one in store.started_since(kit.AT_MS - 1, 9)] == [session]
        assert [one.id for one in store.idle_since(2**50, 9)] == [session]
        assert store.idle_since(1, 9) == []
        assert store.started_since(2**50, 9) == []
        assert store.session("") is None
        assert store.session("../" + session) is None
        assert store.last_message("nobody") == ""
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_that_keeps_nothing_is_told_apart(tmp_path: Path, kind: str) -> None:
    for where in (env(tmp_path), {}, {"HOME": "relative"}):
        opened = transcripts.opener(kind, where)
        assert opened is not None
        with pytest.raises(NotFound), opened():
            pass
    assert list(tmp_path.iterdir()) == []


def test_there_is_none_for_others() -> None:
    assert transcripts.opener("hermes", {}) is None
    assert transcripts.opener("other", {}) is None


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_is_bounded_and_redacted_and_keeps_the_first_rule(
    tmp_path: Path, kind: str
) -> None:
    session, make = KINDS[kind]
    make(tmp_path)
    place = repository(tmp_path / "w")
    got = evidence.gather(
        bind(str(place)),
        RedactorGuard(KEY),
        sessions=transcripts.opener(kind, env(tmp_path)) or "",
        session_id=session,
    )
    assert [one["text"] for one in got.frozen["candidates"]] == [kit.RULE]
    assert got.last_message
    assert got.notes == ()
    with pytest.raises(NotFound):
        evidence.gather(
            bind(str(place)),
            RedactorGuard(KEY),
            sessions=transcripts.opener(kind, env(tmp_path)) or "",
            session_id="another",
        )


@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_long_and_secret_texts_stay_within_the_bounds(tmp_path: Path, kind: str) -> None:
    secret = "glpat-" + "A1b2C3d4E5f6G7h8I9j0"
    more = [f"always keep it short {number} " + "word " * 400 for number in range(300)]
    more.append(f"the token is {secret}")
    if kind == "claude":
        kit.claude(tmp_path, *[kit.claude_entry(n + 50, "user", t) for n, t in enumerate(more)])
    else:
        kit.codex(tmp_path, *[kit.codex_said(n + 50, "user", t) for n, t in enumerate(more)])
    got = evidence.gather(
        bind(str(repository(tmp_path / "w"))),
        RedactorGuard(KEY),
        sessions=transcripts.opener(kind, env(tmp_path)) or "",
        session_id=KINDS[kind][0],
    )
    assert sum(len(one["text"].encode()) for one in got.messages) <= 64 * 1024 + 1024
    assert got.frozen["candidates"][0]["text"] == kit.RULE
    assert secret not in repr(got)
    assert sum(got.redactions.values()) >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_of_such_a_session_has_its_evidence(tmp_path: Path, kind: str) -> None:
    session, make = KINDS[kind]
    make(tmp_path)
    place = repository(tmp_path / "w")
    profile = own(str(tmp_path / "home"))
    kinds = adapters(profile, env(tmp_path))
    service = Service(profile, kinds("other"), env=env(tmp_path), hosts=kinds)
    caller = Caller("cli", session, host=kind)
    invented = {"id": "c1", "text": "Rewrite everything in Rust", "kind": "must"}
    made = service.call(
        "create",
        {
            "state": state(constraints=[{**invented, "basis": "observed"}]),
            "request_id": "request-0001",
            "workspace": str(place),
        },
        caller,
    )
    assert [one["text"] for one in made["dropped"]] == [kit.RULE]
    assert any(one["pointer"] == "/constraints/0/basis" for one in made["changes"])
    shown = service.call("show", {"ref": made["ref"]}, caller)
    assert shown["manifest"]["source"]["last_message"]
    assert shown["manifest"]["source"]["host"] == kind


@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_a_session_that_nobody_handed_off_is_drafted(tmp_path: Path, kind: str) -> None:
    session, make = KINDS[kind]
    place = repository(tmp_path / "w")
    path = make(tmp_path)
    path.write_text(path.read_text().replace("/srv/calc", str(place)))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    profile = own(str(tmp_path / "home"))
    kinds = adapters(profile, env(tmp_path))
    service = Service(profile, kinds("other"), env=env(tmp_path), hosts=kinds)
    [draft] = service.call("sweep", {}, Caller("cli", host=kind))["drafts"]
    assert draft["session"] == session
    shown = service.call("show", {"ref": draft["ref"]}, Caller("cli"))
    assert shown["state"]["goal"]["text"] == kit.RULE
    assert service.call("sweep", {}, Caller("cli", host=kind))["drafts"] == []


TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["type", "message", "role", "content", "uuid", "payload", "id", "text", "timestamp",
     "user", "assistant", "response_item", "tool_use", "function_call_output", "output"]
)  # fmt: skip
SHAPED = st.recursive(
    KEYS | JSON,
    lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=SHAPED, kind=st.sampled_from(["claude", "codex"]))
def test_whatever_stands_in_a_line_is_no_error(
    tmp_path_factory: pytest.TempPathFactory, value: object, kind: str
) -> None:
    home = tmp_path_factory.mktemp("home")
    KINDS[kind][1](home, value, {"type": "user", "message": value, "payload": value})
    assert messages(home, kind, role="user")[0].text == kit.RULE


@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_a_line_that_is_being_written_is_not_there_yet(tmp_path: Path, kind: str) -> None:
    KINDS[kind][1](tmp_path, '{"type": "us')
    assert messages(tmp_path, kind)[-1].text == "done it"
    KINDS[kind][1](tmp_path, '{"type": "us\n', "[]\n")
    assert [one.role for one in messages(tmp_path, kind)[-2:]] == ["system", "system"]
    assert "is no JSON" in messages(tmp_path, kind)[-2].text


def test_a_line_beyond_the_limit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "LINE_LIMIT", 2000)
    kit.claude(tmp_path, kit.claude_entry(9, "user", "x" * 9000), kit.claude_entry(10, "user", "y"))
    texts = [one.text for one in messages(tmp_path, "claude")]
    assert texts[-2:] == ["[not read: line 8 has over 2000 bytes]", "y"]
    monkeypatch.setattr(transcripts, "FILE_LIMIT", 5000)
    with pytest.raises(StorageError):
        messages(tmp_path, "claude")


def test_links_are_not_followed_and_two_files_of_one_id_are_told(tmp_path: Path) -> None:
    path = kit.claude(tmp_path / "elsewhere")
    folder = tmp_path / ".claude" / "projects" / "-work-calc"
    folder.mkdir(parents=True)
    (folder / path.name).symlink_to(path)
    with pytest.raises(StorageError):
        messages(tmp_path, "claude")
    (folder / path.name).unlink()
    (tmp_path / ".claude" / "projects" / "-link").symlink_to(path.parent)
    assert messages(tmp_path, "claude") == []
    kit.claude(tmp_path)
    kit.claude(tmp_path, folder="-other")
    with pytest.raises(StorageError):
        messages(tmp_path, "claude")
