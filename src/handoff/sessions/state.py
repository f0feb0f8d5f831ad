"""A session's state: checked, in its one normal form, with all of its faults at once.

A state is a JSON object of the format ``handoff-state/2`` (:mod:`handoff.sessions.schema`).
Its normal form is what its digest is made of: texts composed with line feeds, absent lists
as empty ones, absent choices as the weakest one, optional texts that say nothing left out.
``omissions`` alone keeps the difference between absent and empty: an empty list says that
nothing was left out, an absent one says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from handoff.errors import InputTooLarge, StateInvalid
from handoff.sessions import canonical, state_v1
from handoff.sessions.fields import Note, Notes, read_object, shown_key
from handoff.sessions.schema import (
    GOAL,
    LINEAGE,
    LISTS,
    NEEDED,
    PROGRESS,
    SCHEMA,
    STATE_HARD,
    STATE_SOFT,
    TOP,
)

State = dict[str, Any]

#: faults that one error lists; the rest is counted
FAULTS_SHOWN = 100


class Checked(NamedTuple):
    """A state that can be stored. ``state``: its normal form. ``warnings``: what could be
    better. ``changes``: what is not as it was given, beyond line ends and composed letters."""

    state: State
    warnings: tuple[Note, ...]
    changes: tuple[Note, ...]

    @property
    def sha256(self) -> str:
        """The digest of the state."""
        return state_sha256(self.state)


def state_bytes(state: Mapping[str, object]) -> bytes:
    """The canonical bytes of a state in its normal form."""
    return canonical.dumps(dict(state))


def state_sha256(state: Mapping[str, object]) -> str:
    """The digest that names a state, in its normal form."""
    return canonical.digest(SCHEMA, state_bytes(state))


def parse(data: bytes | str) -> Checked:
    """A state of version 2 or 1 from its JSON text.

    Raises:
        StateInvalid: as :func:`check`, and for what is no strict JSON.
        InputTooLarge: more bytes than are read at all.
    """
    return check(canonical.loads(data))


def check(value: object) -> Checked:
    """A state of version 2, or of version 1 brought to version 2, checked.

    Raises:
        StateInvalid: ``details["faults"]`` holds pointer, code and message of each fault (up
            to :data:`FAULTS_SHOWN`), ``details["count"]`` how many there are.
        InputTooLarge: the whole is over :data:`~handoff.sessions.schema.STATE_HARD` bytes.
    """
    notes = Notes()
    if not isinstance(value, dict):
        notes.fault("", "type", "a state is a JSON object")
        raise invalid(notes.faults)
    if state_v1.is_v1(value):
        upgraded = state_v1.upgrade(value, notes)
        if upgraded is None:
            raise invalid(notes.faults)
        value = upgraded
    state = _read_state(value, notes)
    if notes.faults:
        _relations_beside(state, notes)
    else:
        _relations(state, notes)
    if notes.faults:
        raise invalid(notes.faults)
    size = len(state_bytes(state))
    if size > STATE_HARD:
        raise InputTooLarge(
            f"the state has {size} bytes; the limit is {STATE_HARD}",
            remedy="leave out what a new session can read in the project; say so in omissions",
            size=size,
            limit=STATE_HARD,
            fields=_largest(state),
        )
    if size > STATE_SOFT:
        notes.warn("", "long_state", f"{size} bytes; up to {STATE_SOFT} is read with care")
    return Checked(state, tuple(notes.warnings), tuple(notes.changes))


def invalid(faults: list[Note]) -> StateInvalid:
    """The one error for all of these faults."""
    first = faults[0]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return StateInvalid(
        f"the state can't be taken: {first.pointer or 'the whole'}: {first.message}{more}",
        remedy="mend each place that is named, then send the state again",
        faults=[fault.to_json() for fault in faults[:FAULTS_SHOWN]],
        count=len(faults),
    )


def _read_state(value: Mapping[str, object], notes: Notes) -> State:
    if "schema_version" in value and value.get("schema") == SCHEMA:
        notes.fault("/schema_version", "unknown_key", "belongs to version 1; schema is enough")
    for number, key in enumerate(value):
        if key not in TOP and key != "schema_version":
            where = f"/{shown_key(key, number)}"
            notes.fault(where, "unknown_key", "no such field; there are " + ", ".join(TOP))
    for name in NEEDED:
        if value.get(name) is None:
            notes.fault(f"/{name}", "missing", "this field must be there")
    if value.get("schema") not in (None, SCHEMA):
        notes.fault("/schema", "schema", f"must be '{SCHEMA}' (or schema_version 1)")
    state: State = {"schema": SCHEMA}
    if value.get("goal") is not None:
        state["goal"] = read_object(value["goal"], GOAL, "/goal", notes)
        if state["goal"].get("done_when") == []:
            notes.warn("/goal/done_when", "no_end", "nothing says when the goal is reached")
    progress = value.get("progress", {})
    if progress is None:
        progress = {}
    if not isinstance(progress, dict):
        notes.fault("/progress", "type", "must be an object of " + ", ".join(PROGRESS))
        progress = {}
    for number, key in enumerate(progress):
        if key not in PROGRESS:
            where = f"/progress/{shown_key(key, number)}"
            notes.fault(where, "unknown_key", "no such field; there are " + ", ".join(PROGRESS))
    state["progress"] = {}
    for path in LISTS:
        owner, _, name = path.rpartition("/")
        given = progress.get(name) if owner else value.get(name)
        if path == "omissions" and given is None:
            notes.warn("/omissions", "no_omissions", "nothing says what was left out")
            continue
        items = _read_list(given, path, notes)
        (state["progress"] if owner else state)[name] = items
    lineage = value.get("lineage")
    state["lineage"] = read_object({} if lineage is None else lineage, LINEAGE, "/lineage", notes)
    return state


def _read_list(given: object, path: str, notes: Notes) -> list[object]:
    spec, pointer = LISTS[path], f"/{path}"
    if given is None:
        return []
    if not isinstance(given, list):
        notes.fault(pointer, "type", "must be a list")
        return []
    if len(given) > spec.limit:
        notes.fault(pointer, "too_many", f"{len(given)} entries; the limit is {spec.limit}")
    return [
        read_object(item, spec.fields, f"{pointer}/{number}", notes)
        for number, item in enumerate(given)
    ]


def items(state: State, path: str) -> list[dict[str, Any]]:
    """The items of one list of the state, by its path in the schema."""
    owner, _, name = path.rpartition("/")
    found = (state.get(owner) or {}).get(name) if owner else state.get(name)
    return list(found or [])


def every_item(state: State) -> list[tuple[str, dict[str, Any]]]:
    """All items: (pointer, item), in the order of the document."""
    return [
        (f"/{path}/{number}", item)
        for path in LISTS
        for number, item in enumerate(items(state, path))
    ]


# -- what holds between items -------------------------------------------------------------


def _relations(state: State, notes: Notes) -> None:
    groups = _groups(state, notes)
    _paths(state, notes)
    _decisions(state, notes)
    named = [
        (f"{pointer}/blocks/{number}", other)
        for pointer, item in every_item(state)
        for number, other in enumerate(item.get("blocks", []))
    ]
    for number, other in enumerate(state["lineage"]["inherited_ids"]):
        named.append((f"/lineage/inherited_ids/{number}", other))
    for pointer, other in named:
        if other not in groups:
            notes.fault(pointer, "dangling", "no item has this id")
        elif len(groups[other]) > 1:
            where = ", ".join(sorted(groups[other]))
            notes.fault(pointer, "ambiguous", f"items of several lists have this id: {where}")
    for number, item in enumerate(items(state, "progress/done")):
        if not item["evidence"] and item["basis"] not in {"reported", "inferred", "inherited"}:
            item["basis"] = "reported"
            notes.change(
                f"/progress/done/{number}/basis", "basis_lowered", "no evidence: reported, no more"
            )
    for number, item in enumerate(items(state, "verification")):
        _verification(item, f"/verification/{number}", notes)


def _relations_beside(state: State, notes: Notes) -> None:
    """What can be told of relations where fields are faulty, so that all is told at once: ids
    that are there twice, and what holds within the lists that are whole. What an id leads to
    can't be told: it may be in a part that was not taken."""
    faulty = {fault.pointer.split("/")[1] for fault in notes.faults if "/" in fault.pointer}
    whole = {name: value for name, value in state.items() if name not in faulty}
    _groups(state, notes)
    _paths(whole, notes)
    _decisions(whole, notes)
    for number, item in enumerate(items(whole, "verification")):
        _verification(item, f"/verification/{number}", notes)


