"""The command line in this process, against a peer whose answers a test writes."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.client.served import Served

from handoff.cli.main import main

TASK = "1f3a0000-0000-4000-8000-000000000000"
OTHER = "2b4c0000-0000-4000-8000-000000000000"


class Stream(io.TextIOWrapper):
    """Standard output or input that may say that it is a terminal."""

    def __init__(self, data: bytes = b"", *, tty: bool = False) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", write_through=True)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@dataclass
class Called:
    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.raw.splitlines()]


class Caller:
    """``call("wait", TASK)``: the exit code and what was printed."""

    def __init__(self, served: Served, patch: pytest.MonkeyPatch) -> None:
        self.served = served
        self.patch = patch
        patch.setenv("HANDOFF_CONFIG", served.config)
        patch.setenv("COLUMNS", "80")
        patch.delenv("NO_COLOR", raising=False)

    def __call__(self, *argv: str, tty: bool = False, stdin: bytes = b"") -> Called:
        out, err = Stream(tty=tty), Stream()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            patch.setattr(sys, "stdin", Stream(stdin, tty=tty and not stdin))
            code = main(list(argv))
        return Called(code, out.buffer.getvalue(), err.buffer.getvalue().decode())


def task(**more: Any) -> dict[str, Any]:
    return {
        "id": TASK,
        "ref": TASK[:8],
        "state": "running",
        "name": "count words",
        "executor": "fake",
        "branch": "handoff/count",
        "base_commit": "a" * 40,
        "base_name": "main",
        "work_dir": "/w/1f3a",
        "workspace_kind": "managed",
        "created_at": "2026-11-30T10:00:00.000Z",
        "notes": [],
        "watchers": 1,
        "open_tickets": 0,
        "queue_position": None,
        "activity": {"phase": "model", "idle_s": 1.0, "detail": ""},
        "done_note": "",
        "last_seq": 0,
        **more,
    }


def ticket(ref: str = "g1", **more: Any) -> dict[str, Any]:
    return {
        "id": f"{TASK}:{ref}",
        "ref": ref,
        "task_id": TASK,
        "kind": "gate" if ref.startswith("g") else "ask",
        "state": "open",
        "request": {"kind": "gate", "permission": "rm -rf build", "tool": "bash", "paths": []},
        "answer": None,
        "created_at": "2026-11-30T10:00:00.000Z",
        **more,
    }


def event(seq: int, kind: str = "progress", **payload: Any) -> dict[str, Any]:
    waking = ("permission_request", "question", "completed", "turn_failed", "failed", "archived")
    return {
        "seq": seq,
        "task_id": TASK,
        "type": kind,
        "actor": "executor",
        "wakes": kind in waking,
        "created_at": "2026-11-30T10:00:00.000Z",
        "payload": payload,
    }


def asked(seq: int, ref: str = "g1", **more: Any) -> dict[str, Any]:
    text = more.pop("permission", "rm -rf build")
    return event(
        seq,
        "permission_request",
        ticket_id=f"{TASK}:{ref}",
        ref=ref,
        permission=text,
        tool="bash",
        **more,
    )
