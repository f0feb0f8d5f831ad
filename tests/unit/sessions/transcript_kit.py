"""Sessions of other agents as they keep them, in the shapes that their programs were seen to
write (Claude Code 2.1, Codex 0.17x, opencode 1.18)."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

CLAUDE = "26858ec0-1a3a-424f-b1c3-4403017d634b"
CODEX = "01a22f82-8d9a-71a1-b87d-e1555cf625c6"
OPENCODE = "ses_dd07d4764ffesptmnvbpYr55A6"
RULE = "Never touch the public API."
AT = "2026-12-01T02:50:13.903Z"
#: of :data:`AT`
AT_MS = 1796093413903


def write_lines(path: Path, values: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [value if isinstance(value, str) else json.dumps(value) + "\n" for value in values]
    path.write_text("".join(lines))
    return path


def claude_entry(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message["model"] = "stub-1"
    return {
        "parentUuid": None,
        "isSidechain": False,
        "type": kind,
        "message": message,
        "uuid": f"abd385d0-a69a-4242-8a77-{number:012}",
        "timestamp": AT,
        "cwd": "/srv/calc",
        "sessionId": CLAUDE,
        "version": "2.1.332",
        **more,
    }


def claude(home: Path, *more: Any, session: str = CLAUDE, folder: str = "-work-calc") -> Path:
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py\nb.py"}
    return write_lines(
        home / ".claude" / "projects" / folder / f"{session}.jsonl",
        [
            {"type": "queue-operation", "operation": "enqueue", "timestamp": AT, "content": RULE},
            claude_entry(1, "user", RULE),
            {"type": "attachment", "uuid": "x", "attachment": {"type": "date"}, "timestamp": AT},
            claude_entry(2, "assistant", [{"type": "text", "text": "I look"}, call]),
            claude_entry(3, "user", [result]),
            claude_entry(4, "assistant", [{"type": "thinking", "thinking": "h"}]),
            claude_entry(5, "assistant", [{"type": "text", "text": "done it"}]),
            *more,
        ],
    )


def codex_line(number: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": AT, "ordinal": number, "type": kind, "payload": payload}


def codex_said(number: int, role: str, text: str, **more: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return codex_line(number, "response_item", type="message", id=f"msg_{number}", role=role,
                      content=content, **more)  # fmt: skip


def codex(home: Path, *more: Any, thread: str = CODEX, day: str = "2026/12/01") -> Path:
    return write_lines(
        home / ".codex" / "sessions" / day / f"rollout-2026-12-01T02-50-14-{thread}.jsonl",
        [
            codex_line(0, "session_meta", id=thread, timestamp=AT, cwd="/srv/calc",
                       source="cli", model_provider="stub"),
            codex_said(1, "developer", "be helpful"),
            codex_said(2, "user", "<environment_context>\n <cwd>/srv/calc</cwd>"),
            codex_said(3, "user", "# AGENTS.md instructions for /srv/calc\n\nnever"),
            codex_line(4, "turn_context", model="stub-1"),
            codex_said(5, "user", RULE),
            codex_line(6, "event_msg", type="user_message", message=RULE),
            codex_line(7, "response_item", type="function_call", name="shell", call_id="c1",
                       arguments="{}"),
            codex_line(8, "response_item", type="function_call_output", call_id="c1",
                       output="a.py\nb.py"),
            codex_line(9, "response_item", type="reasoning", summary=[]),
            codex_said(10, "assistant", "done it"),
            *more,
        ],
    )  # fmt: skip


def opencode(home: Path, *, wal: bool = False) -> Path:
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as db:
        if wal:
            db.execute("PRAGMA journal_mode = WAL")
        db.executescript(
            "CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text NOT NULL,"
            " title text NOT NULL, time_created integer, time_updated integer);"
            "CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer,"
            " time_updated integer, data text);"
            "CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text,"
            " time_created integer, data text);"
        )
        db.execute(
            "INSERT INTO session VALUES (?, NULL, '/srv/calc', 'A title', ?, ?)",
            (OPENCODE, AT_MS, AT_MS + 50),
        )
        answer = {"role": "assistant", "modelID": "stub-1", "providerID": "stub"}
        for key, at, data in [("m1", 0, {"role": "user"}), ("m2", 1, answer), ("m3", 2, answer)]:
            values = (key, OPENCODE, AT_MS + at, AT_MS, json.dumps(data))
            db.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", values)
        state = {"status": "completed", "input": {}, "output": "a.py\nb.py"}
        for key, message, part in [
            ("p1", "m1", {"type": "text", "text": RULE}),
            ("p2", "m1", {"type": "text", "text": "reminder", "synthetic": True}),
            ("p3", "m2", {"type": "step-start"}),
            ("p4", "m2", {"type": "tool", "tool": "bash", "callID": "c", "state": state}),
            ("p5", "m3", {"type": "text", "text": "done it"}),
        ]:
            values = (key, message, OPENCODE, AT_MS, json.dumps(part))
            db.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?)", values)
        db.commit()
    return path
