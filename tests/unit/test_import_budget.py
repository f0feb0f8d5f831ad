"""What the command line may import before it does its work.

Every module costs time at every start: a new one on these paths is a decision, made by
adding it here.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.home import Home

from handoff.cli.main import table

#: what the console script does; the script itself is pip's, and an older pip's imports re
HANDOFF = ["-c", "import sys; from handoff.cli.main import entry; sys.exit(entry())"]

#: for --help and --version: the table of commands and the error tree
ROOT = {"handoff", "handoff.cli", "handoff.cli.main", "handoff.cli.version", "handoff.errors"}

#: for a command that asks agentd something
COMMAND = ROOT | {
    "handoff.cli.context",
    "handoff.cli.parsing",
    "handoff.cli.tasks",
    "handoff.cli.terminal",
    "handoff.client",
    "handoff.client.endpoint",
    "handoff.client.http",
    "handoff.client.connection",
    "handoff.clock",
    "handoff.places",
}

#: of the standard library, beyond what the interpreter loads by itself
ROOT_STDLIB = {"__future__"}
COMMAND_STDLIB = ROOT_STDLIB | {
    "argparse",
    "array",
    "json",
    "math",
    "re",
    "select",
    "selectors",
    "shutil",
    "socket",
}

#: what modules of the standard library import of each other, which we do not choose
DEEP = {
    "collections",
    "copyreg",
    "enum",
    "errno",
    "fnmatch",
    "functools",
    "gettext",
    "itertools",
    "keyword",
    "locale",
    "operator",
    "reprlib",
    "struct",
    "types",
    "warnings",
    "zlib",
    "bz2",
    "lzma",
    "threading",
    "weakref",
}

#: what must never be on a start path, whatever a list says
HEAVY = {
    "asyncio",
    "concurrent",
    "dataclasses",
    "email",
    "http",
    "inspect",
    "logging",
    "msgspec",
    "pathlib",
    "psutil",
    "rich",
    "ruamel",
    "sqlite3",
    "ssl",
    "starlette",
    "subprocess",
    "typing",
    "urllib",
    "uvicorn",
    "websockets",
}


def imported(command: list[str], env: dict[str, str]) -> set[str]:
    """Full names of the modules that a Python command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    rest = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert done.returncode == 0, "\n".join(rest)
    return {line.rpartition("|")[2].strip() for line in lines[1:]}


@pytest.fixture(scope="module")
def before(session_home: Home) -> set[str]:
    """What the interpreter of this environment imports for nothing at all."""
    return imported(["-c", "pass"], session_home.env)


def public(names: set[str]) -> set[str]:
    """Of the standard library, whole modules: no ``_json``, no ``re._parser``."""
    return {
        name
        for name in names
        if name in sys.stdlib_module_names and (name == "__future__" or name[0] != "_")
    }


def check(names: set[str], ours: set[str], stdlib: set[str]) -> None:
    assert not {name for name in names if name.partition(".")[0] in HEAVY}
    assert {name for name in names if name.partition(".")[0] == "handoff"} <= ours
    tops = {name.partition(".")[0] for name in names}
    assert {top for top in tops if top not in sys.stdlib_module_names} <= {"handoff"}
    assert public(names) - DEEP <= stdlib


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["help"], []])
def test_the_root_imports_next_to_nothing(words, before, session_home):
    names = imported([*HANDOFF, *words], session_home.env) - before
    check(names, ROOT, ROOT_STDLIB)
    assert not public(names) - ROOT_STDLIB


@contextmanager
def answering(path: Path) -> Iterator[None]:
    """An HTTP server on a Unix socket that answers everything with an empty list."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            with conn:
                data = b""
                while b"\r\n\r\n" not in data:
                    piece = conn.recv(65536)
                    if not piece:
                        break
                    data += piece
                conn.sendall(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    b"content-length: 2\r\nconnection: close\r\n\r\n[]"
                )

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def test_a_command_that_asks_agentd_imports_little(before, isolated_home):
    assert "tasks" in table()
    folder = isolated_home.path / ".handoff"
    folder.mkdir()
    path = folder / "a.sock"
    (folder / "agentd.json").write_text(
        json.dumps(
            {
                "socket": str(path),
                "url": "http://127.0.0.1:1",
                "pid": 1,
                "instance": "00000000-0000-4000-8000-000000000000",
                "data_dir": str(folder),
                "version": "0.1.0",
            }
        )
    )
    with answering(path):
        names = imported([*HANDOFF, "tasks", "--json"], isolated_home.env) - before
    check(names, COMMAND, COMMAND_STDLIB)
    assert len(names) < 90


def test_the_check_notices_a_heavy_import(before, session_home):
    names = imported(["-c", "import handoff.cli.main, http.client"], session_home.env) - before
    with pytest.raises(AssertionError):
        check(names, ROOT, ROOT_STDLIB)
