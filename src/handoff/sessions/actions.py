"""The actions of ``hermes_handoff`` as data: who may call them, with which arguments.

One table gives the check of a call, the tool's JSON schema and the reference. Every call is
checked as a whole: all faults at once, each with a JSON pointer; unknown keys are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from handoff.errors import UsageError
from handoff.sessions.text import no_name

__all__ = ["ACTIONS", "MODEL_ACTIONS", "TOOL", "TOOL_SCHEMA", "Action", "Arg", "check"]

TOOL = "hermes_handoff"
#: faults that one refusal lists
FAULTS = 20
#: the second form names a bundle of version 1 that was imported
_REF = re.compile(r"handoff://(?:[a-z2-7]{32}/[a-z2-7]{32}|[0-9a-f-]{36}/[0-9a-f-]{36})\Z")
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,63}\Z")


class Arg(NamedTuple):
    """One argument. ``kind``: text, path, ref, token, integer, flag, texts, state.
    ``limit``: bytes of a text, entries of a list, or the largest integer."""

    kind: str
    about: str
    need: bool = False
    choices: tuple[str, ...] = ()
    limit: int = 1024
    least: int = 0


class Action(NamedTuple):
    """One action. ``who``: ``model`` (anyone), ``keeper`` (the command line, or a person:
    it keeps house), ``person`` (only a person, on a surface that no model can call).
    ``writes``: it changes the store, the journal or a file."""

    about: str
    args: Mapping[str, Arg]
    who: str = "model"
    writes: bool = False


_WORKSPACE = Arg("path", "absolute path of the project's folder", need=True, limit=4096)
_PLACE = Arg("path", "absolute path of the project's folder", limit=4096)
_REF_ARG = Arg("ref", "the record, exactly as it was printed: handoff://…/…", need=True)
_SOME_REF = Arg("ref", "the record, exactly as it was printed: handoff://…/…")
_ATTEMPT = Arg("token", "the attempt's id, stable over retries (8 to 64 characters)", need=True)
_SOME_ATTEMPT = Arg("token", "the attempt's id")
_MODEL = Arg("text", "model; only together with provider", limit=256)
_PROVIDER = Arg("text", "named provider of the profile; only together with model", limit=256)
_LIMIT = Arg("integer", "records on a page", limit=100, least=1)
_CURSOR = Arg("text", "the cursor of the page before", limit=2048)

ACTIONS: Mapping[str, Action] = {
    "evidence": Action(
        "Gather what a state can be held against: rules of the user, last messages, git.",
        {
            "workspace": _WORKSPACE,
            "paths": Arg("texts", "files of the workspace to look at", limit=512),
        },
    ),
    "summarize": Action(
        "Let another model write the state. Costs money, needs the owner's consent; stores nothing.",
        {
            "workspace": _WORKSPACE,
            "model": _MODEL._replace(need=True),
            "provider": _PROVIDER._replace(need=True),
            "accept_cost": Arg("flag", "true: this one call may cost money", need=True),
        },
    ),
    "create": Action(
        "Publish an immutable handoff record from a state of schema handoff-state/2.",
        {
            "state": Arg("state", "the state, a JSON object", need=True),
            "request_id": Arg("token", "stable over retries of the same intent", need=True),
            "workspace": _WORKSPACE,
            "name": Arg("text", "name for display: letters, digits, '_', '-', '.'", limit=128),
            "attribution": Arg("text", "the token that summarize gave", limit=1024),
            "parent_ref": _SOME_REF,
            "dry_run": Arg("flag", "show what would be published, store nothing"),
            "strict": Arg("flag", "refuse where the lint would warn"),
            "allow_stale": Arg("flag", "also if the session has done nothing since its handoff"),
        },
        writes=True,
    ),
    "prepare_open": Action(
        "Freeze one attempt to open one new session from a record; gives the command.",
        {
            "ref": _REF_ARG,
            "workspace": _WORKSPACE,
            "attempt_id": _ATTEMPT,
            "model": _MODEL,
            "provider": _PROVIDER,
            "surface": Arg("text", "where it is opened", choices=("cli", "desktop", "any")),
            "host": Arg(
                "text",
                "the program of the new session",
                choices=("hermes", "claude", "codex", "opencode"),
            ),
            "locale": Arg("text", "language of the opening prompt", choices=("en", "it")),
            "allow_parallel": Arg("flag", "also if another attempt of the record is under way"),
            "supersedes": _SOME_ATTEMPT,
        },
        writes=True,
    ),
    "opening_status": Action(
        "What is known of an attempt, of all attempts of a record, or of all attempts.",
        {"attempt_id": _SOME_ATTEMPT, "ref": _SOME_REF},
    ),
    "read": Action(
        "Read a record, page by page, with what has changed since.",
        {
            "ref": _REF_ARG,
            "workspace": _PLACE,
            "attempt_id": _SOME_ATTEMPT,
            "page": Arg("integer", "from 1", limit=10_000, least=1),
        },
        writes=True,
    ),
    "ack": Action(
        "Acknowledge that all was read: echo all constraint ids and discrepancy codes.",
        {
            "attempt_id": _ATTEMPT,
            "ref": _REF_ARG,
            "digest": Arg("text", "document_sha256 of the record", need=True, limit=64),
            "constraint_ids": Arg("texts", "ids of all constraints", need=True, limit=128),
            "discrepancy_codes": Arg("texts", "codes of all discrepancies", need=True, limit=64),
            "first_step": Arg("text", "the one step proposed", need=True, limit=64 * 1024),
            "workspace": _PLACE,
        },
        writes=True,
    ),
    "list": Action(
        "List records, newest first.",
        {
            "workspace": _PLACE,
            "scope": Arg("text", "this workspace's project, or all", choices=("project", "all")),
            "session": Arg("text", "of this source session only", limit=256),
            "limit": _LIMIT,
            "cursor": _CURSOR,
        },
    ),
    "search": Action(
        "Find records that hold a text.",
        {
            "query": Arg("text", "the text, whatever its case", need=True, limit=512),
            "workspace": _PLACE,
            "scope": Arg("text", "this workspace's project, or all", choices=("project", "all")),
            "limit": _LIMIT,
            "cursor": _CURSOR,
        },
    ),
    "show": Action(
        "A record's manifest, state and document, without reading it for an attempt.",
        {
            "ref": _REF_ARG,
            "workspace": _PLACE,
            "budget": Arg("integer", "bytes of the document", limit=2**21, least=256),
        },
    ),
    "validate": Action("Integrity of a record, and what could be better in it.", {"ref": _REF_ARG}),
    "log": Action("A record's ancestors, children and attempts.", {"ref": _REF_ARG}),
    "verify": Action("Check one record, or all, and the journal.", {"ref": _SOME_REF}),
    "confirm": Action(
        "Confirm the new session.", {"attempt_id": _ATTEMPT}, who="person", writes=True
    ),
    "recover": Action(
        "Show everything that is known of an attempt, and the choices.",
        {"attempt_id": _ATTEMPT},
        who="keeper",
    ),
    "adopt": Action(
        "Name the session that an uncertain start has made.",
        {"attempt_id": _ATTEMPT, "session": Arg("text", "its id", need=True, limit=256)},
        who="person",
        writes=True,
    ),
    "abandon": Action(
        "Give an attempt up. Nothing is stopped by it.",
        {
            "attempt_id": _ATTEMPT,
            "reason": Arg("text", "why", need=True),
            "owner_is_gone": Arg("flag", "your word that its opener on another machine is gone"),
        },
        who="person",
        writes=True,
    ),
    "open_begin": Action(
        "Desktop: take the right to open and write the intent down.",
        {
            "attempt_id": _ATTEMPT,
            "ref": _REF_ARG,
            "workspace": _WORKSPACE,
            "model": _MODEL,
            "provider": _PROVIDER,
        },
        who="person",
        writes=True,
    ),
    "open_created": Action(
        "Desktop: the host has made this session.",
        {"attempt_id": _ATTEMPT, "session": Arg("text", "its stored id", need=True, limit=256)},
        who="person",
        writes=True,
    ),
    "open_submitted": Action(
        "Desktop: the opening prompt was submitted.",
        {"attempt_id": _ATTEMPT},
        who="person",
        writes=True,
    ),
    "open_failed": Action(
        "Desktop: the host has proved that it made no session.",
        {"attempt_id": _ATTEMPT, "why": Arg("text", "what it said", need=True)},
        who="person",
        writes=True,
    ),
    "bind": Action(
        "Say that a folder belongs to a project.",
        {
            "workspace": _WORKSPACE,
            "project_id": Arg("text", "the first part of a ref", need=True, limit=32),
            "replace": Arg("flag", "although it belongs to another one"),
        },
        who="keeper",
        writes=True,
    ),
    "export": Action(
        "Write a record into one file for another machine; says what leaves.",
        {
            "ref": _REF_ARG,
            "path": Arg("path", "absolute path of the new file; without: only the report"),
        },
        who="keeper",
        writes=True,
    ),
    "import": Action(
        "Take in a file that export has written, or a state, document or bundle of version 1.",
        {
            "path": Arg("path", "absolute path of the file or folder", need=True, limit=4096),
            "workspace": _PLACE,
        },
        who="keeper",
        writes=True,
    ),
    "prune": Action(
        "Remove old records; ids and digests stay.",
        {
            "older_than": Arg("integer", "seconds", need=True, limit=10**10),
            "keep_last": Arg("integer", "of each project", limit=10**6),
            "dry_run": Arg("flag", "only say which"),
        },
        who="keeper",
        writes=True,
    ),
    "purge": Action("Remove one record.", {"ref": _REF_ARG}, who="keeper", writes=True),
    "sweep": Action(
        "Draft records of sessions that nobody handed off, without a model.",
        {
            "idle": Arg("integer", "seconds that a session has rested", limit=10**10, least=60),
            "dry_run": Arg("flag", "only say which"),
        },
        who="keeper",
        writes=True,
    ),
}
#: what a model may call, and what the tool's schema therefore names
MODEL_ACTIONS = tuple(name for name, one in ACTIONS.items() if one.who == "model")


def check(action: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, checked; nothing is filled in and nothing read from disk.

    Raises:
        UsageError: there is no such action, or faults: ``details["faults"]`` lists them
            (at most :data:`FAULTS`), each with ``pointer``, ``code`` (``unknown_key``,
            ``missing``, ``wrong_type``, ``wrong_value``, ``too_large``) and ``message``.
    """
    known = ACTIONS.get(action) if isinstance(action, str) else None
    if known is None:
        shown = action[:64] if isinstance(action, str) else type(action).__name__
        raise UsageError(f"there is no action {shown!r}", remedy="one of " + ", ".join(ACTIONS))
    if not isinstance(arguments, Mapping):
        raise _faulty(action, [_fault("", "wrong_type", "the arguments are one JSON object")])
    faults = []
    for name in arguments:
        if name not in known.args:
            shown = name[:64] if isinstance(name, str) else type(name).__name__
            faults.append(_fault(f"/{shown}", "unknown_key", f"{action} takes no '{shown}'"))
    found: dict[str, Any] = {}
    for name, arg in known.args.items():
        value = arguments.get(name)
        if value is None or (value == "" and not arg.need):
            if arg.need:
                faults.append(_fault(f"/{name}", "missing", f"{action} needs {name}: {arg.about}"))
            continue
        faults += _wrong(f"/{name}", arg, value)
        found[name] = value
    faults += _together(action, found)
    if faults:
        raise _faulty(action, faults)
    return found


