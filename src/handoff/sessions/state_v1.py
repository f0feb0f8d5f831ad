"""States of version 1 in the form of version 2: the same texts, each as what was reported.

Version 1 is a goal and lists of texts. Nothing of it is lost: where version 2 allows fewer
items or shorter ones, texts share an item or go on in the next.
"""

from __future__ import annotations

from collections.abc import Mapping

from handoff.sessions.fields import Notes, read, shown_key
from handoff.sessions.schema import (
    GOAL_HARD,
    LISTS,
    PROGRESS,
    SCHEMA,
    SCHEMA_V1,
    TEXT_HARD,
    V1_LIMIT,
    V1_LISTS,
    Field,
)

__all__ = ["is_v1", "packed", "split", "upgrade"]

_TEXT = Field("text", need=True)
_NO_REASON = "no reason was recorded (from a state of version 1)"
#: from where each list of version 1 goes
_WHERE = {
    "constraints_preferences": "constraints",
    "key_decisions": "decisions",
    "rejected_attempts": "rejected",
    "verification": "verification",
    "critical_context": "context",
    "uncertainties": "uncertainties",
    "next_steps": "next_steps",
}


def is_v1(value: Mapping[str, object]) -> bool:
    """Whether a state says that it is of version 1 (or of one that never was)."""
    version = value.get("schema_version")
    return "schema" not in value and isinstance(version, int) and not isinstance(version, bool)


def upgrade(value: Mapping[str, object], notes: Notes) -> dict[str, object] | None:
    """The state in the fields of version 2; None if it has faults, which are in ``notes``."""
    if value["schema_version"] != SCHEMA_V1:
        notes.fault("/schema_version", "schema", "the only version with this field is 1")
    lists = {name: _texts(value, name, f"/{name}", notes) for name in V1_LISTS}
    progress = value.get("progress")
    if not isinstance(progress, dict):
        notes.fault("/progress", "missing", "must be an object of " + ", ".join(PROGRESS))
        progress = {key: [] for key in PROGRESS}
    parts = {name: _texts(progress, name, f"/progress/{name}", notes) for name in PROGRESS}
    for number, key in enumerate(progress):
        if key not in PROGRESS:
            where = f"/progress/{shown_key(key, number)}"
            notes.fault(where, "unknown_key", "no such field")
    for number, key in enumerate(value):
        if key not in {"schema_version", "goal", "progress", *V1_LISTS}:
            notes.fault(f"/{shown_key(key, number)}", "unknown_key", "no such field in version 1")
    goal = read(value.get("goal"), _TEXT, "/goal", notes)
    if notes.faults:
        return None
    notes.change("", "from_v1", "read from version 1: every claim counts as reported")
    return _v2(str(goal), lists, parts)


def _texts(owner: Mapping[str, object], name: str, pointer: str, notes: Notes) -> list[str]:
    given = owner.get(name)
    if not isinstance(given, list):
        notes.fault(pointer, "missing" if given is None else "type", "must be a list of texts")
        return []
    if len(given) > V1_LIMIT:
        notes.fault(pointer, "too_many", f"{len(given)} entries; the limit is {V1_LIMIT}")
        return []
    return [
        str(read(text, _TEXT, f"{pointer}/{number}", notes)) for number, text in enumerate(given)
    ]


def packed(texts: list[str], limit: int) -> list[str]:
    """As many texts as ``limit`` at most, where that can be: neighbours share an item."""
    if len(texts) <= limit:
        return texts
    made: list[str] = []
    spare = len(texts) - limit
    for text in texts:
        joined = f"{made[-1]}\n{text}" if made else text
        if made and spare > 0 and len(joined.encode()) <= TEXT_HARD:
            made[-1] = joined
            spare -= 1
        else:
            made.append(text)
    return made


def split(text: str, limit: int = TEXT_HARD) -> list[str]:
    """A text in pieces of ``limit`` bytes at most, between lines where it can be."""
    pieces: list[str] = []
    rest = text.encode()
    while len(rest) > limit:
        head = rest[:limit].decode("utf-8", "ignore")
        line = head.rfind("\n")
        if line > 0 and head[:line].strip():
            head = head[: line + 1]
        pieces.append(head.removesuffix("\n"))
        rest = rest[len(head.encode()) :]
    return [piece for piece in (*pieces, rest.decode()) if piece.strip()]


def _v2(
    goal: str, lists: Mapping[str, list[str]], progress: Mapping[str, list[str]]
) -> dict[str, object]:
    def numbered(path: str, given: list[str], **more: object) -> list[dict[str, object]]:
        letter, texts = LISTS[path].letter, packed(given, LISTS[path].limit)
        main = "claim" if path == "verification" else "text"
        return [{"id": f"{letter}{n}", main: t, **more} for n, t in enumerate(texts, 1)]

    found = {_WHERE[name]: texts for name, texts in lists.items()}
    context = found["context"]
    whole: list[dict[str, object]] = []
    if len(goal.encode("utf-8")) > GOAL_HARD:
        # Version 1 allows a goal of 8 KiB: it stays whole, beside its beginning.
        whole = [{"id": "goal", "text": goal}]
        context = packed(context, LISTS["context"].limit - 1)
        goal = goal.encode("utf-8")[: GOAL_HARD - 64].decode("utf-8", "ignore") + "… (all: goal)"
    return {
        "schema": SCHEMA,
        "goal": {"text": goal},
        "constraints": numbered("constraints", found["constraints"], kind="must"),
        "progress": {name: numbered(f"progress/{name}", progress[name]) for name in PROGRESS},
        "decisions": numbered("decisions", found["decisions"]),
        "rejected": numbered("rejected", found["rejected"], why=_NO_REASON),
        # Version 1 has no command, result or commit: a report, not a result.
        "verification": numbered("verification", found["verification"], result="not_run"),
        "context": whole + numbered("context", context),
        "uncertainties": numbered("uncertainties", found["uncertainties"]),
        "next_steps": numbered("next_steps", found["next_steps"]),
    }
