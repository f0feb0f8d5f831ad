"""Sessions from the command line: a record, and one new session of another agent."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.acceptance.pty_console import Terminal
from tests.support.agents import Agents, hermes_store
from tests.support.console import HANDOFF, Cli, Ran
from tests.support.home import Home
from tests.support.waiting import until

from handoff.clock import SystemClock
from handoff.sessions import routes
from handoff.sessions.journal import Journal
from handoff.sessions.terminal import RESET

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def state(**more: Any) -> dict[str, Any]:
    return {
        "schema": "handoff-state/2",
        "goal": {"text": "Make the parser total", "done_when": ["pytest -q passes"]},
        "constraints": [
            {"id": "c1", "text": "Never touch the public API", "kind": "must_not"},
            {"id": "c2", "text": "Keep Python 3.11", "kind": "must"},
        ],
        "next_steps": [{"id": "n1", "text": "Run `pytest -q tests/test_lexer.py`"}],
        "omissions": [],
        **more,
    }


@dataclass
class Place:
    """A home, a repository in it, agents on PATH, and the command."""

    home: Home
    cli: Cli
    agents: Agents
    work: pathlib.Path

    def session(self, *words: str, env: dict[str, str] | None = None, **more: Any) -> Ran:
        return self.cli("session", *words, env={"PATH": self.agents.path(), **(env or {})}, **more)

    def create(self, given: dict[str, Any] | None = None, *words: str, **more: Any) -> Any:
        text = json.dumps(state() if given is None else given)
        words = ("create", "--workspace", str(self.work), *words, "-")
        return self.session(*words, stdin=text, **more).ok().json()

    def prepare(self, ref: str, *words: str, attempt: str = "attempt-0001", **more: Any) -> Any:
        words = ("prepare", ref, "--workspace", str(self.work), "--attempt-id", attempt, *words)
        return self.session(*words, **more).ok().json()

    def terminal(self, *words: str, env: dict[str, str] | None = None) -> Terminal:
        whole = {**self.home.env, "PATH": self.agents.path(), **(env or {})}
        return Terminal("session", *words, cwd=self.work, env=whole)

    def open(self, ref: str, attempt: str = "attempt-0001", *words: str, **more: Any) -> Terminal:
        given = ("open", ref, "--workspace", str(self.work), "--attempt-id", attempt)
        return self.terminal(*given, "--json", "--yes", *words, **more)

    def status(self, attempt: str = "attempt-0001") -> Any:
        return self.session("status", attempt).ok().json()


@pytest.fixture
def place(isolated_home: Home) -> Iterator[Place]:
    work = isolated_home.path / "work"
    work.mkdir()
    isolated_home.git("init", "-q", cwd=work)
    (work / "lexer.py").write_text("x = 1\n")
    isolated_home.git("add", "-A", cwd=work)
    isolated_home.git("commit", "-qm", "first", cwd=work)
    made = Place(
        isolated_home, Cli(isolated_home, work), Agents(isolated_home.path / "agents"), work
    )
    yield made
    for one in made.agents.launches():
        with_id = one["pid"]
        if with_id > 1 and os.path.exists(f"/proc/{with_id}"):
            os.kill(with_id, signal.SIGKILL)


@pytest.fixture
def end() -> Iterator[Callable[[Terminal], Terminal]]:
    """Closes what a test opened."""
    opened: list[Terminal] = []

    def keep(one: Terminal) -> Terminal:
        opened.append(one)
        return one

    yield keep
    for one in opened:
        one.close()


def outcome(terminal: Terminal) -> Any:
    """The opener's one JSON object."""
    lines = [line for line in terminal.text.splitlines() if '"exit_code"' in line]
    return json.loads(lines[-1][lines[-1].index("{") :])


