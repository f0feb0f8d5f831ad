"""What the opening journal says: everything that only reads. No file is created by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from handoff.lifecycle import ATTEMPT_LIVE
from handoff.sessions import deliveries
from handoff.sessions import history as past
from handoff.sessions import journal_file as file
from handoff.sessions import journal_rows as rows
from handoff.sessions.history import Event, History
from handoff.sessions.owner import Liveness, alive

if TYPE_CHECKING:
    from handoff.clock import Clock

__all__ = ["JournalView"]


def _nothing(_name: str, /) -> None:
    """No crash is wanted here."""


class JournalView:
    """The journal of one profile, to be read.

    Args:
        root: the folder that holds it (``<profile>/handoff``); made at the first write.
        clock: time and ids.
        redact: takes secrets out of what a person or a model wrote.
        liveness: whether a reservation's holder lives.
        reach: called with the name of each place where a crash would be interesting.
    """

    def __init__(
        self,
        root: str,
        *,
        clock: Clock,
        redact: Callable[[str], str],
        liveness: Liveness = alive,
        reach: Callable[[str], None] = _nothing,
    ) -> None:
        self.root = root
        self.clock = clock
        self.redact = redact
        self.alive = liveness
        self.reach = reach

    def frozen(self, attempt_id: str) -> dict[str, Any]:
        """The attempt as it was prepared (the keys of :data:`FROZEN`).

        Raises:
            UnknownAttempt: this profile has none of that id.
            JournalCorrupt: it was changed.
        """
        if not file.exists(self.root):
            raise rows.unknown(attempt_id)
        with file.reading(self.root) as db:
            return rows.frozen(db, attempt_id)

    def events(self, attempt_id: str) -> list[Event]:
        """The attempt's events, oldest first. Raises as :meth:`frozen`."""
        if not file.exists(self.root):
            raise rows.unknown(attempt_id)
        with file.reading(self.root) as db:
            rows.frozen(db, attempt_id)
            return rows.events(db, attempt_id)

    def history(self, attempt_id: str) -> History:
        """The facts so far. Raises as :meth:`frozen`."""
        return past.fold(self.events(attempt_id))

    def attempts(self, ref: str = "") -> list[str]:
        """The ids of all attempts (of one record), oldest first."""
        if not file.exists(self.root):
            return []
        with file.reading(self.root) as db:
            found = db.execute(
                "SELECT attempt_id FROM attempts WHERE ? IN ('', ref) ORDER BY at, attempt_id",
                (ref,),
            ).fetchall()
        return [str(row[0]) for row in found]

    def live(self, ref: str) -> list[str]:
        """The attempts of a record that hold it: reserved, requested or seen, not ended."""
        return [a for a in self.attempts(ref) if self.history(a).state in ATTEMPT_LIVE]

    def status(self, attempt_id: str) -> dict[str, Any]:
        """``opening_status`` of section "what is known": state, facts, certainty, next steps.

        ``resume_verified`` is always false: nothing here can know that the work went on.
        ``certainty`` is ``uncertain`` if a session may exist that nobody has seen.
        """
        if not file.exists(self.root):
            raise rows.unknown(attempt_id)
        with file.reading(self.root) as db:
            frozen = rows.frozen(db, attempt_id)
            events = rows.events(db, attempt_id)
            held = rows.reservation(db, attempt_id)
        facts = past.fold(events)
        living = self.alive(held[2]) if held else None
        uncertain = facts.state == "requested" and living is False
        reservation: dict[str, Any] | None = None
        if held:
            age = max(0, self.clock.now_ms() - held[0]) / 1000
            reservation = {"id": held[1], "owner_alive": living, "age_s": age}
            reservation["owner"] = rows.shown(held[2])
        return {
            "attempt_id": attempt_id,
            "ref": frozen["ref"],
            "state": facts.state,
            "requested": facts.requested,
            "session_identified": facts.session_identified,
            "handoff_read": facts.handoff_read,
            "acknowledged": facts.acknowledged,
            "user_confirmed": facts.user_confirmed,
            "child_exit": rows.exit_shown(facts, living),
            "resume_verified": False,
            "certainty": "uncertain" if uncertain else "certain",
            "destination": {"session_id": facts.session, "surface": facts.surface},
            "prompt": rows.prompt_shown(facts),
            "reservation": reservation,
            "anomalies": facts.anomalies,
            "allowed_next": past.allowed_next(facts, living),
            "explain": past.UNCERTAIN if uncertain else past.EXPLAIN[facts.state],
        }

    def verify(self) -> dict[str, Any]:
        """Check every event of every attempt and delivery: ``{events, attempts, deliveries,
        head}``.

        Raises:
            JournalCorrupt: a row is missing, added, changed or out of order.
        """
        if not file.exists(self.root):
            return {"events": 0, "attempts": 0, "deliveries": 0, "head": past.GENESIS}
        with file.reading(self.root) as db:
            return {**rows.verify(db), "deliveries": deliveries.verify(db)}
