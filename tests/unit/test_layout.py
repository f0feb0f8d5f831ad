"""The shape of the house: what the linters have no rule for."""

from __future__ import annotations

import ast
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "handoff"
MODULES = sorted(SRC.rglob("*.py"))

#: runs in interpreters that are not ours (another program's, ``python -I -S``)
STDLIB_ONLY = (
    "errors.py",
    "lifecycle.py",
    "ids.py",
    "clock.py",
    "places.py",
    "redaction/",
    "workspace/",
    "sessions/",
    "wire/node/",
    "mcp/",
    "plugins/hermes_handoff/",
    "process/shim.py",
    "process/journal.py",
    "nodes/node/keeper.py",
    "nodes/node/held.py",
    "nodes/node/spill.py",
    "nodes/node/searcher.py",
    "executors/fake/agent.py",
    "executors/fake/__main__.py",
)
FOUNDATION = (
    "__version__",
    "errors",
    "lifecycle",
    "ids",
    "clock",
    "places",
    "crashpoints",
    "redaction",
    "workspace",
)
#: decides from what it is handed: the same input, the same answer, at any time
PURE = (
    "lifecycle.py",
    "ids.py",
    "wire/",
    "mcp/lines.py",
    "mcp/protocol.py",
    "mcp/identity.py",
    "executors/contract.py",
    "gate/contract.py",
)
HIDDEN_INPUTS = {"time", "random", "secrets", "uuid", "socket", "subprocess", "datetime"}
MAX_MODULE = 450
MAX_FUNCTION = 80
#: path -> why it is longer all the same
LONG_MODULES: dict[str, str] = {
    "errors.py": "the whole error tree, as data",
    "agentd/routes/tasks.py": "one handler a route, each a few lines; the table of routes",
    "agentd/turns.py": "what a driver's outputs mean for a task, one small function an output",
    "executors/claude_driver.py": "one driver: one small function a message of the protocol",
    "wire/claude.py": "the messages of one protocol, as data",
    "wire/node/messages.py": "the messages of one protocol, as data",
}
LONG_FUNCTIONS: dict[str, str] = {}


def name(path: pathlib.Path) -> str:
    return path.relative_to(SRC).as_posix()


def tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(path: pathlib.Path) -> set[str]:
    """Top-level names of everything imported, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = node.module != "handoff"
            found |= {node.module if whole else f"handoff.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_annotations_are_not_evaluated(path: pathlib.Path) -> None:
    parsed = tree(path)
    annotated = (ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef)
    if not any(isinstance(node, annotated) for node in ast.walk(parsed)):
        return
    first = next(n for n in parsed.body if not isinstance(n, ast.Expr))
    assert isinstance(first, ast.ImportFrom), f"{name(path)}: from __future__ import annotations"
    assert first.module == "__future__"


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_module_has_one_reason_and_fits_a_head(path: pathlib.Path) -> None:
    lines = path.read_text("utf-8").count("\n")
    if name(path) not in LONG_MODULES:
        assert lines <= MAX_MODULE, f"{name(path)} has {lines} lines: find the seam"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if f"{name(path)}::{node.name}" not in LONG_FUNCTIONS:
                assert size <= MAX_FUNCTION, f"{name(path)}: {node.name} has {size} lines"


def test_no_excuse_outlives_its_reason() -> None:
    for module in LONG_MODULES:
        assert (SRC / module).read_text("utf-8").count("\n") > MAX_MODULE, module


@pytest.mark.parametrize("path", [p for p in MODULES if name(p).startswith(STDLIB_ONLY)], ids=name)
def test_standard_library_only(path: pathlib.Path) -> None:
    for module in imports(path):
        top = module.split(".")[0]
        assert top in sys.stdlib_module_names or top == "handoff", f"{name(path)}: {module}"
        if top == "handoff":
            inner = module.removeprefix("handoff.").replace(".", "/")
            own = name(path).split("/")[0]
            # the keeper is kin to the shim; a plugin for Hermes is a face of Sessions
            below = {
                "nodes": ("process",),
                "plugins": ("sessions", "mcp"),
                "mcp": ("sessions",),
            }.get(own, ())
            assert inner.startswith((*FOUNDATION, own, *below)), f"{name(path)}: {module}"


@pytest.mark.parametrize("path", [p for p in MODULES if name(p).startswith(PURE)], ids=name)
def test_pure_parts_have_no_hidden_inputs(path: pathlib.Path) -> None:
    assert not {m.split(".")[0] for m in imports(path)} & HIDDEN_INPUTS, name(path)


def test_nothing_is_unfinished() -> None:
    """NotImplementedError is for a method that every subclass of its module replaces."""
    for path in MODULES:
        parsed = tree(path)
        classes = [node for node in ast.walk(parsed) if isinstance(node, ast.ClassDef)]
        for owner in classes:
            for method in owner.body:
                if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if not _raises_not_implemented(method):
                    continue
                below = [
                    c for c in classes if any(ast.unparse(base) == owner.name for base in c.bases)
                ]
                assert below, f"{name(path)}: {owner.name}.{method.name} is unfinished"
                for cls in below:
                    names = {getattr(node, "name", "") for node in cls.body}
                    assert method.name in names, f"{name(path)}: {cls.name}.{method.name}"


def _raises_not_implemented(function: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == "NotImplementedError"
        for node in ast.walk(function)
    )


def test_words() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "words.py"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_scripts_can_be_run_and_are_explained() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for script in sorted((ROOT / "scripts").iterdir()):
        if script.suffix or script.name == "__pycache__":
            continue
        assert os.access(script, os.X_OK), f"{script.name} is not executable"
        assert script.read_text("utf-8").startswith("#!"), script.name
        assert f"scripts/{script.name}" in contributing, f"CONTRIBUTING.md: {script.name}"


def test_unit_tests_mirror_the_sources() -> None:
    """A folder of unit tests belongs to a package, or to nothing."""
    packages = {path.relative_to(SRC).as_posix() for path in SRC.rglob("*") if path.is_dir()}
    for folder in (ROOT / "tests" / "unit").rglob("*"):
        if folder.is_dir() and folder.name != "__pycache__":
            relative = folder.relative_to(ROOT / "tests" / "unit").as_posix()
            assert relative in packages, f"tests/unit/{relative} mirrors nothing"


def test_the_package_says_that_it_is_typed() -> None:
    assert (SRC / "py.typed").is_file()