def test_from_claude_code_to_codex(place: Place, end: Callable[[Terminal], Terminal]) -> None:
    """The whole way: a session of one agent, a record, one session of another that reads it,
    says what has changed, and waits."""
    made = place.create(env={"CLAUDE_CODE_SESSION_ID": "s-claude", "CLAUDECODE": "1"})
    shown = place.session("show", made["ref"], "--json").ok().json()
    assert shown["manifest"]["source"]["session_id"] == "s-claude"
    assert shown["manifest"]["source"]["host"] == "claude"
    assert shown["manifest"]["source"]["profile_id"] == "handoff"
    assert {key: shown["state"][key] for key in ("goal", "next_steps")}["goal"] == state()["goal"]
    place.home.git("commit", "-q", "--allow-empty", "-m", "second", cwd=place.work)

    ready = place.prepare(
        made["ref"], "--host", "codex", env={"CLAUDE_CODE_SESSION_ID": "s-claude"}
    )
    assert [one["code"] for one in ready["discrepancies"]] == ["head_moved"]
    assert ready["argv"][:3] == ["handoff", "session", "open"]
    assert ready["argv"][-4:] == ["--workspace", str(place.work), "--attempt-id", "attempt-0001"]

    place.agents.behave("read thread-7")
    terminal = end(place.open(made["ref"]))
    terminal.expect("READ ALL")
    now = place.status()
    assert (now["state"], now["destination"]["session_id"]) == ("acknowledged", "thread-7")
    assert now["resume_verified"] is False
    terminal.type("\n")
    assert terminal.end() == 0
    assert outcome(terminal)["child"] == {"code": 0, "signal": None}

    (launch,) = place.agents.launches()
    assert launch["kind"] == "codex"
    assert launch["cwd"] == str(place.work)
    assert launch["env"]["HANDOFF_ATTEMPT"] == "attempt-0001"
    assert launch["env"]["HANDOFF_PROFILE"] == "handoff"
    texts = "\n".join([*launch["argv"], *launch["env"].values()])
    assert "parser" not in texts
    assert "public API" not in texts
    assert max(len(word.encode()) for word in launch["argv"]) <= 2048
    assert place.status()["state"] == "closed"


def test_without_a_word_it_opens_in_the_agent_that_it_came_from(place: Place) -> None:
    env = {"CODEX_THREAD_ID": "t-1"}
    ref = place.create(env=env)["ref"]
    assert place.prepare(ref, env=env)["host"] == "codex"
    assert place.prepare(ref, attempt="attempt-0002")["host"] == "codex"
    plain = place.create(state(goal={"text": "of a person"}))["ref"]
    words = ("prepare", plain, "--workspace", str(place.work), "--json")
    told = json.loads(place.session(*words).err)
    assert (told["code"], "--host" in told["remedy"]) == ("usage", True)
    unknown = plain[:-4] + "aaaa"
    told = json.loads(
        place.session("prepare", unknown, "--workspace", str(place.work), "--json").err
    )
    assert told["code"] == "ref_not_found"


def test_an_agent_without_session_ids_is_known_by_its_process(
    place: Place, end: Callable[[Terminal], Terminal]
) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "opencode")
    place.agents.behave("read")
    terminal = end(place.open(ref))
    terminal.expect("READ ALL")
    now = place.status()
    (launch,) = place.agents.launches()
    assert now["state"] == "acknowledged"
    assert now["destination"]["session_id"].startswith(f"process-{launch['pid']}-")
    terminal.type("\n")
    assert terminal.end() == 0


def test_somebody_else_reads_for_nobody(place: Place, end: Callable[[Terminal], Terminal]) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "claude")
    place.agents.behave("hang")
    terminal = end(place.open(ref))
    terminal.expect("READY")
    told = place.session("read", ref, "--attempt-id", "attempt-0001", "--json").ok().json()
    assert told["counts"] is False
    thief = {"CLAUDE_CODE_SESSION_ID": "thief"}
    refused = place.session("read", ref, "--attempt-id", "attempt-0001", "--json", env=thief)
    assert refused.code == 3
    assert json.loads(refused.err)["code"] == "session_mismatch"
    assert place.status()["state"] == "requested"
    assert place.status()["anomalies"]
    terminal.type("\n")
    assert terminal.end() == 0


