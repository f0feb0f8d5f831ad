"""The script of a turn, and the tool calls that it asks for.

A script is a JSON list behind the word ``@@model`` in the text that the executor is
given, so that it needs no set-up, works for any number of conversations at once, and
comes back with a resumed one. Which step is due is told by the conversation itself: each
assistant message that calls tools has used up one :class:`Message`.

Steps, one JSON object each::

    {"say": TEXT, "pause": S?}     text; a pause in seconds after each word
    {"think": TEXT}                reasoning, where the API has a place for it
    {"write": {"path", "content"}}     the executor's own tool for that, found among the
    {"edit": {"path", "old", "new"}}   tools that the request offers, its arguments fitted
    {"read": {"path"}}                 to the tool's JSON schema
    {"run": COMMAND}
    {"ask": {"question", "options", "header"?, "multiple"?}}
    {"tool": NAME, "args": {...}}  that tool with those arguments
    [STEP, ...]                    several tool calls in one message
    {"stop": REASON}               end the message with that stop reason
    {"error": STATUS, "times": N?, "message": M?, "retry_after": S?}
    {"stall": S, "times": N?}      begin the stream, then nothing for S seconds, then cut
    {"hang": S, "times": N?}       no byte for S seconds, then cut
    {"cut": true, "times": N?}     cut the connection in the middle of the stream
    {"garbage": true, "times": N?} a stream whose data is no JSON

``times`` is how often a fault happens (1; -1 = always). In texts, ``{cwd}`` stands for
the working directory that the executor named, ``{last}`` for the last line of the last
tool result, ``{sha}`` for the last commit id in any tool result.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

MARK = "@@model"
FAULTS = ("error", "stall", "hang", "cut", "garbage")

#: what an action may be called by an executor, letters and digits only, best first
NAMES = {
    "write": ("write", "writefile", "createfile", "filewrite", "searchreplace"),
    "edit": ("edit", "editfile", "replace", "searchreplace", "strreplace"),
    "read": ("read", "readfile", "view"),
    "run": (
        "bash",
        "shell",
        "execcommand",
        "runshellcommand",
        "runterminalcommand",
        "runterminalcmd",
        "terminal",
        "executecommand",
    ),
    "ask": ("askuserquestion", "question", "requestuserinput", "askuser", "askquestion"),
}

#: what an argument may be called
WORDS = {
    "path": ("filepath", "path", "filename", "targetfile", "absolutepath", "file"),
    "content": ("content", "contents", "filetext", "text", "filecontent"),
    "old": ("oldstring", "oldstr", "oldtext", "old"),
    "new": ("newstring", "newstr", "newtext", "new"),
    "command": ("command", "cmd", "script"),
    "question": ("question", "prompt", "text"),
    "header": ("header", "title"),
    "options": ("options", "choices"),
    "multiple": ("multiselect", "multiple", "allowmultiple"),
    "label": ("label", "value", "id", "name"),
}

#: how executors tell the model where they work, the surest first
CWDS = tuple(
    re.compile(words + r"[^/\n]{0,30}?[\s:`'\"(>](/[^\s\"'<>`,;)*]+)", re.IGNORECASE)
    for words in (
        r"working (?:in the )?director(?:y|ies)",
        r"workspace (?:path|root|director(?:y|ies))",
        r"(?:current director|cwd|project director)(?:y)?",
    )
)
SHA = re.compile(r"\b[0-9a-f]{40}\b")


@dataclass
class Tool:
    """One tool that a request offers."""

    name: str
    schema: dict[str, Any]


@dataclass
class Turn:
    """One entry of a conversation. ``role``: user, assistant, calls or result."""

    role: str
    text: str


@dataclass
class Conversation:
    """A request, whatever API it came by."""

    model: str
    stream: bool
    system: str
    turns: list[Turn]
    tools: list[Tool]


@dataclass
class Call:
    """One tool call to make."""

    name: str
    args: dict[str, Any]


@dataclass
class Message:
    """What the model does at once: faults first, then words, then tool calls."""

    faults: list[dict[str, Any]] = field(default_factory=list)
    words: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    stop: str | None = None

    @property
    def empty(self) -> bool:
        return not (self.faults or self.words or self.tools or self.stop)


def plain(name: str) -> str:
    """A name as it is compared: letters and digits only."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find(text: str) -> list[Any] | None:
    """The last script in text."""
    found = None
    at = text.find(MARK)
    while at >= 0:
        rest = text[at + len(MARK) :].lstrip()
        if rest.startswith("["):
            try:
                found = json.JSONDecoder().raw_decode(rest)[0]
            except ValueError:
                pass
        at = text.find(MARK, at + 1)
    return found


def messages(script: list[Any]) -> list[Message]:
    """The script cut into messages: each ends with its tool calls."""
    done, now = [], Message()
    for step in script:
        if isinstance(step, list) or "tool" in step or any(key in step for key in NAMES):
            now.tools = step if isinstance(step, list) else [step]
            done.append(now)
            now = Message()
        elif any(key in step for key in FAULTS):
            now.faults.append(step)
        elif "stop" in step:
            now.stop = step["stop"]
        else:
            now.words.append(step)
    if not now.empty or not done:
        done.append(now)
    return done


