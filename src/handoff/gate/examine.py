"""A permission request, looked at: where it would write, what it would change, what it
would use, and whether a rule allows it.

The first version knows one rule: a write or an edit passes if every path that it names
lies inside the task's worktree, is not protected, and has no problem
(:mod:`handoff.gate.paths`). Everything else asks the coordinator. Nothing is ever denied
here, and nothing that is unclear passes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from itertools import pairwise

import msgspec

from handoff.executors.contract import PermissionAsked
from handoff.gate.contract import Examined, Target, Verdict
from handoff.gate.edits import difference
from handoff.gate.paths import Root, absolute, resolve
from handoff.gate.uses import Uses, pin, uses
from handoff.gate.words import names

_WRITES = frozenset({"write", "edit"})
_REPEATABLE = frozenset({"write", "edit", "delete", "move", "read", "search", "execute", "fetch"})
#: keys of a tool's input whose text is a path
_PATH_KEYS = names(
    "path paths file files file_path filepath filePath file_paths filePaths filename fileName "
    "abs_path absolute_path absolutePath notebook_path notebookPath target_file targetFile "
    "relative_path relative_workspace_path destination dest dst new_path newPath old_path oldPath "
    "move_path movePath source_path src target uri directory dir folder output_path "
    "TargetFile AbsolutePath"
)
_COMMAND_KEYS = names("command cmd script shell argv commands")
_ACTION_KEYS = names("kind type action operation op")
_MAX_NODES = 20_000


def examine(
    asked: PermissionAsked,
    *,
    work_dir: str,
    grants: Callable[[str], str | None] | None = None,
) -> Examined:
    """Look at a request and rule on it.

    Args:
        asked: the request as the driver gave it.
        work_dir: the task's worktree, absolute.
        grants: given a fingerprint, the id of the ticket of this task by which a person
            granted the same, or None. Asked only if the request is reusable and no rule
            allows it.

    Reads files that the request names (never waits on one). Raises nothing for anything
    that a request can hold.
    """
    cwd = os.path.join(work_dir, asked.cwd) if asked.cwd else work_dir
    root = Root(work_dir)
    hidden = _look_into(asked.raw)
    targets = _targets(asked, hidden, cwd, root)
    edited = difference(asked.edits, {target.given: target for target in targets})
    verdict = _by_rule(asked, targets, hidden)
    if verdict.decision == "allow":
        used = Uses()
        repeatable, doubts = True, []
    elif asked.command is not None:
        used = uses(asked.command, cwd)
        doubts = used.doubts
        targets += [resolve(path, cwd, root) for path in dict.fromkeys(used.writes)]
        repeatable = asked.kind in _REPEATABLE and not doubts
    else:
        used = pin([absolute(t.given, cwd) for t in targets if not t.problem])
        doubts = [*used.doubts, *edited.unknown, *(t.problem for t in targets if t.problem)]
        repeatable = asked.kind in _REPEATABLE and not doubts
        if asked.kind not in _REPEATABLE:
            doubts.append(f"what the tool '{asked.tool}' does can't be told")
    files = tuple(used.files.values())
    fingerprint = _fingerprint(asked, hidden, cwd, targets, files)
    if verdict.decision == "ask" and repeatable and grants is not None:
        ticket = grants(fingerprint)
        if ticket is not None:
            why = f"granted before in this task, by ticket {ticket}: same words, same content"
            verdict = Verdict(decision="allow", source="grant", why=why)
    return Examined(
        text=_text(asked, targets, edited.diff, doubts, cwd),
        command=asked.command,
        targets=tuple(targets),
        diff=edited.diff,
        files=files,
        fingerprint=fingerprint,
        reusable=repeatable,
        verdict=verdict,
    )


# -- what the raw input holds -------------------------------------------------------------


class _Hidden(msgspec.Struct):
    """What the tool's own input says beside the fields of the request. ``trouble``: why
    the request can't pass by a rule; ``value``: the input, decoded."""

    paths: list[str] = []
    trouble: str = ""
    value: object = None


def _look_into(raw: str) -> _Hidden:
    """Find paths, commands and wider demands in a tool's input."""
    found = _Hidden()
    if not raw.strip():
        return found
    try:
        found.value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        found.trouble = "the tool's input is no JSON that can be read"
        return found
    todo: list[tuple[str, object]] = [("", found.value)]
    seen = 0
    while todo:
        seen += 1
        if seen > _MAX_NODES:
            found.trouble = "the tool's input has too many parts to be looked through"
            break
        key, value = todo.pop()
        if isinstance(value, dict):
            todo.extend(value.items())
        elif isinstance(value, list):
            todo.extend((key, item) for item in value)
        elif value:
            _one(found, key, value)
    return found


def _one(found: _Hidden, key: str, value: object) -> None:
    if key in _PATH_KEYS and isinstance(value, str):
        if value not in found.paths:
            found.paths.append(value)
    elif key in _COMMAND_KEYS:
        found.trouble = found.trouble or "a write whose input also holds a command"
    elif key in {"grantRoot", "grant_root"}:
        found.trouble = found.trouble or f"asks for more than this write: all of {value}"
    elif key in _ACTION_KEYS and value in {"delete", "remove", "deleted", "unlink"}:
        found.trouble = found.trouble or "deletes a file"