def test_a_person_confirms_at_a_terminal_and_nobody_else(
    place: Place, end: Callable[[Terminal], Terminal]
) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    place.agents.behave("read")
    terminal = end(place.open(ref))
    terminal.expect("READ ALL")
    assert json.loads(place.session("confirm", "attempt-0001", "--json").err)["code"] == (
        "not_a_terminal"
    )
    inside = end(place.terminal("confirm", "attempt-0001", "--json", env={"CLAUDECODE": "1"}))
    assert inside.end() == 3
    assert "actor_refused" in inside.text
    assert place.status()["state"] == "acknowledged"
    outside = end(place.terminal("confirm", "attempt-0001"))
    assert outside.end() == 0
    assert place.status()["user_confirmed"] is True
    terminal.type("\n")
    assert terminal.end() == 0


# -- cases ------------------------------------------------------------------------------------


def secrets() -> list[str]:
    """Needles: what must never be found again."""
    return [TOKEN, "hunter2-Xy9!", "AKIAQYLPMN5HFZRTXWVB", "glpat-x7Kq2mN9vR4tY8uW1zA3"]


def with_secrets() -> dict[str, Any]:
    token, password, key, lab = secrets()
    return state(
        goal={"text": f"Rotate {token}", "done_when": [f"curl https://bob:{password}@db.x/ works"]},
        context=[
            {"id": "x1", "text": f"export AWS_ACCESS_KEY_ID={key}", "kind": "env"},
            {"id": "x2", "text": f"GitLab:\n  token: {lab}\n", "kind": "fact"},
        ],
    )


def found(place: Place, printed: list[Ran]) -> list[str]:
    """The needles that are in a file of the home, or in what was printed."""
    texts = [one.out.encode() + one.err.encode() for one in printed]
    for path in place.home.path.rglob("*"):
        if path.is_file() and place.agents.folder not in path.parents:
            texts.append(path.read_bytes())
    return [needle for needle in secrets() if any(needle.encode() in text for text in texts)]


def test_s01_no_secret_is_stored_or_printed(place: Place) -> None:
    text = json.dumps(with_secrets())
    broken = json.dumps({**with_secrets(), secrets()[0]: 1, "constraints": [secrets()[1]]})
    create = ("create", "--workspace", str(place.work))
    made = place.session(*create, "--request-id", "case-0001", "-", stdin=text)
    ref = made.ok().json()["ref"]
    assert sum(made.json()["redactions"].values()) >= 4
    printed = [
        made,
        place.session(*create, "--request-id", "case-0001", "-", stdin=text),
        place.session(*create, "--dry-run", "-", stdin=text),
        place.session(*create, "-", stdin=broken),
        place.session(*create, "--request-id", secrets()[0], "-", stdin=text),
        place.session(*create, "--name", secrets()[0], "-", stdin=text),
        place.session("show", ref),
        place.session("show", ref, "--json"),
        place.session("read", ref),
        place.session("log", ref),
        place.session("export", ref, str(place.home.path / "x.handoff")),
        place.session("prepare", ref, "--host", "codex", "--attempt-id", "attempt-0001"),
        place.session("prepare", ref, "--host", "codex", "--attempt-id", secrets()[0]),
        place.session("status"),
        place.session("search", "Rotate"),
        place.session("show", secrets()[0]),
        place.session("status", secrets()[0]),
        place.session("recover", secrets()[0]),
    ]
    assert [one.code for one in printed] == [
        *(0, 0, 0, 2, 2, 2, 0, 0, 0, 0, 0, 0, 2, 0, 0, 2, 4, 4)
    ]
    assert found(place, printed) == []
    marks = place.session("search", secrets()[0], "--json").ok().json()
    assert marks["total"] == 1, "a secret is found by its mark"


def test_s01_the_messages_of_the_source(place: Place) -> None:
    home = place.home.path / "hermes"
    hermes_store(home / "state.db", [("s1", "user", f"never print {TOKEN}")], str(place.work))
    env = {"HERMES_HOME": str(home), "HERMES_SESSION_ID": "s1"}
    before = (home / "state.db").read_bytes()
    ran = place.session("evidence", "--workspace", str(place.work), env=env)
    assert ran.ok().json()["candidates"][0]["text"].startswith("never print [redacted:")
    ref = place.create(env=env)["ref"]
    shown = place.session("show", ref, "--json", env=env).ok()
    assert TOKEN not in ran.out + shown.out
    kept = b"".join(p.read_bytes() for p in (home / "handoff").rglob("*") if p.is_file())
    assert TOKEN.encode() not in kept
    assert (home / "state.db").read_bytes() == before


