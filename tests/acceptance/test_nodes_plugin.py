"""The plugin's tools and its terminal with a real brain and a real node: what a model hands them
that is odd, and what a machine answers that is."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support.nodes import Place, running

from handoff.errors import LaunchFailed, OutcomeUnknown
from handoff.nodes.client import BrainClient
from handoff.plugins.hermes_node.runtime import Runtime
from handoff.plugins.hermes_node.terminal import NodeEnvironment
from handoff.plugins.hermes_node.tools import Tools


class Here(Runtime):
    """A profile whose brain is the place's."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def client(self, *, start: bool = True) -> BrainClient:
        del start
        return BrainClient(str(self._place.root / "brain"), None)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running(tmp_path_factory.mktemp("plugin")) as made:
        yield made


@pytest.fixture
def env(place: Place) -> NodeEnvironment:
    return NodeEnvironment(Here(place), "n1", "/host", 20, "t")


def use(place: Place, name: str, **given: Any) -> Any:
    return json.loads(Tools(Here(place)).handler(name)({"target": "n1", **given}))


# -- the terminal ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "output"),
    [
        ("printf abc", 0, "abc"),
        ("", 0, ""),
        ("printf 'a\\0b'; true", 0, "a\0b"),
        ("printf '\\xff'; true", 0, "\ufffd"),
        ("exit 4", 4, ""),
        ("set -e; false; echo no", 1, ""),
        ("cat <<'X'\nexit 5\nX", 0, "exit 5\n"),
        ("trap 'echo mine' EXIT; cd /", 0, "mine\n"),
        ("(cd /); ls /none | cat", 0, None),
        ("echo 'unterminated", 2, None),
        ("kill -9 $$", 137, ""),
        ("echo \ud800", 255, None),
        ("echo a\0b", 255, None),
    ],
)
def test_what_a_line_says_is_what_is_told(
    env: NodeEnvironment, line: str, code: int, output: str | None
) -> None:
    told = env.execute(line)
    assert told["returncode"] == code, told
    assert output is None or told["output"] == output
    assert "--cwd-" not in told["output"]


def test_the_folder_is_kept_and_left_when_it_is_gone(place: Place, env: NodeEnvironment) -> None:
    odd = place.files / "a b\nc"
    env.execute(f"mkdir -p '{odd}' && cd '{odd}'")
    assert env.execute("pwd")["output"] == f"{odd}\n"
    assert env.execute("cd nowhere")["returncode"] == 1
    assert env.execute("sleep 60", timeout=1)["returncode"] == 124
    assert env.cwd == str(odd)
    env.execute(
        f"cd '{place.files}' && rmdir '{odd}' && mkdir '{odd}' && cd '{odd}' && rmdir ../*c"
    )
    lost = env.execute("pwd")
    assert (lost["returncode"], "next command starts in ~" in lost["output"]) == (255, True)
    assert env.execute("pwd;")["output"] == f"{place.home}\n"
    # what the host itself asked for is not ours to change
    env.execute(f"cd {place.files}")
    assert env.execute("pwd", cwd="/no/such")["returncode"] == 255
    assert env.cwd == str(place.files)


def test_what_a_line_leaves_running_is_said_to_be_ended(place: Place, env: NodeEnvironment) -> None:
    told = env.execute("sleep 4711 >/dev/null 2>&1 & echo $!")
    pid, said = told["output"].split("\n", 1)
    assert "left running were ended" in said
    place.until(lambda: not pathlib.Path(f"/proc/{pid}").exists())
    value = use(place, "node_exec", command="sleep 4711 >/dev/null 2>&1 & echo $!")
    assert (value["killed"], value["returncode"]) == (1, 0)
    assert "killed" not in use(place, "node_exec", command="seq 9 | tail -1")


def test_input_and_output_of_any_size(env: NodeEnvironment) -> None:
    data = "é\n" * 400_000
    assert env.execute("cat; true", stdin_data=data)["output"] == data
    told = env.execute("cat; true", stdin_data=data, bounded_capture=True)
    assert "bytes are left out here" in told["output"]
    assert len(told["output"]) < 300_000
    assert env.execute("cat", stdin_data="")["output"] == ""
    assert env.execute("cat", stdin_data="\ud800")["output"].startswith("[bad_request]")


# -- the tools ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "field"),
    [
        ("node_exec", {"command": "x" * 200_000}, "command"),
        ("node_exec", {"command": "echo \0"}, "command"),
        ("node_exec", {"command": "  "}, "command"),
        ("node_exec", {"command": ["ls"]}, "command"),
        ("node_exec", {"command": "true", "env": {"A=": "x"}}, "env"),
        ("node_exec", {"command": "true", "env": {"A": 1}}, "env"),
        ("node_exec", {"command": "true", "timeout_ms": "5000"}, "timeout_ms"),
        ("node_exec", {"command": "true", "timeout_ms": float("inf")}, "timeout_ms"),
        ("node_exec", {"command": "true", "target": ["n1"]}, "target"),
        ("node_exec", {"command": "cat", "background": True, "stdin": "x" * 300_000}, "stdin"),
        ("node_read", {"path": "a\0b"}, "path"),
        ("node_read", {"path": "x", "offset": -1}, "offset"),
        ("node_write", {"path": "x", "content": {"a": 1}}, "content"),
        ("node_write", {"path": "x", "content": "\ud800"}, "content"),
        ("node_write", {"path": "x", "content": "!!", "encoding": "base64"}, "content"),
        ("node_write", {"path": "x", "content": "x", "permissions": "-1"}, "permissions"),
        ("node_write", {"path": "x", "content": "x", "permissions": "999"}, "permissions"),
        ("node_write", {"path": "x", "content": "x", "permissions": "0_7"}, "permissions"),
        ("node_edit", {"path": "x", "old": "", "new": "y"}, "old"),
        ("node_job", {"action": "tail"}, "job"),
        ("node_job", {"action": "output", "job": "../../etc"}, "spill"),
    ],
)
def test_a_wrong_argument_is_named(
    place: Place, name: str, given: dict[str, Any], field: str
) -> None:
    told = use(place, name, **given)
    assert (told["code"], told["details"]["field"]) == ("bad_request", field)