@dataclass
class Due:
    """What a conversation has to get next. ``step``: how many messages came before."""

    message: Message
    step: int
    script: list[Any] | None


def due(talk: Conversation, fallback: list[Any]) -> Due:
    """Find the script that the conversation follows, and how far it has come."""
    script, start = None, 0
    for index, turn in enumerate(talk.turns):
        if turn.role != "user":
            continue
        found = find(turn.text)
        if found is not None:
            script, start = found, index
        elif _is_prompt(talk.turns, index):
            script, start = None, index
    steps = messages(script if script is not None else fallback)
    done = sum(1 for turn in talk.turns[start + 1 :] if turn.role == "calls")
    after = Message(words=[{"say": "stub: the script is over"}])
    return Due(steps[done] if done < len(steps) else after, done, script)


def _is_prompt(turns: list[Turn], index: int) -> bool:
    """Whether a user turn is a person's: executors put reminders of their own there."""
    before = turns[index - 1].role if index else "user"
    return before not in ("result", "calls") and not turns[index].text.lstrip().startswith("<")


def fill(text: str, talk: Conversation) -> str:
    """Text with its placeholders replaced."""
    results = [turn.text for turn in talk.turns if turn.role == "result"]
    lines = [line for line in (results[-1] if results else "").splitlines() if line.strip()]
    shas = SHA.findall("\n".join(results))
    text = text.replace("{cwd}", working_directory(talk) or ".")
    text = text.replace("{last}", lines[-1].strip() if lines else "")
    return text.replace("{sha}", shas[-1] if shas else "")


def working_directory(talk: Conversation) -> str | None:
    """The directory that the executor says it works in."""
    told = [talk.system, *(t.text.split(MARK)[0] for t in talk.turns if t.role == "user")]
    for pattern in CWDS:
        for text in told:
            found = pattern.search(text)
            if found:
                return found.group(1).rstrip(".")
    return None


def call(step: dict[str, Any], talk: Conversation) -> Call | None:
    """The tool call for a step, or None if no tool of the request can do it."""
    offered = {plain(tool.name): tool for tool in talk.tools}
    if "tool" in step:
        return Call(step["tool"], json.loads(fill(json.dumps(step.get("args", {})), talk)))
    action = next(key for key in NAMES if key in step)
    tool = next((offered[name] for name in NAMES[action] if name in offered), None)
    if tool is None:
        return None
    given = step[action] if isinstance(step[action], dict) else {"command": step[action]}
    values = {k: fill(v, talk) if isinstance(v, str) else v for k, v in given.items()}
    if "path" in values and not values["path"].startswith("/"):
        values["path"] = f"{working_directory(talk) or '.'}/{values['path']}"
    if action == "write" and not _has(tool.schema, "content"):
        values = {"path": values["path"], "old": "", "new": values["content"]}
    return Call(tool.name, arguments(tool.schema, values, tool.schema))


def _has(schema: dict[str, Any], word: str) -> bool:
    return any(plain(name) in WORDS[word] for name in schema.get("properties", {}))


def arguments(schema: dict[str, Any], values: dict[str, Any], root: dict[str, Any]) -> Any:
    """Values as an object that fits the schema; required ones that nobody gave are made up."""
    made: dict[str, Any] = {}
    required = schema.get("required") or []
    for name, rule in (schema.get("properties") or {}).items():
        rule = _resolve(rule, root)
        word = next((w for w in values if plain(name) in WORDS.get(w, (w,))), None)
        if word == "options" and isinstance(values[word], list):
            made[name] = _options(rule, values[word], root)
        elif word is not None:
            wants_list = rule.get("type") == "array" and isinstance(values[word], str)
            made[name] = ["bash", "-c", values[word]] if wants_list else values[word]
        elif plain(name) == "questions":
            made[name] = [arguments(_resolve(rule.get("items", {}), root), values, root)]
        elif name in required:
            made[name] = _filler(rule)
    return made


def _options(rule: dict[str, Any], options: list[str], root: dict[str, Any]) -> list[Any]:
    item = _resolve(rule.get("items", {}), root)
    if item.get("type") == "string":
        return list(options)
    return [
        arguments(item, {"label": option, "description": f"take {option}"}, root)
        for option in options
    ]


def _resolve(rule: Any, root: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(rule, dict):
        return {}
    if "$ref" in rule:
        name = rule["$ref"].rsplit("/", 1)[-1]
        return dict((root.get("$defs") or root.get("definitions") or {}).get(name) or {})
    return rule


def _filler(rule: dict[str, Any]) -> Any:
    if rule.get("enum"):
        return rule["enum"][0]
    kind = rule.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    return {"boolean": False, "number": 0, "integer": 0, "array": [], "object": {}}.get(
        kind or "string", "stub"
    )
