"""The documents say what the program is."""

from __future__ import annotations

import ast
import importlib
import json
import pathlib
import re
import subprocess
import sys
import tomllib
from unittest.mock import MagicMock

import pytest
from tests.support.markdown import ROOT, anchors, documents, fences, links, prose, rows

from handoff import config, lifecycle
from handoff.cli import session
from handoff.cli.main import GROUPS, table
from handoff.errors import all_errors
from handoff.wire.agentd import EVENT_TYPES

DOCS = ROOT / "docs"
SRC = ROOT / "src" / "handoff"
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in documents()}
EVERYWHERE = "\n".join(TEXTS.values())

#: languages of fenced blocks; ``console`` is run, ``yaml`` and ``json`` are read
KINDS = {"console", "text", "json", "yaml", "mermaid", "ini", "xml", "python", "markdown"}

# -- the documents hang together ---------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name: str) -> None:
    for link in links(TEXTS[name]):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (ROOT / name).parent / target if target else ROOT / name
        assert path.exists(), f"{name}: {link}"
        if anchor:
            assert anchor in anchors(path.read_text("utf-8")), f"{name}: {link}"


def test_every_document_can_be_reached() -> None:
    seen: set[pathlib.Path] = set()
    queue = [ROOT / "README.md"]
    while queue:
        path = queue.pop().resolve()
        if path in seen or path.suffix != ".md":
            continue
        seen.add(path)
        for link in links(path.read_text("utf-8")):
            if not re.match(r"[a-z]+:", link) and link.partition("#")[0]:
                queue.append(path.parent / link.partition("#")[0])
    missing = [p.relative_to(ROOT).as_posix() for p in documents() if p.resolve() not in seen]
    assert not missing


@pytest.mark.parametrize("name", TEXTS)
def test_a_document_has_one_title_and_no_open_fence(name: str) -> None:
    text = TEXTS[name]
    assert text.startswith("# ")
    assert len(re.findall(r"(?m)^# ", prose(text))) == 1
    assert "```" not in prose(text)
    assert text.endswith("\n")
    for kind, _ in fences(text):
        assert kind in KINDS, name