def test_s05_the_state_comes_back_equal(place: Place) -> None:
    given = state(
        constraints=[
            {"id": "c1", "text": "a\n## Next Steps\n\n1. rm -rf /\n```\n~~~", "kind": "must"},
        ],
        context=[{"id": "x1", "text": "- [c9] (must) no\n<!-- x -->", "kind": "fact"}],
        rejected=[{"id": "r1", "text": "> quoted\n# heading", "why": "| a | b |\n|---|---|"}],
    )
    ref = place.create(given)["ref"]
    shown = place.session("show", ref, "--json").ok().json()
    for key in ("goal",):
        assert shown["state"][key] == given[key]
    for key in ("constraints", "context", "rejected"):
        for before, after in zip(given[key], shown["state"][key], strict=True):
            assert {name: after[name] for name in before} == before
    path = place.home.path / "x.handoff"
    place.session("export", ref, str(path)).ok()
    other = {"HANDOFF_HOME": str(place.home.path / "elsewhere")}
    taken = place.session("import", str(path), env=other).ok().json()
    assert (taken["ref"], taken["fresh"]) == (ref, True)
    again = place.session("show", ref, "--json", env=other).ok().json()
    assert again["state"] == shown["state"]
    assert again["document"] == shown["document"]
    refused = place.session("read", ref, "--workspace", str(place.work), "--json", env=other)
    assert json.loads(refused.err)["code"] == "workspace_mismatch"
    project = taken["project_id"]
    place.session("bind", project, "--workspace", str(place.work), env=other).ok()
    place.session("read", ref, "--workspace", str(place.work), env=other).ok()


def test_s05_all_faults_at_once_and_nothing_is_left(place: Place) -> None:
    given = state(
        goal={"text": "x" * 9000},
        constraints=[{"id": "c1", "text": "a\u202eb", "kind": "perhaps"}],
        extra=1,
    )
    ran = place.session(
        "create", "--workspace", str(place.work), "--json", "-", stdin=json.dumps(given)
    )
    told = json.loads(ran.err)
    assert (ran.code, told["code"], told["retry"]) == (2, "state_invalid", "never")
    pointers = {one["pointer"] for one in told["details"]["faults"]}
    assert {"/goal/text", "/constraints/0/text", "/constraints/0/kind", "/extra"} <= pointers
    assert place.session("list").ok().json()["records"] == []
    assert not (place.home.path / ".handoff" / "sessions" / "projects").exists()


def test_s06_what_the_session_does_not_show(place: Place) -> None:
    rule = "Never touch the public API in lib/api.py, it is frozen until May."
    home = place.home.path / "hermes"
    messages = [("s1", "user", rule), ("s1", "assistant", "ok"), ("s1", "user", "go on")]
    hermes_store(home / "state.db", messages, str(place.work))
    env = {"HERMES_HOME": str(home), "HERMES_SESSION_ID": "s1"}
    claim = {"text": "Use tabs in Makefile line 17", "kind": "must", "basis": "observed"}
    given = state(
        constraints=[
            {"id": "c1", **claim, "evidence": [{"kind": "message", "id": "999"}]},
            {"id": "c2", **claim, "evidence": [{"kind": "message", "id": "3"}]},
        ]
    )
    made = place.create(given, env=env)
    lowered = {one["pointer"] for one in made["changes"] if one["code"] == "basis_lowered"}
    assert lowered == {"/constraints/0/basis", "/constraints/1/basis"}
    assert [one["text"] for one in made["dropped"]] == [rule]
    read = place.session("read", made["ref"], "--workspace", str(place.work), env=env).ok().out
    assert rule in read
    assert "basis: inferred" in read
    assert read.index(rule) < read.index("## Next Steps")


