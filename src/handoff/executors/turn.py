"""What an executor is told about a turn, and how the end of one is read.

An executor ends its turn with one line of JSON: a question, or a claim of what it did. A
claim is only what the executor says; :mod:`handoff.workspace` compares it with git.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: lines and characters of prose that may follow a trailer
_AFTER_LINES = 2
_AFTER_CHARS = 300
#: characters of prose that may follow a trailer in its own line
_SAME_LINE = 80

#: what stands between or behind trailers without meaning anything
_FILLER = re.compile(r"(?:[\s`~*_>|.\"')\]}]|^[ \t]*(?:`{3,}|~{3,})\w*[ \t]*$)*", re.MULTILINE)
_PLACEHOLDER = re.compile(r"^[\s.…<>\[\]_-]*$|^<[^>]*>$|^\.\.\.|^…")


@dataclass(frozen=True)
class Ask:
    """The executor left a question."""

    question: str


@dataclass(frozen=True)
class Claim:
    """What the executor says it did. Any of the three may be ""."""

    branch: str = ""
    commit: str = ""
    summary: str = ""


Trailer = Ask | Claim


def instructions(task_id: str, branch: str, can_ask: bool = True) -> str:
    """The standing instructions of a task.

    ``can_ask`` False: the executor has no way to ask inside its turn (no question tool
    that reaches the coordinator), so that it has to leave its questions at the end.
    """
    tool = (
        "If you have a tool for asking the user, use it. Otherwise write"
        if can_ask
        else "To ask, write"
    )
    return f"""# Handoff task {task_id}

You work on a plan that a coordinator gave you, in a git worktree of your own. The coordinator
sees what you do, decides on permissions and reviews the result. Three rules:

1. Questions. When something needs the coordinator's decision, do not assume: ask. {tool} one line
   {{"ask": "<your question>"}}
   as the last line, and end your turn. The answer is your next message.
2. Git. Stay on the branch `{branch}`. Do not switch, create, rename or delete branches, do not push,
   and do not change any git configuration.
3. The end. When the work is done, stage and commit it on that branch. The last line of your turn is
   {{"branch": "{branch}", "commit": "<full hash of your last commit>", "summary": "<at most 50 characters>"}}
   in one line, as plain text. It is checked against git. If nothing was to be committed (you were
   asked to look, not to change), leave "commit" empty. If you could not finish, commit what is
   worth keeping and say what is missing before that line.
"""


def compose_prompt(plan: str, prompt: str, instructions: str = "") -> str:
    """The first message of a task: instructions, plan, additional prompt; empty ones are
    left out.

    Give ``instructions`` only where neither :attr:`Launch.instructed` nor
    :attr:`Session.instructions` carries them: a driver that gets them in its session puts
    them before its first prompt by itself.
    """
    parts = [instructions.strip("\n"), plan.strip("\n")]
    if prompt.strip():
        heading = "## Additional instructions\n\n" if plan.strip() else ""
        parts.append(heading + prompt.strip("\n"))
    return "\n\n".join(part for part in parts if part.strip())


def guidance(reasons: str | Iterable[str]) -> str:
    """The message that tells an executor why it was denied something."""
    told = [reasons] if isinstance(reasons, str) else list(reasons)
    told = [reason.strip() for reason in told if reason.strip()]
    lines = "\n".join(f"- {reason}" for reason in told)
    what = "a permission" if len(told) == 1 else f"{len(told)} permissions"
    return (
        f"The coordinator denied {what} that you asked for and says:\n\n{lines}\n\n"
        "Take this as an instruction: find another way, do not ask for the same again, and go on "
        "with the plan."
    )


def parse_trailer(text: str) -> Trailer | None:
    """What the end of a turn says, None if it says neither.

    The trailer is a JSON object at the end of the text: in the last line, with prose
    before it and a little behind it, in a code fence, or over several lines; up to two
    lines of prose may follow one that has lines of its own. Of several in a row the last
    one counts, but a question wins over a claim. An object that is quoted further up, or
    that still holds the dots of an example, is none.
    """
    found: Trailer | None = None
    after = len(text)
    for start, end, value in reversed(_objects(text)):
        trailer = _trailer(value)
        if trailer is None or not _ends(text, start, end, after, first=found is None):
            break
        if isinstance(trailer, Ask):
            return trailer
        found = found or trailer
        after = start
    return found


def _objects(text: str) -> list[tuple[int, int, dict[str, Any]]]:
    """The JSON objects in a text that are not inside another one, in order."""
    decoder = json.JSONDecoder()
    found = []
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        found.append((at, end, value))
        at = text.find("{", end)
    return found


def _ends(text: str, start: int, end: int, after: int, *, first: bool) -> bool:
    """Whether nothing of meaning stands between an object's end and ``after``."""
    behind = text[end:after]
    filler = _FILLER.match(behind)
    rest = behind[filler.end() :] if filler else behind
    if not rest.strip():
        return True
    if not first:
        return False
    same_line, _, below = behind.partition("\n")
    if not below.strip("`~ \t\n"):
        return len(same_line) <= _SAME_LINE
    own_line = not text[text.rfind("\n", 0, start) + 1 : start].strip("`~*> \t")
    lines = [line for line in below.splitlines() if line.strip("`~ \t")]
    short = len(lines) <= _AFTER_LINES and len(below) <= _AFTER_CHARS
    return own_line and not same_line.strip("`~* \t") and short


def _trailer(value: dict[str, Any]) -> Trailer | None:
    ask = value.get("ask")
    if isinstance(ask, str) and not _PLACEHOLDER.match(ask):
        return Ask(ask.strip())
    parts = [_word(value.get(key)) for key in ("branch", "commit", "summary")]
    if not any(parts) or any(part and _PLACEHOLDER.match(part) for part in parts):
        return None
    return Claim(*parts)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return ""
    return str(value).strip() if isinstance(value, (str, int)) else ""
