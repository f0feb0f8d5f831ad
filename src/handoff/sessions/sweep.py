"""Drafts for sessions that nobody handed off: a crash, a closed lid.

No model is asked and nothing is opened. A draft holds what can be had without
understanding: the user's first words as the goal, what sounded like rules, and the plain
statement that all the rest was left out. Every claim in it is ``reported``.
"""

from __future__ import annotations

import re
from typing import Any

from handoff.errors import HandoffError
from handoff.sessions import canonical, evidence, host_store
from handoff.sessions.host_store import Opener, Session, SessionStore
from handoff.sessions.manifest import Source, Writer
from handoff.sessions.profile import Profile
from handoff.sessions.records import Draft, Records
from handoff.sessions.text import one_line
from handoff.sessions.workspace import bind

#: sessions that one sweep looks at
LIMIT = 200
_CALLED = re.compile(r'"name"\s*:\s*"([^"]{1,128})"')
_WRITES = re.compile(
    r"write|edit|patch|create|delete|remove|move|terminal|bash|shell|exec|run|commit",
    re.IGNORECASE,
)
_RULES = 128


def sweep(
    records: Records,
    profile: Profile,
    *,
    idle_ms: int,
    dry_run: bool = False,
    sessions: str | Opener = "",
    host: str = "hermes",
) -> dict[str, list[dict[str, str]]]:
    """Make a draft for each session that has rested for ``idle_ms``, has called a tool that
    writes, and has no record of its last message.

    ``sessions``: the host's session store, a path or what opens it; "" for the profile's own.
    ``host``: its kind.

    Returns ``drafts`` (session, ref; with ``dry_run`` no ref) and ``skipped`` (session,
    why): a workspace that is gone, texts that can't be taken.

    Raises:
        NotFound, StorageError: the session store can't be read.
    """
    told: dict[str, list[dict[str, str]]] = {"drafts": [], "skipped": []}
    now = records.clock.now_ms()
    sessions = sessions or profile.sessions
    with host_store.look(sessions) as store:
        found = [
            (one, store.last_message(one.id))
            for one in store.idle_since(now - idle_ms, LIMIT)
            if _has_written(store, one.id)
        ]
    for session, last in found:
        if _is_kept(records, profile, session.id, last):
            continue
        if dry_run:
            told["drafts"].append({"session": session.id})
            continue
        try:
            ref = _draft(records, profile, session, sessions, host)
        except HandoffError as error:
            told["skipped"].append({"session": session.id, "why": f"{error.code}: {error.cause}"})
        else:
            told["drafts"].append({"session": session.id, "ref": ref})
    return told


def _has_written(store: SessionStore, session_id: str) -> bool:
    return any(
        _WRITES.search(name)
        for message in store.messages([session_id])
        for name in (*_CALLED.findall(message.calls), message.tool)
    )


def _is_kept(records: Records, profile: Profile, session_id: str, last: str) -> bool:
    page = records.list_page(session_id=session_id, profile=profile.name, limit=1)
    return any(
        item["manifest"] and item["manifest"]["source"]["last_message"] == last
        for item in page.items
    )


def _draft(
    records: Records, profile: Profile, session: Session, sessions: str | Opener, host: str
) -> str:
    place = bind(session.cwd)
    got = evidence.gather(place, records.guard, sessions=sessions, session_id=session.id)
    mark = canonical.digest("handoff-sweep/1", f"{session.id}\0{got.last_message}".encode())
    made = records.create(
        Draft(
            _state(got),
            f"sweep-{mark[:32]}",
            place,
            Source(profile.name, session.id, got.last_message, host),
            evidence=got.frozen,
            writer=Writer("sweeper"),
            origin="sweep",
        )
    )
    return made.ref


def _state(got: evidence.Bundle) -> dict[str, Any]:
    candidates = got.frozen["candidates"]
    texts = [one_line(one["text"], 500) for one in candidates]
    goal = texts[0] if texts else "not known: the session has no message of the user"
    return {
        "schema": "handoff-state/2",
        "goal": {"text": goal, "done_when": []},
        "constraints": [
            {"id": f"c{number}", "text": text, "kind": "prefer", "basis": "reported"}
            for number, text in enumerate(texts[1 : _RULES + 1], 1)
        ],
        "omissions": [
            {
                "what": "progress, decisions, verification and next steps of the session",
                "why": "nobody handed it off; this draft was made without a model",
            }
        ],
    }
