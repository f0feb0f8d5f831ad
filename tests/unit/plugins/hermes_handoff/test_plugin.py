"""What is registered, and what the tool, the hooks and the commands do with what a host hands
them. The host is played; the profile, the records and the journal are real."""

from __future__ import annotations

import argparse
import ast
import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.openings import SOURCE, frozen, launched

from handoff import __version__
from handoff.errors import AlreadyReserved, ConsentMissing, Failed, NotAllowed, StorageError
from handoff.plugins import hermes_handoff
from handoff.plugins.hermes_handoff import commands, hooks, internals, wording
from handoff.plugins.hermes_handoff.host import HermesHost, plugin_id
from handoff.plugins.hermes_handoff.runtime import Runtime
from handoff.plugins.hermes_handoff.tool import SCHEMA, Tool
from handoff.sessions.environment import ATTEMPT, NONCE_FD, NONCE_INODE
from handoff.sessions.opening import EXIT
from handoff.sessions.profile import Profile
from handoff.sessions.routes import last_route

HOME = pathlib.Path(hermes_handoff.__file__).parent


class Context:
    """A host's context that writes down what is registered."""

    def __init__(self) -> None:
        self.tools: dict[str, tuple[str, dict[str, Any], Callable[..., str]]] = {}
        self.hooks: dict[str, Callable[..., Any]] = {}
        self.skills: dict[str, pathlib.Path] = {}
        self.commands: dict[str, tuple[Any, Any]] = {}
        self.slash: dict[str, Callable[..., str]] = {}

    def register_tool(
        self, name: str, toolset: str, schema: dict[str, Any], handler: Any, **_: Any
    ) -> None:
        self.tools[name] = (toolset, schema, handler)

    def register_hook(self, name: str, callback: Any) -> None:
        self.hooks[name] = callback

    def register_skill(self, name: str, path: pathlib.Path, description: str = "") -> None:
        self.skills[name] = path

    def register_cli_command(
        self, name: str, _help: str, setup_fn: Any, handler_fn: Any = None, description: str = ""
    ) -> None:
        self.commands[name] = (setup_fn, handler_fn)

    def register_command(self, name: str, handler: Any, description: str = "") -> None:
        self.slash[name] = handler


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A profile's folder, as the environment names it."""
    for name in (ATTEMPT, NONCE_FD, NONCE_INODE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "hermes_constants", None)
    monkeypatch.setitem(sys.modules, "hermes_cli", None)
    found = tmp_path / "hermes"
    found.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(found))
    return found


def registered(home: pathlib.Path) -> Context:
    ctx = Context()
    hermes_handoff.register(ctx)
    assert list(home.iterdir()) == []
    return ctx


def manifest() -> dict[str, Any]:
    """plugin.yaml, of which the tests need two lists and two values."""
    text = (HOME / "plugin.yaml").read_text()
    found: dict[str, Any] = {}
    key = ""
    for line in text.splitlines():
        if line.startswith("  - "):
            found[key].append(line[4:])
        elif ":" in line and not line.startswith(" "):
            key, _, value = line.partition(":")
            found[key] = value.strip() or []
    return found


# -- registering --------------------------------------------------------------------------------


def test_what_is_registered_is_what_the_manifest_says(home: pathlib.Path) -> None:
    ctx, says = registered(home), manifest()
    assert says["version"] == __version__
    assert list(ctx.tools) == says["provides_tools"] == ["hermes_handoff"]
    assert list(ctx.hooks) == says["provides_hooks"] == list(hooks.HOOKS)
    assert list(ctx.slash) == ["hh"]
    assert list(ctx.skills) == ["handoff"]
    assert ctx.skills["handoff"].is_file()
    toolset, schema, _ = ctx.tools["hermes_handoff"]
    assert toolset == "handoff"  # one of its own
    assert schema is SCHEMA
    assert set(schema) == {"name", "description", "parameters"}


def test_the_skill_has_the_three_steps_in_their_order() -> None:
    text = (HOME / "skills" / "handoff" / "SKILL.md").read_text()
    assert text.startswith("---\nname: handoff\ndescription: ")
    places = [text.index(f'"action": "{one}"') for one in ("evidence", "create", "prepare_open")]
    assert places == sorted(places)
    examples = [json.loads(line.replace("{...}", "{}")) for line in text.splitlines()
                if line.startswith("    {")]  # fmt: skip
    actions = SCHEMA["parameters"]["properties"]["action"]["enum"]
    assert {one["action"] for one in examples} <= set(actions)
    for one in examples:
        assert set(one) <= set(SCHEMA["parameters"]["properties"])


