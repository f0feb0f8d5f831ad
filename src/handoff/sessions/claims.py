"""What a claim rests on: its basis, held against the evidence that is really there.

A writer may say ``observed``; that it was, shows only the evidence. A claim whose pointers
lead nowhere, or to another content, is lowered to ``reported``, and the change is named.
``verified`` is the tool's own word: from a writer it counts as ``observed`` at most.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from handoff.sessions.fields import Note
from handoff.sessions.state import State, check, every_item

#: from the weakest to the strongest; what is inherited is as weak as what was guessed
STRENGTH = {"inherited": 0, "inferred": 0, "reported": 1, "observed": 2, "verified": 3}


class Fact(NamedTuple):
    """One piece of evidence that the tool has seen. ``sha256``: of its content, 64 hex
    digits, or "" if it has none."""

    kind: str
    id: str
    sha256: str = ""


class Settled(NamedTuple):
    """A state whose claims say no more than the evidence. ``changes``: what was lowered, and
    why."""

    state: State
    changes: tuple[Note, ...]


def settle(state: State, facts: Iterable[Fact], *, verified: Collection[str] = ()) -> Settled:
    """Lower each claim that is not borne out.

    Args:
        state: in its normal form; it stays as it is.
        facts: all evidence that the tool has seen of the session and the workspace.
        verified: pointers of items (such as ``/progress/done/0``) that the tool itself has
            checked just now; these become ``verified``.
    """
    known = {(fact.kind, fact.id): fact.sha256 for fact in facts}
    made = copy.deepcopy(state)
    inherited = set(made["lineage"]["inherited_ids"])
    changes: list[Note] = []
    for pointer, item in every_item(made):
        if "basis" not in item:
            continue
        basis, why = _supported(item, known, inherited)
        if pointer in verified:
            basis, why = "verified", "the tool has checked it"
        if basis != item["basis"]:
            code = "basis_lowered" if STRENGTH[basis] < STRENGTH[item["basis"]] else "basis_raised"
            changes.append(Note(f"{pointer}/basis", code, f"{item['basis']} to {basis}: {why}"))
            item["basis"] = basis
    return Settled(made, tuple(changes))


def _supported(
    item: Mapping[str, Any], known: Mapping[tuple[str, str], str], inherited: Collection[str]
) -> tuple[str, str]:
    basis: str = item["basis"]
    pointers = item.get("evidence", [])
    bad = [pointer for pointer in pointers if (pointer["kind"], pointer["id"]) not in known]
    other = [
        pointer
        for pointer in pointers
        if pointer.get("sha256")
        and known.get((pointer["kind"], pointer["id"]), pointer["sha256"]) != pointer["sha256"]
    ]
    if item["id"] in inherited and (not pointers or bad or other):
        return "inherited", "nothing in this session shows it again"
    if STRENGTH[basis] <= STRENGTH["reported"]:
        return basis, ""
    if not pointers:
        return "reported", "no evidence"
    if bad:
        return "reported", f"{len(bad)} of {len(pointers)} pointers lead to nothing"
    if other:
        return "reported", f"{len(other)} of {len(pointers)} pointers lead to another content"
    if basis == "verified":
        return "observed", "only the tool says verified"
    return basis, ""


def unfounded(state: State, facts: Iterable[Fact]) -> list[Note]:
    """Evidence that leads nowhere or to another content, each by its pointer."""
    known = {(fact.kind, fact.id): fact.sha256 for fact in facts}
    notes = []
    for pointer, item in every_item(state):
        for number, one in enumerate(item.get("evidence", [])):
            here = f"{pointer}/evidence/{number}"
            found = known.get((one["kind"], one["id"]))
            if found is None:
                notes.append(Note(here, "no_such_evidence", f"there is no such {one['kind']}"))
            elif one.get("sha256") and found != one["sha256"]:
                notes.append(Note(here, "other_content", "its content is not what was pointed to"))
    return notes


def inherit(state: State, parent_ref: str) -> State:
    """What a successor takes over: every claim inherited, one generation deeper.

    Raises:
        StateInvalid: the chain is too long, or the reference is none.
    """
    made = copy.deepcopy(state)
    every = [item["id"] for _, item in every_item(made) if "id" in item]
    claims: list[str] = []
    for _, item in every_item(made):
        if "basis" in item:
            item["basis"] = "inherited"
            claims.append(item["id"])
    made["lineage"] = {
        "parent_ref": parent_ref,
        "depth": made["lineage"]["depth"] + 1,
        # An id that several lists have names no single claim.
        "inherited_ids": [name for name in claims if every.count(name) == 1],
    }
    return check(made).state