# -- targets and rule ---------------------------------------------------------------------


def _targets(asked: PermissionAsked, hidden: _Hidden, cwd: str, root: Root) -> list[Target]:
    """Every path that the request names, in order, once each."""
    given = dict.fromkeys(asked.paths)
    given.update(dict.fromkeys(edit.path for edit in asked.edits))
    targets = [resolve(path, cwd, root) for path in given]
    if asked.command is None and asked.kind in _WRITES:
        known = {target.resolved for target in targets}
        for path in hidden.paths:
            target = resolve(path, cwd, root)
            if path not in given and (target.problem or target.resolved not in known):
                targets.append(target)
    return targets


def _by_rule(asked: PermissionAsked, targets: list[Target], hidden: _Hidden) -> Verdict:
    why = _objection(asked, targets, hidden)
    if why:
        return Verdict(decision="ask", source="policy", why=why)
    first = ", ".join(target.given for target in targets[:3])
    more = f" and {len(targets) - 3} more" if len(targets) > 3 else ""
    return Verdict(decision="allow", source="policy", why=f"write in the worktree: {first}{more}")


def _objection(asked: PermissionAsked, targets: list[Target], hidden: _Hidden) -> str:
    """Why no rule allows it, or ""."""
    if asked.kind not in _WRITES:
        return f"no rule for '{asked.kind}'"
    if asked.command is not None:
        return "a write that is a command"
    if not targets:
        return "a write that does not say where"
    for target in targets:
        if target.problem:
            return f"{target.given[:200]!r}: {target.problem}"
        if not target.inside:
            return f"outside the worktree: {target.resolved}"
        if target.protected:
            return f"protected, it configures executors or runs by itself: {target.given}"
    return hidden.trouble


# -- fingerprint and text -----------------------------------------------------------------


def _fingerprint(
    asked: PermissionAsked,
    hidden: _Hidden,
    cwd: str,
    targets: list[Target],
    files: tuple[object, ...],
) -> str:
    raw = hidden.value if hidden.value is not None else asked.raw
    if asked.command is not None and isinstance(raw, dict):
        # The model's words about a command differ each time and are not run.
        raw = {key: value for key, value in raw.items() if key != "description"}
    parts = (
        "handoff.gate.1",
        asked.tool,
        asked.kind,
        cwd,
        asked.command,
        raw,
        asked.edits,
        targets,
        [(mark.path, mark.digest) for mark in files],  # type: ignore[attr-defined]
    )
    return hashlib.sha256(
        json.dumps(msgspec.to_builtins(parts), sort_keys=True).encode("ascii")
    ).hexdigest()


def _text(
    asked: PermissionAsked, targets: list[Target], diff: str, doubts: list[str], cwd: str
) -> str:
    """The ticket's text: the most telling first, every byte of the request in it."""
    parts: list[str] = []
    shown: set[str] = set()

    def add(label: str, content: str | None, *, block: bool = False) -> None:
        if content and content not in shown:
            shown.add(content)
            parts.append(
                f"{label}:\n{content}" if block or "\n" in content else f"{label}: {content}"
            )

    if asked.command is not None:
        add("command", asked.command, block=True)
    add("wants", asked.text)
    add("title", asked.title)
    parts.append(f"tool: {asked.tool} ({asked.kind})")
    parts.append(f"folder: {cwd}")
    add("reason given", asked.reason)
    parts.extend(_target_line(target) for target in targets)
    add("difference", diff, block=True)
    if doubts:
        parts.append("a grant serves once, because:\n" + "\n".join(f"- {why}" for why in doubts))
    add("input", _rest_of_input(asked.raw, shown), block=True)
    text = parts[0]
    for before, part in pairwise(parts):
        # A block stands apart; single lines stand together.
        text += ("\n\n" if "\n" in before or "\n" in part else "\n") + part
    # Half a surrogate pair (a JSON input may hold one) can't be stored as it is.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _rest_of_input(raw: str, shown: set[str]) -> str:
    """The tool's input without the texts that stand above already, word for word: said
    twice, they would only push apart what has to be read. Anything unusual: all of it."""
    try:
        pairs = json.loads(raw, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return raw
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        return raw
    rest = dict(pairs)
    above = [key for key, value in pairs if isinstance(value, str) and value in shown]
    if len(rest) < len(pairs) or not above:
        return raw
    for value in rest.values():
        if isinstance(value, list):
            return raw  # parts of parts: shown as they came
    for key in above:
        rest[key] = "(as above)"
    return json.dumps(rest, ensure_ascii=False)


def _target_line(target: Target) -> str:
    place = "inside the worktree" if target.inside else "OUTSIDE the worktree"
    notes = [place if target.resolved else "leads nowhere"]
    if target.protected:
        notes.append("protected")
    if target.problem:
        notes.append(target.problem)
    arrow = "" if target.resolved in {"", target.given} else f" -> {target.resolved}"
    return f"path: {target.given}{arrow} ({', '.join(notes)})"