def test_the_hosts_own_handoff_is_left_alone(home: pathlib.Path) -> None:
    ctx = registered(home)
    assert "handoff" not in ctx.slash
    assert "handoff-open REF" in ctx.slash["hh"]("anything", more=1)


def test_no_part_names_what_makes_a_host_take_it_for_another_kind() -> None:
    """The host looks for these words in the first 8 KiB of the entry module."""
    head = (HOME / "__init__.py").read_text()[:8192]
    for word in ("MemoryProvider", "ProviderProfile", "CronScheduler", "ComputerUseProvider"):
        assert word not in head


def test_only_one_module_knows_the_hosts_internals() -> None:
    """Imports of the host's modules, direct or by name."""
    for path in sorted(HOME.rglob("*.py")):
        # the MCP server is a program of its own, the page's file is loaded alone by the host
        if {"mcp", "dashboard"} & set(path.relative_to(HOME).parts) or path.name == "internals.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] in {*sys.stdlib_module_names, "handoff"}, path
            assert "import_module" not in ast.unparse(node) or path.name == "internals.py"


# -- the tool -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [None, [], "x", 7, {}, {"action": None}, {"action": ["x"]}, {"action": "x" * 5000},
     {"action": "read"}, {"action": "read", "ref": "\ud800"}, {"action": "list", "extra": object()}],
)  # fmt: skip
def test_whatever_it_is_given_it_answers_with_one_json_text(home: pathlib.Path, args: Any) -> None:
    answer = Tool(Runtime())(args, session_id="s", task_id="t", anything=1)
    assert isinstance(answer, str)
    answer.encode()
    told = json.loads(answer)
    assert told["ok"] is False
    assert set(told) == {"ok", "action", "code", "message", "retry", "remedy", "details"}


def test_who_speaks_is_what_the_host_says(home: pathlib.Path) -> None:
    tool = Tool(Runtime())
    given = {"action": "evidence", "workspace": str(home)}
    for kwargs in ({}, {"session_id": ""}, {"session_id": None}, {"session_id": 7}):
        assert json.loads(tool(given, **kwargs))["code"] == "source_unbound"
    forged = {**given, "session_id": "s-1"}
    assert json.loads(tool(forged))["code"] == "usage"


def test_a_model_can_do_nothing_that_is_a_persons(home: pathlib.Path) -> None:
    tool = Tool(Runtime())
    for action, more in (
        ("confirm", {}),
        ("abandon", {"reason": "x"}),
        ("adopt", {"session": "x"}),
    ):
        given = {"action": action, "attempt_id": "attempt-0001", **more}
        assert json.loads(tool(given, session_id="s"))["code"] == "actor_refused"


def test_an_unknown_profile_is_a_refusal(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(home / "gone"))
    answer = Tool(Runtime())({"action": "list"}, session_id="s")
    assert json.loads(answer)["code"] == "profile_mismatch"


