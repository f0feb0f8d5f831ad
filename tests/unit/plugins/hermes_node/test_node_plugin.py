"""What is registered, and what the tools make of what a host and a node hand them. The host is
played; the brain is, too, except where a real one is asked."""

from __future__ import annotations

import argparse
import ast
import base64
import json
import pathlib
import sys
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handoff import __version__
from handoff.errors import Failed, NodeOffline, OutcomeUnknown, TimedOut, UnknownNode
from handoff.plugins import hermes_node
from handoff.plugins.hermes_node import calling, results, terminal
from handoff.plugins.hermes_node.calling import Ask, around, ask, key_of
from handoff.plugins.hermes_node.commands import Commands, arguments
from handoff.plugins.hermes_node.runtime import NAME, Runtime
from handoff.plugins.hermes_node.schemas import SCHEMAS
from handoff.plugins.hermes_node.tools import Tools

HOME = pathlib.Path(hermes_node.__file__).parent
IDS = {"session_id": "s", "turn_id": "t", "api_request_id": "r", "tool_call_id": "c"}


class Context:
    """A host's context that writes down what is registered."""

    def __init__(self, *, terminal: bool = False) -> None:
        self.tools: dict[str, tuple[str, dict[str, Any]]] = {}
        self.middleware: dict[str, Any] = {}
        self.commands: list[str] = []
        self.providers: list[Any] = []
        if terminal:
            self.register_terminal_environment_provider = self.providers.append

    def register_tool(self, name: str, toolset: str, schema: Any, handler: Any, **_: Any) -> None:
        self.tools[name] = (toolset, schema)

    def register_middleware(self, kind: str, callback: Any) -> None:
        self.middleware[kind] = callback

    def register_cli_command(self, name: str, *_: Any) -> None:
        self.commands.append(name)


class Brain:
    """A client that answers what the test says."""

    def __init__(self, answer: Any = (True, {})) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []

    def call(self, target: str, op: str, args: Any, **more: Any) -> Any:
        self.asked.append((target, op, dict(args), more))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def ask(self, op: str, **fields: Any) -> Any:
        self.requests.append((op, fields))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return {"nodes": []} if op == "nodes" else {}


def tools(brain: Brain) -> Tools:
    runtime = Runtime()
    runtime.client = lambda **_: brain  # type: ignore[method-assign, assignment, return-value]
    return Tools(runtime)


def use(brain: Brain, name: str, args: Any, **known: Any) -> Any:
    return json.loads(tools(brain).handler(name)(args, **known))


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = {}
    key = ""
    for line in (HOME / "plugin.yaml").read_text().splitlines():
        if line.startswith("  - "):
            found[key].append(line[4:])
        elif ":" in line and not line.startswith(" "):
            key, _, value = line.partition(":")
            found[key] = value.strip() or []
    return found


# -- registering --------------------------------------------------------------------------------


def test_what_is_registered_is_what_the_manifest_says(tmp_path: pathlib.Path) -> None:
    ctx, says = Context(), manifest()
    hermes_node.register(ctx)
    assert (says["name"], says["version"]) == (NAME, __version__)
    assert list(ctx.tools) == says["provides_tools"]
    assert list(ctx.middleware) == says["provides_middleware"]
    assert ctx.commands == ["node"]
    assert {toolset for toolset, _ in ctx.tools.values()} == {"hermes_nodes"}
    for name, (_, schema) in ctx.tools.items():
        assert schema["name"] == name
        assert set(schema) == {"name", "description", "parameters"}
        assert set(schema["parameters"]["required"]) <= set(schema["parameters"]["properties"])


def test_the_old_tools_need_what_they_needed() -> None:
    needed = {one["name"]: one["parameters"]["required"] for one in SCHEMAS}
    assert needed["node_exec"] == ["target", "command"]
    assert needed["node_read"] == ["target", "path"]
    assert needed["node_write"] == ["target", "path", "content"]
    assert needed["node_list"] == []