def _together(action: str, found: Mapping[str, Any]) -> list[dict[str, str]]:
    """Rules over more than one argument."""
    args = ACTIONS[action].args
    if "model" in args and not args["model"].need and ("model" in found) != ("provider" in found):
        lone = "provider" if "model" in found else "model"
        return [_fault(f"/{lone}", "missing", "model and provider go together: both or neither")]
    for name in ("model", "provider"):  # kept, shown, and arguments of a program: names only
        if isinstance(found.get(name), str) and (why := no_name(found[name])):
            return [_fault(f"/{name}", "wrong_value", f"that is no name: {why}")]
    if action == "opening_status" and "attempt_id" in found and "ref" in found:
        return [_fault("/ref", "wrong_value", "give attempt_id or ref, not both")]
    return []


def _fault(pointer: str, code: str, message: str) -> dict[str, str]:
    return {"pointer": pointer, "code": code, "message": message}


def _faulty(action: str, faults: list[dict[str, str]]) -> UsageError:
    first = faults[0]
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    return UsageError(
        f"{first['pointer'] or '/'}: {first['message']}{more}",
        remedy=f"call {action} with the keys that its schema names",
        faults=faults[:FAULTS],
        total=len(faults),
    )


def _wrong(pointer: str, arg: Arg, value: Any) -> list[dict[str, str]]:
    """What is wrong with one value, if anything is."""
    if arg.kind == "state":
        fit = isinstance(value, Mapping | str)  # as text: read as strictly as a file
        return [] if fit else [_type(pointer, "a JSON object")]
    if arg.kind == "flag":
        return [] if isinstance(value, bool) else [_type(pointer, "true or false")]
    if arg.kind == "integer":
        if isinstance(value, bool) or not isinstance(value, int):
            return [_type(pointer, "a whole number")]
        if not arg.least <= value <= arg.limit:
            return [_fault(pointer, "wrong_value", f"from {arg.least} to {arg.limit}")]
        return []
    if arg.kind == "texts":
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            return [_type(pointer, "a list of texts")]
        if len(value) > arg.limit:
            return [_fault(pointer, "too_large", f"{len(value)} entries; {arg.limit} are taken")]
        return [
            _fault(f"{pointer}/{at}", "too_large", "an entry has up to 4096 bytes")
            for at, one in enumerate(value)
            if _size(one) > 4096
        ]
    if not isinstance(value, str):
        return [_type(pointer, "a text")]
    return _wrong_text(pointer, arg, value)