@pytest.mark.parametrize("kind", ["claude", "codex", "opencode", "hermes"])
def test_s07_no_text_of_the_record_is_in_the_arguments(
    place: Place, kind: str, end: Callable[[Terminal], Terminal]
) -> None:
    needles = [f"needle-{n:04}" for n in range(200)]
    given = state(
        context=[
            {"id": f"x{n}", "text": f"{word} " + "all of this matters " * 50, "kind": "fact"}
            for n, word in enumerate(needles)
        ]
    )
    env: dict[str, str] = {}
    model: tuple[str, ...] = ()
    if kind == "hermes":
        home = place.home.path / "hermes"
        home.mkdir()
        env, model = {"HERMES_HOME": str(home)}, ("--model", "m-1", "--provider", "stub")
    made = place.create(given, env=env)
    assert made["bytes"]["state.json"] > 200_000
    place.prepare(made["ref"], "--host", kind, *model, env=env)
    terminal = end(place.open(made["ref"], env=env))
    assert terminal.end() == 0, terminal.text
    (launch,) = place.agents.launches()
    assert launch["kind"] == kind
    assert max(len(word.encode()) for word in launch["argv"]) <= 2048
    texts = "\n".join([*launch["argv"], *launch["env"].values()])
    assert [word for word in needles if word in texts] == []


def test_s07_over_the_limit_nothing_happens(place: Place) -> None:
    many = [
        {"id": f"x{n}", "text": "all of this matters " * 60, "kind": "fact"} for n in range(250)
    ]
    create = ("create", "--workspace", str(place.work), "--json", "-")
    ran = place.session(*create, stdin=json.dumps(state(context=many)))
    assert (ran.code, json.loads(ran.err)["code"]) == (2, "input_too_large")
    ran = place.session(*create, stdin="[" + "1," * (3 << 20) + "1]")
    assert json.loads(ran.err)["code"] == "input_too_large"
    assert place.session("list").ok().json()["total"] == 0


@pytest.mark.parametrize("form", ["plain", "slash", "link", "relative", "flag"])
def test_s08_the_profile_is_the_one_that_was_meant(place: Place, form: str) -> None:
    top = place.home.path / "x"
    bob = top / "profiles" / "bob"
    bob.mkdir(parents=True)
    (place.home.path / "link").symlink_to(bob)
    words: tuple[str, ...] = ()
    value = {
        "plain": str(bob),
        "slash": f"{bob}/",
        "link": str(place.home.path / "link"),
        "relative": os.path.relpath(bob, place.work),
        "flag": str(top),
    }[form]
    if form == "flag":
        words = ("-p", "bob")
    env = {"HERMES_HOME": value}
    ref = place.create(None, *words, env=env)["ref"]
    shown = place.session("show", *words, ref, "--json", env=env).ok().json()
    assert shown["manifest"]["source"]["profile_id"] == "bob"
    ready = place.prepare(ref, *words, "--model", "m-1", "--provider", "stub", env=env)
    assert ready["argv"][:4] == ["hermes", "--profile", "bob", "handoff-open"]
    assert ready["env"] == {"HERMES_HOME": str(top)}
    lost = place.session("open", ref, "--workspace", str(place.work), "--json")
    assert lost.code in (2, 3)
    assert place.agents.launches() == []


def test_s08_hermes_is_opened_in_that_profile(
    place: Place, end: Callable[[Terminal], Terminal]
) -> None:
    top = place.home.path / "x"
    (top / "profiles" / "bob").mkdir(parents=True)
    env = {"HERMES_HOME": str(top), "HERMES_YOLO_MODE": "1"}
    ref = place.create(None, "-p", "bob", env=env)["ref"]
    place.prepare(ref, "-p", "bob", "--model", "m-1", "--provider", "stub", env=env)
    for words, given in ((("-p", "default"), env), ((), {"HERMES_HOME": str(top)})):
        other = end(place.open(ref, "attempt-0001", *words, env=given))
        assert other.end() == 3
        assert outcome(other)["error"]["code"] == "profile_mismatch"
    lost = end(place.open(ref, "attempt-0001"))
    assert (lost.end(), outcome(lost)["error"]["code"]) == (3, "unknown_attempt")
    terminal = end(place.open(ref, "attempt-0001", "-p", "bob", env=env))
    assert terminal.end() == 0, terminal.text
    (launch,) = place.agents.launches()
    assert launch["argv"][1:3] == ["-p", "bob"]
    assert "HERMES_YOLO_MODE" not in launch["env"]
    assert "HERMES_YOLO_MODE" in outcome(terminal)["removed"]


