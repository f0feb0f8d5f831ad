"""Agents that are no agents, for tests of ``handoff session``: programs named ``claude``,
``codex``, ``opencode`` and ``hermes`` that note how they were started and then behave."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sqlite3
import sys
from typing import Any

from tests.support.console import HANDOFF

PROGRAM = r"""#!@PYTHON@
import json, os, re, signal, subprocess, sys
HERE, KIND, HANDOFF = "@HERE@", "@KIND@", "@HANDOFF@"
if "handoff-facts" in sys.argv:
    with open(os.path.join(HERE, "facts.json")) as file:
        facts = json.load(file)
    facts["profile"] = sys.argv[sys.argv.index("--profile") + 1]
    print("some plugin says something first")
    print(json.dumps(facts))
    sys.exit(0)
note = {"kind": KIND, "argv": sys.argv, "env": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid()}
with open(os.path.join(HERE, "launches.log"), "a") as file:
    file.write(json.dumps(note) + "\n")
behave, _, number = open(os.path.join(HERE, "behave")).read().strip().partition(" ")
if behave == "hang":
    print("READY", flush=True)
    sys.stdin.readline()
elif behave == "wreck":
    os.system("stty raw -echo")
    os.write(1, b"\033[?1049h\033[?25l\033[?1000h\033[?2004h")
    if int(number):
        os.kill(os.getpid(), int(number))
elif behave == "read":
    prompt = next(word for word in sys.argv if '"action": "read"' in word)
    call = json.loads(re.search(r"\{.*?\}", prompt)[0])
    command = re.search(r"`(handoff session --profile \S+) read", prompt)[1].split()[1:]
    env = dict(os.environ)
    if number:
        env["CODEX_THREAD_ID"] = number
    def ask(*words):
        done = subprocess.run([HANDOFF, *command, *words], env=env, capture_output=True, text=True)
        with open(os.path.join(HERE, "calls.log"), "a") as file:
            file.write(json.dumps({"words": words, "code": done.returncode, "out": done.stdout, "err": done.stderr}) + "\n")
        return json.loads(done.stdout) if done.returncode == 0 else None
    page = 1
    while page:
        found = ask("read", call["ref"], "--workspace", call["workspace"], "--attempt-id", call["attempt_id"], "--page", str(page), "--json")
        page = found and found["next_page"]
    words = [part for one in found["constraint_ids"] for part in ("--constraint", one)]
    words += [part for one in found["required_codes"] for part in ("--code", one)]
    ask("ack", call["ref"], "--attempt-id", call["attempt_id"], "--digest", found["document_sha256"], *words, "--first-step", "run the tests")
    print("READ ALL", flush=True)
    sys.stdin.readline()
sys.exit(int(number) if behave == "exit" else 0)
"""

#: what a plugin in the profile answers when everything is allowed
FACTS: dict[str, Any] = {
    "handoff_facts": 1,
    "version": "0.22.2",
    "verified": True,
    "recipe": "hermes-0.22",
    "tools": {"cli": ["hermes_handoff", "terminal"], "desktop": ["hermes_handoff"]},
    "providers": ["stub"],
    "errors": {},
}


class Agents:
    """A folder for PATH with all of them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for kind in ("claude", "codex", "opencode", "hermes"):
            text = PROGRAM.replace("@PYTHON@", sys.executable).replace("@HERE@", str(folder))
            path = folder / kind
            path.write_text(text.replace("@KIND@", kind).replace("@HANDOFF@", HANDOFF))
            path.chmod(0o755)
        self.behave("end")
        self.facts()

    def behave(self, how: str) -> None:
        """``end``, ``exit N``, ``hang``, ``wreck SIGNAL``, ``read [thread id]``."""
        (self.folder / "behave").write_text(how)

    def facts(self, **other: Any) -> None:
        """What Hermes answers about a profile."""
        (self.folder / "facts.json").write_text(json.dumps({**FACTS, **other}))

    def launches(self) -> list[dict[str, Any]]:
        """How they were started, in order."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.folder / "launches.log").read_text().splitlines()
            return [json.loads(line) for line in lines]
        return []

    def calls(self) -> list[dict[str, Any]]:
        """What they called of ours."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.folder / "calls.log").read_text().splitlines()
            return [json.loads(line) for line in lines]
        return []

    def path(self) -> str:
        """A PATH on which they come first."""
        return f"{self.folder}:{os.path.dirname(HANDOFF)}:/usr/local/bin:/usr/bin:/bin"


def hermes_store(path: pathlib.Path, messages: list[tuple[str, str, str]], cwd: str = "/x") -> None:
    """A session store as Hermes has it: (session, role, text)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, parent_session_id TEXT, model TEXT,"
        " billing_provider TEXT, cwd TEXT, source TEXT, started_at REAL, ended_at REAL,"
        " message_count INTEGER, title TEXT);"
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT,"
        " timestamp REAL, tool_name TEXT, tool_calls TEXT);"
    )
    for number, (session, role, text) in enumerate(messages):
        db.execute(
            "INSERT OR IGNORE INTO sessions VALUES (?, NULL, 'm-1', 'stub', ?, 'cli', 1.7e9,"
            " NULL, 1, NULL)",
            (session, cwd),
        )
        tool = "terminal" if role == "tool" else None
        calls = '[{"name": "write_file"}]' if role == "assistant" else None
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp, tool_name, tool_calls)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (session, role, text, 1.7e9 + number, tool, calls),
        )
    db.commit()
    db.close()