def _groups(state: State, notes: Notes) -> dict[str, set[str]]:
    """The ids, each with the lists that have it. Twice in one list is a fault; progress is
    one list."""
    places: dict[tuple[str, str], str] = {}
    groups: dict[str, set[str]] = {}
    for pointer, item in every_item(state):
        name = item.get("id")
        if not isinstance(name, str):
            continue
        group = pointer.split("/")[1]
        if (group, name) in places:
            notes.fault(f"{pointer}/id", "duplicate", f"{places[group, name]} has the same id")
        places.setdefault((group, name), pointer)
        groups.setdefault(name, set()).add(group)
    return groups


def _paths(state: State, notes: Notes) -> None:
    seen: dict[tuple[str, str], int] = {}
    for number, item in enumerate(items(state, "files")):
        key = (item["path"], item["role"])
        if key in seen:
            notes.fault(
                f"/files/{number}/path", "duplicate", f"/files/{seen[key]} has this path and role"
            )
        seen.setdefault(key, number)


def _decisions(state: State, notes: Notes) -> None:
    decisions = items(state, "decisions")
    places = {item["id"]: number for number, item in enumerate(decisions)}
    replaced: set[str] = set()
    for number, item in enumerate(decisions):
        for index, old in enumerate(item["supersedes"]):
            if old not in places:
                where = f"/decisions/{number}/supersedes/{index}"
                notes.fault(where, "dangling", "no decision has this id")
            replaced.add(old)
    for number, item in enumerate(decisions):
        if item["status"] == "superseded" and item["id"] not in replaced:
            where = f"/decisions/{number}/status"
            notes.fault(where, "no_successor", "no decision supersedes it")
        elif item["status"] == "active" and item["id"] in replaced:
            where = f"/decisions/{number}/status"
            notes.fault(where, "still_active", "another decision supersedes it")
    if looped := _in_circle({item["id"]: item["supersedes"] for item in decisions}):
        where = f"/decisions/{places[looped]}/supersedes"
        notes.fault(where, "circle", "it supersedes itself, over others or at once")


