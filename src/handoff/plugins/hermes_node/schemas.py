"""What the model is told of the tools."""

from __future__ import annotations

from typing import Any

__all__ = ["SCHEMAS"]

_TARGET = {"type": "string", "description": "The node's name; node_list has them."}
_PATH = {"type": "string", "description": "Path on the node; ~ is its user's home."}
_KEY = {
    "type": "string",
    "description": "Only to ask again about a call whose answer was outcome_unknown: its 'key'. "
    "Nothing is done twice.",
}
_WAIT = {
    "type": "integer",
    "minimum": 0,
    "description": "Wait up to so long for a node that is not connected (default 0: answer at "
    "once).",
}


def _limit(about: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "description": about}


def _tool(name: str, about: str, required: list[str], more: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": more, "required": required}
    return {"name": name, "description": about, "parameters": parameters}


_ERRORS = (
    " A failure is {error, code, retry_safe, remedy}: only with retry_safe true may the same be "
    "asked again as it is."
)

#: the tools, in the form that the host takes
SCHEMAS: tuple[dict[str, Any], ...] = (
    _tool(
        "node_exec",
        "Run a shell command on a remote node. The answer has its output, stderr apart, and its "
        "true exit code as returncode (124: time limit, 128+N: signal N). Each call is a process "
        "of its own in the home folder unless cwd is given; what it leaves running is ended with "
        "it: use background for that." + _ERRORS,
        ["target", "command"],
        {
            "target": _TARGET,
            "command": {"type": "string", "description": "A line for the node's shell."},
            "cwd": {"type": "string", "description": "Folder to start in; ~ is understood."},
            "env": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Variables for it.",
            },
            "timeout_ms": _limit(
                "Time limit, after which all its processes are ended (default 60000)."
            ),
            "stdin": {"type": "string", "description": "Its input. Without it: none."},
            "background": {
                "type": "boolean",
                "description": "Start it and answer with its job at once; node_job tells more.",
            },
            "shell": {
                "type": "string",
                "description": "Only where folder, variables and functions are to be kept from "
                "call to call: the name of a shell session. A command that does not end in time "
                "ends it. exit closes it.",
            },
            "open_shell": {
                "type": "boolean",
                "description": "Open that shell session first, with cwd and env, unless it is "
                "open; shell_opened in the answer says whether it was opened. Without it a "
                "session that is lost is an error.",
            },
            "max_output_bytes": _limit(
                "Keep so much of each output, half from its start, half from its end "
                "(default 65536, at most 262144)."
            ),
            "wait_ms": _WAIT,
            "key": _KEY,
        },
    ),
    _tool(
        "node_read",
        "Read a file on a remote node. content is text, or base64 where its bytes are no text: "
        "encoding says which. size_bytes is the whole file's; truncated says that there is more: "
        "go on at next_offset." + _ERRORS,
        ["target", "path"],
        {
            "target": _TARGET,
            "path": _PATH,
            "offset": {"type": "integer", "minimum": 0, "description": "First byte (default 0)."},
            "max_bytes": _limit("Bytes to read (default 262144, at most 10485760)."),
            "encoding": {"type": "string", "enum": ["auto", "base64"]},
            "timeout_ms": _limit("How long to wait for the answer (default 30000)."),
            "wait_ms": _WAIT,
        },
    ),
    _tool(
        "node_write",
        "Write a file on a remote node: overwrite (the default) replaces it in one step, create "
        "fails if it exists, append adds." + _ERRORS,
        ["target", "path", "content"],
        {
            "target": _TARGET,
            "path": _PATH,
            "content": {"type": "string", "description": "All of it; may be empty."},
            "mode": {"type": "string", "enum": ["create", "overwrite", "append"]},
            "encoding": {
                "type": "string",
                "enum": ["utf-8", "base64"],
                "description": "What content is (default utf-8).",
            },
            "if_match": {
                "type": "string",
                "description": "The etag that the file must still have, as node_read gave it.",
            },
            "permissions": {"type": "string", "description": "As octal, 0644."},
            "parents": {"type": "boolean", "description": "Make the folders above it."},
            "timeout_ms": _limit("How long to wait for the answer (default 60000)."),
            "wait_ms": _WAIT,
            "key": _KEY,
        },
    ),
    _tool(
        "node_list",
        "The remote nodes: name, state (connected, disconnected, never_seen, revoked), machine, "
        "tags, when last seen.",
        [],
        {},
    ),
    _tool(
        "node_edit",
        "Replace a text in a file on a remote node. It must occur exactly count times (default "
        "1; -1: any number), or nothing is changed." + _ERRORS,
        ["target", "path", "old", "new"],
        {
            "target": _TARGET,
            "path": _PATH,
            "old": {"type": "string"},
            "new": {"type": "string"},
            "count": {"type": "integer", "minimum": -1},
            "if_match": {"type": "string"},
            "timeout_ms": _limit("How long to wait for the answer (default 60000)."),
            "key": _KEY,
        },
    ),
    _tool(
        "node_job",
        "Background commands of a node (node_exec with background), and kept output. list; tail "
        "(stdout or stderr from offset, negative: from the end); wait (up to timeout_ms); kill; "
        "forget; output (bytes of output that node_exec left out, by its output_id)." + _ERRORS,
        ["target", "action"],
        {
            "target": _TARGET,
            "action": {
                "type": "string",
                "enum": ["list", "tail", "wait", "kill", "forget", "output"],
            },
            "job": {"type": "string", "description": "The job; for output: the output_id."},
            "stream": {"type": "string", "enum": ["stdout", "stderr"]},
            "offset": {"type": "integer"},
            "max_bytes": _limit("For tail and output (default 65536, at most 262144)."),
            "timeout_ms": _limit("For wait (default 30000)."),
        },
    ),
)
