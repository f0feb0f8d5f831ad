"""The opening journal: what was intended, done and seen of each attempt, in order.

Append-only and hash-chained over all attempts of a profile. Every call here is one durable
transaction; what follows it (a process, a page on its way to a model) may only happen once
it has returned. Two unique indexes hold what must never be broken: one ``launch_intent``
per attempt, one open reservation per record.

Who may do what: an opener reserves, intends and reports its child; the new session shows
itself, reads and acknowledges; only a person confirms, adopts or gives up.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handoff.errors import (
    ActorRefused,
    AlreadyReserved,
    BadTransition,
    NotAllowed,
    SessionMismatch,
    UsageError,
)
from handoff.lifecycle import ATTEMPT_LIVE
from handoff.sessions import history as past
from handoff.sessions import journal_file as file
from handoff.sessions import journal_rows as rows
from handoff.sessions.journal_view import JournalView
from handoff.sessions.owner import Owner

__all__ = ["FROZEN", "Actor", "Journal", "Reservation"]

#: what prepare freezes: a later call with the same attempt id has to bring the same
FROZEN = (
    "attempt_id",
    "ref",
    "state_sha256",
    "document_sha256",
    "evidence_sha256",
    "profile",
    "host",
    "workspace_given",
    "workspace_resolved",
    "workspace_anchor",
    "source_session",
    "source_last_message",
    "route",
    "surface",
    "prompt_sha256",
    "preflight_sha256",
    "version",
    "allow_parallel",
    "supersedes",
    "locale",
)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts. kind: ``source``, ``opener``, ``destination`` or ``person``; id: for people."""

    kind: str
    id: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}" if self.id else self.kind


@dataclass(frozen=True, slots=True)
class Reservation:
    """The right to open one attempt, once."""

    attempt_id: str
    id: str
    owner: Owner


