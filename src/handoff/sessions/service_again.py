"""The answer to a create that was answered before, told from its record alone.

What has been said, done or lost since is nothing to it: the record is what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handoff.sessions import lint
from handoff.sessions import state as states
from handoff.sessions.drift import dropped_candidates
from handoff.sessions.guard import Guard
from handoff.sessions.records_view import Record

__all__ = ["Told", "told"]


@dataclass(frozen=True)
class Told:
    """What a reply says beside the manifest. ``unseen``: no session was looked at."""

    warnings: list[dict[str, str]]
    changes: list[dict[str, str]]
    lost: list[dict[str, Any]]
    redactions: dict[str, int]
    redacted: tuple[str, ...]
    unseen: bool


def told(record: Record, checked: states.Checked, guard: Guard) -> Told:
    """What the first answer said, as far as the record knows it.

    ``checked``: the state as it is given now, which is as it was given then.
    """
    texts = set(dropped_candidates(record))
    lost = [one for one in record.evidence.get("candidates", []) if one["text"] in texts]
    notes = lint.lint(
        record.state, [lint.Candidate(one["text"], f"message {one['id']}") for one in lost]
    )
    guarded = guard.state(checked.state)
    unseen = not record.evidence.get("window", {}).get("messages")
    missing = ["no session store: messages are unavailable"] if unseen else []
    missing += [f"{k}: {why}" for k, why in record.evidence.get("unavailable", {}).items()]
    warnings = [
        *(note.to_json() for note in checked.warnings),
        *guard.value([note.to_json() for note in notes]).value,
        *({"pointer": "", "code": "evidence", "message": note} for note in missing),
    ]
    changes = [*(note.to_json() for note in checked.changes), *_differences(record, checked.state)]
    return Told(warnings, changes, lost, guarded.counts, tuple(guarded.pointers), unseen)


def _differences(record: Record, given: Mapping[str, Any]) -> list[dict[str, str]]:
    """What the tool made of the given state: its place in the chain, and lower bases."""
    found = []
    lineage, before = record.state["lineage"], given["lineage"]
    if lineage.get("parent_ref", "") != before.get("parent_ref", ""):
        message = f"the record that this session goes on from: {lineage['parent_ref']}"
        found.append({"pointer": "/lineage", "code": "parent_set", "message": message})
    if lineage["depth"] != before["depth"]:
        message = f"{lineage['depth']} generations deep"
        found.append({"pointer": "/lineage/depth", "code": "depth_set", "message": message})
    stored = dict(states.every_item(record.state))
    for pointer, item in states.every_item(dict(given)):
        basis = stored.get(pointer, {}).get("basis")
        if basis != item.get("basis"):
            code = "basis_inherited" if basis == "inherited" else "basis_lowered"
            message = f"stored as '{basis}' when this was made"
            found.append({"pointer": f"{pointer}/basis", "code": code, "message": message})
    return found