def test_what_is_missing_is_named_with_a_way_out(place: Place, env: NodeEnvironment) -> None:
    """A remedy for the node's shell works there as it is printed."""
    policy = place.config().parent / "policy.toml"
    policy.write_text('read = ["~"]\nwrite = ["~"]\n[exec]\ndefault = "allow"\n')
    policy.chmod(0o600)
    try:
        given = {"path": "~/no where/f", "content": "x"}
        told = use(place, "node_write", **given)
        assert (told["code"], told["error"]) == (
            "file_not_found",
            "the folder ~/no where does not exist",
        )
        assert env.execute(told["remedy"].partition(": ")[2])["returncode"] == 0
        assert use(place, "node_write", **given)["bytes_written"] == 1
        told = use(place, "node_read", path="~/no where/g")
        assert told["error"] == "~/no where/g does not exist"
        assert env.execute(told["remedy"])["returncode"] == 0
    finally:
        policy.unlink()


def test_a_range_beyond_the_end_tells_the_true_size(place: Place) -> None:
    path = place.files / "sized"
    path.write_bytes(b"12345")
    for given in ({"offset": 5}, {"offset": 10**9}, {"offset": 2, "max_bytes": 3}):
        told = use(place, "node_read", path=str(path), **given)
        assert (told["size_bytes"], told["truncated"]) == (5, False), told


def test_bytes_of_any_kind_are_whole(place: Place) -> None:
    data = b"\xff" * 16 + os.urandom(3_000_000)  # no piece of it is text
    path = str(place.files / "bytes")
    given = {"content": base64.b64encode(data).decode(), "encoding": "base64"}
    assert use(place, "node_write", path=path, permissions="0o600", **given)["bytes_written"]
    got, at = b"", 0
    while True:
        told = use(place, "node_read", path=path, offset=at, max_bytes=1_000_001)
        assert told["encoding"] == "base64"
        got += base64.b64decode(told["content"])
        if not told["truncated"]:
            break
        at = told["next_offset"]
    assert got == data
    assert os.stat(path).st_mode & 0o777 == 0o600
    told = use(place, "node_exec", command=f"cat {path}", max_output_bytes=1000)
    assert (told["encoding"], told["truncated"], told["output_bytes"]) == (
        "base64",
        True,
        len(data),
    )
    piece = use(place, "node_job", action="output", job=told["output_id"], offset=7, max_bytes=9)
    assert base64.b64decode(piece["content"]) == data[7:16]


def test_an_interrupt_ends_a_command_on_the_node(
    place: Place, env: NodeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import ModuleType

    begun = place.files / "begun"
    module = ModuleType("tools.interrupt")
    module.is_interrupted = begun.exists  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tools", ModuleType("tools"))
    monkeypatch.setitem(sys.modules, "tools.interrupt", module)
    began = time.monotonic()
    told = env.execute(f"echo part; touch {begun}; sleep 60; echo late")
    assert time.monotonic() - began < 15
    assert told["output"].startswith("part\n")
    assert "cancelled" in told["output"]
    assert told["returncode"] not in {0, 124}
    begun.unlink()
    value = use(place, "node_exec", command=f"echo part; touch {begun}; sleep 60")
    assert (value["output"], value["status"]) == ("part\n", "cancelled")
    begun.unlink()


def test_a_brain_that_is_killed_takes_no_answer_along(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next brain brings the command's end and all of its output, and nothing runs twice."""
    ran, go = place.files / "ran", place.files / "go"
    os.mkfifo(go)

    class Starting(Here):
        def client(self, *, start: bool = True) -> BrainClient:
            del start
            program = (sys.executable, "-m", "handoff.nodes.brain.main")
            return BrainClient(str(place.root / "brain"), program)

    env = NodeEnvironment(Starting(place), "n1", "/host", 60, "t")
    line = f"cd /; echo x >> {ran}; seq 90000; echo err >&2; cat {go}; exit 3"
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(env.execute, line)
        place.until(ran.exists)
        os.kill(place.asked("status")["pid"], signal.SIGKILL)
        place.until(lambda: BrainClient(str(place.root / "brain"), None).running())
        with open(go, "w"):
            pass
        value = told.result(60)
    assert value["returncode"] == 3, value
    assert value["output"] == "".join(f"{n}\n" for n in range(1, 90001)) + "err\n"
    assert (ran.read_text(), env.cwd) == ("x\n", "/")


def test_what_a_brain_that_can_not_be_had_again_has_done_is_unknown(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call was sent before: that no brain can be started now denies nothing of it."""
    ran = place.files / "ran-once"
    brain = BrainClient(str(place.root / "brain"), ("/no/such/program",))
    pid = brain.ask("status")["pid"]
    with ThreadPoolExecutor(1) as pool:
        given = {"command": f"echo x >> {ran}; sleep 2"}
        told = pool.submit(brain.call, "n1", "exec", given, key="call-lost")
        place.until(ran.exists)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(OutcomeUnknown) as caught:
            told.result(60)
    assert caught.value.details["key"] == "call-lost"
    with pytest.raises(LaunchFailed):  # nothing was asked yet
        brain.call("n1", "exec", given, key="call-new")
    brain.close()
    place.nodes("list")  # starts one for those that come after
    place.until(lambda: place.status() == "connected")