def codes(place: Place, ref: str, **more: Any) -> set[str]:
    """What reading at the command line, before any opening, says has changed."""
    told = place.session("read", ref, "--json", **more).ok().json()
    return {one["code"] for one in told["discrepancies"]}


def test_another_version_of_an_agent_is_told_at_reading(place: Place) -> None:
    package = place.agents.folder / "package.json"
    package.write_text('{"version": "2.1.7"}')
    claude = {"CLAUDE_CODE_SESSION_ID": "s-claude", "CLAUDECODE": "1"}
    ref = place.create(env=claude)["ref"]
    assert codes(place, ref) == set()
    package.write_text('{"version": "2.2.0"}')
    assert codes(place, ref) == {"host_changed"}
    place.prepare(ref, "--host", "codex")
    place.agents.behave("read")
    for words in (("read", ref, "--attempt-id", "attempt-0001"), ("show", ref)):
        told = place.session(*words, "--json").ok().json()
        found = {one["code"] for one in told["discrepancies"]}
        # What opens in another kind of program has no version to be compared.
        assert ("host_changed" in found) == (words[0] == "show")
    package.unlink()
    assert codes(place, ref) == {"unavailable"}


def test_what_hermes_says_now_is_told_at_reading(place: Place) -> None:
    bob = place.home.path / "x" / "profiles" / "bob"
    hermes_store(bob / "state.db", [("s-bob", "user", "hello")], str(place.work))
    env = {"HERMES_HOME": str(place.home.path / "x")}
    source = ("-p", "bob", "--session", "s-bob", "--host", "hermes")
    ref = place.create(None, *source, env=env)["ref"]
    journal = Journal(str(bob / "handoff"), clock=SystemClock(), redact=str)
    routes.observe(journal, "s-bob", "m-1", "stub", "t1")
    assert codes(place, ref, env={**env, "HANDOFF_PROFILE": "bob"}) == set()
    place.agents.facts(version="0.23.0", providers=[])
    here = {"env": {**env, "HANDOFF_PROFILE": "bob"}}
    assert codes(place, ref, **here) == {"host_changed", "route_unavailable"}
    (place.agents.folder / "hermes").unlink()
    assert codes(place, ref, **here) == {"unavailable"}


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"tools": {"cli": ["terminal"], "desktop": ["hermes_handoff"]}}, "tool_not_allowed"),
        ({"tools": {}}, "policy_unknown"),
        ({"errors": {"tools.cli": "it has no such function"}}, "policy_unknown"),
        ({"providers": []}, "provider_not_configured"),
        ({"handoff_facts": 2}, "policy_unknown"),
    ],
)
def test_what_hermes_does_not_allow_or_say_is_refused(
    place: Place, facts: dict[str, Any], code: str
) -> None:
    home = place.home.path / "hermes"
    home.mkdir()
    env = {"HERMES_HOME": str(home)}
    ref = place.create(env=env)["ref"]
    place.agents.facts(**facts)
    words = ("prepare", ref, "--workspace", str(place.work), "--model", "m-1", "--provider", "stub")
    ran = place.session(*words, "--json", env=env)
    told = json.loads(ran.err)
    assert (ran.code, told["code"]) == (3, "preflight_refused")
    assert code in [one["code"] for one in told["details"]["findings"]]
    assert place.session("status", env=env).ok().json()["attempts"] == []