def test_no_part_names_what_makes_a_host_take_it_for_another_kind() -> None:
    head = (HOME / "__init__.py").read_text()[:8192]
    for word in ("MemoryProvider", "ProviderProfile", "CronScheduler", "ComputerUseProvider"):
        assert word not in head


def test_registering_imports_no_link_and_starts_nothing() -> None:
    """Almost every command of the host registers: sockets and ciphers come with the use."""
    for path in ("__init__.py", "commands.py", "runtime.py", "schemas.py", "tools.py"):
        for node in ast.parse((HOME / path).read_text()).body:
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in {"websockets", "cryptography"}
                assert not (node.module or "").startswith("handoff.nodes"), (path, node.module)


# -- truth --------------------------------------------------------------------------------------


def executed(**value: Any) -> Any:
    return use(Brain((True, value)), "node_exec", {"target": "lab", "command": "x"})


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"status": "ok", "exit_code": 0}, 0),
        ({"status": "error", "exit_code": 7}, 7),
        ({"status": "error", "exit_code": 137}, 137),
        ({"status": "error", "signal": 9}, 137),
        ({"status": "timeout"}, 124),
        ({"status": "timeout", "signal": 15}, 124),
        ({"status": "cancelled", "signal": 15}, 143),
        ({"status": "refused"}, 126),
        ({"status": "unknown_outcome"}, None),
    ],
)
def test_the_returncode_is_the_commands(value: dict[str, Any], code: int | None) -> None:
    answer = executed(**value)
    assert answer["returncode"] == code
    assert ("error" in answer) == (value["status"] not in {"ok", "error"})
    if value["status"] == "unknown_outcome":
        assert answer["code"] == "outcome_unknown"
        assert answer["key"]


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_bytes_of_any_kind_come_through(out: bytes, err: bytes) -> None:
    def stream(data: bytes) -> dict[str, Any]:
        return {"bytes_total": len(data), "head": {"b64": base64.b64encode(data).decode()}}

    answer = executed(status="ok", exit_code=0, stdout=stream(out), stderr=stream(err))
    for name, data, mark in (("output", out, "encoding"), ("stderr", err, "stderr_encoding")):
        text = answer.get(name, "")
        given_back = base64.b64decode(text) if mark in answer else text.encode()
        assert given_back == data


def test_what_is_left_out_is_counted_and_can_be_asked_for() -> None:
    cut = {"bytes_total": 100, "head": "abc", "tail": "xyz", "spill": "s1"}
    answer = executed(status="ok", exit_code=0, stdout=cut)
    assert answer["output"] == "abc\n[94 bytes are left out here]\nxyz"
    assert (answer["truncated"], answer["output_id"], answer["output_bytes"]) == (True, "s1", 100)


@pytest.mark.parametrize(
    ("error", "safe"),
    [
        (NodeOffline("away"), True),
        (UnknownNode("no such"), True),
        (OutcomeUnknown("lost", key="k"), False),
        (ValueError("a fault of ours"), False),
    ],
)
@pytest.mark.parametrize("name", [one["name"] for one in SCHEMAS])
def test_no_failure_looks_like_an_answer(name: str, error: Exception, safe: bool) -> None:
    args = {
        "target": "lab", "command": "x", "path": "x", "content": "x", "old": "x", "new": "y",
        "action": "list",
    }  # fmt: skip
    answer = use(Brain(error), name, args)
    assert answer["error"]
    assert answer["retry_safe"] is safe
    assert not {"returncode", "content", "bytes_written", "nodes", "jobs"} & set(answer)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
NAMES = sorted({name for one in SCHEMAS for name in one["parameters"]["properties"]})


@given(
    st.sampled_from([one["name"] for one in SCHEMAS]),
    st.dictionaries(st.sampled_from(NAMES), ANYTHING) | ANYTHING,
)
def test_whatever_a_model_says_the_tools_answer_json(name: str, args: Any) -> None:
    answer = use(Brain(), name, args, session_id="s")
    assert isinstance(answer, dict)
    assert answer.get("code") != "internal", answer


