"""Answers of nodes as the tools' JSON. What went wrong never looks like what went well."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from handoff.errors import HandoffError
from handoff.nodes.exits import exit_code

__all__ = [
    "bytes_of",
    "executed",
    "failure",
    "in_hermes",
    "node_row",
    "refusal",
    "returncode",
    "shown",
    "text",
    "time_text",
]

#: of a call that nothing came of: no command's own
NOT_RUN = 126


def text(value: Mapping[str, Any]) -> str:
    """The answer as the host takes it."""
    made = json.dumps(value, ensure_ascii=False)
    try:
        made.encode()
    except UnicodeEncodeError:  # half of a character: escaped, the host can send it
        return json.dumps(value)
    return made


def bytes_of(value: Any) -> bytes:
    """Bytes that travelled as JSON: a text, or an object with ``b64``."""
    if isinstance(value, Mapping):
        return b64decode(str(value["b64"]))
    return str(value).encode("utf-8", "surrogateescape")


def shown(data: bytes) -> tuple[str, str]:
    """Bytes as text and its encoding: ``utf-8``, or ``base64`` where they are none."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return b64encode(data).decode(), "base64"


#: what a remedy of the command line's is called here, in this order
_HERE = (
    (r"handoff nodes exec \S+ --queue-until \S+ …", "wait_ms"),
    (r"^open it anew: handoff nodes shells \S+ open \S+$", "ask again with open_shell true"),
    (r"choose another with --host and --port", "hermes node restart --port PORT"),
    (r"handoff nodes (serve|status|stop)\b", r"hermes node restart"),
    (r"handoff nodes\b", "hermes node"),
    (r"^tail (\S+)$", r"look at \1"),
)


def in_hermes(remedy: str) -> str:
    """A remedy with the words that count in Hermes."""
    for pattern, said in _HERE:
        remedy = re.sub(pattern, said, remedy)
    return remedy


def refusal(error: HandoffError, *, retry_safe: bool = False) -> dict[str, Any]:
    """An error of ours."""
    value: dict[str, Any] = {
        "error": error.cause,
        "code": error.code,
        "remedy": error.remedy,
        "details": dict(error.details),
    }
    return failure({**value, "retry_safe": retry_safe})


def failure(value: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    """A call's failure. ``key``: of the call, if asking again is about that very call."""
    code = str(value.get("code") or "failed")
    made: dict[str, Any] = {
        "error": str(value.get("error") or code),
        "code": code,
        "retry_safe": value.get("retry_safe") is True,
    }
    if value.get("remedy"):
        made["remedy"] = in_hermes(str(value["remedy"]))
    details = json.loads(json.dumps(value.get("details") or {}, default=str))
    if code == "outcome_unknown":
        made["status"] = "unknown_outcome"
        made["key"] = key or details.get("key", "")
    if details:
        made["details"] = details
    return made


def executed(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    """How a command ended."""
    status = str(value.get("status") or "ok")
    made: dict[str, Any] = {}
    cut = _stream(value.get("stdout") or {}, "output", made)
    cut = _stream(value.get("stderr") or {}, "stderr", made) or cut
    if not made["stderr"]:
        del made["stderr"]
    made["returncode"] = returncode(value)
    made["status"] = status
    made["truncated"] = cut
    made["duration_ms"] = value.get("duration_ms", 0)
    if value.get("signal"):
        made["signal"] = value["signal"]
    if value.get("cwd"):
        made["cwd"], _ = shown(bytes_of(value["cwd"]))
    if value.get("note"):
        made["note"] = value["note"]
    if value.get("killed"):
        made["killed"] = value["killed"]
    if value.get("still_holding"):
        made["still_holding"] = True
    if status not in {"ok", "error"}:
        made |= {"error": _ENDS.get(status, status), "code": _CODES.get(status, status)}
        made |= {"retry_safe": False, "key": key}
    return made


_ENDS = {
    "timeout": "the time limit was over: its processes were ended; the output is what came so far",
    "cancelled": "it was cancelled, and its processes ended",
    "unknown_outcome": "nobody can say what became of it: it may have run. Look before you repeat",
    "refused": "it was not started",
}
_CODES = {"timeout": "timed_out", "unknown_outcome": "outcome_unknown"}


def returncode(value: Mapping[str, Any]) -> int | None:
    """The number that stands for a command's end; None where nobody knows it."""
    code = exit_code(value)
    if code is None and value.get("status") != "unknown_outcome":
        return NOT_RUN
    return code


def _stream(told: Mapping[str, Any], name: str, made: dict[str, Any]) -> bool:
    """Put one stream into the answer; whether some of it is left out."""
    head, tail = bytes_of(told.get("head", "")), bytes_of(told.get("tail", ""))
    left_out = int(told.get("bytes_total", len(head) + len(tail))) - len(head) - len(tail)
    if left_out <= 0:
        made[name], encoding = shown(head + tail)
        if encoding != "utf-8":
            made["encoding" if name == "output" else "stderr_encoding"] = encoding
        return False
    try:
        made[name] = f"{head.decode()}\n[{left_out} bytes are left out here]\n{tail.decode()}"
    except UnicodeDecodeError:
        made["encoding" if name == "output" else "stderr_encoding"] = "base64"
        made[name] = b64encode(head).decode()
        made[f"{name}_tail"] = b64encode(tail).decode()
    made[f"{name}_bytes"] = int(told["bytes_total"])
    if told.get("spill"):
        made[f"{name}_id"] = told["spill"]
    return True


def time_text(ms: int) -> str | None:
    """Milliseconds since 1970 as ISO 8601; None for 0."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat() if ms else None


def node_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A node for node_list: the old keys first."""
    link = record.get("link") or {}
    facts = record.get("facts") or {}
    seen = time_text(int(record.get("last_ms") or 0))
    made: dict[str, Any] = {
        "name": record["name"],
        "connected_at": time_text(int(link.get("connected_ms") or 0)),
        "last_heartbeat": seen,
        "session_id": link.get("session_id"),
        "remote_addr": link.get("remote"),
        "state": record["state"],
        "last_seen": seen,
        "tags": list(record.get("tags") or ()),
        "kind": record.get("kind", ""),
    }
    machine = {k: facts[k] for k in ("os", "arch", "hostname", "user", "home") if facts.get(k)}
    if machine:
        made["machine"] = machine
    if link:
        made["under_way"] = link.get("under_way", 0)
    return made