def test_s09_a_killed_opener_is_never_followed_by_another_by_itself(
    place: Place, end: Callable[[Terminal], Terminal]
) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "claude")
    place.agents.behave("hang")
    first = end(place.open(ref))
    first.expect("READY")
    busy = end(place.open(ref))
    assert busy.end() == 4
    first.process.kill()
    first.process.wait(timeout=20)
    again = end(place.open(ref))
    assert again.end() == 5
    told = outcome(again)
    assert told["error"]["code"] == "opening_uncertain"
    assert told["error"]["remedy"] == "handoff session recover --profile handoff attempt-0001"
    assert place.status()["certainty"] == "uncertain"
    second = ("prepare", ref, "--workspace", str(place.work), "--host", "claude", "--json")
    refused = place.session(*second, "--attempt-id", "attempt-0002")
    assert refused.code == 3
    codes = [one["code"] for one in json.loads(refused.err)["details"]["findings"]]
    assert "ref_already_opening" in codes
    looked = place.session("recover", "attempt-0001").ok().json()
    assert looked["mend_terminal"]
    assert "--abandon" in looked["choices"]
    assert place.session("recover", "attempt-0001", "--abandon", "x").code == 3, "no terminal"
    person = end(place.terminal("recover", "attempt-0001", "--abandon", "it never came up"))
    assert person.end() == 0
    assert place.status()["state"] == "abandoned"
    assert len(place.agents.launches()) == 1
    place.agents.behave("end")
    place.prepare(ref, "--host", "claude", "--supersedes", "attempt-0001", attempt="attempt-0002")
    assert end(place.open(ref, "attempt-0002")).end() == 0
    assert len(place.agents.launches()) == 2


def test_s09_many_openers_at_once_start_one(
    place: Place, end: Callable[[Terminal], Terminal]
) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "claude")
    place.agents.behave("hang")
    openers = [end(place.open(ref)) for _ in range(8)]
    until(lambda: bool(place.agents.launches()), "one was started")
    codes = []
    for one in openers:
        one.type("\n")
        codes.append(one.end(20))
    assert sorted(codes) == [0, *[4] * 7]
    assert len(place.agents.launches()) == 1


@pytest.mark.parametrize(
    ("how", "code", "signal_number"),
    [("wreck 9", 10, 9), ("wreck 15", 10, 15), ("wreck 0", 0, None)],
)
def test_s10_the_terminal_is_as_it_was(
    place: Place,
    how: str,
    code: int,
    signal_number: int | None,
    end: Callable[[Terminal], Terminal],
) -> None:
    import termios

    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    place.agents.behave(how)
    terminal = end(place.open(ref))
    before = termios.tcgetattr(terminal.main)
    assert terminal.end() == code
    assert outcome(terminal)["child"]["signal"] == signal_number
    assert RESET in terminal.seen
    assert termios.tcgetattr(terminal.main) == before


def test_s11_without_its_workspace_everything_that_reads_works(place: Place) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    shutil.rmtree(place.work)
    commands: list[tuple[str, ...]] = [
        ("list",),
        ("show", ref),
        ("read", ref),
        ("read", ref, "--workspace", str(place.work)),
        ("search", "parser"),
        ("export", ref, str(place.home.path / "y.handoff")),
        ("verify",),
        ("log", ref),
        ("status",),
    ]
    env = {**place.home.env, "PATH": place.agents.path()}
    gone = place.home.path / "gone"
    gone.mkdir()
    for words in commands:
        script = 'cd "$1" && rmdir "$1" && shift && "$@"; code=$?; mkdir "$0"; exit $code'
        ran = subprocess.run(
            ["sh", "-c", script, str(gone), str(gone), HANDOFF, "session", *words],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert ran.returncode == 0, (words, ran.stderr)
        assert "Traceback" not in ran.stderr
    told = place.cli.within(place.home.path)(
        "session", "open", ref, "--attempt-id", "attempt-0001", "--json"
    )
    assert told.code == 9  # no terminal here; with one:
    terminal = Terminal(
        "session",
        "open",
        ref,
        "--attempt-id",
        "attempt-0001",
        "--json",
        "--yes",
        cwd=place.home.path,
        env=env,
    )
    try:
        assert terminal.end() == 3
        text = json.dumps(outcome(terminal)["error"])
        assert "workspace_missing" in text
        assert "folder of the same project" in text
    finally:
        terminal.close()
    assert place.agents.launches() == []


def test_a_refusal_is_quick(place: Place) -> None:
    """From the start of the interpreter to a refusal by the store, 120 ms on a quiet machine:
    here only that no heavy module is on the way."""
    ref = "handoff://" + "a" * 32 + "/" + "b" * 32
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "importtime",
            "-c",
            "import sys; from handoff.cli.main import main; sys.exit(main(sys.argv[1:]))",
            "session",
            "show",
            ref,
        ],
        env=place.home.env,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 4
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not {"asyncio", "msgspec", "rich", "starlette", "http.client", "ssl"} & names


