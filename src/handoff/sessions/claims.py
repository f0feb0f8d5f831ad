"""What a session takes over from the one before it: claims that are as old as their proof.

A claim that the record before this one held already, and that nothing in this session bears,
was handed on. It stays ``inherited`` until somebody looks again, however it is told: drift
counts how often, and says so (``inherited_unverified``).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from handoff.sessions.fields import Note
from handoff.sessions.state import State, check, every_item

__all__ = ["Aged", "aged", "inherit"]


class Aged(NamedTuple):
    """A state whose claims are no younger than what bears them. ``changes``: what became
    inherited, and why."""

    state: State
    changes: tuple[Note, ...]


def aged(state: State, parent: State | None, borne: Callable[[dict[str, Any]], bool]) -> Aged:
    """Mark each claim that was only handed on.

    Args:
        state: in its normal form, its lineage filled in; it stays as it is.
        parent: the state that this session goes on from, if it is at hand. A rule that stands
            in both is no claim to be checked: it is in force until the user says otherwise.
        borne: whether what this session shows bears an item.
    """
    made = copy.deepcopy(state)
    listed: list[str] = made["lineage"]["inherited_ids"]
    items = every_item(made)
    ids = [item["id"] for _, item in items if "id" in item]
    before = _claims(parent) if parent is not None else set()
    changes: list[Note] = []
    for pointer, item in items:
        # An id that several lists have names no single claim.
        if "basis" not in item or ids.count(item["id"]) > 1:
            continue
        same = (pointer.rpartition("/")[0].split("/")[1], item["id"], item["text"]) in before
        if (not same and item["id"] not in listed) or borne(item):
            continue
        if item["id"] not in listed:
            listed.append(item["id"])
        if item["basis"] != "inherited":
            why = f"{item['basis']} to inherited: handed on, and nothing in this session shows it"
            changes.append(Note(f"{pointer}/basis", "basis_inherited", why))
            item["basis"] = "inherited"
    return Aged(made, tuple(changes))


def _claims(state: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """The claims of a state: the group of their list, id, text. Work that is done moves on
    within its group."""
    found = set()
    for pointer, item in every_item(dict(state)):
        group = pointer.split("/")[1]
        if "basis" in item and group != "constraints":
            found.add((group, item["id"], item["text"]))
    return found


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