class Journal(JournalView):
    """The journal of one profile. Made as :class:`JournalView` is."""

    # -- the source --------------------------------------------------------------------

    def prepare(self, frozen: dict[str, Any], actor: Actor) -> bool:
        """Freeze an attempt. Returns True if this call did, False if it was so already.

        Raises:
            UsageError: a field is missing or unknown.
            AttemptConflict: the id was frozen with something else; details name the fields.
            BadTransition: the attempt that it supersedes has not ended, or is superseded already.
        """
        if set(frozen) != set(FROZEN):
            odd = ", ".join(sorted(set(frozen) ^ set(FROZEN)))
            raise UsageError(f"an attempt is frozen from other fields than these: {odd}")
        attempt_id, text = frozen["attempt_id"], past.canonical(frozen).decode()
        with file.writing(self.root) as db:
            if rows.has(db, attempt_id):
                rows.refuse_other(rows.frozen(db, attempt_id), frozen)
                return False
            old = frozen["supersedes"]
            if old:
                rows.supersedable(db, old, frozen["ref"])
                self._append(db, old, "superseded", actor, {"by": attempt_id})
            now, mark = self.clock.now_ms(), past.digest(frozen)
            row = (attempt_id, frozen["ref"], text, mark, now)
            db.execute("INSERT INTO attempts VALUES (?, ?, ?, ?, ?)", row)
            self._append(db, attempt_id, past.FIRST, actor, {"digest": mark})
            self.reach("journal.prepare")
        self.reach("journal.prepared")
        return True

    # -- the opener --------------------------------------------------------------------

    def reserve(self, attempt_id: str, owner: Owner, surface: str) -> Reservation:
        """Take the right to open, in the transaction that sees it free.

        A reservation whose holder is proved dead before it intended to launch is taken back
        first; nothing ever expires by the clock.

        Raises:
            AlreadyReserved: somebody holds it, or it was opened; details say what is known.
            OpeningUncertain: a session may exist; only a person can go on.
            JournalCorrupt: the journal does not verify.
        """
        me = Actor("opener", str(owner.pid))
        with file.writing(self.root) as db:
            frozen = rows.frozen(db, attempt_id)
            rows.verify(db)
            self._reclaim(db, frozen["ref"], me)
            facts = rows.facts(db, attempt_id)
            if facts.state != "prepared":
                raise rows.refusal(db, attempt_id, self.alive)
            self._refuse_second(db, frozen)
            taken = Reservation(attempt_id, self.clock.new_id(), owner)
            db.execute(
                "INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    attempt_id,
                    taken.id,
                    frozen["ref"],
                    int(bool(frozen["allow_parallel"])),
                    past.canonical(owner.to_json()).decode(),
                    surface,
                    self.clock.now_ms(),
                ),
            )
            payload = {"id": taken.id, "surface": surface, "owner": rows.shown(owner)}
            self._append(db, attempt_id, "reservation_taken", me, payload)
            self.reach("journal.reserve")
        self.reach("journal.reserved")
        return taken

    def release(self, held: Reservation, why: str) -> None:
        """Give the right back: nothing was intended yet."""
        self._owned(held, "reservation_released", {"why": self._text(why)}, end=True)

    def intend(self, held: Reservation, payload: dict[str, Any]) -> None:
        """Write down that the launch comes next. Only after this has returned may it come.

        payload: ``program``, ``nonce_sha256``; never a value of the environment.
        """
        self._owned(held, "launch_intent", payload)

    def child_started(self, held: Reservation, child: Owner) -> None:
        """Note which process was started."""
        self._owned(held, "child_started", rows.shown(child))

    def spawn_failed(self, held: Reservation, why: str) -> None:
        """It is proved that nothing was started."""
        self._owned(held, "spawn_failed", {"why": self._text(why)}, end=True)

    def child_exited(self, held: Reservation, code: int | None, signal: int | None) -> None:
        """The child has ended. That is no success."""
        payload = {"code": code, "signal": signal}
        with file.writing(self.root) as db:
            state = rows.facts(db, held.attempt_id).state
            if state in ATTEMPT_LIVE:
                self._check_owner(db, held)
                self._append(db, held.attempt_id, "child_exited", _opener(held), payload)
                rows.end(db, held.attempt_id)
            else:  # a person gave it up meanwhile: what happened is still worth knowing
                note = {"what": "late_exit", **payload}
                self._append(db, held.attempt_id, "anomaly", _opener(held), note)
            self.reach("journal.exit")
        self.reach("journal.exited")

    def note(self, attempt_id: str, kind: str, actor: Actor, payload: dict[str, Any]) -> None:
        """Add a note (a kind of :data:`history.NOTES`): it moves nothing.

        Raises:
            UsageError: the kind is no note.
        """
        if kind not in past.NOTES:
            raise UsageError(f"'{kind}' is no note")
        with file.writing(self.root) as db:
            rows.frozen(db, attempt_id)
            self._append(db, attempt_id, kind, actor, payload)

    # -- the new session ---------------------------------------------------------------

    def session_seen(
        self,
        attempt_id: str,
        session_id: str,
        profile: str,
        *,
        nonce: str = "",
        chain: Sequence[tuple[int, int]] = (),
        boot: str = "",
    ) -> bool:
        """The new session shows itself, with the nonce, or by descent from the child.

        chain: (pid, start stamp) of the caller and its parents, from the kernel; boot: the
        boot id that they are of. Returns False if it had shown itself already.

        Raises:
            SessionMismatch: it is the source, another session, of another profile, or has
                no proof. It is logged, and nothing moves.
        """
        with file.writing(self.root) as db:
            frozen, events = rows.frozen(db, attempt_id), rows.events(db, attempt_id)
            facts = past.fold(events)
            if facts.session == session_id != "":
                return False
            by = rows.proof(events, facts, nonce, chain, boot)
            why = rows.not_the_one(frozen, facts, session_id, profile, by)
            kind = "anomaly" if why else "session_seen"
            payload = {"session_id": session_id, "by": by}
            if why:
                payload = {"what": why, "session_id": session_id}
            self._append(db, attempt_id, kind, Actor("destination", session_id), payload)
            self.reach("journal.see")
        if why:
            raise SessionMismatch(
                f"session '{session_id}' is not the one that attempt {attempt_id} opened: {why}",
                remedy="stop here and tell the person",
                why=why,
            )
        self.reach("journal.seen")
        return True

    def page_served(
        self, attempt_id: str, session_id: str, page: dict[str, Any], *, of: int
    ) -> bool:
        """Note that a page is on its way. Returns True once all pages of its text were.

        page: ``page`` (from 1), ``pages_sha256`` (digest of the whole text), ``required``
        (the codes that an acknowledgement has to echo). Other sessions than the identified
        one get their pages, but nothing moves for them.
        """
        who = Actor("destination", session_id)
        with file.writing(self.root) as db:
            rows.frozen(db, attempt_id)
            facts = rows.facts(db, attempt_id)
            if not session_id or facts.session != session_id or facts.state not in ATTEMPT_LIVE:
                return False
            mark = page["pages_sha256"]
            seen = facts.pages.get((session_id, mark), set())
            if page["page"] not in seen:
                payload = {**page, "of": of, "session_id": session_id}
                self._append(db, attempt_id, "page_served", who, payload)
            complete = seen | {page["page"]} >= set(range(1, of + 1))
            if complete and not facts.handoff_read:
                payload = {"session_id": session_id, "pages_sha256": mark}
                self._append(db, attempt_id, "pages_complete", who, payload)
            self.reach("journal.serve")
        self.reach("journal.served")
        return complete

    def acknowledged(self, attempt_id: str, session_id: str, payload: dict[str, Any]) -> bool:
        """Record what :mod:`handoff.sessions.acknowledge` has checked. False: it was so already.

        Raises:
            BadTransition: it was not read, or the attempt has ended.
        """
        with file.writing(self.root) as db:
            facts = rows.facts(db, attempt_id)
            if facts.session != session_id:
                raise SessionMismatch(f"session '{session_id}' has not read attempt {attempt_id}")
            if facts.acknowledged:
                return False
            who = Actor("destination", session_id)
            self._append(db, attempt_id, "ack_recorded", who, payload)
            self.reach("journal.ack")
        self.reach("journal.acked")
        return True

    # -- a person ----------------------------------------------------------------------

    def confirm(self, attempt_id: str, person: Actor) -> None:
        """A person confirms the new session, on a surface that no model can call."""
        _only_people(person)
        with file.writing(self.root) as db:
            rows.frozen(db, attempt_id)
            self._append(db, attempt_id, "user_confirmed", person, {})

    def adopt(
        self, attempt_id: str, session_id: str, candidates: Sequence[str], person: Actor
    ) -> None:
        """A person names the session that an uncertain start has made.

        candidates: what a look into the host's store found; it has to be exactly that one.

        Raises:
            NotAllowed: the attempt is not uncertain.
            SessionMismatch: not exactly one candidate, or another one.
        """
        _only_people(person)
        with file.writing(self.root) as db:
            frozen = rows.frozen(db, attempt_id)
            self._uncertain(db, attempt_id, "adopted")
            if list(candidates) != [session_id] or session_id == frozen["source_session"]:
                raise SessionMismatch(
                    f"session '{session_id}' is not the one candidate of attempt {attempt_id}",
                    candidates=list(candidates)[:20],
                )
            payload = {"session_id": session_id, "by": "adopted"}
            self._append(db, attempt_id, "adopted", person, payload)

    def abandon(
        self, attempt_id: str, reason: str, person: Actor, *, owner_is_gone: bool = False
    ) -> None:
        """A person gives the attempt up. Nothing is stopped by it.

        owner_is_gone: the person's word where this machine can't tell (another machine or
        container holds the reservation).

        Raises:
            AlreadyReserved: its opener lives, or may live, and no session has shown itself.
        """
        _only_people(person)
        with file.writing(self.root) as db:
            rows.frozen(db, attempt_id)
            state = rows.facts(db, attempt_id).state
            held = rows.reservation(db, attempt_id)
            if state in ("reserved", "requested") and held:
                living = self.alive(held[2])
                if living or (living is None and not owner_is_gone):
                    raise AlreadyReserved(
                        f"attempt {attempt_id} is being opened by process {held[2].pid}",
                        remedy="end that program first",
                        owner=rows.shown(held[2]),
                        owner_alive=living,
                    )
            kind = "declared_lost" if state == "requested" else "abandoned"
            payload = {"reason": self._text(reason), "owner_is_gone": owner_is_gone}
            self._append(db, attempt_id, kind, person, payload)
            rows.end(db, attempt_id)
            self.reach("journal.abandon")
        self.reach("journal.abandoned")

    # -- inside a transaction ----------------------------------------------------------

    def _append(
        self,
        db: sqlite3.Connection,
        attempt_id: str,
        kind: str,
        actor: Actor,
        payload: dict[str, Any],
    ) -> None:
        try:
            rows.append(db, self.clock.now_ms(), attempt_id, kind, str(actor), payload)
        except BadTransition as error:
            error.remedy = error.remedy or f"status {attempt_id}"
            raise

    def _text(self, text: str) -> str:
        """Free text as it may be stored: redacted, and short enough for an event."""
        kept = self.redact(text)
        if len(kept.encode("utf-8", "surrogatepass")) > 1024:
            raise UsageError("a reason may have 1024 bytes", limit=1024)
        return kept

    def _owned(
        self, held: Reservation, kind: str, payload: dict[str, Any], *, end: bool = False
    ) -> None:
        with file.writing(self.root) as db:
            self._check_owner(db, held)
            self._append(db, held.attempt_id, kind, _opener(held), payload)
            if end:
                rows.end(db, held.attempt_id)
            self.reach(f"journal.{kind}")
        self.reach(f"journal.{kind}.done")

    def _check_owner(self, db: sqlite3.Connection, held: Reservation) -> None:
        found = rows.reservation(db, held.attempt_id)
        if found is None or found[1] != held.id or found[2] != held.owner:
            raise AlreadyReserved(
                f"the reservation of attempt {held.attempt_id} is not held by this opener any more"
            )

    def _reclaim(self, db: sqlite3.Connection, ref: str, actor: Actor) -> None:
        """Take back what dead openers reserved and never used."""
        for attempt_id, owner in rows.reservations(db, ref):
            if rows.facts(db, attempt_id).state == "reserved" and self.alive(owner) is False:
                payload = {"owner": rows.shown(owner)}
                self._append(db, attempt_id, "reservation_reclaimed", actor, payload)
                rows.end(db, attempt_id)

    def _refuse_second(self, db: sqlite3.Connection, frozen: dict[str, Any]) -> None:
        """Refuse if another attempt of the same record is under way."""
        if frozen["allow_parallel"]:
            return
        for other, _owner in rows.reservations(db, frozen["ref"]):
            raise rows.refusal(db, other, self.alive)

    def _uncertain(self, db: sqlite3.Connection, attempt_id: str, event: str) -> None:
        """Refuse unless the attempt is requested and its opener proved dead."""
        facts, held = rows.facts(db, attempt_id), rows.reservation(db, attempt_id)
        gone = held is not None and self.alive(held[2]) is False
        if facts.state != "requested" or not gone:
            raise NotAllowed(
                f"attempt {attempt_id} is '{facts.state}' and not uncertain: no '{event}'",
                attempt_id=attempt_id,
                state=facts.state,
            )


def _opener(held: Reservation) -> Actor:
    return Actor("opener", str(held.owner.pid))


def _only_people(actor: Actor) -> None:
    if actor.kind != "person":
        raise ActorRefused(f"only a person may do that, not '{actor.kind}'")
