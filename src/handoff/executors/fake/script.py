"""Scripts of the fake executor: where they stand in a prompt, and what they hold.

A script is a list of steps, or ``turns``: a list of such lists, one for each prompt. It
stands in the prompt as a fenced block with the info string ``handoff-script`` (YAML or
JSON), or as lines ``@@do STEP {json}``.
"""

from __future__ import annotations

import json
import re
from typing import Any

#: one step: its name and its arguments
Step = tuple[str, dict[str, Any]]

#: the argument that a step takes when it is given a plain value instead of a mapping
MAIN_ARGUMENT = {
    "say": "text",
    "think": "text",
    "write": "path",
    "edit": "path",
    "delete": "path",
    "run": "command",
    "commit": "message",
    "git": "args",
    "ask": "question",
    "trailer": "claim",
    "error": "message",
    "stop": "reason",
    "sleep": "seconds",
    "wait_file": "path",
    "big": "mib",
    "noise": "lines",
    "raw": "line",
    "leak": "how",
    "crash": "code",
    "hang": "deaf",
    "auth": "message",
    "env": "names",
    "plan": "steps",
    "usage": "input",
    "retry": "reason",
    "subagent": "steps",
    "parallel": "steps",
    "malformed": "how",
    "ignore_term": "on",
    "net": "url",
    "preset": "name",
}

_FENCE = re.compile(
    r"^(?P<fence>`{3,}|~{3,})[ \t]*handoff-script[ \t]*\n(?P<body>.*?)^(?P=fence)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_DO = re.compile(r"^@@do[ \t]+(?P<step>[a-z_]+)[ \t]*(?P<rest>.*)$", re.MULTILINE)

#: a command whose end is far from its harmless beginning
_TAIL = "echo building" + " " * 3000 + "\n" * 400 + "touch deceived-by-tail"

_PRESETS: dict[str, list[Step]] = {
    "tail": [("run", {"command": _TAIL})],
    "small": [
        ("write", {"path": "hello.txt", "text": "hello\n"}),
        ("run", {"command": "cat hello.txt"}),
        ("commit", {"message": "Say hello"}),
    ],
    "question": [("ask", {"question": "Which one?", "options": ["left", "right"]})],
}

#: what is played for a prompt that brings no script when nothing is left to play
DEFAULT: list[Step] = [
    ("say", {"text": "There is no script in this prompt. I will note it down and commit.\n"}),
    ("note", {}),
    ("commit", {"message": "Note the prompt", "path": None}),
]


class ScriptError(Exception):
    """The script can't be played; the text says why."""


def find(prompt: str) -> list[list[Step]] | None:
    """The turns that a prompt brings with it, or None if it brings no script.

    Raises:
        ScriptError: there is one, and it can't be read.
    """
    fenced = list(_FENCE.finditer(prompt))
    if fenced:
        return parse("".join(match["body"] for match in fenced))
    lines = list(_DO.finditer(prompt))
    if lines:
        return [_expand([_do_line(match) for match in lines])]
    return None


def parse(text: str) -> list[list[Step]]:
    """The turns of a script given as YAML or JSON.

    Raises:
        ScriptError: it is neither, or not a script.
    """
    value = _decode(text)
    if isinstance(value, dict) and set(value) == {"turns"}:
        turns = value["turns"]
        if not isinstance(turns, list) or not all(isinstance(t, list) for t in turns):
            raise ScriptError("'turns' has to be a list of lists of steps")
        return [_expand([_step(item) for item in turn]) for turn in turns]
    if isinstance(value, list):
        return [_expand([_step(item) for item in value])]
    raise ScriptError("a script is a list of steps, or a mapping with 'turns'")


def steps_from(value: Any) -> list[Step]:
    """Steps inside a step (``subagent``, ``parallel``)."""
    if not isinstance(value, list):
        raise ScriptError("'steps' has to be a list")
    return _expand([_step(item) for item in value])


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        pass
    # The library costs 20 ms, so that only scripts in YAML pay for it.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ScriptError(f"the script is not YAML: {error}") from error


def _step(item: Any) -> Step:
    if isinstance(item, str):
        name, value = item, None
    elif isinstance(item, dict) and len(item) == 1:
        name, value = next(iter(item.items()))
    elif isinstance(item, (list, tuple)) and len(item) == 2:
        name, value = item
    else:
        raise ScriptError(f"not a step: {item!r:.120}")
    return _named(str(name), value)


def _named(name: str, value: Any) -> Step:
    if name not in MAIN_ARGUMENT and name != "note":
        known = ", ".join(sorted(MAIN_ARGUMENT))
        raise ScriptError(f"there is no step '{name}' (there are: {known})")
    if value is None:
        return name, {}
    if isinstance(value, dict):
        return name, {str(key): entry for key, entry in value.items()}
    return name, {MAIN_ARGUMENT[name]: value}


def _do_line(match: re.Match[str]) -> Step:
    rest = match["rest"].strip()
    if not rest:
        return _named(match["step"], None)
    try:
        value, end = json.JSONDecoder().raw_decode(rest)
    except ValueError as error:
        raise ScriptError(f"'@@do {match['step']}' needs JSON, not: {rest:.120}") from error
    if rest[end:].strip(" \t\"'"):
        raise ScriptError(f"after '@@do {match['step']}' stands more than JSON: {rest:.120}")
    return _named(match["step"], value)


def _expand(steps: list[Step]) -> list[Step]:
    out: list[Step] = []
    for name, args in steps:
        if name == "preset":
            wanted = str(args.get("name"))
            if wanted not in _PRESETS:
                raise ScriptError(f"there is no preset '{wanted}'")
            out += _PRESETS[wanted]
        else:
            out.append((name, args))
    return out