def test_a_fault_of_its_own_is_told_and_not_shown(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime()
    monkeypatch.setattr(runtime, "service", lambda *_: 1 / 0)
    told = json.loads(Tool(runtime)({"action": "list"}, session_id="s"))
    assert (told["code"], told["retry"]) == ("internal", "after_inspection")
    assert "division" not in json.dumps(told)


# -- the hooks ----------------------------------------------------------------------------------


def request(**more: Any) -> dict[str, Any]:
    """What the host tells before a model is called."""
    return {
        "session_id": "s-1",
        "model": "m-1",
        "provider": "p-1",
        "base_url": "http://h/v1",
        "turn_id": "s-1:t:1",
        "user_message": "the secret text",
        "conversation_history": [{"role": "user", "content": "the secret text"}],
        "request": {"messages": ["the secret text"]},
        **more,
    }


def test_names_are_kept_and_no_payload(home: pathlib.Path) -> None:
    runtime = Runtime()
    observer = hooks.Observer(runtime)
    assert observer.pre_api_request(**request()) is None
    found = last_route(runtime.service().journal, "s-1")
    assert found is not None
    assert (found["model"], found["provider"], found["turn_id"]) == ("m-1", "p-1", "s-1:t:1")
    data = b"".join(one.read_bytes() for one in (home / "handoff").rglob("*") if one.is_file())
    assert b"secret text" not in data
    assert b"http://h" not in data


def test_the_same_again_is_not_looked_up_and_a_change_is_seen(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime()
    observer = hooks.Observer(runtime)
    asked: list[str] = []
    monkeypatch.setattr(internals, "named", lambda p, _u: asked.append(p) or p)
    for _ in range(3):
        observer.pre_api_request(**request())
    assert asked == ["p-1"]
    observer.pre_api_request(**request(model="m-2"))
    found = last_route(runtime.service().journal, "s-1")
    assert found is not None
    assert found["model"] == "m-2"


@pytest.mark.parametrize("missing", ["session_id", "model", "provider"])
@pytest.mark.parametrize("value", [None, ""])
def test_what_is_not_told_is_not_kept(home: pathlib.Path, missing: str, value: object) -> None:
    hooks.Observer(Runtime()).pre_api_request(**request(**{missing: value}))
    assert not (home / "handoff").exists()


def test_no_failure_reaches_the_session(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = Runtime()

    def broken(*_: object) -> None:
        raise StorageError("the secret text")

    monkeypatch.setattr(runtime, "service", broken)
    monkeypatch.setenv(ATTEMPT, "attempt-0001")
    observer = hooks.Observer(runtime)
    observer.pre_api_request(**request())
    observer.on_session_start(session_id="s-1")
    assert "storage_failed" in caplog.text
    assert "secret" not in caplog.text
    assert os.environ[ATTEMPT] == "attempt-0001"  # once more at the next call


def piped(monkeypatch: pytest.MonkeyPatch, nonce: str) -> int:
    reader, writer = os.pipe()
    os.write(writer, nonce.encode())
    os.close(writer)
    info = os.fstat(reader)
    monkeypatch.setenv(ATTEMPT, "attempt-0001")
    monkeypatch.setenv(NONCE_FD, str(reader))
    monkeypatch.setenv(NONCE_INODE, f"{info.st_dev}:{info.st_ino}")
    return reader


def opened_attempt(runtime: Runtime, nonce: str = "n-1") -> None:
    journal = runtime.service().journal
    journal.prepare(frozen(profile="default"), SOURCE)
    launched(journal, nonce=nonce)


def test_an_opened_session_shows_itself_once(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime()
    opened_attempt(runtime)
    piped(monkeypatch, "n-1")
    observer = hooks.Observer(runtime)
    observer.on_session_start(session_id="s-new", model="m")
    history = runtime.service().journal.history("attempt-0001")
    assert history.session == "s-new"
    for name in (ATTEMPT, NONCE_FD, NONCE_INODE):
        assert name not in os.environ  # what the session starts is not what was opened
    observer.pre_api_request(**request(session_id="s-other"))
    assert runtime.service().journal.status("attempt-0001")["anomalies"] == []


def test_a_session_without_the_nonce_is_not_taken(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime()
    opened_attempt(runtime)
    piped(monkeypatch, "n-2")
    hooks.Observer(runtime).pre_api_request(**request())
    status = runtime.service().journal.status("attempt-0001")
    assert (status["state"], len(status["anomalies"])) == ("requested", 1)
    assert ATTEMPT not in os.environ


def test_another_pipe_of_that_number_is_not_read(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process further down: it has something else under the number."""
    reader = piped(monkeypatch, "not for you")
    monkeypatch.setenv(NONCE_INODE, "1:2")
    assert hooks._nonce() == ""
    assert os.read(reader, 99) == b"not for you"
    os.close(reader)


@pytest.mark.parametrize("number", ["", "x", "-1", "99999", "٣", "0x1"])
def test_a_number_that_is_none_reads_nothing(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    monkeypatch.setenv(NONCE_FD, number)
    assert hooks._nonce() == ""


def test_a_file_that_is_no_pipe_is_not_read(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (home / "file").open("w+") as file:
        info = os.fstat(file.fileno())
        monkeypatch.setenv(NONCE_FD, str(file.fileno()))
        monkeypatch.setenv(NONCE_INODE, f"{info.st_dev}:{info.st_ino}")
        assert hooks._nonce() == ""


def test_a_nonce_that_could_not_be_noted_is_not_lost(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Runtime()
    opened_attempt(runtime)
    piped(monkeypatch, "n-1")
    observer = hooks.Observer(runtime)
    service = runtime.service

    def full(*_: object) -> None:
        raise StorageError("full")

    monkeypatch.setattr(runtime, "service", full)
    observer.on_session_start(session_id="s-new")
    monkeypatch.setattr(runtime, "service", service)
    observer.pre_api_request(**request(session_id="s-new"))
    assert service().journal.history("attempt-0001").session == "s-new"


def test_hooks_of_many_threads(home: pathlib.Path) -> None:
    runtime = Runtime()
    observer = hooks.Observer(runtime)
    threads = [
        threading.Thread(
            target=lambda n=n: observer.pre_api_request(**request(session_id=f"s-{n}"))
        )
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal = runtime.service().journal
    assert all(last_route(journal, f"s-{n}") for n in range(12))


def test_what_is_remembered_is_bounded(home: pathlib.Path) -> None:
    observer = hooks.Observer(Runtime())
    for n in range(hooks._REMEMBERED + 5):
        observer.pre_api_request(**request(session_id=f"s-{n}"))
    assert len(observer._known) == hooks._REMEMBERED


# -- the host -----------------------------------------------------------------------------------


def profile_at(home: pathlib.Path) -> Profile:
    return Profile("default", str(home), str(home))


def test_the_plugins_key() -> None:
    assert plugin_id(SimpleNamespace(plugin_id="team/handoff")) == "team/handoff"
    named = SimpleNamespace(manifest=SimpleNamespace(key="", name="h"))
    assert plugin_id(named) == "h"
    assert plugin_id(SimpleNamespace(manifest=SimpleNamespace(key="c/h", name="h"))) == "c/h"
    assert plugin_id(None) == plugin_id(object()) == "hermes-handoff"


class Facade:
    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, []

    def complete(self, messages: Any, **more: Any) -> Any:
        self.asked.append((messages, more))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def host_with(home: pathlib.Path, answer: Any) -> tuple[HermesHost, Facade]:
    facade = Facade(answer)
    return HermesHost(SimpleNamespace(llm=facade), profile_at(home)), facade


def test_another_model_is_asked_once_by_the_hosts_facade(home: pathlib.Path) -> None:
    host, facade = host_with(home, SimpleNamespace(text=" a state "))
    assert host.complete("prompt", "m", "p") == " a state "
    ((messages, more),) = facade.asked
    assert messages == [{"role": "user", "content": "prompt"}]
    assert (more["model"], more["provider"]) == ("m", "p")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (PermissionError("set plugins.entries.x.llm.allow_model_override"), ConsentMissing),
        (TimeoutError("sk-secret"), Failed),
        (SimpleNamespace(text=""), Failed),
        (SimpleNamespace(text=None), Failed),
        (SimpleNamespace(), Failed),
        (None, Failed),
    ],
)
def test_what_the_facade_does_not_give_is_an_error(
    home: pathlib.Path, answer: Any, error: type[Exception]
) -> None:
    host, facade = host_with(home, answer)
    with pytest.raises(error) as caught:
        host.complete("prompt", "m", "p")
    assert "sk-secret" not in str(caught.value)
    assert len(facade.asked) == 1


def test_without_a_facade_no_other_model_is_asked(home: pathlib.Path) -> None:
    with pytest.raises(NotAllowed):
        HermesHost(None, profile_at(home)).complete("prompt", "m", "p")


def test_candidates_carry_the_attempt_or_our_tag(home: pathlib.Path) -> None:
    import sqlite3

    db = sqlite3.connect(home / "state.db")
    db.execute("CREATE TABLE sessions (id, source, started_at, title, message_count, model)")
    db.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id, role, content)")
    rows = [("s-source", "cli", 1000.0), ("s-old", "handoff", 900.0), ("s-empty", "handoff", 1001.0),
            ("s-tui", "tui", 1002.0), ("s-mine", "tui", 1003.0), ("s-plain", "cli", 1003.0)]  # fmt: skip
    for row in rows:
        db.execute("INSERT INTO sessions VALUES (?, ?, ?, NULL, 0, 'm')", row)
    for session, text in (
        ("s-tui", "something else"),
        ("s-mine", 'Call it with {"attempt_id": "attempt-0001"}'),
        ("s-source", '{"attempt_id": "attempt-0001"}'),
    ):
        db.execute(
            "INSERT INTO messages (session_id, role, content) VALUES (?, 'user', ?)",
            (session, text),
        )
    db.commit()
    db.close()
    attempt = frozen()
    found = HermesHost(None, profile_at(home)).candidates(attempt, 1_000_500)
    assert {one["session_id"] for one in found} == {"s-mine", "s-empty"}


def test_no_store_no_candidates(home: pathlib.Path) -> None:
    assert HermesHost(None, profile_at(home)).candidates(frozen(), 0) == []


# -- the commands -------------------------------------------------------------------------------


def parsed(name: str, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    commands.COMMANDS[name][1](parser)
    return parser.parse_args(words)


@pytest.fixture
def prepared(home: pathlib.Path) -> Iterator[commands.Commands]:
    runtime = Runtime()
    runtime.service().journal.prepare(frozen(profile="default"), SOURCE)
    yield commands.Commands(runtime)


def test_status_as_lines_and_as_json(
    prepared: commands.Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepared.status(parsed("handoff-status", "attempt-0001")) == 0
    text = capsys.readouterr().out
    assert "state     prepared (certain)" in text
    assert "reached   nothing" in text
    assert prepared.status(parsed("handoff-status", "attempt-0001", "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["state"], told["resume_verified"]) == ("prepared", False)
    assert prepared.status(parsed("handoff-status", "attempt-9999")) == EXIT["refused"]
    assert "unknown_attempt" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("handoff-confirm", ["attempt-0001"]),
        ("handoff-abandon", ["attempt-0001", "--reason", "x"]),
        ("handoff-recover", ["attempt-0001", "--adopt", "s"]),
    ],
)
def test_what_is_a_persons_needs_a_terminal(
    prepared: commands.Commands, name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = prepared.handler(commands.COMMANDS[name][2])
    with pytest.raises(SystemExit) as caught:
        run(parsed(name, *words))
    assert caught.value.code == EXIT["no_terminal"]
    assert "not_a_terminal" in capsys.readouterr().err
    assert prepared._runtime.service().journal.status("attempt-0001")["state"] == "prepared"


@pytest.mark.parametrize(
    "mark", ["HERMES_SESSION_ID", "CLAUDECODE", "CODEX_THREAD_ID", "HANDOFF_ATTEMPT", "AI_AGENT"]
)
def test_an_agents_session_opens_nothing(
    prepared: commands.Commands,
    mark: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(commands, "_before", lambda: {mark: "x"})
    words = ["handoff://a/b", "--workspace", "/tmp", "--attempt-id", "attempt-0001"]
    assert prepared.open(parsed("handoff-open", *words)) == EXIT["refused"]
    assert f"({mark} is set)" in capsys.readouterr().err


def test_what_the_host_marks_itself_with_is_no_agents(
    prepared: commands.Commands, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What counts is what the process was started with."""
    monkeypatch.setenv("AI_AGENT", "hermes-agent")
    monkeypatch.setattr(commands, "_OWN_MARK", ("AI_AGENT", "hermes-agent"))
    words = ["handoff://a/b", "--workspace", "/tmp", "--attempt-id", "attempt-9999", "--json"]
    assert prepared.open(parsed("handoff-open", *words)) == EXIT["refused"]
    outcome = json.loads(capsys.readouterr().err)
    assert outcome["error"]["code"] == "unknown_attempt"
    assert outcome["exit_code"] == EXIT["refused"]


BEFORE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from handoff.plugins.hermes_handoff.commands import _before
os.environ["AI_AGENT"] = "hermes-agent"
if len(sys.argv) > 2:
    import builtins
    def refused(*_, **__):
        raise PermissionError
    builtins.open = refused
found = _before()
print(found.get("AI_AGENT"), found.get("GIVEN"))
"""


@pytest.mark.parametrize(("given", "told"), [({}, None), ({"AI_AGENT": "other"}, "other")])
def test_the_environment_as_it_was_at_the_start(given: dict[str, str], told: str | None) -> None:
    def run(*more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", BEFORE, str(ROOT / "src"), *more],
            env={"PATH": os.environ["PATH"], "GIVEN": "ü", **given},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout.strip()

    if sys.platform == "linux":
        assert run() == f"{told} ü"
    assert run("unreadable") == "None ü"


def test_recovery_shows_events_and_the_hosts_own_commands(
    prepared: commands.Commands, capsys: pytest.CaptureFixture[str], home: pathlib.Path
) -> None:
    launched(prepared._runtime.service().journal)
    assert prepared.recover(parsed("handoff-recover", "attempt-0001")) == 0
    text = capsys.readouterr().out
    assert "launch_intent" in text
    assert "handoff session" not in text


def test_people_are_asked_and_no_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(text: str | BaseException) -> bool:
        def play(_prompt: str) -> str:
            if isinstance(text, BaseException):
                raise text
            return text

        monkeypatch.setattr("builtins.input", play)
        return commands._agree(["a line"])

    assert answers("y") is answers(" YES ") is True
    for no in ("", "n", "maybe", EOFError(), KeyboardInterrupt()):
        assert answers(no) is False


# -- words --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("recover attempt-0001", "hermes --profile bob handoff-recover attempt-0001"),
        ("status attempt-0001", "hermes --profile bob handoff-status attempt-0001"),
        (
            "handoff session recover --profile bob attempt-0001 --adopt s-1",
            "hermes --profile bob handoff-recover attempt-0001 --adopt s-1",
        ),
        (
            "handoff session recover --profile bob attempt-0001 --abandon 'why'",
            "hermes --profile bob handoff-abandon attempt-0001 --reason 'why'",
        ),
        ("ls -l /x", "ls -l /x"),
        ("recover it yourself, if you can", "recover it yourself, if you can"),
        ("", ""),
    ],
)
def test_commands_are_named_as_they_are_typed_in_hermes(
    text: str, expected: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    top = str(tmp_path.resolve() / ".hermes")
    profile = Profile("bob", f"{top}/profiles/bob", top)
    error = AlreadyReserved("x", remedy=text).to_json()
    assert wording.in_hermes(error, profile).get("remedy", "") == expected
    elsewhere = Profile("bob", "/h h/profiles/bob", "/h h")
    found = wording.in_hermes({"commands": [{"command": text}]}, elsewhere)
    command = found["commands"][0]["command"]
    assert command == (f"HERMES_HOME='/h h' {expected}" if expected != text else text)


def test_findings_name_them_so_too(home: pathlib.Path) -> None:
    finding = {"code": "ref_already_opening", "remedy": "recover attempt-0001"}
    error = {"remedy": "", "details": {"findings": [finding], "fields": ["ref"]}}
    found = wording.in_hermes(error, profile_at(home))
    assert found["details"]["fields"] == ["ref"]
    (told,) = found["details"]["findings"]
    assert told["code"] == "ref_already_opening"
    assert told["remedy"].endswith("hermes --profile default handoff-recover attempt-0001")
    assert finding["remedy"] == "recover attempt-0001"


# -- the self-contained directory ---------------------------------------------------------------

ROOT = pathlib.Path(__file__).parents[4]
LOAD = """
import sys
sys.path.insert(0, {parent!r})
assert "handoff" not in sys.modules
import some_name
class C:
    tools = {{}}
    def register_tool(self, name, toolset, schema, handler, **_): self.tools[name] = handler
    def __getattr__(self, name): return lambda *a, **k: None
some_name.register(C())
print(C.tools["hermes_handoff"]({{"action": "list", "scope": "all"}}, session_id="s"))
assert not [m for m in sys.modules if m.split(".")[0] == "handoff"], "it leaned on another Handoff"
"""


def built(dest: pathlib.Path, name: str = "hermes_handoff") -> subprocess.CompletedProcess[str]:
    script = ROOT / "scripts" / "plugin-dir"
    return subprocess.run(
        [sys.executable, script, name, dest], capture_output=True, text=True, timeout=60
    )


def test_the_directory_works_alone_under_any_name(tmp_path: pathlib.Path) -> None:
    assert built(tmp_path / "a" / "some_name").returncode == 0
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-B",
            "-W",
            "error",
            "-c",
            LOAD.format(parent=str(tmp_path / "a")),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        env={"HERMES_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == []


def test_the_same_sources_give_the_same_bytes(tmp_path: pathlib.Path) -> None:
    for name in ("one", "two"):
        assert built(tmp_path / name).returncode == 0
    one, two = (
        {
            path.relative_to(tmp_path / name).as_posix(): (path.read_bytes(), path.stat().st_mode)
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("one", "two")
    )
    assert one == two
    assert not [name for name in one if name.endswith(".pyc") or "test" in name]


def test_a_directory_in_use_and_an_unknown_plugin_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    for done in (
        built(tmp_path),
        built(tmp_path / "x", "no_such"),
        built(tmp_path / "y", "../cli"),
    ):
        assert done.returncode == 1
        assert done.stderr.startswith("plugin-dir: ")
        assert len(done.stderr.splitlines()) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