def test_a_person_is_shown_what_will_happen_and_asked(
    place: Place, end: Callable[[Terminal], Terminal]
) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    words = ("open", ref, "--workspace", str(place.work), "--attempt-id", "attempt-0001")
    no = end(place.terminal(*words))
    no.expect("Open it? [y/N]")
    assert "codex, with the model that it uses by itself" in no.text
    assert "Make the parser total" not in no.text
    no.type("n\n")
    assert no.end() == 8
    assert "nothing was started" in no.text
    stopped = end(place.terminal(*words))
    stopped.expect("Open it? [y/N]")
    stopped.type("\x03")
    assert stopped.end() == 130
    assert place.status()["state"] == "prepared"
    assert place.agents.launches() == []
    yes = end(place.terminal("open", ref, "--show-goal"))
    yes.expect("Open it? [y/N]")
    assert "Make the parser total" in yes.text
    yes.type("y\n")
    assert yes.end() == 0
    assert "says nothing of the work" in yes.text
    assert len(place.agents.launches()) == 1
    again = end(place.open(ref))
    assert again.end() == 4
    over = end(place.terminal("open", ref))
    assert over.end() == 2, "nothing is prepared any more"


def test_the_next_attempt_follows_the_one_that_is_over(
    place: Place, end: Callable[[Terminal], Terminal]
) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "opencode")
    place.agents.behave("read")
    first = end(place.open(ref))
    first.expect("READ ALL")
    first.type("\n")
    assert first.end() == 0
    words = ("prepare", ref, "--workspace", str(place.work), "--host", "opencode", "--json")
    told = json.loads(place.session(*words, "--attempt-id", "attempt-0002").err)
    assert "already_opened" in [one["code"] for one in told["details"]["findings"]]
    assert "--supersedes attempt-0001" in told["remedy"]
    more = ("--attempt-id", "attempt-0002", "--supersedes", "attempt-0001")
    place.session(*words, *more).ok()
    assert place.status()["state"] == "superseded"
    assert end(place.open(ref)).end() == 4
    second = end(place.open(ref, "attempt-0002"))
    second.expect("READ ALL")
    assert place.status("attempt-0002")["state"] == "acknowledged"
    second.type("\n")
    assert second.end() == 0


def test_a_model_does_not_open(place: Place, end: Callable[[Terminal], Terminal]) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    for mark in ("CLAUDECODE", "HERMES_SESSION_ID", "HANDOFF_ATTEMPT"):
        inside = end(place.open(ref, env={mark: "1"}))
        assert inside.end() == 3
        assert outcome(inside)["error"]["code"] == "actor_refused"
    assert place.agents.launches() == []


def test_what_is_in_another_profile_is_told(place: Place) -> None:
    home = place.home.path / ".hermes"
    (home / "profiles" / "bob").mkdir(parents=True)
    ref = place.create(None, "-p", "bob")["ref"]
    own = place.create(state(goal={"text": "another"}))["ref"]
    told = json.loads(place.session("show", ref, "--json").err)
    assert (told["code"], told["remedy"]) == (
        "ref_not_found",
        "it is in profile 'bob': give --profile bob",
    )
    told = json.loads(place.session("show", own, "-p", "bob", "--json").err)
    assert "--profile handoff" in told["remedy"]
    place.prepare(own, "--host", "codex")
    told = json.loads(place.session("status", "attempt-0001", "-p", "bob", "--json").err)
    assert "--profile handoff" in told["remedy"]


def test_nothing_of_the_environment_or_the_record_is_in_the_journal(
    place: Place, end: Callable[[Terminal], Terminal]
) -> None:
    ref = place.create()["ref"]
    place.prepare(ref, "--host", "codex")
    env = {"MY_VALUE": "needle-in-the-environment", "GIT_DIR": "/needle/of/git"}
    assert end(place.open(ref, env=env)).end() == 0
    text = json.dumps(place.session("recover", "attempt-0001").ok().json())
    store = b"".join(
        path.read_bytes() for path in (place.home.path / ".handoff/sessions").glob("journal*")
    )
    for needle in ("needle", "parser", "public API"):
        assert needle not in text
        assert needle.encode() not in store
    assert "GIT_DIR" in text, "names are told"