def test_a_piece_of_a_text_ends_between_characters() -> None:
    data = "aä€".encode()
    for size, wanted in ((1, "a"), (2, "a"), (3, "aä"), (5, "aä"), (6, "aä€")):
        value = {"data": {"b64": base64.b64encode(data[:size]).decode()}, "size": 6}
        answer = use(Brain((True, value)), "node_read",
                     {"target": "lab", "path": "x", "max_bytes": size})  # fmt: skip
        assert (answer["content"], answer["encoding"]) == (wanted, "utf-8")
        assert answer.get("next_offset", 6) == len(wanted.encode())
        assert answer["truncated"] == (size < 6)


# -- once ---------------------------------------------------------------------------------------


def test_the_key_is_of_the_hosts_ids() -> None:
    args = {"command": "x"}
    one = key_of("exec", "lab", args, IDS)
    assert one == key_of("exec", "lab", args, IDS)
    for name in IDS:
        assert key_of("exec", "lab", args, {**IDS, name: "other"}) != one
    assert key_of("exec", "lab", {"command": "y"}, IDS) != one
    assert key_of("exec", "lap", args, IDS) != one


@pytest.mark.parametrize("missing", [("tool_call_id",), ("turn_id", "api_request_id")])
def test_without_ids_of_a_request_each_call_is_another(missing: tuple[str, ...]) -> None:
    """Some models call every call call_0."""
    ids = {name: value for name, value in IDS.items() if name not in missing}
    assert key_of("exec", "lab", {}, ids) != key_of("exec", "lab", {}, ids)


def test_the_middleware_tells_the_ids_and_changes_nothing() -> None:
    brain = Brain((True, {"status": "ok", "exit_code": 0}))
    handler = tools(brain).handler("node_exec")
    args = {"target": "lab", "command": "x"}
    for _ in range(2):
        around(next_call=lambda given: handler(given, session_id="s"), args=args,
               tool_name="node_exec", **IDS)  # fmt: skip
    first, second = (more["key"] for *_, more in brain.asked)
    assert first == second
    handler(args, session_id="s")
    assert brain.asked[-1][3]["key"] != first
    with pytest.raises(KeyError):
        around(next_call=lambda _: {}["no"], args={})


def test_a_given_key_is_used_and_a_wrong_one_refused() -> None:
    brain = Brain((True, {"status": "ok", "exit_code": 0}))
    args = {"target": "lab", "command": "x"}
    use(brain, "node_exec", {**args, "key": "call-abc"})
    assert brain.asked[-1][3]["key"] == "call-abc"
    assert use(brain, "node_exec", {**args, "key": "a b"})["code"] == "bad_request"


# -- waiting ------------------------------------------------------------------------------------


@pytest.fixture
def stuck() -> Iterator[Any]:
    """A client whose call never answers by itself; it ends when it is cancelled."""
    import threading

    class Stuck(Brain):
        over = threading.Event()
        cancels = True

        def call(self, *args: Any, **more: Any) -> Any:
            self.over.wait(30)
            return True, {"status": "cancelled"}

        def ask(self, op: str, **fields: Any) -> Any:
            self.requests.append((op, fields))
            if self.cancels:
                self.over.set()
            return {}

    made = Stuck()
    made.over = threading.Event()
    yield made
    made.over.set()