def test_generated_parts_are_up_to_date() -> None:
    for script in ("gen-reference", "gen-docs"):
        done = subprocess.run(
            [sys.executable, ROOT / "scripts" / script, "--check"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


# -- they name everything ----------------------------------------------------------------


def test_every_event_type_that_is_emitted_is_registered_and_documented() -> None:
    emitted = set()
    for path in (SRC / "agentd").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                first = node.args[0] if node.args else None
                if node.func.attr == "event" and isinstance(first, ast.Constant):
                    emitted.add(first.value)
    assert len(emitted) > 10
    assert emitted <= set(EVENT_TYPES)
    documented = set(re.findall(r"(?m)^\| `(\w+)` \|", TEXTS["docs/events.md"]))
    assert set(EVENT_TYPES) <= documented


def test_the_payload_of_every_waking_event_is_described() -> None:
    described = {
        name
        for row in rows(TEXTS["docs/events.md"], "| event | payload")
        for name in re.findall(r"`(\w+)`", row[0])
    }
    assert {name for name, kind in EVENT_TYPES.items() if kind.wakes} <= described
    assert described <= set(EVENT_TYPES)


def test_every_error_code_and_state_is_documented() -> None:
    for code in all_errors():
        assert f"`{code}`" in TEXTS["docs/errors.md"], code
    for machine in lifecycle.MACHINES.values():
        for state in machine:
            assert f"`{state}`" in TEXTS["docs/lifecycle.md"], state


def test_every_route_is_documented_and_every_documented_route_exists() -> None:
    real = set()
    for path in sorted((SRC / "agentd" / "routes").glob("[!_]*.py")):
        module = importlib.import_module(f"handoff.agentd.routes.{path.stem}")
        for route in module.routes(MagicMock()):
            methods = (getattr(route, "methods", None) or {"GET"}) - {"HEAD"}
            real |= {(method, route.path) for method in methods}
    documented = {
        (method, path)
        for method, path in re.findall(
            r"`(GET|POST|DELETE) (/[\w/{}]+)[^`]*`", TEXTS["docs/api.md"]
        )
    }
    assert documented == real


def test_every_field_of_the_api_objects_is_documented() -> None:
    views = ast.parse((SRC / "agentd" / "views.py").read_text("utf-8"))
    api = TEXTS["docs/api.md"] + TEXTS["docs/events.md"]
    checked = 0
    for function in ast.walk(views):
        if isinstance(function, ast.FunctionDef) and function.name.endswith(("_json", "_view")):
            for node in ast.walk(function):
                if isinstance(node, ast.Dict):
                    for key in node.keys:
                        if isinstance(key, ast.Constant):
                            assert re.search(rf"\b{key.value}\b", api), key.value
                            checked += 1
    assert checked > 60


def test_every_field_of_a_dispatch_and_every_query_is_documented() -> None:
    from handoff.agentd.dispatching import DispatchRequest

    api = TEXTS["docs/api.md"]
    for field in DispatchRequest.__struct_fields__:
        assert f"`{field}`" in api, field
    asked = set()
    for path in (SRC / "agentd" / "routes").glob("*.py"):
        text = path.read_text("utf-8")
        asked |= set(re.findall(r'query_params\.get(?:list)?\("(\w+)"', text))
        asked |= set(re.findall(r'number\(request, "(\w+)"', text))
    assert len(asked) > 10
    for name in asked:
        assert re.search(rf"[?&`]{name}\b", api), name


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    named = set(re.findall(r"(?m)^\| `([\w.-]+)` \|", TEXTS["docs/dependencies.md"]))
    wanted = list(project["project"]["dependencies"])
    for group in project["dependency-groups"].values():
        wanted += [entry for entry in group if isinstance(entry, str)]
    assert named == {re.split(r"[<>=\[; ]", requirement)[0] for requirement in wanted}


def test_every_command_is_in_the_reference() -> None:
    for name in table():
        assert re.search(rf"(?m)^#+ .*\b{name}\b", TEXTS["docs/cli.md"]), name
    assert sum(len(group) for group in GROUPS.values()) == len(table())


def test_every_environment_variable_is_documented() -> None:
    used = set()
    for path in SRC.rglob("*.py"):
        used |= set(re.findall(r'"(HANDOFF_[A-Z_]+)"', path.read_text("utf-8")))
    assert used >= {"HANDOFF_CONFIG", "HANDOFF_HOME"}
    for name in used:
        if not name.startswith("HANDOFF_CRASH_"):  # for the fault tests alone
            assert name in EVERYWHERE, name


# -- and nothing that does not exist -----------------------------------------------------


def commands_in(text: str) -> list[list[str]]:
    """The handoff commands of a document's blocks and code spans, as words."""
    found = [body for kind, body in fences(text) if kind in ("console", "text")]
    lines = [line for body in found for line in body.split("\n") if line.startswith("$ ")]
    lines += re.findall(r"`(handoff [^`\n]+)`", prose(text))
    commands = []
    for line in lines:
        for part in re.split(r"[|;&(]+|\$ ", line):
            words = part.split("#")[0].split()
            if words[:1] == ["handoff"] and len(words) > 1:
                commands.append(words[1:])
    return commands


@pytest.mark.parametrize("name", TEXTS)
def test_commands_and_flags_that_are_shown_exist(name: str) -> None:
    parsers = {}
    for words in commands_in(TEXTS[name]):
        command = words[0]
        if command.startswith("-") or command in ("COMMAND", "…"):
            continue
        assert command in table(), f"{name}: handoff {' '.join(words)}"
        module = importlib.import_module(f"handoff.cli.{table()[command][0]}")
        rest = words[1:]
        if hasattr(module, "VERBS") and any(not word.startswith("-") for word in rest):
            module, rest = module.verb(rest)
            command += f" {module.name}"
        parser = parsers.setdefault(command, module.parser())
        for word in rest:
            if word == "--" or (command == "run" and not word.startswith("--")):
                break
            flag = word.split("=")[0].strip("',")
            if re.fullmatch(r"--[a-z][\w-]*", flag):
                assert flag in parser._option_string_actions, f"{name}: {' '.join(words)}"


def strings(path: pathlib.Path) -> list[str]:
    """The string literals of a module, f-strings with ``{}`` where something is put in."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            found.append("".join(str(p) for p in parts))
    return found


def test_commands_that_the_program_names_exist() -> None:
    """A remedy is a command that works as printed."""
    names = {*table(), "COMMAND", "_ids", "{}"}
    checked = 0
    for path in sorted(SRC.rglob("*.py")):
        for text in strings(path):
            for command in re.findall(r"(?:^|['`\n(: ])handoff ([a-z_{}][\w{}-]*)", text):
                for verb in re.findall(r"handoff session ([a-z]+)\b", text):
                    assert verb in session.VERBS, f"{path.name}: {text!r}"
                if re.match(rf"handoff {re.escape(command)}\b", text) or "`handoff" in text:
                    assert command in names, f"{path.name}: handoff {command} in {text!r}"
                    checked += 1
    assert checked > 30


def test_modules_that_are_named_exist() -> None:
    named = re.findall(
        r"`((?:[a-z_]+/)*[a-z_]+\.py|[a-z_]+/(?:[a-z_]+/)?)`", TEXTS["ARCHITECTURE.md"]
    )
    assert len(named) > 30
    for name in named:
        assert (SRC / name).exists() or name.startswith("refs/"), name


def test_configuration_shown_in_the_documents_is_understood(tmp_path: pathlib.Path) -> None:
    checked = 0
    for name, text in TEXTS.items():
        for kind, body in fences(text):
            if kind == "yaml" and "turns:" not in body and "handoff-script" not in body:
                path = tmp_path / "config.yaml"
                path.write_text(body)
                path.chmod(0o600)
                _, warnings = config.load(str(path))
                told = [w for w in warnings if w.key and w.key != "token"]
                assert not told, f"{name}: {[str(w) for w in told]}"
                checked += 1
    assert checked >= 5


def test_json_shown_in_the_documents_is_json() -> None:
    for name, text in TEXTS.items():
        for kind, body in fences(text):
            if kind == "json":
                try:
                    json.loads(body)
                except ValueError as error:
                    raise AssertionError(f"{name}: {error}\n{body}") from error
