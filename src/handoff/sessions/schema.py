"""The format ``handoff-state/2`` as data: which fields there are, what each may hold.

:mod:`handoff.sessions.state` checks a value against these tables; the documents and the
description that a model is given are made of the same tables, so they can't disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

SCHEMA = "handoff-state/2"
SCHEMA_V1 = 1

KIB = 1024
#: bytes of UTF-8 of one text: refused above, warned above
TEXT_HARD, TEXT_SOFT = 8 * KIB, 2 * KIB
#: bytes of the canonical state: refused above, warned above
STATE_HARD, STATE_SOFT = 256 * KIB, 16 * KIB
GOAL_HARD = 2 * KIB

BASES = ("observed", "verified", "reported", "inferred", "inherited")
EVIDENCE_KINDS = ("message", "tool", "git", "file", "command")


class Field(NamedTuple):
    """One field of an item.

    ``kind``: text, line (a text of one line), texts, id, ids, choice, integer, flag, hash,
    commit, time, path, evidence. ``need``: it must be there. ``limit``: bytes of a text,
    entries of a list, or the largest integer. ``choices``: what a choice may be.
    ``otherwise``: what stands for an absent one; ``None`` leaves it out.
    """

    kind: str
    need: bool = False
    limit: int = TEXT_HARD
    choices: tuple[str, ...] = ()
    otherwise: object = None


class Items(NamedTuple):
    """A list of items. ``limit``: entries. ``fields``: by name. ``letter``: with which the
    ids begin that v1 states are given."""

    limit: int
    fields: Mapping[str, Field]
    letter: str = ""


_ID = Field("id", need=True)
_TEXT = Field("text", need=True)
_BASIS = Field("choice", choices=BASES, otherwise="reported")
_EVIDENCE = Field("evidence", limit=32)

#: of one pointer to evidence
EVIDENCE: Mapping[str, Field] = {
    "kind": Field("choice", need=True, choices=EVIDENCE_KINDS),
    "id": Field("line", need=True, limit=512),
    "at": Field("time"),
    "sha256": Field("hash"),
}

GOAL: Mapping[str, Field] = {
    "text": Field("text", need=True, limit=GOAL_HARD),
    "done_when": Field("texts", limit=16),
}

LINEAGE: Mapping[str, Field] = {
    "parent_ref": Field("line", limit=256),
    "depth": Field("integer", limit=64, otherwise=0),
    "inherited_ids": Field("ids", limit=2048),
}

PROGRESS = ("done", "in_progress", "pending")
_PROGRESS_ITEM: Mapping[str, Field] = {
    "id": _ID,
    "text": _TEXT,
    "basis": _BASIS,
    "evidence": _EVIDENCE,
}

#: every list by its path in the state
LISTS: Mapping[str, Items] = {
    "constraints": Items(
        128,
        {
            "id": _ID,
            "text": _TEXT,
            "kind": Field("choice", need=True, choices=("must", "must_not", "prefer")),
            "scope": Field("text"),
            "basis": _BASIS,
            "evidence": _EVIDENCE,
        },
        "c",
    ),
    "progress/done": Items(256, _PROGRESS_ITEM, "p"),
    "progress/in_progress": Items(256, _PROGRESS_ITEM, "w"),
    "progress/pending": Items(256, _PROGRESS_ITEM, "t"),
    "decisions": Items(
        256,
        {
            "id": _ID,
            "text": _TEXT,
            "why": Field("text"),
            "alternatives": Field("texts", limit=32),
            "supersedes": Field("ids", limit=64),
            "status": Field("choice", choices=("active", "superseded"), otherwise="active"),
        },
        "d",
    ),
    "rejected": Items(
        256,
        {"id": _ID, "text": _TEXT, "why": Field("text", need=True), "evidence": _EVIDENCE},
        "r",
    ),
    "verification": Items(
        256,
        {
            "id": _ID,
            "claim": _TEXT,
            "command": Field("text"),
            "exit_code": Field("integer", limit=2**31 - 1),
            "result": Field("choice", need=True, choices=("pass", "fail", "not_run")),
            "commit": Field("commit"),
            "dirty_digest": Field("line", limit=256),
            "at": Field("time"),
        },
        "v",
    ),
    "files": Items(
        512,
        {
            "path": Field("path", need=True, limit=4 * KIB),
            "role": Field(
                "choice",
                need=True,
                choices=("created", "modified", "deleted", "read_next", "do_not_touch"),
            ),
            "blob": Field("commit"),
            "note": Field("text"),
        },
    ),
    "context": Items(
        256,
        {
            "id": _ID,
            "text": _TEXT,
            "kind": Field(
                "choice",
                choices=("fact", "command", "contract", "env", "artifact"),
                otherwise="fact",
            ),
            "basis": _BASIS,
            "evidence": _EVIDENCE,
        },
        "x",
    ),
    "questions": Items(64, {"id": _ID, "text": _TEXT, "blocks": Field("ids", limit=64)}, "q"),
    "uncertainties": Items(128, {"id": _ID, "text": _TEXT, "check": Field("text")}, "u"),
    "next_steps": Items(
        64,
        {
            "id": _ID,
            "text": _TEXT,
            "verify": Field("text"),
            "needs_confirmation": Field("flag", otherwise=True),
        },
        "n",
    ),
    "omissions": Items(
        64,
        {
            "what": _TEXT,
            "count": Field("integer", limit=2**31 - 1, otherwise=1),
            "why": Field("text"),
        },
    ),
}

#: names at the top of a state, in the order of the document
TOP = (
    "schema",
    "goal",
    "constraints",
    "progress",
    "decisions",
    "rejected",
    "verification",
    "files",
    "context",
    "uncertainties",
    "questions",
    "next_steps",
    "lineage",
    "omissions",
)
NEEDED = ("schema", "goal")

#: of ``handoff-state`` version 1: the lists of texts beside goal and progress
V1_LISTS = (
    "constraints_preferences",
    "key_decisions",
    "rejected_attempts",
    "verification",
    "critical_context",
    "uncertainties",
    "next_steps",
)
V1_LIMIT = 256