def test_an_interrupt_of_the_user_cancels_the_call(
    stuck: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("tools.interrupt")
    module.is_interrupted = lambda: True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tools", ModuleType("tools"))
    monkeypatch.setitem(sys.modules, "tools.interrupt", module)
    ok, value = ask(stuck, Ask("lab", "exec", {}, key="call-abc"))
    assert (ok, value["status"]) == (True, "cancelled")
    ((op, given),) = stuck.requests
    assert (op, given["key"]) == ("cancel", "call-abc")
    began = time.monotonic()
    with pytest.raises(Failed, match="interrupted"):  # nothing can come of a look
        ask(type(stuck)(), Ask("lab", "read", {}, limit_s=30, reads=True))
    assert time.monotonic() - began < 5


def test_what_is_late_is_told_as_it_is(stuck: Any) -> None:
    stuck.cancels = False
    with pytest.raises(TimedOut):
        ask(stuck, Ask("lab", "read", {}, limit_s=0.05, reads=True))
    with pytest.raises(OutcomeUnknown) as caught:
        ask(stuck, Ask("lab", "write", {}, key="call-abc", limit_s=0.05))
    assert caught.value.details["key"] == "call-abc"
    assert calling.LOOK_S < 1


# -- hermes node --------------------------------------------------------------------------------


def test_the_verbs_are_there_and_each_failure_has_a_code(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "hermes_constants", None)
    monkeypatch.setitem(sys.modules, "hermes_cli", None)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    parser = argparse.ArgumentParser()
    arguments(parser)
    run = Commands(Runtime(Context())).run
    with pytest.raises(SystemExit) as caught:
        run(parser.parse_args(["status"]))
    assert caught.value.code == 1
    assert capsys.readouterr().out == "hermes-node server: not running\n"
    with pytest.raises(SystemExit) as caught:
        run(parser.parse_args([]))
    assert caught.value.code == 2
    for words in (["revoke"], ["rename", "a"], ["show"]):
        with pytest.raises(SystemExit) as caught:
            run(parser.parse_args([*words, "--json"]))
        assert caught.value.code
        assert json.loads(capsys.readouterr().out)["code"] == "usage"
    assert list(tmp_path.iterdir()) == []  # nothing was started


def test_a_profile_that_can_not_be_told_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hermes_constants", None)
    monkeypatch.setenv("HERMES_HOME", "relative")
    answer = json.loads(Tools(Runtime()).handler("node_list")({}))
    assert answer["code"] == "config_invalid"


def test_settings_come_from_the_host_or_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERMES_NODES_TERMINAL_NODE", raising=False)
    runtime = Runtime(SimpleNamespace(get_config={"terminal_node": "a"}.get))
    assert runtime.setting("terminal_node") == "a"
    assert runtime.setting("terminal_cwd", "~") == "~"
    older = Runtime(SimpleNamespace())
    config = {"plugins": {"entries": {NAME: {"settings": {"terminal_node": "b"}}}}}
    monkeypatch.setattr(older, "configuration", lambda: config)
    assert older.setting("terminal_node") == "b"
    monkeypatch.setenv("HERMES_NODES_TERMINAL_NODE", "c")
    assert older.setting("terminal_node") == "c"


# -- the terminal -------------------------------------------------------------------------------


def environment(brain: Brain, node: str = "lab") -> terminal.NodeEnvironment:
    runtime = Runtime()
    runtime.client = lambda **_: brain  # type: ignore[method-assign, assignment, return-value]
    return terminal.NodeEnvironment(runtime, node, "/host/folder", 60, "default")


@pytest.mark.parametrize("error", [NodeOffline("away"), OutcomeUnknown("?"), ValueError("x")])
def test_the_terminal_never_raises_for_the_host_would_run_it_again(error: Exception) -> None:
    value = environment(Brain(error)).execute("true")
    assert value["returncode"] == 255
    assert value["output"].startswith("[")
    assert environment(Brain(), node="").execute("true")["returncode"] == 255


def test_a_plain_program_goes_as_it_is_and_anything_else_in_one_shell() -> None:
    assert terminal.wrapped("git status --short", "M") == ("git status --short", False)
    for line in ("cd /x", "a && b", "echo $A", "x > y", "exit 3"):
        made, marked = terminal.wrapped(line, "M")
        assert marked
        assert f"\n{line}\n" in made


def test_the_folder_of_the_host_is_none_of_the_nodes() -> None:
    brain = Brain((True, {"status": "ok", "exit_code": 0}))
    env = environment(brain)
    env.execute("ls", cwd="/host/folder", bounded_capture=True)
    env.execute("ls", cwd="/srv", bounded_capture=True)
    assert [args["cwd"] for _, _, args, _ in brain.asked] == ["~", "/srv"]


def test_the_mark_is_taken_off_and_the_folder_kept() -> None:
    class Marking(Brain):
        def call(self, target: str, op: str, args: Any, **more: Any) -> Any:
            mark = args["command"].split("\\n")[1].split("%s")[0]
            out = f"hello\n{mark}/new place\n"
            self.asked.append((target, op, dict(args), more))
            stdout = {"head": out, "bytes_total": len(out)}
            return True, {"status": "error", "exit_code": 3, "stdout": stdout}

    env = environment(Marking())
    value = env.execute("cd '/new place'; echo hello; exit 3", bounded_capture=True)
    assert (value["output"], value["returncode"]) == ("hello", 3)
    assert env.cwd == "/new place"


def test_times_are_told_with_their_zone() -> None:
    assert results.time_text(0) is None
    assert results.time_text(1000) == "1970-01-01T00:00:01+00:00"


def test_remedies_name_what_there_is_in_hermes() -> None:
    """Every command of ours that a remedy of nodes and links names has another name here."""
    for said, wanted in (
        ("handoff nodes list", "hermes node list"),
        ("handoff nodes serve", "hermes node restart"),
        ("or wait: handoff nodes exec lab --queue-until 10m …", "or wait: wait_ms"),
        ("at the node: hermes-node approve a1", "at the node: hermes-node approve a1"),
    ):
        assert results.in_hermes(said) == wanted
    answer = use(Brain(NodeOffline("away", remedy="handoff nodes list")), "node_list", {})
    assert answer["remedy"] == "hermes node list"


def test_a_shell_session_is_opened_only_where_it_is_asked_for() -> None:
    brain = Brain((True, {"status": "ok", "exit_code": 0, "cwd": "/srv", "opened": True}))
    line = {"target": "lab", "command": "pwd", "shell": "work"}
    assert use(brain, "node_exec", line)["cwd"] == "/srv"
    assert [(op, args.get("shell")) for _, op, args, _ in brain.asked] == [("exec", "work")]
    brain.asked.clear()
    opening = {**line, "open_shell": True, "cwd": "~/x", "env": {"A": "1"}, "key": "k" * 64}
    assert use(brain, "node_exec", opening)["shell_opened"] is True
    (_, first, opened, one), (_, second, ran, two) = brain.asked
    assert (first, opened) == ("shell_open", {"name": "work", "cwd": "~/x", "env": {"A": "1"}})
    assert (second, ran.get("cwd"), ran.get("env")) == ("exec", None, None)
    assert one["key"] != two["key"] == "k" * 64
    assert len(one["key"]) <= 64
    for wrong in (
        {"open_shell": True, "shell": ""},
        {"cwd": "/"},
        {"env": {"A": "1"}},
        {"stdin": "x"},
        {"background": True},
    ):
        brain.asked.clear()
        assert use(brain, "node_exec", {**line, **wrong})["code"] == "bad_request"
        assert not brain.asked


def test_a_shell_session_that_can_not_be_opened_runs_nothing() -> None:
    brain = Brain((False, {"error": "no", "code": "policy_denied"}))
    line = {"target": "lab", "command": "pwd", "shell": "work", "open_shell": True}
    assert use(brain, "node_exec", line)["code"] == "policy_denied"
    assert [op for _, op, _, _ in brain.asked] == ["shell_open"]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"status": "cancelled", "exit_code": 0}, 143),
        ({"status": "timeout", "exit_code": 0}, 124),
        ({"status": "unknown_outcome"}, None),
        ({"status": "refused"}, 126),
        ({"exit_code": 0}, 0),
    ],
)
def test_what_did_not_end_well_has_no_returncode_0(value: dict[str, Any], code: Any) -> None:
    assert results.returncode(value) == code
