"""What is known of an attempt, and what a person decides of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from handoff.errors import ActorRefused, HandoffError
from handoff.sessions import deliveries, owner
from handoff.sessions.journal import Actor
from handoff.sessions.recover import inspect, user
from handoff.sessions.service import Caller, Service

__all__ = ["abandon", "adopt", "confirm", "opening_status", "person_of", "recover"]


def opening_status(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """What is known of an attempt, or of all attempts and deliveries (of a record)."""
    journal = service.journal
    if "attempt_id" in given:
        return journal.status(given["attempt_id"])
    ref = given.get("ref", "")
    attempts = journal.attempts(ref)
    if ref and not attempts:
        service.records.raw(ref)  # no such record is another answer than no attempt
    return {
        "ref": ref,
        "attempts": [journal.status(one) for one in attempts],
        "deliveries": deliveries.listed(journal, ref),
    }


def person_of(service: Service, caller: Caller, attempt_id: str = "") -> Actor:
    """The person, if it is one.

    Raises:
        ActorRefused: it is not, or it speaks from within the attempt's own session.
    """
    if not caller.person:
        raise ActorRefused("only a person may do that, on a surface that no model can call")
    if attempt_id:
        child = service.journal.history(attempt_id).child
        here = child is not None and child["boot"] == owner.boot_id()
        if child and here and (child["pid"], child["started"]) in owner.chain():
            raise ActorRefused(f"this runs inside the session that {attempt_id} opened")
    return Actor("person", caller.name or user())


def confirm(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """A person confirms the new session."""
    attempt = given["attempt_id"]
    service.journal.confirm(attempt, person_of(service, caller, attempt))
    return service.journal.status(attempt)


def abandon(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """A person gives the attempt up."""
    attempt = given["attempt_id"]
    service.journal.abandon(
        attempt,
        given["reason"],
        person_of(service, caller, attempt),
        owner_is_gone=given.get("owner_is_gone", False),
    )
    return service.journal.status(attempt)


def adopt(service: Service, given: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """A person names the session that an uncertain start has made."""
    attempt = given["attempt_id"]
    who = person_of(service, caller, attempt)
    found = [str(one["session_id"]) for one in _candidates(service, attempt)]
    service.journal.adopt(attempt, given["session"], found, who)
    return service.journal.status(attempt)


def _candidates(service: Service, attempt: str) -> list[Mapping[str, Any]]:
    """The sessions that the attempt's start may have made, as its host's store shows them."""
    journal = service.journal
    frozen = journal.frozen(attempt)
    intents = [one.at for one in journal.events(attempt) if one.kind == "launch_intent"]
    if not intents:
        return []
    return list(service.host_of(frozen["host"]).candidates(frozen, intents[0]))


def recover(service: Service, given: Mapping[str, Any], _caller: Caller) -> dict[str, Any]:
    """Everything that is known, and the choices; nothing is chosen."""
    from handoff.sessions.opening import prompt_of

    attempt = given["attempt_id"]
    journal = service.journal
    frozen = journal.frozen(attempt)
    candidates, why = _looked_for(service, attempt)
    told = inspect(journal, attempt, service.records.guard.value(list(candidates)).value)
    told["candidates_note"] = why
    base = f"handoff session recover --profile {frozen['profile']} {attempt}"
    names = told["status"]["allowed_next"]
    found = candidates[0]["session_id"] if len(candidates) == 1 else "SESSION"
    told["commands"] = [
        {"choice": name, "command": f"{base} {flag}"}
        for name, flag in (
            ("adopt", f"--adopt {shlex.quote(str(found))}"),
            ("abandon", "--abandon 'why'"),
        )
        if name in names
    ]
    told["prompt"] = prompt_of(frozen)
    return told


def _looked_for(service: Service, attempt: str) -> tuple[list[Mapping[str, Any]], str]:
    try:
        found = _candidates(service, attempt)
    except HandoffError as error:
        return [], f"candidates can't be told: {error.cause}"
    return found, "" if found else "the host's store shows no session that may be the one"
