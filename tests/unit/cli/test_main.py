from __future__ import annotations

import ast
import json
import os
import pathlib
import subprocess
import sys

import pytest
from tests.unit.cli.calling import TASK, Caller, task
from tests.unit.client.served import Reply, Served

import handoff
from handoff.cli import main as entry
from handoff.cli.context import Context
from handoff.errors import UsageError

CLI = pathlib.Path(entry.__file__).parent


def test_help_names_every_command_and_imports_nothing_of_them(call: Caller) -> None:
    shown = call("--help")
    assert shown.code == 0
    for name in entry.table():
        assert f"  {name} " in shown.out
    assert call().out == call("help").out == call("-h").out == shown.out


@pytest.mark.parametrize(
    ("argv", "allowed"),
    [
        (["--help"], {"handoff.cli.main"}),
        (["--version"], {"handoff.cli.main"}),
        (["dispatc"], {"handoff.cli.main", "handoff.cli.terminal"}),
    ],
)
def test_the_root_imports_no_command_and_no_argparse(argv: list[str], allowed: set[str]) -> None:
    code = (
        "import sys; from handoff.cli.main import main; main(sys.argv[1:]);"
        "print('\\n' + '\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=20
    )
    names = set(done.stdout.splitlines())
    assert {n for n in names if n.startswith("handoff.cli.")} <= allowed
    assert "argparse" not in names


HEAVY = {
    "asyncio", "typing", "dataclasses", "subprocess", "pathlib", "logging", "msgspec", "ruamel",
    "ruamel.yaml", "rich", "uuid", "datetime", "ssl", "http", "urllib", "email", "tempfile",
    "shutil", "random", "hashlib", "importlib.metadata", "unicodedata", "inspect", "contextlib",
}  # fmt: skip


def test_a_call_to_agentd_starts_light(served: Served) -> None:
    served.on("GET", "/api/tasks", [task()])
    served.on(
        "GET",
        f"/api/tasks/{TASK[:4]}",
        {"task": task(), "pending_tickets": [], "recent_events": []},
    )
    served.on("POST", "/api/tasks", task())
    code = (
        "import sys; before = set(sys.modules); from handoff.cli.main import main\n"
        "for argv in (['tasks'], ['show', '1f3a'], ['dispatch', '--prompt', 'x']):\n"
        "    assert main(argv) == 0\n"
        "print('\\n' + '\\n'.join(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        env={**os.environ, "HANDOFF_CONFIG": served.config},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) & HEAVY == set()


def test_every_module_can_be_imported_and_has_its_parser() -> None:
    for name, (module, about) in entry.table().items():
        made = entry._module(module).parser()
        assert made.prog == f"handoff {name}"
        assert made.description, name
        assert about[0].islower()
        assert not about.endswith(".")


def test_only_the_named_commands_import_the_daemons_side() -> None:
    allowed = {"agentd.py", "doctor.py", "init.py", "demo.py"}
    for path in CLI.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any(
                n.startswith(("handoff.agentd", "handoff.store", "handoff.executors"))
                for n in names
            ):
                assert path.name in allowed, path


def test_version_line_one_is_bare(call: Caller) -> None:
    assert call("version").out.splitlines()[0] == handoff.__version__
    assert call("version", "--json").json["version"] == handoff.__version__
    assert call("--version").out == f"handoff {handoff.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["dispach"], "did you mean 'dispatch'?"),
        (["xyzzy"], "there is no command 'xyzzy'"),
        (["--frobnicate"], "unknown flag '--frobnicate'"),
        (["--target"], "--target needs a value"),
        (["wait"], "required: task"),
        (["wait", "1f3a", "--folow"], "did you mean --follow?"),
        (["wait", "1f3a", "--follow", "--until-done"], "not allowed with"),
        (["wait", "1f3a", "--timeout", "soon"], "not a duration"),
        (["tasks", "--limit", "0"], "whole number above 0"),
        (["tasks", "--state", "asleep"], "invalid choice"),
        (["reply", "1f3a"], "one of the arguments"),
        (["--agentd", "http://127.0.0.1:1", "--target", "x", "tasks"], "exclude each other"),
    ],
)
def test_usage_errors_are_2_and_name_a_remedy(call: Caller, argv: list[str], told: str) -> None:
    done = call(*argv)
    assert done.code == 2
    assert done.raw == b""
    assert told in done.err
    assert "try: handoff" in done.err


def test_no_abbreviations(call: Caller) -> None:
    assert call("wait", "1f3a", "--fol").code == 2


