"""``handoff session`` in this process: words, surroundings, and what people see."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from tests.support.agents import hermes_store
from tests.unit.cli.calling import Called, Caller

from handoff.cli import session, session_place
from handoff.errors import HandoffError, UsageError
from handoff.sessions.service import ACTIONS

STATE = {
    "schema": "handoff-state/2",
    "goal": {"text": "ship it", "done_when": ["tests pass"]},
    "constraints": [{"id": "c1", "text": "Keep Python 3.11", "kind": "must"}],
    "omissions": [],
}
UNKNOWN = "handoff://" + "a" * 32 + "/" + "b" * 32


@pytest.fixture
def ask(call: Caller, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``ask("list")``, with a store and a folder of its own."""
    for name in ("HERMES_HOME", "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HANDOFF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def run(*words: str, tty: bool = False, stdin: bytes = b"") -> Called:
        return call("session", *words, tty=tty, stdin=stdin)

    return run


def create(ask: Any, *words: str) -> str:
    made = ask("create", *words, stdin=json.dumps(STATE).encode())
    assert made.code == 0, made.err
    return str(made.json["ref"])


@pytest.mark.parametrize("words", [(), ("--help",), ("help",), ("-h",)])
def test_help_names_every_verb(ask: Any, words: tuple[str, ...]) -> None:
    shown = ask(*words)
    assert shown.code == 0
    for name, (_, about) in session.VERBS.items():
        assert f"\n  {name} " in shown.out
        assert about in shown.out


@pytest.mark.parametrize("verb", list(session.VERBS))
def test_every_verb_has_help_with_an_example(ask: Any, verb: str) -> None:
    shown = ask(verb, "--help")
    assert shown.code == 0
    assert f"usage: handoff session {verb}" in shown.out
    assert "examples:\n  handoff session " in shown.out


def test_a_verb_that_is_none(ask: Any) -> None:
    assert ask("craete").code == 2
    assert "did you mean 'create'" in ask("craete").err
    assert "did you mean" not in ask("zzz").err
    assert ask("-p", "handoff").code == 2
    assert json.loads(ask("zzz", "--json").err)["code"] == "usage"


def test_flags_before_the_verb_are_flags_behind_it(ask: Any) -> None:
    ref = create(ask)
    for words in (("-p", "handoff", "list"), ("--profile=handoff", "list"), ("--json", "list")):
        assert [one["ref"] for one in ask(*words).json["records"]] == [ref]
    assert ask("-p", "nobody", "list").code == 3
    assert ask("-p", "../etc", "list").code == 2


def test_remote_flags_say_nothing_here(ask: Any) -> None:
    shown = ask("list", "--agentd", "http://127.0.0.1:1")
    assert (shown.code, "this machine" in shown.err) == (2, True)


def test_the_actions_that_a_person_needs_have_verbs() -> None:
    named = {"prepare_open": "prepare", "opening_status": "status"}
    inside = {"summarize", "open_begin", "open_created", "open_submitted", "open_failed", "adopt"}
    for action in set(ACTIONS) - inside:
        assert named.get(action, action) in session.VERBS


def test_the_same_file_is_the_same_request(ask: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(STATE))
    first, again = ask("create", str(path)).json, ask("create", str(path)).json
    assert (again["ref"], again["idempotent"]) == (first["ref"], True)
    other = tmp_path / "other"
    other.mkdir()
    assert ask("create", "--workspace", str(other), str(path)).json["ref"] != first["ref"]


@pytest.mark.parametrize(
    ("stdin", "code"),
    [(b"", "state_invalid"), (b"{", "state_invalid"), (b"\xff", "state_invalid"),
     (b"[]", "state_invalid"), (b'{"a": 1.5}', "state_invalid"), (b"null", "state_invalid")],
)  # fmt: skip
def test_input_that_is_no_state(ask: Any, stdin: bytes, code: str) -> None:
    told = json.loads(ask("create", "--json", stdin=stdin or b" ").err)
    assert told["code"] in (code, "usage")
    assert told["retry"] == "never"


def test_a_file_that_is_not_there_or_no_file(ask: Any, tmp_path: pathlib.Path) -> None:
    assert ask("create", str(tmp_path / "none.json")).code == 2
    assert ask("create", str(tmp_path)).code == 2
    assert ask("create", tty=True).code == 2


def test_what_people_see(ask: Any) -> None:
    ref = create(ask)
    shown = ask("list", tty=True).out
    assert ref in shown
    assert "GOAL" in shown
    assert "constraints: c1" in ask("read", ref).out
    assert ask("show", ref).out.startswith("# Handoff (render/2)\n")
    assert "current" in ask("show", ref, tty=True).out
    assert "Keep Python 3.11" in ask("search", "python 3.11", tty=True).out
    assert "faults: 0" in ask("verify", tty=True).out
    assert ask("validate", ref, tty=True).out.startswith("whole")
    assert f"* {ref}" in ask("log", ref, tty=True).out
    assert "no attempts" in ask("status", tty=True).out
    assert "no session store" in ask("evidence", tty=True).out
    prepared = ask("prepare", ref, "--host", "codex", "--attempt-id", "attempt-0001", tty=True)
    assert "handoff session open --profile handoff" in prepared.out
    assert "prepared" in ask("status", tty=True).out
    assert "choices:" in ask("recover", "attempt-0001", tty=True).out
    assert "STOP" in ask("recover", "attempt-0001", "--show-prompt").out
    exported = ask("export", ref, tty=True).out
    assert "stays:" in exported
    name = ref.rpartition("/")[2] + ".handoff"
    assert "it was here already" in ask("import", name, tty=True).out
    assert "nothing to remove" in ask("prune", "--older-than", "1d", tty=True).out
    other = create(ask, "--request-id", "request-0002", "--name", "x")
    assert other == ref, "the same content is the same record"


def test_damage_makes_verify_fail(ask: Any, tmp_path: pathlib.Path) -> None:
    ref = create(ask)
    (path,) = (tmp_path / "home").rglob("state.json")
    path.chmod(0o600)
    path.write_bytes(b"{}")
    assert ask("verify").code == 1
    assert ask("validate", ref).code == 1
    assert "integrity_failed" in ask("verify", tty=True).out
    assert ask("show", ref).code == 1
    assert ask("purge", ref).code == 0
    assert ask("show", ref).code == 4


def test_an_opener_without_a_terminal(ask: Any) -> None:
    ref = create(ask)
    assert ask("open", ref).code == 2, "nothing is prepared"
    assert ask("open", UNKNOWN).code == 3
    assert ask("open", "x").code == 2
    ask("prepare", ref, "--host", "codex", "--attempt-id", "attempt-0001")
    told = json.loads(ask("open", ref, "--json").err)
    assert (told["exit_code"], told["error"]["code"]) == (9, "not_a_terminal")
    assert told["resume_verified"] is False
    ask("prepare", ref, "--host", "codex", "--attempt-id", "attempt-0002")
    assert "which attempt" in ask("open", ref).err


def test_a_session_speaks_for_itself_alone(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_THREAD_ID", "t1")
    ref = create(ask)
    source = ask("show", ref, "--json").json["manifest"]["source"]
    assert (source["session_id"], source["host"]) == ("t1", "codex")
    refused = ask("create", "--session", "t2", stdin=json.dumps(STATE).encode())
    assert refused.code == 3
    create(ask, "--session", "t1")
    monkeypatch.setenv("CODEX_THREAD_ID", "t2")
    told = json.loads(ask("prepare", ref, "--host", "claude", "--json").err)
    assert "source_mismatch" in [one["code"] for one in told["details"]["findings"]]
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s1")
    assert ask("create", stdin=json.dumps(STATE).encode()).code == 2
    create(ask, "--session", "s1")


def test_whose_session_speaks_is_not_guessed(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state = json.dumps(STATE).encode()
    assert "--session ID" in ask("create", "--host", "codex", stdin=state).err
    assert ask("create", "--host", "codex", "--session", "t-9", stdin=state).code == 0
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s-1")
    assert ask("create", "--host", "codex", stdin=state).code == 2
    assert ask("create", "--host", "claude", stdin=state).code == 0


def test_an_agent_that_names_no_session_is_said_to(
    ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE", "1")
    made = ask("create", stdin=json.dumps(STATE).encode()).json
    assert "source" in [one["code"] for one in made["warnings"]]
    source = ask("show", made["ref"], "--json").json["manifest"]["source"]
    assert (source["session_id"], source["host"]) == ("unidentified", "opencode")


def test_a_remedy_works_as_printed() -> None:
    assert session_place.remedy("recover a-000001", "bob") == (
        "handoff session recover --profile bob a-000001"
    )
    assert session_place.remedy("status a-000001", "") == "handoff session status a-000001"
    assert session_place.remedy("give another name", "bob") == "give another name"


def test_what_to_supersede_is_told_as_the_call_that_does_it(ask: Any) -> None:
    import shlex

    ref = create(ask)
    words = ["prepare", ref, "--workspace", ".", "--host", "codex", "--attempt-id"]
    assert ask(*words, "first-0001").code == 0
    assert ask(*words, "second-001", "--supersedes", "first-0001", "--json").code == 3
    service = session_place.service(_args())
    from handoff.sessions.journal import Actor

    for attempt, more in (("first-0001", []), ("second-001", ["--supersedes", "first-0001"])):
        assert ask(*words, attempt, *more).code == 0
        service.journal.abandon(attempt, "no", Actor("person", "anna"))
    told = json.loads(ask(*words, "third-0001", "--supersedes", "first-0001", "--json").err)
    assert (told["code"], told["exit_code"]) == ("bad_transition", 3)
    again = shlex.split(told["remedy"])
    assert again[:3] == ["handoff", "session", "prepare"]
    assert again[-2:] == ["--supersedes", "second-001"]
    assert ask(*again[2:]).json["attempt_id"] == "third-0001"


def test_whose_sessions_are_swept_is_said_right(
    ask: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = json.loads(ask("sweep", "--host", "hermes", "--json").err)
    assert (told["code"], told["remedy"][:15]) == ("profile_mismatch", "set HERMES_HOME")
    told = json.loads(ask("sweep", "--json").err)
    assert (told["code"], "--host" in told["remedy"]) == ("usage", True)
    hermes_store(tmp_path / ".hermes" / "state.db", [("s-1", "user", "hello")])
    monkeypatch.setenv("HANDOFF_PROFILE", "handoff")
    told = json.loads(ask("sweep", "--host", "hermes", "--dry-run", "--json").err)
    assert told["remedy"] == "handoff session sweep --profile default --host hermes"
    assert ask(*told["remedy"].split()[2:], "--dry-run").code == 0
    told = json.loads(ask("sweep", "--profile", "bob", "--json").err)
    assert "default" in told["remedy"]


def test_from_the_own_store_to_hermes_is_told_as_it_works(ask: Any, tmp_path: pathlib.Path) -> None:
    """A new session of Hermes reads its own profile's store alone: the way there is printed."""
    import shlex

    ref = create(ask)
    (tmp_path / ".hermes").mkdir()
    words = ("prepare", ref, "--profile", "handoff", "--host", "hermes", "--json")
    told = json.loads(ask(*words).err)
    assert (told["code"], told["exit_code"]) == ("not_allowed", 3)
    first, _, second = told["remedy"].partition(" | ")
    shown = ask(*shlex.split(first)[2:])
    assert shown.code == 0
    made = ask(*shlex.split(second)[2:], stdin=shown.out.encode())
    assert made.code == 0, made.err
    source = ask("show", "--profile", "default", made.json["ref"], "--json").json
    assert source["manifest"]["source"]["profile_id"] == "default"
    assert source["state"] == json.loads(shown.out)


def test_without_a_current_folder(
    ask: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = create(ask)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert ask("show", ref).code == 0
    told = json.loads(ask("create", "--json", stdin=json.dumps(STATE).encode()).err)
    assert told["code"] == "workspace_missing"
    told = json.loads(ask("export", ref, "x.handoff", "--json").err)
    assert told["code"] == "workspace_missing"
    assert ask("export", ref, str(tmp_path / "x.handoff")).code == 0
    monkeypatch.chdir(tmp_path)


def test_errors_say_no_secret(ask: Any) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    for words in (("status", secret), ("recover", secret), ("confirm", secret)):
        assert secret not in ask(*words).err
    error = session_place.clean(UsageError(f"no {secret}", x=secret), _args())
    assert isinstance(error, HandoffError)
    assert secret not in str(error) + json.dumps(error.to_json())


def _args() -> Any:
    from argparse import Namespace

    return Namespace(profile="", host="")


def test_the_beginning_of_an_attempts_id_is_enough(ask: Any) -> None:
    ref = create(ask)
    for name in ("alpha-0001", "alpha-0002", "beta-0001"):
        assert ask("prepare", ref, "--host", "codex", "--attempt-id", name).code == 0
    assert ask("status", "beta").json["attempt_id"] == "beta-0001"
    assert ask("recover", "alpha-0002").json["attempt_id"] == "alpha-0002"
    told = json.loads(ask("recover", "alpha", "--json").err)
    assert (told["code"], told["exit_code"]) == ("ambiguous_id", 2)
    assert told["details"]["candidates"] == ["alpha-0001", "alpha-0002"]
    assert ask("status", "gamma-0001").code == 4


def test_a_wrong_argument_names_the_help_of_its_verb(ask: Any) -> None:
    told = json.loads(ask("show", "x", "--json").err)
    assert told["remedy"] == "handoff session show --help"


def test_what_was_made_can_be_prepared_as_printed(ask: Any, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(STATE))
    shown = ask("create", "--workspace", str(tmp_path / "work"), str(path), tty=True).out
    words = shown.strip().splitlines()[-1].split()
    assert words[:3] == ["handoff", "session", "prepare"]
    assert ask(*words[2:]).code == 0


def test_an_agent_does_not_bind_or_remove(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = create(ask)
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "s")
    project = ref.split("/")[2]
    for words in (("bind", project), ("purge", ref), ("prune", "--older-than", "0")):
        assert json.loads(ask(*words, "--json").err)["code"] == "actor_refused"
    assert ask("prune", "--older-than", "0", "--dry-run").code == 0
    monkeypatch.delenv("CLAUDE_CODE_SESSION_ID")
    assert ask("purge", ref).code == 0


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    from handoff.sessions import recover

    def nobody(_uid: int) -> Any:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert recover.user().isdigit()


def test_all_faults_of_a_state_are_told_to_a_person(ask: Any) -> None:
    state = b'{"schema":"handoff-state/2","goal":{"text":""},"next_steps":5,"omissions":[]}'
    told = ask("create", "--request-id", "request-0001", "-", stdin=state)
    assert told.code == 2
    assert "  /goal/text: " in told.err
    assert "  /next_steps: must be a list" in told.err