def _wrong_text(pointer: str, arg: Arg, value: str) -> list[dict[str, str]]:
    if _size(value) > arg.limit:
        return [_fault(pointer, "too_large", f"{_size(value)} bytes; {arg.limit} are taken")]
    if "\0" in value or (arg.kind != "path" and not _is_unicode(value)):
        return [_fault(pointer, "wrong_value", "it holds a NUL, or what is no Unicode text")]
    if arg.choices and value not in arg.choices:
        return [_fault(pointer, "wrong_value", "one of " + ", ".join(arg.choices))]
    if arg.kind == "path" and ("\n" in value or not os.path.isabs(value)):
        return [_fault(pointer, "wrong_value", "an absolute path of one line")]
    if arg.kind == "ref" and _REF.match(value) is None:
        return [_fault(pointer, "wrong_value", "handoff://<32 characters>/<32 characters>, whole")]
    if arg.kind == "token" and _TOKEN.match(value) is None:
        rule = "8 to 64 letters, digits, '.', '_' or '-', a letter or digit first"
        return [_fault(pointer, "wrong_value", rule)]
    if arg.need and not value.strip():
        return [_fault(pointer, "wrong_value", "it is empty")]
    return []


def _type(pointer: str, wanted: str) -> dict[str, str]:
    return _fault(pointer, "wrong_type", f"{wanted} is expected")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