def test_errors_in_json_are_one_line_with_their_code(call: Caller) -> None:
    done = call("wait", "1f3a", "--json", "--nope")
    body = json.loads(done.err)
    assert (body["code"], body["exit_code"], done.code) == ("usage", 2, 2)


@pytest.mark.parametrize("place", ["before", "after", "between"])
def test_global_flags_anywhere(call: Caller, served: Served, place: str) -> None:
    call.patch.setenv("HANDOFF_CONFIG", "/nowhere/config.yaml")
    served.on("GET", "/api/tasks", [])
    flags = ["--config", served.config]
    argv = {
        "before": [*flags, "tasks", "--limit", "3"],
        "after": ["tasks", "--limit", "3", *flags],
        "between": ["tasks", f"--config={served.config}", "--limit", "3"],
    }[place]
    assert call(*argv).code == 0
    assert call("tasks").code == 5


def test_printed_commands_carry_the_flags_of_the_call(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "it's" / "config.yaml")
    context = Context(config=path, target="far")
    quoted = "'" + path.replace("'", "'\"'\"'") + "'"
    assert context.command("show", "1f3a") == f"handoff show --config {quoted} --target far 1f3a"
    assert context.adapt("handoff tasks --limit 3").endswith("--target far --limit 3")
    assert context.adapt("commit them") == "commit them"
    elsewhere = Context(agentd="http://127.0.0.1:1")
    assert elsewhere.adapt("handoff agentd --detach") == "handoff agentd --detach"
    assert Context().adapt("handoff tasks") == "handoff tasks"
    with pytest.raises(UsageError):
        Context(agentd="x", target="y")


def test_a_typed_error_of_agentd_gives_its_exit_code(call: Caller, served: Served) -> None:
    for code, http, exit_code in (
        ("unknown_task", 404, 4),
        ("not_allowed", 409, 3),
        ("git_failed", 500, 1),
        ("timed_out", 504, 124),
        ("brand_new_code", 409, 3),
    ):
        served.on("GET", f"/api/tasks/{TASK}", Reply({"error": "why", "code": code}, http))
        done = call("show", TASK, "--json")
        assert done.code == exit_code
        assert json.loads(done.err)["code"] == code


def test_error_text_is_harmless_on_a_terminal(call: Caller, served: Served) -> None:
    served.on("GET", f"/api/tasks/{TASK}", Reply({"error": "a\x1b[31m\u202eb", "code": "x"}, 409))
    call.patch.setattr("handoff.cli.terminal.is_tty", lambda _: True)
    call.patch.setenv("NO_COLOR", "1")
    done = call("show", TASK)
    assert "\x1b" not in done.err
    assert "a⟨U+001B⟩[31m⟨U+202E⟩b" in done.err


def test_interrupt_is_130_and_quiet(call: Caller) -> None:
    def stop(*_: object) -> int:
        raise KeyboardInterrupt

    call.patch.setattr("handoff.cli.tasks.run", stop)
    done = call("tasks")
    assert (done.code, done.raw, done.err) == (130, b"", "")


def test_a_reader_that_leaves_is_no_traceback(served: Served) -> None:
    served.on("GET", "/api/tasks", [task(name="x" * 1000) for _ in range(500)])
    command = f"{sys.executable} -m handoff.cli.main tasks | head -c 10"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        env={**os.environ, "HANDOFF_CONFIG": served.config},
        capture_output=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a full disk to write to")
def test_a_full_disk_is_one_line(served: Served) -> None:
    served.on("GET", "/api/tasks", [task()])
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "handoff.cli.main", "tasks"],
            env={**os.environ, "HANDOFF_CONFIG": served.config},
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=20,
        )
    assert done.returncode == 1
    assert done.stderr.decode() == "handoff: No space left on device\n"


def test_without_stderr_nothing_strays_to_stdout(served: Served) -> None:
    served.on("POST", "/api/tasks", task(notes=["a note"]))
    command = f"{sys.executable} -m handoff.cli.main dispatch --prompt x 2>&-"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "HANDOFF_CONFIG": served.config},
        capture_output=True,
        timeout=20,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["id"] == TASK


def test_nothing_is_created_by_looking(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from handoff.cli.main import main

    home = tmp_path / "h"
    monkeypatch.setenv("HANDOFF_HOME", str(home))
    monkeypatch.delenv("HANDOFF_CONFIG", raising=False)
    for argv in (["tasks"], ["version"], ["--help"], ["status"], ["wait", "1f3a"], ["_ids"]):
        assert main(argv) in (0, 5)
    assert not home.exists()
