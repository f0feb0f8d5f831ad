"""Which model a session last used: names only, never what was said to it."""

from __future__ import annotations

from typing import Any

from handoff.sessions import journal_file as file
from handoff.sessions.journal import Journal

__all__ = ["last_route", "observe"]


def observe(journal: Journal, session_id: str, model: str, provider: str, turn_id: str) -> None:
    """Remember the route of the latest call of that session (one row a session).

    An empty model or provider says nothing, and is not stored. The same route as before is
    not written again: the observer runs before every call.
    """
    if not session_id or not model or not provider:
        return
    known = last_route(journal, session_id)
    if known and (known["model"], known["provider"]) == (model, provider):
        return
    with file.writing(journal.root) as db:
        db.execute(
            "INSERT OR REPLACE INTO routes VALUES (?, ?, ?, ?, ?)",
            (session_id, model, provider, turn_id, journal.clock.now_ms()),
        )


def last_route(journal: Journal, session_id: str) -> dict[str, Any] | None:
    """``model``, ``provider``, ``turn_id``, ``observed_at`` (ms) of exactly that session."""
    if not file.exists(journal.root):
        return None
    with file.reading(journal.root) as db:
        row = db.execute(
            "SELECT model, provider, turn_id, at FROM routes WHERE session_id = ?", (session_id,)
        ).fetchone()
    if row is None:
        return None
    return dict(zip(("model", "provider", "turn_id", "observed_at"), row, strict=True))