_JSON_TYPES = {"integer": "integer", "flag": "boolean", "texts": "array", "state": "object"}


def _property(arg: Arg) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": _JSON_TYPES.get(arg.kind, "string"),
        "description": arg.about,
    }
    if arg.choices:
        made["enum"] = list(arg.choices)
    if arg.kind == "texts":
        made |= {"items": {"type": "string"}, "maxItems": arg.limit}
    if arg.kind == "integer":
        made |= {"minimum": arg.least, "maximum": arg.limit}
    return made


def _schema() -> dict[str, Any]:
    """One object for all actions. Some hosts refuse ``oneOf``, so that which keys an action
    takes stands in its description, and the check is made at the call."""
    properties: dict[str, Any] = {}
    lines = []
    for name in MODEL_ACTIONS:
        args = ACTIONS[name].args
        for key, arg in args.items():
            properties.setdefault(key, _property(arg))
        need = [key for key, arg in args.items() if arg.need]
        more = [key for key, arg in args.items() if not arg.need]
        keys = ", ".join(need + [f"{key}?" for key in more])
        lines.append(f"{name}({keys}): {ACTIONS[name].about}")
    action = {
        "type": "string",
        "enum": list(MODEL_ACTIONS),
        "description": "What to do, with the keys that it takes:\n" + "\n".join(lines),
    }
    return {
        "type": "object",
        "properties": {"action": action, **properties},
        "required": ["action"],
        "additionalProperties": False,
    }


#: the JSON schema of the tool's arguments
TOOL_SCHEMA: dict[str, Any] = _schema()