def _in_circle(edges: Mapping[str, list[str]]) -> str:
    """One node that leads back to itself, or ""."""
    waiting = dict.fromkeys(edges, 0)
    for targets in edges.values():
        for target in targets:
            if target in waiting:
                waiting[target] += 1
    free = [node for node, count in waiting.items() if count == 0]
    while free:
        for target in edges[free.pop()]:
            if target in waiting:
                waiting[target] -= 1
                if waiting[target] == 0:
                    free.append(target)
    return next((node for node, count in waiting.items() if count > 0), "")


def _verification(item: Mapping[str, object], pointer: str, notes: Notes) -> None:
    if item["result"] != "pass":
        return
    if "exit_code" not in item:
        notes.fault(f"{pointer}/exit_code", "missing", "a pass has its exit code 0")
    elif item["exit_code"] != 0:
        notes.fault(f"{pointer}/exit_code", "not_passed", "a pass has exit code 0")
    for name, meaning in (("commit", "at which it passed"), ("at", "when it passed")):
        if name not in item:
            notes.fault(f"{pointer}/{name}", "missing", f"a pass says {meaning}")
    if "command" not in item:
        notes.warn(f"{pointer}/command", "no_command", "nobody can run it again")


def _largest(state: State) -> list[dict[str, object]]:
    sizes = {path: len(canonical.dumps(items(state, path))) for path in LISTS if items(state, path)}
    top = sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    return [{"field": path, "bytes": size} for path, size in top]
